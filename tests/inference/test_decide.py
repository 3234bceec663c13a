"""Decisions of a run: what is found on the validation side, and what is said about it."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import recall_score, roc_auc_score

from fixtures.held_out_runs import drawn_side, made_run
from refusals import refuses
from srjt.data import from_arrays
from srjt.errors import Option
from srjt.inference.answers import Answers, units_of, validation_labels
from srjt.inference.aspects import Judging
from srjt.inference.aspects.abstention import Abstention, DoubtRule
from srjt.inference.aspects.referral import Referral, ReferralRule, ThresholdOrigin
from srjt.inference.calibrated_run import CalibratedRun, calibrate_run
from srjt.inference.labels import ValidationLabels
from srjt.inference.options import Answering
from srjt.noise.matrices import transition_matrix
from srjt.noise.quality import highest_grade_posterior
from srjt.ordinal.decisions import referral_probability
from srjt.training.trained import Trained

NOISE = transition_matrix("truncated", num_classes=4, rho=0.13)


def calibrated(run: Trained, **options: Any) -> CalibratedRun:
    return calibrate_run(run, Answering(recalibrate=False, **options))


def answers_of(run: Trained, side: str = "test") -> Answers:
    held = run.held_out[side]
    return calibrated(run).side_answers(held, held.labels)


def validation_answers(run: Trained, **options: Any) -> Answers:
    return calibrated(run, **options).validation("It", option=Option("that"))


def rule_for(run: Trained, **options: Any) -> ReferralRule:
    return calibrated(run, **{"refer_from": 2, **options}).rule(ReferralRule)


def judge(
    rule: ReferralRule | DoubtRule,
    run: Trained,
    answers: Answers | None = None,
    resamples: int = 20,
) -> Any:
    answers = answers_of(run) if answers is None else answers
    judging = Judging(
        calibrated=calibrated(run),
        answers=answers,
        images=answers,
        samples=None,
        resamples=resamples,
    )
    return rule.judge(judging)


def abstained(run: Trained, **options: Any) -> Abstention:
    return judge(calibrated(run, abstain=0.2, **options).rule(DoubtRule), run)


@pytest.fixture
def run() -> Trained:
    return made_run(held_out={"validation": drawn_side(seed=1), "test": drawn_side(seed=2)})


def test_a_decision_agrees_with_scikit_learn(run: Trained) -> None:
    found = judge(rule_for(run), run, resamples=50)
    p = run.held_out["test"].probabilities.mean(axis=0)[:, 2:].sum(axis=1)
    positive = run.held_out["test"].labels >= 2
    assert found.operating_point["sensitivity"].value == pytest.approx(
        recall_score(positive, p >= 0.5)
    )
    assert found.areas["roc_area"].value == pytest.approx(roc_auc_score(positive, p))
    assert (found.positives, found.referred, found.samples) == (
        positive.sum(),
        (p >= 0.5).sum(),
        200,
    )
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (
        plain["operating_point"]["sensitivity"]["value"]
        == found.operating_point["sensitivity"].value
    )
    assert plain["roc"]["threshold"][0] is None  # nobody is referred


def test_the_sensitivity_is_said_to_be_lower_only_if_it_is_lower_for_patients() -> None:
    """One patient with 200 missed images beside 99 patients with one image each that is referred,
    and vice versa."""
    owners = ["one"] * 200 + [f"p{k}" for k in range(99)]
    run = made_run()
    for missed, lower in (("one", False), ("p", True)):
        refer = np.array([not name.startswith(missed) for name in owners])
        p = np.where(refer[:, None], [0.0, 0.0, 0.1, 0.9], [0.9, 0.1, 0.0, 0.0])
        known = Answers(
            probabilities=p, grades=p.argmax(axis=1), labels=np.full(299, 3), groups=owners
        )
        origin = ThresholdOrigin(kind="validation", sensitivity=0.9)
        rule = ReferralRule(position=2, threshold=0.5, origin=origin)
        assert judge(rule, run, known, resamples=2).sensitivity_missed == lower


def test_the_predicted_grade_may_decide(run: Trained) -> None:
    found = judge(rule_for(run, threshold="grade"), run)
    assert found.threshold is None
    assert found.referred == (answers_of(run).grades >= 2).sum()


def test_the_threshold_for_a_sensitivity_comes_from_the_validation_side(run: Trained) -> None:
    rule = rule_for(run, sensitivity=0.9)
    known = answers_of(run, "validation")
    score = referral_probability(known.probabilities, refer_from=2)
    assert ((score >= rule.threshold) & (known.labels >= 2)).sum() / (
        known.labels >= 2
    ).sum() >= 0.9
    assert rule.threshold in score
    other = made_run(held_out={**run.held_out, "test": drawn_side(seed=9, skill=0.1)})
    assert rule_for(other, sensitivity=0.9) == rule  # whatever the test side is


@pytest.mark.parametrize(
    ("facts", "labels"),
    [
        ({"truth": True}, {"basis": "true grades"}),
        ({}, {}),
        ({"verified": 30}, {"verified": 30}),
        ({"verified": 200}, {"verified": 200}),
    ],
)
def test_what_is_known_about_the_validation_labels(
    facts: dict[str, Any], labels: dict[str, Any]
) -> None:
    run = made_run(held_out={"validation": drawn_side(wrong=0.3, **facts)})
    known = ValidationLabels(samples=200, **labels)
    assert validation_labels(run) == known
    assert rule_for(run, sensitivity=0.9).origin.labels == known


def test_true_and_verified_labels_are_used_where_they_exist() -> None:
    kinds: tuple[dict[str, Any], ...] = ({}, {"truth": True}, {"verified": 50})
    noisy, true, some = (drawn_side(wrong=0.5, seed=4, **known) for known in kinds)
    runs = [made_run(held_out={"validation": side}) for side in (noisy, true, some)]
    found = [validation_answers(run).labels for run in runs]
    assert found[0].tolist() == noisy.labels.tolist()
    assert found[1].tolist() == true.true_labels.tolist()
    assert found[2].tolist() == [*true.true_labels[:50].tolist(), *noisy.labels[50:].tolist()]


def test_too_few_positives_are_said() -> None:
    run = made_run(held_out={"validation": drawn_side(12)})
    assert not rule_for(run, sensitivity=0.99).origin.reached


def test_views_are_said(run: Trained) -> None:
    ten = replace(calibrated(run), views=10)
    rule = Referral(refer_from=2, sensitivity=0.9).prepare(ten)
    assert rule.origin.views == 10


def only_mild() -> Any:
    side = drawn_side(30)
    object.__setattr__(side, "labels", np.minimum(side.labels, 1))
    return side


@pytest.mark.parametrize(
    ("options", "code", "about"),
    [
        ({"refer_from": 4}, "unknown_name", ""),
        ({"refer_from": 0}, "out_of_bounds", "refer_from"),
        ({"threshold": float("nan")}, "out_of_bounds", "threshold"),
        ({"threshold": "median"}, "wrong_type", "threshold"),
        ({"threshold": 0.5, "sensitivity": 0.9}, "conflict", "threshold"),
        ({"sensitivity": 1.2}, "out_of_bounds", "sensitivity"),
        ({"refer_from": None, "sensitivity": 0.9}, "missing_option", "sensitivity"),
        ({"abstain": 1.0}, "out_of_bounds", "abstain"),
        ({"pool": "max"}, "unknown_name", "pool"),
        ({"coverage": 1.0}, "out_of_bounds", "coverage"),
        ({"coverage_by": "grade"}, "missing_option", "coverage_by"),
    ],
)
def test_bad_rules(run: Trained, options: dict[str, Any], code: str, about: str) -> None:
    with refuses(code, about):
        rule_for(run, **options)


def test_no_validation_side_or_one_class_in_it() -> None:
    with refuses("no_split", "split"):
        rule_for(made_run(), sensitivity=0.9)
    with refuses("too_few", "sensitivity", says="grade 2"):
        rule_for(made_run(held_out={"validation": only_mild()}), sensitivity=0.9)


def test_one_class_in_the_evaluated_samples() -> None:
    run = made_run(held_out={"test": only_mild()})
    found = judge(rule_for(run), run)
    assert np.isnan(found.operating_point["sensitivity"].value)
    referred = run.held_out["test"].probabilities.mean(axis=0)[:, 2:].sum(axis=1) >= 0.5
    assert found.operating_point["specificity"].value == pytest.approx(1 - referred.mean())
    assert (found.areas, found.roc, found.precision_recall) == ({}, None, None)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("refer", [True, False])
def test_abstention(run: Trained, refer: bool) -> None:
    found = abstained(run, **({"refer_from": 2} if refer else {}))
    assert found.about == ("referral" if refer else "grade")
    assert found.problem == ""
    assert found.share == pytest.approx(0.2, abs=0.08)  # of other samples than the cut was found on
    assert (
        1 - found.kept["accuracy"].value < found.curve.risk[-1]
    )  # the confident answers are better
    assert found.errors_left > found.share
    json.dumps(found.to_dict(), allow_nan=False)


def test_abstention_without_a_validation_side_uses_the_samples_themselves() -> None:
    run = made_run(held_out={"test": drawn_side(seed=2)})
    found = abstained(run)
    assert "The cut of abstention needs a validation side" in found.problem
    eyes = made_run(held_out={"validation": drawn_side()})
    found = judge(calibrated(eyes, per=("eye",), abstain=0.2).rule(DoubtRule), run)
    assert "The cut of abstention per eye needs the column eye" in found.problem
    assert found.share == pytest.approx(0.2)


def test_units_of_one_and_of_two_columns() -> None:
    table = pd.DataFrame(
        {"id": list("abcde"), "patient": ["x", "y", "x", "x", "y"], "eye": list("LLRLR")}
    )
    units = units_of(table, ["patient"])
    assert units.codes.tolist() == [0, 1, 0, 0, 1]
    assert units.keys["patient"].tolist() == ["x", "y"]
    both = units_of(table, ["patient", "eye"])
    assert both.codes.tolist() == [0, 1, 2, 0, 3]
    assert both.keys.to_numpy().tolist() == [["x", "L"], ["y", "L"], ["x", "R"], ["y", "R"]]
    with refuses("ambiguous", "per", says=("'L'", "`per=['patient', 'eye']`")):
        units_of(table, ["eye"])
    with refuses("unknown_name", "per", says=("'eyes'", "'eye'")):
        units_of(table, ["eyes"])


def test_images_without_a_patient_are_judged_alone() -> None:
    table = pd.DataFrame({"id": list("abcd"), "patient": [float("nan"), "", "x", "x"]})
    units = units_of(table, ["patient"])
    assert units.codes.tolist() == [0, 1, 2, 2]
    assert units.unknown == 2
    assert units.keys["patient"].tolist() == ["unknown: a", "unknown: b", "x"]
    read = from_arrays(
        np.zeros((4, 2), np.float32), [0, 1, 0, 1], patients=[None, "", "x", "x"]
    ).table
    assert units_of(read, ["patient"]).unknown == 2
    assert units_of(read, ["patient"]).codes.tolist() == [0, 1, 2, 2]


def test_answers_of_patients_are_judged_by_their_highest_label(run: Trained) -> None:
    images = answers_of(run)
    side = run.held_out["test"]
    codes = units_of(pd.DataFrame({"patient": side.patients}), ["patient"]).codes
    pooled = calibrated(run).pool(images, codes)
    frame = pd.DataFrame({"code": codes, "label": images.labels, "grade": images.grades})
    assert pooled.labels.tolist() == frame.groupby("code")["label"].max().tolist()
    assert pooled.grades.tolist() == frame.groupby("code")["grade"].max().tolist()
    assert pooled.groups == list(dict.fromkeys(side.patients))


def test_the_validation_side_may_lack_a_column(run: Trained) -> None:
    known = validation_answers(run, per=("patient",))
    assert len(known) == 40
    with refuses("missing_column", "that", says="the column eye"):
        validation_answers(run, per=("patient", "eye"))
    nobody = made_run(held_out={"validation": drawn_side(patients=None)})
    with refuses("missing_column", "that", says="the column patient"):
        validation_answers(nobody, per=("patient",))


@pytest.mark.parametrize("identifiable", [True, None, False])
def test_the_highest_grades_of_patients_are_inferred_from_noisy_labels(
    identifiable: bool | None,
) -> None:
    side = drawn_side(300, wrong=0.2, verified=20)
    known = None if identifiable is False else 0.2
    estimate = SimpleNamespace(
        rate=0.2,
        known_rate=known,
        rate_interval=(0.0, 0.37),
        transition=NOISE,
        identifiable=identifiable,
        informed=True,
    )
    run = made_run(held_out={"validation": side}, noise_estimate=estimate)
    found = validation_answers(run, per=("patient",)).labels
    codes = units_of(pd.DataFrame({"patient": side.patients}), ["patient"]).codes
    labels = np.where(side.verified_labels >= 0, side.verified_labels, side.labels)
    if identifiable is False:
        assert found.tolist() == [labels[codes == code].max() for code in range(40)]
        given = ValidationLabels(samples=300, verified=20, noise_interval=(0.0, 0.37))
        assert validation_labels(run, per=("patient",)) == validation_labels(run) == given
    else:
        inferred = highest_grade_posterior(labels, codes, NOISE, certain=side.verified_labels >= 0)
        assert found.tolist() == inferred.argmax(axis=1).tolist()
        pooled = ValidationLabels(samples=300, basis="inferred", noise_rate=0.2)
        assert validation_labels(run, per=("patient",)) == pooled
        assert validation_labels(run).noise_rate == 0.2


def test_the_accuracy_of_kept_answers_is_known_by_patients() -> None:
    right = np.arange(30) % 5 > 0
    labels = np.where(right, 0, 1)

    def kept(copies: int) -> Any:
        own = np.repeat(labels, copies)
        answers = Answers(
            probabilities=np.tile([0.9, 0.1], (len(own), 1)),
            grades=np.zeros(len(own), int),
            labels=own,
            groups=np.repeat(np.arange(30), copies).astype(str).tolist(),
        )
        judging: Any = SimpleNamespace(answers=answers)
        return DoubtRule(refer=None, share=0.2, cut=0.7).judge(judging).kept["accuracy"]

    assert kept(6) == pytest.approx(kept(1))
