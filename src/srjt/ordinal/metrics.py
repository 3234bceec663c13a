"""Metrics for ordered grades, all of them functions of confusion matrices; how many of the selected
labels are right; and the scores of one grade for all samples, with which a network is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from srjt.errors import SrjtError
from srjt.lazy import former_names
from srjt.settings import show

# The formulas of the metrics, for many confusion matrices at once: a bootstrap has a thousand of
# them.
#
# Counts are floats of shape (..., C, C), none of them empty; a value per matrix comes back.
# ``METRICS[name]`` takes one matrix and checks it.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = Sequence[Hashable] | None  # patients of the samples; None: every sample is its own


def _accuracy(counts: Floats) -> Floats:
    return np.asarray(_right(counts).sum(axis=-1) / _total(counts))


def _mae(counts: Floats) -> Floats:
    return _total(counts * _distance(counts)) / _total(counts)


def _rmse(counts: Floats) -> Floats:
    return np.sqrt(_total(counts * _distance(counts) ** 2) / _total(counts))


def _macro_mae(counts: Floats) -> Floats:
    """Mean over the true grades present of the MAE of each: rare grades weigh as much as common
    ones."""
    samples = counts.sum(axis=-1)
    return _mean((counts * _distance(counts)).sum(axis=-1), samples, over=samples > 0)


def _one_off_accuracy(counts: Floats) -> Floats:
    return _total(counts * (_distance(counts) <= 1)) / _total(counts)


def _macro_precision(counts: Floats) -> Floats:
    """Mean over grades of the share of right predictions among the predictions of that grade."""
    return _mean(_right(counts), counts.sum(axis=-2), over=involved(counts))


def _macro_recall(counts: Floats) -> Floats:
    """Mean over grades of the share of right predictions among the samples of that grade."""
    return _mean(_right(counts), counts.sum(axis=-1), over=involved(counts))


def _macro_f1(counts: Floats) -> Floats:
    """Mean over grades of the harmonic mean of precision and recall."""
    return _mean(
        2 * _right(counts), counts.sum(axis=-2) + counts.sum(axis=-1), over=involved(counts)
    )


def _quadratic_weighted_kappa(counts: Floats) -> Floats:
    """1 − squared error / squared error expected by chance; nan if no error is possible (one grade
    only)."""
    squared = _distance(counts) ** 2
    by_chance = counts.sum(axis=-1)[..., :, None] * counts.sum(axis=-2)[..., None, :]
    expected = _total(squared * (by_chance / _total(counts)[..., None, None]))
    return 1.0 - divide(_total(squared * counts), expected, empty=np.nan)


def divide(part: Floats, whole: Floats, *, empty: float) -> Floats:
    """``part / whole``, and ``empty`` where there is nothing to divide by."""
    share: Floats = np.divide(
        part, whole, out=np.full(np.shape(part), empty), where=np.asarray(whole) > 0
    )
    return share


def _right(counts: Floats) -> Floats:
    return np.diagonal(counts, axis1=-2, axis2=-1)


def _total(counts: Floats) -> Floats:
    return np.asarray(counts.reshape(*counts.shape[:-2], -1).sum(axis=-1))


def _distance(counts: Floats) -> Floats:
    grade = np.arange(counts.shape[-1], dtype=np.float64)
    return np.abs(grade[:, None] - grade[None, :])


def involved(counts: Floats) -> NDArray[np.bool_]:
    """The grades that are present or predicted."""
    return np.asarray(counts.sum(axis=-2) + counts.sum(axis=-1) > 0)


def _mean(part: Floats, whole: Floats, *, over: NDArray[np.bool_]) -> Floats:
    return np.asarray(
        np.where(over, divide(part, whole, empty=0.0), 0.0).sum(axis=-1) / over.sum(axis=-1)
    )


# How clean a selection of samples is: counts are accumulated on the device and transferred once.


def selection_counts(selected: Tensor, labels: Tensor, true: Tensor, *, num_classes: int) -> Tensor:
    """Counts (..., 4, C) of a selection by *given* grade; add them up over batches.

    selected: (..., B) of bool. labels, true: (B,) grades as given, and true grades. Numbers of
    samples: selected and clean, selected, clean, all.

    Examples
    --------
    >>> grades = torch.tensor([0, 1])
    >>> selection_counts(torch.tensor([True, False]), grades, grades, num_classes=2)
    tensor([[1, 0],
            [1, 0],
            [1, 1],
            [1, 1]])
    """
    of_grade = labels[:, None] == torch.arange(num_classes, device=labels.device)  # (B, C)
    clean = (labels == true).expand(selected.shape)
    everything = torch.ones_like(selected)
    kinds = torch.stack([selected & clean, selected, clean, everything], dim=-2)  # (..., 4, B)
    return (kinds[..., None] & of_grade).sum(dim=-2)


def label_precision(counts: ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Share of truly clean samples among the selected.

    counts: (4, C) from ``selection_counts``. per_class: (C,) by given grade instead of overall. nan
    where there is no sample to divide by.

    Examples
    --------
    >>> label_precision([[1, 0], [1, 0], [1, 1], [1, 1]])
    1.0
    """
    return _selected_and_clean(counts, 1, per_class=per_class)


def label_recall(counts: ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Share of selected samples among the truly clean; arguments and result as of
    ``label_precision``.

    Examples
    --------
    >>> label_recall([[1, 0], [1, 0], [1, 1], [1, 1]])
    0.5
    """
    return _selected_and_clean(counts, 2, per_class=per_class)


def _selected_and_clean(counts: ArrayLike, among: int, *, per_class: bool) -> float | Floats:
    """The share of samples that are selected and clean among those of a row of the counts."""
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 2 or len(array) != 4:
        raise SrjtError(
            f"Selection counts have shape (4, C), not {array.shape}.", code="wrong_shape"
        )
    shares = divide(array[0], array[among], empty=np.nan)
    if per_class:
        return shares
    return float(divide(array[0].sum(), array[among].sum(), empty=np.nan))


# Metrics, each a function of the confusion matrix: counts are accumulated on the device and
# transferred once.
#
# Confusion matrices have the true grade in rows and the predicted grade in columns. Averages over
# grades follow scikit-learn: a grade that is neither present nor predicted is left out, a division
# by zero gives 0. A new metric is a function of confusion matrices and a row of ``METRICS``;
# tables, reports and tests find it there.


def confusion_matrix(
    true: Tensor | ArrayLike, predicted: Tensor | ArrayLike, *, num_classes: int
) -> Tensor:
    """Counts (C, C) of (true, predicted) grades (B,); add them up over batches.

    The grades are tensors, arrays or lists. Counts of tensors stay on their device, and the host
    does not wait for them. A pair with a grade outside 0 … C − 1 is not counted.

    Examples
    --------
    >>> confusion_matrix(torch.tensor([0, 1]), torch.tensor([0, 0]), num_classes=2)
    tensor([[1, 0],
            [1, 0]])
    >>> METRICS["accuracy"](confusion_matrix(np.array([0, 1]), np.array([0, 0]), num_classes=2))
    0.5
    """
    t = _as_grades(true, name="true")
    p = _as_grades(predicted, name="predicted")
    if t.shape != p.shape:
        raise SrjtError(
            f"Each sample has a true and a predicted grade; got {len(t)} true and {len(p)}"
            " predicted ones.",
            code="wrong_shape",
        )
    countable = (t >= 0) & (t < num_classes) & (p >= 0) & (p < num_classes)
    cell = torch.where(countable, t * num_classes + p, -1)
    cells = torch.arange(num_classes * num_classes, device=cell.device)
    return (cell[:, None] == cells).sum(dim=0).reshape(num_classes, num_classes)


def _as_grades(grades: Tensor | ArrayLike, *, name: str) -> Tensor:
    """(B,) whole numbers, as a tensor; a tensor stays on its device."""
    if isinstance(grades, Tensor):
        if grades.is_floating_point() and grades.device.type == "cpu":
            return _as_grades(grades.detach().numpy(), name=name)
        return grades.reshape(-1).long()  # of 8 bits they would overflow
    array = np.asarray(grades)
    if array.dtype.kind not in "iufb" or not np.all(array == np.floor(array)):
        raise SrjtError(
            f"The {name} grades are whole numbers from 0 up; got {show(grades)}.",
            code="unknown_grade",
        )
    return torch.tensor(array.astype(np.int64)).reshape(-1)


@dataclass(frozen=True)
class Metric:
    """A metric and its names in tables and sentences. Call it with a confusion matrix.

    Examples
    --------
    >>> METRICS["mae"]([[3, 1], [0, 4]]), METRICS["qwk"]([[3, 1], [0, 4]])
    (0.125, 0.75)
    """

    function: Callable[[Floats], Floats]  # of confusion matrices (..., C, C): a number for each
    short_name: str  # in the heading of a column
    long_name: str  # in a sentence
    lower_is_better: bool = False
    lowest: float = 0.0
    # For intervals: whether a single grade counts much, however rare it is; and by how many grades
    # the error is wrong that is added because it may have been too rare to occur.
    per_grade: bool = False
    error: int = 1

    def __call__(self, confusion: ArrayLike) -> float:
        return float(self.function(_counts(confusion)))

    def largest_difference(self, classes: int) -> float:
        """How far two scores can be apart."""
        return classes - 1.0 if self.lower_is_better else 1.0 - self.lowest


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_accuracy, "Acc.", "accuracy"),
    "mae": Metric(_mae, "MAE", "mean absolute error", lower_is_better=True),
    "macro_f1": Metric(_macro_f1, "mF1", "macro-F1", per_grade=True),
    "qwk": Metric(_quadratic_weighted_kappa, "QWK", "quadratic κ", lowest=-1.0, per_grade=True),
    "rmse": Metric(_rmse, "RMSE", "root mean square error", lower_is_better=True, error=2),
    "macro_mae": Metric(
        _macro_mae, "mMAE", "macro-averaged absolute error", lower_is_better=True, per_grade=True
    ),
    "macro_precision": Metric(
        _macro_precision, "mPrec.", "macro-averaged precision", per_grade=True
    ),
    "macro_recall": Metric(_macro_recall, "mRec.", "macro-averaged recall", per_grade=True),
    "one_off": Metric(_one_off_accuracy, "1-off", "share at most one grade off", error=2),
}
MAIN = ("mae", "accuracy", "macro_f1", "qwk")  # those that are shown first, and in a terminal


def summary(confusion: ArrayLike) -> dict[str, float]:
    """All metrics of one confusion matrix (C, C), by the names of ``METRICS``.

    Examples
    --------
    >>> summary([[3, 1], [0, 4]])["accuracy"]
    0.875
    """
    return {name: metric(confusion) for name, metric in METRICS.items()}


def _counts(confusion: ArrayLike) -> Floats:
    counts = np.asarray(confusion, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise SrjtError(
            f"A confusion matrix is square (C, C); this one has shape {counts.shape}.",
            code="wrong_shape",
        )
    if not counts.sum() > 0:
        raise SrjtError(
            "The confusion matrix is empty: there is nothing to measure.", code="too_few"
        )
    return counts


# What a prediction without looking at the sample would score: the least that a classifier has to
# beat.


class NaiveBaseline(NamedTuple):
    """Scores of one grade for all samples, in each metric that grades may be for (``Purpose``)."""

    accuracy: float  # of the most frequent training label
    mae: float  # of the median training label
    macro_f1: float  # of the most frequent training label
    qwk: float = 0.0  # one grade for all agrees by chance alone


def naive_baseline(training_counts: ArrayLike, counts: ArrayLike) -> NaiveBaseline:
    """Scores on samples with ``counts`` (C,) per grade of a prediction from ``training_counts``
    (C,) alone."""
    training = np.asarray(training_counts, dtype=np.float64)
    share = np.asarray(counts, dtype=np.float64) / np.sum(counts)
    median = int(np.searchsorted(np.cumsum(training), training.sum() / 2))
    distance = np.abs(np.arange(len(share)) - median)
    frequent = int(np.argmax(training))
    accuracy = float(share[frequent])
    involved = int((share > 0).sum()) + (accuracy == 0)  # grades that are present or predicted
    macro_f1 = 2 * accuracy / (1 + accuracy) / involved
    return NaiveBaseline(accuracy=accuracy, mae=float(share @ distance), macro_f1=macro_f1)


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__,
        {
            name: f"srjt.ordinal.intervals.{name}"
            for name in (
                "Interval",
                "bootstrap_metrics",
                "effective_patients",
                "holm",
                "patient_draws",
                "percentile_interval",
                "resampled_metrics",
                "t_interval",
            )
        },
    )
