"""The ablation's cells over epochs: which runs they are, what is drawn, and where it stands on the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from srjt.reports.figures import study_figures as figures
from srjt.reports.figures.ablation_figures import USAGE_STYLES, ablation_figures
from srjt.reports.figures.canvas import CaptionedFigure, save_figure
from srjt.reports.pages.html import page_figures, render
from srjt.reports.pages.study_page import study_page
from srjt.reports.tables.ablation import ablation

SOFT, MIXED = "select=soft,update=soft", "select=soft,update=hard"
CELLS = ["hard/hard", "soft/soft", "hard/soft", "soft/hard"]
TWO_HOSTS = tuple(
    f"{host}{cell}"
    for host in ("jocor", "co-teaching")  # not the paper's order
    for cell in ("+ours", f":{MIXED}", f":{SOFT}", "")
)
SMALL = {"methods": TWO_HOSTS, "noises": ("quasi:0.4",), "folds": 2, "epochs": 4}


def with_values(study, metric: str, values: dict[tuple[str, str], tuple[float, float]]):
    """The study with one constant value per (method, variant) in either fold."""
    m = study.metrics
    for (method, variant), per_fold in values.items():
        for fold, value in enumerate(per_fold):
            mine = (m["method"] == method) & (m["variant"] == variant) & (m["fold"] == fold)
            m.loc[mine & (m["metric"] == metric), "value"] = value
    return study


def lines_of(axes: Axes, epochs: int = 4) -> dict[str, np.ndarray]:
    """Label at a line's end → its values; found by the dash and the marker that the label's cell has."""
    names = {(look.colour, look.filled): "/".join(cell) for cell, look in USAGE_STYLES.items()}
    curves = [line for line in axes.get_lines() if len(line.get_xdata()) == epochs]
    return {
        names[c.get_color(), c.get_markerfacecolor() != "none"]: np.asarray(c.get_ydata()) for c in curves
    }


def words(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def named(made: list[CaptionedFigure]) -> list[str]:
    return [captioned.name for captioned in made]


def test_hosts_and_cells_are_in_the_papers_order_and_other_variants_take_no_part() -> None:
    given = [
        ("codis+ours", ""), ("codis", ""), ("codis", SOFT), ("codis", "ramp_epochs=13"),
        ("co-teaching", "update=soft"), ("co-teaching", "select=soft,ramp_epochs=13"), ("standard", ""),
    ]  # fmt: skip
    assert ablation(given) == {
        "co-teaching": {("hard", "soft"): ("co-teaching", "update=soft")},
        "codis": {
            ("hard", "hard"): ("codis", ""),
            ("soft", "soft"): ("codis", SOFT),
            ("hard", "soft"): ("codis+ours", ""),
        },
    }
    assert list(ablation(given)["codis"]) == [("hard", "hard"), ("soft", "soft"), ("hard", "soft")]


def test_each_host_has_a_panel_and_each_cell_its_mean_over_folds(study) -> None:
    values = {
        ("co-teaching", ""): (0.70, 0.80),
        ("co-teaching", SOFT): (0.60, 0.70),
        ("co-teaching+ours", ""): (0.80, 0.84),
        ("co-teaching", MIXED): (0.66, 0.68),
        ("jocor", SOFT): (0.50, 0.52),
    }
    precision, _ = ablation_figures(with_values(study(**SMALL), "label_precision", values), "quasi:0.4")
    assert [axes.get_title(loc="left") for axes in precision.figure.axes] == ["Co-teaching", "JoCor"]
    assert precision.figure.texts[0].get_text() == (
        "Share of correct labels among the selected, by selection and updating"
    )
    first, second = precision.figure.axes
    found = lines_of(first)
    for cell, mean in zip(CELLS, (0.75, 0.65, 0.82, 0.67), strict=True):
        np.testing.assert_allclose(found[cell], mean)
    np.testing.assert_allclose(lines_of(second)["soft/soft"], 0.51)
    assert "Co-teaching: hard/hard 0.750, soft/soft 0.650, hard/soft 0.820, soft/hard 0.670" in precision.alt


def test_panels_share_their_axes_and_show_what_no_selection_gives(study) -> None:
    precision, mae = ablation_figures(study(**SMALL), "quasi:0.4")
    for captioned in (precision, mae):
        assert len({(axes.get_ylim(), axes.get_xlim()) for axes in captioned.figure.axes}) == 1
        low, high = captioned.figure.axes[0].get_ylim()
        for axes in captioned.figure.axes:
            assert set(CELLS) <= words(axes)
            assert all((low < y).all() and (y < high).all() for y in lines_of(axes).values())
    for axes in precision.figure.axes:
        assert words(axes) == {*CELLS, "1 − ε = 0.60"}
        assert any(np.allclose(line.get_ydata(), 0.6) for line in axes.get_lines())
    assert words(mae.figure.axes[0]) == set(CELLS)
    left, right = precision.figure.axes
    assert left.yaxis.get_tick_params()["labelleft"]
    assert not right.yaxis.get_tick_params()["labelleft"]


def test_the_mae_is_that_of_the_test_side(study) -> None:
    made = with_values(study(**SMALL), "mae", {("jocor", MIXED): (0.3, 0.5)})
    _, mae = ablation_figures(made, "quasi:0.4")
    np.testing.assert_allclose(lines_of(mae.figure.axes[1])["soft/hard"], 0.4)


def test_cells_differ_without_their_colour() -> None:
    assert len({(look.dashes, look.marker, look.filled) for look in USAGE_STYLES.values()}) == 4
    assert [cell for cell, look in USAGE_STYLES.items() if look.bold] == [("hard", "soft")]


@pytest.mark.parametrize("variant", ["ramp_epochs=13", "select=soft,ramp_epochs=13", "update=soft"])
def test_no_figure_without_a_cell_that_selects_by_the_soft_loss(study, variant: str) -> None:
    made = study(**{**SMALL, "methods": ("co-teaching", "co-teaching+ours", f"co-teaching:{variant}")})
    assert ablation_figures(made, "quasi:0.4") == []
    if variant == "update=soft":
        assert "ablation" not in render(study_page(made)).partition("<main>")[2].replace(
            "for the ablation", ""
        )


def test_a_variant_of_another_kind_is_in_no_panel_and_neither_is_a_host_without_soft_selection(study) -> None:
    methods = ("codis", "codis+ours", "jocor", f"jocor:{SOFT}", "jocor:ramp_epochs=13")
    precision, _ = ablation_figures(study(**{**SMALL, "methods": methods}), "quasi:0.4")
    (axes,) = precision.figure.axes
    assert axes.get_title(loc="left") == "JoCor"
    assert words(axes) == {"hard/hard", "soft/soft", "1 − ε = 0.60"}


def test_where_the_truth_is_unknown_only_the_error_is_drawn(study) -> None:
    made = study(**SMALL)
    m = made.metrics
    made = type(made)(**{**vars(made), "metrics": m[~m["metric"].str.startswith("label_")]})
    assert named(ablation_figures(made, "quasi:0.4")) == ["ablation-mae-quasi-0.4"]


def test_runs_that_are_missing_are_named(study) -> None:
    made = study(**SMALL, statuses={f"jocor:{SOFT} quasi:0.4 1": "failed"})
    for captioned in ablation_figures(made, "quasi:0.4"):
        assert captioned.caption.endswith("Incomplete: JoCor soft/soft, 1 of 2 runs.")


def test_more_than_three_hosts_go_on_in_a_second_row(study) -> None:
    hosts = ("co-teaching", "jocor", "codis", "mine")
    made = study(
        **{**SMALL, "methods": tuple(f"{host}{cell}" for host in hosts for cell in ("", f":{SOFT}"))}
    )
    _, mae = ablation_figures(made, "quasi:0.4")
    places = [axes.get_position() for axes in mae.figure.axes]
    assert [place.y0 == places[0].y0 for place in places] == [True, True, True, False]
    assert places[3].x0 == places[0].x0
    assert 0 < places[3].y1 < places[0].y0


@pytest.mark.usefixtures("undrawn")
def test_the_figures_stand_below_their_table_and_above_the_paired_comparison(study, tmp_path: Path) -> None:
    made = study(**SMALL)
    page = study_page(made)
    text = render(page)
    marks = ("colitis: Selection and updating", "the selected, by selection and", "colitis: Paired comparison",
             'id="figures"')  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    ours = ["ablation-label-precision-quasi-0.4", "ablation-mae-quasi-0.4"]
    assert named(page_figures(page))[:2] == ours
    assert named(figures.study_figures(made))[:2] == ours
    files = save_figure(page_figures(page)[0], tmp_path)
    assert [file.suffix for file in files] == [".svg", ".png"]
    assert all(file.stat().st_size for file in files)


def test_of_several_noises_those_with_an_ablation_have_figures(study) -> None:
    made = study(**{**SMALL, "noises": ("quasi:0.2", "quasi:0.4")})
    runs = made.runs[(made.runs["noise"] == "quasi:0.4") | (made.runs["variant"] == "")]
    made = type(made)(**{**vars(made), "runs": runs})
    assert ablation_figures(made, "quasi:0.2") == []
    assert len(ablation_figures(made, "quasi:0.4")) == 2
