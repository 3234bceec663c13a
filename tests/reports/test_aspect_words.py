"""Facts about answers in words: where thresholds come from, what ranges promise, and what was
fitted to which labels.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from srjt.inference.aspects.referral import ThresholdOrigin
from srjt.inference.labels import ValidationLabels
from srjt.inference.range_evidence import Assumption
from srjt.inference.ranges import RangePromise
from srjt.json_values import json_values
from srjt.ordinal import soft_label_matrix
from srjt.ordinal.calibration import Recalibration
from srjt.ordinal.decoding import GradeRule, grade_rule_for
from srjt.reports.aspects import facts_of_file, how_in_words
from srjt.reports.aspects.basics import labels_in_words
from srjt.reports.aspects.grading import grade_in_words, recalibration_in_words
from srjt.reports.aspects.ranges import predicted_promise, promise_in_words
from srjt.reports.aspects.referral import threshold_in_words


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"basis": "true grades"}, "Its true grades are known and were used."),
        (
            {"basis": "inferred", "noise_rate": 0.2},
            "The highest grades of its patients are inferred from their labels and the estimated"
            " noise (20% wrong).",
        ),
        ({}, "Its labels are as given: wrong labels shift what is fitted to them."),
        ({"verified": 30}, "30 of its 200 labels are verified; the others are as given."),
        ({"verified": 200}, "200 of its 200 labels are verified."),
        (
            {"noise_interval": (0.0, 0.37)},
            "Its labels are as given, and between 0% and 37% of such labels are wrong: wrong labels"
            " shift what is fitted to them.",
        ),
        (
            {"verified": 30, "noise_rate": 0.2, "noise_interval": (0.1, 0.3)},
            "30 of its 200 labels are verified; the others are as given, and an estimated 20% of"
            " such labels are wrong.",
        ),
    ],
)
def test_labels(facts: dict[str, Any], sentence: str) -> None:
    assert labels_in_words(ValidationLabels(samples=200, **facts)) == sentence


CHOSEN = ThresholdOrigin(
    kind="validation",
    sensitivity=0.95,
    answers=200,
    positives=40,
    patients=12,
    by_patient=True,
    labels=ValidationLabels(samples=200, basis="true grades"),
)
SENTENCES = (
    "The threshold was chosen on the validation side (200 samples, 40 to refer of 12 patients) for"
    " a sensitivity of at least 0.95 on new patients. Its true grades are known and were used."
)


def test_thresholds() -> None:
    assert threshold_in_words(CHOSEN) == SENTENCES
    assert threshold_in_words(CHOSEN, missed=True) == f"{SENTENCES} The sensitivity is lower here."
    alone = ThresholdOrigin(
        kind="validation",
        sensitivity=0.95,
        answers=9,
        positives=4,
        patients=4,
        pooled=True,
        reached=False,
        views=10,
    )
    assert threshold_in_words(alone) == (
        "The threshold was chosen on the validation side (9 answers, 4 to refer) for a sensitivity"
        " of at least 0.95 on new samples. So few samples to refer can guarantee a sensitivity of"
        " at most 0.8: the lowest of their scores is used. It was chosen on one view of each image"
        " and is applied to 10."
    )
    kinds = [threshold_in_words(ThresholdOrigin(kind=kind)) for kind in ("default", "given")]
    assert kinds == ["The threshold is the default.", "The threshold was given."]
    assert threshold_in_words(ThresholdOrigin(kind="grade")) == "The predicted grade decides."


PROMISE: dict[str, Any] = {
    "coverage": 0.9,
    "basis": "labels",
    "by_patient": True,
    "patients": 30,
    "answers": 120,
    "samples": 120,
    "assumptions": (Assumption(),),
    "trivial": False,
}
RATES = (0.1, 0.25)


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (
            {},
            "Ranges hold for at least 90% of random images of new patients, if the calibration"
            " labels are right. They are calibrated on 30 patients (120 samples).",
        ),
        ({"by_patient": False}, "of new images, if"),
        ({"by_patient": False}, "calibrated on 120 samples."),
        ({"per": ("patient",), "answers": 30}, "of new patients, each by the highest of its"),
        ({"per": ("patient",), "answers": 30}, "calibrated on 30 patients (120 samples)."),
        ({"per": ("patient", "eye"), "answers": 60}, "of random eyes of new patients, each by"),
        ({"per": ("eye",), "answers": 60}, "on 30 patients (60 answers of 120 samples)."),
        ({"coverage_by": "grade"}, ", for each true grade, if"),
        ({"coverage_by": "site"}, ", for each value of site, if"),
        (
            {"basis": "corrected", "samples": 201},
            "; verified grades of 200 random images would make them narrow",
        ),
        ({"basis": "corrected"}, "; verified grades of all 120 images would make them narrow"),
        ({"basis": "corrected", "verified_help": False}, "on 30 patients (120 samples)."),
        (
            {"basis": "conservative", "per": ("patient",)},
            "; verified grades of all images of random patients would make them narrower.",
        ),
        ({"trivial": True}, ". Only the range of all grades keeps this promise here."),
        (
            {"coverage_by": "site", "trivial_values": ("north",)},
            "too few samples for site north, so the range is all grades there.",
        ),
        ({"trivial_grades": (3,)}, "samples of grade at position 3, so every range contains it."),
        ({"assumptions": (Assumption(kind="random"),)}, "if the verified ones were drawn at ran"),
        (
            {"assumptions": (Assumption(kind="unclear", rates=RATES),)},
            "on average if 10% to 25% of the calibration labels are wrong, unclear images more often than"
            " clear ones, and the networks do not repeat their errors.",
        ),
        (
            {"assumptions": (Assumption(kind="units", rates=(0.1, 0.1)),)},
            "if 10% of the calibration labels are wrong, one by one or together, and the networks",
        ),
        (
            {"assumptions": (Assumption(kind="class-conditional", rates=RATES),)},
            "labels are wrong, by their true grade alone.",
        ),
        (
            {"assumptions": (Assumption(kind="class-conditional units", rates=RATES),)},
            "labels are wrong, by the image's true grade alone.",
        ),
        (
            {"assumptions": (Assumption(kind="near"), Assumption(kind="near", labels=80))},
            "whichever near grade is the true one (labels of one patient contradict the estimated"
            " noise); elsewhere whichever near grade is the true one (80 labels are too few to say",
        ),
    ],
)
def test_promises_of_ranges(facts: dict[str, Any], part: str) -> None:
    assert part in promise_in_words(RangePromise(**{**PROMISE, **facts}))


def test_grades_that_are_in_every_range_have_their_names() -> None:
    promise = RangePromise(**{**PROMISE, "trivial_grades": (1, 2)})
    assert "too few samples of grade mild or severe, so every range contains them." in (
        promise_in_words(promise, shown=["none", "mild", "severe"])
    )


def test_how_predictions_came_about() -> None:
    """From the plain values in ``attrs``, which a file of the table may have kept."""
    promise = json_values(RangePromise(**{**PROMISE, "basis": "corrected"}))
    how: dict[str, Any] = {
        "networks": {"number": 2, "used": "1"},
        "views": 10,
        "calibrated on": {"samples": 9, "patients": None, "validation": False},
        "one answer per": {
            "columns": ["patient", "eye"],
            "pool": "learned",
            "learned": {"exponent": 2.0, "weight": 0.5},
        },
        "refer": {"grade": "2 (severe)", "threshold": 0.25, "origin": json_values(CHOSEN)},
        "unsure": {"about": "grade", "cut": 0.61, "share": 0.2},
        "range": promise,
        "grade": json_values(GradeRule(decoding="argmax", method="garg")),
        "recalibration": json_values(Recalibration(slope=0.5, offsets=(0.0, 0.0))),
        "mine": "as an aspect of your own says it",
    }
    said: Any = SimpleNamespace(attrs={"how": how})
    assert how_in_words(said) == {
        "networks": "network 1 of two",
        "views": "the mean of 10 views of each image",
        "calibrated on": "other labelled samples: 9 samples",
        "one answer per": (
            "patient and eye: a pooling that is fitted on the validation side, exponent 2, weight"
            " 0.5"
        ),
        "refer": f"if p(grade ≥ 2 (severe)) ≥ 0.25. {SENTENCES}",
        "unsure": (
            "if the probability of the grade is below 0.61, as it is for at most 0.2 of the"
            " validation side"
        ),
        "range": (
            "contains the true grade with a probability of at least 0.9; less often where readers"
            " and networks err alike"
        ),
        "grade": "what garg itself decides on",
        "recalibration": "temperature 2.00",
        "mine": "as an aspect of your own says it",
    }
    assert predicted_promise(said).startswith("Ranges hold for at least 90% of random images")
    assert predicted_promise(SimpleNamespace(attrs={"how": {}})) == ""  # type: ignore[arg-type]


def test_a_file_of_an_evaluation_says_where_the_threshold_comes_from() -> None:
    """Files of srjt 0.2 have the sentence itself."""
    decision = {"operating_point": {}, "areas": {}, "refer_from": "2", "threshold": 0.25}
    now = {**decision, "origin": json_values(CHOSEN), "sensitivity_missed": True}
    earlier = {**decision, "found": "The threshold is given."}
    for values, said in ((now, "The sensitivity is lower here."), (earlier, "is given.")):
        facts = dict(facts_of_file({"decision": values}, "9 answers"))
        assert facts["decision"].endswith(said)


def test_what_a_grade_is_in_words() -> None:
    soft = soft_label_matrix(3)
    assert grade_in_words(GradeRule(decoding="median")) == "the median"
    assert grade_in_words(grade_rule_for("accuracy")) == "the most likely grade, for accuracy"
    assert grade_in_words(grade_rule_for("mae", soft_labels=soft)) == (
        "the median after undoing the soft labels, for the least absolute error"
    )
    assert grade_in_words(grade_rule_for("macro_f1")) == (
        "the most likely grade, for macro-F1 (thresholds need kept predictions for at least 50"
        " validation samples)"
    )
    cut = GradeRule(decoding="thresholds", thresholds=(0.25, 1.5), purpose="qwk")
    assert grade_in_words(cut) == "the expected grade, cut at 0.250, 1.500, for quadratic κ"
    better = replace(cut, decoding="argmax", rejected=True)
    assert "(by the labels of the validation side it is better than" in grade_in_words(better)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "temperature 2.00"),
        ({"offsets": (0.1, -0.1)}, "temperature 2.00 and an offset per grade"),
        ({"basis": "labels"}, "temperature 2.00; they are probabilities of the label"),
        (
            {"basis": "verified"},
            "temperature 2.00; they are probabilities of the true grade, by verified grades",
        ),
        (
            {"basis": "noise", "wrong_labels": (0.2, 0.2)},
            "temperature 2.00; they are probabilities of the true grade, if a share of 0.20 of the"
            " labels is wrong",
        ),
        (
            {"basis": "noise", "wrong_labels": (0.1, 0.3)},
            "temperature 2.00; as much as any share of wrong labels from 0.10 to 0.30 demands",
        ),
    ],
)
def test_recalibration_in_words(facts: dict[str, Any], words: str) -> None:
    made = Recalibration(**{"slope": 0.5, "offsets": (0.0, 0.0), **facts})
    assert recalibration_in_words(made) == words
