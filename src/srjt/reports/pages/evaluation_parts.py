"""Sections of the page of an evaluation: its subgroups, the true grades where labels are doubtful, and what changed
from the run's own test side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.populations import TOO_FEW, External, Gap, Subgroups
from srjt.inference.true_scores import TrueScores
from srjt.ordinal.metrics import MAIN, METRICS, Interval
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import reliability_figure, subgroup_figure
from srjt.reports.page import Rule, Section, sentences
from srjt.reports.table import Table, between, data_table, metric_heading

NOTHING = Interval(math.nan, math.nan, math.nan)

# Subgroups.

SHORT = {name: metric.short_name for name, metric in METRICS.items()}
SHORT |= {"calibration_error": "cal. error", "coverage": "cov."}

SUBGROUPS: list[Rule[Any]] = [
    (lambda f: not f.groups, f"No group has {TOO_FEW} patients: nothing can be said about any of them."),
    (lambda f: f.groups and not f.differing, "No group is shown to differ from all others; the worst is {f.worst}."),
    (lambda f: f.differing, "More than chance (p ≤ 0.05 after Holm's correction): {f.differing}. The worst is "
     "{f.worst}."),
]  # fmt: skip


def subgroup_facts(subgroups: Subgroups) -> SimpleNamespace:
    """What the sentences are about. groups: how many are large enough; differing: those whose gap is no chance."""
    differing = [
        str(group) for group in subgroups.groups if group.gaps and group.gaps["mae"].adjusted <= 0.05
    ]
    return SimpleNamespace(
        groups=sum(not group.too_few for group in subgroups.groups),
        worst=subgroups.worst,
        differing=", ".join(differing),
    )


def subgroups_sections(found: Evaluation, *, brief: bool) -> list[Section]:
    """The worst group, a forest plot and the scores of all groups. brief: only what a terminal shows."""
    if found.subgroups is None:
        return []
    text = sentences(SUBGROUPS, subgroup_facts(found.subgroups))
    if brief:
        few = _subgroup_table(found, found.subgroups, ["mae", "coverage" if found.ranges else "accuracy"])
        return [Section("subgroups", "Groups", text=text, tables=[few], brief=True)]
    names = [*MAIN, "calibration_error", *(["coverage"] if found.ranges else [])]
    errors = _subgroup_table(found, found.subgroups, ["mae"])
    every = _subgroup_table(found, found.subgroups, names, intervals=True)
    figure = subgroup_figure(found.subgroups, all_samples=found.intervals["mae"].value)
    return [
        Section("subgroups", "Groups", text=text, tables=[errors], figures=[figure], brief=True),
        Section("subgroup-scores", "All scores of the groups", tables=[every], closed=True),
    ]


def _subgroup_table(
    found: Evaluation, subgroups: Subgroups, names: Sequence[str], *, intervals: bool = False
) -> Table:
    """Some scores of each group; only the mean absolute error has its interval, unless all have."""
    groups = subgroups.groups
    frame = pd.DataFrame({"group": map(str, groups)})
    frame["patients" if found.by_patient else "samples"] = [group.patients for group in groups]
    for name in names:
        scores = [group.scores.get(name, NOTHING) for group in groups]
        frame[SHORT[name]] = [score.value for score in scores]
        if intervals or name == "mae":
            frame[f"95 %, {SHORT[name]}"] = [between(*score[1:]) for score in scores]
    nothing = Gap(difference=NOTHING, p_value=math.nan, adjusted=math.nan)
    gaps = [group.gaps.get("mae", nothing) for group in groups]
    frame["gap"] = [gap.difference.value for gap in gaps]
    if intervals:
        frame["95 %, gap"] = [between(*gap.difference[1:], "+.3f") for gap in gaps]
    frame["p, Holm"] = [
        "too few" if group.too_few else "" if gap is nothing else f"{gap.adjusted:.3f}"
        for group, gap in zip(groups, gaps, strict=True)
    ]
    return data_table(
        frame,
        title="Scores of the groups",
        caption=f"Gap: mean absolute error of the group minus that of all others. Too few: fewer than {TOO_FEW} "
        "patients." + " By chance alone the calibration error of a smaller group is larger." * intervals,
        formats={"gap": "+.3f"},
        slug="subgroup-scores" if intervals else "subgroups",
        rule_before=[k for k in range(1, len(groups)) if groups[k].column != groups[k - 1].column],
    )


# Scores against the true grades, where labels may be wrong.

WHY: list[Rule[TrueScores]] = [
    (lambda f: f.basis == "verified grades", "From all labels, corrected by {f.verified:,} verified grades. These must "
     "be a random part; nothing is assumed about the errors of the others."),
    (lambda f: f.basis == "readings", "From what the readings tell about the true grades. The bounds include errors "
     "that all readers share, up to the rate of one reader's own; a few verified grades tell much more."),
    (lambda f: f.basis == "noise matrix", "From the noise of the run's labels ({f.wrong[0]:.0%} to {f.wrong[1]:.0%} "
     "wrong), if these labels are as noisy."),
    (lambda f: f.basis == "share of wrong labels", "How many of the labels are wrong is not determined "
     "({f.wrong[0]:.0%} to {f.wrong[1]:.0%} are plausible). These are bounds, whatever the errors depend on."),
]  # fmt: skip


def true_scores_lead(found: Evaluation) -> str:
    """A second sentence for the top of the page; "" if there is nothing to say."""
    truly = found.true_scores
    if truly is None:
        return ""
    purpose = found.purpose if found.purpose in truly.scores else "mae"
    value, low, high = truly.scores[purpose]
    verified = f"{value:.3f}, " if truly.basis == "verified grades" else ""
    words = METRICS[purpose].long_name.capitalize()
    return "" if math.isnan(low) else f" {words} against the true grades: {verified}{between(low, high)}."


def true_scores_section(found: Evaluation) -> list[Section]:
    """Each score by the labels and against the true grades."""
    truly = found.true_scores
    if truly is None:
        return []
    names = {"mae": "absolute error ↓", "accuracy": "accuracy ↑", "qwk": "quadratic κ ↑"}
    by_label = found.intervals | (found.decision.operating_point if found.decision else {})
    values = {name: interval.value for name, interval in by_label.items()}
    for place, counts in enumerate(found.confusion):
        names[f"recall_{place}"] = f"recall, {found.grades.show(place)}"
        values[f"recall_{place}"] = counts[place] / sum(counts) if sum(counts) else math.nan
    shown = [name for name, interval in truly.scores.items() if math.isfinite(interval.low)]
    frame = pd.DataFrame({
        "score": [names.get(name, name) for name in shown],
        "by labels": [values[name] for name in shown],
    })  # fmt: skip
    if truly.basis == "verified grades":
        frame["by true grades"] = [truly.scores[name].value for name in shown]
        columns = {"95 % interval": truly.scores}
    else:
        columns = {"bounds": truly.scores}
    caption = ""
    if truly.apart and truly.alike:
        columns |= {"apart": truly.apart, "alike": truly.alike}
        caption = (
            "Apart: the network errs independently of the labels. Alike: it repeats their errors. Which of "
            "these is so is not known."
        )
    for heading, scores in columns.items():
        frame[heading] = [between(*scores[name][1:]) for name in shown]
    table = data_table(frame, title="Against the true grades", caption=caption, slug="true-scores")
    text = sentences(WHY, truly)
    return [Section("true-scores", "Against the true grades", text=text, tables=[table], brief=True)]


# Samples from elsewhere.

EXTERNAL: list[Rule[External]] = [
    (lambda f: math.isfinite(f.by_mix), "Mean absolute error {f.here.intervals[mae].value:.3f} here and "
     "{f.home.intervals[mae].value:.3f} on the run's own test side: {f.by_mix:+.3f} by another mix of grades, "
     "{f.by_answers:+.3f} by answers to the same grades."),
    (lambda f: not math.isfinite(f.by_mix), "Mean absolute error {f.here.intervals[mae].value:.3f} here and "
     "{f.home.intervals[mae].value:.3f} on the run's own test side, which lacks a grade that is here."),
    (lambda f: f.recalibrated is not None, "Recalibrated on a part of them: mean absolute error "
     "{f.recalibrated.intervals[mae].value:.3f}, calibration error {f.here.calibration_error:.3f} → "
     "{f.recalibrated.calibration_error:.3f}."),
]  # fmt: skip


def external_section(found: Evaluation, *, brief: bool) -> list[Section]:
    """Scores, grades and calibration at home and here. brief: the sentences only."""
    external = found.external
    if external is None:
        return []
    heading, text = "Beside the run's own test side", sentences(EXTERNAL, external)
    text = [sentence.replace(" -", " −") for sentence in text]
    if brief:
        return [Section("external", heading, text=text, brief=True)]
    sets = {"home": external.home, "here": external.here}
    if external.recalibrated is not None:
        sets["recalibrated"] = external.recalibrated
    scores = pd.DataFrame({"score": [*map(metric_heading, MAIN), "calibration error ↓"]})
    grades = pd.DataFrame({"grade": found.grades.shown})
    for name, one in sets.items():
        intervals = [one.intervals[metric] for metric in MAIN]
        scores[name] = [*(interval.value for interval in intervals), one.calibration_error]
        scores[f"95 %, {name}"] = [*(between(*interval[1:]) for interval in intervals), ""]
    for name in ("home", "here"):
        grades[f"share, {name}"] = sets[name].shares
    for name, one in sets.items():
        grades[f"MAE, {name}"] = one.grade_errors
    samples, patients = external.calibrated_on
    caption = "Home: the run's own test side, by the run as it was trained, as in “here”."
    if samples:
        of = f" of {count_of(patients, 'patient')}" if patients else ""
        caption += f" Recalibrated on {count_of(samples, 'sample')}{of}."
    figure = CaptionedFigure(
        name="external",
        figure=reliability_figure({name.capitalize(): one.calibration for name, one in sets.items()}),
        caption="How often answers are right, by how sure they are, at home and here.",
        alt="Reliability diagrams of the own test side and of these samples.",
    )
    shares = dict.fromkeys(("share, home", "share, here"), ".1%")
    tables = [
        data_table(scores, title="Scores at home and here", slug="external-scores", caption=caption),
        data_table(grades, title="Grades at home and here", slug="external-grades", formats=shares),
    ]
    return [Section("external", heading, text=text, tables=tables, figures=[figure], brief=True)]
