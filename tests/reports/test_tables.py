"""A study's tables: numbers, marks, and what is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.score_tables import SOFT, as_printed, column, marked, planned, scores
from srjt.errors import SrjtError
from srjt.reports.tables.study_tables import ablation_tables, comparison_tables, study_tables
from srjt.reports.tables.table import TableCell
from srjt.studies.paper import DISPLAY_NAMES

# --- the numbers ----------------------------------------------------------------------------------------------


def test_a_cell_is_the_mean_and_the_populations_std_over_folds_and_seeds() -> None:
    values = {(0, 0): 0.70, (0, 1): 0.72, (1, 0): 0.74, (1, 1): 0.80}
    [table] = comparison_tables(scores(("cdr", "quasi:0.2", values)), metrics=["accuracy"])
    cell = column(table, "quasi:0.2 accuracy")["CDR"]
    assert cell.text == "0.740 ± 0.037"
    assert (cell.value, cell.std, cell.runs) == pytest.approx((0.74, np.sqrt(0.0056 / 4), 4))
    assert "ddof = 0" in table.caption
    assert "over 2 folds and 2 seeds" in table.caption


def test_one_run_has_no_spread() -> None:
    [table] = comparison_tables(scores(("cdr", "quasi:0.2", [0.5])), metrics=["accuracy"])
    assert column(table, "quasi:0.2 accuracy")["CDR"] == TableCell(text="0.500", value=0.5, runs=1)
    assert "one fold and one seed." in table.caption
    assert "±" not in table.caption


def test_methods_stand_in_the_papers_order_and_kinds_of_noise_apart() -> None:
    tables = comparison_tables(as_printed("limuc"))
    assert [table.slug for table in tables] == ["comparison-quasi", "comparison-truncated"]
    for table in tables:
        assert [row.cells[0].text for row in table.rows] == list(DISPLAY_NAMES.values())
        assert table.groups == [("", 1), ("ε = 0.2", 3), ("ε = 0.4", 3)]
        assert [c.heading for c in table.columns[1:4]] == ["Acc. ↑", "MAE ↓", "mF1 ↑"]
        ruled = [row.cells[0].text for row in table.rows if row.rule]
        assert ruled == ["Co-teaching", "JoCor", "CoDis"]


def test_other_metrics_on_request_and_a_misspelt_one_is_told() -> None:
    both = pd.concat([scores(("cdr", "none", [0.5])), scores(("cdr", "none", [0.6]), metric="qwk")])
    [table] = comparison_tables(both, metrics=["qwk", "accuracy"])
    assert [c.heading for c in table.columns] == ["Method", "QWK ↑", "Acc. ↑"]
    assert "quadratic weighted kappa and accuracy" in table.caption
    with pytest.raises(SrjtError, match="did you mean 'qwk'"):
        comparison_tables(both, metrics=["qkw"])
    with pytest.raises(SrjtError, match="needs a metric"):
        comparison_tables(both, metrics=[])


# --- the marks ------------------------------------------------------------------------------------------------

OURS = {"Co-teaching + Ours", "JoCor + Ours", "CoDis + Ours"}


@pytest.mark.parametrize(
    ("dataset", "name", "best", "second"),
    [  # the paper's red and blue
        ("limuc", "quasi:0.2 accuracy", {"JoCor + Ours"}, {"CoDis + Ours"}),
        ("limuc", "quasi:0.2 mae", {"JoCor + Ours"}, {"CoDis + Ours"}),
        ("limuc", "quasi:0.4 macro_f1", {"JoCor + Ours"}, {"Co-teaching + Ours"}),
        ("limuc", "truncated:0.4 accuracy", {"JoCor"}, {"CoDis + Ours"}),
        ("limuc", "truncated:0.4 mae", {"CoDis + Ours"}, {"JoCor"}),
        ("private", "quasi:0.2 macro_f1", {"JoCor"}, {"Co-teaching + Ours"}),
        ("private", "quasi:0.4 accuracy", {"JoCor"}, {"JoCor + Ours"}),
        ("dr", "none accuracy", {"CoDis + Ours"}, {"Sord"}),
        ("dr", "none mae", {"CoDis + Ours"}, {"Sord"}),
        ("dr", "none macro_f1", {"JoCor + Ours"}, {"Co-teaching + Ours"}),
        # equal at three decimals: both are the best here, red and blue in the paper
        ("private", "quasi:0.4 mae", {"JoCor", "JoCor + Ours"}, set()),
    ],
)
def test_best_and_second_are_the_papers(dataset: str, name: str, best: set[str], second: set[str]) -> None:
    tables = {table.slug: table for table in comparison_tables(as_printed(dataset))}
    table = tables[f"comparison-{name.partition(' ')[0].partition(':')[0]}"]
    assert (marked(table, name, "best"), marked(table, name, "second")) == (best, second)


def test_bold_is_where_the_paper_sets_it() -> None:
    quasi, _ = comparison_tables(as_printed("private"))
    bold = {c.name: {m for m, cell in column(quasi, c.name).items() if cell.bold} for c in quasi.columns[1:]}
    without_jocor = OURS - {"JoCor + Ours"}
    assert bold == {
        "quasi:0.2 accuracy": OURS,
        "quasi:0.2 mae": OURS,
        "quasi:0.2 macro_f1": without_jocor,
        "quasi:0.4 accuracy": without_jocor,
        "quasi:0.4 mae": without_jocor,
        "quasi:0.4 macro_f1": OURS,
    }


def test_of_two_methods_one_is_best_and_none_second() -> None:
    [table] = comparison_tables(scores(("cdr", "none", [0.5]), ("sord", "none", [0.6])), metrics=["accuracy"])
    assert marked(table, "none accuracy", "best") == {"Sord"}
    assert set(table.legend) == {"best"}


def test_unequal_runs_are_not_ranked_and_bold_compares_common_ones() -> None:
    table = scores(
        ("standard", "none", [0.5, 0.6, 0.7]),
        ("sord", "none", [0.6, 0.6, 0.7]),
        ("jocor", "none", {(0, 0): 0.2, (1, 0): 0.9}),  # by the mean over all folds ours would be worse
        ("jocor+ours", "none", [0.3, 0.9, 0.3]),
        ("garg", "none", {(0, 0): 0.99}),
    )
    [table_] = comparison_tables(table, metrics=["accuracy"])
    assert marked(table_, "none accuracy", "best") == {"Sord"}
    assert marked(table_, "none accuracy", "second") == {"Standard"}
    assert column(table_, "none accuracy")["JoCor + Ours"].bold


# --- what is missing ------------------------------------------------------------------------------------------


def test_an_incomplete_study_says_what_its_cells_rest_on() -> None:
    table = scores(
        ("cdr", "quasi:0.2", [0.5, 0.6, 0.7]),
        ("garg", "quasi:0.2", [0.1, 0.2, 0.9]),
        ("sord", "quasi:0.2", [0.5]),
    )
    runs = planned(table, **{"garg-quasi:0.2-2-0": "running", "sord-quasi:0.2-0-0": "failed"})
    left = runs[runs["method"] == "cdr"].assign(method="mixup", status="left")
    left["key"] = left["key"].str.replace("cdr", "mixup")
    [shown] = comparison_tables(table, runs=pd.concat([runs, left]), metrics=["accuracy"])
    cells = column(shown, "quasi:0.2 accuracy")
    assert [c.text for c in cells.values()] == ["–", "–", "0.600 ± 0.082", "0.150 ± 0.050"]
    assert list(cells) == ["Sord", "Mixup", "CDR", "Garg"]
    assert {label for label, cell in cells.items() if cell.partial} == {"Garg"}
    assert cells["Garg"].runs == 2
    text = shown.markdown()
    assert "| Garg | 0.150 ± 0.050 †2 |" in text
    assert "†n: mean over n runs, fewer than planned; –: no finished run" in text
    assert r"Garg & 0.150$\pm$0.050$^{\dagger 2}$ \\" in shown.latex()


def test_without_a_plan_the_other_methods_folds_are_the_plan() -> None:
    [table] = comparison_tables(
        scores(("cdr", "none", [0.5, 0.6]), ("sord", "none", [0.5])), metrics=["accuracy"]
    )
    assert [cell.partial for cell in column(table, "none accuracy").values()] == [True, False]


def test_a_study_that_has_not_begun_has_tables_of_dashes() -> None:
    whole = scores(("cdr", "none", [0.5]), ("jocor+ours", "none", [0.5]))
    runs = planned(whole).assign(status="left")
    results = SimpleNamespace(facts={"preset": None, "folds": 5, "name": "s"}, runs=runs, scores=whole[:0])
    [table] = study_tables(results)
    assert {cell.text for row in table.rows for cell in row.cells[1:]} == {"–"}
    assert comparison_tables(whole[:0]) == []


def test_a_value_that_is_no_number_counts_as_missing() -> None:
    [table] = comparison_tables(scores(("cdr", "none", [0.5, float("nan")])), metrics=["accuracy"])
    assert column(table, "none accuracy")["CDR"].text == "0.500"


# --- the paper beside -----------------------------------------------------------------------------------------


def test_the_papers_number_stands_beside_in_its_own_setting_only() -> None:
    noise = "quasi:rho=0.1,rate=0.2"
    mine = pd.concat([scores(("cdr", noise, [0.5, 0.6]), metric=m) for m in ("accuracy", "qwk")])
    facts: dict[str, Any] = {"name": "mine", "preset": "limuc", "folds": 5}
    results = SimpleNamespace(facts=facts, runs=planned(mine), scores=mine)
    [table] = study_tables(results, metrics=["accuracy", "qwk"])
    assert table.title == "mine: Comparison, Quasi-Gaussian noise"
    assert [c.heading for c in table.columns] == ["Method", "Acc. ↑", "Acc., paper", "QWK ↑"]
    assert table.groups == [("", 1), ("ε = 0.2, ρ = 0.1", 3)]
    assert column(table, f"{noise} accuracy paper")["CDR"].text == "0.664 ± 0.016"
    assert "the value that the paper prints" in table.caption
    results.facts["preset"] = None
    [table] = study_tables(results, metrics=["accuracy"])
    assert len(table.columns) == 2
    assert "paper" not in table.caption


def test_the_papers_dr_has_means_only() -> None:
    [table] = comparison_tables(scores(("garg", "none", [0.5])), paper="dr", metrics=["accuracy"])
    assert column(table, "none accuracy paper")["Garg"] == TableCell(text="0.729", value=0.729)


# --- the ablation ---------------------------------------------------------------------------------------------


def test_the_ablation_has_all_hosts_and_the_papers_colours() -> None:
    mine = pd.concat(
        [
            as_printed("limuc"),
            as_printed("limuc", "ablation").query("variant == @SOFT"),
            scores(("codis+ours[select=soft,update=hard]", "quasi:0.2", [0.5])),
        ]
    )
    quasi, truncated = ablation_tables(mine, paper="limuc")
    assert [" ".join(cell.text for cell in row.cells[:3]) for row in quasi.rows] == [
        "Co-teaching hard hard",
        "Co-teaching soft soft",
        "Co-teaching hard soft",
        "JoCor hard hard",
        "JoCor hard soft",
        "CoDis hard hard",
        "CoDis hard soft",
        "CoDis soft hard",
    ]
    assert [row.rule for row in quasi.rows] == [False, False, False, True, False, True, False, False]
    host = {"Co-teaching hard hard", "Co-teaching soft soft", "Co-teaching hard soft"}
    # red: both at 0.726; blue in macro-F1 at 0.4: hard/hard
    assert marked(quasi, "quasi:0.2 accuracy", "best") & host == {
        "Co-teaching soft soft",
        "Co-teaching hard soft",
    }
    assert marked(quasi, "quasi:0.4 macro_f1", "second") & host == {"Co-teaching hard hard"}
    assert marked(truncated, "truncated:0.4 mae", "best") & host == {"Co-teaching hard soft"}
    beside = column(quasi, "quasi:0.2 mae paper")
    assert beside["Co-teaching soft soft"].text == "0.293 ± 0.011"
    assert beside["JoCor hard hard"].text == ""
    main, _ = comparison_tables(mine)
    assert len(main.rows) == 14  # the ablation's variants stay out of the comparison


def test_no_ablation_without_a_soft_selection() -> None:
    mine = scores(
        ("jocor", "quasi:0.2", [0.5]),
        ("jocor+ours", "quasi:0.2", [0.6]),
        ("jocor[update=soft]", "quasi:0.2", [0.1]),
        ("jocor", "truncated:0.2", [0.5]),
        (f"jocor[{SOFT}]", "truncated:0.2", [0.7]),
    )
    [table] = ablation_tables(mine, metrics=["accuracy"])
    assert table.slug == "ablation-truncated"
    assert list(column(table, "truncated:0.2 accuracy")) == ["JoCor hard hard", "JoCor soft soft"]


def test_other_variants_are_rows_of_the_comparison() -> None:
    mine = scores(
        ("jocor", "none", [0.5]),
        ("jocor+ours", "none", [0.4]),
        ("jocor+ours[temperature=0.2]", "none", [0.6]),
    )
    [table] = comparison_tables(mine, paper="dr", metrics=["accuracy"])
    cells = column(table, "none accuracy")
    assert list(cells) == ["JoCor", "JoCor + Ours", "JoCor + Ours (temperature=0.2)"]
    assert [cell.bold for cell in cells.values()] == [False, False, True]
    assert column(table, "none accuracy paper")["JoCor + Ours (temperature=0.2)"].text == ""
