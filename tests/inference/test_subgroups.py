"""The scores of subgroups: a shifted site is found, Holm's correction keeps its level, and small
groups are named."""

import json
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom, norm as normal, t as student  # type: ignore[import-untyped]

import srjt
from refusals import refuses
from srjt.data import Manifest
from srjt.inference.answers import Answers
from srjt.inference.subgroups import Subgroups, _Permuted, gap_interval, group_by, judge_subgroups
from srjt.ordinal.calibration import expected_calibration_error
from srjt.ordinal.intervals import TOO_FEW, ScoreDraws, holm
from srjt.ordinal.metrics import METRICS
from srjt.reports.aspects.subgroups import comparison_of
from srjt.training.trained import Trained

SITES = ("a", "b", "c", "d")


def simulated(*, patients: int = 80, images: int = 3, shifted: str = "", seed: int = 0) -> Any:
    """Answers that err alike at four sites, but the labels of one may be a grade too high; patients
    err together."""
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


def test_a_grade_of_fewer_than_ten_patients_leaves_means_over_grades_without_an_interval() -> None:
    """In the group its scores are silent, and on either side of a gap the gap is."""
    grade = np.repeat([0, 1, 0, 1], [40, 40, 40, 9])
    site = pd.DataFrame({"site": np.repeat(["a", "b"], [80, 49])})
    answers = Answers(
        probabilities=np.eye(2)[grade], grades=grade, labels=grade, groups=[*map(str, range(129))]
    )
    first, second = judge_subgroups(answers, [group_by(site, "site")], resamples=50).groups
    for name, metric in METRICS.items():
        assert math.isnan(second.scores[name].high) == metric.per_grade
        assert math.isfinite(first.scores[name].high)
        for gap in (first.gaps[name], second.gaps[name]):
            ends = [gap.difference.low, gap.difference.high, gap.p_value, gap.adjusted]
            assert [math.isnan(end) for end in ends] == [metric.per_grade] * 4


@pytest.mark.slow
def test_the_site_whose_labels_are_a_grade_too_high_is_the_worst() -> None:
    found = judged(by=("site", "eye"), shifted="c")
    assert str(found.worst) == "site c"
    assert found.tests == 5  # four sites, and one eye against the other
    gap = found.worst.gaps["mae"]
    assert gap.difference.low > 0.2
    assert gap.p_value <= gap.adjusted < 0.01
    assert "site c" in found.differing
    assert comparison_of(found).endswith("The worst is site c.")


@pytest.mark.slow
def test_holm_keeps_its_level_where_no_site_differs() -> None:
    """One wrong finding in twenty evaluations is promised; 24 of 250 would be significantly
    more."""
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
            assert group.gaps[name].difference.value == pytest.approx(
                metric(confusion) - metric(rest)
            )
        error = expected_calibration_error(answers.probabilities[own], answers.labels[own])
        assert group.scores["calibration_error"].value == pytest.approx(error)
        assert group.scores["coverage"].value == pytest.approx(METRICS["accuracy"](confusion))
    p_values = [group.gaps["mae"].p_value for group in found.groups]
    assert [group.gaps["mae"].adjusted for group in found.groups] == pytest.approx(
        holm(p_values).tolist()
    )


def test_two_eyes_of_a_patient_are_paired() -> None:
    """Patients who are all right or all wrong, in both eyes: their gap is 0 in every draw and
    permutation."""
    answers, table = simulated(images=2)
    wrong = np.repeat(np.arange(80) % 3 == 0, 2)
    same = replace(answers, grades=(answers.labels + wrong).clip(0, 4))
    alone = replace(same, groups=None)
    paired, unpaired = (
        judge_subgroups(one, [group_by(table, "eye")], resamples=200).groups
        for one in (same, alone)
    )
    for group, apart in zip(paired, unpaired, strict=True):
        gap, wide = group.gaps["mae"].difference, apart.gaps["mae"].difference
        assert gap.value == 0.0
        assert gap.low < 0.0 < gap.high  # by one more error
        assert gap.high - gap.low < 0.4 * (wide.high - wide.low)
        assert group.gaps["mae"].p_value == 1.0


def test_swapped_eyes_give_a_sign_test() -> None:
    """Twelve patients whose left eye is wrong, the right one never: of 2¹² swaps two are as far
    out."""
    labels = np.zeros(24, dtype=int)
    grades = np.resize([1, 0], 24)
    owners = np.repeat(np.arange(12), 2).astype(str).tolist()
    answers = Answers(probabilities=np.eye(2)[grades], grades=grades, labels=labels, groups=owners)
    eye = group_by(pd.DataFrame({"eye": np.resize(["l", "r"], 24)}), "eye")
    left = judge_subgroups(answers, [eye], resamples=6000).groups[0]
    assert left.gaps["mae"].p_value == pytest.approx(2 / 2**12, abs=1.2e-3)
    assert left.differs


def test_the_p_value_is_that_of_fishers_exact_test() -> None:
    """One image a patient: permutations of wrong answers are hypergeometric; twice the smaller
    tail."""
    wrong = np.r_[np.arange(12) < 5, np.arange(30) < 3]
    answers = Answers(probabilities=np.eye(2)[wrong.astype(int)], grades=wrong.astype(int),
                      labels=np.zeros(42, dtype=int), groups=None)  # fmt: skip
    site = group_by(pd.DataFrame({"site": np.repeat(["a", "b"], [12, 30])}), "site")
    a, b = judge_subgroups(answers, [site], resamples=6000).groups
    exact = 2 * hypergeom.sf(4, 42, 8, 12)
    assert (
        a.gaps["accuracy"].p_value == b.gaps["accuracy"].p_value == pytest.approx(exact, abs=0.012)
    )


def test_a_small_group_without_an_error_does_not_differ() -> None:
    """Ten patients without an error beside 200 with 5 % errors: that has a probability of 0.6."""
    wrong = np.r_[np.zeros(10, dtype=bool), np.arange(200) % 20 == 0]
    labels = np.arange(210) % 4
    grades = np.where(wrong, (labels + 1).clip(0, 3), labels)
    answers = Answers(probabilities=np.eye(4)[grades], grades=grades, labels=labels, groups=None)
    table = pd.DataFrame({"site": np.repeat(["small", "large"], [10, 200])})
    found = judge_subgroups(answers, [group_by(table, "site")], resamples=200)
    small = next(group for group in found.groups if group.name == "small")
    assert small.gaps["mae"].p_value > 0.5
    assert not found.differing
    assert small.scores["mae"].value == 0.0
    assert small.scores["mae"].high > 0.2


def test_at_each_end_of_a_gap_the_one_side_is_worse_and_the_other_better() -> None:
    """Draws that do not vary, by hand."""

    def side(value: float, better: float, worse: float, metric: str) -> ScoreDraws:
        return ScoreDraws(
            {metric: value}, {metric: np.full(9, better)}, {metric: np.full(9, worse)}, 20.0
        )

    errors = side(0.1, 0.05, 0.2, "mae"), side(0.3, 0.25, 0.4, "mae")
    assert gap_interval(*errors, "mae") == pytest.approx((-0.2, 0.05 - 0.4, 0.2 - 0.25))
    shares = side(0.9, 0.95, 0.8, "accuracy"), side(0.7, 0.75, 0.6, "accuracy")
    assert gap_interval(*shares, "accuracy") == pytest.approx((0.2, 0.8 - 0.75, 0.95 - 0.6))


def test_the_permuted_statistic_by_hand() -> None:
    """Shares of 10 and 30 patients with one image each: their gap over its error, with two average
    patients each."""
    tables = np.zeros((40, 2, 2))
    right = np.array([1] * 8 + [0] * 2 + [1] * 15 + [0] * 15)
    tables[np.arange(40), 0, 1 - right] = 1.0
    in_group = (np.arange(40) < 10)[:, None, None]
    permuted = _Permuted.between(tables * in_group, tables * ~in_group)
    found = permuted.statistics(permuted.observed)[0, list(METRICS).index("accuracy")]
    average = 2 * (23 / 40) * (17 / 40)
    variance = (10 * 0.8 * 0.2 + average) / 10**2 + (30 * 0.5 * 0.5 + average) / 30**2
    assert found == pytest.approx((0.8 - 0.5) / math.sqrt(variance))


def test_the_interval_of_a_gap_is_as_wide_as_the_smaller_side_asks_for() -> None:
    """Normal draws of twelve patients beside 500: the tails are those of twelve."""
    draws = normal.ppf(np.linspace(0, 1, 20_001)[1:-1])
    still = np.zeros_like(draws)
    few = ScoreDraws({"mae": 1.0}, {"mae": 1.0 + draws}, {"mae": 1.0 + draws}, 12.0)
    many = ScoreDraws({"mae": 0.5}, {"mae": still + 0.5}, {"mae": still + 0.5}, 500.0)
    half = student.ppf(0.975, 11) * math.sqrt(13 / 11)
    assert gap_interval(few, many, "mae") == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=0.01)
    assert gap_interval(many, few, "mae") == pytest.approx(
        (-0.5, -0.5 - half, -0.5 + half), rel=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "errors"), [((10, 200), 0.05), ((10, 10, 10, 10, 10, 200), 0.05), ((20, 300), 0.02)]
)
def test_equal_sites_of_different_sizes_seldom_differ(
    sizes: tuple[int, ...], errors: float
) -> None:
    """By the bootstrap variance of each group alone, 59 % and 89 % of the first two did; 17 of 150
    are too many."""
    rng, found = np.random.default_rng(3), dict.fromkeys(("mae", "macro_f1", "qwk"), 0)
    site = group_by(
        pd.DataFrame({"site": np.repeat([f"s{k}" for k in range(len(sizes))], sizes)}), "site"
    )
    for _ in range(150):
        labels = rng.integers(0, 4, sum(sizes))
        grades = np.where(
            rng.random(len(labels)) < errors, np.where(labels > 0, labels - 1, 1), labels
        )
        answers = Answers(
            probabilities=np.eye(4)[grades], grades=grades, labels=labels, groups=None
        )
        groups = judge_subgroups(answers, [site], resamples=200).groups
        for metric in found:
            found[metric] += any(group.gaps[metric].adjusted <= 0.05 for group in groups)
    assert all(count < 17 for count in found.values())


def test_small_groups_are_shown_and_say_nothing() -> None:
    answers, table = simulated()
    table["site"] = np.where(np.arange(240) < 3 * (TOO_FEW - 1), "small", "large")
    found = judge_subgroups(answers, [group_by(table, "site")], resamples=20).groups
    small, large = sorted(found, key=lambda group: group.patients)
    assert (small.name, small.patients, small.too_few, small.gaps) == (
        "small",
        TOO_FEW - 1,
        True,
        {},
    )
    assert not large.too_few
    assert large.gaps == {}  # there is no rest to compare it with
    both = Subgroups(groups=(small, large))
    assert len(both.table()) == 1 + len(large.scores)
    assert both.tests == 0
    assert comparison_of(Subgroups(groups=(small,))).startswith(f"Groups with fewer than {TOO_FEW}")


def names(values: list[object], by: str, units: list[int] | None = None) -> list[str]:
    return list(
        group_by(pd.DataFrame({"x": values}), by, None if units is None else np.array(units))
    )


def test_the_names_of_groups() -> None:
    assert names(["b", None, "a", "n/a"], "x") == ["b", "(missing)", "a", "(missing)"]
    assert names([39.9, 40, "50", math.nan], "x:10") == [
        "30 to 40",
        "40 to 50",
        "50 to 60",
        "(missing)",
    ]
    assert names([0.1, 0.3], "x:.25") == ["0 to 0.25", "0.25 to 0.5"]
    assert names([0.3, 0.6, 1.2], "x:0.1") == ["0.3 to 0.4", "0.6 to 0.7", "1.2 to 1.3"]
    assert names(["a", "a", "a", "b"], "x", [0, 0, 1, 1]) == ["a", "(several)"]
    table = pd.DataFrame({"x": ["10", "9", None], "x:1": ["p", "q", "r"]})
    assert group_by(table, "x").cat.categories.tolist() == ["9", "10", "(missing)"]  # by number
    assert group_by(table, "x:1").cat.categories.tolist() == [
        "p",
        "q",
        "r",
    ]  # a column of that name


@pytest.mark.parametrize(
    ("values", "by", "code", "says"),
    [
        (["a"], "sight", "unknown_name", "'sight'"),
        (["old"], "x:10", "wrong_type", "'old'"),
        ([1], "x:ten", "wrong_syntax", "x:ten"),
        ([1], "x:0", "wrong_syntax", "x:0"),
        (list(range(100)), "x", "too_many", ("100 groups", "`by='x:10'`")),
        ([f"p{k}" for k in range(100)], "x", "too_many", "100 groups"),
    ],
)
def test_what_cannot_be_grouped_is_one_sentence(
    values: list[object], by: str, code: str, says: str | tuple[str, ...]
) -> None:
    with refuses(code, "by", says=says):
        names(values, by)


@pytest.mark.slow
def test_evaluate_by_columns(run: Trained, features: Manifest) -> None:
    data = features.select(np.arange(600) >= 300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", srjt.data.LeakageWarning)
        found = srjt.evaluate(run, data, by=["centre", "eye"], coverage=0.9, resamples=50)
        per = srjt.evaluate(run, data, by="eye", per="patient", resamples=50)
    assert [str(group) for group in found.subgroups.groups] == [
        "centre A",
        "centre B",
        "eye L",
        "eye R",
    ]
    assert sum(group.samples for group in found.subgroups.groups) == 600
    assert all("coverage" in group.scores for group in found.subgroups.groups)
    plain = json.loads(json.dumps(found.to_dict()))["subgroups"]
    assert plain["worst"] == {
        "column": found.subgroups.worst.column,
        "name": found.subgroups.worst.name,
    }  # type: ignore[union-attr]
    assert (
        plain["groups"][0]["gaps"]["mae"]["adjusted"]
        == found.subgroups.groups[0].gaps["mae"].adjusted
    )
    assert [group.name for group in per.subgroups.groups] == ["(several)"]
    slugs = [section.slug for section in srjt.report(found).sections]
    assert "subgroups" in slugs


def test_the_coverage_of_a_group_is_that_of_a_random_image_of_a_patient() -> None:
    """Ten patients with one image that is in its range, ten with nine that are not."""
    images = np.tile([1, 9], 20)
    owner = np.repeat(np.arange(40), images)
    inside = (images[owner] == 1).astype(np.int64)
    labels = np.zeros(len(owner), int)
    answers = Answers(
        probabilities=np.eye(2)[labels] * 0.8 + 0.1,
        grades=labels,
        labels=labels,
        groups=owner.astype(str).tolist(),
        ranges=(1 - inside, np.ones(len(owner), int)),
    )
    table = pd.DataFrame({"site": np.where(owner < 20, "a", "b")})
    found = judge_subgroups(answers, [group_by(table, "site")], resamples=20)
    for group in found.groups:
        assert group.scores["coverage"].value == pytest.approx(0.5)
