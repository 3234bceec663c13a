"""The cells of a study's tables: mean ± standard deviation of finished runs, marks, and the paper's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, suggest
from srjt.ordinal.metrics import METRICS
from srjt.reports.noise_names import NOISE_NAMES, noise_label
from srjt.reports.tables.table import MISSING, Column, TableCell
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.paper import paper_value

__all__ = [
    "METRIC_NAMES",
    "PAPER_METRICS",
    "CollectedValues",
    "RowSpec",
    "by_kind",
    "collect_values",
    "decimals",
    "finished",
    "mean_cell",
    "metric_cells",
    "metric_column",
    "metric_label",
    "paper_cell",
    "table_title",
]

PAPER_METRICS = ("accuracy", "mae", "macro_f1")
# in a column's heading, in a sentence
METRIC_NAMES = {name: (metric.short_name, metric.long_name) for name, metric in METRICS.items()}
KINDS = {"quasi": "Quasi-Gaussian noise", "truncated": "Truncated-Gaussian noise", "none": "labels as given"}

Run = tuple[int, int]  # fold, seed


class CollectedValues(NamedTuple):
    """Planned runs and values of finished runs, by method, variant and noise."""

    planned: dict[tuple[str, str, str], set[Run]]  # method, variant, noise
    values: dict[tuple[str, str, str, str], dict[Run, float]]  # … and metric
    noises: list[str]


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """A row without its numbers."""

    labels: tuple[str, ...]
    source: tuple[str, str]  # method, variant
    host: tuple[str, str] | None
    block: str  # best and second best are marked within a block
    rule: bool  # a line above
    paper: tuple[str, str, str] | None  # method, select, update


def finished(scores: pd.DataFrame, runs: pd.DataFrame | None) -> pd.DataFrame:
    """The scores of finished runs: the last ten epochs of other runs are earlier ones."""
    if runs is None:
        return scores
    return scores[scores["key"].isin(runs.loc[runs["status"] == "done", "key"])]


def collect_values(
    scores: pd.DataFrame, runs: pd.DataFrame | None, *, metrics: Sequence[str], split: str
) -> CollectedValues:
    """Planned runs and values of the finished ones; a metric that no run has is an error with a suggestion."""
    of_split = scores[scores["split"] == split].dropna(subset=["value"])
    known = set(of_split["metric"]) or set(METRIC_NAMES)
    if not metrics:
        raise SrjtError("A table needs a metric: accuracy, mae, macro_f1 or another metric of the study.")
    for metric in metrics:
        if metric not in known:
            raise suggest("metric", metric, known)
    values: dict[tuple[str, str, str, str], dict[Run, float]] = {}
    done = finished(of_split, runs)
    wanted = done[done["metric"].isin(list(metrics))]
    for *key, fold, seed, value in _columns(
        wanted, "method", "variant", "noise", "metric", "fold", "seed", "value"
    ):
        method, variant, noise, metric = key
        values.setdefault((method, variant, noise, metric), {})[int(fold), int(seed)] = float(value)
    planned: dict[tuple[str, str, str], set[Run]] = {}
    if runs is not None:
        for method, variant, noise, fold, seed in _columns(
            runs, "method", "variant", "noise", "fold", "seed"
        ):
            planned.setdefault((method, variant, noise), set()).add((int(fold), int(seed)))
    else:  # the plan is unknown: every method on the runs that any method has
        for method, variant, noise, _ in values:
            same_noise = [set(found) for (_, _, other, _), found in values.items() if other == noise]
            planned[method, variant, noise] = set().union(*same_noise)
    return CollectedValues(planned, values, list(dict.fromkeys(noise for _, _, noise in planned)))


def _columns(table: pd.DataFrame, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].tolist() for name in names), strict=True)


def by_kind(study: CollectedValues) -> dict[str, list[str]]:
    """Kind of noise, in the paper's order → its noises from weak to strong."""
    kinds: dict[str, list[str]] = {}
    for noise in study.noises:
        kinds.setdefault(parse_noise(noise).kind, []).append(noise)
    order = [*NOISE_NAMES, *kinds]
    return {kind: sorted(kinds[kind], key=_strength) for kind in sorted(kinds, key=order.index)}


def _strength(noise: str) -> float:
    spec = parse_noise(noise)
    return spec.rate or spec.rho or 0.0


def metric_cells(
    study: CollectedValues, rows: Sequence[RowSpec], *, noise: str, metric: str
) -> list[TableCell]:
    """The cells of a column, one per row, with their marks."""
    found = [study.values.get((*row.source, noise, metric), {}) for row in rows]
    marks: list[Literal["", "best", "second"]] = [""] * len(rows)
    for block in {row.block for row in rows}:
        places = [place for place, row in enumerate(rows) if row.block == block]
        for place, mark in zip(places, _rank([found[place] for place in places], metric), strict=True):
            marks[place] = mark
    cells = []
    for row, values, mark in zip(rows, found, marks, strict=True):
        host = study.values.get((*row.host, noise, metric), {}) if row.host else {}
        planned = study.planned.get((*row.source, noise), set())
        cell = mean_cell(list(values.values()))
        cells.append(
            replace(
                cell,
                mark=mark,
                bold=_improves(values, host, metric),
                partial=0 < len(values) < len(planned),
            )
        )
    return cells


def mean_cell(values: Sequence[float]) -> TableCell:
    """Mean ± standard deviation of the values of runs."""
    if not values:
        return TableCell(text=MISSING, runs=0)
    mean, std = float(np.mean(values)), float(np.std(values))  # of the population, ddof = 0
    if len(values) == 1:  # one value has no standard deviation
        return TableCell(text=decimals(mean), value=mean, runs=1)
    return TableCell(text=f"{decimals(mean)} ± {std:.3f}", value=mean, std=std, runs=len(values))


def _rank(found: Sequence[Mapping[Run, float]], metric: str) -> list[Literal["", "best", "second"]]:
    """Compare only methods with the same runs: on the largest set of runs, the most common one of that size."""
    sets = Counter(frozenset(values) for values in found if values)
    common = max(sets, key=lambda runs: (len(runs), sets[runs]), default=frozenset[Run]())
    means = [
        round(float(np.mean(list(values.values()))), 9) if values and values.keys() == common else None
        for values in found
    ]
    ranked = sorted((m for m in means if m is not None), reverse=metric not in LOWER_IS_BETTER)
    if len(ranked) < 2:
        return [""] * len(found)
    best, second = ranked[0], ranked[1] if len(ranked) > 2 else None
    return ["best" if m == best else "second" if m is not None and m == second else "" for m in means]


def _improves(values: Mapping[Run, float], host: Mapping[Run, float], metric: str) -> bool:
    """Whether the mean over the runs that both have is better than the host's."""
    gain = [values[run] - host[run] for run in values.keys() & host.keys()]
    if not gain:
        return False
    mean = round(float(np.mean(gain)), 9)
    return mean < 0 if metric in LOWER_IS_BETTER else mean > 0


def paper_cell(paper: str | None, row: RowSpec, *, noise: str, metric: str) -> TableCell:
    """The paper's value for a row, or an empty cell."""
    if paper is None or row.paper is None:
        return TableCell()
    method, select, update = row.paper
    printed = paper_value(paper, noise, method, metric, select=select, update=update)
    if printed is None:
        return TableCell()
    mean, std = printed
    text = f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}"
    return TableCell(text=text, value=mean, std=std)


def metric_column(noise: str, metric: str, *, paper: bool = False) -> Column:
    label = metric_label(metric)
    return Column(
        name=f"{noise} {metric}{' paper' if paper else ''}",
        label=f"{label}, paper" if paper else label,
        group=noise_label(noise),
        better="" if paper else "lower" if metric in LOWER_IS_BETTER else "higher",
        kind="quoted" if paper else "mean",
    )


def metric_label(metric: str) -> str:
    return METRIC_NAMES.get(metric, (metric, ""))[0]


def table_title(what: str, kind: str, data: str) -> str:
    """ "LIMUC: Comparison, Quasi-Gaussian noise"."""
    title = f"{what}, {NOISE_NAMES.get(kind, kind)}"
    return f"{data}: {title}" if data else title


def decimals(number: float, *, signed: bool = False) -> str:
    return f"{number:{'+' if signed else ''}.3f}".replace("-", "−")
