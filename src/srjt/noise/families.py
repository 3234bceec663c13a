"""Families of transition matrices, as smooth functions of unbounded parameters, for estimating them.

- ``quasi`` and ``truncated``: the paper's, with ρ alone unknown;
- ``banded``: each grade has its own rates of being taken for its neighbours, and every further step is rarer
  by one common factor.

The first parameter of each is its level, which says how much noise there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from srjt import noise

__all__ = ["FORMS", "LEVELS", "PAPERS", "Family", "Form", "family", "fixed"]

Floats = npt.NDArray[np.float64]
Form = Literal["quasi", "truncated", "banded"]
FORMS: tuple[Form, ...] = get_args(Form)
PAPERS: tuple[Form, ...] = ("quasi", "truncated")

_SHARES = np.linspace(0.01, 0.9, 14)
LEVELS: Floats = np.log(_SHARES / (1.0 - _SHARES))  # from hardly any noise to nearly all that a form can hold
_OFTEN, _DECAY = -2.5, -1.0  # where banded starts from: log odds of a neighbour, log factor of a further step


@dataclass(frozen=True, kw_only=True)
class Family:
    """Parameters θ (M,) ↔ matrix (C, C), with a Gaussian prior that only matters where the data are silent."""

    form: Form
    num_classes: int
    mean: Floats  # (M,) of the prior
    precision: Floats  # (M,)
    directions: Floats  # (M, C, C): logit of entry = offset + Σ_m θ_m directions_m; the paper's: w(|i − j|)
    offset: Floats | None = None  # (C, C) logits; None for the paper's forms, which are not of that kind

    def matrix(self, theta: Floats) -> Floats:
        """(C, C) row-stochastic."""
        if self.offset is not None:
            weights = np.exp(self.offset + np.tensordot(theta, self.directions, axes=1))
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        off_diagonal = self._largest() * _sigmoid(theta[0]) * self.directions[0]
        return np.asarray(off_diagonal + np.diag(1.0 - off_diagonal.sum(axis=1)))

    def jacobian(self, theta: Floats) -> Floats:
        """(M, C, C): the derivative of the matrix by each parameter."""
        if self.offset is not None:
            p = self.matrix(theta)
            mean = (p * self.directions).sum(axis=2, keepdims=True)
            return np.asarray(p * (self.directions - mean))
        share = _sigmoid(theta[0])
        change = self._largest() * share * (1.0 - share) * self.directions[0]
        return np.asarray(change - np.diag(change.sum(axis=1)))[None]

    def start(self, *, noisy: bool) -> Floats:
        """Where a search begins: from few wrong labels or from many (the likelihood may have two peaks)."""
        begin = self.mean.copy()
        begin[:1] += 1.5 if noisy else -1.5
        return begin

    def at(self, level: float) -> Family:
        """The members of this level, with the other parameters as they were."""
        if self.offset is None:
            return replace(fixed(self.matrix(np.array([level]))), form=self.form)
        return replace(
            self,
            mean=self.mean[1:],
            precision=self.precision[1:],
            directions=self.directions[1:],
            offset=self.offset + level * self.directions[0],
        )

    def _largest(self) -> float:
        return noise.largest_rho(self.form, num_classes=self.num_classes)


def family(form: Form, *, num_classes: int) -> Family:
    grade = np.arange(num_classes)
    step = grade[None, :] - grade[:, None]
    if form != "banded":
        half = noise.largest_rho(form, num_classes=num_classes) / 2
        shape = noise.transition_matrix(form, num_classes=num_classes, rho=half)
        np.fill_diagonal(shape, 0.0)
        return Family(
            form=form,
            num_classes=num_classes,
            mean=np.array([-1.5]),
            precision=np.array([0.05]),
            directions=shape[None] / shape.max(),
        )
    often, further = (step != 0).astype(np.float64), np.maximum(np.abs(step) - 1, 0).astype(np.float64)
    own = [
        ((grade[:, None] == i) & (np.sign(step) == side)).astype(np.float64)
        for i in grade
        for side in (-1, 1)
        if 0 <= i + side < num_classes
    ]
    # The rows' own rates are drawn to the common one: log odds that differ by more than about 1 need evidence.
    return Family(
        form=form,
        num_classes=num_classes,
        mean=np.array([_OFTEN, _DECAY] + [0.0] * len(own)),
        precision=np.array([0.05, 1.0] + [4.0] * len(own)),
        directions=np.stack([often, further, *own]),
        offset=np.zeros((num_classes, num_classes)),
    )


def fixed(matrix: Floats) -> Family:
    """The family of one member."""
    classes = len(matrix)
    with np.errstate(divide="ignore"):
        logits = np.log(matrix)
    return Family(
        form="banded",
        num_classes=classes,
        mean=np.empty(0),
        precision=np.empty(0),
        directions=np.empty((0, classes, classes)),
        offset=logits,
    )


def _sigmoid(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))
