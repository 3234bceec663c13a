"""Scores of made-up studies, and what stands where in a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from srjt.reports.study_tables import PAPER_METRICS, StudyTables
from srjt.reports.table import Table, TableCell
from srjt.studies.paper import PUBLISHED_COUNTS, paper_results
from srjt.studies.results import StudyResults

NAMES = ["key", "method", "variant", "noise", "fold", "seed"]
SOFT = "select=soft,update=soft"


def scores(
    *cells: tuple[str, str, list[float] | dict[Any, float]], metric: str = "accuracy"
) -> pd.DataFrame:
    """(method or method[variant], noise, values by fold or by (fold, seed)) …"""
    rows = []
    for who, noise, values in cells:
        method, _, variant = who.rstrip("]").partition("[")
        runs = (
            values if isinstance(values, dict) else {(fold, 0): v for fold, v in enumerate(values)}
        )
        for (fold, seed), value in runs.items():
            rows.append(
                (
                    f"{who}-{noise}-{fold}-{seed}",
                    method,
                    variant,
                    noise,
                    fold,
                    seed,
                    "test",
                    metric,
                    value,
                )
            )
    return pd.DataFrame(rows, columns=[*NAMES, "split", "metric", "value"])


def planned(table: pd.DataFrame, **status: str) -> pd.DataFrame:
    """All runs of the scores as done, but for those named: key with dashes → status."""
    runs = table[NAMES].drop_duplicates().assign(status="done", seconds=1.0, error="")
    for key, what in status.items():
        runs.loc[runs["key"] == key, "status"] = what
    return runs


def as_printed(dataset: str, table: str = "comparison") -> pd.DataFrame:
    """The paper's means as if they were runs of one fold."""
    found = paper_results().query("dataset == @dataset and table == @table")
    variants = [
        f"select={s},update={u}" if s else ""
        for s, u in zip(found["select"], found["update"], strict=True)
    ]
    noise = [
        k if k == "none" else f"{k}:{r:g}"
        for k, r in zip(found["noise"], found["rate"], strict=True)
    ]
    shown = found.assign(
        variant=variants, noise=noise, fold=0, seed=0, split="test", value=found["mean"]
    )
    keys = [f"{m}-{v}-{n}" for m, v, n in zip(found["method"], variants, noise, strict=True)]
    return shown.assign(key=keys)[[*NAMES, "split", "metric", "value"]]


def column(table: Table, name: str) -> dict[str, TableCell]:
    """The cells of a column, by the text of the row's labels."""
    place = [c.name for c in table.columns].index(name)
    labels = [i for i, c in enumerate(table.columns) if c.kind == "text"]
    return {" ".join(row.cells[i].text for i in labels): row.cells[place] for row in table.rows}


def marked(table: Table, name: str, mark: str) -> set[str]:
    return {label for label, cell in column(table, name).items() if cell.mark == mark}


def results_of(
    table: pd.DataFrame, *, runs: pd.DataFrame | None = None, preset: str | None = None
) -> StudyResults:
    """Without a plan, all runs of the scores are planned and done. Five folds: test/train is
    1/3."""
    counts = PUBLISHED_COUNTS.get(preset or "", (5, 5))
    study = {"preset": preset, "train": {}, "noise_rate": 0.3 if preset == "dr" else None}
    facts = {"name": "mine", "study": study, "class_counts": counts, "folds": 5}
    nothing: dict[str, Any] = {"metrics": pd.DataFrame(), "confusions": {}, "noise": pd.DataFrame()}
    runs = planned(table) if runs is None else runs
    return StudyResults(folder=Path("none"), facts=facts, runs=runs, scores=table, **nothing)


def tables_of(
    table: pd.DataFrame,
    *,
    metrics: Sequence[str] = PAPER_METRICS,
    paper: str | None = None,
    **options: Any,
) -> StudyTables:
    return StudyTables(results_of(table, preset=paper, **options), metrics)


def comparison_tables(table: pd.DataFrame, **options: Any) -> list[Table]:
    return tables_of(table, **options).comparison()


def ablation_tables(table: pd.DataFrame, **options: Any) -> list[Table]:
    return tables_of(table, **options).ablation()


def paired_tables(table: pd.DataFrame, **options: Any) -> list[Table]:
    return tables_of(table, **options).paired()


def pooled_table(table: pd.DataFrame, **options: Any) -> list[Table]:
    return tables_of(table, **options).pooled()
