"""What pages say of the scores of subgroups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import Subgroups
from srjt.ordinal.intervals import TOO_FEW, Interval
from srjt.ordinal.metrics import METRICS
from srjt.reports.aspects import Facts, file_facts, sections_of
from srjt.reports.figures import canvas
from srjt.reports.page import Section
from srjt.reports.sections import interval_text
from srjt.reports.table import between, data_table, p_value

SITES = ("site", "centre", "center", "hospital", "clinic", "institution")  # columns that name them
FEW_FOR_FAR = 20  # patients of a group, below which errors by several grades may not occur in it
NOTHING = Interval(math.nan, math.nan, math.nan)


def comparison_of(groups: Subgroups) -> str:
    """Whether a group differs, and which is the worst, as sentences."""
    if groups.worst is None:
        return f"Groups with fewer than {TOO_FEW} patients are not reported, and no group has more."
    if groups.differing:
        return (
            "The mean absolute error differs from that of all others by more than chance (p ≤ 0.05"
            f" after Holm's correction): {groups.differing}. The worst is {groups.worst}."
        )
    if len(groups.groups) == 1:
        return "All are one group: there is none to compare it with."
    return (
        "No group is shown to differ from all others in mean absolute error; the worst is"
        f" {groups.worst}."
    )


@sections_of.register
def _sections(judged: Subgroups, evaluation: Evaluation) -> list[Section]:
    """The worst group, the error of each group and its gap to all others. All scores are in the
    file of the groups."""
    groups = judged.groups
    unit = "patients" if evaluation.by_patient else "samples"
    rows = []
    for group in groups:
        error = group.scores.get("mae", NOTHING)
        row = {
            "group": str(group),
            unit: group.patients,
            "MAE": error.value,
            "95 %, MAE": between(*error[1:]),
            "gap": math.nan,
            "p, Holm": math.nan,
        }
        if gap := group.gaps.get("mae"):
            row |= {"gap": gap.difference.value, "p, Holm": gap.adjusted}
        rows.append(row)
    frame = pd.DataFrame(rows)
    if "ranges" in evaluation.aspects:
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
        formats={"gap": "+.3f", "p, Holm": p_value},
        slug="subgroups",
        rule_before=[k for k in range(1, len(groups)) if groups[k].column != groups[k - 1].column],
    )
    figures = []
    if judged.worst is not None:  # else it would be empty
        figures = [subgroup_figure(judged, all_samples=evaluation.intervals["mae"].value)]
    text = [comparison_of(judged)]
    return [Section("subgroups", "Groups", text=text, tables=[table], figures=figures, brief=True)]


@file_facts("subgroups")
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    for column, groups in itertools.groupby(values["groups"], key=itemgetter("column")):
        errors = []
        for group in groups:
            error = "has too few"
            if group["scores"]:
                error = interval_text(group["scores"]["mae"])
            errors.append(f"{group['name']} {error} ({count_of(group['patients'], 'patient')})")
        metric = METRICS["mae"].long_name.capitalize()
        fact = "sites" if column.casefold() in SITES else "subgroups"
        yield fact, f"{metric} of {answers} by {column}: {', '.join(errors)}."


def subgroup_figure(subgroups: Subgroups, *, all_samples: float) -> canvas.CaptionedFigure:
    """The mean absolute error of every group. all_samples: that of all."""
    rows = []
    for column, groups in itertools.groupby(subgroups.groups, key=attrgetter("column")):
        rows.append(canvas.Estimate(column))
        for group in groups:
            name = canvas.printable(group.name, longest=18)
            if group.too_few:
                name += " (too few)"
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
