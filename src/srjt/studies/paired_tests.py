"""Is "+ours" better? Paired tests over folds against its host and the best baseline, and over all hosts and
noises together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError, unknown_name
from srjt.ordinal.metrics import METRICS
from srjt.studies.results import host_of, is_ours, is_recipe, paper_order

# Compare "+ours" with its host and with the best baseline by a paired test over folds.
#
# A fold has its own test patients and its own trainings, so the variance between folds contains both. Folds
# share training data, so their differences are not independent, and a plain paired t-test reports effects
# that do not exist. Nadeau and Bengio (Machine Learning 52, 2003) increase the variance of the mean
# difference from s²/n to (1/n + n_test/n_train)·s².
#
# The best of several methods looks better on the results that it was chosen by than on others. So the
# opponent in a fold is the method that is best in the *other* folds, whose test patients are others.

CONFIDENCE = 0.95
LOWER_IS_BETTER = frozenset(name for name, metric in METRICS.items() if metric.lower_is_better)


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """The mean of n paired differences with its test and confidence interval; None where there is none."""

    n: int
    difference: float | None
    std: float | None = None  # of the differences, not of their mean; ddof = 1
    t: float | None = None
    p_value: float | None = None  # two-sided
    low: float | None = None  # the confidence interval of the mean difference
    high: float | None = None


def corrected_t_test(
    differences: npt.ArrayLike, *, test_train_ratio: float, largest: float = math.inf
) -> PairedTest:
    """Nadeau and Bengio's corrected resampled t-test of paired differences against 0: of n folds (n,), or of n folds
    and S seeds (n, S), nan where there is no run.

    Seeds are averaged within a fold. What a seed does to all folds, such as its initial weights, does not show between
    the folds: its variance over S, estimated between the seeds, is added (a two-way random-effects model), with
    Satterthwaite's degrees of freedom. One seed cannot show it.

    test_train_ratio: size of a test set over that of a training set, 1/3 for 60/20/20; 0 gives the plain
    paired t-test. With one or two differences, or with equal ones, there is no test, only the mean: an interval of two
    would be wider than the range of most metrics. largest: the largest difference that the metric allows.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]

    table = np.asarray(differences, dtype=np.float64)
    table = table if table.ndim == 2 else table.reshape(-1, 1)
    values = np.nanmean(table, axis=1) if table.size else np.empty(0)
    n = len(values)
    if n < 2:
        return PairedTest(n=n, difference=float(values[0]) if n else None)
    mean, std = float(values.mean()), float(values.std(ddof=1))
    if std <= 1e-12 * np.abs(values).max():  # equal up to rounding
        return PairedTest(n=n, difference=mean, std=0.0)
    if n < 3:
        return PairedTest(n=n, difference=mean, std=std)
    between_folds = std**2 * (1.0 / n + test_train_ratio)
    between_seeds, free = _seed_variance(table)
    error = math.sqrt(between_folds + between_seeds)
    degrees = error**4 / (between_folds**2 / (n - 1) + between_seeds**2 / free)
    half = float(student.ppf(0.5 + CONFIDENCE / 2.0, degrees)) * error
    return PairedTest(
        n=n,
        difference=mean,
        std=std,
        t=mean / error,
        p_value=float(2.0 * student.sf(abs(mean / error), degrees)),
        low=max(mean - half, -largest),
        high=min(mean + half, largest),
    )


def _seed_variance(table: npt.NDArray[np.float64]) -> tuple[float, int]:
    """(n, S) differences of folds and seeds → the variance of their mean by effects of the seeds on all folds, and its
    degrees of freedom. Of the variance between the seeds' means, 1/n of that of single runs is chance."""
    table = table[np.isfinite(table).all(axis=1)]
    folds, seeds = table.shape
    if folds < 2 or seeds < 2:
        return 0.0, 1
    single = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    chance = float((single**2).sum()) / ((folds - 1) * (seeds - 1))
    variance = float(table.mean(axis=0).var(ddof=1)) - chance / folds
    return max(0.0, variance) / seeds, seeds - 1


def largest_difference(metric: str) -> float:
    """Of two values of a metric: 1 for a share, 2 for a coefficient, and no limit for a distance between grades."""
    if metric in LOWER_IS_BETTER or metric not in METRICS:
        return math.inf
    return 1.0 - METRICS[metric].lowest


def compare_ours(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    metrics: Sequence[str] = ("accuracy", "mae", "macro_f1"),
    split: str = "test",
) -> pd.DataFrame:
    """Compare every "+ours" with its host and with the best baseline; compare a recipe, which has no host, with the
    best baseline and the best "+ours". The best is chosen for each fold by the other folds; a single fold chooses by
    itself.

    scores: of a study (method, variant, noise, fold, seed, split, metric, value); variants are left out. Columns of
    the result: noise, metric, method, role (host | best + Ours | best baseline), against (several, if folds choose
    differently: "sord, cdr", the most frequent first), better (None: equal or unknown) and the fields of PairedTest.
    """
    known = set(scores.loc[scores["split"] == split, "metric"])
    rows = []
    for noise in dict.fromkeys(scores["noise"]):
        for metric in metrics:
            if known and metric not in known:
                raise unknown_name("metric", metric, known)
            wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
            ordered = paper_order(wide.columns)
            for method in ordered:
                if not is_ours(method):
                    continue
                baselines = [name for name in ordered if not is_ours(name)]
                opponents: dict[str, dict[int, str]] = {}  # role → fold → method
                if is_recipe(method):
                    ours = [name for name in ordered if host_of(name)]
                    opponents["best + Ours"] = _best_elsewhere(wide, ours, other=method, metric=metric)
                elif (host := host_of(method)) in baselines:
                    opponents["host"] = dict.fromkeys(wide.index.get_level_values("fold"), str(host))
                opponents["best baseline"] = _best_elsewhere(wide, baselines, other=method, metric=metric)
                for role, chosen in opponents.items():
                    if not chosen:
                        continue
                    by_fold, largest = _differences_by_fold(wide, method, chosen), largest_difference(metric)
                    test = corrected_t_test(by_fold, test_train_ratio=test_train_ratio, largest=largest)
                    against = ", ".join(name for name, _ in Counter(chosen.values()).most_common())
                    lower = (test.difference or 0.0) < 0
                    better = lower == (metric in LOWER_IS_BETTER) if test.difference else None
                    rows.append((noise, metric, method, role, against, better, *astuple(test)))
    columns = ["noise", "metric", "method", "role", "against", "better", *PairedTest.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns).astype({"better": object})


def size_ratio(splits: pd.DataFrame) -> float:
    """Test over training size of a study's splits (id, fold, split), averaged over the folds."""
    counts = splits.groupby(["fold", "split"]).size().unstack(fill_value=0)
    if not {"train", "test"} <= set(counts.columns) or not (counts["train"] > 0).all():
        raise SrjtError("The splits need training and test samples in every fold.")
    return float((counts["test"] / counts["train"]).mean())


def _runs_by_method(scores: pd.DataFrame, *, noise: str, metric: str, split: str) -> pd.DataFrame:
    """One row per (fold, seed), one column per method; nan where there is no run."""
    mine = (scores["noise"] == noise) & (scores["metric"] == metric) & (scores["split"] == split)
    plain = scores[mine & (scores["variant"] == "")]
    return plain.pivot_table(index=["fold", "seed"], columns="method", values="value", aggfunc="mean")


def _differences_by_fold(
    wide: pd.DataFrame, method: str, chosen: Mapping[int, str]
) -> list[npt.NDArray[np.float64]]:
    """One row per fold, one column per seed: the method minus the opponent in the fold."""
    names = set(chosen.values())
    off = {name: (wide[method] - wide[name]).unstack("seed").dropna(how="all") for name in names}
    return [off[name].loc[fold].to_numpy() for fold, name in chosen.items() if fold in off[name].index]


def _best_elsewhere(
    wide: pd.DataFrame, candidates: Sequence[str], *, other: str, metric: str
) -> dict[int, str]:
    """For each fold of ``other`` the candidate that is best in the other folds; a single fold chooses by itself.

    The best has the best mean over the runs shared with ``other``, among the candidates that share the most.
    """
    chosen = {}
    shared = wide[wide[other].notna()]
    fold_of = shared.index.get_level_values("fold")
    folds = dict.fromkeys(fold_of)
    for fold in folds:
        elsewhere = shared[fold_of != fold] if len(folds) > 1 else shared
        here = [name for name in candidates if shared.loc[fold_of == fold, name].notna().any()]
        counts = elsewhere[here].notna().sum()
        means = elsewhere[counts.index[(counts == counts.max()) & (counts > 0)]].mean()
        if len(means):
            chosen[int(fold)] = str(means.idxmin() if metric in LOWER_IS_BETTER else means.idxmax())
    return chosen


def ours_minus_host(
    scores: pd.DataFrame, noise: str, metric: str, *, split: str
) -> dict[str, pd.Series[float]]:
    """Name of each "+ours" that has its host in the study → their differences. Index: fold, seed."""
    wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
    pairs = [(name, host) for name in paper_order(wide.columns) if (host := host_of(name))]
    return {name: (wide[name] - wide[host]).dropna() for name, host in pairs if host in wide.columns}


# Does "+ours" improve its host, over all hosts and noises together?
#
# Single comparisons of three to five folds are weak. The mean of a fold's differences over hosts and noises
# is one number per fold, and the same paired test applies to it. Hosts share a fold's patients, so they do
# not count as more folds.


def pool_ours(
    scores: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    *,
    test_train_ratio: float,
    metrics: Sequence[str],
    split: str = "test",
) -> pd.DataFrame:
    """The mean of "+ours" minus host over the hosts and noises of each group, one row per group and metric.

    groups: name → noises. Only folds and seeds that all pairs have are used. Columns: group, metric, hosts and noises
    (how many), pairs, and the fields of PairedTest; no row for a group with fewer than two pairs.
    """
    rows = []
    for group, noises in groups.items():
        for metric in metrics:
            pairs = {
                (noise, name): differences
                for noise in noises
                for name, differences in ours_minus_host(scores, noise, metric, split=split).items()
                if len(differences)
            }
            if len(pairs) < 2:
                continue
            by_fold = pd.DataFrame(pairs).dropna().mean(axis=1).unstack("seed").to_numpy()
            largest = largest_difference(metric)
            test = corrected_t_test(by_fold, test_train_ratio=test_train_ratio, largest=largest)
            of_noise, of_host = zip(*pairs, strict=True)
            rows.append((group, metric, len(set(of_host)), len(set(of_noise)), len(pairs), *astuple(test)))
    columns = ["group", "metric", "hosts", "noises", "pairs", *PairedTest.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns)
