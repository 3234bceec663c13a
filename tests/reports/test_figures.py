"""Figures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from matplotlib.colors import to_hex
from PIL import Image

from fixtures.held_out_runs import drawn_side, made_run
from srjt.errors import SrjtError
from srjt.inference.answers import NoValidationError
from srjt.inference.aspects import Judging
from srjt.inference.aspects.abstention import DoubtRule
from srjt.inference.aspects.referral import ReferralRule, ThresholdOrigin
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.compare import Comparison, compare
from srjt.inference.options import Answering
from srjt.reports.aspects.abstention import risk_coverage_figure
from srjt.reports.aspects.referral import decision_figures
from srjt.reports.figures import study as figures
from srjt.reports.figures.canvas import (
    GREY,
    CaptionedFigure,
    Curve,
    chart,
    inline_svg,
    method_styles,
    printable,
    save_figure,
    spread_apart,
)
from srjt.reports.figures.results import (
    forest_figure,
    run_figures,
)
from srjt.reports.page import render
from srjt.reports.pages.evaluation import (
    comparison_facts,
    comparison_notes,
    comparison_page,
    comparison_verdict,
)
from srjt.studies.results import DISPLAY_NAMES

FEW = {"methods": ("standard", "co-teaching", "co-teaching+ours"), "folds": 2, "epochs": 4}


def texts(captioned: CaptionedFigure) -> list[str]:
    return [text.get_text() for axes in captioned.figure.axes for text in axes.texts]


def with_values(study, values: dict[tuple[str, int], float], *, metric: str = "accuracy"):
    """The study with one constant value per (method, fold) on the test side."""
    m = study.metrics
    chosen = (m["split"] == "test") & (m["metric"] == metric)
    for (method, fold), value in values.items():
        m.loc[chosen & (m["method"] == method) & (m["fold"] == fold), "value"] = value
    return study


def curve_of(captioned: CaptionedFigure, epochs: int) -> list[np.ndarray]:
    """The curves, without their leaders."""
    lines = captioned.figure.axes[0].get_lines()
    return [line.get_ydata() for line in lines if len(line.get_xdata()) == epochs]


@given(
    st.lists(st.floats(-1, 2, allow_subnormal=False), min_size=1, max_size=14),
    st.floats(0.01, 0.2),
)
def test_labels_keep_their_distance_their_order_and_their_place(
    wanted: list[float], gap: float
) -> None:
    placed = spread_apart(wanted, gap=gap, low=0.0, high=1.0)
    assert placed.min() >= -1e-9
    assert placed.max() <= 1 + 1e-9
    possible = min(gap, 1 / max(len(wanted) - 1, 1))
    assert (np.diff(np.sort(placed)) >= possible - 1e-9).all()
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(placed[order]) >= -1e-9).all()


def test_labels_move_only_as_far_as_they_must() -> None:
    np.testing.assert_allclose(spread_apart([0.5, 0.5], gap=0.2, low=0, high=1), [0.4, 0.6])
    np.testing.assert_allclose(spread_apart([0.9, 0.1], gap=0.2, low=0, high=1), [0.9, 0.1])
    np.testing.assert_allclose(
        spread_apart([0.0, 0.0, 0.9], gap=0.1, low=0, high=1), [0.0, 0.1, 0.9]
    )


def test_among_fourteen_ours_and_hosts_stand_out_in_pairs() -> None:
    chosen = method_styles(list(DISPLAY_NAMES))
    for host in ("co-teaching", "jocor", "codis"):
        ours = chosen[f"{host}+ours"]
        assert ours.colour == chosen[host].colour
        assert ours.dashes == "-"
        assert chosen[host].dashes != "-"
        assert ours.prominent
        assert chosen[host].prominent
    assert {look.colour for look in chosen.values() if not look.prominent} == {GREY}
    assert sum(not look.prominent for look in chosen.values()) == 8


@pytest.mark.parametrize(
    "methods", [list(DISPLAY_NAMES), ["standard", "mixup", "mine"], ["a", "a+ours", "b", "c"]]
)
def test_coloured_lines_differ_without_their_colour(methods: list[str]) -> None:
    coloured = [look for look in method_styles(methods).values() if look.prominent]
    assert len({(look.dashes, look.marker, look.filled) for look in coloured}) == len(coloured)
    assert all(look.prominent for look in method_styles(methods).values()) == (len(methods) <= 6)


def test_curves_are_the_mean_over_folds_with_the_population_std_as_band(study) -> None:
    values = {("standard", 0): 0.6, ("standard", 1): 0.8}
    captioned = figures.score_curves(
        with_values(study(**FEW), values), "quasi:0.2", metric="accuracy"
    )
    assert any(np.allclose(curve, 0.7) for curve in curve_of(captioned, 4))
    bands = [band.get_paths()[0].vertices[:, 1] for band in captioned.figure.axes[0].collections]
    assert any(np.isclose(band.min(), 0.6) and np.isclose(band.max(), 0.8) for band in bands)
    assert captioned.caption.endswith("over the folds (population, ddof = 0).")
    twice = study(**FEW)
    twice = replace(twice, metrics=twice.metrics.assign(seed=twice.metrics["fold"]))
    assert (
        "folds, means over the seeds"
        in figures.score_curves(twice, "quasi:0.2", metric="accuracy").caption
    )


def test_an_ensemble_takes_no_part_in_the_mean_of_the_networks(study) -> None:
    one = study(**{**FEW, "methods": ("standard",), "folds": 1})
    extra = one.metrics.assign(network="ensemble", value=99.0)
    one = type(one)(**{**vars(one), "metrics": pd.concat([one.metrics, extra])})
    captioned = figures.score_curves(one, "quasi:0.2", metric="accuracy")
    assert max(curve.max() for curve in curve_of(captioned, 4)) < 1


def test_one_epoch_has_no_curve(study) -> None:
    one = study(**{**FEW, "methods": ("standard",), "folds": 1})
    first = one.metrics[one.metrics["epoch"] == 1]
    short = type(one)(**{**vars(one), "metrics": first})
    assert figures.score_curves(one, "quasi:0.2", metric="accuracy") is not None
    assert figures.score_curves(short, "quasi:0.2", metric="accuracy") is None


def test_unfinished_runs_are_left_out(study) -> None:
    half = study(
        **FEW, statuses={"standard quasi:0.2 1": "running", "co-teaching quasi:0.2 0": "failed"}
    )
    half = with_values(half, {("standard", 0): 0.6, ("standard", 1): 0.0})
    captioned = figures.score_curves(half, "quasi:0.2", metric="accuracy")
    assert any(np.allclose(curve, 0.6) for curve in curve_of(captioned, 4))
    begun = study(**{**FEW, "folds": 1}, statuses={"standard quasi:0.2 0": "running"})
    assert "Standard" not in texts(figures.score_curves(begun, "quasi:0.2", metric="accuracy"))


def test_every_line_is_named_at_its_end(study) -> None:
    captioned = figures.score_curves(
        study(folds=1, epochs=3, noises=("quasi:0.2",)), "quasi:0.2", metric="mae"
    )
    assert set(texts(captioned)) == set(DISPLAY_NAMES.values())
    at = sorted(text.get_position()[1] for text in captioned.figure.axes[0].texts)
    height = captioned.figure.get_figheight() * captioned.figure.axes[0].get_position().height
    assert min(np.diff(at)) * height >= 0.15  # inches


def precision_curves(results, noise: str) -> CaptionedFigure:
    return next(
        f for f in figures.noise_figures(results, noise) if f.name.startswith("label-precision")
    )


@pytest.mark.slow
def test_label_precision_shows_the_methods_that_select_and_what_no_selection_gives(study) -> None:
    captioned = precision_curves(study(**FEW), "quasi:0.4")
    assert {"Co-teaching", "Co-teaching + Ours"} < set(texts(captioned))
    assert "Standard" not in texts(captioned)
    assert "1 − ε = 0.60: no selection" in texts(captioned)
    levels = [line.get_ydata()[0] for line in captioned.figure.axes[0].get_lines()]
    assert any(np.isclose(level, 0.6) for level in levels)


def test_selection_recall_is_per_grade_over_the_last_ten_epochs(study) -> None:
    made = study(**{**FEW, "epochs": 12})
    m = made.metrics
    early = (m["metric"] == "label_recall[2]") & (m["epoch"] <= 2)
    m.loc[early, "value"] = -5.0  # must not matter
    captioned = figures.selection_recall(made, "quasi:0.2")
    np.testing.assert_allclose(curve_of(captioned, 4)[0], [0.97, 0.89, 0.81, 0.73])
    assert [t.get_text() for t in captioned.figure.axes[0].get_xticklabels()] == made.facts[
        "grades"
    ]


def test_confusions_are_summed_over_folds_and_shown_as_shares_and_counts(study) -> None:
    made = study(**{**FEW, "grades": ("a", "b"), "methods": ("standard",)})
    for key in made.confusions:
        made.confusions[key] = np.array([[3, 1], [0, 0]])
    captioned = figures.confusion_matrices(made, "quasi:0.2")
    assert texts(captioned) == [
        "75%\n6",
        "25%\n2",
        "0",
        "0",
    ]  # a grade without samples is no division by zero


def test_error_against_rate_needs_two_rates_of_a_kind(study) -> None:
    (captioned,) = figures.mae_against_rate(study(**FEW))  # quasi twice, truncated once
    assert "Quasi" in captioned.caption
    assert set(texts(captioned)) == {"Standard", "Co-teaching", "Co-teaching + Ours"}
    assert [t.get_text() for t in captioned.figure.axes[0].get_xticklabels()] == ["0.2", "0.4"]


def test_the_noise_matrix_is_the_nominal_one(study) -> None:
    made = study(**FEW)
    matrix = np.array(made.noise["matrix"].iloc[0])
    assert texts(figures.noise_matrix(made, "quasi:0.2"))[:2] == [f"{p:.3f}" for p in matrix[0, :2]]
    assert figures.noise_matrix(study(**{**FEW, "noises": ("none",)}), "none") is None


@pytest.mark.parametrize(
    ("estimated", "determined", "title"),
    [
        (False, False, "Given to the methods"),
        (True, True, "Estimated, mean over folds"),
        (True, False, "Estimated, not determined"),
    ],
)
def test_a_matrix_of_labels_as_given_names_its_source(
    study, estimated: bool, determined: bool, title: str
) -> None:
    made = study(**{**FEW, "noises": ("none",)})
    made.noise["matrix"] = [np.eye(4).tolist()] * len(made.noise)
    made.noise["matrix_estimated"] = estimated
    made.noise["determined"] = determined
    captioned = figures.noise_matrix(made, "none")
    assert captioned.figure.axes[0].get_title(loc="left") == title


def test_a_study_without_a_single_result_has_no_figures_but_the_noise(study) -> None:
    small = {**FEW, "folds": 1, "methods": ("standard",), "noises": ("quasi:0.2",)}
    empty = study(**small, statuses={"standard quasi:0.2 0": "left"})
    assert not figures.noise_figures(empty, "quasi:0.2")
    assert not figures.mae_against_rate(empty)
    assert figures.noise_matrix(empty, "quasi:0.2").name == "noise-quasi-0.2"


HOSTILE = ("$x^{$", "<script>alert(1)</script>", "グレード \u202e\x00\x07", "z" * 200)


@pytest.mark.slow
def test_any_name_can_be_drawn_and_stays_text(study, tmp_path: Path) -> None:
    made = study(**{**FEW, "grades": HOSTILE})
    for captioned in (
        figures.confusion_matrices(made, "quasi:0.2"),
        figures.selection_recall(made, "quasi:0.2"),
    ):
        svg, _ = save_figure(captioned, tmp_path)
        words = [e.text for e in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert "$x^{$" in words
        assert any(
            word and word.startswith("<script>") for word in words
        )  # parsed as text, not as an element
        assert "<script" not in inline_svg(captioned)


def test_plain_text_is_printable_and_short() -> None:
    assert printable("a\x00\u202eb") == "a\ufffd\ufffdb"
    assert printable("x" * 50) == "x" * 39 + "…"


@pytest.mark.slow
def test_figures_of_one_page_share_no_id_and_take_its_colours(study) -> None:
    made = study(**FEW)
    both = inline_svg(figures.score_curves(made, "quasi:0.2", metric="accuracy"))
    both += inline_svg(figures.score_curves(made, "quasi:0.4", metric="accuracy"))
    ids = re.findall(r'\bid="([^"]+)"', both)
    assert len(set(ids)) == len(ids) > 0
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', both)) <= set(ids)
    assert "var(--blue, #0072b2)" in both
    assert "<style" not in both  # its rules would hold for the whole page
    assert "#ffffff" not in both  # no white card on a dark page


@pytest.mark.slow
def test_the_same_figure_gives_the_same_bytes(study) -> None:
    first, second = (precision_curves(study(**FEW), "quasi:0.2") for _ in range(2))
    assert inline_svg(first) == inline_svg(second)


@pytest.mark.slow
def test_files_are_svg_and_png_on_white(study, tmp_path: Path) -> None:
    svg, png = save_figure(
        figures.noise_matrix(study(**FEW), "quasi:0.2"), tmp_path / "new" / "folder"
    )
    assert (svg.name, png.name) == ("noise-quasi-0.2.svg", "noise-quasi-0.2.png")
    assert to_hex(np.asarray(Image.open(png).convert("RGB"))[0, 0] / 255) == "#ffffff"


def test_a_folder_that_cannot_be_written_is_one_sentence(study, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SrjtError, match=r"cannot be written to .*file"):
        save_figure(figures.noise_matrix(study(**FEW), "quasi:0.2"), tmp_path / "file")


def test_a_chart_without_numbers_is_drawn_all_the_same() -> None:
    nothing = Curve(name="lost", x=np.array([1.0, 2.0]), y=np.array([np.nan, np.nan]))
    assert chart([nothing], xlabel="epoch", title="Test accuracy").axes


def metrics_of_a_run(*, selecting: bool) -> pd.DataFrame:
    rows = []
    for epoch in (1, 2, 3):
        for split in ("test", "validation"):
            rows += [(epoch, split, "1", "accuracy", 0.5), (epoch, split, "1", "mae", 0.6)]
        rows.append((epoch, "train", "1", "label_precision", 0.8))
        rows += [(epoch, "train", "1", name, 0.9 if selecting else 1.0)
                 for name in ("label_recall", "label_recall[0]", "label_recall[1]")]  # fmt: skip
    return pd.DataFrame(rows, columns=["epoch", "split", "network", "metric", "value"])


def test_a_run_has_the_figures_that_it_can_have() -> None:
    made = run_figures(metrics_of_a_run(selecting=False), grades=("low", "high"))
    assert [captioned.name for captioned in made] == ["mae", "accuracy"]
    made = run_figures(metrics_of_a_run(selecting=True), grades=("low", "high"), noise_rate=0.25)
    assert [captioned.name for captioned in made] == [
        "mae",
        "accuracy",
        "label-precision",
        "selection-recall",
    ]
    assert "1 − ε = 0.75: no selection" in texts(made[2])
    assert set(texts(made[3])) == {"low", "high"}


def test_a_recipe_stands_out_among_many() -> None:
    look = method_styles([*DISPLAY_NAMES, "srjt"])["srjt"]
    assert look.prominent
    assert look.colour != GREY


# Figures and pages of decisions and comparisons: what they say is so.


def decided(highest: int = 3, **rule: Any) -> tuple[Any, Any]:
    side = drawn_side(120)
    side = replace(side, labels=np.minimum(side.labels, highest))
    run = made_run(held_out={"test": side})
    calibrated = calibrate_run(run, Answering(recalibrate=False))
    answers = calibrated.side_answers(side, side.labels)
    chosen = ReferralRule(
        **{"position": 2, "threshold": 0.4, "origin": ThresholdOrigin(kind="given"), **rule}
    )
    doubt = DoubtRule(refer=chosen, share=0.1, problem=NoValidationError(""))
    judging = Judging(
        calibrated=calibrated, answers=answers, images=answers, samples=side, resamples=20
    )
    return chosen.judge(judging), doubt.judge(judging)


@pytest.mark.parametrize("lowest", [0.0, -0.2, -9.0])
def test_the_decision_curve_says_where_its_axis_ends(lowest: float) -> None:
    decision, _ = decided()
    model = decision.net_benefit.model.copy()
    model[len(model) // 2] = lowest
    drawn = replace(
        decision, net_benefit=decision.net_benefit._replace(model=np.maximum(model, lowest))
    )
    figure = next(f for f in decision_figures(drawn, grade="2") if f.name == "decision-curve")
    bottom, _ = figure.figure.axes[0].get_ylim()
    assert bottom < min(0.0, decision.net_benefit.refer_all[0])
    assert f"Values below −{-bottom:.2f} are not shown." in figure.caption


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [None, 0.0, 0.4, 1.0])
def test_figures_of_a_decision(threshold: float | None) -> None:
    decision, abstention = decided(threshold=threshold)
    figures = [*decision_figures(decision, grade="2 (minimal)"), risk_coverage_figure(abstention)]
    assert [figure.name for figure in figures] == [
        "roc",
        "decision-curve",
        "risk-coverage",
    ]
    for figure in figures:
        assert inline_svg(figure).startswith("<svg")
    assert f"area {decision.areas['roc_area'].value:.3f}" in figures[0].caption
    assert "grade 2 (minimal)" in figures[1].caption
    assert f"leaves {abstention.share:.1%} to a person" in figures[2].caption


def test_without_positives_only_the_decision_curve_remains() -> None:
    decision, abstention = decided(highest=1)
    assert [figure.name for figure in decision_figures(decision, grade="2")] == ["decision-curve"]
    assert inline_svg(risk_coverage_figure(abstention))


def made(*skills: float, patients: int | None = 30) -> Comparison:
    runs = [
        made_run(held_out={"test": drawn_side(120, patients=patients, skill=skill)})
        for skill in skills
    ]
    return compare(*runs, resamples=200)


@pytest.mark.parametrize("skills", [(1.0, 3.0), (1.0, 1.0), (1.0, 2.0, 3.0)])
def test_a_forest_plot_counts_what_it_shows(skills: tuple[float, ...]) -> None:
    found = made(*skills)
    figure = forest_figure(found)
    clear = sum(row.difference.low > 0 or row.difference.high < 0 for row in found.differences)
    assert f"{len(found.differences)} differences from run 1; {clear} intervals" in figure.alt
    assert "over patients" in figure.caption


@pytest.mark.parametrize(
    ("skills", "patients", "outcome"),
    [
        ((1.0, 3.0), 30, "better"),
        ((3.0, 1.0), 30, "worse"),
        ((1.0, 1.0), None, ""),
        ((1.0, 1.0, 3.0), 30, "several"),
    ],
)
def test_the_verdict_of_a_comparison(
    skills: tuple[float, ...], patients: int | None, outcome: str
) -> None:
    found = replace(made(*skills, patients=patients), trained_on={"run 2": 3})
    facts = comparison_facts(found)
    assert (facts.better, facts.worse) == {
        "better": (["run 2"], []), "worse": ([], ["run 2"]), "": ([], []), "several": (["run 3"], [])
    }[outcome]  # fmt: skip
    page = comparison_page(found)
    assert (page.title, page.lead) == comparison_verdict(facts)
    assert page.remarks == list(comparison_notes(facts))
    assert page.warnings == [
        "run 2 was trained on 3 of the samples (same ids): its numbers look too good."
    ]
    assert ("resample patients" in " ".join(comparison_notes(facts))) == (patients is not None)
    (table,) = page.sections[0].tables
    if len(found.runs) > 2:
        assert {row.cells[1].text for row in table.rows} == set(found.runs[1:])
    assert ("run" in [column.name for column in table.columns]) == (len(found.runs) > 2)


@pytest.mark.slow
def test_a_page_escapes_names() -> None:
    assert "<b>a</b>" not in render(
        comparison_page(replace(made(1.0, 2.0), runs=("<b>a</b>", "run 2")))
    )
