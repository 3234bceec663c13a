"""The runs of a study that form the paper's ablation: hard or soft loss for selection and update, for every host."""

from __future__ import annotations

from collections.abc import Iterable

from srjt.studies.paper import OURS, host_of, paper_order

__all__ = ["LOSS_USAGES", "LossUsage", "MethodVariant", "ablation", "loss_usage"]

LossUsage = tuple[str, str]  # loss for selection, loss for the update: hard or soft
MethodVariant = tuple[str, str]  # method, variant

# in the paper's order; the first is the host itself, the third is "+ours"
LOSS_USAGES: tuple[LossUsage, ...] = (("hard", "hard"), ("soft", "soft"), ("hard", "soft"), ("soft", "hard"))


def ablation(sources: Iterable[MethodVariant]) -> dict[str, dict[LossUsage, MethodVariant]]:
    """Host, in the paper's order → (select, update), in the order of LOSS_USAGES → the method and variant with it.

    A method with "+ours", or with a variant that sets select or update, is a host. Other variants are ignored, and a
    method without variant takes precedence over an equal variant.
    """
    given = list(sources)
    hosts = paper_order(host_of(m) or m for m, variant in given if host_of(m) or loss_usage(variant))
    return {host: _usages(given, host) for host in hosts}


def loss_usage(variant: str) -> dict[str, str] | None:
    """The options select and update of a variant ("select=soft,update=soft"); None for other variants."""
    options = dict(part.partition("=")[::2] for part in variant.split(",") if part)
    return options if options and options.keys() <= {"select", "update"} else None


def _usages(sources: Iterable[MethodVariant], host: str) -> dict[LossUsage, MethodVariant]:
    found: dict[LossUsage, MethodVariant] = {}
    of_host = {source for source in sources if source[0] in (host, host + OURS)}
    for method, variant in sorted(of_host, key=lambda source: (source[1] != "", source)):
        usage = {"select": "hard", "update": "soft" if host_of(method) else "hard"}
        chosen = loss_usage(variant)
        if chosen is None and variant:
            continue
        usage |= chosen or {}
        found.setdefault((usage["select"], usage["update"]), (method, variant))
    return {usage: found[usage] for usage in LOSS_USAGES if usage in found}
