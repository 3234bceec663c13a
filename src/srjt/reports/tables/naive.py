"""Methods beside one grade for all samples: a row of the comparison, and a sentence where a method is no better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from srjt.ordinal.purpose import Purpose
from srjt.reports.noise_names import noise_phrase
from srjt.reports.tables.statistics import finished, mean_cell
from srjt.reports.tables.table import Row, Table, TableCell
from srjt.studies.paper import display_name
from srjt.training.record.baselines import NAIVE, compare_with_naive

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["no_better_than_naive", "with_naive_rows"]

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
