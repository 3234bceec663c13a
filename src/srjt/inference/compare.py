"""Where scores differ: between subgroups such as sites, sexes and ages; between the run's own test side and samples
from elsewhere; and, ``srjt.compare``, between runs on the same images, with intervals by patient.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import MISSING, as_text
from srjt.data.images.store import ImageStore
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, count_of, few, unknown_name
from srjt.inference.answers import Answers
from srjt.inference.options import Answering, Grading
from srjt.inference.prepare import Prepared, RunLike, judging_labels, open_run, prepare, read_labelled
from srjt.ordinal import Purpose, calibration, metrics
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.metrics import METRICS, TOO_FEW, Floats, Interval, Ints, holm
from srjt.progress import Plain, Reported, plain
from srjt.settings import from_names
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained

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
    names = sorted(
        set(cells), key=lambda name: (name == UNKNOWN, name == SEVERAL, start.get(name, 0.0), name)
    )
    if len(names) > MOST_GROUPS:
        hint = "" if words else f" Numbers need a width, or a larger one: `by='{column}:10'`."
        raise SrjtError(f"{text} gives {len(names):,} groups; at most {MOST_GROUPS} can be shown.{hint}")
    return pd.Series(pd.Categorical(cells, names), name=column)


# Their scores.


def judge_subgroups(
    answers: Answers, groupings: Sequence[pd.Series[Any]], *, resamples: int = 1000
) -> Subgroups:
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
            scores = {metric: metrics.percentile_interval(found) for metric, found in values.items()}
            scores["calibration_error"] = _calibration_error(group, cells)
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


def _calibration_error(sums: Floats, cells: int) -> Interval:
    """The error of few samples is too large by chance, and that of a draw by as much again: the draws are mirrored at
    the value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.abs(sums[:, cells:]).sum(axis=1) / sums[:, :cells].sum(axis=1)
    value, low, high = metrics.percentile_interval(errors)
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


# The answers of several runs for the same test images, in the same order.


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The answers of one run for its test images: ``table`` has ``grade``, ``label`` and maybe ``group`` by id."""

    name: str
    table: pd.DataFrame
    samples: HeldOut | Manifest

    @property
    def judged_by(self) -> str:
        return judging_labels(self.samples)[1]


def answer_test(name: str, prepared: Prepared, data: Manifest | None) -> Tested:
    """The answers of a run for its own test side, or for other labelled images."""
    samples: HeldOut | Manifest
    if data is not None:
        store = prepared.open_store(data, find_duplicates=True)
        samples, answers = store.manifest, prepared.answer_store(store)
    else:
        side = prepared.run.held_out.get("test")
        if side is None or not len(side):
            raise SrjtError(f"{name} keeps no predictions for a test side: give labelled images with `test`.")
        samples, answers = side, prepared.side_answers(side, judging_labels(side)[0])
    table = pd.DataFrame({"grade": answers.grades, "label": answers.labels}, index=samples.ids)
    table = table if answers.groups is None else table.assign(group=answers.groups)
    return Tested(name=name, table=table, samples=samples)


def in_order_of(other: Tested, first: Tested) -> Tested:
    """The answers of another run in the order of the first one's images; an error if the images differ.

    Their given grades may differ: labels are corrected between two trainings.
    """
    ours, theirs = first.table.index, other.table.index
    both = ours[ours.isin(theirs)]
    parts = {
        f"only in {first.name}": ours[~ours.isin(theirs)],
        f"only in {other.name}": theirs[~theirs.isin(ours)],
    }
    if "true grades" in (first.judged_by, other.judged_by):
        parts["with another grade"] = both[first.table["label"][both] != other.table["label"][both]]
    if differing := [f"{len(ids):,} {where} ({few(ids)})" for where, ids in parts.items() if len(ids)]:
        raise SrjtError(
            f"{other.name} was tested on other images or grades than {first.name}: {'; '.join(differing)}. Give "
            "labelled images that none was trained on with `test`, or train one again on the sides of the other "
            "(srjt train … --splits RUN, or srjt.data.read_splits)."
        )
    return replace(other, table=other.table.loc[ours])


# ``srjt.compare``: runs on the same images, with intervals of their differences by patient.


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric of a run minus that of the first run.

    Attributes
    ----------
    run, metric : str
    value, first : float
        The metric of this run, and of the first one.
    difference : Interval
        ``value − first``, with its interval over the patients and, where there are several seeds, the trainings; the
        ends are nan with one patient.
    p_value : float
        Two-sided, of no difference, by the same draws; nan with one patient.
    adjusted : float
        The p-value after Holm's correction for the number of runs that are compared with the first.
    """

    run: str
    metric: str
    value: float
    first: float
    difference: Interval
    p_value: float
    adjusted: float


@dataclass(frozen=True, kw_only=True)
class Comparison(Reported, Plain):
    """The result of ``srjt.compare``.

    Attributes
    ----------
    runs : tuple of str
        Names of the runs; the others are compared with the first. Runs that differ in their seed only are one.
    samples : int
        Number of images.
    patients : int or None
        Number of patients, which are resampled; None: they are not known, so images are resampled and the intervals
        are probably too narrow.
    judged_by : str
        The labels that the predictions are compared with.
    level : float
        Confidence level of the intervals.
    differences : list of Difference
        Run by run, metric by metric.
    purpose : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric that the grades are for.
    trained_on : dict of str to int
        Run → how many of the images it was trained on, if there are any.
    trainings : tuple of int
        How many trainings, with other seeds, each of ``runs`` is the mean of.
    """

    runs: tuple[str, ...]
    samples: int
    patients: int | None
    judged_by: str
    level: float
    differences: list[Difference]
    purpose: Purpose
    trained_on: dict[str, int]
    trainings: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<Comparison: {', '.join(self.runs)} on {count_of(self.samples, 'image')}>"


def compare(
    *runs: RunLike,
    test: Manifest | str | os.PathLike[str] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Comparison:
    """Compare runs on the same images, each with the first one.

    The patients are resampled, the same ones for all runs, so that the differences are paired; intervals are by
    Student's t (see ``srjt.ordinal.metrics.t_interval``). Runs that differ in their seed only count as one, whose
    scores are the means; the intervals then contain the variation between trainings, too.

    Parameters
    ----------
    *runs : Trained or path
        Two or more runs with the same grades.
    test : Manifest or path, optional
        Labelled images. Default: the test side of the runs, which must be the same. Where given grades were corrected
        between the trainings, all runs are judged by those of the last one.
    resamples : int
        Number of bootstrap draws of the patients.
    level : float
        Confidence level.
    seed : int
    **options
        How the runs answer: the fields of ``srjt.inference.options.Grading``, ``network``, ``optimise``, ``decoding``.

    Returns
    -------
    Comparison
        The differences with intervals.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> split = srjt.data.folds(data)[0]
    >>> a, b = (srjt.train(data, split=split, method=m, **settings) for m in ("standard", "co-teaching"))
    >>> found = srjt.compare(a, b, resamples=50)
    >>> found.runs, found.differences[0].metric
    (('run 1', 'run 2'), 'accuracy')
    """
    grading = from_names(Grading, options, kind="option")
    if len(runs) < 2:
        raise SrjtError("A comparison needs at least two runs.")
    opened = [open_run(run) for run in runs]
    names = _names(opened)
    for name, run in zip(names, opened, strict=True):
        if run.grades != opened[0].grades:
            raise SrjtError(
                f"{name} has the grades {', '.join(run.grades)} and {names[0]} has {', '.join(opened[0].grades)}: "
                "only runs with the same grades can be compared."
            )
    test = None if test is None else read_labelled(opened[0], test)
    asked = Answering(**vars(grading))
    tested = [answer_test(name, prepare(run, asked), test) for name, run in zip(names, opened, strict=True)]
    first = tested[0]
    tested = [first, *(in_order_of(other, first) for other in tested[1:])]
    # identical images may have been found for one run only: the larger groups are used
    known = [one.table["group"].tolist() for one in tested if "group" in one.table]
    groups = min(known, key=lambda group: len(set(group)), default=None)
    # the same labels judge all: those of the last run, where some were corrected in between
    last = tested[-1]
    labels = last.table["label"].to_numpy()
    corrected = max(int((one.table["label"] != labels).sum()) for one in tested)
    drawn = [
        metrics.resampled_metrics(
            labels, one.table["grade"].to_numpy(), num_classes=len(opened[0].grades), groups=groups,
            resamples=resamples, seed=seed,
        )
        for one in tested
    ]  # fmt: skip
    methods = _same_but_seed(opened)
    units, patients = len(set(groups or first.table.index)), first.samples.patients
    learnt = [0 if test is None else len(run.trained_on(test)) for run in opened]
    by_last = f" of {last.name}, {corrected:,} of which others have not" if corrected else ""
    shown = [names[rows[0]] + (f" ({len(rows)} seeds)" if len(rows) > 1 else "") for rows in methods]
    draws = [[drawn[place] for place in rows] for rows in methods]
    return Comparison(
        runs=tuple(shown),
        samples=len(labels),
        patients=None if patients is None else len(set(patients)),
        judged_by=f"{last.judged_by}{by_last}",
        level=level,
        differences=_differences(shown, draws, patients=units, level=level),
        purpose=grading.optimise or opened[0].config.optimise,
        trained_on={name: count for name, count in zip(names, learnt, strict=True) if count},
        trainings=tuple(map(len, methods)),
    )


def _same_but_seed(runs: Sequence[Trained]) -> list[list[int]]:
    """The places of the runs with the same settings and training labels, but other seeds, in the order of the first.

    Where true grades are known, noise was injected: the seed decides it, and the labels may differ.
    """
    methods: dict[tuple[str, frozenset[object]], list[int]] = {}
    for place, run in enumerate(runs):
        test = run.held_out.get("test")
        labels = run.training_labels
        samples = frozenset(labels.items() if test is None or test.true_labels is None else labels)
        methods.setdefault((repr(run.config.replace(seed=0).determining()), samples), []).append(place)
    seeds = [[runs[place].config.seed for place in rows] for rows in methods.values()]
    # trainings of one method: each is compared with the first; or equal runs, or runs that nothing tells apart
    if len(methods) == 1 or any(len(set(own)) < len(own) for own in seeds):
        return [[place] for place in range(len(runs))]
    return list(methods.values())


def _differences(
    names: Sequence[str], methods: Sequence[Sequence[dict[str, Floats]]], *, patients: int, level: float
) -> list[Difference]:
    """methods: for each the draws of every training."""
    found = []
    for metric in metrics.METRICS:
        means = [np.mean([draws[metric] for draws in trainings], axis=0) for trainings in methods]
        scores = [[draws[metric][0] for draws in trainings] for trainings in methods]
        rows = []
        for name, mean, own in zip(names[1:], means[1:], scores[1:], strict=True):
            trainings = [scores[0], own]
            tested = metrics.t_interval(mean - means[0], patients=patients, trainings=trainings, level=level)
            ends = {"value": float(mean[0]), "first": float(means[0][0]), "adjusted": np.nan}
            rows.append(Difference(run=name, metric=metric, difference=tested[0], p_value=tested[1], **ends))
        adjusted = metrics.holm([row.p_value for row in rows])
        found += [replace(row, adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]
    return sorted(found, key=lambda row: names.index(row.run))


def _names(runs: Sequence[Trained]) -> list[str]:
    """The last part of each path; the whole path if two are the same."""
    short = [f"run {k}" if run.folder is None else run.folder.resolve().name for k, run in enumerate(runs, 1)]
    if len(set(short)) == len(short):
        return short
    full = [name if run.folder is None else str(run.folder) for name, run in zip(short, runs, strict=True)]
    return full if len(set(full)) == len(full) else [f"{name} ({k})" for k, name in enumerate(full, 1)]
