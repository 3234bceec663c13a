"""Compare "+ours" with its host and with the best baseline by a paired test over folds.

Folds share training data, so their differences are not independent, and a plain paired t-test reports effects that
do not exist. Nadeau and Bengio (Machine Learning 52, 2003) increase the variance of the mean difference from s²/n to
(1/n + n_test/n_train)·s².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError, suggest
from srjt.ordinal.metrics import METRICS
from srjt.studies.paper import host_of, is_ours, is_recipe, paper_order

__all__ = [
    "LOWER_IS_BETTER",
    "PairedTest",
    "compare_ours",
    "corrected_t_test",
    "fold_differences",
    "size_ratio",
]

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
    differences: npt.ArrayLike, *, test_train_ratio: float, confidence: float = 0.95
) -> PairedTest:
    """Nadeau and Bengio's corrected resampled t-test of paired differences (n,) against 0.

    test_train_ratio: size of a test set over that of a training set, 1/3 for 60/20/20; 0 gives the plain
    paired t-test. With one difference, or with equal differences, there is no test, only the mean.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]

    if not 0.0 <= test_train_ratio < math.inf:
        raise SrjtError(
            f"test_train_ratio is the size of the test set over that of the training set; got {test_train_ratio:g}."
        )
    if not 0.0 < confidence < 1.0:
        raise SrjtError(f"confidence must be between 0 and 1, for example 0.95; got {confidence:g}.")
    values = np.asarray(differences, dtype=np.float64).reshape(-1)
    n = len(values)
    if n < 2:
        return PairedTest(n=n, difference=float(values[0]) if n else None)
    mean, std = float(values.mean()), float(values.std(ddof=1))
    if std <= 1e-12 * np.abs(values).max():  # equal up to rounding
        return PairedTest(n=n, difference=mean, std=0.0)
    error = std * math.sqrt(1.0 / n + test_train_ratio)
    half = float(student.ppf(0.5 + confidence / 2.0, n - 1)) * error
    return PairedTest(
        n=n,
        difference=mean,
        std=std,
        t=mean / error,
        p_value=float(2.0 * student.sf(abs(mean / error), n - 1)),
        low=mean - half,
        high=mean + half,
    )


def fold_differences(
    scores: pd.DataFrame, method: str, against: str, *, noise: str, metric: str, split: str = "test"
) -> pd.Series[float]:
    """``method`` minus ``against`` per fold, over the folds that both have. Index: fold.

    Only runs of the same fold and seed are paired. Seeds are averaged within a fold: they share its data, so
    counting them as folds would overstate the evidence.
    """
    wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
    return _differences(wide, method, against)


def compare_ours(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    metrics: Sequence[str] = ("accuracy", "mae", "macro_f1"),
    split: str = "test",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compare every "+ours" with its host and with the best baseline (by the mean of the same scores); compare a
    recipe, which has no host, with the best baseline and the best "+ours".

    scores: of a study (method, variant, noise, fold, seed, split, metric, value); variants are left out. Columns of
    the result: noise, metric, method, role (host | best + Ours | best baseline), against, better (None: equal or
    unknown) and the fields of PairedTest.
    """
    known = set(scores.loc[scores["split"] == split, "metric"])
    rows = []
    for noise in dict.fromkeys(scores["noise"]):
        for metric in metrics:
            if known and metric not in known:
                raise suggest("metric", metric, known)
            wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
            ordered = paper_order(wide.columns)
            for method in ordered:
                if not is_ours(method):
                    continue
                baselines = [name for name in ordered if not is_ours(name)]
                opponents: dict[str, str | None] = {}
                if is_recipe(method):
                    ours = [name for name in ordered if host_of(name)]
                    opponents["best + Ours"] = _best(wide, ours, other=method, metric=metric)
                else:
                    opponents["host"] = next((name for name in baselines if name == host_of(method)), None)
                opponents["best baseline"] = _best(wide, baselines, other=method, metric=metric)
                for role, against in opponents.items():
                    if against is None:
                        continue
                    test = corrected_t_test(
                        _differences(wide, method, against).to_numpy(),
                        test_train_ratio=test_train_ratio,
                        confidence=confidence,
                    )
                    rows.append(
                        {
                            "noise": noise,
                            "metric": metric,
                            "method": method,
                            "role": role,
                            "against": against,
                            "better": _better(test.difference, metric),
                            **asdict(test),
                        }
                    )
    columns = ["noise", "metric", "method", "role", "against", "better"]
    columns += list(PairedTest.__dataclass_fields__)
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


def _differences(wide: pd.DataFrame, method: str, against: str) -> pd.Series[float]:
    if method not in wide or against not in wide:
        return pd.Series(dtype=np.float64)
    return (wide[method] - wide[against]).dropna().groupby(level="fold").mean()


def _best(wide: pd.DataFrame, baselines: Sequence[str], *, other: str, metric: str) -> str | None:
    """The best mean over the runs shared with ``other``, among the baselines that share the most."""
    shared = wide.loc[wide[other].notna(), list(baselines)]
    counts = shared.notna().sum()
    fullest = [name for name in baselines if counts[name] == counts.max() > 0]
    if not fullest:
        return None
    means = shared[fullest].mean()
    return str(means.idxmin() if metric in LOWER_IS_BETTER else means.idxmax())


def _better(difference: float | None, metric: str) -> bool | None:
    if not difference:
        return None
    return (difference < 0) == (metric in LOWER_IS_BETTER)
