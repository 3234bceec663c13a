"""The cells of a study's tables: mean ± standard deviation of finished runs, marks, the paper's values, the
names of the noises, which runs form the ablation, and naive scores beside the methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, unknown_name
from srjt.noise.matrices import FAMILIES
from srjt.ordinal import Purpose
from srjt.ordinal.metrics import METRICS
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.config import parse_noise
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.results import OURS, display_name, host_of, paper_order, paper_value
from srjt.training.folder import NAIVE, compare_with_naive

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

# Names of noises in tables, figures and pages.

NOISE_NAMES = {**{kind: family.name for kind, family in FAMILIES.items()}, "none": "labels as given"}


def noise_name(noise: str) -> str:
    """ "quasi:0.2" → "Quasi-Gaussian noise, rate 0.2"; "quasi:rho=0.1" → "Quasi-Gaussian noise, ρ = 0.1"."""
    spec = parse_noise(noise)
    if spec.kind == "none":
        return NOISE_NAMES["none"].capitalize()
    parts = [NOISE_NAMES.get(spec.kind, f"{spec.kind} noise")]
    parts += [] if spec.rate is None else [f"rate {spec.rate:g}"]
    parts += [] if spec.rho is None else [f"ρ = {spec.rho:g}"]
    return ", ".join(parts)


def noise_phrase(noise: str) -> str:
    """ "under Quasi-Gaussian noise, rate 0.2", or "with the labels as given"."""
    return "with the labels as given" if parse_noise(noise).kind == "none" else f"under {noise_name(noise)}"


def noise_label(noise: str) -> str:
    """A short label below the name of the noise: "ε = 0.2", "ε = 0.2, ρ = 0.1" or "Labels as given"."""
    spec = parse_noise(noise)
    numbers = (("ε", spec.rate), ("ρ", spec.rho))
    parts = [f"{sign} = {number:g}" for sign, number in numbers if number is not None]
    return ", ".join(parts) or noise_name(noise)


# The runs of a study that form the paper's ablation: hard or soft loss for selection and update, for every
# host.

LossUsage = tuple[str, str]  # loss for selection, loss for the update: hard or soft
MethodVariant = tuple[str, str]  # method, variant

# in the paper's order; the first is the host itself, the third is "+ours"
LOSS_USAGES: tuple[LossUsage, ...] = (("hard", "hard"), ("soft", "soft"), ("hard", "soft"), ("soft", "hard"))


def ablation(sources: Iterable[MethodVariant]) -> dict[str, dict[LossUsage, MethodVariant]]:
    """Host, in the paper's order → (select, update), in the order of LOSS_USAGES → the method and variant with it.

    A method with "+ours", or with a variant that sets select or update, is a host. Other variants are ignored, and a
    method without variant takes precedence over an equal variant.
    """
    given = list(sources)
    hosts = paper_order(host_of(m) or m for m, variant in given if host_of(m) or loss_usage(variant))
    return {host: _usages(given, host) for host in hosts}


def loss_usage(variant: str) -> dict[str, str] | None:
    """The options select and update of a variant ("select=soft,update=soft"); None for other variants."""
    options = dict(part.partition("=")[::2] for part in variant.split(",") if part)
    return options if options and options.keys() <= {"select", "update"} else None


def _usages(sources: Iterable[MethodVariant], host: str) -> dict[LossUsage, MethodVariant]:
    found: dict[LossUsage, MethodVariant] = {}
    of_host = {source for source in sources if source[0] in (host, host + OURS)}
    for method, variant in sorted(of_host, key=lambda source: (source[1] != "", source)):
        usage = {"select": "hard", "update": "soft" if host_of(method) else "hard"}
        chosen = loss_usage(variant)
        if chosen is None and variant:
            continue
        usage |= chosen or {}
        found.setdefault((usage["select"], usage["update"]), (method, variant))
    return {usage: found[usage] for usage in LOSS_USAGES if usage in found}


# The cells of a study's tables: mean ± standard deviation of finished runs, marks, and the paper's values.

PAPER_METRICS = ("accuracy", "mae", "macro_f1")
# in a column's heading, in a sentence
METRIC_NAMES = {name: (metric.short_name, metric.long_name) for name, metric in METRICS.items()}

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
            raise unknown_name("metric", metric, known)
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


# Methods beside one grade for all samples: a row of the comparison, and a sentence where a method is no
# better.

LABEL, MEANING = NAIVE.split(": ", 1)


def with_naive_rows(tables: Sequence[Table], naive: pd.DataFrame) -> list[Table]:
    """The tables of a study, each comparison with a last row of naive scores.

    naive: noise, fold, seed, metric, value; as in ``StudyResults``.
    """
    return [_with_row(table, naive) if table.slug.startswith("comparison-") else table for table in tables]


def _with_row(table: Table, naive: pd.DataFrame) -> Table:
    cells = [TableCell(text=LABEL.capitalize())]
    for column in table.columns[1:]:
        noise, _, metric = column.name.partition(" ")
        values = naive.loc[(naive["noise"] == noise) & (naive["metric"] == metric), "value"]
        # a metric without a naive score has an empty cell; a dash would mean that no run has finished
        cells.append(mean_cell(values.tolist()) if len(values) else TableCell())
    if all(cell.value is None for cell in cells):
        return table
    return replace(
        table,
        caption=f"{table.caption} {LABEL.capitalize()}: {MEANING}.",
        rows=(*table.rows, Row(cells=tuple(cells), rule=True)),
    )


def no_better_than_naive(results: StudyResults) -> Iterator[str]:
    """A sentence for each method and noise whose mean on the test side does not beat the naive one on the same runs."""
    purpose: Purpose = results.facts["config"].get("optimise") or "mae"
    scores = finished(results.scores, results.runs)
    scores = scores[(scores["split"] == "test") & (scores["metric"] == purpose)]
    both = scores.merge(results.naive, on=["noise", "fold", "seed", "metric"], suffixes=("", "_naive"))
    means = both.groupby(["noise", "method", "variant"], sort=False)[["value", "value_naive"]].mean()
    for (noise, method, variant), (score, naive) in zip(means.index, means.to_numpy(), strict=True):
        sentence = compare_with_naive(
            f"the test side {noise_phrase(noise)}",
            f"{display_name(method, variant)} does",
            score=float(score),
            naive=float(naive),
            purpose=purpose,
        )
        if sentence:
            yield sentence
