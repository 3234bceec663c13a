"""Metrics, each a function of the confusion matrix: counts are accumulated on the device and transferred once.

Confusion matrices have the true grade in rows and the predicted grade in columns. Averages over grades follow
scikit-learn: a grade that is neither present nor predicted is left out, a division by zero gives 0. A new metric is a
function in ``metric_formulas`` and a row of ``METRICS``; reports and tests find it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.ordinal import metric_formulas as formulas
from srjt.ordinal.selection_metrics import label_precision, label_recall, selection_counts

__all__ = [
    "METRICS",
    "Metric",
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
    """Counts of (true, predicted) grades; add them up over batches.

    They stay on the tensors' device, and the host does not wait for them. A pair with a grade outside 0 … C − 1 is not
    counted.

    Parameters
    ----------
    true, predicted : Tensor of int, shape (B,)
    num_classes : int
        C, the number of grades.

    Returns
    -------
    Tensor of int64, shape (C, C)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.metrics import confusion_matrix
    >>> confusion_matrix(torch.tensor([0, 1]), torch.tensor([0, 0]), num_classes=2)
    tensor([[1, 0],
            [1, 0]])
    """
    t, p = true.reshape(-1), predicted.reshape(-1)
    known = (t >= 0) & (t < num_classes) & (p >= 0) & (p < num_classes)
    cell = torch.where(known, t * num_classes + p, -1)
    cells = torch.arange(num_classes * num_classes, device=cell.device)
    return (cell[:, None] == cells).sum(dim=0).reshape(num_classes, num_classes)


def accuracy(confusion: npt.ArrayLike) -> float:
    """Share of samples whose predicted grade is the true one.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import accuracy
    >>> accuracy([[3, 1], [0, 4]])
    0.875
    """
    return float(formulas.accuracy(_counts(confusion)))


def mae(confusion: npt.ArrayLike) -> float:
    """Mean absolute difference between the predicted and the true grade.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import mae
    >>> mae([[3, 1], [0, 4]])
    0.125
    """
    return float(formulas.mae(_counts(confusion)))


def rmse(confusion: npt.ArrayLike) -> float:
    """Root mean square difference between the predicted and the true grade.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import rmse
    >>> rmse([[3, 1], [0, 4]])
    0.3535533905932738
    """
    return float(formulas.rmse(_counts(confusion)))


def macro_mae(confusion: npt.ArrayLike) -> float:
    """Mean over the true grades present of the MAE of each: rare grades weigh as much as common ones.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import macro_mae
    >>> macro_mae([[3, 1], [0, 4]])
    0.125
    """
    return float(formulas.macro_mae(_counts(confusion)))


def one_off_accuracy(confusion: npt.ArrayLike) -> float:
    """Share of predictions that are at most one grade off.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import one_off_accuracy
    >>> one_off_accuracy([[3, 1], [0, 4]])
    1.0
    """
    return float(formulas.one_off_accuracy(_counts(confusion)))


def macro_precision(confusion: npt.ArrayLike) -> float:
    """Mean over grades of the share of right predictions among the predictions of that grade.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import macro_precision
    >>> macro_precision([[3, 1], [0, 4]])
    0.9
    """
    return float(formulas.macro_precision(_counts(confusion)))


def macro_recall(confusion: npt.ArrayLike) -> float:
    """Mean over grades of the share of right predictions among the samples of that grade.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import macro_recall
    >>> macro_recall([[3, 1], [0, 4]])
    0.875
    """
    return float(formulas.macro_recall(_counts(confusion)))


def macro_f1(confusion: npt.ArrayLike) -> float:
    """Mean over grades of F1, the harmonic mean of precision and recall.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import macro_f1
    >>> macro_f1([[3, 1], [0, 4]])
    0.873015873015873
    """
    return float(formulas.macro_f1(_counts(confusion)))


def per_class_recall(confusion: npt.ArrayLike) -> Floats:
    """Share of right predictions for each true grade; nan for a grade without samples.

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    array, shape (C,)

    Examples
    --------
    >>> from srjt.ordinal.metrics import per_class_recall
    >>> per_class_recall([[3, 1], [0, 4]]).tolist()
    [0.75, 1.0]
    """
    counts = _counts(confusion)
    return formulas.divide(np.diag(counts), counts.sum(axis=1), empty=np.nan)


def quadratic_weighted_kappa(confusion: npt.ArrayLike) -> float:
    """1 − squared error / squared error expected by chance; nan if no error is possible (one grade only).

    Parameters
    ----------
    confusion : array-like, shape (C, C)
        Counts; true grades in rows, predicted ones in columns.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.metrics import quadratic_weighted_kappa
    >>> quadratic_weighted_kappa([[3, 1], [0, 4]])
    0.75
    """
    return float(formulas.quadratic_weighted_kappa(_counts(confusion)))


@dataclass(frozen=True)
class Metric:
    """A metric and its names in tables and sentences. Call it with a confusion matrix.

    Parameters
    ----------
    function : callable
        From confusion matrices, shape (..., C, C), to a number for each.
    short_name, long_name : str
        In the heading of a column, and in a sentence.
    lower_is_better : bool
    """

    function: Callable[[Floats], Floats]
    short_name: str
    long_name: str
    lower_is_better: bool = False

    def __call__(self, confusion: npt.ArrayLike) -> float:
        return float(self.function(_counts(confusion)))


METRICS: dict[str, Metric] = {
    "accuracy": Metric(formulas.accuracy, "Acc.", "accuracy"),
    "mae": Metric(formulas.mae, "MAE", "mean absolute error", lower_is_better=True),
    "macro_f1": Metric(formulas.macro_f1, "mF1", "macro-F1"),
    "qwk": Metric(formulas.quadratic_weighted_kappa, "QWK", "quadratic weighted kappa"),
    "rmse": Metric(formulas.rmse, "RMSE", "root mean square error", lower_is_better=True),
    "macro_mae": Metric(formulas.macro_mae, "mMAE", "macro-averaged absolute error", lower_is_better=True),
    "macro_precision": Metric(formulas.macro_precision, "mPrec.", "macro-averaged precision"),
    "macro_recall": Metric(formulas.macro_recall, "mRec.", "macro-averaged recall"),
    "one_off": Metric(formulas.one_off_accuracy, "1-off", "share at most one grade off"),
}


def summary(confusion: npt.ArrayLike) -> dict[str, float]:
    """All metrics of one confusion matrix.

    Parameters
    ----------
    confusion : array-like, shape (C, C)

    Returns
    -------
    dict of str to float
        By the names of ``METRICS``.

    Examples
    --------
    >>> from srjt.ordinal.metrics import summary
    >>> summary([[3, 1], [0, 4]])["accuracy"]
    0.875
    """
    return {name: metric(confusion) for name, metric in METRICS.items()}


def _counts(confusion: npt.ArrayLike) -> Floats:
    counts = np.asarray(confusion, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise SrjtError(f"A confusion matrix is square (C, C); this one has shape {counts.shape}.")
    if not counts.sum() > 0:
        raise SrjtError("The confusion matrix is empty: there is nothing to measure.")
    return counts
