"""How sure a score is: intervals that resample whole patients, differences with their p-values,
and Holm's correction for several tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srjt.errors import SrjtError
from srjt.ordinal import patient_codes
from srjt.ordinal.metrics import METRICS, Floats, Groups, Ints, involved

# Intervals resample patients: images of one patient are similar, and resampling them would make it
# too narrow.

_CELLS = 10_000_000  # numbers held at once
# Fewer patients (or samples, where patients are not known) than this are too few: a bootstrap of so
# few has intervals that are much too short, and scores differ by chance alone.
TOO_FEW = 10


class Interval(NamedTuple):
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


def effective_patients(owner: ArrayLike) -> float:
    """How many patients with equally many samples tell as much; see ``effective_counts``.

    owner: (N,) the number of each sample's patient, as ``patient_codes`` has it.

    Examples
    --------
    >>> [round(effective_patients(owner), 3) for owner in ([0, 0, 1, 1], [0] * 9 + [1, 2, 3])]
    [2.0, 2.05]
    """
    return float(effective_counts(np.bincount(np.asarray(owner, dtype=np.int64)).astype(float)))


def effective_counts(samples: Floats) -> Floats:
    """How many patients with equally many samples have as wide a 95 % interval by the same draws.

    Two things make the draws of few patients misleading. Both depend on the shares hᵢ of the
    samples, here for patients that vary alike, with Sₖ = Σ hᵏ:

    - They vary too little, because the mean follows the patients with the most samples: by
      G/(G + 1) · (S₂ − 2 S₃ + S₂²) instead of S₂.
    - How much they vary is known with few degrees of freedom (Satterthwaite's; Bell and McCaffrey,
      Survey Methodology 2002, 28(2)). A few large patients decide it, and small ones, however
      many, do not help. Where one patient has a third of all samples, intervals are too wide.

    n equal patients have (n − 1)/(n + 1) of the variance and n − 1 degrees of freedom. The number
    lies between those of the two, where Student's quantile over the deviation is the same.

    samples: (G, …) of each patient. The result has the shape of the rest.
    """
    powers = [(samples**power).sum(axis=0) for power in range(1, 6)]
    return effective_from_sums(*powers, patients=(samples > 0).sum(axis=0))


def effective_from_sums(*sums: ArrayLike, patients: ArrayLike) -> Floats:
    """``effective_counts`` from Σm, Σm², … Σm⁵ over the patients that have m > 0 samples; 0 without
    any, 1 of one."""
    number = np.asarray(patients, dtype=np.float64)
    several = number > 1
    filled = [np.where(several, one, 0.5 ** (power - 1)) for power, one in enumerate(sums, 1)]
    too_little, degrees = draws_of_unequal(*filled, patients=np.where(several, number, 2.0))
    by_variance = (1.0 + too_little) / (1.0 - too_little)
    low, high = np.minimum(by_variance, degrees + 1.0), np.maximum(by_variance, degrees + 1.0)
    wanted = _student(degrees) / np.sqrt(too_little)
    for _ in range(40):
        middle = (low + high) / 2.0
        too_wide = _student(middle - 1.0) * np.sqrt((middle + 1.0) / (middle - 1.0)) > wanted
        low, high = np.where(too_wide, middle, low), np.where(too_wide, high, middle)
    return np.where(several, high, number)


def draws_of_unequal(*sums: Floats, patients: ArrayLike) -> tuple[Floats, Floats]:
    """How much of the variance of a mean the draws of its patients have, and with how many degrees
    of freedom; arguments as for ``effective_from_sums``, of two patients or more."""
    total, *rest = sums
    s2, s3, s4, s5 = (one / total**power for power, one in enumerate(rest, 2))
    varies = s2 - 2.0 * s3 + s2**2
    # Σᵢⱼ of the squared entries of the matrix of this quadratic form
    squared = s4 * (1.0 + 4.0 * s2) - 4.0 * s5 + s2**4 - 4.0 * s2**2 * s3 + 2.0 * s3**2
    number = np.asarray(patients, dtype=np.float64)
    return number / (number + 1.0) * varies / s2, varies**2 / squared


def _student(degrees: Floats) -> Floats:
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy.stats is slow to import

    return np.asarray(stdtrit(degrees, 0.975))


def patients_of_grades(by_patient: Floats) -> Ints:
    """(C,) how many patients have a sample of each true grade. by_patient: (G, C, C) as of
    ``patient_tables``."""
    return np.asarray((by_patient.sum(axis=2) > 0).sum(axis=0))


def patients_behind(by_patient: Floats) -> dict[str, float]:
    """How many patients the interval of a difference rests on, by metric: effective ones, of a
    mean over grades and κ those of the rarest grade. 0 where a grade has fewer than ``TOO_FEW``
    patients: what such a grade adds is not known, and there is no interval.

    by_patient: (G, C, C) the confusion matrix of each patient; rows are the true grades.

    Examples
    --------
    >>> rare = patient_tables([0] * 20 + [1], [0] * 21, num_classes=2)
    >>> round(patients_behind(rare)["accuracy"], 9), patients_behind(rare)["macro_f1"]
    (21.0, 0.0)
    """
    of_grade = by_patient.sum(axis=2)  # (G, C)
    all_grades = float(effective_counts(of_grade.sum(axis=1)))
    rarest = 0.0
    if patients_of_grades(by_patient).min() >= TOO_FEW:
        rarest = min(all_grades, float(effective_counts(of_grade).min()))
    return {name: rarest if metric.per_grade else all_grades for name, metric in METRICS.items()}


def patient_draws(patients: int, resamples: int, *, seed: int, width: int = 1) -> Iterator[Floats]:
    """Weights of the patients (n, G): first all ones, then the bootstrap draws in chunks of bounded
    size.

    The weights of a draw are exponential, with mean 1 (Rubin's Bayesian bootstrap, The Annals of
    Statistics 1981). No patient is left out of a draw, so a rare grade is in all of them, and the
    draws of a rare error have the skewness that its interval needs.

    width: numbers that are computed from each draw.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    at_once = max(1, _CELLS // max(width, patients))
    yield np.ones((1, patients))
    for start in range(0, resamples, at_once):
        weights = rng.standard_exponential((min(at_once, resamples - start), patients))
        yield weights * (patients / weights.sum(axis=1, keepdims=True))


def percentile_tails(patients: ArrayLike, *, level: float = 0.95) -> Floats:
    """The two quantiles (2, …) of bootstrap draws at the ends of an interval: farther out the fewer
    patients there are.

    Draws of n patients vary too little, by √((n − 1)/(n + 1)), and have the tails of a normal
    distribution instead of Student's with n − 1 degrees of freedom. The quantiles make up for both
    (Hesterberg, The American Statistician 2015, 69(4)). patients: their number, or
    ``effective_patients``; at least 2.

    Examples
    --------
    >>> percentile_tails([5, 8, 30, 1000])[0].round(4).tolist()
    [0.0003, 0.0037, 0.0172, 0.0247]
    """
    from scipy.special import ndtr, stdtrit  # scipy.stats is twenty times slower

    n = np.maximum(
        np.asarray(patients, dtype=np.float64), 2
    )  # the draws of one patient are all the same
    tail = ndtr(-np.sqrt((n + 1) / (n - 1)) * stdtrit(n - 1, (1 + level) / 2))
    return np.stack([tail, 1 - tail])


def percentile_interval(values: ArrayLike, *, patients: float, level: float = 0.95) -> Interval:
    """(1 + B,) a number as it is and of each draw of the patients → its percentile interval; nan
    where no draw has a value. Its ends are those of ``percentile_tails``."""
    value, *draws = np.asarray(values, dtype=np.float64)
    tails = percentile_tails(patients, level=level)
    low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(float(value), float(low), float(high))


def t_interval(
    values: ArrayLike,
    *,
    patients: float,
    trainings: Sequence[ArrayLike] = (),
    added: float = 0.0,
    level: float = 0.95,
) -> tuple[Interval, float]:
    """A difference with its interval and two-sided p-value by Student's t, from bootstrap draws of
    the patients.

    The variance of the draws, times (n + 1) / (n − 1) for n patients, is that of other patients and
    the same trainings. With several trainings of a method their variance is added: s² · Σ 1/Sₘ over
    the methods, of which each has a mean over Sₘ trainings. s² is pooled over the methods, so that
    a method with one training is taken to vary as the others do. The degrees of freedom are
    Satterthwaite's.

    values: (1 + B,) the difference as it is, and of each draw. patients: ``effective_patients``,
    because the variance is no better known than that of as many patients with equally many samples;
    of two groups, the smaller number. trainings: of each method that the difference is between the
    score of each training (Sₘ,); by default they are not varied. added: the variance of errors that
    may occur and have not, as of ``one_error_more``. Ends and p-value are nan where fewer than two
    patients or draws are known.
    """
    from scipy.special import stdtr, stdtrit

    value, *draws = np.asarray(values, dtype=np.float64)
    known = np.asarray(draws)[np.isfinite(draws)]
    if patients <= 1 or len(known) < 2 or not math.isfinite(value):
        return Interval(float(value), math.nan, math.nan), math.nan
    n = max(patients, 2.0)
    parts = [(float(known.var(ddof=1)) * (n + 1) / (n - 1) + added, n - 1)]
    scores = [np.asarray(of_method, dtype=np.float64) for of_method in trainings]
    if free := sum(len(of_fold) - 1 for of_fold in scores):
        pooled = sum(float(((of_fold - of_fold.mean()) ** 2).sum()) for of_fold in scores) / free
        parts.append((pooled * sum(1 / len(of_fold) for of_fold in scores), free))
    variance = sum(part for part, _ in parts)
    if variance <= (1e-12 * value) ** 2:  # equal up to rounding
        return Interval(float(value), float(value), float(value)), float(abs(value) <= 1e-12)
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    error = math.sqrt(variance)
    half = float(stdtrit(degrees, 0.5 + level / 2)) * error
    p_value = float(2 * stdtr(degrees, -abs(value) / error))
    return Interval(float(value), float(value - half), float(value + half)), p_value


# Intervals of scores. Where errors or grades are rare, a sample may have none of them, and draws of
# its patients do not vary. So samples are added to each draw: wrong ones for the worse end of an
# interval, right ones for the better end. Of a share of independent samples this is Clopper and
# Pearson's interval: Beta(k, n − k + 1) and Beta(k + 1, n − k).


class ScoreDraws(NamedTuple):
    """Metrics of samples, by name: as they are, and (B,) of draws with right or with wrong samples
    added."""

    value: dict[str, float]
    better: dict[str, Floats]
    worse: dict[str, Floats]
    patients: float  # effective ones


def score_draws(
    by_patient: Floats, drawn: Floats, *, metrics: Iterable[str] = tuple(METRICS), seed: int = 0
) -> ScoreDraws:
    """Metrics of draws of the patients, with added samples.

    A metric of all images gets one sample, weighted at random as a patient is (exponentially). A
    metric that a single rare grade can change (``per_grade``) gets half a sample of each grade,
    because the errors of each may be rare: of the grades that occur, and of one below and one above
    them.

    An added sample weighs as many images as are worth one independent image, from 1 to a patient's.
    That is the variance between patients over that between images, both with one error more that a
    whole patient shares: few errors cannot show that images of a patient err alone. The right
    samples of ``per_grade`` weigh as many as are worth one independent grade, if these are more.

    by_patient: (G, C, C) the confusion matrix of each patient. drawn: (1 + B, C, C) sums of them,
    all weights 1, and of each draw of ``patient_draws``.
    """
    classes = by_patient.shape[-1]
    total = by_patient.sum(axis=0)
    samples = by_patient.sum(axis=(1, 2))
    grade = np.arange(classes)
    independent_error = images_worth_one(by_patient, grade[:, None] != grade, samples)
    independent_grade = images_worth_one(
        by_patient, np.broadcast_to(grade[:, None], total.shape), samples
    )
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    draws = len(drawn) - 1
    anywhere = rng.standard_gamma(1.0 / classes, (draws, classes, 1)) * independent_error
    occurs = _may_occur(total)
    each = rng.standard_gamma(0.5, (draws, classes, 1)) * occurs[:, None]
    right = np.eye(classes)
    near = wrong_by(1, classes) * occurs  # no answer that is a grade of its own
    near = near / np.maximum(near.sum(axis=1, keepdims=True), 1e-300)
    # (better, worse) tables by what an error is; None: a metric per grade
    tables: dict[int | None, tuple[Floats, Floats]] = {}
    value = {}
    better = {}
    worse = {}
    for name in metrics:
        metric = METRICS[name]
        kind = None if metric.per_grade else metric.error
        if kind not in tables and kind is None:
            more = each * max(independent_error, independent_grade)
            tables[kind] = drawn[1:] + more * right, drawn[1:] + each * independent_error * near
        elif kind not in tables:
            tables[kind] = (
                drawn[1:] + anywhere * right,
                drawn[1:] + anywhere * wrong_by(metric.error, classes),
            )
        value[name] = float(metric.function(drawn[:1])[0])
        better[name], worse[name] = (metric.function(table) for table in tables[kind])
    present = samples[samples > 0]
    return ScoreDraws(value, better, worse, float(effective_counts(present)))


def images_worth_one(by_patient: Floats, value: ArrayLike, samples: Floats) -> float:
    """How many images of a patient are worth one independent image, for the mean of a value (C, C)
    of each cell."""
    of_cell = np.asarray(value, dtype=np.float64)
    mean = float((by_patient.sum(axis=0) * of_cell).sum() / samples.sum())
    images = float(
        (samples**2).sum() / samples.sum()
    )  # of a patient, where patients count by their images
    between_patients = float(((by_patient * (of_cell - mean)).sum(axis=(1, 2)) ** 2).sum())
    between_images = float((by_patient.sum(axis=0) * (of_cell - mean) ** 2).sum())
    # one error more, which a whole patient shares: images² · (1 / images), and 1 between images
    return min(max((between_patients + images) / (between_images + 1.0), 1.0), max(images, 1.0))


def _may_occur(total: Floats) -> NDArray[np.bool_]:
    """(C,) the grades from one below the lowest to one above the highest that is present or
    predicted."""
    present = np.flatnonzero(involved(total))
    grade = np.arange(len(total))
    return np.asarray((grade >= present.min() - 1) & (grade <= present.max() + 1))


def wrong_by(grades: int, classes: int) -> Floats:
    """(C, C) a sample of each true grade whose answer is this many grades off, or as many as there
    are."""
    grade = np.arange(classes)
    distance = np.abs(grade[:, None] - grade)
    cells = (distance == np.minimum(grades, distance.max(axis=1, keepdims=True))).astype(np.float64)
    return np.asarray(cells / cells.sum(axis=1, keepdims=True))


def score_interval(draws: ScoreDraws, name: str, *, level: float = 0.95) -> Interval:
    """The interval of a metric; it contains the value. nan for a single patient, and where the
    metric is undefined."""
    value = draws.value[name]
    if draws.patients <= 1.0 or not len(draws.worse[name]) or not math.isfinite(value):
        return Interval(value, math.nan, math.nan)
    tail = float(percentile_tails(draws.patients, level=level)[0])
    lower_is_better = METRICS[name].lower_is_better
    first, last = (draws.better, draws.worse) if lower_is_better else (draws.worse, draws.better)
    low = np.nanquantile(first[name], tail)
    high = np.nanquantile(last[name], 1.0 - tail)
    most = math.inf if lower_is_better else 1.0  # rounding
    return Interval(value, min(value, float(low)), min(max(value, float(high)), most))


def bootstrap_metrics(
    true: ArrayLike,
    predicted: ArrayLike,
    *,
    num_classes: int,
    groups: Groups = None,
    metrics: Iterable[str] = tuple(METRICS),
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Intervals of metrics over the patients, by name.

    Percentiles of draws of the patients, to which samples are added (``score_draws``): no interval
    has width 0, only because no error has occurred. A grade without samples is left out of the
    value of macro-averages; their intervals allow for it. The intervals assume that errors which
    have not occurred are by one grade. They hold less often with fewer than 15 patients if a
    patient's images all have one grade; of means over grades and κ, if a grade has fewer than ten
    patients. Of one patient, or without draws, the ends are nan.

    true, predicted, num_classes, groups, metrics, resamples, seed: as for ``resampled_metrics``.

    Examples
    --------
    >>> right = bootstrap_metrics([0, 1, 2] * 10, [0, 1, 2] * 10, num_classes=3)["accuracy"]
    >>> right.value, round(right.low, 1), right.high  # 0.88 by Clopper and Pearson
    (1.0, 0.9, 1.0)
    """
    by_patient = patient_tables(true, predicted, num_classes=num_classes, groups=groups)
    drawn = resampled_tables(by_patient, resamples=max(resamples, 1), seed=seed)
    scores = score_draws(by_patient, drawn, metrics=metrics, seed=seed)
    if resamples < 1:
        return {name: Interval(value, math.nan, math.nan) for name, value in scores.value.items()}
    return {name: score_interval(scores, name, level=level) for name in scores.value}


def slopes(score: Callable[[Floats], Floats], counts: Floats, *, step: float = 1e-4) -> Floats:
    """(C, K) the derivatives of a score by the cells of a table (C, K), whose sum is about 1."""
    cells = counts.size
    moved = counts.reshape(-1) + step * np.concatenate([np.eye(cells), -np.eye(cells)])
    with np.errstate(invalid="ignore", divide="ignore"):
        values = score(moved.reshape(-1, *counts.shape))
    return np.asarray((values[:cells] - values[cells:]) / (2.0 * step)).reshape(counts.shape)


def one_error_more(
    by_patient: Floats,
    *,
    metrics: Iterable[str] = tuple(METRICS),
) -> dict[str, float]:
    """By how much one more error changes each metric, of samples with the grades that there are.

    The error weighs as much as in ``score_draws``. Its square is the variance that an error has
    which may occur, and has not. by_patient: (G, C, C) the confusion matrix of each patient.
    """
    classes = by_patient.shape[-1]
    total = by_patient.sum(axis=0)
    grade = np.arange(classes)
    weight = images_worth_one(by_patient, grade[:, None] != grade, by_patient.sum(axis=(1, 2)))
    share = total.sum(axis=1, keepdims=True) / total.sum()
    changes = {}
    for name in metrics:
        metric = METRICS[name]
        wrong = wrong_by(metric.error, classes)
        both = np.stack([total, total + weight * share * wrong])
        before, after = metric.function(both)
        changes[name] = float(after - before) if math.isfinite(before) else 0.0
    return changes


def patient_tables(
    true: ArrayLike, predicted: ArrayLike, *, num_classes: int, groups: Groups = None
) -> Floats:
    """(G, C, C) the confusion matrix of each patient; arguments as for ``resampled_metrics``.

    Examples
    --------
    >>> patient_tables([0, 1, 1], [0, 1, 0], num_classes=2, groups=["a", "a", "b"])[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    y = np.asarray(true, dtype=np.int64)
    p = np.asarray(predicted, dtype=np.int64)
    if len(y) == 0 or len(y) != len(p):
        raise SrjtError(
            f"{len(y)} true and {len(p)} predicted grades: there must be as many of both, and at"
            " least one.",
            code="wrong_shape",
        )
    owner = patient_codes(groups, len(y))
    by_patient = np.zeros((int(owner.max()) + 1, num_classes, num_classes))
    np.add.at(by_patient, (owner, y, p), 1.0)
    return by_patient


def resampled_tables(by_patient: Floats, *, resamples: int, seed: int) -> Floats:
    """(1 + resamples, C, C) the sum of the patients' tables (G, C, C), and of each draw of the
    patients."""
    flat = by_patient.reshape(len(by_patient), -1)
    drawn = [weights @ flat for weights in patient_draws(len(by_patient), resamples, seed=seed)]
    return np.concatenate(drawn).reshape(-1, *by_patient.shape[1:])


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

    The same groups and seed give the same draws, so the results of two methods on the same samples
    can be subtracted. Every metric is a function of the confusion matrix, and the matrix of a draw
    is a weighted sum of the patients' own matrices: nothing is counted again.

    true, predicted: (N,) grades. num_classes: C. groups: (N,) patients; without, every sample is
    its own. metrics: names in ``METRICS``; by default all. resamples: the number of draws. The
    result has an array (1 + resamples,) by name of the metric; the first value is that of the
    samples as they are.

    Examples
    --------
    >>> resampled_metrics([0, 1, 2], [0, 1, 2], num_classes=3, resamples=2)["mae"].tolist()
    [0.0, 0.0, 0.0]
    """
    by_patient = patient_tables(true, predicted, num_classes=num_classes, groups=groups)
    confusions = resampled_tables(by_patient, resamples=resamples, seed=seed)
    return {name: METRICS[name].function(confusions) for name in metrics}


def holm(p_values: ArrayLike) -> Floats:
    """p-values (n,) corrected for their number by Holm's method: below α, all that are have a joint
    error of at most α.

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
