"""What pages say of the scores of subgroups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import Subgroups
from srjt.ordinal.metrics import METRICS, TOO_FEW, Interval
from srjt.reports.aspects import Facts, file_facts, sections_of
from srjt.reports.figures import canvas
from srjt.reports.page import Rule, Section, sentences
from srjt.reports.sections import interval_text
from srjt.reports.table import between, data_table

SITES = ("site", "centre", "center", "hospital", "clinic", "institution")  # columns that name them
FEW_FOR_FAR = 20  # patients of a group, below which errors by several grades may not occur in it
NOTHING = Interval(math.nan, math.nan, math.nan)
SUBGROUPS: list[Rule[Subgroups]] = [
    (
        lambda f: f.worst is None,
        f"No group has {TOO_FEW} patients: nothing can be said about any of them.",
    ),
    (
        lambda f: f.worst and len(f.groups) == 1,
        "All are one group: there is none to compare it with.",
    ),
    (
        lambda f: f.worst and len(f.groups) > 1 and not f.differing,
        "No group is shown to differ from all others in mean absolute error; the worst is"
        " {f.worst}.",
    ),
    (
        lambda f: f.differing,
        "The mean absolute error differs from that of all others by more than chance (p ≤ 0.05"
        " after Holm's correction): {f.differing}. The worst is {f.worst}.",
    ),
]


@sections_of.register
def _sections(judged: Subgroups, found: Evaluation) -> list[Section]:
    """The worst group, the error of each group and its gap to all others. All scores are in the
    file of the groups."""
    groups = judged.groups
    errors = [group.scores.get("mae", NOTHING) for group in groups]
    gaps = [group.gaps.get("mae") for group in groups]
    frame = pd.DataFrame(
        {
            "group": [str(group) for group in groups],
            "patients" if found.by_patient else "samples": [group.patients for group in groups],
            "MAE": [error.value for error in errors],
            "95 %, MAE": [between(*error[1:]) for error in errors],
            "gap": [gap.difference.value if gap else math.nan for gap in gaps],
            "p, Holm": [gap.adjusted if gap else math.nan for gap in gaps],
        }
    )
    if "ranges" in found.aspects:
        coverage = [group.scores.get("coverage", NOTHING).value for group in groups]
        frame.insert(4, "coverage", coverage)
    table = data_table(
        frame,
        title="Scores of the groups",
        caption=(
            "Gap: mean absolute error of the group minus that of all others. A dash: fewer than"
            f" {TOO_FEW} patients, in the group or in all others. Where a few patients have most of"
            " the images of a group, intervals may be too short; likewise in groups of fewer than"
            f" {FEW_FOR_FAR} patients, if rare errors are by several grades."
        ),
        formats={"gap": "+.3f"},
        slug="subgroups",
        rule_before=[k for k in range(1, len(groups)) if groups[k].column != groups[k - 1].column],
    )
    figure = subgroup_figure(judged, all_samples=found.intervals["mae"].value)
    text = sentences(SUBGROUPS, judged)
    return [Section("subgroups", "Groups", text=text, tables=[table], figures=[figure], brief=True)]


@file_facts("subgroups")
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    for column, groups in itertools.groupby(values["groups"], key=lambda group: group["column"]):
        errors = []
        for group in groups:
            error = interval_text(group["scores"]["mae"]) if group["scores"] else "has too few"
            errors.append(f"{group['name']} {error} ({count_of(group['patients'], 'patient')})")
        metric = METRICS["mae"].long_name.capitalize()
        fact = "sites" if column.casefold() in SITES else "subgroups"
        yield fact, f"{metric} of {answers} by {column}: {', '.join(errors)}."


def subgroup_figure(subgroups: Subgroups, *, all_samples: float) -> canvas.CaptionedFigure:
    """The mean absolute error of every group. all_samples: that of all."""
    rows = []
    for column, groups in itertools.groupby(subgroups.groups, key=lambda group: group.column):
        rows.append(canvas.Estimate(column))
        for group in groups:
            name = canvas.printable(group.name, longest=18) + (
                " (too few)" if group.too_few else ""
            )
            rows.append(canvas.Estimate(name, group.scores.get("mae", NOTHING), group.differs))
    differ = sum(row.clear for row in rows)
    return canvas.CaptionedFigure(
        name="subgroups",
        figure=canvas.interval_figure({"": rows}, xlabel="mean absolute error", at=all_samples),
        caption=(
            "Mean absolute error with its 95 % interval over patients; the line is that of all"
            " samples. Blue diamonds: the gap to all others is more than chance, after Holm's"
            " correction."
        ),
        alt=f"Forest plot of {len(subgroups.groups)} groups; {differ} differ from the rest.",
    )
