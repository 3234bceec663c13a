"""What a notebook shows of data: the samples, how they were read, and the noise of their labels."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.problems import ReadReport
from srjt.errors import count_of
from srjt.noise.estimate import NoiseEstimate
from srjt.reports.page import Page, Section, page_of
from srjt.reports.sections import counts_table
from srjt.reports.table import data_table

PROBLEMS = 10  # in the table


@page_of.register(Manifest)
def samples_page(samples: Manifest) -> Page:
    """How many samples have each grade, and how they were read."""
    table = counts_table(samples.grades, samples.class_counts.tolist())
    sections = [Section("grades", "Grades", tables=[table], brief=True)]
    return Page(
        kind="Samples",
        title=samples.describe(),
        lead="",
        sections=[*sections, *_reading(samples.report)],
    )


@page_of.register(ReadReport)
def reading_page(report: ReadReport) -> Page:
    """How a source was understood, and its first problems."""
    problems = count_of(len(report.problems), "problem")
    kind = f"Source: {report.kind}" if report.kind else "Source"
    return Page(kind=kind, title=problems, lead="", sections=_reading(report))


def _reading(report: ReadReport) -> Sequence[Section]:
    sections = []
    if report.notes:
        sections.append(
            Section("reading", "How the source was read", text=report.notes, brief=True)
        )
    if report.problems:
        rows = [(one.kind, one.where, one.detail) for one in report.problems[:PROBLEMS]]
        more = len(report.problems) - len(rows)
        table = data_table(
            pd.DataFrame(rows, columns=["problem", "where", "what"]),
            title="Problems",
            caption=f"And {more:,} more." if more else "",
        )
        sections.append(Section("problems", "Problems", tables=[table], brief=True))
    return sections


@page_of.register(NoiseEstimate)
def noise_page(estimate: NoiseEstimate) -> Page:
    """The noise rate, and how each true grade is labelled."""
    title, *lines = str(estimate).splitlines()
    return Page(
        kind="Noise estimate",
        title=title,
        lead="",
        sections=[Section("matrix", "Labels of each true grade", text=lines, brief=True)],
    )
