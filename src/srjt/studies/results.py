"""The results of a study, finished or not, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, count_of, suggest
from srjt.files import is_inside
from srjt.noise.estimate import NoiseEstimate
from srjt.notebook_html import html_block, html_table
from srjt.ordinal.baselines import NaiveBaseline
from srjt.studies.folder import read_error, read_study, run_folder, run_status
from srjt.studies.noise_table import read_noise_table
from srjt.studies.paper import display_name, paper_order
from srjt.studies.rate_source import rate_source
from srjt.training.record.baselines import baseline_from
from srjt.training.record.metrics_log import is_complete, last_epochs, read_metrics
from srjt.training.record.run_folder import RunFacts, read_facts, read_noise_estimate, read_summary

__all__ = ["NAIVE_COLUMNS", "RUN_COLUMNS", "StudyResults", "collect_results"]

RUN_COLUMNS = ["key", "method", "variant", "noise", "fold", "seed"]
NAIVE_COLUMNS = ["noise", "fold", "seed", "metric", "value"]


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """The results of a study, as ``srjt.study`` returns them. Tables, figures and the report are made from these.

    The tables ``runs``, ``metrics`` and ``scores`` share the columns that identify a run: ``key`` (its folder in
    ``runs/``), ``method``, ``variant`` (options such as ``select=soft``, else empty), ``noise``, ``fold``, ``seed``.

    Attributes
    ----------
    folder : Path
        Folder of the study.
    facts : dict
        The contents of ``study.json``: settings, grades, class counts, versions, command.
    runs : DataFrame
        One row per planned run, with ``status`` (done, running, failed or left), ``seconds`` of training,
        ``error`` (the traceback of a failed run), ``rate_source`` (where its noise rate comes from: given, own, for a
        variant with its own rate, estimate, readers or none) and ``used_rate`` (nan: none, or not known yet).
    metrics : DataFrame
        One row per run, ``epoch``, ``split`` (train, validation, test), ``network`` and ``metric``, with its ``value``.
    scores : DataFrame
        One row per finished run, ``split`` and ``metric``. ``value`` is the mean over the last ten epochs and the
        networks; of a run with early stopping (``keep=best``), the mean over the networks at its best epoch.
    confusions : dict of str to ndarray
        Key of a finished run → (C, C) counts on the test side, networks pooled, rows are true grades.
    noise : DataFrame
        One row per noise, fold and seed: ``rho``, ``given_rate`` (to methods that need a rate), ``estimated_rate``,
        ``nominal_rate``, ``realised_rate``, ``condition_number``, ``matrix`` (``matrix_estimated``: whether it is an
        estimate) and ``realised_matrix``.
    naive : DataFrame
        One row per noise, fold, seed and ``metric`` (accuracy, mae): the ``value`` on the test side of one grade for
        all samples, the most frequent training label; for the mae their median.
    damaged : tuple of str
        A sentence for each file about a noise that cannot be read; ``noise`` lacks its row.
    """

    folder: Path
    facts: dict[str, Any]
    runs: pd.DataFrame
    metrics: pd.DataFrame
    scores: pd.DataFrame
    confusions: dict[str, np.ndarray]
    noise: pd.DataFrame
    naive: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=NAIVE_COLUMNS))
    damaged: tuple[str, ...] = ()

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
            Rows: methods in the paper's order. Columns: (noise, metric). ``scores`` has the numbers.
        """
        of_side = self.scores[self.scores["split"] == split]
        for name in metrics:
            if len(of_side) and name not in set(of_side["metric"]):
                raise suggest("metric", name, sorted(set(of_side["metric"])))
        wanted = of_side[of_side["metric"].isin(list(metrics))]
        runs = wanted.groupby(["method", "variant", "noise", "metric"])["value"]
        cells = runs.agg(_mean_and_std).unstack(["noise", "metric"])
        columns = pd.MultiIndex.from_product(
            [dict.fromkeys(self.runs["noise"]), metrics], names=["noise", "metric"]
        )
        order = paper_order(self.runs["method"])
        rows = sorted(cells.index, key=lambda row: (order.index(row[0]), row[1]))
        table = cells.reindex(index=rows, columns=columns).fillna("–")
        table.index = pd.Index([display_name(*row) for row in rows], name="method")
        return table

    def __repr__(self) -> str:
        return f"<StudyResults: {self.folder}, {self._counts()}>"

    def _repr_html_(self) -> str:
        shown = self.table()
        header = ("method", *(" ".join(column) for column in shown.columns.to_list()))
        rows = [(name, *cells) for name, cells in zip(shown.index, shown.to_numpy().tolist(), strict=True)]
        return html_block(
            f"Study in {self.folder}: {self._counts()}",
            html_table(header, rows, caption="Test side: mean ± standard deviation over the finished runs."),
        )

    def _counts(self) -> str:
        status = self.runs["status"].value_counts(sort=False)
        counted = ", ".join(f"{count:,} {name}" for name, count in status.items())
        return f"{count_of(len(self.runs), 'run')} ({counted})"


def _mean_and_std(values: pd.Series[float]) -> str:
    """The standard deviation is the population's, as in the paper; one run has none."""
    return f"{values.mean():.3f}" + (f" ± {values.std(ddof=0):.3f}" if len(values) > 1 else "")


def collect_results(folder: Path) -> StudyResults:
    """Read the results that exist by now; unfinished runs have metrics, but no scores."""
    facts = read_study(folder)
    pooled = facts["config"].get("convention") == "published-code"
    study_rate = facts.get("study", {}).get("noise_rate")
    runs, metrics, scores = [], [], []
    confusions: dict[str, np.ndarray] = {}
    estimates: dict[tuple[str, int, int], NoiseEstimate] = {}
    naive: dict[tuple[str, int, int], NaiveBaseline] = {}
    for planned in facts["cells"]:
        key, run = planned["key"], run_folder(folder, planned["key"])
        status, error, seconds, used_rate = run_status(folder, key), "", float("nan"), float("nan")
        columns = {name: planned[name] for name in RUN_COLUMNS}
        source = rate_source(planned["method"], planned["variant"], study_rate=study_rate)
        try:
            found = _read_run(run, done=status == "done", pooled=pooled)
        except SrjtError as problem:  # one damaged file must not stop the others
            found = None
            status = "failed"
            error = f"{problem} Delete {run} and run the same command again to repeat this run.\n"
            if not all(
                is_inside(run / name, folder) for name in ("metrics.csv", "summary.json", "noise.json")
            ):
                error = f"{run} leads out of the study, and its files cannot be read.\n"  # the error may quote them
        if status == "failed" and not error:
            error = read_error(folder, key)
        if found is not None:
            if found.metrics is not None and len(found.metrics):
                metrics.append(found.metrics.assign(**columns))
                seconds = float(found.metrics.loc[found.metrics["metric"] == "seconds", "value"].sum())
            if found.averages is not None:
                scores.append(found.averages.drop(columns="std").assign(**columns))
            if found.confusion is not None:
                confusions[key] = found.confusion
            labels = (planned["noise"], planned["fold"], planned["seed"])
            if found.estimate is not None and source == "estimate":
                estimates.setdefault(labels, found.estimate)
            if found.naive is not None:
                naive.setdefault(labels, found.naive)
            if (record := found.noise_record) is not None and source != "none":
                used_rate = float("nan") if record["used"] is None else float(record["used"])
                if source == "estimate" and found.estimate is None:  # else an estimate that was not used
                    source = "readers"
        runs.append(
            {
                **columns,
                "status": status,
                "seconds": seconds,
                "error": error,
                "rate_source": source,
                "used_rate": used_rate,
            }
        )
    given_used = any(run["rate_source"] == "given" for run in runs)
    noise, damaged = read_noise_table(folder, facts, estimates, given_used=given_used)
    naive_rows = [
        (*labels, *score) for labels, scores_ in naive.items() for score in scores_._asdict().items()
    ]
    return StudyResults(
        folder=folder,
        facts=facts,
        runs=pd.DataFrame(
            runs, columns=[*RUN_COLUMNS, "status", "seconds", "error", "rate_source", "used_rate"]
        ),
        metrics=_concat(metrics, [*RUN_COLUMNS, "epoch", "split", "network", "metric", "value"]),
        scores=_concat(scores, [*RUN_COLUMNS, "split", "metric", "value"]),
        confusions=confusions,
        noise=noise,
        naive=pd.DataFrame(naive_rows, columns=NAIVE_COLUMNS),
        damaged=damaged,
    )


@dataclass(frozen=True, kw_only=True)
class _RunFiles:
    """What the folder of a run contains by now."""

    metrics: pd.DataFrame | None
    averages: pd.DataFrame | None  # of the last epochs of a finished run
    confusion: np.ndarray | None
    estimate: NoiseEstimate | None
    naive: NaiveBaseline | None  # on the test side
    noise_record: dict[str, Any] | None  # the noise rate that was requested, estimated and used


def _read_run(run: Path, *, done: bool, pooled: bool) -> _RunFiles:
    """The files of a run; an error if one of them is damaged, or lost from a finished run."""
    path = run / "metrics.csv"
    metrics = read_metrics(path) if done or path.exists() else None
    averages = last_epochs(metrics, pooled=pooled) if done and metrics is not None else None
    facts = _known_facts(run)
    confusion, naive = None, None
    if (run / "summary.json").exists():
        summary = read_summary(run)
        counts = summary.get("confusion", {}).get("test")
        confusion = (
            None if counts is None else np.array(counts)[:-1].sum(axis=0)
        )  # the last is the ensemble's
        if counts is not None and facts is not None:
            naive = baseline_from(facts, np.array(counts)[0].sum(axis=1))
        if (
            done
            and metrics is not None
            and not is_complete(metrics, summary, epochs=summary.get("epochs", 0), averages=averages)
        ):
            raise SrjtError(f"{path} does not contain all epochs of the run.")
    estimate = read_noise_estimate(run)
    return _RunFiles(
        metrics=metrics,
        averages=averages,
        confusion=confusion,
        estimate=estimate,
        naive=naive,
        noise_record=_noise_record(facts),
    )


def _known_facts(run: Path) -> RunFacts | None:
    """The facts of a run; None if they cannot be read: its scores do not need them."""
    try:
        return read_facts(run)
    except SrjtError:
        return None


def _noise_record(facts: RunFacts | None) -> dict[str, Any] | None:
    if facts is None or not isinstance(facts.noise, dict) or not {"estimated", "used"} <= facts.noise.keys():
        return None
    return facts.noise


def _concat(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
