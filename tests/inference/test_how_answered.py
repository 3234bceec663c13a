"""How answers came about: what is said is what was done."""

from __future__ import annotations

import json

import numpy as np

import srjt
from srjt.data import Manifest, folds
from srjt.ordinal.decisions import decision_confidence
from srjt.training.trained import Trained


def test_what_is_said_is_what_was_done(run: Trained, features: Manifest) -> None:
    few = features.select(np.arange(80))
    table = srjt.predict(run, few, per="patient", refer_from="2", sensitivity=0.9, abstain=0.2, coverage=0.8)
    how, threshold, cut = (table.attrs[name] for name in ("how", "threshold", "cut"))
    json.dumps(table.attrs)  # plain values, as pandas writes them to Parquet
    score = (table["p_2"] + table["p_3"]).to_numpy()
    assert ((score >= threshold) == (table["refer"] == "yes")).all()
    assert how["refer"].startswith(
        f"if p(grade ≥ 2) ≥ {threshold:.3g}. The threshold is found on the validation"
    )
    assert ((decision_confidence(score, threshold=threshold) < cut) == (table["unsure"] == "yes")).all()
    assert how["unsure"].endswith(f"is below {cut:.3g}, as it is for at most 0.2 of the validation side")
    assert how["calibrated on"] == "the validation side of the run: 120 samples of 30 patients"
    assert how["one answer per"] == "patient: the highest grade of the images"
    assert (how["networks"], how["precision"]) == ("one", "fp32")
    assert how["range"] == "contains the true grade with a probability of at least 0.8"

    images = srjt.predict(run, few).sort_values(["grade", "expected_grade"])
    assert dict(zip(table["patient"], table["highest_image"], strict=True)) == dict(
        zip(images["patient"], images["image"], strict=True)  # the last of each patient
    )


def test_what_was_not_asked_for_is_not_said(run: Trained, features: Manifest) -> None:
    few = features.select(np.arange(8))
    table = srjt.predict(run, few, recalibrate=False, decoding="argmax")
    assert table.attrs["how"] == {
        "networks": "one", "precision": "fp32", "recalibration": "none", "grade": "the most likely grade",
    }  # fmt: skip
    assert (table.attrs["threshold"], table.attrs["cut"]) == (None, None)
    other = features.select(folds(features)[0].test)
    given = srjt.predict(run, few, calibrate_on=other, coverage=0.8, refer_from="1", threshold="grade")
    assert given.attrs["how"]["calibrated on"] == ("other labelled samples: 120 samples of 30 patients")
    assert given.attrs["how"]["refer"] == "if predicted grade ≥ 1. The predicted grade decides."
