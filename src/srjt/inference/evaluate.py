"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled
samples; beside the readers who graded them, and without samples that the run has learnt from.
"""

from __future__ import annotations

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
from srjt.inference.answers import Answers, describe_labels, probabilities_of, units_of
from srjt.inference.decide import Abstention, Decision
from srjt.inference.options import Answering, Evaluating
from srjt.inference.prepare import (
    Prepared,
    RunLike,
    judging_labels,
    open_run,
    prepare,
    read_labelled,
    warn_of_training_patients,
)
from srjt.inference.ranges import RangeEvaluation, evaluate_ranges
from srjt.inference.subgroups import External, Subgroups
from srjt.inference.true_scores import TrueScores, true_scores
from srjt.ordinal import Purpose, calibration
from srjt.ordinal.baseline import Gain, gain_over_one_grade
from srjt.ordinal.calibration import SMALLEST, CalibrationBin
from srjt.ordinal.decoding import LearnedPooling
from srjt.ordinal.metrics import NaiveBaseline, naive_baseline
from srjt.progress import ProgressOption, Reported, plain, progress_bar
from srjt.readers.agreement import NetworkComparison, compare_network
from srjt.readers.readings import Readings
from srjt.settings import from_names
from srjt.training.folder import HeldOut, baseline_from, same_samples
from srjt.training.trained import Trained

# Which of the evaluated samples the run knows, by what they show: scores on them look too good.

OWN_SHARE = 0.75  # of the samples on held-out sides, from which they are no external test


def known_samples(run: Trained, data: Manifest) -> dict[str, int] | None:
    """How many of the samples are on each side of the run; None if that is not known."""
    ids = {"train": run.training_ids}
    ids |= {name: run.held_out[name].ids for name in ("validation", "test") if name in run.held_out}
    if run.hashes is None or len(run.hashes) != sum(map(len, ids.values())):
        return None
    counts, start = {}, 0
    for name, own in ids.items():
        counts[name] = len(same_samples(data, ids=own, hashes=run.hashes[start:]))
        start += len(own)
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

    def __str__(self) -> str:
        patients = (
            "" if self.patients is None else f" and {count_of(self.patients, 'patient')}, by name,"
        )
        advice = {
            "validation": "Evaluate samples of other patients, such as the test side.",
            "calibrate_on": "Calibrate on samples of other patients.",
        }[self.to]
        return (
            f"{count_of(self.samples, 'sample')}{patients} are among those that were used to fit "
            f"{' and '.join(self.fitted)}: the scores look too good. {advice}"
        )


def find_overlaps(
    prepared: Prepared, data: Manifest | HeldOut, known: dict[str, int] | None
) -> tuple[Overlap, ...]:
    """The overlaps of ``data`` with the samples that labels were used of. Thresholds and poolings
    are always found on the validation side. known: from ``known_samples``."""
    calibrated: dict[str, Any] = {
        "ranges": prepared.ranges,
        "recalibration": prepared.recalibration,
    }
    decided: dict[str, Any] = {
        "threshold": prepared.options.sensitivity,
        "pooling": prepared.learned,
    }
    other, overlaps = prepared.calibrate_on, []
    same = 0
    if other is not None and isinstance(data, Manifest):  # what a held-out sample shows is not kept
        same = len(same_samples(data, ids=other.ids, hashes=other.hashes))
    if other is None:
        calibrated, decided = {}, calibrated | decided
    sides: list[tuple[Literal["validation", "calibrate_on"], Any, dict[str, Any], int]] = [
        ("calibrate_on", other, calibrated, same),
        (
            "validation",
            prepared.run.held_out.get("validation"),
            decided,
            (known or {}).get("validation", 0),
        ),
    ]
    for to, side, parts, samples in sides:
        fitted = tuple(name for name, part in parts.items() if part is not None)
        patients = None
        if side is not None and side.patients is not None and data.patients is not None:
            patients = len(set(side.patients) & set(data.patients))
        if fitted and (samples or patients):
            overlaps.append(Overlap(fitted=fitted, to=to, samples=samples, patients=patients))
    return tuple(overlaps)


# Beside the readers who graded the same samples, and against the true grades, where labels may be
# wrong.

MOST_READERS = 200  # each needs a consensus of the others


def _against_true_grades(
    prepared: Prepared,
    answers: Answers,
    manifest: Manifest,
    readings: Readings | None,
    *,
    resamples: int,
) -> TrueScores | None:
    """What the verified grades, the readings or the noise of the run's labels tell; None if nothing
    does."""
    side, noise = prepared.run.held_out.get("validation"), None
    if readings is not None and len(readings.readers) > MOST_READERS:
        readings = None
    elif readings is None and side is not None and len(side) >= SMALLEST[0]:
        noise = prepared.noise_of(side, promise=True)
    return true_scores(
        answers,
        refer=prepared.refer,
        verified=manifest.verified_labels,
        verified_probability=manifest.verified_probability,
        readings=readings,
        noise=noise,
        label_noise=prepared.options.label_noise,
        resamples=resamples,
    )


# The result of ``srjt.evaluate``.


@dataclass(frozen=True, kw_only=True)
class Evaluation(subgroups.Scores, Reported):
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
    grade_rule : str
        What a predicted grade is, in words.
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
    recalibration : str
        How the probabilities were recalibrated; empty if they were not.
    ranges : RangeEvaluation or None
        How often ranges of grades contain the label, with ``coverage``.
    images : int
        Number of images; ``samples`` unless the answers are pooled.
    per : tuple of str
        Columns whose values have one answer each, such as ("patient",); empty: each image has one.
    pool : str
        How the images of a patient are pooled; empty if they are not.
    learned_pooling : LearnedPooling or None
        Parameters of a learned pooling.
    pooling_labels : str
        Which labels it was fitted by, as a sentence; empty if it is not learned.
    unknown_units : int
        Images without a value in a column of ``per``; each of them is judged alone.
    own_samples : int or None
        How many of them the run was trained, validated or tested on, by what they show; 0: an
        external test. None: not known.
    decision : Decision or None
        Whether to refer, with ``refer_from``.
    abstention : Abstention or None
        What is gained by abstaining, with ``refer_from`` or ``abstain``.
    trained_on : str
        A sentence if the run was, or may have been, trained on some of the samples; "" otherwise.
    overlaps : tuple of Overlap
        Evaluated samples that ranges, recalibration, threshold or pooling were fitted to; empty if
        there are none.
    subgroups : Subgroups or None
        The scores of each group, with ``by``.
    external : External or None
        Beside the run's own test side, if these are other samples: what changed, and what it is due
        to.
    readers : NetworkComparison or None
        The network as one more reader, if several readers graded the samples.
    not_compared : str
        Why it could not be compared with them; "" otherwise.
    true_scores : TrueScores or None
        What can be known about the scores against the true grades, where labels may be wrong; None
        if nothing is known about the labels, if they are the true grades, or if answers are pooled.
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
    uncalibrated : list of CalibrationBin
        As ``calibration``, before recalibration; empty if there was none, or answers are pooled.
    answers : DataFrame
        One row per answer: whose it is, ``label``, ``grade`` and ``p_<grade>``. Not in ``to_dict``.
    """

    samples: int
    judged_by: str
    by_patient: bool
    views: int = 1
    purpose: Purpose
    grade_rule: str
    ranked_probability_score: float
    recalibration: str = ""
    ranges: RangeEvaluation | None = None
    images: int = 0
    per: tuple[str, ...] = ()
    pool: str = ""
    learned_pooling: LearnedPooling | None = None
    pooling_labels: str = ""
    unknown_units: int = 0
    own_samples: int | None = None
    decision: Decision | None = None
    abstention: Abstention | None = None
    trained_on: str = ""
    overlaps: tuple[Overlap, ...] = ()
    subgroups: Subgroups | None = None
    external: External | None = None
    readers: NetworkComparison | None = None
    not_compared: str = ""
    true_scores: TrueScores | None = None
    run: str = ""
    side: str = ""
    grades: Grades = field(default_factory=lambda: Grades(()))
    features: bool = False
    patients: int | None = None
    naive: NaiveBaseline | None = None
    gain: Gain | None = None
    coverage_by: str | None = None
    uncalibrated: list[CalibrationBin] = field(default_factory=list)
    answers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)

    @property
    def score(self) -> float:
        """The value of the metric that the grades are for."""
        return self.intervals[self.purpose].value

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name} {self.intervals[name].value:.3f}" for name in ("accuracy", "mae")
        )
        return f"<Evaluation: {count_of(self.samples, 'sample')}, {values}, by {self.judged_by}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what several readers say only if there are some."""
        values: dict[str, Any] = plain(self, whole=True)
        del values["not_compared"]
        if self.readers is None:
            del values["readers"]
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
        Metrics with intervals, confusion matrix, calibration; on request decisions and abstention.

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
    asked = from_names(Evaluating, options, kind="option")
    run = open_run(run)
    prepared = None if isinstance(asked.calibrate_on, float) else prepare(run, asked)
    # a function given as progress counts decoded images, not the headers that are read here
    data = read_labelled(run, data, on_bad_image=asked.on_bad_image, progress=progress is True)
    if prepared is None:
        part = share_of_patients(data, asked.calibrate_on)
        prepared = prepare(run, replace(asked, calibrate_on=data.select(part)))
        data = data.select(~part)
    for text in asked.by:
        subgroups.group_by(data.table, text)  # an error before images are decoded
    with progress_bar("Decoding", progress) as decoded:
        store = prepared.open_store(data, progress=decoded, find_duplicates=True)
    manifest = store.manifest
    leak, known = "", known_samples(run, manifest)
    if seen := len(run.trained_on(manifest)):
        leak = (
            f"The run was trained on {seen:,} of these {len(manifest):,} samples: the scores look"
            " too good."
        )
        warn(f"{leak} Evaluate others, such as the test side of its split.", LeakageWarning)
    else:
        leak = warn_of_training_patients(run, manifest)
    units = (
        units_of(manifest.table, asked.per) if asked.per else None
    )  # an error before images are predicted
    images = answers = prepared.answer_store(store)
    who = manifest.table[["image", *(["patient"] if "patient" in manifest.table else [])]]
    _, judged_by = judging_labels(manifest)
    compared, reason, truly = None, "", None
    if readings is not None:  # readers grade images, not patients
        readings = select_readings(readings, manifest.ids)
        if readings.groups is None:
            readings = replace(readings, groups=manifest.groups)
        try:  # what else is known of the network does not depend on it
            if len(readings.readers) > MOST_READERS:
                raise SrjtError(f"The network is compared with at most {MOST_READERS} readers.")
            compared = compare_network(readings, images.grades, resamples=max(resamples, 1))
        except SrjtError as problem:
            reason = str(problem)
        judged_by = judged_by.replace("given", "consensus")
    if manifest.true_labels is None and units is None:
        truly = _against_true_grades(prepared, images, manifest, readings, resamples=resamples)
    if units is not None:
        answers = prepared.pool(images, units.codes)
        who = units.keys.assign(images=np.bincount(units.codes))
    own = seen or (known and sum(known.values()) > OWN_SHARE * len(manifest))
    codes = None if units is None else units.codes
    groupings = [subgroups.group_by(manifest.table, text, codes) for text in asked.by]
    return replace(
        judge(prepared, answers, manifest, who, judged_by=judged_by, resamples=resamples),
        views=prepared.views,
        unknown_units=0 if units is None else units.unknown,
        external=(
            None
            if own
            else subgroups.beside_own_test_side(prepared, store, images, resamples=resamples)
        ),
        trained_on=leak,
        overlaps=find_overlaps(prepared, manifest, known),
        subgroups=(
            subgroups.judge_subgroups(answers, groupings, resamples=resamples) if asked.by else None
        ),
        readers=compared,
        not_compared=reason,
        true_scores=truly,
        own_samples=None if known is None else sum(known.values()),
    )


def judge(
    prepared: Prepared,
    answers: Answers,
    samples: Manifest | HeldOut,
    who: pd.DataFrame,
    *,
    judged_by: str,
    resamples: int,
    side: str = "",
) -> Evaluation:
    """The scores of answers beside their labels.

    samples: images. who: what identifies each answer. resamples: 0 for no intervals. side: of the
    run, if the samples are its own.
    """
    run, per, rules = prepared.run, prepared.options.per, prepared.decisions
    labels, p, grades = answers.labels, answers.probabilities, run.grades
    patients, counts = samples.patients, answers.confusion.sum(axis=1)
    uncalibrated: list[CalibrationBin] = []
    if answers.outputs is not None and prepared.recalibration is not None:
        before = probabilities_of(answers.outputs[0], prepared.options.network)
        uncalibrated = calibration.calibration_bins(before, labels)
    rows = who.reset_index(drop=True).assign(
        **{
            name: [grades[g] for g in of]
            for name, of in (("label", labels), ("grade", answers.grades))
        },
        **{f"p_{grade}": p[:, c] for c, grade in enumerate(grades)},
    )
    # the run knows how many images of each grade it was trained on, not how many patients
    training_counts = counts if per else run.facts.data.get("class_counts", [])
    naive = naive_baseline(counts, counts) if per else baseline_from(run.facts, counts)
    purpose = prepared.options.optimise or run.config.optimise
    gain = None
    if naive is not None:
        gain = gain_over_one_grade(
            labels, answers.grades, training_counts=training_counts, metric=purpose, groups=answers.groups,
            resamples=resamples,
        )  # fmt: skip
    decided: dict[str, Any] = {
        rule.field: rule.judge(run, answers, resamples=resamples) for rule in rules
    }
    return Evaluation(
        samples=len(answers),
        judged_by=judged_by,
        by_patient=patients is not None,
        purpose=purpose,
        grade_rule=prepared.grade_in_words,
        **vars(subgroups.scores_of(answers, resamples=resamples)),
        ranked_probability_score=calibration.ranked_probability_score(p, labels),
        recalibration=str(prepared.recalibration or ""),
        ranges=evaluate_ranges(answers, prepared.ranges, resamples=resamples),
        images=len(samples),
        per=per,
        pool=prepared.options.pool if per else "",
        learned_pooling=prepared.learned,
        pooling_labels="" if prepared.learned is None else describe_labels(run, per=per),
        run="" if run.folder is None else run.folder.resolve().name,
        side=side,
        grades=grades,
        features=len(run.in_shape) == 1,
        patients=None if patients is None else len(set(patients)),
        naive=naive,
        gain=gain,
        coverage_by=prepared.options.coverage_by,
        uncalibrated=uncalibrated,
        answers=rows,
        **decided,
    )


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
    prepared = prepare(run, options)
    per = prepared.options.per
    evaluations = {}
    for name, side in sorted(run.held_out.items()):  # test before validation
        if any(column not in side.table for column in per):
            continue
        labels, by = judging_labels(side) if name == "test" else (side.labels, "given grades")
        answers, who = (
            prepared.side_answers(side, labels),
            side.table.rename(columns={"id": "image"}),
        )
        if side.images is not None:
            who["file"] = side.images
        units = units_of(side.table, per) if per else None
        if units is not None:
            answers, who = prepared.pool(answers, units.codes), units.keys
        judged = judge(prepared, answers, side, who, judged_by=by, resamples=resamples, side=name)
        overlaps = find_overlaps(prepared, side, {name: len(side)})
        unknown = 0 if units is None else units.unknown
        evaluations[name] = replace(judged, overlaps=overlaps, unknown_units=unknown)
    return evaluations


def best_side(
    run: Trained, options: Answering | None = None, *, resamples: int = 1000
) -> Evaluation | None:
    """The test side, else the validation side; None if the run keeps neither, or cannot answer."""
    try:
        sides = evaluate_sides(run, options, resamples=resamples) if run.held_out else {}
    except SrjtError:  # a method that is not installed
        return None
    return next(iter(sides.values()), None)
