"""A trained run against labels: metrics with intervals, confusion matrix, calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.inference.predict import check_choices, predictions
from srjt.ordinal.calibration import (
    CalibrationBin,
    calibration_bins,
    expected_calibration_error,
    ranked_probability_score,
)
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import confusion_matrix
from srjt.training.trained import Trained

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    samples: int
    judged_by: str  # "true grades" or "given grades"
    by_patient: bool  # whether intervals resample patients
    views: int  # of each sample, over which the probabilities are averaged
    intervals: dict[str, Interval]
    confusion: list[list[int]]  # rows: true grade
    calibration_error: float
    ranked_probability_score: float
    calibration: list[CalibrationBin]

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        plain["calibration"] = [b._asdict() for b in self.calibration]
        return plain


def evaluate(
    run: Trained,
    data: Manifest,
    *,
    network: str = "ensemble",
    decoding: str = "argmax",
    views: int = 1,
    on_bad_image: str = "error",
    resamples: int = 1000,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judge ``run`` on ``data``: by the true grades where they are known, else by the given ones.

    views: as for ``predict``.
    """
    check_choices(network, decoding)
    run.check_made(data.made)
    shown = run.views(views)  # an error before any image is read
    store = open_store(
        data,
        size=run.config.image_size,
        resize=run.config.resize,
        on_bad_image=on_bad_image,  # type: ignore[arg-type]
        progress=progress,
    )
    manifest = store.manifest
    probabilities, grades = run.probabilities(store.pixels, views=views)
    table = predictions(run, probabilities, grades, network=network, decoding=decoding)  # type: ignore[arg-type]
    place = {name: c for c, name in enumerate(run.grades)}
    predicted = np.array([place[name] for name in table["grade"]], dtype=np.int64)
    chosen = table[[f"p_{name}" for name in run.grades]].to_numpy(np.float64)
    truth = manifest.true_labels
    labels = manifest.labels if truth is None else truth
    classes = len(run.grades)
    return Evaluation(
        samples=len(manifest),
        judged_by="given grades" if truth is None else "true grades",
        by_patient=manifest.patients is not None,
        views=len(shown),
        intervals=bootstrap_metrics(
            labels, predicted, num_classes=classes, groups=manifest.patients, resamples=resamples
        ),
        confusion=confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes
        ).tolist(),
        calibration_error=expected_calibration_error(chosen, labels),
        ranked_probability_score=ranked_probability_score(chosen, labels),
        calibration=calibration_bins(chosen, labels),
    )
