"""The pages of predictions and of evaluations: every sentence is true of the answers that it is
about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from fixtures.held_out_runs import drawn_side, made_run
from refusals import refuses
from reports.page_text import all_sections
from srjt.data import Manifest
from srjt.data.grades import Grades
from srjt.inference.evaluate import evaluate_sides
from srjt.inference.options import Answering
from srjt.readers import Readings
from srjt.reports.aspects import how_in_words
from srjt.reports.aspects.grading import grade_in_words
from srjt.reports.page import Page, page_text, render
from srjt.reports.pages import answers, evaluation
from srjt.reports.pages.answers import prediction_facts, predictions_page
from srjt.reports.pages.evaluation import confusion_table, evaluation_facts, evaluation_page
from srjt.training.trained import Trained

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested


@pytest.fixture(scope="module")
def run(run_with_images: Path) -> Trained:
    return srjt.load_run(run_with_images, device="cpu")


@pytest.fixture(scope="module")
def data(run_with_images: Path) -> Manifest:
    return srjt.data.read(run_with_images.parent / "set" / "labels.csv")


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"per": "patient", "coverage": 0.9, "pool": "mean"}, marks=pytest.mark.slow),
        {"coverage": 0.9, "decoding": "argmax"},
        {"refer_from": "severe", "abstain": 0.2, "views": 2},
    ],
)
def test_the_page_of_predictions(run: Trained, data: Manifest, options: dict[str, Any]) -> None:
    table = srjt.predict(run, data, **options)
    skipped = [("a.png", "<i>bad</i>")]
    page = predictions_page(table, data=data, command="srjt predict <x>", skipped=skipped)
    per = "per" in options
    how = {name: options[name] for name in ("decoding", "pool") if name in options}
    expected = evaluate_sides(run, Answering(per=("patient",) if per else (), **how))["test"]
    facts = prediction_facts(table, expected)
    value, low, high = expected.intervals["mae"]
    assert (
        f"to be {value:.2f} grades off on average ({low:.2f} – {high:.2f}), as on the run's "
        in facts.error
    )
    assert f", by {expected.judged_by}" in facts.error
    assert (", of one view of each" in facts.error) == ("views" in options)
    of = "30 patients (120 images)" if per else "120 images"
    most = " or ".join(run.grades.show(str(grade)) for grade in sorted(table["grade"].mode()))
    count = "" if table["grade"].nunique() == 1 else "most often "
    referred = (table["refer"] == "yes").sum() if "refer" in table else None
    assert facts.counted == (
        f"{of}: {count}grade {most}" if referred is None else f"Refer {referred} of {of}"
    )
    assert (facts.answers, facts.per) == (len(table), ("patient",) if per else ())
    assert bool(facts.ranges) == ("coverage" in options)
    assert (page.title, page.lead) == answers.verdict_of(facts)
    assert page.remarks == list(answers.remarks_of(facts))
    rule = "the most likely grade" if "decoding" in options else grade_in_words(expected.grade_rule)
    assert f"A predicted grade is {rule}." in page.remarks
    assert page.details == [("Which, and why", "a.png: <i>bad</i>")]
    assert "1 file or row left out." in page.warnings
    numbers = {number.label: number for number in page.key_numbers}
    for grade, name in zip(run.grades, ("none", "mi|ld", "<b>moderate", "severe"), strict=True):
        assert numbers[f"grade {grade} ({name})"].value == str((table["grade"] == grade).sum())
        assert ("training labels" in numbers[f"grade {grade} ({name})"].compared) != per
    for column, label in (("refer", "refer"), ("unsure", "unsure: a person decides")):
        assert (label in numbers) == (column in table)
        if column in table:
            assert numbers[label].value == str((table[column] == "yes").sum())

    sections = {section.slug: section for section in page.sections}
    assert next(iter(sections)) == "every-answer"  # answers first
    assert len(sections["every-answer"].tables[0].rows) == len(table)
    least = sections["least-certain"]
    image = "highest_image" if per else "image"
    top = table.sort_values("entropy", ascending=False)[:12].set_index(image)
    assert {tile.text for tile in least.tiles} == set(top.index)
    assert all(tile.picture.startswith("data:image/jpeg") for tile in least.tiles)
    assert all(("range " in tile.detail) == ("coverage" in options) for tile in least.tiles)
    for tile in least.tiles if per else []:  # whose range it is
        assert tile.detail.startswith(f"patient {top['patient'][tile.text]}: range ")
    assert dict(sections["how"].facts) == how_in_words(table)
    assert set(how_in_words(table)) == set(table.attrs["how"]) - ({"views"} - {*options})
    html = render(page)
    assert "<b>moderate" not in html
    assert "<i>bad" not in html
    assert "srjt predict &lt;x&gt;" in html


@pytest.mark.parametrize(
    ("grades", "title"),
    [
        ("2", "1 image: grade 2 (<b>moderate)"),
        ("13", "2 images: most often grade 1 (mi|ld) or 3 (severe)"),
        ("133", "3 images: most often grade 3 (severe)"),
    ],
)
def test_equally_frequent_grades_are_all_meant(
    run: Trained, data: Manifest, grades: str, title: str
) -> None:
    table = srjt.predict(run, data.select(np.arange(len(grades))))
    table["grade"] = list(grades)
    assert prediction_facts(table).counted == title


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
    page = evaluation_page(
        found, run=run, data=judged, sources=[judged.source], command="srjt evaluate x"
    )
    rows, per = found.answers, "per" in options
    assert len(rows) == found.samples
    facts = evaluation_facts(found)
    people = len(set(judged.patients or ()))
    whose = f"40 images of {people} patients" if patients else "40 images"
    assert facts.samples == (f"{found.samples} patients (40 images)" if per else whose)
    assert (found.judged_by, found.by_patient) == (
        "true grades" if truth else "given grades",
        patients,
    )
    assert (found.views, facts.per) == (options.get("views", 1), "patient" if per else "")
    wrong = (rows["label"].astype(int) - rows["grade"].astype(int)).abs()
    assert facts.score == pytest.approx(wrong.mean())
    chosen_by = rows["label"].tolist() if per else list(run.training_labels.values())
    median = sorted(map(int, chosen_by))[(len(chosen_by) - 1) // 2]
    assert facts.naive == pytest.approx((rows["label"].astype(int) - median).abs().mean())
    assert (facts.verdict == "not better") == (facts.score >= facts.naive)
    assert (facts.verdict == "better") == (facts.score < facts.naive and found.gain.low > 0)
    assert (page.title, page.lead) == evaluation.verdict_of(facts)
    assert page.title.endswith("by mean absolute error")
    assert page.remarks == list(evaluation.notes_of(facts))
    learnt = len(set(run.training_ids) & set(judged.ids))
    warnings = page.warnings
    assert any(
        text.startswith(f"The run was trained on {learnt} of these 40") for text in warnings
    ) == bool(learnt)
    assert (evaluation.NO_PATIENTS in warnings) != patients
    shared = len(set(run.held_out["validation"].ids) & set(judged.ids))
    used = "coverage" in options or found.recalibration
    assert any(text.startswith(f"{shared} sample") for text in warnings) == bool(used and shared)

    sections = {section.slug: section for section in page.sections}
    assert ("decision" in sections, "ranges" in sections) == (
        "refer_from" in options,
        "coverage" in options,
    )
    assert ("examples" in sections) == (not per)
    scores = {row.cells[0].text: row.cells[1].value for row in _tables(page)["All metrics"].rows}
    assert scores["accuracy ↑"] == pytest.approx((rows["label"] == rows["grade"]).mean())
    numbers = {number.label: number for number in page.key_numbers}
    assert numbers["accuracy ↑"].value == f"{scores['accuracy ↑']:.3f}"
    assert ("sensitivity" in numbers, "coverage of the ranges" in numbers) == (
        "refer_from" in options, "coverage" in options
    )  # fmt: skip
    equally = "all patients count equally" in _tables(page)["By grade"].caption
    assert equally == ("coverage" in options and patients)
    if found.decision is not None:
        should = int((rows["label"] != "0").sum())
        referred = f"{found.decision.referred} of {len(rows)} are referred, and {should} "
        assert sections["decision"].text[0].startswith(referred)
    rest = "right answers of the rest"
    assert (rest in numbers) == ("abstain" in options)
    if found.abstention is not None and found.abstention.wanted:
        left = f"{found.abstention.share:.1%} of the answers"
        assert sections["abstention"].text[0].startswith(left)
    assert "<b>moderate" not in render(page)
    lines = page_text(evaluation_page(found)).splitlines()
    assert max(map(len, lines)) <= 80
    assert options or len(lines) <= 24


def _tables(page: Page) -> dict[str, Any]:
    return {table.title: table for section in all_sections(page) for table in section.tables}


@pytest.mark.slow
@pytest.mark.parametrize("truth", [True, False])
def test_a_held_out_side_is_judged_by_its_true_grades_where_they_are_known(truth: bool) -> None:
    side = drawn_side(300, wrong=0.3, truth=truth)
    sides = evaluate_sides(made_run(held_out={"validation": side, "test": side}), resamples=2)
    for name, found in sides.items():
        labels = side.true_labels if truth and name == "test" else side.labels
        assert found.judged_by == ("true grades" if truth and name == "test" else "given grades")
        assert found.answers["label"].astype(int).tolist() == labels.tolist()


def test_long_grade_names_are_not_column_headings_of_a_terminal() -> None:
    named = Grades("0123", {grade: f"very long name {grade}" for grade in "0123"})
    found = evaluate_sides(made_run(held_out={"test": drawn_side(40)}, grades=named), resamples=0)[
        "test"
    ]
    table = confusion_table(found)
    assert [column.label for column in table.columns[1:-1]] == list("0123")
    assert [row.cells[0].text for row in table.rows] == named.shown


@pytest.mark.slow
def test_rows_of_features_have_a_table_and_no_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grades = np.arange(90) % 3
    rows = (rng.normal(size=(90, 4)) + grades[:, None]).astype(np.float32)
    data = srjt.data.from_arrays(rows, grades)
    run = srjt.train(data, method="standard", epochs=2)  # without a folder
    page = predictions_page(srjt.predict(run, data), data=data)
    assert page.title.startswith("90 rows of features: ")
    assert "least-certain" not in {section.slug for section in page.sections}
    assert "the run held no samples out" in page.lead
    judged = evaluation_page(srjt.evaluate(run, data, resamples=10), run=run, data=data)
    assert " on 90 rows of features" in judged.lead
    assert not [tile for section in all_sections(judged) for tile in section.tiles]
    assert "<img" not in render(page) + render(judged)

    readers = Readings(
        items=data.ids, readers=["<i>A", "B", "C"], grades=data.grades, item=np.tile(np.arange(90), 3),
        reader=np.repeat(np.arange(3), 90), grade=np.concatenate([grades, grades, (grades + 1) % 3]),
    )  # fmt: skip
    found = srjt.evaluate(run, data, readings=readers, resamples=10)
    compared = evaluation_page(found, run=run, data=data)
    assert found.judged_by == "consensus grades"
    table = _tables(compared)["The network as one more reader"]
    assert [row.cells[0].text for row in table.rows] == ["<i>A", "B", "C"]
    assert [row.cells[2].value for row in table.rows] == found.readers.by_reader[
        "reader_to_consensus"
    ].tolist()
    assert "<i>A" not in render(compared)
    alone = replace(
        readers, reader=np.zeros(90, np.int64), item=np.arange(90), grade=grades, readers=["A"]
    )
    found = srjt.evaluate(run, data, readings=alone, resamples=10)
    assert found.not_compared in srjt.report(found).warnings


@pytest.mark.slow
def test_predictions_and_evaluations_are_saved_as_pages(
    run: Trained, run_with_images: Path, tmp_path: Path
) -> None:
    new = run_with_images.parent / "set"
    (path,) = srjt.report(srjt.predict(run, new)).save(tmp_path / "deep" / "new.html")
    assert (
        path.read_text().count("data:image/jpeg") == 100 + 12
    )  # in the table and in the gallery, found by their paths
    found = srjt.evaluate(run, new / "labels.csv", resamples=10)
    _, *figures = srjt.report(found).save(tmp_path / "found.html", figures=tmp_path / "figures")
    assert {figure.stem for figure in figures} == {"answers-these", "reliability"}
    with refuses("conflict", option="out"):
        srjt.report(found, out=tmp_path / "found.html")  # type: ignore[call-overload]
