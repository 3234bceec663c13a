"""``srjt methods``: what there is to choose from. Loads neither torch nor rich, so that it answers at once."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli.import_option import Import

if TYPE_CHECKING:
    from srjt.methods import RegisteredMethod

NEEDS = {"noise_rate": "ε", "transition": "P"}
LEGEND = """
needs ε  the share of wrong labels: --noise-rate 0.2, or auto
needs P  the matrix Pr(label | true grade): --transition FILE, or
         --noise-rate auto
scores   joint methods keep the samples of smallest score as clean.
         ℓ_h: loss of the label as given; ℓ_h1, ℓ_h2: of each network;
         τ: a temperature below 1, which sharpens it; D: how much the two
         networks disagree; λ: the weight of D
+ours    the paper's method, added to a joint method, which is called its
         host: jocor is the host of jocor+ours
"""


def methods(
    plain: Annotated[
        bool, typer.Option("--plain", help="Print names only, one per line, for scripts.")
    ] = False,
    import_: Import = None,
) -> None:
    """List the methods: how each judges samples, what it learns from, and what it needs to know."""
    from srjt.methods import lookup, names

    if plain:
        typer.echo("\n".join(names()))
        return
    families: dict[str, list[RegisteredMethod]] = {}
    papers: dict[str, list[str]] = {}
    for row in map(lookup, names()):
        families.setdefault(_family(row), []).append(row)
        papers.setdefault(row.paper, []).append(row.name)
    longest = max(map(len, names()))
    typer.secho(f"{'name':{longest + 4}}needs   learns from", bold=True)
    for family, rows in families.items():
        typer.secho(f"\n{family}", bold=True)
        for row in rows:
            needs = () if row.recipe.noise_rate == "auto" else row.needs
            start = f" {row.name:{longest + 3}}{', '.join(NEEDS[n] for n in needs) or '–':8}"
            typer.echo(_wrapped(start, row.updates))
            if row.scores != "–":
                typer.secho(_wrapped(" " * (len(start) + 2), f"scores: {row.scores}"), dim=True)
    notes = [LEGEND, *(f"{', '.join(theirs)}: {paper}" for paper, theirs in papers.items())]
    typer.secho("\n".join(notes), dim=True)


def _wrapped(start: str, text: str) -> str:
    """The text after ``start``; lines that do not fit into the terminal continue below it."""
    lines = textwrap.wrap(text, max(20, shutil.get_terminal_size().columns - len(start)))
    return start + f"\n{' ' * len(start)}".join(lines)


def _family(row: RegisteredMethod) -> str:
    """A heading no longer than the longest name."""
    if row.networks == 1:
        return "One network"
    return "Two, self-relaxed" if row.defaults.get("update") == "soft" else "Two networks"
