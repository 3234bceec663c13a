"""Sections of the page of an evaluation: its subgroups, the true grades where labels are doubtful, and what changed
from the run's own test side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.populations import TOO_FEW, External, Gap, Scores, Subgroup, Subgroups
from srjt.inference.true_scores import TrueScores
from srjt.ordinal.metrics import MAIN, METRICS, Interval
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import reliability_figure, subgroup_figure
from srjt.reports.page import Rule, Section, first_sentence, sentences
from srjt.reports.study_tables import decimals
from srjt.reports.table import Table, between, data_table, metric_heading

NOTHING = Interval(math.nan, math.nan, math.nan)

# Subgroups.

SHORT = {**{name: metric.short_name for name, metric in METRICS.items()}, "calibration_error": "cal. error"}
SHORT["coverage"] = "cov."


class SubgroupFacts(NamedTuple):
    """What the sentences are about."""

    groups: int  # that are large enough
    tests: str  # "5 comparisons"
    worst: Subgroup | None
    gap: Gap | None  # of the worst; None if the rest is too small
    ends: str  # of the gap
    differing: str  # other groups whose gap is more than chance


SUBGROUPS: list[Rule[SubgroupFacts]] = [
    (lambda f: not f.groups, f"No group has {TOO_FEW} patients: nothing can be said about any of them."),
    (
        lambda f: f.groups > 0 and not f.gap,
        "Worst: {f.worst}, mean absolute error {f.worst.scores[mae].value:.3f}; the rest is too few.",
    ),
    (
        lambda f: f.gap is not None and f.gap.adjusted <= 0.05,
        "Worst: {f.worst}, mean absolute error {f.worst.scores[mae].value:.3f}, {f.ends} against the rest: p "
        "{f.gap.adjusted:.3f} after Holm's correction for {f.tests}.",
    ),
    (
        lambda f: f.gap is not None and not f.gap.adjusted <= 0.05,
        "Worst: {f.worst}, mean absolute error {f.worst.scores[mae].value:.3f}, {f.ends} against the rest; as the "
        "worst of {f.groups} groups it may be chance (p {f.gap.adjusted:.2f} after Holm's correction for {f.tests}).",
    ),
    (lambda f: bool(f.differing), "More than chance: {f.differing}."),
]


def subgroup_facts(subgroups: Subgroups) -> SubgroupFacts:
    """The facts of the groups."""
    worst, shown = subgroups.worst, [group for group in subgroups.groups if not group.too_few]
    gap = None if worst is None else worst.gaps.get("mae")
    value, low, high = NOTHING if gap is None else gap.difference
    others = [
        f"{group} ({decimals(group.gaps['mae'].difference.value, signed=True)})"
        for group in shown
        if group is not worst and group.gaps and group.gaps["mae"].adjusted <= 0.05
    ]
    return SubgroupFacts(
        groups=len(shown),
        tests=count_of(subgroups.tests, "comparison"),
        worst=worst,
        gap=gap,
        ends=f"{decimals(value, signed=True)} ({between(low, high, '+.3f')})",
        differing=", ".join(others),
    )


def subgroups_sections(found: Evaluation, *, brief: bool) -> list[Section]:
    """The worst group, a forest plot and the scores of all groups. brief: only what a terminal shows."""
    if found.subgroups is None:
        return []
    names = [*MAIN, "calibration_error", *(["coverage"] if found.ranges is not None else [])]
    few = ["mae", *(["accuracy" if found.ranges is None else "coverage"] if brief else [])]
    first = Section(
        "subgroups",
        "Groups",
        text=sentences(SUBGROUPS, subgroup_facts(found.subgroups)),
        tables=[_subgroup_table(found, found.subgroups, few)],
        figures=[] if brief else [subgroup_figure(found.subgroups, all_samples=found.intervals["mae"].value)],
        brief=True,
    )
    whole = Section(
        "subgroup-scores",
        "All scores of the groups",
        tables=[_subgroup_table(found, found.subgroups, names, intervals=True)],
        closed=True,
    )
    return [first] if brief else [first, whole]


def _subgroup_table(
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


class TruthFacts(NamedTuple):
    """What the sentences are about."""

    metric: str  # the one that the grades are for, or the MAE, in words
    score: Interval
    truly: TrueScores


LEAD: list[Rule[TruthFacts]] = [
    (lambda f: math.isnan(f.score.low), ""),
    (
        lambda f: f.truly.basis == "verified grades",
        " {f.metric} against the true grades: {f.score.value:.3f} ({f.score.low:.3f} to {f.score.high:.3f}).",
    ),
    (lambda f: True, " {f.metric} against the true grades: {f.score.low:.3f} to {f.score.high:.3f}."),
]
WHY: list[Rule[TruthFacts]] = [
    (
        lambda f: f.truly.basis == "verified grades",
        "From all labels, corrected by {f.truly.verified:,} verified grades. These must be a random part; nothing is "
        "assumed about the errors of the others.",
    ),
    (lambda f: f.truly.basis == "readings", "From what the readings tell about the true grades."),
    (
        lambda f: f.truly.basis == "noise matrix",
        "From the noise of the run's labels ({f.truly.wrong[0]:.0%} to {f.truly.wrong[1]:.0%} wrong), if these labels "
        "are as noisy.",
    ),
    (
        lambda f: bool(f.truly.apart and f.truly.alike),
        "Whether the network errs where the labels are wrong is not known: the bounds reach from one extreme to the "
        "other.",
    ),
    (
        lambda f: f.truly.basis == "readings",
        "They include errors that all readers share, up to the rate of one reader's own, whether they mislead the "
        "network or not; apart and alike are without such errors. A few verified grades tell much more.",
    ),
    (
        lambda f: f.truly.basis == "share of wrong labels",
        "How many of the labels are wrong is not determined ({f.truly.wrong[0]:.0%} to {f.truly.wrong[1]:.0%} are "
        "plausible). These are bounds, whatever the errors depend on.",
    ),
]


def truth_facts(found: Evaluation, truly: TrueScores) -> TruthFacts:
    """The facts of the scores against the true grades."""
    purpose = found.purpose if found.purpose in truly.scores else "mae"
    words = METRICS[purpose].long_name
    return TruthFacts(words[0].upper() + words[1:], truly.scores[purpose], truly)


def true_scores_lead(found: Evaluation) -> str:
    """A second sentence for the top of the page; "" if there is nothing to say."""
    return "" if found.true_scores is None else first_sentence(LEAD, truth_facts(found, found.true_scores))


def true_scores_section(found: Evaluation) -> Section | None:
    """Each score by the labels and against the true grades."""
    truly = found.true_scores
    if truly is None:
        return None
    names = {"mae": "absolute error ↓", "accuracy": "accuracy ↑", "qwk": "quadratic κ ↑"}
    names |= {f"recall_{place}": f"recall, {grade}" for place, grade in enumerate(found.grades.shown)}
    by_label: dict[str, float] = {name: interval.value for name, interval in found.intervals.items()}
    if found.decision is not None:
        by_label |= {name: interval.value for name, interval in found.decision.operating_point.items()}
    for place, counts in enumerate(found.confusion):
        by_label[f"recall_{place}"] = counts[place] / sum(counts) if sum(counts) else math.nan
    shown = [name for name, interval in truly.scores.items() if math.isfinite(interval.low)]
    bounds = truly.basis != "verified grades"

    def ends(scores: dict[str, Interval]) -> list[str]:
        return [between(scores[name].low, scores[name].high) for name in shown]

    frame = pd.DataFrame({
        "score": [names.get(name, name) for name in shown],
        "by labels": [by_label[name] for name in shown],
        "by true grades": [truly.scores[name].value for name in shown],
        "bounds" if bounds else "95 % interval": ends(truly.scores),
    })  # fmt: skip
    caption = ""
    if bounds:
        frame = frame.drop(columns="by true grades")
    if truly.apart and truly.alike:
        frame["apart"], frame["alike"] = ends(truly.apart), ends(truly.alike)
        caption = "Apart: the network errs independently of the labels. Alike: it repeats their errors."
    return Section(
        "true-scores",
        "Against the true grades",
        text=sentences(WHY, truth_facts(found, truly)),
        tables=[data_table(frame, title="Against the true grades", caption=caption, slug="true-scores")],
        brief=True,
    )


# Samples from elsewhere.

EXTERNAL: list[Rule[External]] = [
    (
        lambda f: math.isfinite(f.by_mix),
        "Mean absolute error {f.here.intervals[mae].value:.3f} here and {f.home.intervals[mae].value:.3f} on the run's "
        "own test side. The change has two parts: {f.by_mix:+.3f} by another mix of grades and {f.by_answers:+.3f} by "
        "answers to the same grades.",
    ),
    (
        lambda f: not math.isfinite(f.by_mix),
        "Mean absolute error {f.here.intervals[mae].value:.3f} here and {f.home.intervals[mae].value:.3f} on the run's "
        "own test side. That side lacks a grade that is here: what the change is due to is not known.",
    ),
    (
        lambda f: f.recalibrated is not None,
        "Recalibrated on a part of them: mean absolute error {f.here.intervals[mae].value:.3f} → "
        "{f.recalibrated.intervals[mae].value:.3f}, calibration error {f.here.calibration_error:.3f} → "
        "{f.recalibrated.calibration_error:.3f}.",
    ),
]


def external_section(found: Evaluation, *, brief: bool) -> Section | None:
    """Scores, grades and calibration at home and here. brief: the sentences only."""
    external = found.external
    if external is None:
        return None
    sets = {"home": external.home, "here": external.here}
    if external.recalibrated is not None:
        sets["recalibrated"] = external.recalibrated
    figure = CaptionedFigure(
        name="external",
        figure=reliability_figure({name.capitalize(): scores.calibration for name, scores in sets.items()}),
        caption="How often answers are right, by how sure they are, at home and here.",
        alt="Reliability diagrams of the own test side and of these samples.",
    )
    return Section(
        "external",
        "Beside the run's own test side",
        text=[text.replace(" -", " −") for text in sentences(EXTERNAL, external)],
        tables=[] if brief else [_external_scores(external, sets), _external_grades(sets, found)],
        figures=[] if brief else [figure],
        brief=True,
    )


def _external_scores(external: External, sets: dict[str, Scores]) -> Table:
    frame = pd.DataFrame({"score": [*map(metric_heading, MAIN), "calibration error ↓"]})
    for name, scores in sets.items():
        values = [scores.intervals[metric].value for metric in MAIN]
        frame[name] = [*values, scores.calibration_error]
        frame[f"95 %, {name}"] = [*(between(*scores.intervals[metric][1:]) for metric in MAIN), ""]
    samples, patients = external.calibrated_on
    caption = "Home: the run's own test side, by the run as it was trained, as in “here”."
    if samples:
        of = f" of {count_of(patients, 'patient')}" if patients else ""
        caption += f" Recalibrated on {count_of(samples, 'sample')}{of}."
    return data_table(frame, title="Scores at home and here", slug="external-scores", caption=caption)


def _external_grades(sets: dict[str, Scores], found: Evaluation) -> Table:
    """Share and error of each grade."""
    frame = pd.DataFrame({"grade": found.grades.shown})
    for name in ("home", "here"):
        frame[f"share, {name}"] = sets[name].shares
    for name, scores in sets.items():
        frame[f"MAE, {name}"] = scores.grade_errors
    shares = {f"share, {name}": ".1%" for name in sets}
    return data_table(frame, title="Grades at home and here", slug="external-grades", formats=shares)
