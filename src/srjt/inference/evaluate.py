"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.groups import LeakageWarning
from srjt.data.images.store import OnBadImage, open_store
from srjt.errors import warn
from srjt.inference.abstain import abstain_from
from srjt.inference.answer_rows import answer_rows
from srjt.inference.answers import (
    answers_from,
    as_columns,
    check_units,
    describe_labels,
    pool_answers,
    units_of,
    validation_answers,
)
from srjt.inference.beside_readers import beside_readers
from srjt.inference.calibrate import Labelled, read_labelled
from srjt.inference.decide import (
    Threshold,
    check_options,
    decide,
    referral_rule,
)
from srjt.inference.evaluation import Evaluation
from srjt.inference.fitted import fit_after_training
from srjt.inference.grade_rule import WhichNetwork, grade_rule, probabilities_of
from srjt.inference.overlap import find_overlaps
from srjt.inference.predict import RunLike, check_choices, open_run, predict_held_out, predictions
from srjt.inference.range_evaluation import evaluate_ranges
from srjt.noise.true_grades import LabelNoise
from srjt.ordinal.calibration import (
    calibration_bins,
    expected_calibration_error,
    ranked_probability_score,
)
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import confusion_matrix
from srjt.ordinal.pooling import Pooling
from srjt.ordinal.purpose import Purpose
from srjt.progress import ProgressOption, progress_bar
from srjt.readers import Readings

__all__ = ["Evaluation", "evaluate"]


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
    data : Manifest, Reading, path, DataFrame, pair of arrays, or torch dataset
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
    chosen, predicted, labels = answers.probabilities, answers.grades, answers.labels
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
    return Evaluation(
        samples=len(answers),
        judged_by=given if truth is None else "true grades",
        by_patient=manifest.patients is not None,
        views=len(crops),
        purpose=optimise or run.config.optimise,
        grade_rule=table.attrs["grade_rule"],
        intervals=_intervals(labels, predicted, classes=classes, groups=answers.groups, resamples=resamples),
        confusion=confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes
        ).tolist(),
        calibration_error=expected_calibration_error(chosen, labels),
        ranked_probability_score=ranked_probability_score(chosen, labels),
        calibration=calibration_bins(chosen, labels),
        recalibration="" if fitted.recalibration is None else str(fitted.recalibration),
        ranges=ranges,
        images=len(manifest),
        per=per,
        pool=pool if per else "",
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
        answers=answer_rows(run, answers, manifest, units),
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
    found = bootstrap_metrics(labels, predicted, num_classes=classes, groups=groups, resamples=resamples)
    if len(labels if groups is None else set(groups)) > 1:
        return found
    return {name: Interval(interval.value, np.nan, np.nan) for name, interval in found.items()}
