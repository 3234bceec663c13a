"""The page of a comparison of runs."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from srjt.errors import count_of
from srjt.inference.compare import Comparison, Difference
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.results import forest_figure
from srjt.reports.page import KeyNumber, Note, Page, Rule, Section, first_sentence, sentences
from srjt.reports.table import Table, between, data_table, metric_heading

FIRST = ("accuracy", "mae", "macro_f1", "qwk")  # the metrics that stand at the top, and in a terminal


@dataclass(frozen=True, kw_only=True)
class ComparisonFacts:
    """What the sentences are about."""

    first: str
    others: tuple[str, ...]
    metric: str  # the one that the grades are for, in words
    values: tuple[float, float]  # of the first and of the second run
    difference: str  # of the second run, with its interval
    better: tuple[str, ...]  # the runs whose interval lies on the better side of 0
    worse: tuple[str, ...]
    samples: str
    judged_by: str
    by_patient: bool
    trainings: tuple[int, ...]  # of each run

    @property
    def seeds(self) -> bool:
        """Whether the intervals contain the variation between trainings."""
        return max(self.trainings) > 1

    @property
    def two(self) -> bool:
        return len(self.others) == 1

    @property
    def outcome(self) -> str:
        """Every other run by what is shown of it."""
        groups = {"better": self.better, "worse": self.worse}
        groups["not shown to differ"] = tuple(set(self.others) - {*self.better, *self.worse})
        return "; ".join(f"{', '.join(sorted(runs))}: {name}" for name, runs in groups.items() if runs)


Facts = ComparisonFacts
VERDICT: list[Rule[Facts]] = [
    (
        lambda f: f.two and bool(f.better),
        "{f.others[0]} is better than {f.first}: {f.metric} {f.difference}.",
    ),
    (lambda f: f.two and bool(f.worse), "{f.others[0]} is worse than {f.first}: {f.metric} {f.difference}."),
    (
        lambda f: f.two,
        "No difference is shown between {f.others[0]} and {f.first}: {f.metric} {f.values[1]:.3f} and "
        "{f.values[0]:.3f}.",
    ),
    (lambda f: True, "Against {f.first}, by {f.metric}: {f.outcome}."),
]
NOTES: list[Rule[Facts]] = [
    (lambda f: True, "{f.samples}, compared with their {f.judged_by}."),
    (
        lambda f: not f.seeds,
        "One training per method: the interval does not contain the variation between trainings.",
    ),
    (lambda f: f.seeds, "Intervals and p-values contain the variation between trainings (Student's t)."),
    (
        lambda f: f.seeds and min(f.trainings) == 1,
        "A method with one training is taken to vary as the others do.",
    ),
    (lambda f: f.by_patient, "Intervals and p-values resample patients, the same ones for all runs."),
    (
        lambda f: not f.by_patient,
        "No patient ids: intervals and p-values resample images, and are too narrow if a patient has several.",
    ),
    (lambda f: f.two, "They are not corrected for the number of metrics."),
    (lambda f: not f.two, "p is corrected for the number of runs (Holm), not for the number of metrics."),
]


def comparison_facts(comparison: Comparison) -> ComparisonFacts:
    """The facts of a comparison."""
    rows = [row for row in comparison.differences if row.metric == comparison.purpose]
    sign = -1 if METRICS[comparison.purpose].lower_is_better else 1
    clear = [row for row in rows if _is_clear(row, comparison.level)]
    patients = f" of {count_of(comparison.patients, 'patient')}" if comparison.patients else ""
    value, low, high = rows[0].difference
    ends = between(low, high, "+.3f")
    return ComparisonFacts(
        first=comparison.runs[0],
        others=comparison.runs[1:],
        metric=METRICS[comparison.purpose].long_name,
        values=(rows[0].first, rows[0].value),
        difference=f"{_signed(value)} ({comparison.level:.0%} interval {ends})",
        better=tuple(row.run for row in clear if sign * row.difference.value > 0),
        worse=tuple(row.run for row in clear if sign * row.difference.value < 0),
        samples=f"{count_of(comparison.samples, 'test sample')}{patients}",
        judged_by=comparison.judged_by,
        by_patient=comparison.patients is not None,
        trainings=comparison.trainings or (1,) * len(comparison.runs),
    )


def _is_clear(row: Difference, level: float) -> bool:
    """Whether neither the interval nor the corrected p-value allows for no difference."""
    return (row.difference.low > 0 or row.difference.high < 0) and row.adjusted <= 1 - level


def _signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def comparison_page(comparison: Comparison) -> Page:
    """The verdict, the differences as a figure, and all numbers."""
    facts = comparison_facts(comparison)
    leaks = [
        Note(text=f"{run} was trained on {count:,} of the samples (same ids): its numbers look too good.")
        for run, count in comparison.trained_on.items()
    ]
    return Page(
        kind="Comparison",
        title=f"{', '.join(facts.others)} against {facts.first}",
        lead=first_sentence(VERDICT, facts),
        key_numbers=_key_numbers(comparison, facts),
        figure=forest_figure(comparison),
        figure_table=None if facts.two else _table(comparison, metrics=FIRST),
        notes=[*leaks, *(Note(text=text, warning=False) for text in sentences(NOTES, facts))],
        sections=[
            Section(
                slug="numbers", heading="All metrics", tables=[_table(comparison, metrics=tuple(METRICS))]
            )
        ],
    )


def _key_numbers(comparison: Comparison, facts: ComparisonFacts) -> list[KeyNumber]:
    """Of two runs the usual metrics; of several the metric that the grades are for."""
    return [
        KeyNumber(
            label=metric_heading(row.metric) if facts.two else row.run,
            value=_signed(row.difference.value),
            interval=between(row.difference.low, row.difference.high, "+.3f"),
            compared=f"{row.value:.3f} vs {row.first:.3f}, p {row.adjusted:.3f}",
        )
        for row in comparison.differences
        if row.metric in (FIRST if facts.two else (comparison.purpose,))
    ]


def _table(comparison: Comparison, *, metrics: tuple[str, ...]) -> Table:
    rows = [row for row in comparison.differences if row.metric in metrics]
    several = len(comparison.runs) > 2
    interval = f"{comparison.level:.0%} interval"
    frame = pd.DataFrame({
        "metric": [metric_heading(row.metric) for row in rows],
        "run": [row.run for row in rows],
        "difference": [row.difference.value for row in rows],
        interval: [between(row.difference.low, row.difference.high, "+.3f") for row in rows],
        "p, Holm" if several else "p": [row.adjusted for row in rows],
        "this run": [row.value for row in rows],
        comparison.runs[0]: [row.first for row in rows],
    })  # fmt: skip
    starts = [place for place in range(1, len(rows)) if rows[place].run != rows[place - 1].run]
    return data_table(
        frame if several else frame.drop(columns="run"),
        title=f"Differences from {comparison.runs[0]}",
        formats={"difference": "+.3f"},
        slug="differences",
        rule_before=starts,
    )
