"""Whether the probabilities of a run mean what they say, before and after recalibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srjt import methods
from srjt.inference.calibrate import side_recalibration
from srjt.inference.grade_rule import probabilities_of
from srjt.ordinal.calibration import calibration_bins, expected_calibration_error
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.reliability import reliability_figure
from srjt.reports.pages.html import Section
from srjt.training.record.held_out import read_held_out
from srjt.training.record.run_folder import RunFacts, read_noise_estimate

__all__ = ["calibration_section"]


def calibration_section(folder: Path, facts: RunFacts) -> Section | None:
    """Reliability diagrams on the test side, else on the validation side; None for a run without either."""
    if facts.config.method not in methods.names():  # a plug-in that is not installed
        return None
    networks = methods.lookup(facts.config.method).method.networks
    sides = read_held_out(folder, networks=networks, classes=len(facts.grades))
    shown = next((name for name in ("test", "validation") if name in sides), None)
    if shown is None:
        return None
    side = sides[shown]
    truth = side.true_labels if shown == "test" else None  # as the scores of this side
    labels = side.labels if truth is None else truth
    p = probabilities_of(side.probabilities, "ensemble").astype(np.float64)
    found = side_recalibration(
        sides.get("validation"), config=facts.config, estimate=read_noise_estimate(folder)
    )
    panels = {"As the networks give them": p} if found is None else {"Before": p, "After": found(p)}
    errors = {name: expected_calibration_error(q, labels) for name, q in panels.items()}
    which = "true grades" if truth is not None else "given labels"
    caption = (
        f"Reliability on the {shown} side, compared with the {which}. Larger points stand for more samples."
    )
    text = ["The probabilities are not recalibrated."]
    if found is not None:
        text = [
            f"srjt predict recalibrates the probabilities on {found.samples:,} samples of the validation side: {found}."
        ]
        if shown == "validation":
            caption += " The recalibration was fitted to the same samples."
    figure = CaptionedFigure(
        name="reliability",
        figure=reliability_figure({title: calibration_bins(q, labels) for title, q in panels.items()}),
        caption=caption,
        alt="Reliability diagram. " + " ".join(f"{n}: calibration error {e:.3f}." for n, e in errors.items()),
    )
    known = [
        ("calibration error" if found is None else f"calibration error {name.lower()}", f"{error:.3f}")
        for name, error in errors.items()
    ]
    return Section(slug="calibration", heading="Calibration", text=text, facts=known, figures=[figure])
