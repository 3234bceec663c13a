"""What pages say of samples from elsewhere, beside the run's own test side."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import External
from srjt.ordinal.metrics import MAIN
from srjt.reports.aspects import sections_of
from srjt.reports.page import Section
from srjt.reports.table import between, data_table, metric_heading


def sentences_of(external: External) -> Iterator[str]:
    """What changed and why."""
    here = external.here.intervals["mae"].value
    home = external.home.intervals["mae"].value
    errors = f"Mean absolute error {here:.3f} here and {home:.3f} on the run's own test side"
    if not math.isfinite(external.by_mix):
        yield f"{errors}, which lacks a grade that is here."
    else:
        changes = (
            f"{external.by_mix:+.3f} by another mix of grades, {external.by_answers:+.3f} by"
            " answers to the same grades."
        )
        yield f"{errors}: {changes.replace('-', '−')}"
    after = external.recalibrated
    if after is not None:
        yield (
            f"Recalibrated on {external.calibrated_on[0]:,} samples: mean absolute error"
            f" {after.intervals['mae'].value:.3f}, calibration error"
            f" {external.here.calibration_error:.3f} → {after.calibration_error:.3f}."
        )


@sections_of.register
def _sections(judged: External, evaluation: Evaluation) -> list[Section]:
    """What changed and why, as sentences; then the scores at home and here."""
    text = list(sentences_of(judged))
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
    if evaluation.views > 1:
        caption += " Both are of one view of each image."
    table = data_table(frame, title="", slug="external-scores", caption=caption)
    beside = Section("external-scores", "Scores at home and here", tables=[table])
    # a terminal, too narrow for the table, shows the sentences alone
    return [
        Section("external", "Beside the run's own test side", text=text, parts=[beside], brief=True)
    ]
