"""Ranges of grades for the probabilities of any classifier: ``OrdinalRanges``, with the interface
of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from srjt.errors import SrjtError
from srjt.inference.options import Answering
from srjt.inference.ranges import RangeRule, calibrate_ranges
from srjt.noise.estimate import estimate_noise
from srjt.noise.quality import LabelNoise, NoiseBounds, estimated_noise, given_noise
from srjt.training.held_out import HeldOut

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class OrdinalRanges(BaseEstimator):  # type: ignore[misc]
    """Ranges of grades that contain the true grade with a promised probability (split conformal
    prediction), although the labels that they are fitted to may be partly wrong.

    Fit them to probabilities for samples that the classifier was not trained on. A range holds all
    grades between its lowest and its highest one.

    Parameters
    ----------
    coverage : float
        The promised probability, such as 0.9. The promise holds on average over calibration sets
        and new samples, or new patients, that are drawn like those of ``fit``.
    label_noise : {"unknown", "class-conditional", "none"}
        What wrong labels depend on. ``"unknown"``: any share of the labels up to the plausible one
        may be wrong, unclear samples more often; ranges are never narrower than with ``"none"``.
        ``"class-conditional"``: on the true grade alone. ``"none"``: all labels are right.
    transition : array of shape (C, C), optional
        P[i, j] = Pr(label j | true grade i). Default: estimated from labels and probabilities.
    each_grade : bool
        Whether the promise holds for each true grade on its own; such ranges are wider.

    Attributes
    ----------
    rule_ : RangeRule
        The thresholds; ``str(rule_)`` is the promise as a sentence.
    thresholds_ : ndarray, shape (C,)
        Of each grade's score. Infinite: there are too few samples for this coverage, so the grade
        is in every range.

    Examples
    --------
    >>> import numpy as np
    >>> from srjt import OrdinalRanges
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 4, size=400)
    >>> p = np.exp(-np.abs(y[:, None] + rng.normal(size=(400, 1)) - np.arange(4)))
    >>> p /= p.sum(axis=1, keepdims=True)
    >>> ranges = OrdinalRanges(coverage=0.8, label_noise="none").fit(p[:300], y[:300])
    >>> low, high = ranges.predict(p[300:]).T
    >>> bool(np.mean((low <= y[300:]) & (y[300:] <= high)) > 0.7)
    True
    """

    rule_: RangeRule
    thresholds_: Floats
    n_features_in_: int

    def __init__(
        self,
        *,
        coverage: float = 0.9,
        label_noise: LabelNoise = "unknown",
        transition: npt.ArrayLike | None = None,
        each_grade: bool = False,
    ) -> None:
        self.coverage = coverage
        self.label_noise = label_noise
        self.transition = transition
        self.each_grade = each_grade

    def fit(
        self, probabilities: Any, y: Any, groups: Any = None, verified: Any = None
    ) -> OrdinalRanges:
        """Calibrate the ranges.

        Parameters
        ----------
        probabilities : array of shape (N, C)
            Of a classifier that was not trained on these samples.
        y : array of int, shape (N,)
            Their grades 0 … C − 1, some of them perhaps wrong.
        groups : array of shape (N,), optional
            Patients, who count equally. The promise is then about random samples of new patients.
        verified : array of int, shape (N,), optional
            True grades of a random sample, −1 for the others. If they suffice, only these are used.

        Returns
        -------
        OrdinalRanges
            Itself, fitted.
        """
        p = _checked_probabilities(probabilities)
        labels = _checked_grades(y, p, name="y", lowest=0)
        owners = None if groups is None else [str(group) for group in groups]
        if owners is not None and len(owners) != len(p):
            raise SrjtError(
                f"{len(owners)} groups for {len(p)} rows: they must be as many.",
                code="wrong_shape",
                option="groups",
            )
        known = None if verified is None else _checked_grades(verified, p, name="verified")
        side = HeldOut(
            ids=[str(row) for row in range(len(p))],
            probabilities=p[None].astype(np.float32),
            labels=labels,
            verified_labels=known,
            patients=owners,
            groups=owners,
        )
        options = Answering(
            coverage=self.coverage,
            coverage_by="grade" if self.each_grade else None,
            label_noise=self.label_noise,
        )
        self.rule_ = calibrate_ranges(side, options, noise=self._noise(p, side))
        self.thresholds_ = self.rule_.thresholds
        self.n_features_in_ = p.shape[1]
        return self

    def _noise(self, probabilities: Floats, side: HeldOut) -> NoiseBounds | None:
        if self.label_noise == "none":
            return None
        if self.transition is not None:
            shares = np.bincount(side.labels, minlength=probabilities.shape[1]) / len(side)
            return given_noise(self.transition, shares)
        estimate = estimate_noise(
            side.labels, probabilities, groups=side.groups, verified=side.verified_labels
        )
        return estimated_noise(estimate)

    def predict(self, probabilities: Any) -> Ints:
        """The range of each sample.

        Parameters
        ----------
        probabilities : array of shape (N, C)
            As for ``fit``, of new samples.

        Returns
        -------
        ndarray of int64, shape (N, 2)
            The lowest and the highest grade in the range.
        """
        check_is_fitted(self)
        p = _checked_probabilities(probabilities)
        if p.shape[1] != self.n_features_in_:
            raise SrjtError(
                f"The ranges were fitted to {self.n_features_in_} grades, and these are"
                f" {p.shape[1]}.",
                code="wrong_shape",
            )
        rows = pd.DataFrame(index=range(len(p)))
        return np.stack(self.rule_.ranges(p.astype(np.float32), rows), axis=1)


def _checked_probabilities(given: Any) -> Floats:
    p = np.asarray(given, dtype=np.float64)
    if p.ndim != 2 or len(p) == 0 or p.shape[1] < 2:
        raise SrjtError(
            f"Probabilities have the shape (samples, grades), not {p.shape}.", code="wrong_shape"
        )
    if not np.isfinite(p).all() or p.min() < 0 or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        raise SrjtError(
            "Each row of the probabilities must be non-negative and sum to 1.",
            code="wrong_values",
        )
    return p


def _checked_grades(given: Any, probabilities: Floats, *, name: str, lowest: int = -1) -> Ints:
    grades = np.asarray(given)
    rows, classes = probabilities.shape
    whole = grades.dtype.kind in "iu" and grades.shape == (rows,)
    if not whole or grades.min() < lowest or grades.max() >= classes:
        raise SrjtError(
            f"{name} has one grade per row, a whole number from {lowest} to {classes - 1}.",
            code="unknown_grade",
        )
    return grades.astype(np.int64)
