"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.inference.calibrate import Labelled, WhichNetwork, read_labelled
from srjt.inference.fitted import fit_after_training
from srjt.inference.predict import RunLike, check_choices, open_run, predictions
from srjt.inference.range_evaluation import RangeEvaluation, evaluate_ranges
from srjt.noise.true_grades import LabelNoise
from srjt.ordinal.calibration import (
    CalibrationBin,
    calibration_bins,
    expected_calibration_error,
    ranked_probability_score,
)
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import confusion_matrix

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of ``srjt.evaluate``.

    Attributes
    ----------
    samples : int
        Number of evaluated samples.
    judged_by : str
        ``"true grades"`` or ``"given grades"``: the labels that the predictions are compared with.
    by_patient : bool
        Whether the intervals resample patients; else they resample samples and are probably too narrow.
    views : int
        Views of each sample over which the probabilities are averaged.
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
    """

    samples: int
    judged_by: str
    by_patient: bool
    views: int
    intervals: dict[str, Interval]
    confusion: list[list[int]]
    calibration_error: float
    ranked_probability_score: float
    calibration: list[CalibrationBin]
    recalibration: str = ""
    ranges: RangeEvaluation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = asdict(self)
        plain["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        plain["calibration"] = [b._asdict() for b in self.calibration]
        plain["ranges"] = None if self.ranges is None else self.ranges.to_dict()
        return plain


def evaluate(
    run: RunLike,
    data: Labelled,
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
    views: int = 1,
    coverage: float | None = None,
    coverage_by: str | None = None,
    calibrate_on: Labelled | None = None,
    label_noise: LabelNoise = "unknown",
    recalibrate: bool = True,
    on_bad_image: OnBadImage = "error",
    resamples: int = 1000,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate a run on labelled samples: against the true grades where they are known, else the given ones.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest or path
        The samples. A path is anything that ``srjt.data.read`` reads; its grades are those of the run.
    network : {"ensemble", "1", "2"}
        The mean of the networks' probabilities, or one network.
    decoding : {"argmax", "median", "expected"}
        The most likely grade, the grade of least expected absolute error, or the rounded mean.
    views : {1, 2, 10}
        Number of views of an image over which the probabilities are averaged, as for ``srjt.predict``.
    coverage, coverage_by, calibrate_on, label_noise, recalibrate
        Ranges of grades and recalibration, as for ``srjt.predict``.
    on_bad_image : {"error", "skip"}
        Stop at an unusable sample, or leave it out.
    resamples : int
        Bootstrap resamples for the 95 % intervals: of patients where they are known, else of samples; identical
        images are resampled together.
    progress : callable, optional
        Called with (images decoded, images in total).

    Returns
    -------
    Evaluation
        Metrics with intervals, confusion matrix, calibration.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, **settings)
    >>> result = srjt.evaluate(run, data, resamples=50)
    >>> result.samples, result.by_patient
    (60, True)
    """
    check_choices(network, decoding)
    run = open_run(run)
    crops = run.views(views)  # an error before any image is read
    if not isinstance(data, Manifest):
        data = read_labelled(run, data, on_bad_image=on_bad_image)
    run.check_feature_settings(data.made)
    fitted = fit_after_training(
        run, coverage=coverage, coverage_by=coverage_by, calibrate_on=calibrate_on, label_noise=label_noise,
        recalibrate=recalibrate, network=network, views=views,
    )  # fmt: skip
    store = open_store(
        data,
        size=run.config.image_size,
        resize=run.config.resize,
        on_bad_image=on_bad_image,
        progress=progress,
        find_duplicates=True,
    )
    manifest = store.manifest
    probabilities, grades = run.probabilities(store.pixels, views=views)
    table = predictions(
        run, probabilities, grades, network=network, decoding=decoding, fitted=fitted, samples=manifest.table
    )
    position = {name: c for c, name in enumerate(run.grades)}

    def grade_of(column: str) -> npt.NDArray[np.int64]:
        return np.array([position[name] for name in table[column]], dtype=np.int64)

    predicted = grade_of("grade")
    chosen = table[[f"p_{name}" for name in run.grades]].to_numpy(np.float64)
    truth = manifest.true_labels
    labels = manifest.labels if truth is None else truth
    classes = len(run.grades)
    return Evaluation(
        samples=len(manifest),
        judged_by="given grades" if truth is None else "true grades",
        by_patient=manifest.patients is not None,
        views=len(crops),
        intervals=bootstrap_metrics(
            labels, predicted, num_classes=classes, groups=manifest.groups, resamples=resamples
        ),
        confusion=confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes
        ).tolist(),
        calibration_error=expected_calibration_error(chosen, labels),
        ranked_probability_score=ranked_probability_score(chosen, labels),
        calibration=calibration_bins(chosen, labels),
        recalibration="" if fitted.recalibration is None else str(fitted.recalibration),
        ranges=None
        if fitted.ranges is None
        else evaluate_ranges(
            grade_of("grade_low"),
            grade_of("grade_high"),
            labels,
            rule=fitted.ranges,
            num_classes=classes,
            groups=manifest.groups,
            resamples=resamples,
        ),
    )
