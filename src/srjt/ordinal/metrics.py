"""Every metric is a function of a C×C count: accumulate on the device, transfer once, then divide.

Confusion matrices have the true grade in rows and the predicted one in columns. Averages over grades
follow scikit-learn: a grade neither present nor predicted does not count, one that divides by zero is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from srjt.errors import SrjtError

__all__ = [
    "METRICS",
    "accuracy",
    "confusion_matrix",
    "label_precision",
    "label_recall",
    "macro_f1",
    "macro_mae",
    "macro_precision",
    "macro_recall",
    "mae",
    "one_off_accuracy",
    "per_class_recall",
    "quadratic_weighted_kappa",
    "rmse",
    "selection_counts",
    "summary",
]

Floats = npt.NDArray[np.float64]


def confusion_matrix(true: Tensor, predicted: Tensor, *, num_classes: int) -> Tensor:
    """(B,), (B,) → (C, C) int64 counts on the same device, without host synchronisation; add them up.

    A pair with a grade outside 0 … C − 1 is not counted.
    """
    t, p = true.reshape(-1), predicted.reshape(-1)
    known = (t >= 0) & (t < num_classes) & (p >= 0) & (p < num_classes)
    cell = torch.where(known, t * num_classes + p, -1)
    cells = torch.arange(num_classes * num_classes, device=cell.device)
    return (cell[:, None] == cells).sum(dim=0).reshape(num_classes, num_classes)


def accuracy(confusion: npt.ArrayLike) -> float:
    counts = _counts(confusion)
    return float(np.trace(counts) / counts.sum())


def mae(confusion: npt.ArrayLike) -> float:
    """Mean absolute difference between predicted and true grade."""
    counts = _counts(confusion)
    return float((counts * _distance(counts)).sum() / counts.sum())


def rmse(confusion: npt.ArrayLike) -> float:
    counts = _counts(confusion)
    return float(np.sqrt((counts * _distance(counts) ** 2).sum() / counts.sum()))


def macro_mae(confusion: npt.ArrayLike) -> float:
    """The mean over the true grades present of each one's MAE: rare grades weigh as much as common ones."""
    counts = _counts(confusion)
    present = counts.sum(axis=1) > 0
    return float(((counts * _distance(counts)).sum(axis=1)[present] / counts.sum(axis=1)[present]).mean())


def one_off_accuracy(confusion: npt.ArrayLike) -> float:
    """The share of predictions at most one grade off."""
    counts = _counts(confusion)
    return float(counts[_distance(counts) <= 1].sum() / counts.sum())


def macro_precision(confusion: npt.ArrayLike) -> float:
    counts = _counts(confusion)
    return _macro(np.diag(counts), counts.sum(axis=0), counts)


def macro_recall(confusion: npt.ArrayLike) -> float:
    counts = _counts(confusion)
    return _macro(np.diag(counts), counts.sum(axis=1), counts)


def macro_f1(confusion: npt.ArrayLike) -> float:
    counts = _counts(confusion)
    return _macro(2 * np.diag(counts), counts.sum(axis=0) + counts.sum(axis=1), counts)


def per_class_recall(confusion: npt.ArrayLike) -> Floats:
    """(C,) the share of each true grade that was predicted right; nan for a grade without samples."""
    counts = _counts(confusion)
    return _divide(np.diag(counts), counts.sum(axis=1), empty=np.nan)


def quadratic_weighted_kappa(confusion: npt.ArrayLike) -> float:
    """1 − observed / chance squared error; nan when chance leaves no error to be made (one grade only)."""
    counts = _counts(confusion)
    squared = _distance(counts) ** 2
    chance = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    expected = float((squared * chance).sum())
    return 1.0 - float((squared * counts).sum()) / expected if expected > 0 else float("nan")


METRICS: dict[str, Callable[[npt.ArrayLike], float]] = {
    "accuracy": accuracy,
    "mae": mae,
    "macro_f1": macro_f1,
    "qwk": quadratic_weighted_kappa,
    "rmse": rmse,
    "macro_mae": macro_mae,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "one_off": one_off_accuracy,
}


def summary(confusion: npt.ArrayLike) -> dict[str, float]:
    """All scalar metrics of one confusion matrix, by name."""
    return {name: metric(confusion) for name, metric in METRICS.items()}


def selection_counts(selected: Tensor, labels: Tensor, true: Tensor, *, num_classes: int) -> Tensor:
    """What a selection took, per *given* grade: (..., B) bool, (B,), (B,) → (..., 4, C) int64; add them up.

    The four rows count samples: selected and clean, selected, clean, all.
    """
    given = labels[:, None] == torch.arange(num_classes, device=labels.device)  # (B, C)
    clean = (labels == true).expand(selected.shape)
    everything = torch.ones_like(selected)
    kinds = torch.stack([selected & clean, selected, clean, everything], dim=-2)  # (..., 4, B)
    return (kinds[..., None] & given).sum(dim=-2)


def label_precision(counts: npt.ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Truly clean among the selected, from counts (4, C): overall, or (C,) per given grade (nan: none)."""
    chosen_clean, chosen, _, _ = _selection(counts, per_class=per_class)
    return _ratio(chosen_clean, chosen)


def label_recall(counts: npt.ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Selected among the truly clean, from counts (4, C): overall, or (C,) per given grade (nan: none)."""
    chosen_clean, _, clean, _ = _selection(counts, per_class=per_class)
    return _ratio(chosen_clean, clean)


def _selection(counts: npt.ArrayLike, *, per_class: bool) -> Floats:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 2 or len(array) != 4:
        raise SrjtError(f"Selection counts have shape (4, C), not {array.shape}.")
    return array if per_class else array.sum(axis=1)


def _ratio(part: Floats, whole: Floats) -> float | Floats:
    share = _divide(part, whole, empty=np.nan)
    return float(share) if share.ndim == 0 else share


def _counts(confusion: npt.ArrayLike) -> Floats:
    counts = np.asarray(confusion, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise SrjtError(f"A confusion matrix is square (C, C); this one has shape {counts.shape}.")
    if not counts.sum() > 0:
        raise SrjtError("There is nothing to measure: the confusion matrix is empty.")
    return counts


def _distance(counts: Floats) -> Floats:
    grade = np.arange(len(counts), dtype=np.float64)
    return np.abs(grade[:, None] - grade[None, :])


def _divide(part: Floats, whole: Floats, *, empty: float) -> Floats:
    share: Floats = np.divide(part, whole, out=np.full(np.shape(part), empty), where=np.asarray(whole) > 0)
    return share


def _macro(part: Floats, whole: Floats, counts: Floats) -> float:
    involved = (counts.sum(axis=0) + counts.sum(axis=1)) > 0
    return float(_divide(part, whole, empty=0.0)[involved].mean())
