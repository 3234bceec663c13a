"""A second centre: the scores of its samples beside those of the run's own test side, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.data.manifest import Manifest
from srjt.inference.answers import Answers, answers_from
from srjt.inference.prepare import Prepared, prepare
from srjt.ordinal.calibration import CalibrationBin, calibration_bins, expected_calibration_error
from srjt.ordinal.metrics import Interval, bootstrap_metrics
from srjt.training.trained import Trained

OWN_SHARE = 0.75  # with equal ids and labels, from which samples are the run's own

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of one set of answers.

    Attributes
    ----------
    intervals : dict of str to Interval
        Every metric.
    calibration_error : float
    calibration : list of CalibrationBin
    confusion : list of list of int
        Rows are the labels.
    """

    intervals: dict[str, Interval]
    calibration_error: float
    calibration: list[CalibrationBin]
    confusion: list[list[int]]

    @property
    def grade_errors(self) -> Floats:
        """(C,) the mean absolute error of the samples of each grade; nan for a grade without samples."""
        counts = np.asarray(self.confusion, dtype=np.float64)
        grades = np.arange(len(counts))
        with np.errstate(invalid="ignore"):
            return np.asarray((counts * abs(grades - grades[:, None])).sum(axis=1) / counts.sum(axis=1))

    @property
    def shares(self) -> Floats:
        """(C,) the share of the samples of each grade."""
        counts = np.asarray(self.confusion, dtype=np.float64).sum(axis=1)
        return np.asarray(counts / counts.sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "intervals": {name: interval._asdict() for name, interval in self.intervals.items()},
            "calibration_error": self.calibration_error,
            "calibration": [one._asdict() for one in self.calibration],
            "confusion": self.confusion,
        }


@dataclass(frozen=True, kw_only=True)
class External:
    """Samples from elsewhere beside the run's own test side.

    Attributes
    ----------
    home, here : Scores
        Of the own test side and of these samples, both with the run as it was trained.
    recalibrated : Scores or None
        Of these samples with what was fitted to ``calibrate_on``; None without it.
    calibrated_on : tuple of (int, int or None)
        The samples and the patients that it was fitted to; (0, None) without it.
    by_mix, by_answers : float
        Parts of the change of the mean absolute error: what it would be if each grade were answered as at home, in the
        mix of grades here; and the rest, answers to the same grades that are better or worse. nan if a grade that is
        here is not among the samples at home.
    """

    home: Scores
    here: Scores
    recalibrated: Scores | None
    calibrated_on: tuple[int, int | None]
    by_mix: float
    by_answers: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "home": self.home.to_dict(),
            "here": self.here.to_dict(),
            "recalibrated": self.recalibrated and self.recalibrated.to_dict(),
            "calibrated_on": list(self.calibrated_on),
            "by_mix": self.by_mix,
            "by_answers": self.by_answers,
        }


def is_held_out(run: Trained, data: Manifest) -> bool:
    """Whether the samples are those of the run's own held-out sides: most have the id and the label of one of them.

    Equal ids alone say little: 0001.png is everywhere.
    """
    sides = run.held_out.values()
    labels = {
        name: label for side in sides for name, label in zip(side.ids, side.labels.tolist(), strict=True)
    }
    same = [labels.get(name) == label for name, label in zip(data.ids, data.labels.tolist(), strict=True)]
    return bool(sum(same) > OWN_SHARE * len(data))


def beside_own_test_side(
    prepared: Prepared,
    answers: Answers,
    probabilities: npt.NDArray[np.float32],
    grades: Ints,
    *,
    resamples: int = 1000,
) -> External | None:
    """The comparison of samples that the run does not know; None without a test side, and for answers per patient.

    answers: for these samples, as they are given. probabilities, grades: (K, N, C) and (K, N) of the networks.
    """
    run, options = prepared.run, prepared.options
    side = run.held_out.get("test")
    if side is None or not len(side) or options.per:
        return None
    fitted = prepared.fitted.calibrate_on
    trained = prepared
    if fitted is not None:
        trained = prepare(run, replace(options, calibrate_on=None, coverage=None, coverage_by=None))
    labels = side.labels if side.true_labels is None else side.true_labels
    table = replace(trained, fitted=replace(trained.fitted, ranges=None)).predictions(probabilities, grades)
    here = _scores(answers_from(run, table, answers.labels, groups=answers.groups), resamples=resamples)
    home = _scores(trained.side_answers(side, labels), resamples=resamples)
    mae, mixed = home.intervals["mae"].value, _weighted(here.shares, home.grade_errors)
    return External(
        home=home,
        here=here,
        recalibrated=None if fitted is None else _scores(answers, resamples=resamples),
        calibrated_on=(0, None) if fitted is None else (len(fitted), _count(fitted.patients)),
        by_mix=mixed - mae,
        by_answers=here.intervals["mae"].value - mixed,
    )


def _scores(answers: Answers, *, resamples: int) -> Scores:
    classes = answers.probabilities.shape[1]
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (answers.labels, answers.grades), 1)
    return Scores(
        intervals=bootstrap_metrics(
            answers.labels,
            answers.grades,
            num_classes=classes,
            groups=answers.groups,
            resamples=max(resamples, 1),
        ),
        calibration_error=expected_calibration_error(answers.probabilities, answers.labels),
        calibration=calibration_bins(answers.probabilities, answers.labels),
        confusion=counts.tolist(),
    )


def _weighted(shares: Floats, errors: Floats) -> float:
    """Grades without samples have no error, and do not count; nan if one with samples has none."""
    return float((shares * errors)[shares > 0].sum())


def _count(patients: Sequence[str] | None) -> int | None:
    return None if patients is None else len(set(patients))
