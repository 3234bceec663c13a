"""The scores of subgroups: a shifted site is found, Holm's correction keeps its level, and small groups are named."""

import json
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.data import Manifest
from srjt.errors import SrjtError
from srjt.inference.answers import Answers
from srjt.inference.subgroups import Subgroups, group_by, judge_subgroups
from srjt.ordinal.calibration import expected_calibration_error
from srjt.ordinal.metrics import METRICS, TOO_FEW, holm
from srjt.reports.page import sentences
from srjt.reports.pages.evaluation import SUBGROUPS
from srjt.training.trained import Trained

SITES = ("a", "b", "c", "d")


def simulated(*, patients: int = 80, images: int = 3, shifted: str = "", seed: int = 0) -> Any:
    """Answers that err alike at four sites, but the labels of one may be a grade too high; patients err together."""
    rng = np.random.default_rng(seed)
    site = np.repeat(rng.permutation(np.resize(SITES, patients)), images)
    owner = np.repeat(np.arange(patients), images)
    true = np.repeat(rng.integers(0, 4, patients), images)
    wrong = rng.random(len(true)) < np.repeat(rng.beta(1, 3, patients), images)
    grades = np.where(wrong, np.clip(true + rng.choice([-1, 1], len(true)), 0, 4), true)
    labels = np.where(site == shifted, true + 1, true)
    p = np.full((len(true), 5), 0.05) + 0.75 * np.eye(5)[grades]
    groups = owner.astype(str).tolist()
    answers = Answers(probabilities=p, grades=grades, labels=labels, groups=groups)
    return answers, pd.DataFrame({"site": site, "eye": np.resize(["l", "r"], len(true))})


def judged(*, by: tuple[str, ...] = ("site",), resamples: int = 200, **how: object) -> Subgroups:
    answers, table = simulated(**how)  # type: ignore[arg-type]
    return judge_subgroups(answers, [group_by(table, text) for text in by], resamples=resamples)


def test_the_site_whose_labels_are_a_grade_too_high_is_the_worst() -> None:
    found = judged(by=("site", "eye"), shifted="c")
    assert str(found.worst) == "site c"
    assert found.tests == 5  # four sites, and one eye against the other
    gap = found.worst.gaps["mae"]
    assert gap.difference.low > 0.2
    assert gap.p_value <= gap.adjusted < 0.01
    assert "site c" in found.differing
    assert sentences(SUBGROUPS, found)[0].endswith("The worst is site c.")


@pytest.mark.slow
def test_holm_keeps_its_level_where_no_site_differs() -> None:
    """One wrong finding in twenty evaluations is promised; 24 of 250 would be significantly more."""
    evaluated = (judged(patients=48, resamples=100, seed=seed).groups for seed in range(250))
    wrong = sum(any(group.gaps["mae"].adjusted <= 0.05 for group in groups) for groups in evaluated)
    assert 1 <= wrong < 24


def test_scores_are_those_of_the_samples_of_the_group() -> None:
    answers, table = simulated()
    ranged = replace(answers, ranges=(answers.grades, answers.grades))
    found = judge_subgroups(ranged, [group_by(table, "site")], resamples=50)
    for group in found.groups:
        own = (table["site"] == group.name).to_numpy()
        confusion, rest = np.zeros((5, 5)), np.zeros((5, 5))
        np.add.at(confusion, (answers.labels[own], answers.grades[own]), 1)
        np.add.at(rest, (answers.labels[~own], answers.grades[~own]), 1)
        assert group.samples == own.sum()
        assert group.patients == own.sum() / 3
        for name, metric in METRICS.items():
            assert group.scores[name].value == pytest.approx(metric(confusion))
            assert group.gaps[name].difference.value == pytest.approx(metric(confusion) - metric(rest))
        error = expected_calibration_error(answers.probabilities[own], answers.labels[own])
        assert group.scores["calibration_error"].value == pytest.approx(error)
        assert group.scores["coverage"].value == pytest.approx(METRICS["accuracy"](confusion))
    p_values = [group.gaps["qwk"].p_value for group in found.groups]
    assert [group.gaps["qwk"].adjusted for group in found.groups] == pytest.approx(holm(p_values).tolist())


def test_two_eyes_of_a_patient_are_paired() -> None:
    """Patients who are all right or all wrong, in both eyes: their gap is 0 in every draw."""
    answers, table = simulated(images=2)
    wrong = np.repeat(np.arange(80) % 3 == 0, 2)
    same = replace(answers, grades=(answers.labels + wrong).clip(0, 4))
    for group in judge_subgroups(same, [group_by(table, "eye")], resamples=50).groups:
        assert group.gaps["mae"].difference == (0.0, 0.0, 0.0)
        assert group.gaps["mae"].p_value == 1.0


def test_small_groups_are_shown_and_say_nothing() -> None:
    answers, table = simulated()
    table["site"] = np.where(np.arange(240) < 3 * (TOO_FEW - 1), "small", "large")
    found = judge_subgroups(answers, [group_by(table, "site")], resamples=20).groups
    small, large = sorted(found, key=lambda group: group.patients)
    assert (small.name, small.patients, small.too_few, small.gaps) == ("small", TOO_FEW - 1, True, {})
    assert not large.too_few
    assert large.gaps == {}  # there is no rest to compare it with
    both = Subgroups(groups=(small, large))
    assert len(both.table()) == 1 + len(large.scores)
    assert both.tests == 0
    assert sentences(SUBGROUPS, Subgroups(groups=(small,)))[0].startswith(f"No group has {TOO_FEW} patients")


def names(values: list[object], by: str, units: list[int] | None = None) -> list[str]:
    return list(group_by(pd.DataFrame({"x": values}), by, None if units is None else np.array(units)))


def test_the_names_of_groups() -> None:
    assert names(["b", None, "a", "n/a"], "x") == ["b", "(missing)", "a", "(missing)"]
    assert names([39.9, 40, "50", math.nan], "x:10") == ["30 to 40", "40 to 50", "50 to 60", "(missing)"]
    assert names([0.1, 0.3], "x:.25") == ["0 to 0.25", "0.25 to 0.5"]
    assert names([0.3, 0.6, 1.2], "x:0.1") == ["0.3 to 0.4", "0.6 to 0.7", "1.2 to 1.3"]
    assert names(["a", "a", "a", "b"], "x", [0, 0, 1, 1]) == ["a", "(several)"]
    table = pd.DataFrame({"x": ["10", "9", None], "x:1": ["p", "q", "r"]})
    assert group_by(table, "x").cat.categories.tolist() == ["9", "10", "(missing)"]  # by number
    assert group_by(table, "x:1").cat.categories.tolist() == ["p", "q", "r"]  # a column of that name


@pytest.mark.parametrize(
    ("values", "by", "words"),
    [
        (["a"], "sight", r"Unknown column .*sight.*Known: x"),
        (["old"], "x:10", "needs numbers, and x has the value 'old'"),
        ([1], "x:ten", "must be a positive number"),
        ([1], "x:0", "must be a positive number"),
        (list(range(100)), "x", "100 groups; .* width"),
        ([f"p{k}" for k in range(100)], "x", "100 groups"),
    ],
)
def test_what_cannot_be_grouped_is_one_sentence(values: list[object], by: str, words: str) -> None:
    with pytest.raises(SrjtError, match=words):
        names(values, by)


def test_evaluate_by_columns(run: Trained, features: Manifest) -> None:
    data = features.select(np.arange(600) >= 300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", srjt.data.LeakageWarning)
        found = srjt.evaluate(run, data, by=["centre", "eye"], coverage=0.9, resamples=50)
        per = srjt.evaluate(run, data, by="eye", per="patient", resamples=50)
    assert [str(group) for group in found.subgroups.groups] == ["centre A", "centre B", "eye L", "eye R"]
    assert sum(group.samples for group in found.subgroups.groups) == 600
    assert all("coverage" in group.scores for group in found.subgroups.groups)
    plain = json.loads(json.dumps(found.to_dict()))["subgroups"]
    assert plain["worst"] == {"column": found.subgroups.worst.column, "name": found.subgroups.worst.name}  # type: ignore[union-attr]
    assert plain["groups"][0]["gaps"]["mae"]["adjusted"] == found.subgroups.groups[0].gaps["mae"].adjusted
    assert [group.name for group in per.subgroups.groups] == ["(several)"]
    slugs = [section.slug for section in found.report().sections]
    assert "subgroups" in slugs
