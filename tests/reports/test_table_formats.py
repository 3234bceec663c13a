"""A table in Markdown, CSV, LaTeX and dictionaries."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.score_tables import SOFT, as_printed, scores
from srjt.reports.tables.paired import paired_tables
from srjt.reports.tables.study_tables import ablation_tables, comparison_tables
from srjt.reports.tables.table import Column, Row, Table, TableCell


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
                        text="0.5 ± 0.1", value=0.5, std=0.1, runs=2, mark="best", bold=True, partial=True
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


@given(st.text(min_size=1, max_size=30))
def test_latex_has_balanced_braces_and_the_right_number_of_columns_whatever_the_text(text: str) -> None:
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


def test_dictionaries_are_plain_and_sortable() -> None:
    plain = tricky(NASTY).as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["rows"][0]["cells"][0]["text"] == NASTY  # the page escapes, not the table
    assert [cell["sort"] for cell in plain["rows"][0]["cells"]] == [NASTY, 0.5, 0.4]
    assert [cell["sort"] for cell in plain["rows"][1]["cells"]] == [NASTY, None, None]
    assert plain["groups"] == [{"label": "", "span": 1}, {"label": NASTY, "span": 2}]
    assert set(plain["legend"]) == {"best", "bold", "partial", "missing"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    ablation = as_printed("limuc", "ablation")
    mine = pd.concat([as_printed("limuc"), ablation[ablation["variant"] == SOFT]])
    tables = [
        *comparison_tables(mine, paper="limuc"),
        *ablation_tables(mine, paper="limuc"),
        *paired_tables(mine, test_train_ratio=1 / 3),
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
