"""The page of a study, read as HTML."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.html_tree import Tree
from srjt.errors import SrjtError
from srjt.reports.page import (
    Page,
    Section,
    page_figures,
    render,
    whole_options,
    with_command,
    write_page,
)
from srjt.reports.pages.study import study_facts, study_page, verdict_of, warnings_of

FEW = {
    "methods": ("standard", "co-teaching", "co-teaching+ours"),
    "folds": 2,
    "epochs": 3,
    "noises": ("quasi:0.2",),
}
HOSTILE = "<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def page(study) -> str:
    return render(
        study_page(study(**FEW, source=HOSTILE, statuses={"standard quasi:0.2 1": "failed"}))
    )


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page: str) -> None:
    tree = Tree(page)
    assert tree.wrong == []
    assert tree.open == []
    for _, attributes in tree.elements:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert not tree.all("link") + tree.all("iframe") + tree.all("form")


def test_only_the_page_s_own_script_may_run(page: str) -> None:
    tree = Tree(page)
    policy = next(
        m["content"] for m in tree.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [
        name for _, attributes in tree.elements for name in attributes if name.startswith("on")
    ]


@pytest.mark.slow
def test_hostile_text_stays_text_wherever_it_comes_from(study) -> None:
    evil = "</style></script><script>alert(1)</script>\"'"
    made = study(
        **{**FEW, "methods": ("standard", evil)}, grades=(evil, "b", "c"), name=evil, command=evil,
        versions={evil: evil}, splits_hash=evil, source=evil,
    )  # fmt: skip
    made.facts["study"]["train"] = {evil: evil}
    tree = Tree(render(study_page(made)))
    assert tree.wrong == []
    assert len(tree.all("script")) == 1
    assert len(tree.all("style")) == 1


def test_the_page_can_be_read_without_seeing_it(page: str) -> None:
    tree = Tree(page)
    assert tree.all("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert max(np.diff(levels)) == 1  # no level is skipped
    assert all(th.get("scope") in {"col", "row", "colgroup"} for th in tree.all("th"))
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in tree.all("svg"))
    assert len(tree.all("svg")) >= 5
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in tree.all("a")}
    assert targets <= set(ids)
    regions = [div for div in tree.all("div") if div.get("role") == "region"]
    assert all(
        region["tabindex"] == "0" and region["aria-label"] for region in regions
    )  # scrolled by keyboard


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_failures_come_first_with_their_errors(study) -> None:
    page = study_page(study(**FEW, patients=None, statuses={"co-teaching quasi:0.2 1": "failed"}))
    first, second, *_ = page.warnings
    assert first == "1 of 6 runs failed."
    ((where, errors),) = page.details
    assert "errors/" in where
    assert errors == "failed: co-teaching quasi:0.2 1:   RuntimeError: <b>boom</b>"
    assert "Patients are unknown" in second


@pytest.mark.slow
def test_garg_is_warned_of_where_its_matrix_is_nearly_singular(study) -> None:
    singular = {**FEW, "noises": ("quasi:0.2", "truncated:0.4")}

    def warned(**options: Any) -> list[str]:
        return list(warnings_of(study_facts(study(**options))))

    assert "Garg" not in " ".join(warned(**singular))  # nobody inverts it
    methods = ("standard", "garg")
    assert "condition number up to 2" in warned(**{**singular, "methods": methods})[0]
    assert not warned(**{**FEW, "noises": ("quasi:0.2",), "methods": methods})


def test_different_networks_are_said(study) -> None:
    """Of features, only some methods may choose their network."""
    results = study(methods=("srjt", "standard", "sord"), noises=("quasi:0.2",), folds=2)

    def said(**networks: str) -> list[str]:
        named = results.runs["method"].map(networks).fillna("")
        changed = replace(results, runs=results.runs.assign(network=named))
        return [text for text in warnings_of(study_facts(changed)) if "different networks" in text]

    assert not said(srjt="odds", standard="odds", sord="odds")
    assert not said(srjt="odds")  # the others have not begun
    [text] = said(srjt="odds", standard="odds", sord="mlp")
    assert "(odds: srjt and Standard; mlp: Sord)" in text


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_gain_is_measured_on_the_same_runs_only(study) -> None:
    options = {"methods": ("standard", "jocor", "sord"), "noises": ("quasi:0.2",), "folds": 3}
    _, lead = verdict_of(study_facts(study(**options)))
    assert "that of plain training; no paired test" in lead
    fewer = study_page(study(**options, statuses={"standard quasi:0.2 1": "failed"}))
    assert "plain training" not in fewer.lead + fewer.key_numbers[1].compared


def test_a_gain_that_no_paired_test_shows_is_called_so(study) -> None:
    ours = ("standard", "jocor+ours")
    # with five folds p is below 0.05 for each of the three metrics, and above after Holm's correction
    cases = (
        (("standard", "jocor"), 10, False),
        (ours, 10, True),
        (ours, 5, False),
        (ours, 2, False),
    )
    for methods, folds, shown in cases:
        made = study(methods=methods, noises=("quasi:0.2",), folds=folds)
        _, lead = verdict_of(study_facts(made))
        assert lead.endswith("no paired test shows this difference.") != shown


def test_what_a_study_is_made_of_is_counted_by_its_runs(study) -> None:
    made = study(**{**FEW, "methods": ("standard", "sord:a", "sord:b")})
    made = replace(made, runs=pd.concat([made.runs, made.runs.assign(seed=1)]))
    assert study_facts(made).composition == "2 methods, 2 variants, 1 noise, 2 folds, 2 seeds"


@pytest.mark.slow
def test_a_study_that_has_not_begun_is_a_page_too(study) -> None:
    small = {**FEW, "methods": ("standard",), "folds": 1}
    text = render(study_page(study(**small, statuses={"standard quasi:0.2 0": "left"})))
    assert "No run has finished yet" in text
    assert "1 of 1 run to finish" in text


@pytest.mark.slow
def test_every_run_is_listed_with_its_status_and_scores(study) -> None:
    made = study(**FEW, statuses={"standard quasi:0.2 1": "failed"})
    section = next(s for s in study_page(made).sections if s.slug == "runs")
    rows = [[cell.text for cell in row.cells] for row in section.tables[0].rows]
    assert len(rows) == 6
    assert rows[0][:6] == ["Standard", "quasi:0.2", "0", "0", "done", "1.0"]
    failed = next(row for row in rows if row[4] == "failed")
    assert failed[5:] == ["–"] * 4


@pytest.mark.slow
def test_the_paired_test_knows_the_true_sizes_of_the_sides(study, tmp_path: Path) -> None:
    sides = ["train"] * 8 + ["validation"] + ["test"] * 2
    lines = [f"{n},{fold},{side}" for fold in range(3) for n, side in enumerate(sides)]
    (tmp_path / "splits.csv").write_text("\n".join(["id,fold,split", *lines]) + "\n")
    made = replace(study(**{**FEW, "folds": 3}), folder=tmp_path)
    assert "test/train = 0.25" in "".join(Tree(render(study_page(made))).text)
    (tmp_path / "splits.csv").write_bytes(b"\x00\xff")
    with pytest.raises(SrjtError, match=r"splits\.csv is damaged"):
        study_page(made)


def test_how_to_reproduce_names_everything(page: str) -> None:
    words = "".join(Tree(page).text)
    for what in (
        "srjt study labels.csv --methods all",
        "torch 2.13.0",
        "5f2c9e0a11d4",
        "564",
        "batch size",
    ):
        assert what in words


def test_a_name_that_is_no_valid_text_can_be_written(tmp_path: Path) -> None:
    page = Page(kind="Study", title="bad\udce9name", lead="", warnings=["\udcff"])
    write_page(page, tmp_path / "a" / "report.html")
    assert b"bad?name" in (tmp_path / "a" / "report.html").read_bytes()


def test_a_page_without_a_lead_has_its_title_alone() -> None:
    for lead, verdict in (("3 are wrong.", "Bad. 3 are wrong."), ("", "Bad.")):
        page = Page(kind="Run", title="Bad", lead=lead)
        assert repr(page) == str(page) == page.verdict == verdict
        assert ('<p class="lead">' in render(page)) == bool(lead)


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="cannot be written"):
        write_page(Page(kind="Run", title="", lead=""), tmp_path)


@pytest.mark.slow
def test_figures_of_parts_are_found(study) -> None:
    made = study_page(study(**FEW))
    inner = [d for section in made.sections for part in section.parts for d in part.figures]
    assert inner
    assert {id(d) for d in inner} <= {id(d) for d in page_figures(made)}
    assert page_figures(Page(kind="", title="", lead="", sections=[Section("a", "A")])) == []


def test_a_command_at_the_end_of_a_paragraph_looks_like_one() -> None:
    told = "To know it, verify 5 <b>: srjt review a.b/audit --sample 5."
    assert with_command(told) == (
        "To know it, verify 5 &lt;b&gt;: <code>srjt review a.b/audit"
        " <span>--sample</span> 5</code>."
    )
    assert with_command("Leave them out (srjt train --on-bad-image skip) or see --help.") == (
        "Leave them out (<code>srjt train <span>--on-bad-image</span> skip</code>) or see"
        " <span>--help</span>."
    )
    for other in (
        "srjt is better.",
        "It (srjt ours) is --better.",
        "Next: srjt review a. Then <more>.",
        "no command",
    ):
        assert "<code>" not in with_command(other)


def test_a_browser_does_not_break_an_option() -> None:
    command = "srjt study 'a--b<i>.csv' --learning-curve --seed 1"
    assert whole_options(command) == (
        "srjt study &#39;a--b&lt;i&gt;.csv&#39; <span>--learning-curve</span> <span>--seed</span> 1"
    )
