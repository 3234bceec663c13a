"""Names of noises in tables, figures and pages."""

from __future__ import annotations

from srjt.studies.noise_spec import parse_noise

__all__ = ["NOISE_NAMES", "noise_label", "noise_name", "noise_phrase"]

# in the paper's order
NOISE_NAMES = {
    "quasi": "Quasi-Gaussian noise",
    "truncated": "Truncated-Gaussian noise",
    "none": "labels as given",
}


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
    parts = [f"{sign} = {number:g}" for sign, number in numbers if number is not None]
    return ", ".join(parts) or noise_name(noise)
