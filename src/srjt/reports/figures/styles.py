"""Colour, dashes and marker of each method: the same in every figure, and distinguishable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srjt.reports.figures.canvas import GREY, INK, PALETTE
from srjt.studies.paper import OURS, is_recipe

__all__ = ["Style", "method_styles"]

FEW = 6  # up to this many methods each has its own colour

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = (
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 2, 2, 2)),
    (0, (2.5, 1.5)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, kw_only=True)
class Style:
    colour: str
    dashes: Dashes = "-"
    marker: str = ""
    filled: bool = True
    width: float = 1.6
    prominent: bool = True  # False: grey and thin, but labelled
    bold: bool = False  # its name


def method_styles(methods: Sequence[str]) -> dict[str, Style]:
    """A style for each method, in the given order.

    "+ours" and its host share a colour and a marker: "+ours" has a solid line and filled markers, the host a dashed
    line and open markers. With more than six methods all others are grey, except a recipe.
    """
    hosts = [name.removesuffix(OURS) for name in methods if name.endswith(OURS)]
    families = list(dict.fromkeys(hosts))
    crowded = len(methods) > FEW and bool(families)
    colours = list(PALETTE.values())
    chosen: dict[str, Style] = {}
    alone = 0
    for name in methods:
        family = name.removesuffix(OURS)
        if family in families:
            place = families.index(family)
            ours = name.endswith(OURS)
            chosen[name] = Style(
                colour=colours[place % len(colours)],
                dashes="-" if ours else _DASHES[place % len(_DASHES)],
                marker=_MARKERS[place % len(_MARKERS)],
                filled=ours,
                width=2.0 if ours else 1.5,
                bold=ours,
            )
            continue
        place = len(families) + alone
        dashes: Dashes = ("-", *_DASHES)[alone % (1 + len(_DASHES))]
        alone += 1
        if crowded and is_recipe(name):
            chosen[name] = Style(
                colour=INK, marker=_MARKERS[len(families) % len(_MARKERS)], width=2.0, bold=True
            )
        elif crowded:
            chosen[name] = Style(colour=GREY, dashes=dashes, width=0.9, prominent=False)
        else:
            colour = (*colours, INK)[place % (1 + len(colours))]
            marker = _MARKERS[place % len(_MARKERS)]
            chosen[name] = Style(colour=colour, dashes=dashes, marker=marker, bold=is_recipe(name))
    return chosen
