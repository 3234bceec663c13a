"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled
samples; beside the readers who graded them, and without samples that the run has learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from srjt.data.grades import Grades
from srjt.data.manifest import LeakageWarning, Manifest
from srjt.data.sources import LabelledData
from srjt.data.sources.readings import select_readings
from srjt.data.splits import share_of_patients
from srjt.errors import SrjtError, count_of, warn
from srjt.inference import subgroups
from srjt.inference.answers import (
    Answers,
    number_of_patients,
    probabilities_of,
    run_name,
    units_of,
    validation_labels,
)
from srjt.inference.aspects import (
    FittedTo,
    Judged,
    Judging,
    registered_aspects,
)
from srjt.inference.aspects.true_scores import NotEnough
from srjt.inference.calibrated_run import (
    CalibratedRun,
    RunLike,
    calibrate_run,
    given_for,
    grades_with_ranges,
    open_run,
)
from srjt.inference.labelled import (
    JudgedBy,
    judging_labels,
    read_labelled,
    warn_of_training_patients,
)
from srjt.inference.labels import ValidationLabels
from srjt.inference.options import Answering, Evaluating, with_installed_aspects
from srjt.json_values import json_values
from srjt.notebook import HasPage
from srjt.ordinal import Purpose, calibration
from srjt.ordinal.baseline import Gain, gain_over_one_grade
from srjt.ordinal.calibration import CalibrationBin, Recalibration
from srjt.ordinal.decoding import GradeRule, LearnedPooling
from srjt.ordinal.metrics import NaiveBaseline, naive_baseline
from srjt.progress import ProgressOption, progress_bar
from srjt.readers.readings import Readings
from srjt.settings import from_names
from srjt.training.baselines import baseline_from
from srjt.training.held_out import HeldOut
from srjt.training.image_identity import same_samples
from srjt.training.trained import Trained

# Which of the evaluated samples the run knows, by what they show: scores on them look too good.

OWN_SHARE = 0.75  # of the samples on held-out sides, from which they are no external test


def known_samples(run: Trained, data: Manifest) -> dict[str, int] | None:
    """How many of the samples are on each side of the run; None if that is not known."""
    ids = {"train": run.training_ids}
    for name in ("validation", "test"):
        if name in run.held_out:
            ids[name] = run.held_out[name].ids
    if run.hashes is None or len(run.hashes) != sum(map(len, ids.values())):
        return None
    counts = {}
    start = 0
    for name, of_side in ids.items():
        counts[name] = len(same_samples(data, ids=of_side, hashes=run.hashes[start:]))
        start += len(of_side)
    return counts


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Evaluated samples that are also among those that something was fitted to.

    Attributes
    ----------
    fitted : tuple of str
        What was fitted: ``"ranges"``, ``"recalibration"``, ``"threshold"``, ``"pooling"``.
    to : {"validation", "calibrate_on"}
        The samples that it was fitted to: the validation side of the run, or others that were
        given.
    samples : int
        Evaluated images, or rows of features, that show the same as such a sample.
    patients : int or None
        Evaluated patients with the name of such a patient; None if patients are not known.
    """

    fitted: tuple[str, ...]
    to: Literal["validation", "calibrate_on"]
    samples: int
    patients: int | None


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """Evaluated samples that the run was, or may have been, trained on.

    Attributes
    ----------
    samples : int
        Evaluated samples that show the same as a training sample.
    patients : int
        Evaluated patients with the name of a training patient; 0 if ``samples`` are known.
    example : str
        One of their names.
    """

    samples: int = 0
    patients: int = 0
    example: str = ""


def warn_of_leakage(run: Trained, data: Manifest) -> Leakage | None:
    """Warn if the run was, or may have been, trained on some of the samples."""
    seen = len(run.trained_on(data))
    if seen:
        warn(
            f"The run was trained on {seen:,} of these {len(data):,} samples. Evaluate others, such"
            " as the test side of its split.",
            LeakageWarning,
        )
        return Leakage(samples=seen)
    if patients := warn_of_training_patients(run, data):
        return Leakage(patients=len(patients), example=patients[0])
    return None


def find_overlaps(
    calibrated: CalibratedRun, data: Manifest | HeldOut, known: dict[str, int] | None
) -> tuple[Overlap, ...]:
    """The overlaps of ``data`` with the samples that labels were used of. Thresholds and poolings
    are always found on the validation side. known: from ``known_samples``."""
    other = calibrated.calibrate_on
    fitted: dict[FittedTo, list[str]] = {"calibration": [], "validation": []}
    for name, fitted_to in calibrated.fitted().items():
        fitted["validation" if other is None else fitted_to].append(name)
    sides: list[tuple[Literal["validation", "calibrate_on"], Any, list[str], int]] = []
    if other is not None:
        same = 0
        if isinstance(data, Manifest):  # what a held-out sample shows is not kept
            same = len(same_samples(data, ids=other.ids, hashes=other.hashes))
        sides.append(("calibrate_on", other, fitted["calibration"], same))
    validation = calibrated.run.held_out.get("validation")
    sides.append(
        ("validation", validation, fitted["validation"], (known or {}).get("validation", 0))
    )
    overlaps = []
    for to, side, names, samples in sides:
        patients = None
        if side is not None and side.patients is not None and data.patients is not None:
            patients = len(set(side.patients) & set(data.patients))
        if names and (samples or patients):
            overlap = Overlap(fitted=tuple(names), to=to, samples=samples, patients=patients)
            overlaps.append(overlap)
    return tuple(overlaps)


# The result of ``srjt.evaluate``.


@dataclass(frozen=True, kw_only=True)
class Evaluation(subgroups.Scores, HasPage):
    """The result of ``srjt.evaluate``.

    Attributes
    ----------
    samples : int
        Number of evaluated samples: images, or patients where the answers are per patient.
    judged_by : str
        ``"true grades"``, ``"given grades"`` or ``"consensus grades"`` (of several readers): the
        labels that the predictions are compared with.
    by_patient : bool
        Whether the intervals resample patients; else they resample samples and are probably too
        narrow.
    views : int
        Views of each sample over which the probabilities are averaged.
    purpose : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric that the grades are for.
    grade_rule : GradeRule
        How probabilities become grades.
    intervals : dict of str to Interval
        Every metric with its 95 % interval: (value, low, high).
    confusion : list of list of int
        Counts; rows are the labels, columns the predicted grades.
    calibration_error : float
        Expected calibration error.
    ranked_probability_score : float
        Mean ranked probability score; 0 is best.
    calibration : list of CalibrationBin
        Confidence and accuracy per bin.
    recalibration : Recalibration or None
        How the probabilities were recalibrated; None if they were not.
    images : int
        Number of images; ``samples`` unless the answers are pooled.
    per : tuple of str
        Columns whose values have one answer each, such as ("patient",); empty: each image has one.
    pool : str
        How the images of a patient are pooled; empty if they are not.
    learned_pooling : LearnedPooling or None
        Parameters of a learned pooling.
    pooling_labels : ValidationLabels or None
        The labels that it was fitted to; None if it is not learned.
    unknown_units : int
        Images without a value in a column of ``per``; each of them is judged alone.
    own_samples : int or None
        How many of them the run was trained, validated or tested on, by what they show; 0: an
        external test. None: not known.
    aspects : dict of str to Judged
        What else was asked for, or can be told, by the name of the aspect; each is an attribute,
        too, None if it is not there. ``ranges``: how often ranges of grades contain the label, with
        ``coverage``. ``decision``: whether to refer, with ``refer_from``. ``external``: beside the
        run's own test side, if these are other samples, what changed and what it is due to.
        ``subgroups``: the scores of each group, with ``by``. ``readers``: the network as one more
        reader, if several readers graded the samples. ``true_scores``: what can be known about the
        scores against the true grades, where labels may be wrong and answers are not pooled.
    trained_on : Leakage or None
        Samples that the run was, or may have been, trained on; None if there are none.
    overlaps : tuple of Overlap
        Evaluated samples that ranges, recalibration, threshold or pooling were fitted to; empty if
        there are none.
    run : str
        Name of the run.
    side : str
        ``"test"`` or ``"validation"`` if these are the run's own held-out samples; else empty.
    grades : Grades
        The grades, with their names.
    features : bool
        Whether the samples are rows of features, not images.
    patients : int or None
        Number of patients; None if they are not known.
    naive : NaiveBaseline or None
        The scores of one grade for all samples, chosen by the training labels; None where they are
        not known. Of pooled answers it is chosen by their own labels.
    gain : Gain or None
        What the answers gain over one grade for all, by patients; its ``verdict`` heads every page.
        None where ``naive`` is None.
    coverage_by : str or None
        For whom ranges keep their promise: each grade, or each value of a column.
    grades_with_ranges : tuple of int
        Positions of the grades that ranges can leave out if they hold for each grade. It is found
        only if a grade is never predicted, or ranges hold for all grades together.
    untrained_grades : tuple of int
        Positions of the grades of which the run had no training sample.
    given_for_macro_f1 : tuple of int
        Positions of the grades that no answer has, and some would have with the target metric
        ``macro_f1``.
    uncalibrated : list of CalibrationBin
        As ``calibration``, before recalibration; empty if there was none, or answers are pooled.
    answers : DataFrame
        One row per answer: whose it is, ``label``, ``grade`` and ``p_<grade>``. Not in ``to_dict``.
    """

    samples: int
    judged_by: JudgedBy
    by_patient: bool
    views: int = 1
    purpose: Purpose
    grade_rule: GradeRule
    ranked_probability_score: float
    recalibration: Recalibration | None = None
    images: int = 0
    per: tuple[str, ...] = ()
    pool: str = ""
    learned_pooling: LearnedPooling | None = None
    pooling_labels: ValidationLabels | None = None
    unknown_units: int = 0
    own_samples: int | None = None
    aspects: dict[str, Judged] = field(default_factory=dict)
    trained_on: Leakage | None = None
    overlaps: tuple[Overlap, ...] = ()
    run: str = ""
    side: str = ""
    grades: Grades = field(default_factory=lambda: Grades(()))
    features: bool = False
    patients: int | None = None
    naive: NaiveBaseline | None = None
    gain: Gain | None = None
    coverage_by: str | None = None
    grades_with_ranges: tuple[int, ...] = ()
    untrained_grades: tuple[int, ...] = ()
    given_for_macro_f1: tuple[int, ...] = ()
    uncalibrated: list[CalibrationBin] = field(default_factory=list)
    answers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)

    @property
    def score(self) -> float:
        """The value of the metric that the grades are for."""
        return self.intervals[self.purpose].value

    def __getattr__(self, name: str) -> Any:
        """What an aspect has judged; None if nobody asked for it."""
        if name in {aspect.name for aspect in registered_aspects()}:
            return vars(self).get("aspects", {}).get(name)
        raise AttributeError(f"An Evaluation has no attribute {name!r}.")

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name} {self.intervals[name].value:.3f}" for name in ("accuracy", "mae")
        )
        return f"<Evaluation: {count_of(self.samples, 'sample')}, {values}, by {self.judged_by}>"

    @property
    def readers(self) -> Any:
        """The network as one more reader; None if it could not be compared."""
        return None if self.not_compared else self.aspects.get("readers")

    @property
    def true_scores(self) -> Any:
        """What can be known about the scores against the true grades; None if nothing can."""
        judged = self.aspects.get("true_scores")
        return None if isinstance(judged, NotEnough) else judged

    @property
    def not_compared(self) -> str:
        """Why the network could not be compared with the readers; "" otherwise."""
        return str(getattr(self.aspects.get("readers"), "reason", ""))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: of every aspect, None if there is nothing to tell."""
        values: dict[str, Any] = json_values(self, whole=True)
        judged = values.pop("aspects")
        for aspect in registered_aspects():
            if judged.get(aspect.name) or aspect.always_in_files:
                values[aspect.name] = judged.get(aspect.name) or None
        return values


# ``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled
# samples.


def evaluate(
    run: RunLike,
    data: LabelledData,
    *,
    readings: Readings | None = None,
    resamples: int = 1000,
    progress: ProgressOption = True,
    **options: Any,
) -> Evaluation:
    """Evaluate a run on labelled samples: against the true grades where they are known, else the
    given ones.

    A ``LeakageWarning`` is issued if the run was trained on some of them, under any name, or on
    their patients.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest, path, DataFrame, pair of arrays, or torch dataset
        The samples, as for ``srjt.train``; their grades are those of the run.
    readings : Readings, optional
        Every single reading, from ``srjt.data.read(path, several_readings="consensus").readings``:
        the network is then compared with each reader, as one more of them.
    resamples : int
        Bootstrap resamples for the 95 % intervals: of patients where they are known, else of
        samples; identical images are resampled together.
    progress : bool or callable
        Show a bar while images are decoded, in a terminal or a notebook; or a function that is
        called with (images decoded, images in total).
    **options
        How the run answers, as for ``srjt.predict``, and the groups with scores of their own: the
        fields of ``srjt.inference.options.Evaluating``.

    Returns
    -------
    Evaluation
        Metrics with intervals, confusion matrix, calibration; and what each aspect tells.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> split = srjt.data.folds(data)[0]
    >>> run = srjt.train(data, split=split, **settings)
    >>> result = srjt.evaluate(run, data.select(split.test), resamples=50)
    >>> result.samples == len(split.test), result.by_patient
    (True, True)
    """
    evaluating = from_names(with_installed_aspects(Evaluating), options, kind="option")
    run = open_run(run)
    calibrated = None
    if not isinstance(evaluating.calibrate_on, float):
        calibrated = calibrate_run(run, evaluating)
    # a function given as progress counts decoded images, not the headers that are read here
    data = read_labelled(run, data, on_bad_image=evaluating.on_bad_image, progress=progress is True)
    if calibrated is None:
        part = share_of_patients(data, evaluating.calibrate_on)
        calibrated = calibrate_run(run, replace(evaluating, calibrate_on=data.select(part)))
        data = data.select(~part)
    for aspect in evaluating.aspects():
        aspect.check(data.table)  # an error before images are decoded
    with progress_bar("Decoding", progress) as decoded:
        store = calibrated.open_store(data, progress=decoded, find_duplicates=True)
    manifest = store.manifest
    known = known_samples(run, manifest)
    leakage = warn_of_leakage(run, manifest)
    seen = 0 if leakage is None else leakage.samples
    units = None
    if evaluating.per:
        units = units_of(manifest.table, evaluating.per)  # an error before images are predicted
    if readings is not None:
        readings = select_readings(readings, manifest.ids)
        if readings.groups is None:
            readings = replace(readings, groups=manifest.groups)
    images = answers = calibrated.answer_store(store)
    who = manifest.table[[name for name in ("image", "patient") if name in manifest.table]]
    if units is not None:
        answers = calibrated.pool(images, units.codes)
        who = units.keys.assign(images=np.bincount(units.codes))
    own_samples = None
    if known is not None:
        own_samples = sum(known.values())
    judging = Judging(
        calibrated=calibrated,
        answers=answers,
        images=images,
        samples=manifest,
        resamples=resamples,
        units=units,
        store=store,
        readings=readings,
        new_to_run=not seen and (own_samples or 0) <= OWN_SHARE * len(manifest),
    )
    return replace(
        judge(calibrated, judging, who, judged_by=_judged_by(manifest, readings)),
        views=calibrated.views,
        trained_on=leakage,
        overlaps=find_overlaps(calibrated, manifest, known),
        own_samples=own_samples,
    )


def _judged_by(samples: Manifest, readings: Readings | None) -> JudgedBy:
    """What the labels are called that answers are compared with."""
    _, judged_by = judging_labels(samples)
    if readings is not None and judged_by == "given grades":
        return "consensus grades"
    return judged_by


def judge(
    calibrated: CalibratedRun,
    judging: Judging,
    who: pd.DataFrame,
    *,
    judged_by: JudgedBy,
    side: str = "",
) -> Evaluation:
    """The scores of answers beside their labels.

    who: what identifies each answer. side: of the run, if the samples are its own.
    """
    run = calibrated.run
    per = calibrated.options.per
    answers = judging.answers
    samples = judging.samples
    aspects: dict[str, Judged] = {}
    for name, rule in calibrated.rules.items():
        judged = rule.judge(judging)
        if judged is not None:
            aspects[name] = judged
    return Evaluation(
        samples=len(answers),
        judged_by=judged_by,
        by_patient=samples.patients is not None,
        purpose=_purpose(calibrated),
        grade_rule=calibrated.grade_rule,
        **vars(subgroups.scores_of(answers, resamples=judging.resamples)),
        ranked_probability_score=calibration.ranked_probability_score(
            answers.probabilities, answers.labels
        ),
        recalibration=calibrated.recalibration,
        images=len(samples),
        per=per,
        pool=calibrated.options.pool if per else "",
        unknown_units=0 if judging.units is None else judging.units.unknown,
        learned_pooling=calibrated.learned,
        pooling_labels=None if calibrated.learned is None else validation_labels(run, per=per),
        run=run_name(run),
        side=side,
        grades=run.grades,
        features=len(run.in_shape) == 1,
        patients=number_of_patients(samples.patients),
        coverage_by=calibrated.options.coverage_by,
        untrained_grades=tuple(np.flatnonzero(np.equal(run.facts.data.class_counts, 0)).tolist()),
        **_beside_one_grade(calibrated, judging),
        **_against_missed_grades(calibrated, answers, ranges="ranges" in aspects),
        uncalibrated=_uncalibrated(calibrated, answers),
        answers=_answer_rows(who, answers, run.grades),
        aspects=aspects,
    )


def _purpose(calibrated: CalibratedRun) -> Purpose:
    """The metric that the grades are for."""
    return calibrated.options.target_metric or calibrated.run.config.target_metric


def _beside_one_grade(calibrated: CalibratedRun, judging: Judging) -> dict[str, Any]:
    """What one grade for all scores, and what the answers gain over it."""
    run = calibrated.run
    answers = judging.answers
    counts = answers.confusion.sum(axis=1)
    naive: NaiveBaseline | None
    if calibrated.options.per:
        # the run knows how many images of each grade it was trained on, not how many patients
        training_counts = counts
        naive = naive_baseline(counts, counts)
    else:
        training_counts = run.facts.data.class_counts
        naive = baseline_from(run.facts, counts)
    if naive is None:
        return {}
    gain = gain_over_one_grade(
        answers.labels,
        answers.grades,
        training_counts=training_counts,
        metric=_purpose(calibrated),
        groups=answers.groups,
        resamples=judging.resamples,
    )
    return {"naive": naive, "gain": gain}


def _against_missed_grades(
    calibrated: CalibratedRun, answers: Answers, *, ranges: bool
) -> dict[str, Any]:
    """What pages may advise against grades that are never predicted, or that no range contains.

    ranges: whether there are ranges of grades.
    """
    predicted = answers.confusion.sum(axis=0) > 0
    missed = ~predicted & (answers.confusion.sum(axis=1) > 0)
    advice: dict[str, Any] = {}
    if missed.any() or ranges:
        advice["grades_with_ranges"] = grades_with_ranges(calibrated)
    options = calibrated.options
    # a decoding that was chosen counts more than a metric; the highest grade of a patient's images
    # does not follow from pooled probabilities
    chosen = options.decoding is not None or bool(options.per and options.pool == "highest")
    if missed.any() and _purpose(calibrated) != "macro_f1" and not chosen:
        given = given_for("macro_f1", calibrated, answers)
        advice["given_for_macro_f1"] = tuple(grade for grade in given if not predicted[grade])
    return advice


def _uncalibrated(calibrated: CalibratedRun, answers: Answers) -> list[CalibrationBin]:
    """The bins before the recalibration; none without one."""
    if answers.outputs is None or calibrated.recalibration is None:
        return []
    before = probabilities_of(answers.outputs[0], calibrated.options.network)
    return calibration.calibration_bins(before, answers.labels)


def _answer_rows(who: pd.DataFrame, answers: Answers, grades: Sequence[str]) -> pd.DataFrame:
    """One row per answer: what identifies it, label, grade, and the probability of each grade."""
    rows = who.reset_index(drop=True).assign(
        label=[grades[grade] for grade in answers.labels],
        grade=[grades[grade] for grade in answers.grades],
    )
    for code, grade in enumerate(grades):
        rows[f"p_{grade}"] = answers.probabilities[:, code]
    return rows


# A run on its own held-out sides, from the predictions that the run keeps.


def evaluate_sides(
    run: Trained, options: Answering | None = None, *, resamples: int = 1000
) -> dict[str, Evaluation]:
    """Each held-out side of a run, test first, answered as ``srjt predict`` answers with these
    options.

    The test side is compared with its true grades where they are known, the validation side with
    its labels as given. A side that lacks a column of ``per`` is left out. resamples: 0 for no
    intervals.
    """
    calibrated = calibrate_run(run, options)
    per = calibrated.options.per
    evaluations = {}
    for name, side in sorted(run.held_out.items()):  # test before validation
        if any(name not in side.table for name in per):
            continue
        labels = side.labels
        judged_by: JudgedBy = "given grades"
        if name == "test":
            labels, judged_by = judging_labels(side)
        answers = calibrated.side_answers(side, labels)
        who = side.table.rename(columns={"id": "image"})
        if side.images is not None:
            who["file"] = side.images
        units = units_of(side.table, per) if per else None
        images = answers
        if units is not None:
            answers = calibrated.pool(images, units.codes)
            who = units.keys
        judging = Judging(
            calibrated=calibrated,
            answers=answers,
            images=images,
            samples=side,
            resamples=resamples,
            units=units,
        )
        judged = judge(calibrated, judging, who, judged_by=judged_by, side=name)
        overlaps = find_overlaps(calibrated, side, {name: len(side)})
        evaluations[name] = replace(judged, overlaps=overlaps)
    return evaluations


def best_side(
    run: Trained, options: Answering | None = None, *, resamples: int = 1000
) -> Evaluation | None:
    """The test side, else the validation side; None if the run keeps neither, or cannot answer."""
    if not run.held_out:
        return None
    try:
        sides = evaluate_sides(run, options, resamples=resamples)
    except SrjtError:  # a method that is not installed
        return None
    return next(iter(sides.values()), None)
