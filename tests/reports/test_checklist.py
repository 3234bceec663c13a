"""Checklists for journals: all items are there, and what they say is what the files say."""

from __future__ import annotations

import io
import json
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from fixtures.audit_folders import make_audit
from fixtures.run_folders import edit_json
from refusals import refuses
from srjt.errors import SrjtError
from srjt.reports import checklist
from srjt.reports.aspects import facts_of_item
from srjt.reports.checklist import AUTHORS, CHECKLISTS, Known, checklist_items, known_facts

ITEMS = {"tripod-ai": 27, "claim": 44, "stard-ai": 40}  # as published, without their parts


@pytest.fixture
def folder(run_with_images: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_with_images, tmp_path / "run"))


def evaluation(folder: Path, **changes: Any) -> Path:
    """A file of ``srjt evaluate --out`` beside the run."""
    score = {"value": 0.5, "low": 0.25, "high": 0.75}
    values = {
        "run": "run", "grades": ["0", "1", "2", "3"], "samples": 80, "patients": 20, "judged_by": "true grades",
        "own_samples": 0, "calibration_error": 0.125,
        "intervals": dict.fromkeys(("mae", "accuracy", "macro_f1", "qwk"), score),
        "true_scores": {"basis": "readings", "scores": {"mae": score, "recall_0": score}},
        "ranges": {"promised": 0.9, "coverage": score, "width": score},
        "decision": {
            "refer_from": "2", "threshold": 0.25, "found": "The threshold is given.",
            "operating_point": {"sensitivity": score}, "areas": {},
        },
        "subgroups": {
            "groups": [
                {"column": "site", "name": "Lyon", "patients": 12, "scores": {"mae": score}},
                {"column": "sex", "name": "f", "patients": 3, "scores": {}},
            ]
        },
    }  # fmt: skip
    path = folder.parent / "second_centre.json"
    path.write_text(json.dumps({**values, **changes}))
    return path


@pytest.mark.parametrize("name", CHECKLISTS)
def test_every_item_is_there_once_and_names_facts_that_exist(name: str) -> None:
    items = [item.item for item in checklist_items(name, Known()).itertuples()]
    assert len(set(items)) == len(items)
    numbers = [int(re.sub("[a-z]", "", item)) for item in items]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, ITEMS[name] + 1))


def test_every_fact_is_used_and_exists(folder: Path, tmp_path: Path) -> None:
    text = (resources.files("srjt.reports") / "checklists.csv").read_text()
    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    named = {fact for cell in table["facts"] for fact in cell.split()}
    for row in table.itertuples():
        named |= {*facts_of_item(row.checklist, row.item)}
    evaluated = evaluation(folder, abstention={"wanted": 0.1, "share": 0.125})
    readers = tmp_path / "readers"
    readers.mkdir()
    (readers / "readers.json").write_text(json.dumps({
        "format": 4, "grades": ["0", "1", "2", "3"], "readers": ["a", "b"], "source": "labels.csv",
        "probabilities_sha256": None, "readings": 1200, "items": 600, "noun": "image",
        "agreement": {"alpha": {"value": 0.5, "low": 0.25, "high": 0.75}, "exact": {"value": 1, "low": 1, "high": 1}},
    }))  # fmt: skip
    edit_json(
        folder / "run.json", noise={"requested": 0.2, "used": 0.25, "estimated": None, "why": ""}
    )
    known, _ = known_facts(folder, [evaluated, audited(tmp_path), readers])
    assert named == set(known)
    assert {*checklist.METHODS.split(), *checklist.RESULTS.split()} <= named
    assert known["readers"] == (
        "2 readers gave 1,200 grades to 600 images.",
        "readers/readers.json",
    )
    agreement = "Krippendorff's α 0.500 (95 % CI 0.250 to 0.750), share of equal pairs 1.000"
    assert known["agreement"].text == f"Agreement of the readers: {agreement}."
    assert known["noise"] == ("Training took the share of wrong labels to be 25%.", "run.json")
    assert known["abstention"].text == "12% of 80 images, the least sure, were left to a person."


def test_what_is_not_known_is_left_to_the_authors() -> None:
    assert {item.authors for item in checklist_items("claim", Known()).itertuples()} == {
        f"{AUTHORS}."
    }


def test_the_numbers_are_those_of_the_files(folder: Path) -> None:
    known, (table,) = known_facts(folder)
    facts = json.loads((folder / "run.json").read_text())["data"]
    held_out = pd.read_csv(folder / "held_out.csv")
    test = held_out[held_out["side"] == "test"]
    assert (
        f"{facts['samples']['test']} for test ({test['patient'].nunique()} patients)"
        in known["flow"].text
    )
    assert known["disjoint"].text == "No patient is on two sides."
    assert known["left_out"].text == "No row of the table was left out."
    networks = np.stack([test[[f"p{k}_{grade}" for grade in range(4)]] for k in (1,)]).mean(axis=0)
    median = (networks.cumsum(axis=1) < 0.5).sum(axis=1)
    wrong = np.abs(median - test["grade"].to_numpy())
    assert f"{(wrong > 0).sum()} are wrong, {(wrong > 1).sum()} by more" in known["failures"].text
    assert f"mean absolute error {wrong.mean():.3f} (" in known["performance"].text
    assert [int(cell.text) for row in table.rows for cell in row.cells[1:-1]] == [
        int(((test["grade"] == true) & (median == given)).sum())
        for true in range(4)
        for given in range(4)
    ]


def test_each_answer_names_a_file_that_is_there(folder: Path) -> None:
    known, _ = known_facts(folder, [evaluation(folder)])
    for name in CHECKLISTS:
        items = list(checklist_items(name, known).itertuples())
        assert [item.item for item in items if bool(item.known) != bool(item.files)] == []
        files = {file for item in items for file in item.files.split(", ") if file}
        missing = {
            file
            for file in files
            if not any((at / file).exists() for at in (folder, folder.parent))
        }
        assert missing == set()


def test_rows_that_were_left_out_and_shared_patients_are_said(folder: Path) -> None:
    data = json.loads((folder / "run.json").read_text())["data"]
    sides = {name: count + 1 for name, count in data["side_patients"].items()}
    edit_json(
        folder / "run.json", data={**data, "side_patients": sides, "left_out": {"missing-grade": 2}}
    )
    known, _ = known_facts(folder)
    assert known["left_out"].text == "Left out, by reason: missing grade: 2."
    assert known["disjoint"].text == "3 patients are on more than one side."
    unknown = {name: data[name] for name in data if name not in ("side_patients", "left_out")}
    edit_json(folder / "run.json", data=unknown)
    assert not {"left_out", "disjoint"} & set(known_facts(folder)[0])


@pytest.mark.slow
def test_an_evaluation_is_external_if_the_run_knows_none_of_its_samples(folder: Path) -> None:
    path = evaluation(folder)
    assert "decision" not in known_facts(folder)[0]  # files are named, not searched for
    known, _ = known_facts(folder, [path])
    assert known["external"].text.startswith(
        "Other samples, 80 images of 20 patients, judged by true grades: mean absolute error 0.500"
    )
    assert known["external"].files == path.name
    assert (
        known["sites"].text
        == "Mean absolute error of 80 images by site: Lyon 0.500 (95 % CI 0.250 to 0.750) (12 patients)."
    )
    assert "f has too few (3 patients)" in known["subgroups"].text
    known, _ = known_facts(folder, [evaluation(folder, own_samples=80)])
    assert "external" not in known
    assert "decision" in known


def test_each_evaluation_says_what_it_counts_and_what_its_numbers_are(folder: Path) -> None:
    paths = [evaluation(folder), folder.parent / "per_patient.json"]
    scores = {"mae": {"value": 0.5, "low": 0.25, "high": 0.75}}
    truth = {"basis": "verified grades", "scores": scores}
    shutil.move(
        evaluation(folder, samples=20, images=80, per=["patient"], true_scores=truth), paths[1]
    )
    evaluation(folder)
    known, _ = known_facts(folder, paths)
    interval = "0.500 (95 % CI 0.250 to 0.750)"
    rule = f"if p(grade ≥ 2) ≥ 0.25: sensitivity {interval}. The threshold is given."
    assert (
        known["decision"].text
        == f"Referral of 80 images {rule} Referral of 20 patients (80 images) {rule}"
    )
    held = "hold the grade for 50% (95 % CI 25% to 75%); grades in one: 0.5 (95 % CI 0.2 to 0.8)."
    first, second = (
        "Ranges that promise 90%, of " + of for of in ("80 images", "20 patients (80 images)")
    )
    assert known["ranges"].text == f"{first}, {held} {second}, {held}"
    # bounds are no confidence interval, and there is no estimate between them
    assert known["true_scores"].text == (
        "Bounds of the scores of 80 images against the true grades, by readings: mean absolute error 0.250 to 0.750. "
        "Scores, CI by the delta method, of 20 patients (80 images) against the true grades, by verified grades: mean "
        f"absolute error {interval}."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grades": ["0", "1"]}, "other grades"),
        ({"ranges": {"promised": "much"}}, "damaged or not from srjt"),
        ({"samples": -1}, "damaged or not from srjt"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(
    folder: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(SrjtError, match=said):
        known_facts(folder, [evaluation(folder, **changes)])


def audited(tmp_path: Path) -> Path:
    """An audit of the run's table."""
    audit = make_audit(tmp_path / "audit", images=16, grades=["0", "1", "2", "3"])
    summary = {
        "samples": 16, "caveat": "", "learnt": True, "rate": 0.25, "rate_interval": [0.125, 0.5], "identifiable": True,
        "reason": "", "assumption": "", "form": "x", "form_weight": 1.0, "matrix": [[1.0]], "expected_errors": 4.0,
        "another_likelier": 4, "verify_more": 0, "grades": [], "patients": None, "readers": None,
        "verified": {"labels": 9, "wrong": 2, "rate": 0.2, "interval": [0.1, 0.4]},
    }  # fmt: skip
    (audit / "summary.json").write_text(json.dumps(summary))
    return audit


def test_an_audit_says_how_many_labels_are_wrong(folder: Path, tmp_path: Path) -> None:
    audit = audited(tmp_path)
    known, _ = known_facts(folder, [audit])
    assert (
        known["audit_noise"].text
        == "An audit puts the share of wrong labels at 25% (95 % CI 12% to 50%)."
    )
    assert known["verified"].text == "9 labels of a random sample were verified: 2 were wrong."
    edit_json(audit / "summary.json", reason="readers are unsure.", identifiable=False)
    known, _ = known_facts(folder, [audit])
    text = known["audit_noise"].text
    assert text.endswith("but does not determine it: readers are unsure.")
    assert "12%" in text
    assert "50%" in text
    assert "25%" not in text  # no number that nothing determines


def test_the_files_for_a_journal_are_plain(folder: Path) -> None:
    page, text = srjt.write_report(folder, checklist="claim")
    assert (page, text) == (folder / "claim.html", folder / "claim.md")
    written = page.read_text()
    assert not re.search("<script|<style|style=|<svg|<b>moderate", written)
    assert not re.search("[0-9a-f]{9}", written.split("</head>")[1])  # a phone can break a hash
    digest = json.loads((folder / "summary.json").read_text())["files"]["weights.safetensors"]
    assert digest in written.replace("<wbr>", "")
    assert digest in text.read_text()
    assert written.count("<tr>") == 1 + 44 + 1 + 4
    assert text.read_text().count(AUTHORS) > 10
    with refuses("unknown_name", says="'claim'"):
        srjt.write_report(folder, checklist="clam")
    with refuses("missing_option", "also"):
        srjt.write_report(folder, also=["audit"])
    with refuses("conflict", "checklist"):
        srjt.write_report(folder, checklist="claim", figures="x")


def test_an_evaluation_knows_the_samples_of_its_run(folder: Path) -> None:
    data = srjt.data.read(
        Path(json.loads((folder / "run.json").read_text())["data"]["source"]["path"])
    )
    run = srjt.load_run(folder, device="cpu")
    with pytest.warns(UserWarning, match="trained on"):
        assert srjt.evaluate(run, data, resamples=2, progress=False).own_samples == len(data)
    others = srjt.data.synthetic.generate(images=20, patients=5, size=32, seed=9)
    assert srjt.evaluate(run, others, resamples=2, progress=False).own_samples == 0
