"""Every sentence on the page of a study is true: unfinished, failed, one run only, no test side, no
patients."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import srjt
from fixtures.run_folders import QUASI, edit_json, make_study
from reports.page_text import all_sections, facts_of, idle_sentences
from srjt.reports.figures import canvas
from srjt.reports.pages.study import remarks_of, study_facts, study_page, verdict_of, warnings_of
from srjt.studies.results import StudyResults, collect_results, display_name

pytestmark = pytest.mark.slow

PLAIN = ("standard", "sord")
NEEDY = ("standard", "co-teaching")
RATED = {"noise_rate": 0.2}
ONE_RUN = {"methods": ("sord",), "folds": 1}
NO_TEST = ("train", "validation")
LEFT = {
    "standard_fold0": "left",
    "sord_fold0": "left",
    "standard_fold1": "left",
    "sord_fold1": "left",
}

# options of make_study, and what was written to study.json
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "complete": ({}, {}),
    "a method that needs the rate": ({"methods": NEEDY, **RATED}, {}),
    "labels as given": ({"noise": "none"}, {}),
    "labels as given, a rate that is not needed": ({"noise": "none", "given": 0.3}, {}),
    "a rate that is estimated": ({"methods": NEEDY, **RATED, "given": None, "estimated": 0.2},
                                 {"study": {"noise_rate": "auto"}}),
    "an estimate that is not used": (
        {"noise": "none", "methods": ("standard", "srjt"), "folds": 1, "given": 0.3, "estimated": 0.5, "used": 0.0},
        {"study": {"noise_rate": 0.3}},
    ),
    "given and estimated": (
        {"methods": (*NEEDY, "srjt"), **RATED, "folds": 1, "estimated": 0.2, "used": 0.2}, {}
    ),
    "patients unknown": ({}, {"patients": None}),
    "one fold": ({"folds": 1}, {}),
    "one fold of three": ({"folds": 1}, {"folds": 3}),
    "one run": (ONE_RUN, {}),
    "one run, left": ({**ONE_RUN, "statuses": {"sord_fold0": "left"}}, {}),
    "one run, failed": ({**ONE_RUN, "statuses": {"sord_fold0": "failed"}}, {}),
    "nothing begun": ({"statuses": LEFT}, {}),
    "one failed": ({"statuses": {"sord_fold0": "failed"}}, {}),
    "all failed": ({"statuses": dict.fromkeys(LEFT, "failed")}, {}),
    "failed and unfinished": ({"statuses": {"sord_fold0": "failed", "sord_fold1": "unfinished"}}, {}),
    "one left": ({"statuses": {"standard_fold1": "left"}}, {}),
    "no test side": ({"sides": NO_TEST}, {}),
    "no validation side": ({"sides": ("train", "test")}, {}),
    "true grades unknown": ({"truth": False, "noise": "none"}, {}),
    "as published": ({"methods": NEEDY, "convention": "published-code", **RATED},
                     {"study": {"train": {"convention": "published-code"}}}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions are checked, not drawings."""
    for name in ("chart", "confusion_figure", "transition_figure"):
        monkeypatch.setattr(canvas, name, lambda *args, **kwargs: None)


def results_of(folder: Path, options: dict[str, Any], changes: dict[str, Any]) -> StudyResults:
    chosen = dict(options)
    given, used = chosen.pop("given", "unchanged"), chosen.pop("used", None)
    make_study(folder, **chosen)
    edit_json(folder / "study.json", **changes)
    if given != "unchanged":
        tell_noise(folder, given)
    if used is not None:
        for path in folder.glob("runs/srjt*/run.json"):
            known = chosen["estimated"] if used > 0 else None
            record = {"requested": "auto", "estimated": known, "used": used, "why": ""}
            edit_json(path, noise=record)
            file = path.with_name("noise.json")
            estimate = json.loads(file.read_text())["estimate"]
            edit_json(file, estimate={**estimate, "informed": used > 0})
    return collect_results(folder)


def tell_noise(folder: Path, rate: float | None) -> None:
    """Change the noise that the study gave to the methods."""
    told = {"told_rate": rate, "told_matrix": None if rate is None else QUASI}
    rows = json.loads((folder / "study.json").read_text())["noise"]
    edit_json(folder / "study.json", noise=[{**row, **told} for row in rows])


def expected_facts(options: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """What the rules must know, by the options of the study alone."""
    methods, folds = options.get("methods", PLAIN), options.get("folds", 2)
    statuses, runs = list(options.get("statuses", {}).values()), len(methods) * folds
    failed, injected = statuses.count("failed"), options.get("noise") != "none"
    return {
        "runs": runs,
        "done": runs - len(statuses),
        "total": f"{runs} run{'s' * (runs != 1)}",
        "failed": failed,
        "unfinished": len(statuses) - failed,
        "test": "test" in options.get("sides", ("test",)) and len(statuses) < runs,
        "patients": changes.get("patients", 30) is not None,
        "folds": folds,
        "planned_folds": changes.get("folds", folds),
        "kinds": {"quasi" if injected else "none"},
    }


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_of_a_study_is_true(name: str, tmp_path: Path) -> None:
    options, changes = STUDIES[name]
    results = results_of(tmp_path / "study", options, changes)
    facts, expected = study_facts(results), expected_facts(options, changes)
    assert {field: getattr(facts, field) for field in expected} == expected
    page, methods, folds = (
        study_page(results),
        options.get("methods", PLAIN),
        options.get("folds", 2),
    )
    # nothing is said but what the rules say
    assert (page.title, page.lead) == verdict_of(facts)
    assert page.warnings == list(warnings_of(facts))
    assert len(page.details) == bool(facts.failed)
    assert page.remarks == list(remarks_of(facts))
    assert not any(section.text for section in all_sections(page))
    # and what they list is so: the best mean, and means that are no better than one grade for all
    means = results.scores[results.scores["split"].eq("test") & results.scores["metric"].eq("mae")]
    means = means[means["key"].isin(results.runs.loc[results.runs["status"] == "done", "key"])]
    complete = (
        means.groupby("method")
        .filter(lambda rows: len(rows) == folds)
        .groupby("method")["value"]
        .mean()
    )
    naive = results.naive.loc[results.naive["metric"] == "mae", "value"].mean()
    if len(complete) > 1:
        best = {
            display_name(method) for method in complete.index[complete <= complete.min() + 1e-9]
        }
        if complete.min() >= naive - 1e-9:  # one grade for all takes part
            best = {"one grade for all"}
        assert set(facts.leader.split(" and ")) == best
    if len(means):
        assert facts.none_better == bool(
            (means.groupby("method")["value"].mean() >= naive - 1e-9).all()
        )
    worse = means.groupby("method")["value"].mean() >= naive - 1e-9
    for method in methods:
        assert (display_name(method) in facts.not_better.split("; ")) == bool(
            worse.get(method, False)
        )
    shown = facts_of(page)
    used = (
        "3 folds, 1 of them used"
        if facts.planned_folds == 3
        else f"{folds} fold{'s' * (folds != 1)}"
    )
    assert shown["split"] == used + (", each patient on one side only" if facts.patients else "")
    assert shown["patients"] == ("30" if facts.patients else "unknown")
    tables = {table.slug: table for section in all_sections(page) for table in section.tables}
    labels = {column.label for column in tables["noise"].columns}
    assert ("estimate, 95 % interval" in labels) == ("estimated" in options)
    assert ("estimated" in labels) == ("estimated" in options and options.get("used") != 0.0)
    assert shown.get("noise rate", "") == str(results.facts["study"]["noise_rate"] or "")
    words = {"done": "done", "failed": "failed", "left": "not started", "unfinished": "not started"}
    statuses = [
        options.get("statuses", {}).get(f"{m}_fold{k}", "done")
        for k in range(folds)
        for m in methods
    ]
    assert [row.cells[4].text for row in tables["runs"].rows] == [
        words[status] for status in statuses
    ]
    assert "0.0" not in [row.cells[5].text for row in tables["runs"].rows]  # minutes


def test_the_noise_of_every_fold_is_as_it_was_used(tmp_path: Path) -> None:
    """Fold 0 used less than was estimated, and in fold 1 nothing could be estimated: the mean does
    not hide it."""
    folder = tmp_path / "study"
    make_study(folder, noise="none", methods=("standard", "srjt"), folds=2, estimated=0.625)
    for path in folder.glob("runs/srjt*/run.json"):
        second = "fold1" in path.parent.name
        known, used = (None, 0.0) if second else (0.625, 0.5)
        edit_json(path, noise={"requested": "auto", "estimated": known, "used": used, "why": ""})
        file = path.with_name("noise.json")
        estimate = json.loads(file.read_text())["estimate"]
        edit_json(file, estimate={**estimate, "informed": not second})
    tell_noise(folder, None)
    results = collect_results(folder)
    [table] = next(s for s in study_page(results).sections if s.slug == "noise").tables
    cells = dict(zip([c.label for c in table.columns], table.rows[0].cells, strict=True))
    assert cells["used by the runs"].text == "0.000 – 0.500"
    assert "estimated" not in cells  # no number where a fold has none


def test_every_rule_is_needed(tmp_path: Path) -> None:
    """Each holds for some study, and not for all of them."""
    every = [
        study_facts(results_of(tmp_path / str(n) / "study", *study))
        for n, study in enumerate(STUDIES.values())
    ]
    every += [
        replace(every[0], runs=0),
        replace(every[0], leader="", none_better=False),
        replace(every[0], garg=True, condition=1e6, networks="odds: srjt; mlp: Sord"),
    ]
    for function in (verdict_of, warnings_of, remarks_of):
        assert idle_sentences(function, every) == []


def test_results_in_memory_have_the_same_page(tmp_path: Path) -> None:
    results = collect_results(make_study(tmp_path / "study"))
    assert srjt.report(results).verdict == study_page(results).verdict


def test_a_study_without_planned_runs_is_a_page(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study")
    edit_json(folder / "study.json", cells=[], methods=[])
    assert study_page(collect_results(folder)).title == "No runs are planned"


def test_several_seeds_of_one_fold_have_a_standard_deviation(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", folds=2)
    facts = json.loads((folder / "study.json").read_text())
    cells = [{**cell, "seed": cell["fold"], "fold": 0} for cell in facts["cells"]]
    edit_json(folder / "study.json", cells=cells, study={"seeds": [0, 1]}, folds=1)
    results = collect_results(folder)
    assert (study_facts(results).folds, study_facts(results).planned_folds) == (1, 1)
    [table] = next(s for s in study_page(results).sections if s.slug == "tables").tables
    assert "over 1 fold and 2 seeds." in table.caption
    assert "± does not contain patients" in table.caption
