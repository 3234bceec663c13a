"""Figures and pages of decisions and comparisons: what they say is so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fixtures.held_out_runs import drawn_side, made_run
from srjt.inference.abstain import abstain_from
from srjt.inference.answers import NoValidationError, answers_from
from srjt.inference.compare import Comparison, compare
from srjt.inference.decide import Rule, decide
from srjt.inference.predict import predict_held_out
from srjt.reports.figures.canvas import inline_svg
from srjt.reports.figures.comparison_figures import forest_figure
from srjt.reports.figures.decision_figures import decision_figures, risk_coverage_figure
from srjt.reports.pages.comparison_page import comparison_page
from srjt.reports.pages.html import render


def decided(highest: int = 3, **rule: Any) -> tuple[Any, Any]:
    side = drawn_side(120)
    side = replace(side, labels=np.minimum(side.labels, highest))
    run = made_run(held_out={"test": side})
    answers = answers_from(run, predict_held_out(run, side), side.labels, groups=side.groups)
    chosen = Rule(**{"position": 2, "threshold": 0.4, "found": "", **rule})
    decision = decide(run, answers, chosen, resamples=20)

    def nothing(*, why: str) -> Any:
        raise NoValidationError(why, reason="there is none")

    return decision, abstain_from(answers, rule=chosen, share=0.1, validation=nothing)


@pytest.mark.parametrize(("lowest", "cut"), [(0.0, False), (-0.2, False), (-9.0, True)])
def test_the_decision_curve_stays_inside_its_axes_or_says_so(lowest: float, cut: bool) -> None:
    decision, _ = decided()
    model = decision.net_benefit.model.copy()
    model[len(model) // 2] = lowest
    drawn = replace(decision, net_benefit=decision.net_benefit._replace(model=np.maximum(model, lowest)))
    figure = next(f for f in decision_figures(drawn, grade="2") if f.name == "decision-curve")
    bottom, _ = figure.figure.axes[0].get_ylim()
    assert (lowest < bottom) == cut
    assert ("is cut off below" in figure.caption) == cut


@pytest.mark.parametrize("threshold", [None, 0.0, 0.4, 1.0])
def test_figures_of_a_decision(threshold: float | None) -> None:
    decision, abstention = decided(threshold=threshold)
    figures = [*decision_figures(decision, grade="2 (minimal)"), risk_coverage_figure(abstention)]
    assert [figure.name for figure in figures] == [
        "roc",
        "precision-recall",
        "decision-curve",
        "risk-coverage",
    ]
    for figure in figures:
        assert inline_svg(figure).startswith("<svg")
    assert f"area {decision.areas['roc_area'].value:.3f}" in figures[0].caption
    assert "grade 2 (minimal)" in figures[1].caption
    assert f"leaves {abstention.share:.1%} to a person" in figures[3].caption


def test_without_positives_only_the_decision_curve_remains() -> None:
    decision, abstention = decided(highest=1)
    assert [figure.name for figure in decision_figures(decision, grade="2")] == ["decision-curve"]
    assert inline_svg(risk_coverage_figure(abstention))


def made(*skills: float, patients: int | None = 30) -> Comparison:
    runs = [made_run(held_out={"test": drawn_side(120, patients=patients, skill=skill)}) for skill in skills]
    return compare(*runs, resamples=60)


@pytest.mark.parametrize("skills", [(1.0, 3.0), (1.0, 1.0), (1.0, 2.0, 3.0)])
def test_a_forest_plot_counts_what_it_shows(skills: tuple[float, ...]) -> None:
    found = made(*skills)
    figure = forest_figure(found)
    clear = sum(row.difference.low > 0 or row.difference.high < 0 for row in found.differences)
    assert f"{len(found.differences)} differences from run 1; {clear} intervals" in figure.alt
    assert "over patients" in figure.caption


def test_a_page_says_what_its_intervals_are_and_escapes_names() -> None:
    found = replace(made(1.0, 2.0, 3.0), runs=("<b>a</b>", "run 2", "run 3"))
    page = render(comparison_page(found))
    assert "not between trainings" in page
    assert "p, Holm" in page
    assert "<b>a</b>" not in page
    assert re.search(r"120 test samples\s+of 30 patients", page)
    alone = render(comparison_page(made(1.0, 2.0, patients=None)))
    assert "p, Holm" not in alone
    assert "No patient ids" in alone
    assert "patients, judged" not in alone
    assert "variation between images, not between trainings" in alone
