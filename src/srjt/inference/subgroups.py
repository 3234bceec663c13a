"""Where the scores differ: between subgroups such as sites, sexes and ages, and between the run's own test side and
samples from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import MISSING, as_text
from srjt.data.images.store import ImageStore
from srjt.errors import SrjtError, unknown_name
from srjt.inference.answers import Answers
from srjt.inference.prepare import Prepared, judging_labels, prepare
from srjt.ordinal import calibration, metrics
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.metrics import METRICS, TOO_FEW, Floats, Interval, Ints, holm
from srjt.progress import Plain, plain

MOST_GROUPS = 60  # of a column; one with more is an id, or a number that needs a width
UNKNOWN, SEVERAL = "(missing)", "(several)"
BINS = 15  # of the confidence, as for the calibration error of all samples


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A metric of a group minus that of all other samples.

    Attributes
    ----------
    difference : Interval
        With its 95 % interval by Student's t over the bootstrap draws of the patients.
    p_value, adjusted : float
        Of no difference; and after Holm's correction for all groups of all columns. Not corrected for metrics.
    """

    difference: Interval
    p_value: float
    adjusted: float


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """The answers whose samples have one value of a column.

    Attributes
    ----------
    column, name : str
        ``"site"`` and ``"north"``; ``"age"`` and ``"40 to 50"`` (50 is in the next); ``"(missing)"`` without a value,
        ``"(several)"`` where the images of one answer differ.
    samples, patients : int
        Answers, and the patients who are resampled; without patient ids, both are the samples.
    scores : dict of str to Interval
        Every metric, ``calibration_error`` and, with ranges, ``coverage``; empty if there are too few patients.
    gaps : dict of str to Gap
        By metric; empty if there are too few patients in the group or outside of it.
    """

    column: str
    name: str
    samples: int
    patients: int
    scores: dict[str, Interval]
    gaps: dict[str, Gap]

    def __str__(self) -> str:
        return f"{self.column} {self.name}"

    @property
    def too_few(self) -> bool:
        """Whether there are fewer than ``TOO_FEW`` patients, of whom nothing can be said."""
        return not self.scores

    @property
    def differs(self) -> bool:
        """Whether its mean absolute error differs from that of all others by more than chance."""
        return bool(self.gaps) and self.gaps["mae"].adjusted <= 0.05


@dataclass(frozen=True, kw_only=True)
class Subgroups:
    """All groups of all columns, in the order of the columns and of their values."""

    groups: tuple[Subgroup, ...]

    @property
    def worst(self) -> Subgroup | None:
        """The group with the largest mean absolute error; None if all are too small."""
        shown = [group for group in self.groups if not group.too_few]
        return max(shown, key=lambda group: group.scores["mae"].value, default=None)

    @property
    def differing(self) -> str:
        """The groups that differ from all others, as a list of words."""
        return ", ".join(str(group) for group in self.groups if group.differs)

    @property
    def tests(self) -> int:
        """How many gaps Holm's correction is for."""
        return len({_test_of(group, self.groups) for group in self.groups if group.gaps})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        worst = self.worst
        groups = [{**plain(group), "too_few": group.too_few} for group in self.groups]
        return {"groups": groups, "worst": worst and {"column": worst.column, "name": worst.name}}

    def table(self) -> pd.DataFrame:
        """One row per group and score: value, low, high, gap, gap_low, gap_high, p_value, adjusted."""
        none = Gap(difference=Interval(math.nan, math.nan, math.nan), p_value=math.nan, adjusted=math.nan)
        rows = []
        for group in self.groups:
            for name, score in group.scores.items() or [("", none.difference)]:
                gap = group.gaps.get(name, none)
                of_group = (group.column, group.name, group.samples, group.patients, name)
                rows.append((*of_group, *score, *gap.difference, gap.p_value, gap.adjusted))
        columns = ["column", "group", "samples", "patients", "score", "value", "low", "high"]
        columns += ["gap", "gap_low", "gap_high", "p_value", "adjusted"]
        return pd.DataFrame(rows, columns=columns)


def _test_of(group: Subgroup, groups: Sequence[Subgroup]) -> tuple[str, str]:
    """The test of a group against the rest: of two groups, one against the other is one test."""
    names = [other.name for other in groups if other.column == group.column]
    return group.column, names[0] if len(names) == 2 else group.name


# The group of every answer.


def group_by(table: pd.DataFrame, text: str, units: Ints | None = None) -> pd.Series[Any]:
    """(N,) the group of each sample by a column, as categories in their order; ``"age:10"`` has one for ten years.

    units: (N,) the unit of each sample, from 0, if units are grouped. An error, in one sentence, if the column does not
    exist, has too many values, or has no numbers where a width is given.
    """
    column, _, width = (text, "", "") if text in table or ":" not in text else text.rpartition(":")
    own = f"{column}_source" if f"{column}_source" in table else column  # srjt has one of that name, too
    if own not in table:
        raise unknown_name("column (for `by`)", column, [str(name) for name in table.columns])
    cells = [as_text(cell).strip() for cell in table[own]]
    cells = [UNKNOWN if cell.casefold() in MISSING else cell for cell in cells]
    numbers = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(np.float64)
    words = [cell for cell, number in zip(cells, numbers.tolist(), strict=True)
             if cell != UNKNOWN and not math.isfinite(number)]  # fmt: skip
    if width:
        step = float(width) if width.replace(".", "", 1).isdigit() else 0.0
        if step <= 0:
            raise SrjtError(f"{text}: the width of the groups must be a positive number, as in {column}:10.")
        if words:
            raise SrjtError(f"{text} needs numbers, and {column} has the value {words[0]!r}.")
        numbers = np.floor(numbers / step + 1e-9) * step  # 0.3 / 0.1 is a little less than 3
        cells = [UNKNOWN if math.isnan(low) else f"{low:g} to {low + step:g}" for low in numbers.tolist()]
    start = dict(zip(cells, numbers.tolist(), strict=True)) if not words else {}
    if units is not None:
        of_unit = pd.Series(cells).groupby(units)
        cells = np.where(of_unit.nunique() == 1, of_unit.first(), SEVERAL).tolist()
    names = sorted(set(cells), key=lambda name: (name == UNKNOWN, name == SEVERAL, start.get(name, 0.0), name))
    if len(names) > MOST_GROUPS:
        hint = "" if words else f" Numbers need a width, or a larger one: `by='{column}:10'`."
        raise SrjtError(f"{text} gives {len(names):,} groups; at most {MOST_GROUPS} can be shown.{hint}")
    return pd.Series(pd.Categorical(cells, names), name=column)


# Their scores.


def judge_subgroups(answers: Answers, groupings: Sequence[pd.Series[Any]], *, resamples: int = 1000) -> Subgroups:
    """The scores of every group, with intervals over the patients, and its gaps to all other samples.

    The same draws of all patients serve every group: where a patient is in two of them (the left and the right eye),
    their gap is paired.

    Parameters
    ----------
    answers : Answers
        N answers beside their labels; where they have ranges, their coverage is a score, too.
    groupings : sequence of Series
        From ``group_by``.
    resamples : int
        Of the bootstrap.

    Returns
    -------
    Subgroups
    """
    labels, count, num_classes = answers.labels, len(answers), answers.classes
    owner = metrics.patient_codes(answers.groups, count)
    patients = int(owner.max()) + 1
    confidence = answers.probabilities.max(axis=1)
    right = answers.probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    cells, inside = num_classes * num_classes, None
    if answers.ranges is not None:
        inside = (answers.ranges[0] <= labels) & (labels <= answers.ranges[1])

    def sums(rows: Ints) -> tuple[Ints, Floats]:
        """The patients of some answers, and for each the confusion matrix and, per bin, Σ (confidence − right)."""
        members, place = np.unique(owner[rows], return_inverse=True)
        own = np.zeros((len(members), cells + BINS))
        np.add.at(own, (place, labels[rows] * num_classes + answers.grades[rows]), 1.0)
        np.add.at(own, (place, cells + bins[rows]), confidence[rows] - right[rows])
        return members, own

    parts = [
        (str(grouping.name), name, np.flatnonzero(grouping == name))
        for grouping in groupings
        for name in grouping.cat.categories
    ]
    own = [sums(rows) for _, _, rows in parts]
    whole = sums(np.arange(count))[1]
    drawn: list[list[Floats]] = [[] for _ in parts]
    totals = []
    for weights in metrics.patient_draws(patients, max(resamples, 2), seed=0):
        totals.append(weights @ whole)
        for place, (members, of_group) in enumerate(own):
            drawn[place].append(weights[:, members] @ of_group)
    total = np.concatenate(totals)
    groups = []
    for (column, name, rows), (members, _), chunks in zip(parts, own, drawn, strict=True):
        group = np.concatenate(chunks)
        outside = len(np.unique(owner[np.setdiff1d(np.arange(count), rows)]))
        scores: dict[str, Interval] = {}
        gaps: dict[str, Gap] = {}
        if len(members) >= TOO_FEW:
            values = _metrics(group, num_classes)
            scores = {
                metric: metrics.percentile_interval(found, patients=len(members)) for metric, found in values.items()
            }
            scores["calibration_error"] = _calibration_error(group, cells, patients=len(members))
            if inside is not None:
                owners = answers.groups_of(rows)
                equal = calibration.patient_weights(owners, len(rows))
                scores["coverage"] = proportion_interval(inside[rows], groups=owners, weights=equal)
            if outside >= TOO_FEW:
                rest = _metrics(total - group, num_classes)
                for metric, found in values.items():
                    tested = metrics.t_interval(found - rest[metric], patients=min(len(members), outside))
                    gaps[metric] = Gap(difference=tested[0], p_value=tested[1], adjusted=math.nan)
        counts = {"samples": len(rows), "patients": len(members)}
        groups.append(Subgroup(column=column, name=name, scores=scores, gaps=gaps, **counts))
    _correct(groups)
    return Subgroups(groups=tuple(groups))


def _metrics(sums: Floats, num_classes: int) -> dict[str, Floats]:
    confusions = sums[:, : num_classes * num_classes].reshape(-1, num_classes, num_classes)
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw may have no sample of the group
        return {name: metric.function(confusions) for name, metric in METRICS.items()}


def _calibration_error(sums: Floats, cells: int, *, patients: int) -> Interval:
    """The error of few samples is too large by chance, and that of a draw by as much again: the draws are mirrored at
    the value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.abs(sums[:, cells:]).sum(axis=1) / sums[:, :cells].sum(axis=1)
    value, low, high = metrics.percentile_interval(errors, patients=patients)
    return Interval(value, max(0.0, 2 * value - high), max(value, 2 * value - low))


def _correct(groups: list[Subgroup]) -> None:
    """Holm's correction, metric by metric, for the tests of all groups."""
    tested = [(_test_of(group, groups), group) for group in groups if group.gaps]
    for metric in METRICS:
        p_values = {test: group.gaps[metric].p_value for test, group in tested}
        adjusted = dict(zip(p_values, holm(list(p_values.values())).tolist(), strict=True))
        for test, group in tested:
            group.gaps[metric] = replace(group.gaps[metric], adjusted=adjusted[test])


# Samples from elsewhere, beside the run's own test side.


@dataclass(frozen=True, kw_only=True)
class Scores(Plain):
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


@dataclass(frozen=True, kw_only=True)
class External(Plain):
    """Samples from elsewhere beside the run's own test side.

    Attributes
    ----------
    home, here : Scores
        Of the own test side and of these samples, both with the run as it was trained, of one view of each.
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


def beside_own_test_side(
    prepared: Prepared, store: ImageStore, images: Answers, *, resamples: int = 1000
) -> External | None:
    """The comparison of samples that the run does not know; None without a test side, and for answers per patient."""
    run, options = prepared.run, prepared.options
    side, fitted = run.held_out.get("test"), prepared.calibrate_on
    if side is None or not len(side) or options.per or images.outputs is None:
        return None
    trained = prepared
    if fitted is not None or options.views > 1:  # the run keeps one view of its test side
        trained = prepare(run, replace(options, calibrate_on=None, coverage=None, coverage_by=None, views=1))
    alike = trained.answer(images.outputs, images.labels, images.groups)
    here = scores_of(alike if options.views == 1 else trained.answer_store(store), resamples=resamples)
    home = scores_of(trained.side_answers(side, judging_labels(side)[0]), resamples=resamples)
    present = here.shares > 0  # grades without samples have no error, and do not count
    mae, mixed = home.intervals["mae"].value, float((here.shares * home.grade_errors)[present].sum())
    patients = None if fitted is None or fitted.patients is None else len(set(fitted.patients))
    return External(
        home=home,
        here=here,
        recalibrated=None if fitted is None else scores_of(images, resamples=resamples),
        calibrated_on=(0, None) if fitted is None else (len(fitted), patients),
        by_mix=mixed - mae,
        by_answers=here.intervals["mae"].value - mixed,
    )


def scores_of(answers: Answers, *, resamples: int) -> Scores:
    labels, p = answers.labels, answers.probabilities
    return Scores(
        intervals=answers.intervals(resamples=resamples),
        calibration_error=calibration.expected_calibration_error(p, labels),
        calibration=calibration.calibration_bins(p, labels),
        confusion=answers.confusion.tolist(),
    )
