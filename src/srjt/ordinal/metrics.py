"""Metrics for ordered grades, all of them functions of confusion matrices; how many of the selected labels are
right; the scores of one grade for all samples, with which a network is compared; and how sure a number is: intervals
that resample whole patients, and Holm's correction for several tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from srjt.errors import SrjtError
from srjt.ordinal import patient_codes as patient_codes

# The formulas of the metrics, for many confusion matrices at once: a bootstrap has a thousand of them.
#
# Counts are floats of shape (..., C, C), none of them empty; a value per matrix comes back. ``METRICS[name]`` takes
# one matrix and checks it.

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
    """Mean over the true grades present of the MAE of each: rare grades weigh as much as common ones."""
    samples = counts.sum(axis=-1)
    return _mean((counts * _distance(counts)).sum(axis=-1), samples, over=samples > 0)


def _one_off_accuracy(counts: Floats) -> Floats:
    return _total(counts * (_distance(counts) <= 1)) / _total(counts)


def _macro_precision(counts: Floats) -> Floats:
    """Mean over grades of the share of right predictions among the predictions of that grade."""
    return _mean(_right(counts), counts.sum(axis=-2), over=_involved(counts))


def _macro_recall(counts: Floats) -> Floats:
    """Mean over grades of the share of right predictions among the samples of that grade."""
    return _mean(_right(counts), counts.sum(axis=-1), over=_involved(counts))


def _macro_f1(counts: Floats) -> Floats:
    """Mean over grades of the harmonic mean of precision and recall."""
    return _mean(2 * _right(counts), counts.sum(axis=-2) + counts.sum(axis=-1), over=_involved(counts))


def _quadratic_weighted_kappa(counts: Floats) -> Floats:
    """1 − squared error / squared error expected by chance; nan if no error is possible (one grade only)."""
    squared = _distance(counts) ** 2
    by_chance = counts.sum(axis=-1)[..., :, None] * counts.sum(axis=-2)[..., None, :]
    expected = _total(squared * (by_chance / _total(counts)[..., None, None]))
    return 1.0 - divide(_total(squared * counts), expected, empty=np.nan)


def divide(part: Floats, whole: Floats, *, empty: float) -> Floats:
    """``part / whole``, and ``empty`` where there is nothing to divide by."""
    share: Floats = np.divide(part, whole, out=np.full(np.shape(part), empty), where=np.asarray(whole) > 0)
    return share


def _right(counts: Floats) -> Floats:
    return np.diagonal(counts, axis1=-2, axis2=-1)


def _total(counts: Floats) -> Floats:
    return np.asarray(counts.reshape(*counts.shape[:-2], -1).sum(axis=-1))


def _distance(counts: Floats) -> Floats:
    grade = np.arange(counts.shape[-1], dtype=np.float64)
    return np.abs(grade[:, None] - grade[None, :])


def _involved(counts: Floats) -> NDArray[np.bool_]:
    """The grades that are present or predicted."""
    return np.asarray(counts.sum(axis=-2) + counts.sum(axis=-1) > 0)


def _mean(part: Floats, whole: Floats, *, over: NDArray[np.bool_]) -> Floats:
    return np.asarray(np.where(over, divide(part, whole, empty=0.0), 0.0).sum(axis=-1) / over.sum(axis=-1))


# How clean a selection of samples is: counts are accumulated on the device and transferred once.


def selection_counts(selected: Tensor, labels: Tensor, true: Tensor, *, num_classes: int) -> Tensor:
    """Counts (..., 4, C) of a selection by *given* grade; add them up over batches.

    selected: (..., B) of bool. labels, true: (B,) grades as given, and true grades. Numbers of samples:
    selected and clean, selected, clean, all.

    Examples
    --------
    >>> selected, labels, true = torch.tensor([True, False]), torch.tensor([0, 1]), torch.tensor([0, 1])
    >>> selection_counts(selected, labels, true, num_classes=2)
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

    counts: (4, C) from ``selection_counts``. per_class: (C,) by given grade instead of overall. nan where there
    is no sample to divide by.

    Examples
    --------
    >>> label_precision([[1, 0], [1, 0], [1, 1], [1, 1]])
    1.0
    """
    return _selected_and_clean(counts, 1, per_class=per_class)


def label_recall(counts: ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Share of selected samples among the truly clean; arguments and result as of ``label_precision``.

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
        raise SrjtError(f"Selection counts have shape (4, C), not {array.shape}.")
    shares = divide(array[0], array[among], empty=np.nan)
    return shares if per_class else float(divide(array[0].sum(), array[among].sum(), empty=np.nan))


# Metrics, each a function of the confusion matrix: counts are accumulated on the device and transferred once.
#
# Confusion matrices have the true grade in rows and the predicted grade in columns. Averages over grades
# follow scikit-learn: a grade that is neither present nor predicted is left out, a division by zero gives
# 0. A new metric is a function of confusion matrices and a row of ``METRICS``; tables, reports and tests find
# it there.


def confusion_matrix(true: Tensor, predicted: Tensor, *, num_classes: int) -> Tensor:
    """Counts (C, C) of (true, predicted) grades (B,); add them up over batches.

    They stay on the tensors' device, and the host does not wait for them. A pair with a grade outside 0 … C − 1
    is not counted.

    Examples
    --------
    >>> confusion_matrix(torch.tensor([0, 1]), torch.tensor([0, 0]), num_classes=2)
    tensor([[1, 0],
            [1, 0]])
    """
    t, p = true.reshape(-1), predicted.reshape(-1)
    countable = (t >= 0) & (t < num_classes) & (p >= 0) & (p < num_classes)
    cell = torch.where(countable, t * num_classes + p, -1)
    cells = torch.arange(num_classes * num_classes, device=cell.device)
    return (cell[:, None] == cells).sum(dim=0).reshape(num_classes, num_classes)


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

    def __call__(self, confusion: ArrayLike) -> float:
        return float(self.function(_counts(confusion)))


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_accuracy, "Acc.", "accuracy"),
    "mae": Metric(_mae, "MAE", "mean absolute error", lower_is_better=True),
    "macro_f1": Metric(_macro_f1, "mF1", "macro-F1"),
    "qwk": Metric(_quadratic_weighted_kappa, "QWK", "quadratic κ", lowest=-1.0),
    "rmse": Metric(_rmse, "RMSE", "root mean square error", lower_is_better=True),
    "macro_mae": Metric(_macro_mae, "mMAE", "macro-averaged absolute error", lower_is_better=True),
    "macro_precision": Metric(_macro_precision, "mPrec.", "macro-averaged precision"),
    "macro_recall": Metric(_macro_recall, "mRec.", "macro-averaged recall"),
    "one_off": Metric(_one_off_accuracy, "1-off", "share at most one grade off"),
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
        raise SrjtError(f"A confusion matrix is square (C, C); this one has shape {counts.shape}.")
    if not counts.sum() > 0:
        raise SrjtError("The confusion matrix is empty: there is nothing to measure.")
    return counts


# What a prediction without looking at the sample would score: the least that a classifier has to beat.


class NaiveBaseline(NamedTuple):
    """Scores of one grade for all samples, in each metric that grades may be for (``Purpose``)."""

    accuracy: float  # of the most frequent training label
    mae: float  # of the median training label
    macro_f1: float  # of the most frequent training label
    qwk: float = 0.0  # one grade for all agrees by chance alone


def naive_baseline(training_counts: ArrayLike, counts: ArrayLike) -> NaiveBaseline:
    """Scores on samples with ``counts`` (C,) per grade of a prediction from ``training_counts`` (C,) alone."""
    training = np.asarray(training_counts, dtype=np.float64)
    share = np.asarray(counts, dtype=np.float64) / np.sum(counts)
    median = int(np.searchsorted(np.cumsum(training), training.sum() / 2))
    distance = np.abs(np.arange(len(share)) - median)
    frequent = int(np.argmax(training))
    accuracy = float(share[frequent])
    involved = int((share > 0).sum()) + (accuracy == 0)  # grades that are present or predicted
    macro_f1 = 2 * accuracy / (1 + accuracy) / involved
    return NaiveBaseline(accuracy=accuracy, mae=float(share @ distance), macro_f1=macro_f1)


# Intervals resample patients: images of one patient are similar, and resampling them would make it too narrow.

_CELLS = 10_000_000  # numbers held at once
# Fewer patients (or samples, where patients are not known) than this are too few: a bootstrap of so few has intervals
# that are much too short, and scores differ by chance alone.
TOO_FEW = 10


class Interval(NamedTuple):
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


def patient_draws(patients: int, resamples: int, *, seed: int, width: int = 1) -> Iterator[Floats]:
    """Weights of the patients (n, G): first all ones, then the bootstrap draws in chunks of bounded size.

    width: numbers that are computed from each draw.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    at_once = max(1, _CELLS // max(width, patients))
    yield np.ones((1, patients))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        yield rng.multinomial(patients, np.full(patients, 1.0 / patients), size=size).astype(np.float64)


def percentile_tails(patients: ArrayLike, *, level: float = 0.95) -> Floats:
    """The two quantiles (2, …) of bootstrap draws at the ends of an interval: farther out the fewer patients there are.

    Draws of n patients vary too little, by √((n − 1)/n), and have the tails of a normal distribution instead of
    Student's with n − 1 degrees of freedom. The quantiles make up for both (Hesterberg, The American Statistician
    2015, 69(4)).

    Examples
    --------
    >>> percentile_tails([5, 8, 30, 1000])[0].round(4).tolist()
    [0.001, 0.0057, 0.0188, 0.0248]
    """
    from scipy.special import ndtr, stdtrit  # type: ignore[import-untyped]  # scipy.stats is twenty times slower

    n = np.maximum(np.asarray(patients, dtype=np.float64), 2)  # the draws of one patient are all the same
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + level) / 2))
    return np.stack([tail, 1 - tail])


def percentile_interval(values: ArrayLike, *, patients: int, level: float = 0.95) -> Interval:
    """(1 + B,) a number as it is and of each draw of the patients → its percentile interval; nan where no draw has a
    value. Its ends are those of ``percentile_tails``."""
    value, *draws = np.asarray(values, dtype=np.float64)
    tails = percentile_tails(patients, level=level)
    low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(float(value), float(low), float(high))


def t_interval(
    values: ArrayLike, *, patients: int, trainings: Sequence[ArrayLike] = (), level: float = 0.95
) -> tuple[Interval, float]:
    """A difference with its interval and two-sided p-value by Student's t, from bootstrap draws of the patients.

    The variance of the draws, times n / (n − 1) for n patients, is that of other patients and the same trainings. With
    several trainings of a method their variance is added: s² · Σ 1/Sₘ over the methods, of which each has a mean
    over Sₘ trainings. s² is pooled over the methods, so that a method with one training is taken to vary as the others
    do. The degrees of freedom are Satterthwaite's.

    values: (1 + B,) the difference as it is, and of each draw. patients: their number; of two groups, the smaller one.
    trainings: of each method that the difference is between the score of each training (Sₘ,); by default they are not
    varied. Ends and p-value are nan where fewer than two patients or draws are known.
    """
    from scipy.special import stdtr, stdtrit

    value, *draws = np.asarray(values, dtype=np.float64)
    known = np.asarray(draws)[np.isfinite(draws)]
    if patients < 2 or len(known) < 2 or not math.isfinite(value):
        return Interval(float(value), math.nan, math.nan), math.nan
    parts = [(float(known.var(ddof=1)) * patients / (patients - 1), patients - 1)]
    scores = [np.asarray(of_method, dtype=np.float64) for of_method in trainings]
    if free := sum(len(own) - 1 for own in scores):
        pooled = sum(float(((own - own.mean()) ** 2).sum()) for own in scores) / free
        parts.append((pooled * sum(1 / len(own) for own in scores), free))
    variance = sum(part for part, _ in parts)
    if variance <= (1e-12 * value) ** 2:  # equal up to rounding
        return Interval(float(value), float(value), float(value)), float(abs(value) <= 1e-12)
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    error = math.sqrt(variance)
    half = float(stdtrit(degrees, 0.5 + level / 2)) * error
    p_value = float(2 * stdtr(degrees, -abs(value) / error))
    return Interval(float(value), float(value - half), float(value + half)), p_value


def bootstrap_metrics(
    true: ArrayLike, predicted: ArrayLike, *, level: float = 0.95, **options: Any
) -> dict[str, Interval]:
    """Percentile-bootstrap intervals of all metrics, by name.

    true, predicted, options: as for ``resampled_metrics``.

    Examples
    --------
    >>> bootstrap_metrics([0, 1, 2], [0, 1, 2], num_classes=3)["accuracy"]
    Interval(value=1.0, low=1.0, high=1.0)
    """
    drawn = resampled_metrics(true, predicted, **options)
    patients = int(patient_codes(options.get("groups"), len(np.asarray(true))).max(initial=-1)) + 1
    return {name: percentile_interval(values, patients=patients, level=level) for name, values in drawn.items()}


def resampled_metrics(
    true: ArrayLike,
    predicted: ArrayLike,
    *,
    num_classes: int,
    groups: Groups = None,
    metrics: Iterable[str] = tuple(METRICS),
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Floats]:
    """Metrics of the samples as they are, and of each bootstrap draw of the patients.

    The same groups and seed give the same draws, so the results of two methods on the same samples can be subtracted.
    Every metric is a function of the confusion matrix, and the matrix of a draw is a weighted sum of the patients' own
    matrices: nothing is counted again.

    true, predicted: (N,) grades. num_classes: C. groups: (N,) patients; without, every sample is its own. metrics:
    names in ``METRICS``; by default all. resamples: the number of draws. The result has an array (1 + resamples,) by
    name of the metric; the first value is that of the samples as they are.

    Examples
    --------
    >>> resampled_metrics([0, 1, 2], [0, 1, 2], num_classes=3, resamples=2)["mae"].tolist()
    [0.0, 0.0, 0.0]
    """
    y, p = np.asarray(true, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if len(y) == 0 or len(y) != len(p):
        raise SrjtError(
            f"{len(y)} true and {len(p)} predicted grades: there must be as many of both, and at least one."
        )
    owner = patient_codes(groups, len(y))
    patients = int(owner.max()) + 1
    own = np.zeros((patients, num_classes * num_classes))
    np.add.at(own, (owner, y * num_classes + p), 1.0)
    weights = patient_draws(patients, resamples, seed=seed)
    confusions = np.concatenate([drawn @ own for drawn in weights]).reshape(-1, num_classes, num_classes)
    return {name: METRICS[name].function(confusions) for name in metrics}


def holm(p_values: ArrayLike) -> Floats:
    """p-values (n,) corrected for their number by Holm's method: below α, all that are have a joint error of at
    most α.

    nan, where there is no test, stays nan and does not count.

    Examples
    --------
    >>> holm([0.04, 0.01, 0.03]).round(3).tolist()
    [0.06, 0.03, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64).reshape(-1)
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int(np.isfinite(p).sum())]  # nan sorts last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted
