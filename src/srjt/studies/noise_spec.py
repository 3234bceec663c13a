"""Parse a noise: ``quasi:0.2``, ``truncated:rho=0.15``, ``quasi:rho=0.1,rate=0.2``, ``none``."""

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
    """The noise injected into training and validation labels, and the rate given to the methods.

    With ``rate`` alone, ρ is solved on the whole dataset's class mix. With ``rho`` alone, the rate follows from that
    mix. With both, ρ is fixed and the methods get the nominal rate, as in the paper (0.1 and 0.2 for LIMUC).
    """

    label: str
    kind: str  # quasi, truncated, none
    rate: float | None = None
    rho: float | None = None

    def rho_on(self, class_counts: npt.ArrayLike) -> float | None:
        """ρ as given, or solved for the rate; None if nothing is injected."""
        if self.rho is not None or self.rate is None:
            return self.rho
        return noise.rho_for_rate(self.kind, rate=self.rate, class_counts=class_counts)

    def matrix(self, class_counts: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """The transition matrix (C, C); None if nothing is injected."""
        rho = self.rho_on(class_counts)
        if rho is None:
            return None
        return noise.transition_matrix(self.kind, num_classes=len(np.asarray(class_counts)), rho=rho)

    def given_rate(self, class_counts: npt.ArrayLike) -> float | None:
        """The rate ε that the methods get; None if nothing is injected."""
        if self.rate is not None or self.kind == "none":
            return self.rate
        matrix = self.matrix(class_counts)
        assert matrix is not None
        return noise.expected_rate(matrix, class_counts=class_counts)


def parse_noise(text: str) -> NoiseSpec:
    """The noise that ``text`` describes; an error with an example if it describes none."""
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
        raise SrjtError(f"Write noise as quasi:0.2, quasi:rho=0.1 or none; got {text!r}.") from None
    return NoiseSpec(label=label, kind=kind, rate=values.get("rate"), rho=values.get("rho"))
