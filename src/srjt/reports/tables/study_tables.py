"""The tables of a study in the paper's form: the comparison, the ablation, and the paired tests.

All are made from ``scores`` (method, variant, noise, fold, seed, split, metric, value; one value a run). With
``runs`` (one row per planned run, with key and status) only finished runs count, and what is missing shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from srjt.reports.tables.ablation import ablation, loss_usage
from srjt.reports.tables.paired import paired_tables
from srjt.reports.tables.results import (
    METRIC_NAMES,
    PAPER_METRICS,
    CollectedValues,
    RowSpec,
    by_kind,
    collect_values,
    metric_cells,
    metric_column,
    paper_cell,
    title,
)
from srjt.reports.tables.table import Column, Row, Table, TableCell
from srjt.studies.paper import OURS, display_name, host_of, paper_dataset, paper_order

__all__ = [
    "METRIC_NAMES",
    "PAPER_METRICS",
    "Results",
    "Table",
    "ablation_tables",
    "main_tables",
    "paired_tables",
    "study_tables",
]


class Results(Protocol):
    """What is needed of a study's results."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def runs(self) -> pd.DataFrame: ...
    @property
    def scores(self) -> pd.DataFrame: ...


def study_tables(
    results: Results,
    *,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    test_train_ratio: float | None = None,
) -> list[Table]:
    """All tables of a study. The paper's numbers stand beside where the preset is the paper's setting.

    test_train_ratio: for the paired test; by default that of k folds with one part for test, one for
    validation and k − 2 for training.
    """
    if test_train_ratio is None:
        test_train_ratio = 1.0 / max(1, int(results.facts.get("folds") or 5) - 2)
    name, paper = str(results.facts.get("name") or ""), paper_dataset(results.facts)
    scores, runs = results.scores, results.runs
    return [
        *main_tables(scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name),
        *ablation_tables(scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name),
        *paired_tables(
            scores, test_train_ratio=test_train_ratio, runs=runs, metrics=metrics, split=split, data=name
        ),
    ]


def main_tables(
    scores: pd.DataFrame,
    *,
    runs: pd.DataFrame | None = None,
    paper: str | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
) -> list[Table]:
    """One table per kind of noise: methods in the paper's order, the rates side by side.

    paper: "limuc", "private" or "dr" puts the paper's own numbers beside. data: a name for the titles.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    rows = {(method, variant) for method, variant, _ in study.planned if loss_usage(variant) is None}
    order = paper_order(method for method, _, _ in study.planned)
    lines: list[RowSpec] = []
    for method, variant in sorted(rows, key=lambda row: (order.index(row[0]), row[1])):
        host = host_of(method)
        lines.append(
            RowSpec(
                labels=(display_name(method, variant),),
                source=(method, variant),
                host=(host, variant if (host, variant) in rows else "") if host else None,
                block="",
                rule=bool(lines) and _leads(method, order) and not variant,
                paper=(method, "", "") if not variant else None,
            )
        )
    return [
        _table(study, lines, noises, slug=f"comparison-{kind}", what="Comparison", kind=kind, scope="in a column",
               labels=("method",), paper=paper, metrics=metrics, split=split, data=data)
        for kind, noises in by_kind(study).items()
    ]  # fmt: skip


def ablation_tables(
    scores: pd.DataFrame,
    *,
    runs: pd.DataFrame | None = None,
    paper: str | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
) -> list[Table]:
    """Which loss selects and which one updates, for every host: one table per kind of noise.

    Without a run that selects by the soft loss there is nothing that the comparison does not show: no table.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    lines: list[RowSpec] = []
    for host, found in ablation((method, variant) for method, variant, _ in study.planned).items():
        for number, ((select, update), source) in enumerate(found.items()):
            lines.append(
                RowSpec(
                    labels=(display_name(host), select, update),
                    source=source,
                    host=found.get(("hard", "hard")) if (select, update) == ("hard", "soft") else None,
                    block=host,
                    rule=bool(lines) and number == 0,
                    paper=(host, select, update),
                )
            )
    novel = {line.source for line in lines if line.labels[1] == "soft"}
    return [
        _table(study, lines, noises, slug=f"ablation-{kind}", what="Selection and updating", kind=kind,
               scope="of a host in a column", labels=("host", "selection", "updating"), paper=paper,
               metrics=metrics, split=split, data=data)
        for kind, noises in by_kind(study).items()
        if any((*source, noise) in study.planned for source in novel for noise in noises)
    ]  # fmt: skip


def _leads(method: str, order: list[str]) -> bool:
    """Whether a line goes above: where a host and its "+ours" begin, or end."""

    def family(name: str) -> str:
        host = host_of(name) or name
        return host if host + OURS in order else ""

    place = order.index(method)
    return place > 0 and family(order[place - 1]) != family(method)


def _table(
    study: CollectedValues,
    lines: Sequence[RowSpec],
    noises: Sequence[str],
    *,
    slug: str,
    what: str,
    kind: str,
    scope: str,
    labels: tuple[str, ...],
    paper: str | None,
    metrics: Sequence[str],
    split: str,
    data: str,
) -> Table:
    lines = [line for line in lines if any((*line.source, noise) in study.planned for noise in noises)]
    columns = [Column(name=label, label=label.capitalize()) for label in labels]
    body = [[TableCell(text=label) for label in line.labels] for line in lines]
    beside = False
    for noise in noises:
        for metric in metrics:
            columns.append(metric_column(noise, metric))
            for cells, cell in zip(body, metric_cells(study, lines, noise=noise, metric=metric), strict=True):
                cells.append(cell)
            printed = [paper_cell(paper, line, noise=noise, metric=metric) for line in lines]
            if any(cell.value is not None for cell in printed):
                beside = True
                columns.append(metric_column(noise, metric, paper=True))
                for cells, cell in zip(body, printed, strict=True):
                    cells.append(cell)
    rows = [
        Row(cells=tuple(cells), rule=line.rule and bool(number), ours=line.host is not None)
        for number, (line, cells) in enumerate(zip(lines, body, strict=True))
    ]
    caption = _caption(study, noises, metrics=metrics, split=split, scope=scope, beside=beside)
    return Table(
        slug=slug, title=title(what, kind, data), caption=caption, columns=tuple(columns), rows=tuple(rows)
    )


def _caption(
    study: CollectedValues,
    noises: Sequence[str],
    *,
    metrics: Sequence[str],
    split: str,
    scope: str,
    beside: bool,
) -> str:
    names = [METRIC_NAMES.get(metric, ("", metric))[1] for metric in metrics]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    runs = set().union(*(found for (_, _, noise), found in study.planned.items() if noise in noises))
    folds, seeds = len({fold for fold, _ in runs}), len({seed for _, seed in runs})
    over = f"{folds} fold{'s' * (folds != 1)}" + (f" and {seeds} seeds" if seeds > 1 else "")
    text = (
        f"{split.capitalize()} {listed}, averaged over the last ten epochs (all, if fewer) and the networks; mean ± "
        f"standard deviation (the population's, ddof = 0) over {over}. Best and second best {scope} are found among "
        "methods with the same runs."
    )
    if beside:
        text += " “paper” is what the paper prints for this setting (Takezaki et al., WACV 2025)."
    return text
