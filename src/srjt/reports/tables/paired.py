"""The paired tests of "+ours" as a table, without stars and colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from srjt.reports.noise_names import noise_label
from srjt.reports.tables.statistics import (
    PAPER_METRICS,
    by_kind,
    collect_values,
    decimals,
    finished,
    metric_label,
    table_title,
)
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER, compare_ours
from srjt.studies.paper import display_name, paper_order

__all__ = ["paired_tables"]


def paired_tables(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    runs: pd.DataFrame | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    confidence: float = 0.95,
) -> list[Table]:
    """Every "+ours" against its host and the best baseline, one table per kind of noise; none without "+ours"."""
    study = collect_values(scores, runs, metrics=metrics, split=split)
    tests = compare_ours(
        finished(scores, runs),
        test_train_ratio=test_train_ratio,
        metrics=metrics,
        split=split,
        confidence=confidence,
    ).to_dict("records")
    tables = []
    for kind, noises in by_kind(study).items():
        rows: list[Row] = []
        for method in paper_order(str(test["method"]) for test in tests):
            of_method = [
                test
                for noise in noises
                for test in tests
                if (test["method"], test["noise"]) == (method, noise)
            ]
            for number, test in enumerate(_merge_roles(of_method)):
                rows.append(Row(cells=_paired_cells(test), rule=bool(rows) and number == 0))
        if rows:
            tables.append(
                Table(
                    slug=f"paired-{kind}",
                    title=table_title("Paired comparison", kind, data),
                    caption=f"Mean difference over the folds that both methods have, with its {confidence:.0%} "
                    "interval and two-sided p-value by the corrected resampled t-test (Nadeau and Bengio, 2003; "
                    f"test/train = {test_train_ratio:.3g}); seeds are averaged within a fold. The best baseline and "
                    "the best “+ Ours” are chosen by the mean of the same results. p-values are not adjusted for the "
                    f"number of comparisons; “{MISSING}”: too few different folds for a test.",
                    columns=_paired_columns(confidence),
                    rows=tuple(rows),
                )
            )
    return tables


def _merge_roles(tests: Sequence[Mapping[Any, Any]]) -> list[dict[Any, Any]]:
    """One row instead of two if the host is the best baseline."""
    merged: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for test in tests:
        key = (test["noise"], test["metric"], test["against"])
        if key in merged:
            merged[key]["role"] += f", {test['role']}"
        else:
            merged[key] = dict(test)
    return list(merged.values())


def _paired_columns(confidence: float) -> tuple[Column, ...]:
    interval = f"{confidence:.0%} interval"
    return (
        Column(name="method", label="Method"),
        Column(name="noise", label="Noise"),
        Column(name="metric", label="Metric"),
        Column(name="against", label="Against"),
        Column(name="difference", label="Difference", kind="number"),
        Column(name="low", label="from", group=interval, kind="number"),
        Column(name="high", label="to", group=interval, kind="number"),
        Column(name="p", label="p", kind="number"),
        Column(name="folds", label="Folds", kind="number"),
    )


def _paired_cells(test: Mapping[Any, Any]) -> tuple[TableCell, ...]:
    metric = str(test["metric"])
    arrow = "↓" if metric in LOWER_IS_BETTER else "↑"
    difference, low, high, p = (_known(test[name]) for name in ("difference", "low", "high", "p_value"))
    return (
        TableCell(text=display_name(str(test["method"]))),
        TableCell(text=noise_label(str(test["noise"]))),
        TableCell(text=f"{metric_label(metric)} {arrow}"),
        TableCell(text=f"{display_name(str(test['against']))} ({test['role']})"),
        _signed(difference),
        _signed(low),
        _signed(high),
        TableCell(text=MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}", value=p),
        TableCell(text=str(test["n"]), value=float(test["n"])),
    )


def _signed(number: float | None) -> TableCell:
    return TableCell(text=MISSING if number is None else decimals(number, signed=True), value=number)


def _known(number: Any) -> float | None:
    return None if number is None or pd.isna(number) else float(number)
