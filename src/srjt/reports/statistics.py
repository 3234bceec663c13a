"""Words of a study's tables, figures and pages: metrics, noises, and which runs form the paper's ablation."""

from __future__ import annotations

from collections.abc import Iterable

from srjt.noise.matrices import FAMILIES
from srjt.ordinal.metrics import METRICS
from srjt.studies.config import parse_noise
from srjt.studies.results import OURS, host_of, paper_order

PAPER_METRICS = ("accuracy", "mae", "macro_f1")
# in a column's heading, in a sentence
METRIC_NAMES = {name: (metric.short_name, metric.long_name) for name, metric in METRICS.items()}
NOISE_NAMES = {**{kind: family.name for kind, family in FAMILIES.items()}, "none": "labels as given"}


def decimals(number: float, *, signed: bool = False) -> str:
    return f"{number:{'+' if signed else ''}.3f}".replace("-", "−")


def noise_name(noise: str) -> str:
    """ "quasi:0.2" → "Quasi-Gaussian noise, rate 0.2"; "quasi:rho=0.1" → "Quasi-Gaussian noise, ρ = 0.1"."""
    spec = parse_noise(noise)
    if spec.kind == "none":
        return NOISE_NAMES["none"].capitalize()
    parts = [NOISE_NAMES.get(spec.kind, f"{spec.kind} noise")]
    parts += [] if spec.rate is None else [f"rate {spec.rate:g}"]
    parts += [] if spec.rho is None else [f"ρ = {spec.rho:g}"]
    return ", ".join(parts)


def noise_phrase(noise: str) -> str:
    """ "under Quasi-Gaussian noise, rate 0.2", or "with the labels as given"."""
    return "with the labels as given" if parse_noise(noise).kind == "none" else f"under {noise_name(noise)}"


def noise_label(noise: str) -> str:
    """A short label below the name of the noise: "ε = 0.2", "ε = 0.2, ρ = 0.1" or "Labels as given"."""
    spec = parse_noise(noise)
    numbers = (("ε", spec.rate), ("ρ", spec.rho))
    parts = [f"{sign} = {number:g}" for sign, number in numbers if number is not None] or [
        noise_name(spec.labels)
    ]
    return ", ".join([*parts, f"{spec.share:.0%} of the patients"] if spec.share < 1 else parts)


def noises_by_kind(noises: Iterable[str]) -> dict[str, list[str]]:
    """Kind of noise, in the paper's order → its noises from weak to strong."""
    kinds: dict[str, list[str]] = {}
    for noise in noises:
        kinds.setdefault(parse_noise(noise).kind, []).append(noise)
    order = [*NOISE_NAMES, *kinds]
    return {kind: sorted(kinds[kind], key=_strength) for kind in sorted(kinds, key=order.index)}


def _strength(noise: str) -> float:
    spec = parse_noise(noise)
    return spec.rate or spec.rho or 0.0


# The runs of a study that form the paper's ablation: hard or soft loss for selection and update, for every host.

LossUsage = tuple[str, str]  # loss for selection, loss for the update: hard or soft
MethodVariant = tuple[str, str]  # method, variant

# in the paper's order; the first is the host itself, the third is "+ours"
LOSS_USAGES: tuple[LossUsage, ...] = (("hard", "hard"), ("soft", "soft"), ("hard", "soft"), ("soft", "hard"))


def ablation(sources: Iterable[MethodVariant]) -> dict[str, dict[LossUsage, MethodVariant]]:
    """Host, in the paper's order → (select, update), in the order of LOSS_USAGES → the method and variant with it.

    A method with "+ours", or with a variant that sets select or update, is a host. Other variants are ignored, and a
    method without variant takes precedence over an equal variant.
    """
    every = list(sources)
    hosts = paper_order(host_of(m) or m for m, variant in every if host_of(m) or loss_usage(variant))
    plain_first = sorted(set(every), key=lambda source: (source[1] != "", source))
    return {host: _usages(plain_first, host) for host in hosts}


def loss_usage(variant: str) -> dict[str, str] | None:
    """The options select and update of a variant ("select=soft,update=soft"); None for other variants."""
    options = dict(part.partition("=")[::2] for part in variant.split(",") if part)
    return options if options and options.keys() <= {"select", "update"} else None


def _usages(sources: Iterable[MethodVariant], host: str) -> dict[LossUsage, MethodVariant]:
    usages: dict[LossUsage, MethodVariant] = {}
    for method, variant in sources:
        chosen = loss_usage(variant)
        if method in (host, host + OURS) and (chosen or not variant):
            usage = {"select": "hard", "update": "soft" if host_of(method) else "hard", **(chosen or {})}
            usages.setdefault((usage["select"], usage["update"]), (method, variant))
    return {usage: usages[usage] for usage in LOSS_USAGES if usage in usages}
