"""The tables of a study: the comparison and the ablation as in the paper, and paired tests, single and pooled.

scores: method, variant, noise, fold, seed, split, metric, value; one value per run. With ``runs`` (one row per planned
run, with key and status) only finished runs count, and missing runs are marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from srjt.reports.tables.ablation import ablation, loss_usage
from srjt.reports.tables.paired import paired_tables, pooled_table
from srjt.reports.tables.statistics import (
    METRIC_NAMES,
    PAPER_METRICS,
    CollectedValues,
    RowSpec,
    by_kind,
    collect_values,
    metric_cells,
    metric_column,
    paper_cell,
    table_title,
)
from srjt.reports.tables.table import Column, Row, Table, TableCell
from srjt.studies.paper import OURS, display_name, host_of, paper_dataset, paper_order

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["ablation_tables", "comparison_tables", "networks_phrase", "study_tables"]

NETWORKS = " and the networks"


def study_tables(
    results: StudyResults,
    *,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    test_train_ratio: float | None = None,
) -> list[Table]:
    """All tables of a study, with the paper's values if the study uses the paper's preset.

    test_train_ratio: for the paired test. Default: that of k folds with one part for test, one for validation and
    k − 2 for training.
    """
    if test_train_ratio is None:
        test_train_ratio = 1.0 / max(1, int(results.facts.get("folds") or 5) - 2)
    name, paper = str(results.facts.get("name") or ""), paper_dataset(results.facts)
    scores, runs, networks = results.scores, results.runs, networks_phrase(results.facts)
    return [
        *comparison_tables(
            scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name, networks=networks
        ),
        *ablation_tables(
            scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name, networks=networks
        ),
        *paired_tables(
            scores, test_train_ratio=test_train_ratio, runs=runs, metrics=metrics, split=split, data=name
        ),
        *pooled_table(
            scores, test_train_ratio=test_train_ratio, runs=runs, metrics=metrics, split=split, data=name
        ),
    ]


def networks_phrase(facts: Mapping[str, Any]) -> str:
    """How the scores of a method's networks are combined, and of which epoch others are, for a caption."""
    config = facts.get("config", {})
    combined = NETWORKS
    if config.get("convention") == "published-code":
        combined = ", predictions of the networks pooled"
    variants = [str(cell.get("variant", "")).split(",") for cell in facts.get("cells", [])]
    if config.get("keep") == "best" or any("keep=best" in variant for variant in variants):
        combined += "; with early stopping of the epoch that was best on the validation side"
    return combined


def comparison_tables(
    scores: pd.DataFrame,
    *,
    runs: pd.DataFrame | None = None,
    paper: str | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    networks: str = NETWORKS,
) -> list[Table]:
    """One table per kind of noise: methods in the paper's order, the rates side by side.

    paper: "limuc", "private" or "dr" adds columns with the paper's values. data: a name for the titles.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    sources = {(method, variant) for method, variant, _ in study.planned if loss_usage(variant) is None}
    order = paper_order(method for method, _, _ in study.planned)
    rows: list[RowSpec] = []
    for method, variant in sorted(sources, key=lambda source: (order.index(source[0]), source[1])):
        host = host_of(method)
        rows.append(
            RowSpec(
                labels=(display_name(method, variant),),
                source=(method, variant),
                host=(host, variant if (host, variant) in sources else "") if host else None,
                block="",
                rule=bool(rows) and _starts_group(method, order) and not variant,
                paper=(method, "", "") if not variant else None,
            )
        )
    return [
        _table(study, rows, noises, slug=f"comparison-{kind}", what="Comparison", kind=kind, scope="in a column",
               labels=("method",), paper=paper, metrics=metrics, split=split, data=data, networks=networks)
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
    networks: str = NETWORKS,
) -> list[Table]:
    """Hard or soft loss for selection and update, for every host: one table per kind of noise.

    No table if no run selects by the soft loss: the comparison then has all rows.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    rows: list[RowSpec] = []
    for host, found in ablation((method, variant) for method, variant, _ in study.planned).items():
        for number, ((select, update), source) in enumerate(found.items()):
            rows.append(
                RowSpec(
                    labels=(display_name(host), select, update),
                    source=source,
                    host=found.get(("hard", "hard")) if (select, update) == ("hard", "soft") else None,
                    block=host,
                    rule=bool(rows) and number == 0,
                    paper=(host, select, update),
                )
            )
    soft = {row.source for row in rows if row.labels[1] == "soft"}
    return [
        _table(study, rows, noises, slug=f"ablation-{kind}", what="Selection and updating", kind=kind,
               scope="of a host in a column", labels=("host", "selection", "updating"), paper=paper,
               metrics=metrics, split=split, data=data, networks=networks)
        for kind, noises in by_kind(study).items()
        if any((*source, noise) in study.planned for source in soft for noise in noises)
    ]  # fmt: skip


def _starts_group(method: str, order: list[str]) -> bool:
    """Whether there is a line above the row: before and after a host with its "+ours"."""

    def group(name: str) -> str:
        host = host_of(name) or name
        return host if host + OURS in order else ""

    place = order.index(method)
    return place > 0 and group(order[place - 1]) != group(method)


def _table(
    study: CollectedValues,
    specs: Sequence[RowSpec],
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
    networks: str,
) -> Table:
    specs = [spec for spec in specs if any((*spec.source, noise) in study.planned for noise in noises)]
    columns = [Column(name=label, label=label.capitalize()) for label in labels]
    body = [[TableCell(text=label) for label in spec.labels] for spec in specs]
    with_paper = False
    for noise in noises:
        for metric in metrics:
            columns.append(metric_column(noise, metric))
            for cells, cell in zip(body, metric_cells(study, specs, noise=noise, metric=metric), strict=True):
                cells.append(cell)
            printed = [paper_cell(paper, spec, noise=noise, metric=metric) for spec in specs]
            if any(cell.value is not None for cell in printed):
                with_paper = True
                columns.append(metric_column(noise, metric, paper=True))
                for cells, cell in zip(body, printed, strict=True):
                    cells.append(cell)
    rows = [
        Row(cells=tuple(cells), rule=spec.rule and bool(number), ours=spec.host is not None)
        for number, (spec, cells) in enumerate(zip(specs, body, strict=True))
    ]
    caption = _caption(
        study,
        noises,
        metrics=metrics,
        split=split,
        scope=scope if len(rows) > 1 else "",
        with_paper=with_paper,
        networks=networks,
    )
    return Table(
        slug=slug,
        title=table_title(what, kind, data),
        caption=caption,
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _spread(folds: int) -> str:
    """What a standard deviation contains."""
    if folds == 1:
        return "Seeds differ in their training and share their test patients: ± does not contain patients."
    return "Each fold has its own test patients and its own training: ± contains both."


def _caption(
    study: CollectedValues,
    noises: Sequence[str],
    *,
    metrics: Sequence[str],
    split: str,
    scope: str,
    with_paper: bool,
    networks: str,
) -> str:
    names = [METRIC_NAMES.get(metric, ("", metric))[1] for metric in metrics]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    runs = set().union(*(found for (_, _, noise), found in study.planned.items() if noise in noises))
    folds, seeds = len({fold for fold, _ in runs}), len({seed for _, seed in runs})
    over = f"{folds} fold{'s' * (folds != 1)}" + (f" and {seeds} seeds" if seeds > 1 else "")
    text = f"{split.capitalize()} {listed}, averaged over the last ten epochs (all, if fewer){networks}"
    text += (
        f"; mean ± standard deviation (population, ddof = 0) over {over}. {_spread(folds)}"
        if len(runs) > 1
        else "; one fold and one seed."
    )
    if scope:
        text += f" Best and second best {scope} are marked among methods with the same runs."
    if with_paper:
        text += " “paper”: the value that the paper prints for this setting (Takezaki et al., WACV 2025)."
    return text
