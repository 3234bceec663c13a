"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled samples;
beside the readers who graded them, and without samples that the run has learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.duplicates import LeakageWarning
from srjt.data.grades import Grades
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.readers_folder import select_readings
from srjt.errors import SrjtError, count_of, warn
from srjt.inference.answers import (
    Answers,
    WhichNetwork,
    answer_rows,
    answers_from,
    as_columns,
    check_units,
    describe_labels,
    describe_rule,
    grade_rule,
    pool_answers,
    probabilities_of,
    units_of,
    validation_answers,
)
from srjt.inference.calibrate import AfterTraining, Labelled, fit_after_training, read_labelled
from srjt.inference.decide import (
    Abstention,
    Decision,
    Threshold,
    abstain_from,
    check_options,
    decide,
    referral_rule,
)
from srjt.inference.predict import RunLike, check_choices, open_run, predict_held_out, predictions
from srjt.inference.ranges import RangeEvaluation, evaluate_ranges
from srjt.noise.quality import LabelNoise
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import (
    CalibrationBin,
    calibration_bins,
    expected_calibration_error,
    ranked_probability_score,
)
from srjt.ordinal.decoding import Decoding, LearnedPooling, Pooling
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import NaiveBaseline, confusion_matrix, quadratic_weighted_kappa
from srjt.progress import ProgressOption, progress_bar
from srjt.readers.compare import NetworkComparison, compare_network
from srjt.readers.readings import Readings
from srjt.reported import Reported
from srjt.training.folder import HeldOut, baseline_from, compare_with_naive
from srjt.training.trained import Trained

# Evaluated samples that something was fitted to after training: scores on them look too good.

SAME_ROWS = 0.3  # weighted κ of the labels from which equal row numbers are those of the same samples


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Evaluated samples that are also among those that something was fitted to.

    Attributes
    ----------
    fitted : tuple of str
        What was fitted: ``"ranges"``, ``"recalibration"``, ``"threshold"``, ``"pooling"``.
    to : {"validation", "calibrate_on"}
        The samples that it was fitted to: the validation side of the run, or others that were given.
    samples : int
        Evaluated images, or rows of features, with the id of such a sample.
    patients : int or None
        Evaluated patients with the name of such a patient; None if patients are not known.
    """

    fitted: tuple[str, ...]
    to: Literal["validation", "calibrate_on"]
    samples: int
    patients: int | None

    def __str__(self) -> str:
        names = [f"the {name}" for name in self.fitted]
        fitted = f"used to fit {', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]}"
        patients = self.patients or 0
        if self.samples:
            have = (
                "has the id of a sample that was"
                if self.samples == 1
                else "have the ids of samples that were"
            )
            same = f"{self.samples:,} of the samples {have} {fitted}"
            if patients == 1:
                same += ", and 1 of the patients has the name of such a sample's patient"
            elif patients:
                same += f", and {patients:,} of the patients their patients' names"
        else:
            have = "has the name of a patient" if patients == 1 else "have the names of patients"
            same = f"{patients:,} of the patients {have} whose samples were {fitted}"
        advice = {
            "validation": "Evaluate samples of other patients, such as the test side.",
            "calibrate_on": "Calibrate on samples of other patients.",
        }[self.to]
        return f"{same}: if they are the same, the scores look too good. {advice}"


def find_overlaps(
    run: Trained, fitted: AfterTraining, data: Manifest, *, threshold: bool
) -> tuple[Overlap, ...]:
    """The overlaps of ``data`` with the samples that labels were used of.

    threshold: whether a threshold for a sensitivity was found, which is always done on the validation side.
    """
    calibrated = {"ranges": fitted.ranges, "recalibration": fitted.recalibration}
    parts = [name for name, found in calibrated.items() if found is not None]
    decided = [name for name, used in (("threshold", threshold), ("pooling", fitted.learned)) if used]
    validation = run.held_out.get("validation")
    if fitted.calibrate_on is None:
        found = [_overlap(data, validation, "validation", [*parts, *decided])]
    else:
        found = [
            _overlap(data, fitted.calibrate_on, "calibrate_on", parts),
            _overlap(data, validation, "validation", decided),
        ]
    return tuple(overlap for overlap in found if overlap is not None)


def _overlap(
    data: Manifest, side: HeldOut | None, to: Literal["validation", "calibrate_on"], parts: list[str]
) -> Overlap | None:
    if side is None or not parts:
        return None
    samples = len(shared_labels(dict(zip(side.ids, side.labels.tolist(), strict=True)), data))
    patients = None
    if side.patients is not None and data.patients is not None:
        patients = len(set(side.patients) & set(data.patients))
    return (
        Overlap(fitted=tuple(parts), to=to, samples=samples, patients=patients)
        if samples or patients
        else None
    )


def shared_labels(known: Mapping[str, int], data: Manifest) -> list[tuple[int, int]]:
    """Both labels of each sample with the id of one of those in ``known``, which gives each id its label.

    Row numbers are no ids: other arrays have them too. They count only if the labels agree more often than by chance;
    those of the same samples may differ, because wrong ones have been corrected.
    """
    shared = [
        (known[name], label)
        for name, label in zip(data.ids, data.labels.tolist(), strict=True)
        if name in known
    ]
    if not shared or not are_row_numbers(data):
        return shared
    if all(kept == given for kept, given in shared):
        return shared
    grades = 1 + max(map(max, shared))
    confusion = np.zeros((grades, grades), dtype=np.int64)
    np.add.at(confusion, tuple(np.array(shared).T), 1)
    return shared if quadratic_weighted_kappa(confusion) > SAME_ROWS else []


def are_row_numbers(data: Manifest) -> bool:
    """Whether the ids are mere row numbers of an array or a table, which others have too."""
    return data.arrays is not None and all(name == str(row) for row, name in enumerate(data.ids))


# A network as one more reader, beside those who graded the same samples.

MOST_READERS = 200  # each needs a consensus of the others


def beside_readers(
    readings: Readings, manifest: Manifest, predicted: npt.NDArray[np.int64], *, resamples: int
) -> tuple[NetworkComparison | None, str]:
    """The comparison, or None and why there is none: what else is known of the network does not depend on it.

    predicted: (N,) the network's grade of each sample.
    """
    if len(readings.readers) > MOST_READERS:
        return None, f"The network is compared with at most {MOST_READERS} readers; there are more."
    own = select_readings(readings, manifest.ids)
    if own.groups is None and manifest.groups is not None:
        own = replace(own, groups=manifest.groups)
    try:
        return compare_network(own, predicted, resamples=max(resamples, 1)), ""
    except SrjtError as problem:
        return None, str(problem)


# What a grade is, in words.


def rule_in_words(run: Trained) -> str:
    """What a grade of ``srjt predict`` is: the end of the sentence "A grade is …"."""
    recalibration = fit_after_training(run).recalibration
    rule = grade_rule(run, recalibration=recalibration)
    return describe_rule(run, rule, recalibrated=recalibration is not None)


# The result of ``srjt.evaluate``.


@dataclass(frozen=True, kw_only=True)
class Evaluation(Reported):
    """The result of ``srjt.evaluate``.

    Attributes
    ----------
    samples : int
        Number of evaluated samples: images, or patients where the answers are per patient.
    judged_by : str
        ``"true grades"``, ``"given grades"`` or ``"consensus grades"`` (of several readers): the labels that the
        predictions are compared with.
    by_patient : bool
        Whether the intervals resample patients; else they resample samples and are probably too narrow.
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
    decision : Decision or None
        Whether to refer, with ``refer_from``.
    abstention : Abstention or None
        What is gained by abstaining, with ``refer_from`` or ``abstain``.
    overlaps : tuple of Overlap
        Evaluated samples that ranges, recalibration, threshold or pooling were fitted to; empty if there are none.
    readers : NetworkComparison or None
        The network as one more reader, if several readers graded the samples.
    not_compared : str
        Why it could not be compared with them; "" otherwise.
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
        The scores of one grade for all samples; None where the training labels are not known, or answers are pooled.
    uncalibrated : list of CalibrationBin
        As ``calibration``, before recalibration; empty if there was none, or answers are pooled.
    answers : DataFrame
        One row per answer: whose it is, ``label``, ``grade`` and ``p_<grade>``. Not in ``to_dict``.
    """

    samples: int
    judged_by: str
    by_patient: bool
    views: int
    purpose: Purpose
    grade_rule: str
    intervals: dict[str, Interval]
    confusion: list[list[int]]
    calibration_error: float
    ranked_probability_score: float
    calibration: list[CalibrationBin]
    recalibration: str = ""
    ranges: RangeEvaluation | None = None
    images: int = 0
    per: tuple[str, ...] = ()
    pool: str = ""
    learned_pooling: LearnedPooling | None = None
    pooling_labels: str = ""
    unknown_units: int = 0
    decision: Decision | None = None
    abstention: Abstention | None = None
    overlaps: tuple[Overlap, ...] = ()
    readers: NetworkComparison | None = None
    not_compared: str = ""
    run: str = ""
    side: str = ""
    grades: Grades = field(default_factory=lambda: Grades(()))
    features: bool = False
    patients: int | None = None
    naive: NaiveBaseline | None = None
    uncalibrated: list[CalibrationBin] = field(default_factory=list)
    answers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)

    @property
    def score(self) -> float:
        """The value of the metric that the grades are for."""
        return self.intervals[self.purpose].value

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {self.intervals[name].value:.3f}" for name in ("accuracy", "mae"))
        return f"<Evaluation: {count_of(self.samples, 'sample')}, {values}, by {self.judged_by}>"

    @property
    def naive_warning(self) -> str:
        """A sentence if one grade for all samples scores as well as the run; else ""."""
        if self.naive is None:
            return ""
        where = f"the {self.side} side" if self.side else "these samples"
        naive = getattr(self.naive, self.purpose)
        return compare_with_naive(where, score=self.score, naive=naive, purpose=self.purpose)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what several readers say only if there are some."""
        plain = asdict(replace(self, readers=None, answers=pd.DataFrame()))
        del plain["readers"], plain["not_compared"], plain["answers"]
        if self.readers is not None:
            plain["readers"] = self.readers.to_dict()
        plain["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        for name in ("calibration", "uncalibrated"):
            plain[name] = [b._asdict() for b in getattr(self, name)]
        plain["grades"] = list(self.grades)
        plain["naive"] = self.naive and self.naive._asdict()
        plain["ranges"] = None if self.ranges is None else self.ranges.to_dict()
        plain["learned_pooling"] = self.learned_pooling and self.learned_pooling._asdict()
        plain["decision"] = self.decision and self.decision.to_dict()
        plain["abstention"] = self.abstention and self.abstention.to_dict()
        return plain


# ``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled samples.


def evaluate(
    run: RunLike,
    data: Labelled,
    *,
    network: WhichNetwork = "ensemble",
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    views: int = 1,
    coverage: float | None = None,
    coverage_by: str | None = None,
    calibrate_on: Labelled | None = None,
    label_noise: LabelNoise = "unknown",
    recalibrate: bool = True,
    readings: Readings | None = None,
    on_bad_image: OnBadImage = "error",
    resamples: int = 1000,
    refer_from: str | int | None = None,
    threshold: Threshold | None = None,
    sensitivity: float | None = None,
    abstain: float | None = None,
    per: str | Sequence[str] | None = None,
    pool: Pooling = "highest",
    progress: ProgressOption = True,
) -> Evaluation:
    """Evaluate a run on labelled samples: against the true grades where they are known, else the given ones.

    A ``LeakageWarning`` is issued if the run was trained on some of them, under any name.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest, LoadedData, path, DataFrame, pair of arrays, or torch dataset
        The samples, as for ``srjt.train``; their grades are those of the run.
    network : {"ensemble", "1", "2"}
        The mean of the networks' probabilities, or one network.
    optimise : {"mae", "accuracy", "qwk", "macro_f1"}, optional
        The metric that the grades are for, as for ``srjt.predict``.
    decoding : {"argmax", "median", "expected"}, optional
        The most likely grade, the median, or the rounded mean, whatever the metric.
    views : {1, 2, 10}
        Number of views of an image over which the probabilities are averaged, as for ``srjt.predict``.
    coverage, coverage_by, calibrate_on, label_noise, recalibrate
        Ranges of grades and recalibration, as for ``srjt.predict``.
    readings : Readings, optional
        Every single reading, from ``srjt.data.read(path, several_readings="consensus").readings``: the network is then
        compared with each reader, as one more of them.
    on_bad_image : {"error", "skip"}
        Stop at an unusable sample, or leave it out.
    resamples : int
        Bootstrap resamples for the 95 % intervals: of patients where they are known, else of samples; identical
        images are resampled together.
    refer_from : str or int, optional
        The mildest grade that is referred: its grade or its name. The decision p(grade ≥ refer_from) ≥ threshold is
        judged too.
    threshold : float or "grade", optional
        Probability from which a sample is referred, or the predicted grade decides. Default: 0.5.
    sensitivity : float, optional
        Find the threshold for this sensitivity on the run's validation side instead.
    abstain : float, optional
        Leave about this share of the samples, the least confident ones, to a person.
    per : str or sequence of str, optional
        One answer per value of this column, or of these columns: ``"patient"``, ``["patient", "eye"]``. It is judged
        by the highest label.
    pool : {"highest", "mean", "learned"}
        How the answers of several images become one: the highest grade, the mean probabilities, or a pooling that is
        fitted on the validation side.
    progress : bool or callable
        Show a bar while images are decoded, in a terminal or a notebook; or a function that is called with (images
        decoded, images in total).

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
    check_choices(network, decoding, optimise)
    run, per = open_run(run), as_columns(per)
    check_units(per, run.grades)
    crops = run.views(views)  # an error before any image is read
    check_options(refer_from, threshold=threshold, sensitivity=sensitivity, abstain=abstain, pool=pool)
    fitted = fit_after_training(
        run, coverage=coverage, coverage_by=coverage_by, calibrate_on=calibrate_on, label_noise=label_noise,
        recalibrate=recalibrate, network=network, views=views, on_bad_image=on_bad_image, per=per, pool=pool,
    )  # fmt: skip
    decoded_by = grade_rule(
        run, network=network, optimise=optimise, decoding=decoding, recalibration=fitted.recalibration
    )
    predict_side = partial(
        predict_held_out, run, network=network, optimise=optimise, decoding=decoding, fitted=fitted
    )
    learned = fitted.learned
    validation = partial(
        validation_answers,
        run,
        predict=predict_side,
        per=per,
        how=pool,
        learned=learned,
        grade_rule=decoded_by,
    )

    rule = None
    if refer_from is not None:
        rule = referral_rule(
            run, refer_from=refer_from, threshold=threshold, sensitivity=sensitivity, validation=validation,
            per=per,
            views=len(crops),
        )  # fmt: skip
    # a function given as progress counts decoded images, not the headers that are read here
    data = run.match_features(read_labelled(run, data, on_bad_image=on_bad_image, progress=progress is True))
    with progress_bar("Decoding", progress) as decoded:
        store = open_store(
            data,
            size=run.config.image_size,
            resize=run.config.resize,
            on_bad_image=on_bad_image,
            progress=decoded,
            find_duplicates=True,
        )
    manifest = store.manifest
    if seen := len(run.trained_on(manifest)):
        warn(
            f"The run was trained on {seen:,} of the {len(manifest):,} samples: its scores on them say nothing about "
            "new ones. Evaluate others, such as the test side of its split.",
            LeakageWarning,
        )
    units = units_of(manifest.table, per) if per else None  # an error before images are predicted
    probabilities, grades = run.probabilities(store.pixels, views=views)
    table = predictions(
        run, probabilities, grades, network=network, optimise=optimise, decoding=decoding, fitted=fitted,
        samples=manifest.table,
    )  # fmt: skip

    truth = manifest.true_labels
    answers = answers_from(run, table, manifest.labels if truth is None else truth, groups=manifest.groups)
    compared, reason = None, ""
    if readings is not None:  # readers grade images, not patients
        compared, reason = beside_readers(readings, manifest, answers.grades, resamples=resamples)
    if units is not None:
        answers = pool_answers(answers, units.codes, how=pool, learned=learned, grade_rule=decoded_by)
    predicted, labels = answers.grades, answers.labels
    classes = len(run.grades)
    ranges = None
    if fitted.ranges is not None:
        low, high = fitted.grade_ranges(
            probabilities_of(probabilities, network), predicted, samples=manifest.table,
            units=None if units is None else units.codes,
        )  # fmt: skip
        ranges = evaluate_ranges(
            low,
            high,
            labels,
            rule=fitted.ranges,
            num_classes=classes,
            groups=answers.groups,
            resamples=resamples,
        )
    given = "given grades" if readings is None else "consensus grades"
    raw = [] if fitted.recalibration is None or per else probabilities_of(probabilities, network)
    found = judge(
        run,
        answers,
        judged_by=given if truth is None else "true grades",
        by_patient=manifest.patients is not None,
        patients=None if manifest.patients is None else len(set(manifest.patients)),
        purpose=optimise or run.config.optimise,
        grade_rule=table.attrs["grade_rule"],
        recalibration="" if fitted.recalibration is None else str(fitted.recalibration),
        uncalibrated=calibration_bins(raw, labels) if len(raw) else [],
        resamples=resamples,
        images=len(manifest),
        per=per,
        pool=pool if per else "",
        answers_table=answer_rows(run, answers, manifest, units),
    )
    return replace(
        found,
        views=len(crops),
        ranges=ranges,
        learned_pooling=learned,
        pooling_labels="" if learned is None else describe_labels(run, per=per),
        unknown_units=0 if units is None else units.unknown,
        decision=None if rule is None else decide(run, answers, rule, resamples=resamples),
        abstention=None
        if rule is None and abstain is None
        else abstain_from(answers, rule=rule, share=abstain, validation=validation),
        overlaps=find_overlaps(run, fitted, manifest, threshold=sensitivity is not None),
        readers=compared,
        not_compared=reason,
    )


def judge(
    run: Trained,
    answers: Answers,
    *,
    judged_by: str,
    by_patient: bool,
    patients: int | None,
    purpose: Purpose,
    grade_rule: str,
    recalibration: str,
    uncalibrated: list[CalibrationBin],
    resamples: int,
    images: int,
    per: tuple[str, ...],
    pool: str,
    answers_table: pd.DataFrame,
    side: str = "",
) -> Evaluation:
    """The scores of answers beside their labels. resamples: 0 for no intervals."""
    labels, predicted, classes = answers.labels, answers.grades, len(run.grades)
    counts = confusion_matrix(torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes)
    naive = None
    if run.facts is not None and not per:  # the naive grades are those of images
        naive = baseline_from(run.facts, counts.numpy().sum(axis=1))
    return Evaluation(
        samples=len(answers),
        judged_by=judged_by,
        by_patient=by_patient,
        views=1,
        purpose=purpose,
        grade_rule=grade_rule,
        intervals=_intervals(labels, predicted, classes=classes, groups=answers.groups, resamples=resamples),
        confusion=counts.tolist(),
        calibration_error=expected_calibration_error(answers.probabilities, labels),
        ranked_probability_score=ranked_probability_score(answers.probabilities, labels),
        calibration=calibration_bins(answers.probabilities, labels),
        recalibration=recalibration,
        images=images,
        per=per,
        pool=pool,
        run="" if run.folder is None else run.folder.resolve().name,
        side=side,
        grades=run.grades,
        features=len(run.in_shape) == 1,
        patients=patients,
        naive=naive,
        uncalibrated=uncalibrated,
        answers=answers_table,
    )


def _intervals(
    labels: npt.NDArray[np.int64],
    predicted: npt.NDArray[np.int64],
    *,
    classes: int,
    groups: Sequence[str] | None,
    resamples: int,
) -> dict[str, Interval]:
    """All metrics. One patient cannot be resampled: the ends are not known."""
    found = bootstrap_metrics(
        labels, predicted, num_classes=classes, groups=groups, resamples=max(resamples, 1)
    )
    if resamples and len(labels if groups is None else set(groups)) > 1:
        return found
    return {name: Interval(interval.value, np.nan, np.nan) for name, interval in found.items()}
