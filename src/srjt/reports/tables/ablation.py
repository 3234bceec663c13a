"""Which runs of a study are the paper's ablation: the loss that selects and the loss that updates, for every host."""

from __future__ import annotations

from collections.abc import Iterable

from srjt.studies.paper import OURS, host_of, paper_order

__all__ = ["CELLS", "MethodVariant", "Usage", "ablation", "loss_usage"]

Usage = tuple[str, str]  # the loss that selects, the loss that updates: hard or soft
MethodVariant = tuple[str, str]  # method, variant

# in the paper's order; the first is the host itself, the third is "+ours"
CELLS: tuple[Usage, ...] = (("hard", "hard"), ("soft", "soft"), ("hard", "soft"), ("soft", "hard"))


def ablation(sources: Iterable[MethodVariant]) -> dict[str, dict[Usage, MethodVariant]]:
    """Hosts in the paper's order → (select, update), in the order of CELLS → what ran it.

    A method with "+ours" or with a cell of the ablation is a host. Variants of another kind take no part, and a
    plain method goes before a variant equal to it.
    """
    given = list(sources)
    hosts = paper_order(host_of(m) or m for m, variant in given if host_of(m) or loss_usage(variant))
    return {host: _usages(given, host) for host in hosts}


def loss_usage(variant: str) -> dict[str, str] | None:
    """The ablation's switches in a variant ("select=soft,update=soft"); None if it is something else."""
    options = dict(part.partition("=")[::2] for part in variant.split(",") if part)
    return options if options and options.keys() <= {"select", "update"} else None


def _usages(sources: Iterable[MethodVariant], host: str) -> dict[Usage, MethodVariant]:
    found: dict[Usage, MethodVariant] = {}
    mine = {source for source in sources if source[0] in (host, host + OURS)}
    for method, variant in sorted(mine, key=lambda source: (source[1] != "", source)):
        usage = {"select": "hard", "update": "soft" if host_of(method) else "hard"}
        chosen = loss_usage(variant)
        if chosen is None and variant:
            continue
        usage |= chosen or {}
        found.setdefault((usage["select"], usage["update"]), (method, variant))
    return {usage: found[usage] for usage in CELLS if usage in found}
