"""Whether a run beats one grade for all samples: every place says the same, of the answers of srjt
predict."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import srjt
from fixtures.held_out_runs import drawn_side, made_run
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.evaluate import best_side, evaluate_sides
from srjt.inference.options import Answering
from srjt.inference.ranges import RangeEvaluation
from srjt.ordinal import Purpose
from srjt.ordinal.baseline import Gain
from srjt.ordinal.intervals import Interval
from srjt.reports.aspects.ranges import promise_in_words
from srjt.reports.model_card import model_card
from srjt.reports.pages.answers import predictions_page
from srjt.reports.pages.evaluation import evaluation_facts, evaluation_notes, judgement
from srjt.reports.pages.run import run_page, sides_apart, trained_page
from srjt.training.held_out import HeldOut

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_every_place_judges_the_answers_of_predict(
    run_with_images: Path, tmp_path: Path, right: bool
) -> None:
    """The predictions that the run keeps are made right, or all of the severest grade; metrics.csv
    stays as it is."""
    folder = shutil.copytree(run_with_images, tmp_path / "run")
    kept = pd.read_csv(folder / "held_out.csv")
    answer = kept["grade"].to_numpy() if right else np.full(len(kept), 3)
    for c in range(4):
        kept[f"p1_{c}"] = (answer == c).astype(float)
    kept.to_csv(folder / "held_out.csv", index=False)
    summary = json.loads((folder / "summary.json").read_text())
    # else: not what the run has written
    (folder / "summary.json").write_text(json.dumps({**summary, "files": {}}))
    (folder / "checksums.json").unlink()
    run = srjt.load_run(folder, device="cpu")
    sides = evaluate_sides(run)
    table = srjt.predict(run, [run_with_images.parent / "set" / "labels.csv"])
    judged = "unclear" if right else "not better"  # six patients cannot show that it is better
    assert all(evaluation_facts(found).verdict == judged for found in sides.values())
    best = best_side(run, resamples=0)
    assert best is not None
    assert evaluation_facts(best).verdict == judged
    said = ". ".join(judgement(sides["test"]))
    assert run_page(folder).verdict == run.summary().verdict == said
    assert ("No better than one grade" in said) != right
    page = predictions_page(table)
    assert page.title.startswith("No better than one grade") != right
    missed = evaluation_facts(sides["test"]).missed
    assert missed == ("" if right else "Grades 0 (none), 1 (mi|ld) and 2 (<b>moderate) are")
    assert said in model_card(folder)
    if not right:
        error = (3 - kept.loc[kept["side"] == "test", "grade"]).mean()
        assert sides["test"].score == pytest.approx(error)
    for purpose in get_args(Purpose):  # grades may be for another metric than those of the training
        other = evaluate_sides(run, Answering(target_metric=purpose), resamples=50)["test"]
        assert evaluation_facts(other).verdict == judged


def drawn_answers(side: HeldOut, answer: np.ndarray) -> HeldOut:
    """The side with networks that are sure of these grades."""
    p = np.eye(4, dtype=np.float32)[answer] * 0.96 + 0.01
    return replace(side, probabilities=p[None])


@pytest.mark.slow
def test_grades_that_are_never_predicted_are_said_on_every_page() -> None:
    side = drawn_side(300, patients=300, wrong=0.0, truth=False)
    low = drawn_answers(side, np.minimum(side.labels, 1))
    run = made_run(held_out={"validation": low, "test": low})
    found = evaluate_sides(run, resamples=20)["test"]
    facts = evaluation_facts(found)
    assert facts.missed_samples == (side.labels > 1).sum()
    warnings = evaluation_notes(found)[0]
    assert "Grades 2 and 3 are never predicted" in warnings[0]
    assert "--coverage-by grade" in warnings[0]
    inside, never = (
        Interval(0.9, 0.8, 1.0),
        Interval(0.0, 0.0, 0.4),
    )  # seven samples, whose ranges lack their grade
    of_grades = [(9, inside), (9, inside), (0, never), (7, never)]
    assert found.grades_with_ranges == (0, 1, 2, 3)
    ranges = RangeEvaluation(
        promised=0.9, coverage=inside, width=inside, grades=of_grades, promise=""
    )
    for by in (None, "grade"):
        judged = replace(found, aspects={"ranges": ranges}, coverage_by=by)
        [said] = [text for text in evaluation_notes(judged)[0] if "none of the ranges" in text]
        assert said.startswith("Grade 3 is in none of the ranges")
        assert ("--coverage-by" in said) == (by is None)
        [said] = [
            text
            for text in evaluation_notes(replace(judged, grades_with_ranges=(0, 1)))[0]
            if "none of the ranges" in text
        ]
        assert "--coverage-by" not in said
    assert not evaluation_facts(replace(found, confusion=np.eye(4, dtype=int).tolist())).missed
    page = trained_page(run, evaluate_sides(run, resamples=20), brief=True)
    assert any(text.startswith("Grades 2 and 3 are never predicted") for text in page.warnings)


@pytest.mark.slow
def test_only_what_can_help_is_advised() -> None:
    """A grade without a training image needs images; another rule must give a missed grade."""
    side = drawn_side(300, patients=300, wrong=0.0, truth=False)
    low = drawn_answers(side, np.minimum(side.labels, 1))
    found = evaluate_sides(made_run(held_out={"validation": low, "test": low}), resamples=20)[
        "test"
    ]

    def helps(**facts: Any) -> str:
        return evaluation_facts(replace(found, **facts)).helps

    assert "--target-metric macro_f1" in helps(given_for_macro_f1=(3,))
    assert "--target-metric" not in helps(given_for_macro_f1=())
    assert helps(untrained_grades=(2, 3)) == (
        "training images of grades 2 and 3, of which there were none"
    )
    one = helps(untrained_grades=(0, 3), given_for_macro_f1=(2,))
    assert one.startswith("training images of grade 3, of which there were none; more training")
    assert "--target-metric macro_f1" in one


def test_how_far_a_gain_may_be_chance_is_said() -> None:
    side = drawn_side(60, patients=30)
    found = evaluate_sides(made_run(held_out={"test": side}), resamples=20)["test"]
    unclear = Gain(metric="accuracy", score=0.60, naive=0.35, low=-0.021)
    assert unclear.verdict == "unclear"
    title, lead = judgement(replace(found, gain=unclear))
    assert title.startswith("Not clearly better than one grade for all")
    assert lead.endswith("The gain of 0.250 may be chance: its 95 % interval begins at -0.021.")
    few = judgement(replace(found, gain=unclear._replace(low=float("nan"))))[1]
    assert few.endswith("There are too few patients to tell this from chance.")
    title, lead = judgement(replace(found, gain=unclear._replace(low=0.1)))
    assert title.startswith("Better")
    assert "chance" not in lead


@pytest.mark.parametrize(
    ("rare", "purpose", "given"),
    [
        ((0.55, 0.43, 0.01, 0.01), "mae", (1,)),  # seen, and never the likeliest or the median
        ((0.55, 0.43, 0.01, 0.01), "macro_f1", ()),  # grade 1 is predicted
        ((0.94, 0.02, 0.02, 0.02), "mae", ()),  # the networks do not tell it from grade 0
    ],
)
def test_which_missed_grades_the_rule_for_macro_f1_gives(
    rare: tuple[float, ...], purpose: Purpose, given: tuple[int, ...]
) -> None:
    side = drawn_side(200, patients=200)
    labels = np.where(np.arange(200) % 10 == 0, 1, 0)
    p = np.where((labels == 1)[:, None], rare, (0.94, 0.02, 0.02, 0.02)).astype(np.float32)
    side = replace(side, labels=labels, probabilities=p[None])
    run = made_run(held_out={"validation": side, "test": side})
    options = Answering(target_metric=purpose)
    found = evaluate_sides(run, options, resamples=20)["test"]
    assert found.given_for_macro_f1 == given
    # a decoding that was chosen counts more than the metric, so the advice would change nothing
    fixed = evaluate_sides(run, Answering(decoding="median"), resamples=20)["test"]
    assert fixed.given_for_macro_f1 == ()
    for pool, expected in (("highest", ()), ("mean", given)):
        pooled = replace(options, per=("patient",), pool=pool)
        assert evaluate_sides(run, pooled, resamples=20)["test"].given_for_macro_f1 == expected
    assert ("--target-metric macro_f1" in evaluation_facts(found).helps) == bool(given)


@pytest.mark.slow
def test_ranges_for_each_grade_are_advised_only_where_the_patients_suffice() -> None:
    """Of 15 patients no grade has the nine that a coverage of 0.9 takes."""
    side = drawn_side(60, patients=15, wrong=0.0, truth=False)
    low = drawn_answers(side, np.minimum(side.labels, 1))
    run = made_run(held_out={"validation": low, "test": low})
    found = evaluate_sides(run, resamples=20)["test"]
    assert found.grades_with_ranges == ()
    [said] = [text for text in evaluation_notes(found)[0] if "never predicted" in text]
    assert "What helps" in said
    assert "--coverage-by" not in said
    page = trained_page(run, evaluate_sides(run, resamples=20), brief=True)
    assert not any("--coverage-by" in text for text in page.warnings)
    options = Answering(coverage=0.9, coverage_by="grade")
    promise = calibrate_run(run, options).rules["ranges"].rule.promise
    assert (promise.trivial, promise.verified_help) == (True, False)
    assert "would make them narrower" not in promise_in_words(promise)


def test_a_test_side_far_from_the_validation_side_is_said() -> None:
    side = drawn_side(300, wrong=0.0, truth=True)
    right, off = drawn_answers(side, side.labels), drawn_answers(side, (side.labels + 2) % 4)
    for test, validation, apart in (
        (right, off, "better"),
        (off, right, "worse"),
        (right, right, ""),
    ):
        run = made_run(held_out={"validation": validation, "test": test})
        sides = evaluate_sides(run, Answering(recalibrate=False, decoding="argmax"), resamples=50)
        facts = sides_apart(sides, "accuracy")
        assert facts.apart == apart
        assert "true grades" in facts.why_apart
        given = {name: replace(found, judged_by="given grades") for name, found in sides.items()}
        assert "true grades" not in sides_apart(given, "accuracy").why_apart
    assert sides_apart({"test": sides["test"]}, "accuracy").apart == ""
