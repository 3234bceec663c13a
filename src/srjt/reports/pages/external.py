"""What changed from the run's own test side to samples from elsewhere, as a section of the page of an evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.external import External, Scores
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import reliability_figure
from srjt.reports.page import Rule, Section, sentences
from srjt.reports.table import Table, between, data_table, metric_heading

FIRST = ("mae", "accuracy", "macro_f1", "qwk")


@dataclass(frozen=True, kw_only=True)
class ExternalFacts:
    """What the sentences are about; numbers are mean absolute errors unless another score is named."""

    home: float
    here: float
    change: str
    by_mix: str  # "" if it is not known
    by_answers: str
    fitted: str  # "120 samples of 30 patients"; "" without recalibration
    recalibrated: float
    errors: tuple[float, float]  # of the calibration here, before and after


EXTERNAL: list[Rule[ExternalFacts]] = [
    (
        lambda f: bool(f.by_mix),
        "Mean absolute error {f.here:.3f} here and {f.home:.3f} on the run's own test side: {f.change}, of which "
        "{f.by_mix} by another mix of grades and {f.by_answers} by answers to the same grades.",
    ),
    (
        lambda f: not f.by_mix,
        "Mean absolute error {f.here:.3f} here and {f.home:.3f} on the run's own test side. That side lacks a grade "
        "that is here: what the change is due to is not known.",
    ),
    (
        lambda f: bool(f.fitted),
        "Recalibrated on {f.fitted}: mean absolute error {f.here:.3f} → {f.recalibrated:.3f}, calibration error "
        "{f.errors[0]:.3f} → {f.errors[1]:.3f}.",
    ),
]


def external_facts(external: External) -> ExternalFacts:
    """The facts of the comparison."""
    home, here = (scores.intervals["mae"].value for scores in (external.home, external.here))
    after = external.recalibrated or external.here
    samples, patients = external.calibrated_on
    fitted = count_of(samples, "sample") if samples else ""
    known = math.isfinite(external.by_mix)
    return ExternalFacts(
        home=home,
        here=here,
        change=_signed(here - home),
        by_mix=_signed(external.by_mix) if known else "",
        by_answers=_signed(external.by_answers) if known else "",
        fitted=fitted + (f" of {count_of(patients, 'patient')}" if fitted and patients else ""),
        recalibrated=after.intervals["mae"].value,
        errors=(external.here.calibration_error, after.calibration_error),
    )


def _signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


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
        slug="external",
        heading="Beside the run's own test side",
        text=sentences(EXTERNAL, external_facts(external)),
        tables=[] if brief else [_scores_table(sets), _grades_table(sets, found)],
        figures=[] if brief else [figure],
        brief=True,
    )


def _scores_table(sets: dict[str, Scores]) -> Table:
    frame = pd.DataFrame({"score": [*map(metric_heading, FIRST), "calibration error ↓"]})
    for name, scores in sets.items():
        values = [scores.intervals[metric].value for metric in FIRST]
        frame[name] = [*values, scores.calibration_error]
        frame[f"95 %, {name}"] = [*(between(*scores.intervals[metric][1:]) for metric in FIRST), ""]
    caption = "Home: the run's own test side, by the run as it was trained, as in “here”."
    return data_table(frame, title="Scores at home and here", slug="external-scores", caption=caption)


def _grades_table(sets: dict[str, Scores], found: Evaluation) -> Table:
    """Share and error of each grade."""
    frame = pd.DataFrame({"grade": found.grades.shown})
    for name in ("home", "here"):
        frame[f"share, {name}"] = sets[name].shares
    for name, scores in sets.items():
        frame[f"MAE, {name}"] = scores.grade_errors
    shares = {f"share, {name}": ".1%" for name in sets}
    return data_table(frame, title="Grades at home and here", slug="external-grades", formats=shares)
