"""The pages of predictions and of evaluations: every sentence is true of the answers that it is about."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from reports.page_text import Rule, all_sections, check, facts_of, split_sentences
from srjt.data import Manifest
from srjt.errors import SrjtError
from srjt.readers import Readings
from srjt.reports.page import Page, render
from srjt.reports.pages.answers import predictions_page
from srjt.reports.pages.evaluation import evaluation_page
from srjt.reports.run_summary import judge_sides
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested


@pytest.fixture(scope="module")
def run(run_with_images: Path) -> Trained:
    return srjt.load_run(run_with_images, device="cpu")


@pytest.fixture(scope="module")
def data(run_with_images: Path) -> Manifest:
    return srjt.data.read(run_with_images.parent / "set" / "labels.csv").manifest


def run_warning(run: Trained) -> str:
    return judge_sides(run)["test"].naive_warning


def always(*_: object) -> bool:
    return True


def promised(text: str) -> dict[str, Rule]:
    """Rules for the sentences of a promise, which the rule of the ranges makes and its own tests check."""
    return {re.escape(sentence): always for sentence in split_sentences(text)}


MODEL: dict[str, Rule] = {
    r"A (predicted )?grade is the median, for the least absolute error\.": always,
    r"A (predicted )?grade is the most likely grade\.": lambda f, _: f["decoding"] == "argmax",
    r"The probabilities are not recalibrated\.": lambda f, _: not f["recalibration"],
    r"The probabilities are recalibrated: .*\.": lambda f, _: bool(f["recalibration"]),
    r"They are averaged over (\d+) views of each image\.": lambda f, m: int(m[1]) == f["views"] > 1,
}

PREDICTIONS: dict[str, Rule] = {
    **MODEL,
    r"120 images\.": lambda f, _: not f["per"],
    r"120 images, one answer per patient: 30\.": lambda f, _: f["per"] == ("patient",),
    r"No label of theirs is used\.": always,
    r"(\d) files? or rows? (is|are) left out\.": lambda f, m: int(m[1]) == f["skipped"],
    r"Of the labels that the run was trained on, .*%\.": lambda f, _: not f["per"],
    r"Predicted grades:": always,
    r"How wide the ranges are": lambda f, _: f["coverage"],
    r"This run does not beat a naive prediction on the test side: .*": lambda f, m: m[0] == f["naive"],
    r"The answers whose .* entropy: the predicted grade(, its range)? and its probability\.": lambda f, m: (
        bool(m[1]) == f["coverage"]
    ),
    r"The bar is the entropy; it is full .*": always,
    r"The picture is the image with the highest grade; .*": lambda f, _: bool(f["per"]),
    r"Answers in the order of the data": always,
    r"Probability: of the predicted grade\.": always,
    r"Lowest and highest: the range of grades\.": lambda f, _: f["coverage"],
    r"Nothing on this page says how good these answers are\.": always,
    r"The table is of the answers of srjt predict, .* for the 24 samples of the run's own test side, compared "
    r"with their given labels, which may be wrong\.": always,
    r"The 95 % intervals resample patients\.": always,
    r"Scores": always,
    r"Naive: always the most frequent training label; .*": always,
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per": "patient", "coverage": 0.9},
        {"coverage": 0.9, "decoding": "argmax"},
        {"refer_from": "severe", "abstain": 0.2, "views": 2},
    ],
)
def test_the_page_of_predictions(run: Trained, data: Manifest, options: dict[str, Any]) -> None:
    table = srjt.predict(run, data, **options)
    page = predictions_page(
        run, table, data=data, command="srjt predict <x>", skipped=[("a.png", "<i>bad</i>")]
    )
    facts = {"decoding": "", "views": 1, **options, "per": table.attrs["per"], "skipped": 1,
             "coverage": "coverage" in options, "naive": run_warning(run),
             "recalibration": table.attrs["recalibration"]}  # fmt: skip
    check(page, {**PREDICTIONS, **promised(table.attrs["ranges"])}, facts)
    sections = {section.slug: section for section in page.sections}
    counts = dict(sections["grades"].counts)
    assert list(counts) == ["0 (none)", "1 (mi|ld)", "2 (<b>moderate)", "3 (severe)"]
    assert list(counts.values()) == [(table["grade"] == grade).sum() for grade in run.grades]
    known = facts_of(page)
    for column, name in (("refer", "to refer"), ("unsure", "unsure, for a person to decide")):
        assert (name in known) == (column in table)
        if column in table:
            assert known[name] == f"{(table[column] == 'yes').sum()} of {len(table)}"
    if "coverage" in options:
        widths = [int(row.cells[1].value or 0) for row in sections["ranges"].tables[0].rows]
        place = {grade: c for c, grade in enumerate(run.grades)}
        found = table["grade_high"].map(place) - table["grade_low"].map(place) + 1
        assert widths == [int((found == width).sum()) for width in (1, 2, 3, 4)]
    least = sections["least-certain"]
    image = "highest_image" if "per" in options else "image"
    top = table.sort_values("entropy", ascending=False)[:12].set_index(image)
    assert {tile.text for tile in least.tiles} == set(top.index)
    assert all(tile.picture.startswith("data:image/jpeg") for tile in least.tiles)
    assert all(("range: " in tile.detail) == ("coverage" in options) for tile in least.tiles)
    if "per" in options:
        assert {tile.text: tile.detail.split(";")[0] for tile in least.tiles} == top["patient"].to_dict()
    how = dict(sections["how"].facts)
    assert how == table.attrs["how"]
    assert ("refer" in how, "unsure" in how, "range" in how, "one answer per" in how) == (
        "refer_from" in options, "abstain" in options, "coverage" in options, "per" in options
    )  # fmt: skip
    assert len(sections["every-answer"].tables[0].rows) == len(table)
    html = render(page)
    assert "<b>moderate" not in html
    assert "<i>bad" not in html
    assert "srjt predict &lt;x&gt;" in html


EVALUATION: dict[str, Rule] = {
    **MODEL,
    r"(\d+) images(, 2 views of each)?, judged by their (.*)\.": lambda f, m: (
        (int(m[1]), m[3]) == (f["images"], f["judged_by"]) and bool(m[2]) == (f["views"] == 2) and not f["per"]
    ),
    r"(\d+) images, pooled per patient to (\d+) answers by the highest grade, judged by the highest of their (.*)\.":
        lambda f, m: (int(m[1]), int(m[2]), m[3]) == (f["images"], f["answers"], f["judged_by"]) and bool(f["per"]),
    r"The highest of several labels is too high where labels are wrong\.": lambda f, _: (
        bool(f["per"]) and f["judged_by"] != "true grades"
    ),
    r"No patient ids: the intervals resample images and are probably too narrow\.": lambda f, _: not f["patients"],
    r"The run was trained on (\d+) of these 40 samples: .*": lambda f, m: int(m[1]) == f["learnt"],
    r"(\d+) of the samples have the ids of samples that were used to fit (.*), and (\d+) of the patients their "
    r"patients' names: if they are the same, the scores look too good\.": lambda f, m: (
        (int(m[1]), int(m[3])) == f["calibrated"] and (m[2] == "the ranges") == f["coverage"]
    ),
    r"Evaluate samples of other patients, such as the test side\.": lambda f, _: f["calibrated"] != (0, 0),
    r"This run does not beat a naive prediction on these samples: .*": lambda f, _: not f["per"],
    r"The answers are compared with labels that may be wrong themselves\.": lambda f, _: (
        f["judged_by"] == "given grades"
    ),
    r"The 95 % intervals resample (patients|samples); they do not contain the variation between trainings\.":
        lambda f, m: (m[1] == "patients") == f["patients"],
    r"Scores|By grade": always,
    r"Naive: always the most frequent training label; .*": lambda f, _: not f["per"],
    r"Recall: share of .*|Precision: share of .*|MAE: of the grade's samples\.": always,
    r"Confusion matrix; every sample counts once\.|Colour and percentage: .*": always,
    r"Up to 6 answers of each kind, .*": lambda f, _: not f["per"],
    r"“A → B”: (.*) A, predicted B\.": lambda f, m: (
        f"{m[1]}s" == f["judged_by"]
    ),
    r"Reliability on these samples, compared with their (.*)\.": lambda f, m: m[1] == f["judged_by"],
    r"Larger points stand for more samples\.": always,
    r"(\d+) of (\d+) (?:is|are) referred; (\d+) should be\.": lambda f, m: (
        f["refer"] and (int(m[2]), int(m[3])) == (f["answers"], f["positives"])
    ),
    r"The threshold is the default\.": lambda f, _: f["refer"],
    r"(Every|No) sample has that grade or more: there are no curves to draw\.": lambda f, m: (
        f["positives"] == (f["answers"] if m[1] == "Every" else 0)
    ),
    r"Refer if p\(grade ≥ 1 \(mi\|ld\)\) ≥ 0\.5": lambda f, _: f["refer"],
    r"(ROC curve|Precision and recall|Decision curve) of the referral from grade 1 \(mi\|ld\) on.*":
        lambda f, _: f["refer"],
    r"The dot is the operating point, .*": lambda f, _: f["refer"],
    r"\d+% of all wrong answers are among those left to a person\.": lambda f, _: f["abstain"],
    r"The confidence is found on the validation side\.": lambda f, _: f["abstain"],
    r"Without the [\d.]+% least confident answers": lambda f, _: f["abstain"],
    r"Share of wrong (referrals|grades) if the least confident answers are left to a person\.": lambda f, m: (
        (m[1] == "referrals") == f["refer"]
    ),
    r"The dot leaves [\d.]+% to a person\.": lambda f, _: f["abstain"],
    r"How often the range contains the grade, and how wide it is": lambda f, _: f["coverage"],
    r"All patients count equally, however many images they have\.": lambda f, _: f["coverage"] and f["patients"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "truth", "patients"),
    [
        ({}, True, True),
        ({"views": 2, "recalibrate": False}, False, False),
        ({"per": "patient", "refer_from": "1", "coverage": 0.9}, False, True),
        ({"coverage": 0.9, "abstain": 0.2}, False, True),
        ({"refer_from": "mi|ld", "abstain": 0.2, "decoding": "argmax"}, True, True),
    ],
)
def test_the_page_of_an_evaluation(
    run: Trained, data: Manifest, options: dict[str, Any], truth: bool, patients: bool
) -> None:
    table = data.table.copy()
    if truth:
        table["true_grade"] = table["grade"]
    if not patients:
        table = table.drop(columns="patient")
    judged = replace(data, table=table).select(np.arange(40))
    found = srjt.evaluate(run, judged, resamples=20, **options)
    page = evaluation_page(run, found, data=judged, sources=[judged.source], command="srjt evaluate x")
    assert len(found.answers) == found.samples
    learnt = len(set(run.training_ids) & set(judged.ids))
    facts = {"decoding": "", "views": 1, "per": (), **options, "images": 40, "answers": found.samples,
             "judged_by": "true grades" if truth else "given grades", "patients": patients, "learnt": learnt,
             "refer": "refer_from" in options, "abstain": "abstain" in options, "coverage": "coverage" in options,
             "calibrated": _shared(run.held_out["validation"], judged),
             "positives": int((found.answers["label"] != "0").sum()), "recalibration": found.recalibration,
             }  # fmt: skip
    promise = "" if found.ranges is None else found.ranges.promise
    used = check(page, {**EVALUATION, **promised(promise)}, facts)
    assert any("trained on" in rule for rule in used) == bool(learnt)
    slugs = {section.slug for section in page.sections}
    assert ("decision" in slugs, "ranges" in slugs) == ("refer_from" in options, "coverage" in options)
    assert ("examples" in slugs) == ("per" not in options)
    scores = {row.cells[0].text: row.cells[1].value for row in _tables(page)["Scores"].rows}
    assert scores["accuracy ↑"] == found.intervals["accuracy"].value
    answers = found.answers
    assert scores["accuracy ↑"] == pytest.approx((answers["label"] == answers["grade"]).mean())
    assert "<b>moderate" not in render(page)


def _shared(side: HeldOut, data: Manifest) -> tuple[int, int]:
    """Samples and patients that are on both."""
    pairs = ((side.ids, data.ids), (side.patients or [], data.patients or []))
    return len(set(pairs[0][0]) & set(pairs[0][1])), len(set(pairs[1][0]) & set(pairs[1][1]))


def _tables(page: Page) -> dict[str, Any]:
    return {table.title: table for section in all_sections(page) for table in section.tables}


def test_rows_of_features_have_a_table_and_no_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grades = np.arange(90) % 3
    rows = (rng.normal(size=(90, 4)) + grades[:, None]).astype(np.float32)
    data = srjt.data.from_arrays(rows, grades).manifest
    run = srjt.train(data, method="standard", epochs=2)  # without a folder
    page = predictions_page(run, srjt.predict(run, data), data=data)
    assert page.lead == "90 rows of features. No label of theirs is used."
    assert {"least-certain", "model"} <= {section.slug for section in page.sections}
    assert "expected" not in {section.slug for section in page.sections}  # nothing was held out
    judged = evaluation_page(run, srjt.evaluate(run, data, resamples=10), data=data)
    assert judged.lead.startswith("90 rows of features, judged by their given grades")
    assert not [tile for section in all_sections(judged) for tile in section.tiles]
    assert "<img" not in render(page) + render(judged)

    readers = Readings(
        items=data.ids, readers=["<i>A", "B", "C"], grades=data.grades, item=np.tile(np.arange(90), 3),
        reader=np.repeat(np.arange(3), 90), grade=np.concatenate([grades, grades, (grades + 1) % 3]),
    )  # fmt: skip
    found = srjt.evaluate(run, data, readings=readers, resamples=10)
    compared = evaluation_page(run, found, data=data)
    assert "judged by their consensus grades" in compared.lead
    table = _tables(compared)["The network as one more reader (quadratic κ)"]
    assert [row.cells[0].text for row in table.rows] == ["<i>A", "B", "C"]
    assert found.readers is not None
    assert [row.cells[2].value for row in table.rows] == found.readers.by_reader["network_kappa"].tolist()
    assert "<i>A" not in render(compared)
    alone = replace(readers, reader=np.zeros(90, np.int64), item=np.arange(90), grade=grades, readers=["A"])
    found = srjt.evaluate(run, data, readings=alone, resamples=10)
    assert found.not_compared in [note.text for note in evaluation_page(run, found).notes]


def test_report_takes_predictions_and_evaluations(
    run: Trained, run_with_images: Path, tmp_path: Path
) -> None:
    new = run_with_images.parent / "set"
    table = srjt.predict(run, new)
    (path,) = srjt.report(table, run=run_with_images, out=tmp_path / "deep" / "new.html")
    assert path.read_text().count("data:image/jpeg") == 12  # found by their paths
    found = srjt.evaluate(run, new / "labels.csv", resamples=10)
    _, *figures = srjt.report(found, run=run, out=tmp_path / "found.html", figures=tmp_path / "figures")
    assert {figure.stem for figure in figures} == {"answers-these", "reliability"}
    with pytest.raises(SrjtError, match="needs run=… and out=…"):
        srjt.report(found, out=tmp_path / "x.html")
    with pytest.raises(SrjtError, match="not predictions of"):
        srjt.report(pd.DataFrame({"a": [1]}), run=run, out=tmp_path / "x.html")
    with pytest.raises(SrjtError, match="leave them out for a folder"):
        srjt.report(run_with_images, run=run)
