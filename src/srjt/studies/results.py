"""The results of a study, finished or not, as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, count_of, suggest
from srjt.files import is_inside
from srjt.noise.estimate import NoiseEstimate
from srjt.notebook_html import html_block, html_table
from srjt.studies.folder import read_error, read_study, run_folder, run_status
from srjt.studies.paper import display_name, paper_order
from srjt.training.record.metrics_log import is_complete, last_epochs, read_metrics
from srjt.training.record.run_folder import read_noise_estimate, read_summary

__all__ = ["RUN_COLUMNS", "StudyResults", "collect_results"]

RUN_COLUMNS = ["key", "method", "variant", "noise", "fold", "seed"]
NOISE_COLUMNS = [
    "noise",
    "kind",
    "fold",
    "seed",
    "rho",
    "given_rate",
    "estimated_rate",
    "nominal_rate",
    "realised_rate",
    "condition_number",
    "realised_matrix",
    "matrix",
    "matrix_estimated",
]


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
        One row per planned run, with ``status`` (done, running, failed or left), ``seconds`` of training and
        ``error`` (the traceback of a failed run).
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
    runs, metrics, scores = [], [], []
    confusions: dict[str, np.ndarray] = {}
    estimates: dict[tuple[str, int, int], NoiseEstimate] = {}
    for planned in facts["cells"]:
        key, run = planned["key"], run_folder(folder, planned["key"])
        status, error, seconds = run_status(folder, key), "", float("nan")
        columns = {name: planned[name] for name in RUN_COLUMNS}
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
            if found.estimate is not None:
                estimates.setdefault((planned["noise"], planned["fold"], planned["seed"]), found.estimate)
        runs.append({**columns, "status": status, "seconds": seconds, "error": error})
    noise, damaged = _noise_table(folder, facts, estimates)
    return StudyResults(
        folder=folder,
        facts=facts,
        runs=pd.DataFrame(runs, columns=[*RUN_COLUMNS, "status", "seconds", "error"]),
        metrics=_concat(metrics, [*RUN_COLUMNS, "epoch", "split", "network", "metric", "value"]),
        scores=_concat(scores, [*RUN_COLUMNS, "split", "metric", "value"]),
        confusions=confusions,
        noise=noise,
        damaged=damaged,
    )


@dataclass(frozen=True, kw_only=True)
class _RunFiles:
    """What the folder of a run contains by now."""

    metrics: pd.DataFrame | None
    averages: pd.DataFrame | None  # of the last epochs of a finished run
    confusion: np.ndarray | None
    estimate: NoiseEstimate | None


def _read_run(run: Path, *, done: bool, pooled: bool) -> _RunFiles:
    """The files of a run; an error if one of them is damaged, or lost from a finished run."""
    path = run / "metrics.csv"
    metrics = read_metrics(path) if done or path.exists() else None
    averages = last_epochs(metrics, pooled=pooled) if done and metrics is not None else None
    confusion = None
    if (run / "summary.json").exists():
        summary = read_summary(run)
        counts = summary.get("confusion", {}).get("test")
        confusion = (
            None if counts is None else np.array(counts)[:-1].sum(axis=0)
        )  # the last is the ensemble's
        if (
            done
            and metrics is not None
            and not is_complete(metrics, summary, epochs=summary.get("epochs", 0), averages=averages)
        ):
            raise SrjtError(f"{path} does not contain all epochs of the run.")
    estimate = read_noise_estimate(run)
    return _RunFiles(metrics=metrics, averages=averages, confusion=confusion, estimate=estimate)


def _concat(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def _noise_table(
    folder: Path, facts: dict[str, Any], estimates: dict[tuple[str, int, int], NoiseEstimate]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The noises, and a sentence for each file that cannot be read.

    estimates: (noise, fold, seed) → the noise estimate that the methods used.
    """
    noises = facts["noises"]
    rows, damaged = [], []
    for path in sorted((folder / "noise").glob("*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            if row["noise"] not in noises:  # of an earlier plan
                continue
            estimate = estimates.get((row["noise"], row["fold"], row["seed"]))
            rate, matrix = (None, None) if estimate is None else (estimate.rate, estimate.transition.tolist())
            missing = {"kind", "rho", "nominal_rate", "realised_rate", "condition_number"} - row.keys()
            if missing:
                raise ValueError(f"no {min(missing)}")
            rows.append(
                {
                    **row,
                    "given_rate": row["told_rate"],
                    "estimated_rate": rate,
                    "matrix": row["told_matrix"] or matrix,
                    "matrix_estimated": row["told_matrix"] is None and matrix is not None,
                }
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            damaged.append(
                f"{path} is damaged or not from srjt ({type(problem).__name__}: {problem}): run the command of the "
                "study again to write it anew."
            )
    rows.sort(key=lambda row: (noises.index(row["noise"]), row["seed"], row["fold"]))
    return pd.DataFrame(rows, columns=NOISE_COLUMNS), tuple(damaged)
