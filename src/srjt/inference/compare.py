"""``srjt.compare``: runs on the same images, with intervals of their differences by patient."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.manifest import Ints, Manifest
from srjt.errors import Option, SrjtError, count_of, few
from srjt.inference.answers import number_of_patients, run_name
from srjt.inference.calibrated_run import CalibratedRun, RunLike, calibrate_run, open_run
from srjt.inference.labelled import (
    JudgedBy,
    judging_labels,
    read_labelled,
    warn_of_training_patients,
)
from srjt.inference.options import Answering, Grading
from srjt.json_values import DictMixin
from srjt.notebook import HasPage
from srjt.ordinal import Purpose, intervals
from srjt.ordinal.baseline import Gain, gain_over_one_grade
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS, Floats
from srjt.settings import from_names
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

# The answers of several runs for the same test images, in the same order.


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The answers of one run for its test images: ``table`` has ``grade``, ``label`` and maybe
    ``group`` by id."""

    name: str
    table: pd.DataFrame
    samples: HeldOut | Manifest

    @property
    def judged_by(self) -> JudgedBy:
        return judging_labels(self.samples)[1]


def answer_test(name: str, calibrated: CalibratedRun, data: Manifest | None) -> Tested:
    """The answers of a run for its own test side, or for other labelled images."""
    samples: HeldOut | Manifest
    if data is not None:
        store = calibrated.open_store(data, find_duplicates=True)
        samples = store.manifest
        answers = calibrated.answer_store(store)
    else:
        side = calibrated.run.held_out.get("test")
        if side is None or not len(side):
            raise SrjtError(
                f"{name} keeps no predictions for a test side: give labelled images with ",
                Option("test"),
                ".",
                code="no_split",
            )
        samples = side
        answers = calibrated.side_answers(side, judging_labels(side)[0])
    table = pd.DataFrame({"grade": answers.grades, "label": answers.labels}, index=samples.ids)
    if answers.groups is not None:
        table["group"] = answers.groups
    return Tested(name=name, table=table, samples=samples)


def in_order_of(other: Tested, first: Tested) -> Tested:
    """The answers of another run in the order of the first one's images; an error if the images
    differ.

    Their given grades may differ: labels are corrected between two trainings.
    """
    ours = first.table.index
    theirs = other.table.index
    both = ours[ours.isin(theirs)]
    parts = {
        f"only in {first.name}": ours[~ours.isin(theirs)],
        f"only in {other.name}": theirs[~theirs.isin(ours)],
    }
    if "true grades" in (first.judged_by, other.judged_by):
        parts["with another grade"] = both[first.table["label"][both] != other.table["label"][both]]
    differing = []
    for where, ids in parts.items():
        if len(ids):
            differing.append(f"{len(ids):,} {where} ({few(ids)})")
    if differing:
        raise SrjtError(
            f"{other.name} was tested on other images or grades than {first.name}:"
            f" {'; '.join(differing)}. Give labelled images that none was trained on with ",
            Option("test"),
            ", or train one again on the sides of the other (srjt train … --splits RUN, or"
            " srjt.data.read_splits).",
            code="no_match",
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
        ``value − first``, with its interval over the patients and, where there are several seeds,
        the trainings; the ends are nan with one patient, and of means over grades and κ if a grade
        has fewer than ten patients.
    p_value : float
        Two-sided, of no difference, by the same draws; nan where the ends are.
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
class Comparison(HasPage, DictMixin):
    """The result of ``srjt.compare``.

    Attributes
    ----------
    runs : tuple of str
        Names of the runs; the others are compared with the first. Runs that differ in their seed
        only are one.
    samples : int
        Number of images.
    patients : int or None
        Number of patients, which are resampled; None: they are not known, so images are resampled
        and the intervals are probably too narrow.
    judged_by : str
        The labels that the predictions are compared with: ``"true grades"`` or ``"given grades"``.
    corrected : int
        How many of these labels another run does not have: they were corrected in between.
    labels_of : str
        The run whose labels they are, the last one given, if some were corrected; else empty.
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
    gains : dict of str to list of Gain
        Run → what each of its trainings gains over one grade for all; a run that does not know its
        training labels is left out.
    rare_grades : tuple of str
        Grades of fewer than ten patients, because of which some differences have no interval.
    """

    runs: tuple[str, ...]
    samples: int
    patients: int | None
    judged_by: JudgedBy
    level: float
    differences: list[Difference]
    purpose: Purpose
    trained_on: dict[str, int]
    trainings: tuple[int, ...] = ()
    gains: dict[str, list[Gain]] = field(default_factory=dict)
    rare_grades: tuple[str, ...] = ()
    corrected: int = 0
    labels_of: str = ""

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

    The patients are resampled, the same ones for all runs, so that the differences are paired;
    intervals are by Student's t (see ``srjt.ordinal.intervals.t_interval``), with the effective
    number of patients where these have different numbers of images, and with one more error of each
    run, because rare ones may not have occurred. Runs that differ in their seed only count as one,
    whose scores are the means; the intervals then contain the variation between trainings, too.

    Parameters
    ----------
    *runs : Trained or path
        Two or more runs with the same grades.
    test : Manifest or path, optional
        Labelled images. Default: the test side of the runs, which must be the same. Where given
        grades were corrected between the trainings, all runs are judged by those of the last one.
    resamples : int
        Number of bootstrap draws of the patients.
    level : float
        Confidence level.
    seed : int
    **options
        How the runs answer: the fields of ``srjt.inference.options.Grading``, ``network``,
        ``target_metric``, ``decoding``.

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
    >>> first = srjt.train(data, split=split, method="standard", **settings)
    >>> second = srjt.train(data, split=split, method="co-teaching", **settings)
    >>> comparison = srjt.compare(first, second, resamples=50)
    >>> comparison.runs, comparison.differences[0].metric
    (('run 1', 'run 2'), 'accuracy')
    """
    grading = from_names(Grading, options, kind="option")
    opened = list(map(open_run, runs))
    names = _names(opened)
    by_name = dict(zip(names, opened, strict=True))
    _check_comparable(by_name)
    if test is not None:
        test = read_labelled(opened[0], test)
        for run in opened:
            warn_of_training_patients(run, test)
    tested = _answer_all(by_name, Answering(**vars(grading)), test)
    # identical images may have been found for one run only: the larger groups are used
    known = [one.table["group"].tolist() for one in tested if "group" in one.table]
    groups = min(known, key=lambda group: len(set(group)), default=None)
    # the same labels judge all: those of the last run, where some were corrected in between
    last = tested[-1]
    labels = last.table["label"].to_numpy()
    corrected = max(int((one.table["label"] != labels).sum()) for one in tested)
    grades = opened[0].grades
    drawn = []
    errors = []
    for one in tested:
        by_patient = intervals.patient_tables(
            labels, one.table["grade"].to_numpy(), num_classes=len(grades), groups=groups
        )
        drawn.append(_drawn_metrics(by_patient, resamples=resamples, seed=seed))
        errors.append(intervals.one_error_more(by_patient))
    methods = _same_but_seed(opened)
    of_grade = intervals.patients_of_grades(by_patient)  # the labels are the same in all tables
    uncommon = np.flatnonzero(np.asarray(of_grade) < intervals.TOO_FEW)
    rare = [grades[grade] for grade in uncommon]
    purpose = grading.target_metric or opened[0].config.target_metric
    gain_of = partial(_gain, labels=labels, metric=purpose, groups=groups, resamples=resamples)
    shown = [_with_seeds(names[rows[0]], len(rows)) for rows in methods]
    gains: dict[str, list[Gain]] = {}
    for name, rows in zip(shown, methods, strict=True):
        for place in rows:
            if gain := gain_of(opened[place], tested[place]):
                gains.setdefault(name, []).append(gain)
    return Comparison(
        runs=tuple(shown),
        samples=len(labels),
        patients=number_of_patients(tested[0].samples.patients),
        judged_by=last.judged_by,
        corrected=corrected,
        labels_of=last.name if corrected else "",
        level=level,
        differences=_differences(
            shown,
            [[drawn[row] for row in rows] for rows in methods],
            patients=intervals.patients_behind(by_patient),
            level=level,
            errors=[[errors[row] for row in rows] for rows in methods],
            classes=len(grades),
        ),
        purpose=purpose,
        gains=gains,
        trained_on=_trained_on(by_name, test),
        trainings=tuple(map(len, methods)),
        rare_grades=tuple(rare),
    )


def _with_seeds(name: str, trainings: int) -> str:
    if trainings == 1:
        return name
    return f"{name} ({trainings} seeds)"


def _gain(
    run: Trained,
    tested: Tested,
    *,
    labels: Ints,
    metric: Purpose,
    groups: Sequence[str] | None,
    resamples: int,
) -> Gain | None:
    """What a run gains over one grade for all; None if it does not know its training labels."""
    counts = run.facts.data.class_counts
    if not any(counts):
        return None
    return gain_over_one_grade(
        labels,
        tested.table["grade"].to_numpy(),
        training_counts=counts,
        metric=metric,
        groups=groups,
        resamples=resamples,
    )


def _drawn_metrics(by_patient: Floats, *, resamples: int, seed: int) -> dict[str, Floats]:
    """Each metric (1 + resamples,) of the tables of the patients (G, C, C), and of their draws."""
    tables = intervals.resampled_tables(by_patient, resamples=resamples, seed=seed)
    return {name: metric.function(tables) for name, metric in METRICS.items()}


def _check_comparable(runs: Mapping[str, Trained]) -> None:
    """Refuse a single run, and runs with different grades."""
    if len(runs) < 2:
        raise SrjtError("A comparison needs at least two runs.", code="too_few")
    first, *_ = runs
    for name, run in runs.items():
        if run.grades != runs[first].grades:
            raise SrjtError(
                f"{name} has the grades {', '.join(run.grades)} and {first} has"
                f" {', '.join(runs[first].grades)}. Only runs with the same grades can be"
                " compared.",
                code="no_match",
            )


def _answer_all(
    runs: Mapping[str, Trained], answering: Answering, test: Manifest | None
) -> list[Tested]:
    """The answers of all runs, in the order of the first one's images."""
    tested: list[Tested] = []
    for name, run in runs.items():
        answered = answer_test(name, calibrate_run(run, answering), test)
        if tested:
            answered = in_order_of(answered, tested[0])
        tested.append(answered)
    return tested


def _trained_on(runs: Mapping[str, Trained], test: Manifest | None) -> dict[str, int]:
    """How many of the tested samples each run was trained on, if some."""
    counts = {}
    for name, run in runs.items():
        if test is not None and (count := len(run.trained_on(test))):
            counts[name] = count
    return counts


def _same_but_seed(runs: Sequence[Trained]) -> list[list[int]]:
    """The places of the runs with the same settings and training labels, but other seeds, in the
    order of the first.

    Where true grades are known, noise was injected: the seed decides it, and the labels may differ.
    """
    methods: dict[tuple[str, frozenset[object]], list[int]] = {}
    for place, run in enumerate(runs):
        test = run.held_out.get("test")
        labels = run.training_labels
        samples: frozenset[object] = frozenset(labels)
        if test is None or test.true_labels is None:
            samples = frozenset(labels.items())
        methods.setdefault((repr(run.config.replace(seed=0).determining()), samples), []).append(
            place
        )
    # trainings of one method: each is compared with the first; or equal runs, or runs that nothing
    # tells apart
    alone = len(methods) == 1
    for rows in methods.values():
        seeds = {runs[place].config.seed for place in rows}
        alone = alone or len(seeds) < len(rows)
    if alone:
        return [[place] for place in range(len(runs))]
    return list(methods.values())


def _differences(
    names: Sequence[str],
    methods: Sequence[Sequence[dict[str, Floats]]],
    *,
    patients: Mapping[str, float],
    level: float,
    errors: Sequence[Sequence[dict[str, float]]] = (),
    classes: int,
) -> list[Difference]:
    """methods: for each the draws of every training. patients: by metric, as ``intervals.
    patients_behind`` has them. errors: for each the change by ``intervals.one_error_more`` of every
    training; one error of each method may have been too rare to occur. classes: number of grades.
    """
    differences = []
    for metric in METRICS:
        means = [np.mean([draws[metric] for draws in trainings], axis=0) for trainings in methods]
        scores = [[draws[metric][0] for draws in trainings] for trainings in methods]
        squares = [0.0] * len(names)
        for place, steps in enumerate(errors):
            squares[place] = float(np.mean([step[metric] for step in steps])) ** 2
        largest = METRICS[metric].largest_difference(classes)
        rows = []
        for name, mean, of_run, square in zip(
            names[1:], means[1:], scores[1:], squares[1:], strict=True
        ):
            tested = intervals.t_interval(
                mean - means[0],
                patients=patients[metric],
                trainings=[scores[0], of_run],
                added=squares[0] + square,
                level=level,
            )
            # with a few patients Student's t allows for more than that
            found = intervals.Interval(*np.clip(tested[0], -largest, largest).tolist())
            ends = {"value": float(mean[0]), "first": float(means[0][0]), "adjusted": np.nan}
            rows.append(
                Difference(run=name, metric=metric, difference=found, p_value=tested[1], **ends)
            )
        adjusted = intervals.holm([row.p_value for row in rows])
        for row, p in zip(rows, adjusted, strict=True):
            differences.append(replace(row, adjusted=float(p)))
    return sorted(differences, key=lambda row: names.index(row.run))


def _names(runs: Sequence[Trained]) -> list[str]:
    """The last part of each path; the whole path if two are the same."""
    short = []
    full = []
    for k, run in enumerate(runs, 1):
        short.append(run_name(run) or f"run {k}")
        full.append(str(run.folder or f"run {k}"))
    for names in (short, full):
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({k})" for k, name in enumerate(full, 1)]
