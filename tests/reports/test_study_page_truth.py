"""Every sentence on the page of a study is true: unfinished, failed, one run only, no test side, no patients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fixtures.run_folders import QUASI, edit_json, make_study
from reports.page_text import Rule, all_sections, check, facts_of, sentences
from srjt.reports.figures import study
from srjt.reports.page import Page
from srjt.reports.pages.study import study_page
from srjt.studies.results import collect_results

pytestmark = pytest.mark.slow

PLAIN = ("standard", "sord")
NEEDY = ("standard", "co-teaching")
RATED = {"noise_rate": 0.2}
ONE_RUN = {"methods": ("sord",), "folds": 1}
NO_TEST = ("train", "validation")
LEFT = {"standard_fold0": "left", "sord_fold0": "left", "standard_fold1": "left", "sord_fold1": "left"}

# options of make_study, and what was written to study.json
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "complete": ({}, {}),
    "a method that needs the rate": ({"methods": NEEDY, **RATED}, {}),
    "labels as given": ({"noise": "none"}, {}),
    "labels as given, a rate": ({"noise": "none", "methods": NEEDY, **RATED, "given": 0.3}, {}),
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
    "one fold, patients unknown": ({"folds": 1}, {"patients": None}),
    "one run": (ONE_RUN, {}),
    "one run, left": ({**ONE_RUN, "statuses": {"sord_fold0": "left"}}, {}),
    "one run, failed": ({**ONE_RUN, "statuses": {"sord_fold0": "failed"}}, {}),
    "one run, unfinished": ({**ONE_RUN, "statuses": {"sord_fold0": "unfinished"}}, {}),
    "one run, no test side": ({**ONE_RUN, "sides": NO_TEST}, {}),
    "nothing begun": ({"statuses": LEFT}, {}),
    "one failed": ({"statuses": {"sord_fold0": "failed"}}, {}),
    "all failed": ({"statuses": dict.fromkeys(LEFT, "failed")}, {}),
    "failed and unfinished": ({"statuses": {"sord_fold0": "failed", "sord_fold1": "unfinished"}}, {}),
    "one left": ({"statuses": {"standard_fold1": "left"}}, {}),
    "no test side": ({"sides": NO_TEST}, {}),
    "no test side, one left": ({"sides": NO_TEST, "statuses": {"standard_fold1": "left"}}, {}),
    "no validation side": ({"sides": ("train", "test")}, {}),
    "true grades unknown": ({"truth": False, "noise": "none"}, {}),
    "a second in all": ({**ONE_RUN, "epochs": 1, "seconds": 0.6}, {}),
    "two hours": ({"seconds": 500.0}, {}),
    "a damaged noise": ({"damaged": True}, {}),
    "as published": ({"methods": NEEDY, "convention": "published-code", **RATED},
                     {"config": {"convention": "published-code"}}),
}  # fmt: skip


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def networks(facts: Any, said: str) -> bool:
    return ("pooled" in said) == facts["pooled"]


def no_better(said: str) -> bool:
    """Whether each score of a sentence is no better than the naive one beside it."""
    scores = re.findall(r"(accuracy|MAE) ([\d.]+), and ([\d.]+)", said)
    return bool(scores) and all(
        float(own) <= float(naive) if name == "accuracy" else float(own) >= float(naive)
        for name, own, naive in scores
    )


RULES: dict[str, Rule] = {
    r"(?P<methods>\d+ methods?), 1 noise, (?P<folds>\d+ folds?) and 1 seed: (?P<state>.+)\.": (
        lambda f, m: m["methods"] == count(f["methods"], "method") and m["folds"] == count(f["folds"], "fold")
        and m["state"] == (
            "the only run has finished" if f["done"] == f["runs"] == 1
            else f"all {f['runs']} runs finished" if f["done"] == f["runs"]
            else f"{f['done']} of {count(f['runs'], 'run')} finished"
        )
    ),
    r"(?P<n>\d+) (run failed and is|runs failed and are) missing from tables and figures\.": (
        lambda f, m: int(m["n"]) == f["failed"] > 0 and ("runs" in m[0].split(" failed")[0]) == (f["failed"] > 1)
    ),
    r"The study is incomplete: (?P<n>\d+) runs? to finish\.": lambda f, m: int(m["n"]) == f["left"] > 0,
    r"Means are over the finished runs only, .+; tables mark means with missing runs\.": (
        lambda f, m: f["left"] > 0 and f["done"] > 0
    ),
    r"The splits have no test side: there are no test results\.": lambda f, m: not f["test"] and f["done"] > 0,
    r"There are no test results\.": lambda f, m: not f["test"] and f["done"] > 0,
    r"Facts about the noise are missing, because files are damaged\.": lambda f, m: f["damaged"],
    r"Patients are unknown: .+": lambda f, m: not f["patients"],
    r"There is only one fold: no standard deviation and no paired test\.": lambda f, m: f["folds"] == 1 == f["split"],
    r"Only one of 3 folds is part of the study: no standard deviation and no paired test\.": (
        lambda f, m: f["folds"] == 1 and f["split"] == 3
    ),
    r"No run has finished yet\.": lambda f, m: f["done"] == 0,
    r"Click the heading of a column to sort by it\.": lambda f, m: f["done"] > 0,
    r"study: Comparison, (?P<noise>Quasi-Gaussian noise|labels as given)": (
        lambda f, m: f["test"] and f["done"] > 0 and ("Quasi" in m["noise"]) == f["injected"]
    ),
    r"Test .+, averaged over the last ten epochs \(all, if fewer\)(?P<networks>.*); "
    r"(mean ± standard deviation \(population, ddof = 0\) over (?P<over>\d folds)|one fold and one seed)\.": (
        lambda f, m: f["test"] and networks(f, m["networks"])
        and (m["over"] == count(f["folds"], "fold") if f["folds"] > 1 else m["over"] is None)
    ),
    r"study: Paired comparison, .+|Mean difference over .+|There is one fold, so there are no intervals\."
    r"|The best baseline and .+|p, Holm: .+": lambda f, m: f["recipe"],
    r"Each fold has its own test patients and its own training: ± contains both\.": lambda f, m: f["folds"] > 1,
    r"Best and second best in a column are marked among methods with the same runs\.": lambda f, m: f["methods"] > 1,
    r"Naive: always the most frequent training label; for MAE always their median\.": (
        lambda f, m: f["test"] and f["done"] > 0
    ),
    r"(Standard|Sord|Co-teaching|srjt) does not beat a naive prediction on the test side (?P<noise>.+): .+\.": (
        lambda f, m: f["test"] and f["done"] > 0 and ("under" in m["noise"]) == f["injected"] and no_better(m[0])
    ),
    r"Test (accuracy|MAE) .+, mean over folds and networks(?P<bands>; bands: .+)?\.": (
        lambda f, m: f["test"] and f["curves"] and bool(m["bands"]) == f["bands"]
    ),
    r"Incomplete: .+": lambda f, m: f["left"] + f["failed"] > 0,
    r"Label precision of the selection .+|Selection recall per grade .+|A method without selection .+": (
        lambda f, m: f["truth"] and (f["needy"] or f["recipe"])
    ),
    r"Confusion matrices on the test side .+ after the last epoch\.": lambda f, m: f["test"] and f["done"] > 0,
    r"Colour and percentage: .+": lambda f, m: True,
    r"Noise was injected into training and validation labels, never into test labels\.": lambda f, m: f["injected"],
    r"“Labels as given”: nothing was injected\.": lambda f, m: not f["injected"],
    r"All methods used the same labels\.": lambda f, m: f["methods"] > 1,
    r"Methods that need the noise got the rate and the matrix below\.": lambda f, m: f["needy"] and f["given"],
    r"(?:All methods used the same labels\. )?(?P<who>.+) used an estimate from the training labels\.": (
        lambda f, m: f["estimated"] and not f["unused"]
        and m["who"] == ("srjt" if f["needy"] and f["given"] else "Methods that need the noise rate")
    ),
    r"Methods that need the noise rate estimated it from the training labels\.": lambda f, m: f["unused"],
    r"The noise stayed unknown and no label was taken to be wrong: .+": lambda f, m: f["unused"],
    r"No method used the given rate 0\.3\.": lambda f, m: f["given"] and not f["needy"],
    r"Quasi-Gaussian noise, rate 0\.2: probability of each label .+ \(rows\)(?P<source>, estimated from .+)?\.": (
        lambda f, m: f["injected"] and bool(m["source"]) == (f["estimated"] and not f["given"])
    ),
    r"Labels as given: probability of each label .+, as given to the methods that need it; nothing is injected\.": (
        lambda f, m: not f["injected"] and f["given"] and f["needy"]
    ),
    r"Share of wrong labels among the training samples": lambda f, m: True,
    r"Nominal: expected from .+|Realised: the share after .+|Condition number of the matrix: .+": lambda f, m: True,
    r"(?P<runs>\d+ runs?), (?P<time>.+) of training in all\.": (
        lambda f, m: m["runs"] == count(f["runs"], "run") and m["time"] == f["time"]
    ),
    r"Every run": lambda f, m: True,
    r"Test side, mean over the last ten epochs \(all, if fewer\)(?P<networks>.*)\.": (
        lambda f, m: networks(f, m["networks"])
    ),
    r"The same command on the same data gives the same splits, .+": lambda f, m: True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions are checked, not drawings."""
    for name in ("chart", "confusion_figure", "transition_figure"):
        monkeypatch.setattr(study, name, lambda *args, **kwargs: None)
    monkeypatch.setattr(study, "small_multiples", lambda *args, **kwargs: None)


def page_of(folder: Path, options: dict[str, Any], changes: dict[str, Any]) -> Page:
    chosen = dict(options)
    given, damaged, used = (chosen.pop(name, default) for name, default in
                            (("given", "unchanged"), ("damaged", False), ("used", None)))  # fmt: skip
    make_study(folder, **chosen)
    edit_json(folder / "study.json", **changes)
    if given != "unchanged":
        for path in (folder / "noise").iterdir():
            edit_json(path, told_rate=given, told_matrix=None if given is None else QUASI)
    if used is not None:
        for path in folder.glob("runs/srjt*/run.json"):
            known = chosen["estimated"] if used > 0 else None
            record = {"requested": "auto", "estimated": known, "used": used, "why": ""}
            edit_json(path, noise=record)
            file = path.with_name("noise.json")
            estimate = json.loads(file.read_text())["estimate"]
            edit_json(file, estimate={**estimate, "informed": used > 0})
    if damaged:
        (folder / "noise" / "0.json").write_text("{")
    return study_page(collect_results(folder))


def duration(options: dict[str, Any]) -> str:
    """Training time of all runs: finished ones have all epochs, unfinished ones half of them."""
    keys = [f"{m}_fold{k}" for k in range(options.get("folds", 2)) for m in options.get("methods", PLAIN)]
    statuses = [options.get("statuses", {}).get(key, "done") for key in keys]
    epochs = options.get("epochs", 4)
    trained = sum({"done": epochs, "unfinished": epochs // 2}.get(status, 0) for status in statuses)
    seconds = trained * options.get("seconds", 2.0)
    if not seconds:
        return "no time"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_of_a_study_is_true(name: str, tmp_path: Path) -> None:
    options, changes = STUDIES[name]
    page = page_of(tmp_path / "study", options, changes)
    methods, folds = options.get("methods", PLAIN), options.get("folds", 2)
    statuses = list(options.get("statuses", {}).values())
    done_folds = {
        method: [k for k in range(folds) if f"{method}_fold{k}" not in options.get("statuses", {})]
        for method in methods
    }
    injected = options.get("noise") != "none"
    facts = {
        "methods": len(methods),
        "folds": folds,
        "split": changes.get("folds", folds),
        "runs": len(methods) * folds,
        "done": len(methods) * folds - len(statuses),
        "failed": statuses.count("failed"),
        "left": statuses.count("left") + statuses.count("unfinished"),
        "test": "test" in options.get("sides", ("test",)),
        "patients": changes.get("patients", 30) is not None,
        "truth": options.get("truth", True),
        "injected": injected,
        "needy": "co-teaching" in methods,
        "given": options.get("given", 0.2 if injected else None) is not None,
        "estimated": "estimated" in options,
        "recipe": "srjt" in methods,
        "unused": options.get("used") == 0.0,
        "pooled": "convention" in options,
        "curves": any(done_folds.values()) or "unfinished" in statuses,
        "bands": any(len(found) > 1 for found in done_folds.values()),
        "time": duration(options),
        "damaged": "damaged" in options,
    }
    used = check(page, RULES, facts)
    for required, condition in (
        ("Patients are unknown", not facts["patients"]),
        ("There is only one fold", folds == 1 == facts["split"]),
        ("The study is incomplete", facts["left"] > 0),
        ("No run has finished yet", facts["done"] == 0),
        ("The splits have no test side", facts["done"] > 0 and not facts["test"]),
    ):
        assert any(rule.startswith(required) for rule in used) == condition, required
    shown = facts_of(page)
    used_folds = "3 folds, 1 of them used" if facts["split"] == 3 else count(folds, "fold")
    assert shown["split"] == used_folds + (", each patient on one side only" if facts["patients"] else "")
    assert shown["patients"] == ("30" if facts["patients"] else "unknown")
    noise = next(section for section in all_sections(page) if section.slug == "noise").tables[0]
    labels = {column.label for column in noise.columns}
    assert ("given to methods" in labels) == (facts["needy"] and facts["given"])
    assert ("estimated" in labels) == (facts["estimated"] and not facts["unused"])
    assert ("used after estimating" in labels) == facts["unused"]
    runs = next(section for section in all_sections(page) if section.slug == "runs").tables[0]
    words = {"done": "done", "failed": "failed", "left": "not started", "unfinished": "not started"}
    expected = [
        words[options.get("statuses", {}).get(f"{m}_fold{k}", "done")] for k in range(folds) for m in methods
    ]
    assert [row.cells[4].text for row in runs.rows] == expected
    assert "0.0" not in [row.cells[5].text for row in runs.rows]  # minutes
    if not injected and not facts["needy"]:
        rates = ["0.000"] if facts["unused"] else []  # what was estimated and rejected is not shown
        assert [cell.text for cell in noise.rows[0].cells[1:]] == ["–", *rates, "–", "–", "–"]


def test_the_noise_of_every_fold_is_as_it_was_used(tmp_path: Path) -> None:
    """Fold 0 used less than was estimated, and in fold 1 nothing could be estimated: no average over both is shown."""
    folder = tmp_path / "study"
    make_study(folder, noise="none", methods=("standard", "srjt"), folds=2, estimated=0.625)
    for path in folder.glob("runs/srjt*/run.json"):
        second = "fold1" in path.parent.name
        known, used = (None, 0.0) if second else (0.625, 0.5)
        edit_json(path, noise={"requested": "auto", "estimated": known, "used": used, "why": ""})
        file = path.with_name("noise.json")
        estimate = json.loads(file.read_text())["estimate"]
        edit_json(file, estimate={**estimate, "informed": not second})
    for path in (folder / "noise").iterdir():
        edit_json(path, told_rate=None, told_matrix=None)
    results = collect_results(folder)
    section = next(section for section in all_sections(study_page(results)) if section.slug == "noise")
    cells = dict(
        zip([c.name for c in section.tables[0].columns], section.tables[0].rows[0].cells, strict=True)
    )
    assert cells["estimated_rate"].text == "fold 0: 0.625; fold 1: –"
    assert cells["used_rate"].text == "fold 0: 0.500; fold 1: 0.000"
    assert (
        "In 1 of 2 runs (fold 1) the noise stayed unknown and no label was taken to be wrong"
        in section.text[0]
    )


def test_every_rule_is_for_a_sentence_that_some_page_contains(tmp_path: Path) -> None:
    found = {
        sentence
        for number, (options, changes) in enumerate(STUDIES.values())
        for sentence in sentences(page_of(tmp_path / str(number) / "study", options, changes))
    }
    assert [rule for rule in RULES if not any(re.fullmatch(rule, sentence) for sentence in found)] == []


def test_a_study_without_planned_runs_is_a_page(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study")
    edit_json(folder / "study.json", cells=[], methods=[])
    page = study_page(collect_results(folder))
    assert page.lead == "No runs are planned."


def test_several_seeds_of_one_fold_have_a_standard_deviation(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", folds=2)
    facts = json.loads((folder / "study.json").read_text())
    cells = [{**cell, "seed": cell["fold"], "fold": 0} for cell in facts["cells"]]
    edit_json(folder / "study.json", cells=cells, seeds=[0, 1], folds=1)
    page = study_page(collect_results(folder))
    said = " ".join(sentences(page))
    assert (
        "There is only one fold: standard deviations in tables are over seeds, and there is no paired test."
        in said
    )
    assert "over 1 fold and 2 seeds." in said
    assert (
        "Seeds differ in their training and share their test patients: ± does not contain patients." in said
    )
    assert "bands" not in said
