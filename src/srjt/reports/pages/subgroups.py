"""The scores of subgroups, as a section of the page of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import TOO_FEW, Subgroups
from srjt.ordinal.metrics import METRICS, Interval
from srjt.reports.figures.results import subgroup_figure
from srjt.reports.page import Rule, Section, sentences
from srjt.reports.table import Table, between, data_table

FIRST = ("mae", "accuracy", "macro_f1", "qwk")
SHORT = {**{name: metric.short_name for name, metric in METRICS.items()}, "calibration_error": "cal. error"}
SHORT["coverage"] = "cov."
NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, kw_only=True)
class SubgroupFacts:
    """What the sentences are about."""

    groups: int  # that are large enough
    tests: str  # "5 comparisons"
    worst: str
    score: float
    gap: str  # "+0.210 (+0.101 – +0.319) against the rest"; "" if the rest is too small
    p: float  # after Holm's correction
    differing: str  # other groups whose gap is more than chance

    @property
    def clear(self) -> bool:
        return self.p <= 0.05


SUBGROUPS: list[Rule[SubgroupFacts]] = [
    (lambda f: not f.groups, f"No group has {TOO_FEW} patients: nothing can be said about any of them."),
    (
        lambda f: f.groups > 0 and not f.gap,
        "Worst: {f.worst}, mean absolute error {f.score:.3f}; the rest is too few.",
    ),
    (
        lambda f: bool(f.gap) and f.clear,
        "Worst: {f.worst}, mean absolute error {f.score:.3f}, {f.gap}: p {f.p:.3f} after Holm's correction for "
        "{f.tests}.",
    ),
    (
        lambda f: bool(f.gap) and not f.clear,
        "Worst: {f.worst}, mean absolute error {f.score:.3f}, {f.gap}; as the worst of {f.groups} groups it may be "
        "chance (p {f.p:.2f} after Holm's correction for {f.tests}).",
    ),
    (lambda f: bool(f.differing), "More than chance: {f.differing}."),
]


def subgroup_facts(subgroups: Subgroups) -> SubgroupFacts:
    """The facts of the groups."""
    worst, shown = subgroups.worst, [group for group in subgroups.groups if not group.too_few]
    gap = None if worst is None else worst.gaps.get("mae")
    others = [
        f"{group} ({_signed(group.gaps['mae'].difference.value)})"
        for group in shown
        if group is not worst and group.gaps and group.gaps["mae"].adjusted <= 0.05
    ]
    ends = "" if gap is None else between(gap.difference.low, gap.difference.high, "+.3f")
    return SubgroupFacts(
        groups=len(shown),
        tests=count_of(subgroups.tests, "comparison"),
        worst="" if worst is None else str(worst),
        score=math.nan if worst is None else worst.scores["mae"].value,
        gap="" if gap is None else f"{_signed(gap.difference.value)} ({ends}) against the rest",
        p=math.nan if gap is None else gap.adjusted,
        differing=", ".join(others),
    )


def _signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def subgroups_sections(found: Evaluation, *, brief: bool) -> list[Section]:
    """The worst group, a forest plot and the scores of all groups. brief: only what a terminal shows."""
    if found.subgroups is None:
        return []
    names = [*FIRST, "calibration_error", *(["coverage"] if found.ranges is not None else [])]
    few = ["mae", *(["accuracy" if found.ranges is None else "coverage"] if brief else [])]
    first = Section(
        slug="subgroups",
        heading="Groups",
        text=sentences(SUBGROUPS, subgroup_facts(found.subgroups)),
        tables=[_table(found, found.subgroups, few)],
        figures=[] if brief else [subgroup_figure(found.subgroups, all_samples=found.intervals["mae"].value)],
        brief=True,
    )
    whole = Section(
        slug="subgroup-scores",
        heading="All scores of the groups",
        tables=[_table(found, found.subgroups, names, intervals=True)],
        closed=True,
    )
    return [first] if brief else [first, whole]


def _table(
    found: Evaluation, subgroups: Subgroups, names: Sequence[str], *, intervals: bool = False
) -> Table:
    """Some scores of each group; only the mean absolute error has its interval, unless all have."""
    groups = subgroups.groups
    frame = pd.DataFrame({
        "group": [str(group) for group in groups],
        "patients" if found.by_patient else "samples": [group.patients for group in groups],
    })  # fmt: skip
    for name in names:
        scores = [group.scores.get(name, NOTHING) for group in groups]
        frame[SHORT[name]] = [score.value for score in scores]
        if intervals or name == "mae":
            frame[f"95 %, {SHORT[name]}"] = [between(*score[1:]) for score in scores]
    gaps = [group.gaps.get("mae") for group in groups]
    frame["gap"] = [math.nan if gap is None else gap.difference.value for gap in gaps]
    if intervals:
        ends = [NOTHING[1:] if gap is None else gap.difference[1:] for gap in gaps]
        frame["95 %, gap"] = [between(*pair, "+.3f") for pair in ends]
    p_values = ["" if gap is None else f"{gap.adjusted:.3f}" for gap in gaps]
    few = [group.too_few for group in groups]
    frame["p, Holm"] = ["too few" if small else p for small, p in zip(few, p_values, strict=True)]
    return data_table(
        frame,
        title="Scores of the groups",
        caption=f"Gap: mean absolute error of the group minus that of all others. Too few: fewer than {TOO_FEW} "
        "patients." + " By chance alone the calibration error of a smaller group is larger." * intervals,
        formats={"gap": "+.3f"},
        slug="subgroup-scores" if intervals else "subgroups",
        rule_before=[k for k in range(1, len(groups)) if groups[k].column != groups[k - 1].column],
    )
