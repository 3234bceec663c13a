"""Families of transition matrices, as smooth functions of unbounded parameters, for estimating them.

- ``quasi``, ``truncated`` (the paper's) and ``uniform`` (any other grade equally often) have one parameter, the level;
- ``banded``: each grade has its own rates of being labelled too low and too high, and every further step is rarer
  by one common factor;
- ``lowered``, ``raised``: as ``banded``, but on one side of the diagonal there may be up to four wrong labels for each
  right one: most labels of a grade may be too low, or too high. Grades can almost change names, so only clear images
  at the ends of the scale, where no grade is left to change with, show such errors;
- ``boundary``: the identity. Labels are wrong near the boundary between two grades only, which ``model`` describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit  # type: ignore[import-untyped]

__all__ = ["FORMS", "ONE_SIDED", "SYMMETRIC", "Family", "Form", "family"]

Floats = npt.NDArray[np.float64]
Form = Literal["quasi", "truncated", "uniform", "banded", "boundary", "lowered", "raised"]
FORMS: tuple[Form, ...] = get_args(Form)
SYMMETRIC: tuple[Form, ...] = ("quasi", "truncated", "uniform")
ONE_SIDED: dict[Form, int] = {"lowered": -1, "raised": 1}  # the side of the diagonal
_SHARPNESS = 8.0  # min(1, x) as the smooth function (1 + x^−8)^(−1/8), which differs from it by 8 % at most


@dataclass(frozen=True, kw_only=True)
class Family:
    """Parameters θ (M,) ↔ matrix (C, C), with a Gaussian prior on θ.

    Entries off the diagonal are ``largest * sigmoid(θ) * shape`` where ``largest`` is given, else
    ``exp(offset + Σ θ_m directions_m)``, but at most ``limit``, times the diagonal. It is 1 except in one-sided forms:
    the right grade is the likeliest label, as the largest rate assumes, and grades cannot change names.
    """

    form: Form
    mean: Floats  # (M,) of the prior
    precision: Floats  # (M,)
    directions: Floats  # (M, C, C)
    offset: Floats  # (C, C)
    largest: float | None = None
    limit: Floats | float = 1.0  # (C, C)

    def matrix(self, theta: Floats) -> Floats:
        """(C, C) row-stochastic."""
        if self.largest is None:
            weights = self._weights(theta)
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        off_diagonal = self.largest * float(expit(theta[0])) * self.directions[0]
        return np.asarray(off_diagonal + np.diag(np.maximum(1.0 - off_diagonal.sum(axis=1), 0.0)))

    def jacobian(self, theta: Floats) -> Floats:
        """(M, C, C): the derivative of the matrix by each parameter."""
        if self.largest is None:
            p = self.matrix(theta)
            change = expit(-_SHARPNESS * self._log_rates(theta)) * self.directions  # of the log weights
            return np.asarray(p * (change - (p * change).sum(axis=2, keepdims=True)))
        share = float(expit(theta[0]))
        change = self.largest * share * (1.0 - share) * self.directions[0]
        return np.asarray(change - np.diag(change.sum(axis=1)))[None]

    def _weights(self, theta: Floats) -> Floats:
        """(C, C): rows in proportion to their diagonal, which no other entry exceeds by more than its limit."""
        weights = self.limit * np.exp(-np.logaddexp(0.0, -_SHARPNESS * self._log_rates(theta)) / _SHARPNESS)
        return np.asarray(np.where(np.eye(len(weights)) > 0, 1.0, weights))

    def _log_rates(self, theta: Floats) -> Floats:
        """In proportion to the limit."""
        return np.asarray(self.offset + np.tensordot(theta, self.directions, axes=1) - np.log(self.limit))

    def starts(self) -> list[Floats]:
        """Where searches begin: with few wrong labels and with many, because the likelihood may have several peaks."""
        if not len(self.mean):
            return [self.mean]
        levels = (-1.5, 0.0, 1.5) if self.form in ONE_SIDED else (-1.5, 1.5)
        return [self.mean + level * np.eye(len(self.mean))[0] for level in levels]


def family(form: Form, *, num_classes: int) -> Family:
    """The family of a form.

    The priors say that noise is neither absent nor everything: log odds of the level with standard deviation 1,
    around a quarter of the largest possible level (symmetric forms) or one wrong label for eight right ones in each
    neighbouring grade (``banded``). Log rates of single grades and directions vary around the common one with
    variance 1/2. In one-sided forms the level is one wrong label for each right one, and 60 times less on the other
    side, give or take a factor e².
    """
    grade = np.arange(num_classes)
    step = grade[None, :] - grade[:, None]
    distance = np.abs(step)
    if form == "boundary":
        nothing = np.empty((0, num_classes, num_classes))
        return Family(
            form=form,
            mean=np.empty(0),
            precision=np.empty(0),
            directions=nothing,
            offset=np.full((num_classes, num_classes), -np.inf),
        )
    if form == "banded" or form in ONE_SIDED:
        own = [
            ((grade[:, None] == i) & (np.sign(step) == side)).astype(np.float64)
            for i in grade
            for side in (-1, 1)
            if 0 <= i + side < num_classes
        ]
        often, further = (distance > 0).astype(np.float64), np.maximum(distance - 1, 0).astype(np.float64)
        if form in ONE_SIDED:
            side = np.sign(step) == ONE_SIDED[form]
            return Family(
                form=form,
                mean=np.array([0.0, -4.0, -1.0] + [0.0] * len(own)),
                precision=np.array([1.0, 0.25, 1.0] + [2.0] * len(own)),
                directions=np.stack([side.astype(np.float64), often - side, further, *own]),
                offset=np.zeros((num_classes, num_classes)),
                limit=np.where(side, 4.0, 1.0),
            )
        return Family(
            form=form,
            mean=np.array([np.log(1 / 8), -1.0] + [0.0] * len(own)),
            precision=np.array([1.0, 1.0] + [2.0] * len(own)),
            directions=np.stack([often, further, *own]),
            offset=np.zeros((num_classes, num_classes)),
        )
    with np.errstate(divide="ignore"):
        shape = {
            "quasi": np.where(distance > 0, 1.0 / distance, 0.0),
            "truncated": (distance == 1).astype(np.float64),
            "uniform": (distance > 0).astype(np.float64),
        }[form]
    return Family(
        form=form,
        mean=np.array([np.log(1 / 3)]),
        precision=np.array([1.0]),
        directions=shape[None],
        offset=np.zeros((num_classes, num_classes)),
        largest=float(1.0 / shape.sum(axis=1).max()),
    )
