"""From a study's runs to cells: what finished, its mean and spread, the marks, the paper's own number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, suggest
from srjt.ordinal.metrics import METRICS
from srjt.reports.tables.table import MISSING, Column, TableCell
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.paper import paper_value

__all__ = [
    "KINDS",
    "METRIC_NAMES",
    "PAPER_METRICS",
    "CollectedValues",
    "RowSpec",
    "by_kind",
    "collect_values",
    "decimals",
    "finished",
    "metric_cells",
    "metric_column",
    "metric_label",
    "noise_label",
    "paper_cell",
    "title",
]

PAPER_METRICS = ("accuracy", "mae", "macro_f1")
# in a column's heading, in a sentence
METRIC_NAMES = {name: (metric.short_name, metric.long_name) for name, metric in METRICS.items()}
KINDS = {"quasi": "Quasi-Gaussian noise", "truncated": "Truncated-Gaussian noise", "none": "labels as given"}

Run = tuple[int, int]  # fold, seed


class CollectedValues(NamedTuple):
    planned: dict[tuple[str, str, str], set[Run]]  # method, variant, noise
    values: dict[tuple[str, str, str, str], dict[Run, float]]  # … and metric
    noises: list[str]


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """A row before its numbers."""

    labels: tuple[str, ...]
    source: tuple[str, str]  # method, variant
    host: tuple[str, str] | None
    block: str  # best and second best are found within a block
    rule: bool
    paper: tuple[str, str, str] | None  # method, select, update


def finished(scores: pd.DataFrame, runs: pd.DataFrame | None) -> pd.DataFrame:
    """Without the runs still under way: their last ten epochs are not those of the others."""
    if runs is None:
        return scores
    return scores[scores["key"].isin(runs.loc[runs["status"] == "done", "key"])]


def collect_values(
    scores: pd.DataFrame, runs: pd.DataFrame | None, *, metrics: Sequence[str], split: str
) -> CollectedValues:
    """What was planned and what came of it; a metric that no run has is an error that suggests the nearest."""
    mine = scores[scores["split"] == split].dropna(subset=["value"])
    known = set(mine["metric"]) or set(METRIC_NAMES)
    if not metrics:
        raise SrjtError("A table needs a metric: accuracy, mae, macro_f1 or another of the study's.")
    for metric in metrics:
        if metric not in known:
            raise suggest("metric", metric, known)
    values: dict[tuple[str, str, str, str], dict[Run, float]] = {}
    done = finished(mine, runs)
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
    else:  # nobody said what was planned: all methods on the runs that any of them has
        for method, variant, noise, _ in values:
            same_noise = [set(found) for (_, _, other, _), found in values.items() if other == noise]
            planned[method, variant, noise] = set().union(*same_noise)
    return CollectedValues(planned, values, list(dict.fromkeys(noise for _, _, noise in planned)))


def _columns(table: pd.DataFrame, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].tolist() for name in names), strict=True)


def by_kind(study: CollectedValues) -> dict[str, list[str]]:
    """Kinds in the paper's order, each with its noises from weak to strong."""
    kinds: dict[str, list[str]] = {}
    for noise in study.noises:
        kinds.setdefault(parse_noise(noise).kind, []).append(noise)
    order = [*KINDS, *kinds]
    return {kind: sorted(kinds[kind], key=_strength) for kind in sorted(kinds, key=order.index)}


def _strength(noise: str) -> float:
    spec = parse_noise(noise)
    return spec.rate or spec.rho or 0.0


def metric_cells(
    study: CollectedValues, lines: Sequence[RowSpec], *, noise: str, metric: str
) -> list[TableCell]:
    """A column: one cell a line, marked."""
    found = [study.values.get((*line.source, noise, metric), {}) for line in lines]
    marks: list[Literal["", "best", "second"]] = [""] * len(lines)
    for block in {line.block for line in lines}:
        places = [place for place, line in enumerate(lines) if line.block == block]
        for place, mark in zip(places, _rank([found[place] for place in places], metric), strict=True):
            marks[place] = mark
    cells = []
    for line, values, mark in zip(lines, found, marks, strict=True):
        host = study.values.get((*line.host, noise, metric), {}) if line.host else {}
        planned = study.planned.get((*line.source, noise), set())
        cell = _mean_cell(list(values.values()))
        cells.append(
            replace(
                cell,
                mark=mark,
                bold=_improves(values, host, metric),
                partial=0 < len(values) < len(planned),
            )
        )
    return cells


def _mean_cell(values: Sequence[float]) -> TableCell:
    if not values:
        return TableCell(text=MISSING, runs=0)
    mean, std = float(np.mean(values)), float(np.std(values))  # the population's, ddof = 0
    if len(values) == 1:  # a spread of zero would be a lie
        return TableCell(text=decimals(mean), value=mean, runs=1)
    return TableCell(text=f"{decimals(mean)} ± {std:.3f}", value=mean, std=std, runs=len(values))


def _rank(found: Sequence[Mapping[Run, float]], metric: str) -> list[Literal["", "best", "second"]]:
    """Only what was measured on the same runs is compared: on the largest set, the commonest of that size."""
    sets = Counter(frozenset(values) for values in found if values)
    fair = max(sets, key=lambda runs: (len(runs), sets[runs]), default=frozenset[Run]())
    means = [
        round(float(np.mean(list(values.values()))), 9) if values and values.keys() == fair else None
        for values in found
    ]
    ladder = sorted((m for m in means if m is not None), reverse=metric not in LOWER_IS_BETTER)
    if len(ladder) < 2:
        return [""] * len(found)
    best, second = ladder[0], ladder[1] if len(ladder) > 2 else None
    return ["best" if m == best else "second" if m is not None and m == second else "" for m in means]


def _improves(values: Mapping[Run, float], host: Mapping[Run, float], metric: str) -> bool:
    """Better than the host on the mean of the runs that both have."""
    gain = [values[run] - host[run] for run in values.keys() & host.keys()]
    if not gain:
        return False
    mean = round(float(np.mean(gain)), 9)
    return mean < 0 if metric in LOWER_IS_BETTER else mean > 0


def paper_cell(paper: str | None, line: RowSpec, *, noise: str, metric: str) -> TableCell:
    """The paper's number for a line, or an empty cell."""
    if paper is None or line.paper is None:
        return TableCell()
    method, select, update = line.paper
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


def noise_label(noise: str) -> str:
    spec = parse_noise(noise)
    parts = [
        f"{sign} = {number:g}" for sign, number in (("ε", spec.rate), ("ρ", spec.rho)) if number is not None
    ]
    return ", ".join(parts) or KINDS[spec.kind].capitalize()


def title(what: str, kind: str, data: str) -> str:
    title = f"{what}, {KINDS.get(kind, kind)}"
    return f"{data}: {title}" if data else title


def decimals(number: float, *, signed: bool = False) -> str:
    return f"{number:{'+' if signed else ''}.3f}".replace("-", "−")
