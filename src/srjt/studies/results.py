"""The results of a study, finished or not, as tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.noise.estimate import NoiseEstimate
from srjt.studies.folder import read_error, read_study, run_folder, run_status
from srjt.training.record.metrics_log import last_epochs, read_metrics
from srjt.training.record.run_folder import read_noise_estimate

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
        networks.
    confusions : dict of str to ndarray
        Key of a finished run → (C, C) counts on the test side, networks pooled, rows are true grades.
    noise : DataFrame
        One row per noise, fold and seed: ``rho``, ``given_rate`` (to methods that need a rate), ``estimated_rate``,
        ``nominal_rate``, ``realised_rate``, ``condition_number``, ``matrix`` (``matrix_estimated``: whether it is an
        estimate) and ``realised_matrix``.
    """

    folder: Path
    facts: dict[str, Any]
    runs: pd.DataFrame
    metrics: pd.DataFrame
    scores: pd.DataFrame
    confusions: dict[str, np.ndarray]
    noise: pd.DataFrame


def collect_results(folder: Path) -> StudyResults:
    """Read the results that exist by now; unfinished runs have metrics, but no scores."""
    facts = read_study(folder)
    pooled = facts["config"].get("convention") == "published-code"
    runs, metrics, scores, confusions = [], [], [], {}
    for planned in facts["cells"]:
        key, run = planned["key"], run_folder(folder, planned["key"])
        status = run_status(folder, key)
        columns = {name: planned[name] for name in RUN_COLUMNS}
        found = read_metrics(run / "metrics.csv") if (run / "metrics.csv").exists() else None
        seconds = float("nan")
        if found is not None and len(found):
            metrics.append(found.assign(**columns))
            seconds = float(found.loc[found["metric"] == "seconds", "value"].sum())
        if status == "done" and found is not None:
            averages = last_epochs(found, pooled=pooled).drop(columns="std")
            scores.append(averages.assign(**columns))
            confusion = json.loads((run / "summary.json").read_text()).get("confusion", {}).get("test")
            if confusion is not None:
                confusions[key] = np.array(confusion)[:-1].sum(axis=0)  # the last one is the ensemble's
        error = read_error(folder, key) if status == "failed" else ""
        runs.append({**columns, "status": status, "seconds": seconds, "error": error})
    return StudyResults(
        folder=folder,
        facts=facts,
        runs=pd.DataFrame(runs, columns=[*RUN_COLUMNS, "status", "seconds", "error"]),
        metrics=_concat(metrics, [*RUN_COLUMNS, "epoch", "split", "network", "metric", "value"]),
        scores=_concat(scores, [*RUN_COLUMNS, "split", "metric", "value"]),
        confusions=confusions,
        noise=_noise_table(folder, facts),
    )


def _concat(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def _noise_table(folder: Path, facts: dict[str, Any]) -> pd.DataFrame:
    noises, estimates = facts["noises"], _estimates(folder, facts["cells"])
    rows = []
    for path in (folder / "noise").glob("*.json"):
        row = json.loads(path.read_text())
        if row["noise"] not in noises:  # of an earlier plan
            continue
        estimate = estimates.get((row["noise"], row["fold"], row["seed"]))
        rate, matrix = (None, None) if estimate is None else (estimate.rate, estimate.transition.tolist())
        rows.append(
            {
                **row,
                "given_rate": row["told_rate"],
                "estimated_rate": rate,
                "matrix": row["told_matrix"] or matrix,
                "matrix_estimated": row["told_matrix"] is None and matrix is not None,
            }
        )
    rows.sort(key=lambda row: (noises.index(row["noise"]), row["seed"], row["fold"]))
    return pd.DataFrame(rows, columns=NOISE_COLUMNS)


def _estimates(folder: Path, planned_runs: list[dict[str, Any]]) -> dict[tuple[str, int, int], NoiseEstimate]:
    """(noise, fold, seed) → the noise estimate that the methods used, if there is one."""
    found: dict[tuple[str, int, int], NoiseEstimate] = {}
    for planned in planned_runs:
        place = (planned["noise"], planned["fold"], planned["seed"])
        estimate = None if place in found else read_noise_estimate(run_folder(folder, planned["key"]))
        if estimate is not None:
            found[place] = estimate
    return found
