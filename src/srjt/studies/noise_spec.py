"""Noise as a person writes it: ``quasi:0.2``, ``truncated:rho=0.15``, ``quasi:rho=0.1,rate=0.2``, ``none``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from srjt import noise
from srjt.errors import SrjtError, suggest

__all__ = ["NoiseSpec", "parse_noise"]


@dataclass(frozen=True, kw_only=True)
class NoiseSpec:
    """What is injected into training and validation labels, and which rate methods are told.

    A ``rate`` alone is solved for ρ on the whole dataset's class mix; ``rho`` alone gives the rate on that mix;
    both fix ρ and tell the methods the nominal rate, as the paper does (0.1 and 0.2 for LIMUC).
    """

    label: str
    kind: str  # quasi, truncated, none
    rate: float | None = None
    rho: float | None = None

    def rho_on(self, class_counts: npt.ArrayLike) -> float | None:
        """ρ as given, or as solved for the rate; None when nothing is injected."""
        if self.rho is not None or self.rate is None:
            return self.rho
        return noise.rho_for_rate(self.kind, rate=self.rate, class_counts=class_counts)

    def matrix(self, class_counts: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """(C, C), or None when nothing is injected."""
        rho = self.rho_on(class_counts)
        if rho is None:
            return None
        return noise.transition_matrix(self.kind, num_classes=len(np.asarray(class_counts)), rho=rho)

    def told_rate(self, class_counts: npt.ArrayLike) -> float | None:
        """ε as the methods are told it."""
        if self.rate is not None or self.kind == "none":
            return self.rate
        matrix = self.matrix(class_counts)
        assert matrix is not None
        return noise.expected_rate(matrix, class_counts=class_counts)


def parse_noise(text: str) -> NoiseSpec:
    label = "".join(str(text).split())
    kind, _, rest = label.partition(":")
    if label == "none":
        return NoiseSpec(label="none", kind="none")
    if kind not in (*get_args(noise.Kind), "none"):
        raise suggest("noise", kind, (*get_args(noise.Kind), "none"))
    values: dict[str, float] = {}
    try:
        for part in rest.split(","):
            name, number = part.split("=") if "=" in part else ("rate", part)
            if name not in ("rate", "rho") or name in values or kind == "none":
                raise ValueError(name)
            values[name] = float(number)
    except ValueError:
        raise SrjtError(f"Noise is written quasi:0.2, quasi:rho=0.1 or none; {text!r} is not.") from None
    return NoiseSpec(label=label, kind=kind, rate=values.get("rate"), rho=values.get("rho"))
