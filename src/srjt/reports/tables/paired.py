"""The paired tests of "+ours" as tables: each comparison, and hosts and noises pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from srjt.ordinal.differences import holm
from srjt.reports.noise_names import noise_label
from srjt.reports.tables.statistics import (
    PAPER_METRICS,
    CollectedValues,
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
from srjt.studies.pooled_tests import pool_ours

__all__ = ["paired_tables", "pooled_table"]


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
    """Every "+ours" against its host and the best baseline, one table per kind of noise; none without "+ours".

    p-values are corrected for the number of comparisons in all tables together.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    tests = compare_ours(
        finished(scores, runs),
        test_train_ratio=test_train_ratio,
        metrics=metrics,
        split=split,
        confidence=confidence,
    ).to_dict("records")
    tests = _merge_roles(tests)
    for test, corrected in zip(tests, _holm(tests), strict=True):
        test["p_holm"] = corrected
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
            for number, test in enumerate(of_method):
                cells = _paired_cells(test, confidence, two=_folds(study) == 2)
                rows.append(Row(cells=cells, rule=bool(rows) and number == 0))
        if rows:
            tables.append(
                Table(
                    slug=f"paired-{kind}",
                    title=table_title("Paired comparison", kind, data),
                    caption="Mean difference over the folds that both methods have, "
                    f"{_how(test_train_ratio, confidence)} {_contains(study)} {_choice(study)} p, Holm: corrected for "
                    f"the {_count(tests)} of this report; “{MISSING}”: too few different folds for a test.",
                    columns=_paired_columns(confidence, two=_folds(study) == 2),
                    rows=tuple(rows),
                    bold_means=f"p, Holm below {1 - confidence:.2g}",
                )
            )
    return tables


def pooled_table(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    runs: pd.DataFrame | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    confidence: float = 0.95,
) -> list[Table]:
    """ "+ours" against host over hosts and noises, for each rate and for all; none with fewer than two pairs."""
    study = collect_values(scores, runs, metrics=metrics, split=split)
    groups: dict[str, list[str]] = {}
    for noise in (noise for noises in by_kind(study).values() for noise in noises):  # from weak to strong
        groups.setdefault(noise_label(noise), []).append(noise)
    if len(groups) > 1:
        groups["all"] = list(study.noises)
    tests = pool_ours(
        finished(scores, runs),
        groups,
        test_train_ratio=test_train_ratio,
        metrics=metrics,
        split=split,
        confidence=confidence,
    ).to_dict("records")
    if not tests:
        return []
    rows: list[Row] = []
    for test, corrected in zip(tests, _holm(tests), strict=True):
        cells = (
            TableCell(text=str(test["group"])),
            TableCell(
                text=f"{test['hosts']} × {test['noises']}" if test["noises"] > 1 else str(test["hosts"])
            ),
            TableCell(text=_metric(str(test["metric"]))),
            *_test_cells({**test, "p_holm": corrected}, confidence, two=_folds(study) == 2),
        )
        rows.append(Row(cells=cells, rule=bool(rows) and test["metric"] == metrics[0]))
    return [
        Table(
            slug="pooled",
            title=f"{data}: “+ Ours” against hosts, pooled" if data else "“+ Ours” against hosts, pooled",
            caption="“+ Ours” minus its host, averaged within a fold over hosts and noises, then over the folds that "
            f"all pairs have, {_how(test_train_ratio, confidence)} {_contains(study)} p, Holm: corrected for the "
            f"{_count(tests)} of this table; “{MISSING}”: too few different folds for a test.",
            columns=(
                Column(name="noise", label="Noise"),
                Column(name="hosts", label="Hosts × noises"),
                Column(name="metric", label="Metric"),
                *_test_columns(confidence, two=_folds(study) == 2),
            ),
            rows=tuple(rows),
            bold_means=f"p, Holm below {1 - confidence:.2g}",
        )
    ]


def _holm(tests: Sequence[Mapping[Any, Any]]) -> list[float | None]:
    return [_known(p) for p in holm([test["p_value"] for test in tests])]


def _count(tests: Sequence[Mapping[Any, Any]]) -> str:
    number = sum(_known(test["p_value"]) is not None for test in tests)
    return f"{number} comparison{'s' * (number != 1)}"


def _how(test_train_ratio: float, confidence: float) -> str:
    return (
        f"with its {confidence:.0%} interval and two-sided p-value by the corrected resampled t-test (Nadeau and "
        f"Bengio, 2003; test/train = {test_train_ratio:.3g})."
    )


def _folds(study: CollectedValues) -> int:
    return len({fold for runs in study.planned.values() for fold, _ in runs})


def _contains(study: CollectedValues) -> str:
    """What an interval over folds contains."""
    runs = set().union(*study.planned.values())
    if _folds(study) == 1:
        return "There is one fold, so there are no intervals."
    if _folds(study) == 2:
        return (
            "There are two folds, so there are no intervals: the smaller and the larger difference are shown."
        )
    several = len({seed for _, seed in runs}) > 1
    seeds = (
        "seeds are averaged within a fold" if several else "with one seed per fold they cannot be told apart"
    )
    return f"Each fold has its own test patients and its own trainings, and intervals contain both; {seeds}."


def _choice(study: CollectedValues) -> str:
    """By which results the best of several methods is chosen."""
    one_fold = _folds(study) == 1
    chosen = (
        "by the same results" if one_fold else "for each fold by the other folds, whose patients are others"
    )
    return f"The best baseline and the best “+ Ours” are chosen {chosen}."


def _merge_roles(tests: Sequence[Mapping[Any, Any]]) -> list[dict[Any, Any]]:
    """One row instead of two if the host is the best baseline."""
    merged: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for test in tests:
        key = (test["noise"], test["metric"], test["method"], test["against"])
        if key in merged:
            merged[key]["role"] += f", {test['role']}"
        else:
            merged[key] = dict(test)
    return list(merged.values())


def _paired_columns(confidence: float, *, two: bool) -> tuple[Column, ...]:
    return (
        Column(name="method", label="Method"),
        Column(name="noise", label="Noise"),
        Column(name="metric", label="Metric"),
        Column(name="against", label="Against"),
        *_test_columns(confidence, two=two),
    )


def _test_columns(confidence: float, *, two: bool) -> tuple[Column, ...]:
    interval = "the two folds" if two else f"{confidence:.0%} interval"
    return (
        Column(name="difference", label="Difference", kind="number"),
        Column(name="low", label="from", group=interval, kind="number"),
        Column(name="high", label="to", group=interval, kind="number"),
        Column(name="p", label="p", kind="number"),
        Column(name="p_holm", label="p, Holm", kind="number"),
        Column(name="folds", label="Folds", kind="number"),
    )


def _paired_cells(test: Mapping[Any, Any], confidence: float, *, two: bool) -> tuple[TableCell, ...]:
    opponents = ", ".join(display_name(name) for name in str(test["against"]).split(", "))
    return (
        TableCell(text=display_name(str(test["method"]))),
        TableCell(text=noise_label(str(test["noise"]))),
        TableCell(text=_metric(str(test["metric"]))),
        TableCell(text=f"{opponents} ({test['role']})"),
        *_test_cells(test, confidence, two=two),
    )


def _test_cells(test: Mapping[Any, Any], confidence: float, *, two: bool) -> tuple[TableCell, ...]:
    difference, low, high, p, corrected = (
        _known(test[name]) for name in ("difference", "low", "high", "p_value", "p_holm")
    )
    clear = corrected is not None and corrected < 1 - confidence
    return (
        replace(_signed(difference), bold=clear),
        *(_both(test) if two and test["n"] == 2 else (_signed(low), _signed(high))),
        _p_value(p),
        replace(_p_value(corrected), bold=clear),
        TableCell(text=str(test["n"]), value=float(test["n"])),
    )


def _both(test: Mapping[Any, Any]) -> tuple[TableCell, TableCell]:
    """The smaller and the larger of two folds' differences, in place of an interval: mean ∓ std / √2."""
    mean, half = float(test["difference"]), float(test["std"]) / 2**0.5
    return _signed(mean - half), _signed(mean + half)


def _metric(metric: str) -> str:
    return f"{metric_label(metric)} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _p_value(p: float | None) -> TableCell:
    return TableCell(text=MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}", value=p)


def _signed(number: float | None) -> TableCell:
    return TableCell(text=MISSING if number is None else decimals(number, signed=True), value=number)


def _known(number: Any) -> float | None:
    return None if number is None or pd.isna(number) else float(number)
