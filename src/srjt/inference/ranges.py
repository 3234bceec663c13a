"""Ranges of grades for new samples, calibrated on labels that may be wrong; see ``ordinal.ranges``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.inference.grade_rule import WhichNetwork, probabilities_of
from srjt.noise.true_grades import KnownNoise, LabelNoise, inverse_weights, posterior_weights
from srjt.ordinal.ranges import grade_ranges, patient_weights, range_scores, range_threshold
from srjt.ordinal.recalibration import Recalibration, choose_recalibration
from srjt.training.record.held_out import HeldOut

__all__ = ["Basis", "RangeRule", "calibrate_ranges", "conservative_thresholds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Basis = Literal["verified", "posterior", "labels", "corrected", "conservative"]

FEW = 100  # labels below which an estimate of their noise is not used


@dataclass(frozen=True, kw_only=True)
class RangeRule:
    """How wide ranges are, and what they promise.

    Attributes
    ----------
    coverage : float
        The promised probability.
    thresholds : ndarray, shape (C,)
        Of each grade's score; infinite: the grade is in every range.
    patients, samples : int
        That the ranges are calibrated on.
    by_patient : bool
        Whether the patients are known; else each sample counts as one.
    basis : {"verified", "posterior", "labels", "corrected", "conservative"}
        What stands for the true grades of the calibration samples.
    why : str
        What the promise rests on, in one sentence.
    by : str
        "", "grade", or the column whose values have thresholds of their own.
    parts : dict of str to RangeRule
        The rules of the values of that column.
    temperature : Recalibration or None
        Applied before the scores. It is fitted to the same samples: one number, which does not change the order in
        which grades enter a range.
    """

    coverage: float
    thresholds: Floats
    patients: int
    samples: int
    by_patient: bool
    basis: Basis
    why: str
    by: str = ""
    parts: dict[str, RangeRule] = field(default_factory=dict)
    temperature: Recalibration | None = None

    def ranges(
        self, probabilities: npt.ArrayLike, *, parts: Sequence[object] | None = None
    ) -> tuple[Ints, Ints]:
        """Lowest and highest grade of each range.

        Parameters
        ----------
        probabilities : array-like, shape (N, C)
            As the networks give them.
        parts : sequence, length N, optional
            The values of the column ``by``. A value without a rule gets the range of all grades.

        Returns
        -------
        low, high : ndarray of int64, shape (N,)
        """
        p = np.asarray(probabilities)
        if not self.parts:
            scores = range_scores(p if self.temperature is None else self.temperature(p))
            return grade_ranges(scores, self.thresholds)
        assert parts is not None
        low, high = np.zeros(len(p), dtype=np.int64), np.full(len(p), p.shape[1] - 1)
        values = np.array([str(one) for one in parts])
        for value, rule in self.parts.items():
            low[values == value], high[values == value] = rule.ranges(p[values == value])
        return low, high

    @property
    def trivial(self) -> bool:
        """Whether every range holds all grades."""
        rules = self.parts.values() if self.parts else (self,)
        return all(np.isinf(rule.thresholds).all() for rule in rules)

    def __str__(self) -> str:
        unit = "a random image of a new patient" if self.by_patient else "a new image"
        each = {"": "", "grade": ", for each true grade"}.get(self.by, f", for each value of {self.by}")
        patients = f"{self.patients:,} patients ({self.samples:,} samples)"
        on = patients if self.by_patient else f"{self.samples:,} samples"
        text = (
            f"Ranges contain the true grade of {unit} with a probability of at least {self.coverage:g}{each}; "
            f"calibrated on {on}, {self.why}"
        )
        if self.trivial:
            return f"{text} Only the range of all grades keeps this promise here."
        if few := [name for name, rule in self.parts.items() if rule.trivial]:
            return f"{text} Too few samples, so all grades, for {self.by} {', '.join(few)}."
        if (
            few := [str(grade) for grade in np.flatnonzero(np.isinf(self.thresholds))]
            if not self.parts
            else []
        ):
            return f"{text} Too few samples of the grades at positions {', '.join(few)}: they are in every range."
        return text


def calibrate_ranges(
    side: HeldOut,
    *,
    coverage: float,
    noise: KnownNoise | None,
    by: str = "",
    parts: Sequence[object] | None = None,
    network: WhichNetwork = "ensemble",
    label_noise: LabelNoise = "unknown",
    posterior: npt.ArrayLike | None = None,
) -> RangeRule:
    """Calibrate ranges on samples that the networks have not seen.

    Parameters
    ----------
    side : HeldOut
        The samples, with predictions and labels.
    coverage : float
        The promised probability.
    noise : KnownNoise or None
        Of the labels; None only if they are right, or with ``posterior``.
    by : str
        "grade": the promise holds for each true grade. Another name: for each value in ``parts``.
    parts : sequence, length N, optional
        Values of the column ``by``.
    network : {"ensemble", "1", "2"}
        Whose probabilities are used.
    label_noise : {"unknown", "class-conditional", "none"}
        What wrong labels depend on: nothing is known; on the true grade alone, not on the image; no label is wrong.
    posterior : array-like, shape (N, C), optional
        p(true grade) of each sample, for example from several readers.

    Returns
    -------
    RangeRule
    """
    if by not in ("", "grade"):
        if parts is None:
            raise SrjtError(f"Ranges for each value of {by} need its values for the calibration samples.")
        values = np.array([str(one) for one in parts])
        rules = {}
        for value in np.unique(values).tolist():
            rows = np.flatnonzero(values == value)
            rules[value] = calibrate_ranges(
                _rows(side, rows), coverage=coverage, noise=noise, network=network, label_noise=label_noise,
                posterior=None if posterior is None else np.asarray(posterior)[rows],
            )  # fmt: skip
        whys = dict.fromkeys(rule.why for rule in rules.values())
        whole = _rule(side, coverage=coverage, basis=next(iter(rules.values())).basis)
        return replace(whole, why=" Elsewhere ".join(whys), by=by, parts=rules)
    p = probabilities_of(side.probabilities, network)
    # of an over-confident network almost all scores are 1, and ranges would be needlessly wide
    temperature = choose_recalibration(p, side.labels, groups=side.groups, vector=False)
    scores = range_scores(p if temperature is None else temperature(p))
    by_grade = by == "grade"
    verified = side.verified_labels
    if verified is not None:
        rows = np.flatnonzero(verified >= 0)
        known = _rows(side, rows)
        weights = np.eye(scores.shape[1])[verified[rows]]
        thresholds = _thresholds(
            scores[rows], weights, groups=known.groups, coverage=coverage, by_grade=by_grade
        )
        if np.isfinite(thresholds).any():
            why = "by their verified grades, which must be a random sample."
            return _rule(
                known,
                coverage=coverage,
                basis="verified",
                why=why,
                by=by,
                thresholds=thresholds,
                temperature=temperature,
            )
    basis, why, candidates = _weights(side, noise, label_noise, posterior)
    found = [
        [
            _thresholds(scores, weights, groups=side.groups, coverage=coverage, by_grade=by_grade)
            for weights in plausible
        ]
        for plausible in candidates
        if plausible
    ]
    thresholds = np.min([np.max(one, axis=0) for one in found], axis=0)
    if basis == "corrected":
        assert noise is not None
        safe = conservative_thresholds(side, scores, noise, coverage=coverage, by_grade=by_grade)
        if 0 < noise.samples < FEW:
            basis, thresholds = "conservative", safe
            why = (
                f"conservatively: {noise.samples:,} labels are too few to estimate which grades are confused, so that "
                f"any near grade may be the true one."
            )
        thresholds = np.minimum(thresholds, safe)  # never wider than what holds without an assumption
    return _rule(
        side, coverage=coverage, basis=basis, why=why, by=by, thresholds=thresholds, temperature=temperature
    )


def _weights(
    side: HeldOut, noise: KnownNoise | None, label_noise: LabelNoise, posterior: npt.ArrayLike | None
) -> tuple[Basis, str, list[list[Floats]]]:
    """What stands for the true grades: the basis, why, and (N, C) weights.

    Of each list of weights, one for each plausible noise, the widest range counts; of the lists the narrowest.
    """
    classes = side.probabilities.shape[2]
    if posterior is not None:
        given = np.asarray(posterior, dtype=np.float64)
        if given.shape != (len(side), classes):
            raise SrjtError(
                f"posterior holds a probability of each of {classes} grades for each of {len(side)} samples; "
                f"its shape is {given.shape}."
            )
        return "posterior", "by the given probabilities of their true grades.", [[given]]
    if label_noise == "none" or noise is None:
        return "labels", "by their labels, which are taken as right.", [[np.eye(classes)[side.labels]]]
    low, high = noise.rates
    rate = f"{high:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
    misled = [posterior_weights(side.labels, noise.highest())]
    if label_noise == "class-conditional":
        inverse = [
            inverse_weights(side.labels, one) for one in (noise.joint, noise.lowest(), noise.highest())
        ]
        why = (
            f"by their labels, corrected for a share of {rate} wrong ones, which must depend on the true grade alone "
            "and not on the image."
        )
        return "corrected", why, [[one for one in inverse if one is not None], misled]
    why = (
        f"by their labels, corrected for a share of up to {high:.2f} wrong ones; given its label, an image must not "
        "mislead about its true grade. Verified grades of a random sample would make the ranges narrower."
    )
    return "corrected", why, [misled]


def conservative_thresholds(
    side: HeldOut, scores: Floats, noise: KnownNoise, *, coverage: float, by_grade: bool
) -> Floats:
    """Thresholds (C,) that hold whatever wrong labels depend on.

    The worst of the grades up to ``far`` away from the label must enter. A label may be wrong by more than that with a
    probability that is added to the promise. Nothing of the kind holds for each grade.
    """
    classes = scores.shape[1]
    spare = (1.0 - coverage) / 2.0
    far = next((d for d in range(classes) if noise.wrong_by(d + 1) <= spare), classes - 1)
    beyond = noise.wrong_by(far + 1) if far < classes - 1 else 0.0
    near = np.abs(np.arange(classes) - side.labels[:, None]) <= far
    worst = np.where(near, scores, -np.inf).max(axis=1)
    found = float("inf")
    if not by_grade:
        found = range_threshold(worst, coverage=coverage + beyond, groups=side.groups)
    return np.full(classes, found)


def _thresholds(
    scores: Floats, weights: Floats, *, groups: Sequence[str] | None, coverage: float, by_grade: bool
) -> Floats:
    """(C,) one threshold for all grades, or one for each."""
    classes = scores.shape[1]
    if not by_grade:
        return np.full(classes, range_threshold(scores, weights, coverage=coverage, groups=groups))
    return np.array(
        [
            range_threshold(scores[:, c], weights[:, c], coverage=coverage, groups=groups)
            for c in range(classes)
        ]
    )


def _rule(
    side: HeldOut,
    *,
    coverage: float,
    basis: Basis,
    why: str = "",
    by: str = "",
    thresholds: Floats | None = None,
    temperature: Recalibration | None = None,
) -> RangeRule:
    return RangeRule(
        coverage=coverage,
        thresholds=np.full(side.probabilities.shape[2], np.inf) if thresholds is None else thresholds,
        patients=round(float(patient_weights(side.groups, len(side)).sum())),
        samples=len(side),
        by_patient=side.patients is not None,
        basis=basis,
        why=why,
        by=by,
        temperature=temperature,
    )


def _rows(side: HeldOut, rows: Ints) -> HeldOut:
    def of(values: Sequence[str] | None) -> list[str] | None:
        return None if values is None else [values[row] for row in rows]

    def grades(values: Ints | None) -> Ints | None:
        return None if values is None else values[rows]

    return HeldOut(
        ids=[side.ids[row] for row in rows],
        probabilities=side.probabilities[:, rows],
        labels=side.labels[rows],
        true_labels=grades(side.true_labels),
        verified_labels=grades(side.verified_labels),
        patients=of(side.patients),
        groups=of(side.groups),
    )
