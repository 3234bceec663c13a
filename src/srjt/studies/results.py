"""The results of a study, finished or not, as tables; its noises, the paper's numbers beside them,
the time that remains; and whether "+ours" is better: paired tests over folds.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import methods as registered
from srjt.errors import Message, SrjtError, count_of, duration, unknown_name
from srjt.files import check_checksums, is_inside
from srjt.noise.estimate import NoiseEstimate
from srjt.notebook import HasPage
from srjt.ordinal import Purpose
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import METRICS, Floats, NaiveBaseline
from srjt.studies.config import rate_source
from srjt.studies.folder import (
    KnownNoise,
    check_splits,
    read_error,
    read_study,
    run_folder,
    run_status,
)
from srjt.training.baselines import baseline_from
from srjt.training.checkpoint import last_epochs, read_metrics
from srjt.training.folder import (
    RESTORE,
    SMALL_FILES,
    RunFacts,
    lost_files,
    read_facts,
    read_noise_estimate,
    read_summary,
)

# The paper's names and order of the methods.

# In the order of the paper's tables, a host directly before its "+ Ours".
DISPLAY_NAMES = {
    "standard": "Standard",
    "sord": "Sord",
    "label-smooth": "Label-smooth",
    "f-correction": "F-correction",
    "reweight": "Reweight",
    "mixup": "Mixup",
    "cdr": "CDR",
    "garg": "Garg",
    "co-teaching": "Co-teaching",
    "co-teaching+ours": "Co-teaching + Ours",
    "jocor": "JoCor",
    "jocor+ours": "JoCor + Ours",
    "codis": "CoDis",
    "codis+ours": "CoDis + Ours",
}
OURS = "+ours"


def host_of(method: str) -> str | None:
    """ "co-teaching+ours" → "co-teaching"; None for a method that is not "+ours"."""
    if not method.endswith(OURS):
        return None
    return method.removesuffix(OURS)


def is_recipe(method: str) -> bool:
    """Whether the method has its own training recipe, as ``srjt`` has; False for an unknown
    method."""
    return method in registered.names() and registered.lookup(method).is_recipe


def is_ours(method: str) -> bool:
    """Whether the method is "+ours" or a recipe, and so not a baseline."""
    return host_of(method) is not None or is_recipe(method)


def display_name(method: str, variant: str = "") -> str:
    """The name in tables and figures; the paper's name if it has one."""
    host = host_of(method)
    name = DISPLAY_NAMES.get(method, method)
    if host and method not in DISPLAY_NAMES:
        name = f"{display_name(host)} + Ours"
    shown = variant.replace(",", ", ").replace("keep=best", "early stopping")
    if shown:
        return f"{name} ({shown})"
    return name


def paper_order(methods: Iterable[str]) -> list[str]:
    """Methods in the paper's order; your own follow in the given order, each "+ours" directly after
    its host."""
    given = list(dict.fromkeys(methods))

    def place(method: str) -> tuple[int, int, int]:
        if method in DISPLAY_NAMES:
            return 0, list(DISPLAY_NAMES).index(method), 0
        host = host_of(method)
        if host in given:
            return (1, given.index(host), 1)
        return (1, given.index(method), 0)

    return sorted(given, key=place)


# The noises of a study, one row per noise, fold and seed: injected, given and estimated.

NOISE_COLUMNS = [
    *("noise", "kind", "fold", "seed", "rho", "given_rate", "estimated_rate", "nominal_rate"),
    *("realised_rate", "condition_number", "realised_matrix", "matrix", "matrix_estimated"),
    *("estimated_low", "estimated_high", "determined"),
]


def _noise_table(
    recorded: list[KnownNoise],
    estimates: dict[tuple[str, int, int], NoiseEstimate],
    *,
    given_used: bool,
) -> pd.DataFrame:
    """recorded: ``noise`` of ``study.json``. estimates: (noise, fold, seed) → the noise estimate
    that the methods made. given_used: whether a method uses the noise that the study knows."""
    rows = []
    for known in recorded:
        estimate = estimates.get((known.noise, known.fold, known.seed))
        low = high = math.nan
        determined = False
        if estimate is not None:
            low, high = estimate.rate_interval
            determined = estimate.informed and estimate.identifiable
        if estimate is not None and not estimate.informed:
            estimate = None  # of networks that know nothing: it is none, here as in run.json
        matrix = known.told_matrix if given_used or known.kind != "none" else None
        row = {
            **known.model_dump(),
            "given_rate": known.told_rate if given_used else None,
            "estimated_rate": None,
            "matrix": matrix,
            "matrix_estimated": False,
            "estimated_low": low,
            "estimated_high": high,
            "determined": determined,
        }
        if matrix is None:
            row["condition_number"] = None
        if estimate is not None:
            row["estimated_rate"] = estimate.rate
        if estimate is not None and matrix is None:
            row["matrix"] = estimate.transition.tolist()
            row["matrix_estimated"] = True
        rows.append(row)
    return pd.DataFrame(rows, columns=NOISE_COLUMNS)


# The results of a study, finished or not, as tables.

RUN_COLUMNS = ["key", "method", "variant", "noise", "fold", "seed"]
OUTCOME_COLUMNS = ["status", "seconds", "error", "rate_source", "used_rate", "network"]
NAIVE_COLUMNS = ["noise", "fold", "seed", "metric", "value"]


@dataclass(frozen=True, kw_only=True)
class StudyResults(HasPage):
    """The results of a study, as ``srjt.study`` returns them. Tables, figures and the report are
    made from these.

    The tables ``runs``, ``metrics`` and ``scores`` share the columns that identify a run: ``key``
    (its folder in ``runs/``), ``method``, ``variant`` (options such as ``select=soft``, else
    empty), ``noise``, ``fold``, ``seed``.

    Attributes
    ----------
    folder : Path
        Folder of the study.
    facts : dict
        The contents of ``study.json``: settings, grades, class counts, versions, command.
    runs : DataFrame
        One row per planned run, with ``status`` (done, running, failed or left), ``seconds`` of
        training, ``error`` (the traceback of a failed run), ``rate_source`` (where its noise rate
        comes from: given, own, for a variant with its own rate, estimate, readers or none),
        ``used_rate`` (nan: none, or not known yet) and ``network`` ("": not known yet).
    metrics : DataFrame
        One row per run, ``epoch``, ``split`` (train, validation, test), ``network`` and ``metric``,
        with its ``value``.
    scores : DataFrame
        One row per finished run, ``split`` and ``metric``. ``value`` is the mean over the last ten
        epochs and the networks; of a run with early stopping (``keep=best``), the mean over the
        networks at its best epoch.
    confusions : dict of str to ndarray
        Key of a finished run → (C, C) counts on the test side of the networks' ensemble, one per
        sample; rows are the grades that judge it.
    noise : DataFrame
        One row per noise, fold and seed: ``rho``, ``given_rate`` (to methods that need a rate),
        ``estimated_rate``, ``nominal_rate``, ``realised_rate``, ``condition_number``, ``matrix``
        (``matrix_estimated``: whether it is an estimate) and ``realised_matrix``; ``estimated_low``
        and ``estimated_high``, the 95 % interval of the estimate, and ``determined``, whether the
        labels determine it: otherwise only the interval means something.
    naive : DataFrame
        One row per noise, fold, seed and ``metric`` (accuracy, mae): the ``value`` on the test side
        of one grade for all samples, the most frequent training label; for the mae their median.
    """

    folder: Path
    facts: dict[str, Any]
    runs: pd.DataFrame
    metrics: pd.DataFrame
    scores: pd.DataFrame
    confusions: dict[str, np.ndarray]
    noise: pd.DataFrame
    naive: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=NAIVE_COLUMNS))

    def table(
        self, metrics: Sequence[str] = ("accuracy", "mae", "macro_f1"), *, split: str = "test"
    ) -> pd.DataFrame:
        """The comparison of the methods: mean ± standard deviation over the finished runs, as text.

        Parameters
        ----------
        metrics : sequence of str
            Metrics of ``scores``.
        split : {"test", "validation"}
            The side that was evaluated.

        Returns
        -------
        DataFrame
            Rows: methods in the paper's order. Columns: (noise, metric). ``scores`` has the
            numbers.
        """
        of_side = self.scores[self.scores["split"] == split]
        for name in metrics:
            if len(of_side) and name not in set(of_side["metric"]):
                raise unknown_name("metric", name, sorted(set(of_side["metric"])))
        wanted = of_side[of_side["metric"].isin(list(metrics))]
        runs = wanted.groupby(["method", "variant", "noise", "metric"])["value"]
        cells = runs.agg(_mean_and_std).unstack(["noise", "metric"])
        noises = dict.fromkeys(self.runs["noise"])
        columns = pd.MultiIndex.from_product([noises, metrics], names=["noise", "metric"])
        order = paper_order(self.runs["method"])
        rows = sorted(cells.index, key=lambda row: (order.index(row[0]), row[1]))
        table = cells.reindex(index=rows, columns=columns).fillna("–")
        table.index = pd.Index([display_name(*row) for row in rows], name="method")
        return table

    def __repr__(self) -> str:
        status = self.runs["status"].value_counts(sort=False)
        counted = ", ".join(f"{count:,} {name}" for name, count in status.items())
        return f"<StudyResults: {self.folder}, {count_of(len(self.runs), 'run')} ({counted})>"


def _mean_and_std(values: pd.Series[float]) -> str:
    """The standard deviation is the population's, as in the paper; one run has none."""
    mean = f"{values.mean():.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=0):.3f}"


@dataclass(frozen=True, kw_only=True)
class _RunFiles:
    """What the folder of a run holds by now; None where there is nothing."""

    status: str
    table: pd.DataFrame | None = None  # metrics.csv
    estimate: NoiseEstimate | None = None
    summary: dict[str, Any] | None = None
    about: RunFacts | None = None
    error: str = ""


def _read_run(folder: Path, key: str) -> _RunFiles:
    """The files of a run; a damaged one makes it a failed run, and does not stop the others."""
    run = run_folder(folder, key)
    status = run_status(folder, key)
    table = summary = about = None
    try:  # an error if a file is damaged, or lost from a finished run
        if (run / "summary.json").exists():
            check_checksums(run, *SMALL_FILES, advice=RESTORE)
            if lost := lost_files(run):
                raise SrjtError(
                    f"{run / lost[0]} is missing, but the run has finished.", code="damaged_file"
                )
        estimate = read_noise_estimate(run)
        if (run / "summary.json").exists():
            summary = read_summary(run)
        if status == "done" or (run / "metrics.csv").exists():
            epochs = None
            if status == "done" and summary:
                epochs = summary["epochs"]
            table = read_metrics(run / "metrics.csv", epochs=epochs)
        with contextlib.suppress(SrjtError):  # the scores do not need them
            about = read_facts(run)
    except SrjtError as problem:
        error = f"{problem} Delete {run} and run the same command again to repeat this run.\n"
        read = ("metrics.csv", "summary.json", "noise.json")
        if not all(is_inside(run / name, folder) for name in read):  # the error may quote them
            error = f"{run} leads out of the study, and its files cannot be read.\n"
        return _RunFiles(status="failed", about=about, error=error)
    error = ""
    if status == "failed":
        error = read_error(folder, key)
    return _RunFiles(
        status=status, table=table, estimate=estimate, summary=summary, about=about, error=error
    )


def collect_results(folder: Path) -> StudyResults:
    """Read the results that exist by now; unfinished runs have metrics, but no scores."""
    study = read_study(folder)
    check_splits(folder, study)
    pooled = study.study.train.get("convention") == "published-code"
    runs = []
    metrics = []
    scores = []
    confusions: dict[str, np.ndarray] = {}
    estimates: dict[tuple[str, int, int], NoiseEstimate] = {}
    naive: dict[tuple[str, int, int], NaiveBaseline] = {}
    for cell in study.cells:
        identity = cell.model_dump()
        labels = (cell.noise, cell.fold, cell.seed)
        source = rate_source(cell.method, cell.variant, study_rate=study.study.noise_rate)
        seconds = used_rate = math.nan
        network = ""
        run = _read_run(folder, cell.key)
        table = run.table
        about = run.about
        if table is not None and len(table):
            metrics.append(table.assign(**identity))
            seconds = float(table.loc[table["metric"] == "seconds", "value"].sum())
            if run.status == "done":
                averaged = last_epochs(table, pooled=pooled).drop(columns="std")
                scores.append(averaged.assign(**identity))
        if run.summary is not None and "test" in run.summary["confusion"]:
            counts = np.array(run.summary["confusion"]["test"])
            confusions[cell.key] = counts[-1]  # the ensemble's: each sample counts once
            baseline = None
            if about is not None:
                baseline = baseline_from(about, counts[0].sum(axis=1))
            if baseline is not None:
                naive.setdefault(labels, baseline)
        if run.estimate is not None and source == "estimate":
            estimates.setdefault(labels, run.estimate)
        if about is not None:
            network = about.config.network_name
        if about is not None and about.noise is not None and source != "none":
            if about.noise["used"] is not None:
                used_rate = float(about.noise["used"])
            if source == "estimate" and run.estimate is None:  # else one that was not used
                source = "readers"
        outcome = (run.status, seconds, run.error, source, used_rate, network)
        runs.append((*identity.values(), *outcome))
    run_table = pd.DataFrame(runs, columns=[*RUN_COLUMNS, *OUTCOME_COLUMNS])
    given_used = bool((run_table["rate_source"] == "given").any())
    naive_rows = []
    for labels, baseline in naive.items():
        naive_rows += [(*labels, *score) for score in baseline._asdict().items()]
    return StudyResults(
        folder=folder,
        facts=study.facts(),
        runs=run_table,
        metrics=_concat(metrics, [*RUN_COLUMNS, "epoch", "split", "network", "metric", "value"]),
        scores=_concat(scores, [*RUN_COLUMNS, "split", "metric", "value"]),
        confusions=confusions,
        noise=_noise_table(study.noise, estimates, given_used=given_used),
        naive=pd.DataFrame(naive_rows, columns=NAIVE_COLUMNS),
    )


def _concat(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame(columns=columns)
    return pd.concat(tables, ignore_index=True)[columns]


# The state of a study, and the remaining time, estimated from the finished runs.


def remaining_seconds(results: StudyResults) -> float | None:
    """Seconds of training that remain, one run after the other; None before the first run has
    finished.

    A network counts as the median of those of the finished runs. A run in progress counts in full.
    """
    runs = results.runs
    done = runs["status"] == "done"
    if not done.any():
        return None
    imports = results.facts["study"]["train"].get("imports", ())
    networks = runs["method"].map(
        lambda name: registered.lookup(name, registered_by=imports).networks
    )
    return float((runs["seconds"] / networks)[done].median() * networks[~done].sum())


def status_lines(results: StudyResults) -> Iterator[str]:
    """What ``srjt study status`` prints."""
    runs = results.runs
    counts = runs["status"].value_counts()
    parts = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed", "left")]
    yield f"{count_of(len(runs), 'run')}: {', '.join(parts)}."
    seconds = remaining_seconds(results)
    if counts.get("done", 0) < len(runs):
        if seconds is None:
            yield "No run has finished yet: the remaining time is unknown."
        else:
            parallel = max(1, int(counts.get("running", 0)))
            yield (
                f"About {duration(seconds)} of training remain ({duration(seconds / parallel)} with"
                f" {count_of(parallel, 'run')} at a time), by the median of the finished runs;"
                " start-up is not counted."
            )
    yield from problem_lines(results)


def problem_lines(results: StudyResults) -> Iterator[str]:
    """One line per failed run."""
    runs = results.runs
    for _, run in runs[runs["status"] == "failed"].iterrows():
        # read again: a table holds text, and the message names options
        kept = read_error(results.folder, run["key"])
        lines = run["error"].strip().splitlines() or ["no error message"]
        whole = isinstance(kept, Message) and kept == run["error"] and len(lines) == 1
        reason = kept if whole else lines[-1]
        yield Message(f"failed: {run['key']}: ", reason)


# Compare "+ours" with its host and with the best baseline by a paired test over folds.
#
# A fold has its own test patients and its own trainings, so the variance between folds contains
# both. Folds share training data, so their differences are not independent, and a plain paired
# t-test reports effects that do not exist. Nadeau and Bengio (Machine Learning 52, 2003) increase
# the variance of the mean difference from s²/n to (1/n + n_test/n_train)·s².
#
# The best of several methods looks better on the results that it was chosen by than on others. So
# the opponent in a fold is the method that is best in the *other* folds, whose test patients are
# others.

CONFIDENCE = 0.95
LOWER_IS_BETTER = frozenset(name for name, metric in METRICS.items() if metric.lower_is_better)


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """The mean of n paired differences with its test and confidence interval; None where there is
    none."""

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
    """Nadeau and Bengio's corrected resampled t-test of paired differences against 0: of n folds
    (n,), or of n folds and S seeds (n, S), nan where there is no run.

    Seeds are averaged within a fold. What a seed does to all folds, such as its initial weights,
    does not show between the folds: its variance over S, estimated between the seeds, is added (a
    two-way random-effects model), with Satterthwaite's degrees of freedom. One seed cannot show it.

    test_train_ratio: size of a test set over that of a training set, 1/3 for 60/20/20; 0 gives the
    plain paired t-test. With one or two differences, or with equal ones, there is no test, only the
    mean: an interval of two would be wider than the range of most metrics. largest: the largest
    difference that the metric allows.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]

    table = np.asarray(differences, dtype=np.float64)
    if not table.size:
        return PairedTest(n=0, difference=None)
    if table.ndim != 2:
        table = table.reshape(-1, 1)
    values = np.nanmean(table, axis=1)
    n = len(values)
    if n < 2:
        return PairedTest(n=n, difference=float(values[0]))
    mean = float(values.mean())
    std = float(values.std(ddof=1))
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


def _seed_variance(table: Floats) -> tuple[float, int]:
    """(n, S) differences of folds and seeds → the variance of their mean by effects of the seeds on
    all folds, and its degrees of freedom. Of the variance between the seeds' means, 1/n of that of
    single runs is chance.
    """
    table = table[np.isfinite(table).all(axis=1)]
    folds, seeds = table.shape
    if folds < 2 or seeds < 2:
        return 0.0, 1
    single = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    chance = float((single**2).sum()) / ((folds - 1) * (seeds - 1))
    variance = float(table.mean(axis=0).var(ddof=1)) - chance / folds
    return max(0.0, variance) / seeds, seeds - 1


def largest_difference(metric: str) -> float:
    """Of two values of a metric: 1 for a share, 2 for a coefficient, and no limit for a distance
    between grades."""
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
    """Compare every "+ours" with its host and with the best baseline; compare a recipe, which has
    no host, with the best baseline and the best "+ours". The best is chosen for each fold by the
    other folds; a single fold chooses by itself.

    scores: of a study (method, variant, noise, fold, seed, split, metric, value); variants are left
    out. Columns of the result: noise, metric, method, role (host | best + Ours | best baseline),
    against (several, if folds choose differently: "sord, cdr", the most frequent first), better
    (None: equal or unknown) and the fields of PairedTest.
    """
    known = set(scores.loc[scores["split"] == split, "metric"])
    rows = []
    for noise, metric in product(dict.fromkeys(scores["noise"]), metrics):
        if known and metric not in known:
            raise unknown_name("metric", metric, known)
        wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
        ordered = paper_order(wide.columns)
        baselines = [name for name in ordered if not is_ours(name)]
        for method in filter(is_ours, ordered):
            opponents: dict[str, dict[int, str]] = {}  # role → fold → method
            if is_recipe(method):
                ours = [name for name in ordered if host_of(name)]
                opponents["best + Ours"] = _best_elsewhere(wide, ours, other=method, metric=metric)
            elif (host := host_of(method)) in baselines:
                opponents["host"] = dict.fromkeys(wide.index.get_level_values("fold"), str(host))
            opponents["best baseline"] = _best_elsewhere(
                wide, baselines, other=method, metric=metric
            )
            for role, chosen in opponents.items():
                if not chosen:
                    continue
                by_fold = _differences_by_fold(wide, method, chosen)
                largest = largest_difference(metric)
                test = corrected_t_test(by_fold, test_train_ratio=test_train_ratio, largest=largest)
                against = ", ".join(name for name, _ in Counter(chosen.values()).most_common())
                better = None
                if test.difference:
                    better = (test.difference < 0) == (metric in LOWER_IS_BETTER)
                rows.append((noise, metric, method, role, against, better, *astuple(test)))
    columns = [
        "noise",
        "metric",
        "method",
        "role",
        "against",
        "better",
        *PairedTest.__dataclass_fields__,
    ]
    return pd.DataFrame(rows, columns=columns).astype({"better": object})


def gains_over_one_grade(
    scores: pd.DataFrame, naive: pd.DataFrame, *, metric: Purpose, test_train_ratio: float
) -> dict[tuple[str, str, str], Gain]:
    """(method, variant, noise) → what its runs gain over one grade for all, with a paired test over
    folds.

    scores: of finished runs on the test side. naive: of the same folds and seeds, as in
    ``StudyResults``. Fewer than three folds have no interval, so they never show that a method is
    better.
    """
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    both = scores[scores["metric"] == metric].merge(
        naive, on=["noise", "fold", "seed", "metric"], suffixes=("", "_naive")
    )
    gains: dict[tuple[str, str, str], Gain] = {}
    for (method, variant, noise), runs in both.groupby(["method", "variant", "noise"], sort=False):
        differences = runs.assign(gain=sign * (runs["value"] - runs["value_naive"]))
        by_fold = differences.pivot_table(index="fold", columns="seed", values="gain").to_numpy()
        test = corrected_t_test(
            by_fold, test_train_ratio=test_train_ratio, largest=largest_difference(metric)
        )
        gains[str(method), str(variant), str(noise)] = Gain(
            metric=metric,
            score=float(runs["value"].mean()),
            naive=float(runs["value_naive"].mean()),
            low=math.nan if test.low is None else test.low,
        )
    return gains


def size_ratio(splits: pd.DataFrame) -> float:
    """Test over training size of a study's splits (id, fold, split), averaged over the folds."""
    counts = splits.groupby(["fold", "split"]).size().unstack(fill_value=0)
    if not {"train", "test"} <= set(counts.columns) or not (counts["train"] > 0).all():
        raise SrjtError("The splits need training and test samples in every fold.", code="no_split")
    return float((counts["test"] / counts["train"]).mean())


def _runs_by_method(scores: pd.DataFrame, *, noise: str, metric: str, split: str) -> pd.DataFrame:
    """One row per (fold, seed), one column per method; nan where there is no run."""
    mine = (scores["noise"] == noise) & (scores["metric"] == metric) & (scores["split"] == split)
    plain = scores[mine & (scores["variant"] == "")]
    return plain.pivot_table(
        index=["fold", "seed"], columns="method", values="value", aggfunc="mean"
    )


def _differences_by_fold(
    wide: pd.DataFrame, method: str, chosen: Mapping[int, str]
) -> list[Floats]:
    """One row per fold, one column per seed: the method minus the opponent in the fold."""
    names = set(chosen.values())
    off = {name: (wide[method] - wide[name]).unstack("seed").dropna(how="all") for name in names}
    rows = []
    for fold, name in chosen.items():
        if fold in off[name].index:
            rows.append(off[name].loc[fold].to_numpy())
    return rows


def _best_elsewhere(
    wide: pd.DataFrame, candidates: list[str], *, other: str, metric: str
) -> dict[int, str]:
    """For each fold of ``other`` the candidate that is best in the other folds; a single fold
    chooses by itself.

    The best has the best mean over the runs shared with ``other``, among the candidates that share
    the most.
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
            best = means.idxmax()
            if metric in LOWER_IS_BETTER:
                best = means.idxmin()
            chosen[int(fold)] = str(best)
    return chosen


def ours_minus_host(
    scores: pd.DataFrame, noise: str, metric: str, *, split: str
) -> dict[str, pd.Series[float]]:
    """Name of each "+ours" that has its host in the study → their differences. Index: fold,
    seed."""
    wide = _runs_by_method(scores, noise=noise, metric=metric, split=split)
    differences = {}
    for name in paper_order(wide.columns):
        host = host_of(name)
        if host in wide.columns:
            differences[name] = (wide[name] - wide[host]).dropna()
    return differences


# Does "+ours" improve its host, over all hosts and noises together?
#
# Single comparisons of three to five folds are weak. The mean of a fold's differences over hosts
# and noises is one number per fold, and the same paired test applies to it. Hosts share a fold's
# patients, so they do not count as more folds.


def pool_ours(
    scores: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    *,
    test_train_ratio: float,
    metrics: Sequence[str],
    split: str = "test",
) -> pd.DataFrame:
    """The mean of "+ours" minus host over the hosts and noises of each group, one row per group and
    metric.

    groups: name → noises. Only folds and seeds that all pairs have are used. Columns: group,
    metric, hosts and noises (how many), pairs, and the fields of PairedTest; no row for a group
    with fewer than two pairs.
    """
    rows = []
    for (group, noises), metric in product(groups.items(), metrics):
        pairs = {}
        for noise in noises:
            by_name = ours_minus_host(scores, noise, metric, split=split)
            for name, differences in by_name.items():
                if len(differences):
                    pairs[noise, name] = differences
        if len(pairs) < 2:
            continue
        by_fold = pd.DataFrame(pairs).dropna().mean(axis=1).unstack("seed").to_numpy()
        largest = largest_difference(metric)
        test = corrected_t_test(by_fold, test_train_ratio=test_train_ratio, largest=largest)
        of_noise, of_host = zip(*pairs, strict=True)
        rows.append(
            (group, metric, len(set(of_host)), len(set(of_noise)), len(pairs), *astuple(test))
        )
    columns = ["group", "metric", "hosts", "noises", "pairs", *PairedTest.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns)
