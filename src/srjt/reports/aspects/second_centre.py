"""What pages say of samples from elsewhere, beside the run's own test side."""

from __future__ import annotations

import math

import pandas as pd

from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import External
from srjt.ordinal.metrics import MAIN
from srjt.reports.aspects import sections_of
from srjt.reports.page import Rule, Section, sentences
from srjt.reports.table import between, data_table, metric_heading

EXTERNAL: list[Rule[External]] = [
    (
        lambda f: math.isfinite(f.by_mix),
        "Mean absolute error {f.here.intervals[mae].value:.3f} here and"
        " {f.home.intervals[mae].value:.3f} on the run's own test side: {f.by_mix:+.3f} by another"
        " mix of grades, {f.by_answers:+.3f} by answers to the same grades.",
    ),
    (
        lambda f: not math.isfinite(f.by_mix),
        "Mean absolute error {f.here.intervals[mae].value:.3f} here and"
        " {f.home.intervals[mae].value:.3f} on the run's own test side, which lacks a grade that is"
        " here.",
    ),
    (
        lambda f: f.recalibrated is not None,
        "Recalibrated on {f.calibrated_on[0]:,} samples: mean absolute error"
        " {f.recalibrated.intervals[mae].value:.3f}, calibration error"
        " {f.here.calibration_error:.3f} → {f.recalibrated.calibration_error:.3f}.",
    ),
]


@sections_of.register
def _sections(judged: External, found: Evaluation) -> list[Section]:
    """What changed and why, as sentences; then the scores at home and here."""
    text = [sentence.replace(" -", " −") for sentence in sentences(EXTERNAL, judged)]
    sets = {"home": judged.home, "here": judged.here}
    if judged.recalibrated is not None:
        sets["recalibrated"] = judged.recalibrated
    frame = pd.DataFrame({"score": [*map(metric_heading, MAIN), "calibration error ↓"]})
    for name, scores in sets.items():
        cells = []
        for metric in MAIN:
            value, low, high = scores.intervals[metric]
            cells.append(f"{value:.3f} ({between(low, high)})")
        frame[name] = [*cells, f"{scores.calibration_error:.3f}"]
    caption = (
        "With 95 % intervals. Home: the run's own test side. Both are by the run as it was trained."
    )
    if found.views > 1:
        caption += " Both are of one view of each image."
    table = data_table(frame, title="", slug="external-scores", caption=caption)
    beside = Section("external-scores", "Scores at home and here", tables=[table])
    # a terminal, too narrow for the table, shows the sentences alone
    return [
        Section("external", "Beside the run's own test side", text=text, parts=[beside], brief=True)
    ]
