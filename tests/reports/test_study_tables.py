"""The tables of a study: comparison, ablation, paired tests, and their formats."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from reports.score_tables import (
    SOFT,
    ablation_tables,
    as_printed,
    column,
    comparison_tables,
    marked,
    paired_tables,
    planned,
    pooled_table,
    results_of,
    scores,
)
from srjt.errors import SrjtError
from srjt.reports.pages.study import study_page
from srjt.reports.study_tables import ablation, study_tables
from srjt.reports.table import Column, Row, Table, TableCell
from srjt.studies.results import DISPLAY_NAMES
from srjt.training.config import load_preset

# A study's tables: numbers, marks, and what is missing.

# --- the numbers
# ----------------------------------------------------------------------------------------------


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


@pytest.mark.slow
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
    assert "quadratic κ, accuracy" in table.caption
    with pytest.raises(SrjtError, match="did you mean 'qwk'"):
        comparison_tables(both, metrics=["qkw"])
    with pytest.raises(SrjtError, match="needs a metric"):
        comparison_tables(both, metrics=[])


# --- the marks
# ------------------------------------------------------------------------------------------------

OURS = {"Co-teaching + Ours", "JoCor + Ours", "CoDis + Ours"}


@cache
def printed_tables(dataset: str) -> dict[str, Table]:
    return {table.slug: table for table in comparison_tables(as_printed(dataset))}


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
def test_best_and_second_are_the_papers(
    dataset: str, name: str, best: set[str], second: set[str]
) -> None:
    table = printed_tables(dataset)[f"comparison-{name.partition(' ')[0].partition(':')[0]}"]
    assert (marked(table, name, "best"), marked(table, name, "second")) == (best, second)


def test_bold_is_where_the_paper_sets_it() -> None:
    quasi = printed_tables("private")["comparison-quasi"]
    bold = {
        c.name: {m for m, cell in column(quasi, c.name).items() if cell.bold}
        for c in quasi.columns[1:]
    }
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
    [table] = comparison_tables(
        scores(("cdr", "none", [0.5]), ("sord", "none", [0.6])), metrics=["accuracy"]
    )
    assert marked(table, "none accuracy", "best") == {"Sord"}
    assert set(table.legend) == {"best"}


def test_unequal_runs_are_not_ranked_and_bold_compares_common_ones() -> None:
    table = scores(
        ("standard", "none", [0.5, 0.6, 0.7]),
        ("sord", "none", [0.6, 0.6, 0.7]),
        (
            "jocor",
            "none",
            {(0, 0): 0.2, (1, 0): 0.9},
        ),  # by the mean over all folds ours would be worse
        ("jocor+ours", "none", [0.3, 0.9, 0.3]),
        ("garg", "none", {(0, 0): 0.99}),
    )
    [table_] = comparison_tables(table, metrics=["accuracy"])
    assert marked(table_, "none accuracy", "best") == {"Sord"}
    assert marked(table_, "none accuracy", "second") == {"Standard"}
    assert column(table_, "none accuracy")["JoCor + Ours"].bold


# --- what is missing
# ------------------------------------------------------------------------------------------


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


def test_a_study_that_has_not_begun_has_tables_of_dashes() -> None:
    whole = scores(("cdr", "none", [0.5]), ("jocor+ours", "none", [0.5]))
    runs = planned(whole).assign(status="left")
    results = results_of(whole[:0], runs=runs)
    [table] = study_tables(results)
    assert {cell.text for row in table.rows for cell in row.cells[1:]} == {"–"}
    assert comparison_tables(whole[:0]) == []


def test_a_value_that_is_no_number_counts_as_missing() -> None:
    [table] = comparison_tables(scores(("cdr", "none", [0.5, float("nan")])), metrics=["accuracy"])
    assert column(table, "none accuracy")["CDR"].text == "0.500"


# --- the paper beside
# -----------------------------------------------------------------------------------------


def test_the_papers_number_stands_beside_in_its_own_setting_only() -> None:
    noise = "quasi:rho=0.1,rate=0.2"
    mine = pd.concat([scores(("cdr", noise, [0.5, 0.6]), metric=m) for m in ("accuracy", "qwk")])
    results = results_of(mine, preset="limuc")
    [table] = study_tables(results, metrics=["accuracy", "qwk"])
    assert table.title == "Comparison, Quasi-Gaussian noise"
    assert [c.heading for c in table.columns] == ["Method", "Acc. ↑", "Acc., paper", "QWK ↑"]
    assert table.groups == [("", 1), ("ε = 0.2, ρ = 0.1", 3)]
    assert column(table, f"{noise} accuracy paper")["CDR"].text == "0.664 ± 0.016"
    assert "the value that the paper prints" in table.caption
    assert "All settings that it states are the same here." in table.caption
    [table] = study_tables(results_of(mine), metrics=["accuracy"])
    assert len(table.columns) == 2
    assert "paper" not in table.caption


def test_a_setting_that_is_not_the_papers_is_named_and_other_data_have_no_such_column() -> None:
    mine = scores(("cdr", "quasi:rho=0.1,rate=0.2", [0.5, 0.6]))
    results = results_of(mine, preset="limuc")
    results.facts["study"] |= {
        "train": {"network": "tiny", "epochs": 14, "image_size": 64, "crop": 56}
    }
    [table] = study_tables(results, metrics=["accuracy"])
    assert table.caption.endswith(
        "Here differ from it: network tiny (paper: resnet18); image size 64 (paper: 256); crop 56 (paper: 224); "
        "epochs 14 (paper: 150)."
    )
    results.facts["class_counts"] = [250, 125, 75, 50]
    [table] = study_tables(results, metrics=["accuracy"])
    assert [c.heading for c in table.columns] == ["Method", "Acc. ↑"]
    results.facts["study"]["paper_table"] = "private-uc"
    [table] = study_tables(results, metrics=["accuracy"])
    assert column(table, "quasi:rho=0.1,rate=0.2 accuracy paper")["CDR"].text == "0.752 ± 0.004"
    assert "images per grade 250, 125, 75, 50 (paper: 6,678, 1,995, 1,395, 197)" in table.caption


def test_the_papers_dr_has_means_only() -> None:
    [table] = comparison_tables(scores(("garg", "none", [0.5])), paper="dr", metrics=["accuracy"])
    assert column(table, "none accuracy paper")["Garg"] == TableCell(text="0.729", value=0.729)


# --- the ablation
# ---------------------------------------------------------------------------------------------


@pytest.mark.slow
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
    assert [row.rule for row in quasi.rows] == [
        False,
        False,
        False,
        True,
        False,
        True,
        False,
        False,
    ]
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


# A table in Markdown, CSV, LaTeX and dictionaries.


def tricky(text: str) -> Table:
    """A table with one and the same text wherever text may come from a person."""
    return Table(
        slug=text,
        title=text,
        caption=text,
        columns=(
            Column(name=text, label=text),
            Column(name="a", label=text, group=text, better="lower", kind="mean"),
            Column(name="b", label="paper", group=text, kind="quoted"),
        ),
        rows=(
            Row(
                cells=(
                    TableCell(text=text),
                    TableCell(
                        text="0.5 ± 0.1",
                        value=0.5,
                        std=0.1,
                        runs=2,
                        mark="best",
                        bold=True,
                        partial=True,
                    ),
                    TableCell(text="0.4", value=0.4),
                )
            ),
            Row(cells=(TableCell(text=text), TableCell(text="–", runs=0), TableCell()), rule=True),
        ),
    )


NASTY = "[a_b]*{c} & 50% | <script>alert(1)</script> \\ $x^2$ ~ #1 `q`\n\\input{x}"


def test_markdown_keeps_text_as_text() -> None:
    text = tricky(NASTY).markdown()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {4}
    assert "<script" not in text
    assert "**0.5 ± 0.1** ¹ †2" in text


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30))
def test_latex_has_balanced_braces_and_the_right_number_of_columns_whatever_the_text(
    text: str,
) -> None:
    latex = tricky(text).latex().replace(r"\\", "")  # the ends of rows; a person's \ is spelt out
    bare = re.sub(r"\\[\\{}&%$#_]", "", latex)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    rows = [line for line in bare.splitlines() if "&" in line]
    assert [line.count("&") for line in rows] == [1, 2, 2, 2]  # the first has a \multicolumn of two
    assert not re.search(r"[_#~|](?!1)", re.sub(r"#1", "", bare.split(r"\begin{tabular}")[1]))


def test_latex_spells_special_characters() -> None:
    latex = tricky(NASTY).latex()
    assert (
        r"{[}a\_b{]}{*}\{c\} \& 50\% \textbar{} \textless{}script\textgreater{}alert(1)\textless{}/script"
        r"\textgreater{} \textbackslash{} \$x\textasciicircum{}2\$ \textasciitilde{} \#1 `q` "
        r"\textbackslash{}input\{x\} & \srjtbest{\srjtbetter{0.5$\pm$0.1}}$^{\dagger 2}$ & 0.4 \\"
    ) in latex
    assert re.search(r"\\label\{tab:[A-Za-z0-9-]*\}", latex)
    assert "multirow" not in latex


def test_csv_has_full_numbers_and_reads_back() -> None:
    [table] = comparison_tables(
        scores(("cdr", "quasi:0.2", [0.5, 0.6123456])), paper="limuc", metrics=["accuracy"]
    )
    [row] = csv.DictReader(io.StringIO(table.csv()))
    assert row == {
        "method": "CDR",
        "quasi:0.2 accuracy mean": "0.556173",
        "quasi:0.2 accuracy std": "0.0561728",
        "quasi:0.2 accuracy runs": "2",
        "quasi:0.2 accuracy paper mean": "0.664",
        "quasi:0.2 accuracy paper std": "0.016",
    }
    first = next(csv.DictReader(io.StringIO(tricky(NASTY).csv())))
    assert first[NASTY] == NASTY


def test_a_table_knows_its_groups_and_its_marks() -> None:
    table = tricky(NASTY)
    assert table.groups == [("", 1), (NASTY, 2)]
    assert set(table.legend) == {"best", "bold", "partial", "missing"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    ablation = as_printed("limuc", "ablation")
    mine = pd.concat([as_printed("limuc"), ablation[ablation["variant"] == SOFT]])
    tables = [
        *comparison_tables(mine, paper="limuc"),
        *ablation_tables(mine, paper="limuc"),
        *paired_tables(mine),
        tricky(NASTY),
    ]
    body = "\n".join(table.latex() for table in tables)
    document = (
        r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx,xcolor}"
        rf"\begin{{document}}{body}\end{{document}}"
    )
    (tmp_path / "tables.tex").write_text(document)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


# The ablation's cells: which runs they are, and where their table stands on the page.

SOFT_RUNS = "select=soft,update=soft"


def test_hosts_and_cells_are_in_the_papers_order_and_other_variants_take_no_part() -> None:
    given = [
        ("codis+ours", ""), ("codis", ""), ("codis", SOFT_RUNS), ("codis", "ramp_epochs=13"),
        ("co-teaching", "update=soft"), ("co-teaching", "select=soft,ramp_epochs=13"), ("standard", ""),
    ]  # fmt: skip
    assert ablation(given) == {
        "co-teaching": {("hard", "soft"): ("co-teaching", "update=soft")},
        "codis": {
            ("hard", "hard"): ("codis", ""),
            ("soft", "soft"): ("codis", SOFT_RUNS),
            ("hard", "soft"): ("codis+ours", ""),
        },
    }
    assert list(ablation(given)["codis"]) == [("hard", "hard"), ("soft", "soft"), ("hard", "soft")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "shown"),
    [(SOFT_RUNS, True), ("select=soft,ramp_epochs=13", False), ("update=soft", False)],
)
def test_the_ablation_is_a_section_and_in_no_figure(study, variant: str, shown: bool) -> None:
    methods = ("co-teaching", "co-teaching+ours", f"co-teaching:{variant}")
    page = study_page(study(methods=methods, noises=("quasi:0.4",), folds=2, epochs=4))
    assert ("ablation" in [section.slug for section in page.sections]) == shown
    assert {text.get_text() for text in page.figure.figure.axes[0].texts} == {
        "Co-teaching",
        "Co-teaching + Ours",
    }


# The tables of paired tests: differences, intervals, corrected p-values, and the pooled comparison.


def test_the_paired_table_shows_difference_interval_p_and_folds() -> None:
    mine = scores(
        ("jocor", "quasi:0.2", [0.50, 0.50, 0.50, 0.50, 0.50]),
        ("sord", "quasi:0.2", [0.60, 0.60, 0.60, 0.60]),
        ("cdr", "quasi:0.2", [0.51, 0.52, 0.51, 0.52, 0.51]),
        ("jocor+ours", "quasi:0.2", [0.52, 0.51, 0.53, 0.50, 0.54]),
    )
    [table] = paired_tables(mine, metrics=["accuracy"])
    first, second = ([cell.text for cell in row.cells] for row in table.rows)
    host = [
        "JoCor + Ours",
        "Quasi-Gaussian noise, ε = 0.2",
        "Acc. ↑",
        "JoCor (host)",
        "+0.020",
        "−0.012",
        "+0.052",
    ]
    assert first == [*host, "0.158", "0.317", "5"]  # Holm: twice the smaller of two, 0.1583
    assert second[3:5] == ["CDR (best baseline)", "+0.006"]
    assert second[8] == second[7]
    assert "test/train = 0.333" in table.caption
    assert "corrected for the 2 comparisons of this table" in table.caption
    runs = planned(mine, **{"jocor+ours-quasi:0.2-4-0": "running"})
    [partial] = paired_tables(mine, runs=runs, metrics=["accuracy"])
    assert [row.cells[-1].text for row in partial.rows] == ["4", "4"]
    assert partial.rows[1].cells[3].text == "Sord (best baseline)"


def test_one_line_when_the_host_is_the_best_baseline_and_dashes_without_a_test() -> None:
    mine = scores(("jocor", "none", [0.5]), ("jocor+ours", "none", [0.4]))
    [table] = paired_tables(mine, metrics=["accuracy"])
    [row] = table.rows
    assert [cell.text for cell in row.cells[3:]] == [
        "JoCor (host, best baseline)",
        "−0.100",
        "–",
        "–",
        "–",
        "–",
        "1",
    ]
    assert "Fewer than three folds have no interval." in table.caption
    assert paired_tables(mine[:1], metrics=["accuracy"]) == []


def test_two_folds_have_a_mean_difference_only() -> None:
    mine = scores(("jocor", "none", [0.5, 0.5]), ("jocor+ours", "none", [0.4, 0.55]))
    [table] = paired_tables(mine, metrics=["accuracy"])
    [row] = table.rows
    assert [cell.text for cell in row.cells[4:]] == ["−0.025", "–", "–", "–", "–", "2"]
    assert "Fewer than three folds have no interval." in table.caption


def test_holm_counts_the_comparisons_of_all_noises() -> None:
    gain = [0.100, 0.101, 0.102, 0.103, 0.104]  # p far below 0.05
    mine = scores(
        ("jocor", "quasi:0.2", [0.5] * 5),
        ("jocor+ours", "quasi:0.2", [0.5 + g for g in gain]),
        ("jocor", "truncated:0.2", [0.5, 0.6, 0.5, 0.6, 0.5]),
        ("jocor+ours", "truncated:0.2", [0.52, 0.61, 0.49, 0.62, 0.50]),
    )
    [table] = paired_tables(mine, metrics=["accuracy"])
    clear, weak = table.rows
    assert clear.cells[8].value == pytest.approx(2 * clear.cells[7].value)
    assert weak.cells[8].value == pytest.approx(weak.cells[7].value)
    assert "corrected for the 2 comparisons of this table" in table.caption


@pytest.mark.slow
def test_the_papers_noises_of_one_rate_are_pooled_although_their_rho_differs() -> None:
    noises = load_preset("limuc")["noises"]
    mine = scores(
        *((host, noise, [0.5, 0.6, 0.7]) for host in ("jocor", "codis") for noise in noises),
        *(
            (f"{host}+ours", noise, [0.5, 0.62, 0.73])
            for host in ("jocor", "codis")
            for noise in noises
        ),
    )
    [table] = pooled_table(mine, metrics=["accuracy"])
    assert [[cell.text for cell in row.cells[:2]] for row in table.rows] == [
        ["Quasi-Gaussian and Truncated-Gaussian noise, ε = 0.2", "2 × 2"],
        ["Quasi-Gaussian and Truncated-Gaussian noise, ε = 0.4", "2 × 2"],
        ["all", "2 × 4"],
    ]
    # noises that only ρ describes have no rate in common
    by_rho = mine.assign(noise=mine["noise"].str.replace(r",rate=.*", "", regex=True))
    [table] = pooled_table(by_rho, metrics=["accuracy"])
    assert [row.cells[0].text for row in table.rows] == [
        *(f"{kind}-Gaussian noise, ρ = {rho}" for kind, rho in (("Quasi", 0.1), ("Quasi", 0.2))),
        *(
            f"{kind}-Gaussian noise, ρ = {rho}"
            for kind, rho in (("Truncated", 0.15), ("Truncated", 0.3))
        ),
        "all",
    ]


def test_pooling_averages_over_hosts_and_noises_within_a_fold() -> None:
    noises = {"quasi:0.2": 0.0, "truncated:0.2": 0.02, "quasi:0.4": 0.1}
    mine = scores(
        *((host, noise, [0.5, 0.6, 0.7]) for host in ("jocor", "codis") for noise in noises),
        *(
            (f"{host}+ours", noise, [0.5 + shift + low, 0.61 + shift + low, 0.72 + shift + low])
            for host, low in (("jocor", 0.0), ("codis", 0.04))
            for noise, shift in noises.items()
        ),
        ("codis+ours", "quasi:0.2", {(3, 0): 0.9}),  # a fold that the others lack
    )
    [table] = pooled_table(mine, metrics=["accuracy"])
    assert [[cell.text for cell in row.cells[:4]] for row in table.rows] == [
        # 0.01 of folds, 0.01 of noises, 0.02 of hosts
        ["Quasi-Gaussian and Truncated-Gaussian noise, ε = 0.2", "2 × 2", "Acc. ↑", "+0.040"],
        ["Quasi-Gaussian noise, ε = 0.4", "2", "Acc. ↑", "+0.130"],
        ["all", "2 × 3", "Acc. ↑", "+0.070"],
    ]
    # the folds' means are 0.03, 0.04 and 0.05: s = 0.01, t = 0.04 / (0.01 √(1/3 + 1/3)) with 2
    # degrees of freedom
    first = table.rows[0].cells
    assert first[6].value == pytest.approx(2 * stats.t.sf(4 / math.sqrt(2 / 3), 2))
    assert first[8].text == "3"
    assert "averaged within a fold over hosts and noises" in table.caption
    assert (
        pooled_table(
            mine[mine["method"].str.contains("jocor")].query("noise == 'quasi:0.2'"),
            metrics=["accuracy"],
        )
        == []
    )


def test_a_narrow_terminal_gets_a_table_for_each_noise() -> None:
    text = Column(name="method", label="Method", kind="text")
    numbers = []
    for group in ("25% of the patients", "Labels as given"):
        for label in ("Acc.", "MAE"):
            numbers.append(Column(name=f"{group} {label}", label=label, group=group, kind="mean"))
    cells = [TableCell(text=word) for word in ("srjt", "0.1", "0.2", "0.3", "0.4")]
    whole = Table(
        slug="comparison",
        title="Comparison, labels as given",
        caption="",
        columns=(text, *numbers),
        rows=(Row(cells=tuple(cells)),),
    )
    parts = whole.by_group()
    assert [part.title for part in parts] == [
        "Comparison, labels as given: 25% of the patients",
        "Comparison, labels as given",
    ]
    shown = [[cell.text for cell in part.rows[0].cells] for part in parts]
    assert shown == [["srjt", "0.1", "0.2"], ["srjt", "0.3", "0.4"]]
    assert [column.full_heading(" ") for column in parts[1].columns] == ["Method", "Acc.", "MAE"]
    assert parts[0].by_group() == [parts[0]]
