"""Ranges of grades for new samples, calibrated on labels that may be wrong; see ``ordinal.ranges``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.inference.grade_rule import WhichNetwork, probabilities_of
from srjt.inference.range_evidence import Evidence, image_evidence, unit_evidence
from srjt.inference.range_rule import Pooled, RangeRule, pool, values_of_units
from srjt.noise.true_grades import KnownNoise, LabelNoise
from srjt.ordinal.ranges import patient_weights, range_scores, range_threshold
from srjt.ordinal.recalibration import choose_recalibration
from srjt.training.record.held_out import HeldOut

__all__ = ["calibrate_ranges", "conservative_thresholds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEW = 100  # labels below which an estimate of their noise is not used


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
    units: Ints | None = None,
    pooled: Pooled | None = None,
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
        p(true grade) of each sample, for example from several readers. Not with ``pooled``.
    units : ndarray of int, shape (N,), optional
        The patient of each sample, 0 … M − 1, in the order of their first sample.
    pooled : Pooled, optional
        How the samples of a patient become one answer. Default: ranges are those of samples.

    Returns
    -------
    RangeRule
    """
    if posterior is not None and pooled is not None:
        raise SrjtError("A posterior is that of images: calibrate pooled ranges on labels.")
    if by not in ("", "grade"):
        if parts is None:
            raise SrjtError(f"Ranges for each value of {by} need its values for the calibration samples.")
        values = np.array([str(one) for one in parts])
        if units is not None and pooled is not None:
            values = values_of_units(parts, units, by=by, per=pooled.per)[units]
        rules = {}
        for value in np.unique(values).tolist():
            rows = np.flatnonzero(values == value)
            rules[value] = calibrate_ranges(
                _rows(side, rows), coverage=coverage, noise=noise, network=network, label_noise=label_noise,
                posterior=None if posterior is None else np.asarray(posterior)[rows],
                units=None if units is None else np.unique(units[rows], return_inverse=True)[1], pooled=pooled,
            )  # fmt: skip
        whole = next(iter(rules.values()))
        whys = dict.fromkeys(rule.why for rule in rules.values())
        answers = len(side) if units is None else int(units.max()) + 1
        return replace(
            whole, why=" Elsewhere ".join(whys), by=by, parts=rules, temperature=None,
            thresholds=np.full(side.probabilities.shape[2], np.inf), samples=len(side),
            patients=answers if side.groups is None else len(set(side.groups)), answers=answers,
        )  # fmt: skip
    p = probabilities_of(side.probabilities, network)
    # of an over-confident network almost all scores are 1, and ranges would be needlessly wide
    temperature = choose_recalibration(p, side.labels, groups=side.groups, vector=False)
    scores = range_scores(pool(p if temperature is None else temperature(p), units, pooled))
    if units is None or pooled is None:
        known = image_evidence(side, noise, label_noise, posterior)
    else:
        known = unit_evidence(side, units, noise, label_noise)
    rule = RangeRule(
        coverage=coverage,
        thresholds=np.full(scores.shape[1], np.inf),
        patients=round(float(patient_weights(known.groups, len(scores)).sum())),
        answers=len(scores),
        samples=len(side),
        by_patient=side.patients is not None,
        basis=known.basis,
        why=known.why,
        by=by,
        temperature=temperature,
        pooled=pooled,
    )
    return _verified(rule, scores, known, units) or _corrected(rule, scores, known, noise)


def _verified(rule: RangeRule, scores: Floats, known: Evidence, units: Ints | None) -> RangeRule | None:
    """The rule by verified grades alone, if they suffice."""
    rows = np.flatnonzero(known.verified >= 0)
    if not len(rows):
        return None
    groups = None if known.groups is None else [known.groups[row] for row in rows]
    weights = np.eye(scores.shape[1])[known.verified[rows]]
    thresholds = _thresholds(
        scores[rows], weights, groups=groups, coverage=rule.coverage, by_grade=rule.by == "grade"
    )
    if not np.isfinite(thresholds).any():
        return None
    return replace(
        rule,
        thresholds=thresholds,
        basis="verified",
        why="by their verified grades, which must be a random sample."
        if rule.pooled is None
        else "by the verified grades of all their images; they must be a random sample.",
        patients=round(float(patient_weights(groups, len(rows)).sum())),
        answers=len(rows),
        samples=len(rows) if units is None else int(np.isin(units, rows).sum()),
    )


def _corrected(rule: RangeRule, scores: Floats, known: Evidence, noise: KnownNoise | None) -> RangeRule:
    """The rule by labels that may be wrong."""
    by_grade = rule.by == "grade"
    basis, why, thresholds = known.basis, known.why, rule.thresholds
    found = [
        [
            _thresholds(scores, weights, groups=known.groups, coverage=rule.coverage, by_grade=by_grade)
            for weights in plausible
        ]
        for plausible in known.candidates
        if plausible
    ]
    if found:
        thresholds = np.min([np.max(one, axis=0) for one in found], axis=0)
    if basis in ("corrected", "conservative"):
        assert noise is not None
        safe = conservative_thresholds(scores, known, noise, coverage=rule.coverage, by_grade=by_grade)
        if 0 < noise.samples < FEW:
            basis, thresholds = "conservative", safe
            why = (
                f"conservatively: {noise.samples:,} labels are too few to estimate which grades are confused, so that "
                f"any near grade may be the true one."
            )
        thresholds = np.minimum(thresholds, safe)  # never wider than what holds without an assumption
    return replace(rule, basis=basis, why=why, thresholds=thresholds)


def conservative_thresholds(
    scores: Floats, known: Evidence, noise: KnownNoise, *, coverage: float, by_grade: bool
) -> Floats:
    """Thresholds (C,) that hold whatever wrong labels depend on.

    The worst of the grades up to ``far`` away from the label must enter. A label may be wrong by more than that with a
    probability that is added to the promise. Nothing of the kind holds for each grade.
    """
    classes = scores.shape[1]
    spare = (1.0 - coverage) / 2.0
    wrong_by = [known.labels_each * noise.wrong_by(d) for d in range(1, classes)]
    far = next((d for d, share in enumerate(wrong_by) if share <= spare), classes - 1)
    beyond = wrong_by[far] if far < classes - 1 else 0.0
    near = np.abs(np.arange(classes) - known.labels[:, None]) <= far
    worst = np.where(near, scores, -np.inf).max(axis=1)
    found = float("inf")
    if not by_grade:
        found = range_threshold(worst, coverage=coverage + beyond, groups=known.groups)
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
        columns={name: [values[row] for row in rows] for name, values in side.columns.items()},
    )
