"""A study's results, finished or not, as tables."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.noise.estimate import NoiseEstimate
from srjt.studies.folder import error_file, read_study, run_folder, run_status
from srjt.training.record.metrics_log import last_epochs, read_metrics
from srjt.training.record.run_folder import read_noise_estimate

__all__ = ["StudyResults", "collect_results"]

WHO = ["key", "method", "variant", "noise", "fold", "seed"]


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """What tables, figures and the report are made from."""

    folder: Path
    facts: dict[str, Any]  # study.json
    runs: pd.DataFrame  # one row per cell: WHO, status (done|running|failed|left), seconds, error
    metrics: pd.DataFrame  # tidy: WHO, epoch, split, network, metric, value
    scores: (
        pd.DataFrame
    )  # WHO, split, metric, value: mean over the last ten epochs and networks, of done runs
    confusions: dict[str, np.ndarray]  # key → (C, C) counts on the test side, the networks pooled, rows true
    # noise, kind, fold, seed, rho, told_rate, estimated_rate, nominal_rate, realised_rate, condition_number, matrix
    noise: pd.DataFrame


def collect_results(folder: Path) -> StudyResults:
    """Read everything that is there; runs under way contribute their metrics, but no scores yet."""
    facts = read_study(folder)
    pooled = facts["config"].get("convention") == "published-code"
    runs, metrics, scores, confusions = [], [], [], {}
    for cell in facts["cells"]:
        key, run = cell["key"], run_folder(folder, cell["key"])
        status = run_status(folder, key)
        who = {name: cell[name] for name in WHO}
        found = read_metrics(run / "metrics.csv") if (run / "metrics.csv").exists() else None
        seconds = float("nan")
        if found is not None and len(found):
            metrics.append(found.assign(**who))
            seconds = float(found.loc[found["metric"] == "seconds", "value"].sum())
        if status == "done" and found is not None:
            averages = last_epochs(found, pooled=pooled).drop(columns="std")
            scores.append(averages.assign(**who))
            confusion = json.loads((run / "summary.json").read_text()).get("confusion", {}).get("test")
            if confusion is not None:
                confusions[key] = np.array(confusion)[:-1].sum(axis=0)  # the last one is the ensemble's
        error = ""
        if status == "failed":
            with contextlib.suppress(FileNotFoundError):  # a new try has just begun
                error = error_file(folder, key).read_text()
        runs.append({**who, "status": status, "seconds": seconds, "error": error})
    return StudyResults(
        folder=folder,
        facts=facts,
        runs=pd.DataFrame(runs, columns=[*WHO, "status", "seconds", "error"]),
        metrics=_joined(metrics, [*WHO, "epoch", "split", "network", "metric", "value"]),
        scores=_joined(scores, [*WHO, "split", "metric", "value"]),
        confusions=confusions,
        noise=_noises(folder),
    )


def _estimates(folder: Path, cells: list[dict[str, Any]]) -> dict[tuple[str, int, int], NoiseEstimate]:
    """(noise, fold, seed) → the noise that the methods were told, where it was estimated."""
    found: dict[tuple[str, int, int], NoiseEstimate] = {}
    for cell in cells:
        where = (cell["noise"], cell["fold"], cell["seed"])
        estimate = None if where in found else read_noise_estimate(run_folder(folder, cell["key"]))
        if estimate is not None:
            found[where] = estimate
    return found


def _joined(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _noises(folder: Path) -> pd.DataFrame:
    facts = read_study(folder)
    planned, estimates = facts["noises"], _estimates(folder, facts["cells"])
    found = [json.loads(path.read_text()) for path in (folder / "noise").glob("*.json")]
    rows = []
    for one in found:
        if one["noise"] in planned:
            estimate = estimates.get((one["noise"], one["fold"], one["seed"]))
            rate, matrix = (None, None) if estimate is None else (estimate.rate, estimate.transition.tolist())
            rows.append({**one, "matrix": one["told_matrix"] or matrix, "estimated_rate": rate})
    rows.sort(key=lambda row: (planned.index(row["noise"]), row["seed"], row["fold"]))
    columns = [
        "noise",
        "kind",
        "fold",
        "seed",
        "rho",
        "told_rate",
        "estimated_rate",
        "nominal_rate",
        "realised_rate",
        "condition_number",
        "realised_matrix",
    ]
    return pd.DataFrame(rows, columns=[*columns, "matrix"])
