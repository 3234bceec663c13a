"""``srjt.evaluate``: metrics with intervals, confusion matrix and calibration of a run on labelled samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.problems import drop_unusable
from srjt.data.select_readings import select_readings
from srjt.data.sources import read
from srjt.errors import SrjtError
from srjt.inference.predict import RunLike, WhichNetwork, check_choices, open_run, predictions
from srjt.ordinal.calibration import (
    CalibrationBin,
    calibration_bins,
    expected_calibration_error,
    ranked_probability_score,
)
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import confusion_matrix
from srjt.readers import NetworkComparison, Readings, compare_network
from srjt.training.trained import Trained

__all__ = ["Evaluation", "evaluate"]

MOST_READERS = 50  # each needs a consensus of the others


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of ``srjt.evaluate``.

    Attributes
    ----------
    samples : int
        Number of evaluated samples.
    judged_by : str
        ``"true grades"``, ``"given grades"`` or ``"consensus grades"`` (of several readers): the labels that the
        predictions are compared with.
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
    readers : NetworkComparison or None
        The network as one more reader, if several readers graded the samples.
    not_compared : str
        Why it could not be compared with them; "" otherwise.
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
    readers: NetworkComparison | None = None
    not_compared: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what several readers say only if there are some."""
        plain = asdict(replace(self, readers=None))
        del plain["readers"], plain["not_compared"]
        if self.readers is not None:
            plain["readers"] = self.readers.to_dict()
        plain["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        plain["calibration"] = [b._asdict() for b in self.calibration]
        return plain


def evaluate(
    run: RunLike,
    data: Manifest | str | os.PathLike[str],
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
    views: int = 1,
    readings: Readings | None = None,
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
    readings : Readings, optional
        Every single reading, from ``srjt.data.read(path, several_readings="consensus").readings``: the network is then
        compared with each reader, as one more of them.
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
        data = _read_labelled(run, data, on_bad_image=on_bad_image)
    run.check_feature_settings(data.made)
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
    table = predictions(run, probabilities, grades, network=network, decoding=decoding)
    position = {name: c for c, name in enumerate(run.grades)}
    predicted = np.array([position[name] for name in table["grade"]], dtype=np.int64)
    chosen = table[[f"p_{name}" for name in run.grades]].to_numpy(np.float64)
    truth = manifest.true_labels
    labels = manifest.labels if truth is None else truth
    classes = len(run.grades)
    given = "given grades" if readings is None else "consensus grades"
    compared, reason = _beside_readers(readings, manifest, predicted, resamples=resamples)
    return Evaluation(
        samples=len(manifest),
        judged_by=given if truth is None else "true grades",
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
        readers=compared,
        not_compared=reason,
    )


def _beside_readers(
    readings: Readings | None, manifest: Manifest, predicted: npt.NDArray[np.int64], *, resamples: int
) -> tuple[NetworkComparison | None, str]:
    """The network as one more reader; otherwise None, and why. The other metrics do not depend on it."""
    if readings is None:
        return None, ""
    if len(readings.readers) > MOST_READERS:
        return None, f"The network is compared with at most {MOST_READERS} readers; there are more."
    own = select_readings(readings, manifest.ids)
    if own.groups is None and manifest.groups is not None:
        own = replace(own, groups=manifest.groups)
    try:
        return compare_network(own, predicted, resamples=max(resamples, 1)), ""
    except SrjtError as problem:
        return None, str(problem)


def _read_labelled(run: Trained, source: str | os.PathLike[str], *, on_bad_image: str) -> Manifest:
    if not isinstance(source, (str, os.PathLike)):
        raise SrjtError(f"Data are a manifest or a path; got {type(source).__name__}.")
    reading = read(source, grades=run.grades)
    return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)
