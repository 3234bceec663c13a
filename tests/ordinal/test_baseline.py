"""Is it better than one grade for all? The one rule, its grade and its uncertainty."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from scipy.stats import skew

from srjt.ordinal import Purpose, intervals
from srjt.ordinal.baseline import (
    Gain,
    _skewed_downwards,
    gain_over_one_grade,
    one_grade,
)
from srjt.ordinal.metrics import METRICS, naive_baseline

TRAINING = [8, 5, 4, 1]  # the most frequent grade is not the median


@pytest.mark.parametrize("purpose", get_args(Purpose))
def test_the_one_grade_has_the_scores_of_the_naive_baseline(purpose: Purpose) -> None:
    counts = np.array([4, 5, 2, 3])
    confusion = np.zeros((4, 4))
    confusion[:, one_grade(TRAINING, purpose)] = counts
    assert METRICS[purpose](confusion) == pytest.approx(
        getattr(naive_baseline(TRAINING, counts), purpose)
    )


@pytest.mark.parametrize(
    ("score", "naive", "low", "verdict"),
    [
        (0.616, 0.563, -0.2, "not better"),
        (0.563, 0.563, -0.1, "not better"),
        (0.5, 0.563, -0.01, "unclear"),
        (0.5, 0.563, math.nan, "unclear"),  # no patients to judge it by
        (0.5, 0.563, 0.01, "better"),
        (0.0, 0.0, math.nan, "unclear"),  # perfect: it cannot be beaten
        (0.5, math.nan, math.nan, "unknown"),
    ],
)
def test_the_rule(score: float, naive: float, low: float, verdict: str) -> None:
    assert Gain(metric="mae", score=score, naive=naive, low=low).verdict == verdict
    if not math.isnan(naive):  # of a metric of which more is better
        assert Gain(metric="accuracy", score=1 - score, naive=1 - naive, low=low).verdict == verdict


@pytest.mark.parametrize("purpose", get_args(Purpose))
def test_scores_and_verdict_of_answers(purpose: Purpose) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 200, p=np.array(TRAINING) / 18)
    counts = np.bincount(labels, minlength=4)
    for answers, verdict in ((labels, "better"), (np.full(200, 3), "not better")):
        gain = gain_over_one_grade(
            labels, answers, training_counts=TRAINING, metric=purpose, resamples=100
        )
        assert gain.naive == pytest.approx(getattr(naive_baseline(TRAINING, counts), purpose))
        assert gain.score == pytest.approx(
            (0.0 if purpose == "mae" else 1.0) if verdict == "better" else gain.score
        )
        assert gain.verdict == verdict


def test_the_interval_is_that_of_paired_differences_of_patients() -> None:
    """With one image each, the mean absolute error is a mean: Student's interval, up to the draws.
    One error more, by as many grades as there are, adds the square of what it costs to the
    variance."""
    from scipy.stats import t

    rng = np.random.default_rng(1)
    labels = rng.choice(4, 60, p=np.array(TRAINING) / 18)
    answers = np.clip(labels + rng.choice([-1, 0, 0, 1], 60), 0, 3)
    gain = gain_over_one_grade(
        labels, answers, training_counts=TRAINING, metric="mae", resamples=4000
    )
    own = np.abs(labels - one_grade(TRAINING, "mae")) - np.abs(labels - answers)
    off = np.abs(labels - answers)
    more = (off.sum() + np.maximum(labels, 3 - labels).mean()) / 61 - off.mean()
    low = own.mean() - t.ppf(0.975, 59) * math.sqrt(own.var(ddof=1) / 60 + more**2)
    assert skew(own) > 0.0  # else, see the next test
    assert gain.low == pytest.approx(low, abs=0.003)


def test_the_lower_end_allows_for_patients_who_lose_much() -> None:
    """Johnson's correction of Student's t, by hand."""
    gains = np.repeat([1.0, -3.0], [85, 15])
    rng = np.random.default_rng(0)
    weights = rng.standard_exponential((20_000, 100))
    draws = weights @ gains / weights.sum(axis=1)
    t_value = 1.96
    by_hand = -skew(gains) * (2 * t_value**2 + 1) / (6 * 100**0.5) / t_value  # of a half-width
    assert _skewed_downwards(draws) == pytest.approx(by_hand, rel=0.1)
    assert _skewed_downwards(-draws) == 0.0  # few patients who gain much: the end is low enough
    assert _skewed_downwards(np.full(9, 0.1)) == 0.0


def test_patients_who_all_have_the_one_grade_are_lost_together() -> None:
    """Answers that are wrong one by one, beside patients whose four images are all right by one
    grade for all: an error more weighs four images."""
    naive = np.repeat(np.arange(30) < 6, 4)
    right = np.arange(120) % 5 == 0
    labels = np.where(naive, 0, 1)
    answers = np.where(right, labels, 1 - labels)
    patients = np.repeat(np.arange(30), 4).astype(str).tolist()

    def low(groups: list[str]) -> float:
        return gain_over_one_grade(
            labels, answers, training_counts=[2, 1], metric="accuracy", groups=groups, resamples=500
        ).low

    by_patient = intervals.patient_tables(labels, answers, num_classes=2, groups=patients)
    lost = np.array([[0.0, 1.0], [0.0, -1.0]])
    weight = intervals.images_worth_one(by_patient, lost, np.full(30, 4.0))
    assert weight > 2.0
    more = intervals.one_error_more(by_patient, metrics=["accuracy"], farthest=True, worth=lost)[
        "accuracy"
    ]
    assert more == pytest.approx(right.sum() / (120 + weight) - right.mean())
    draws = [
        intervals.resampled_metrics(
            labels, one, num_classes=2, groups=patients, metrics=["accuracy"], resamples=500
        )["accuracy"]
        for one in (answers, np.zeros(120, dtype=int))
    ]
    student = intervals.t_interval(draws[0] - draws[1], patients=30, added=more**2)[0]
    below = student.value - student.low
    expected = student.low - _skewed_downwards((draws[0] - draws[1])[1:]) * below
    assert low(patients) == pytest.approx(expected)


def test_rare_errors_by_many_grades_are_reckoned_with() -> None:
    """All are right, but for 2 % that are three grades off: as good as always the lowest grade.
    Without the error that has not occurred, one in ten samples was called better."""
    rng, called = np.random.default_rng(0), 0
    for _ in range(200):
        labels = (rng.random(50) < 0.06).astype(np.int64)
        wrong = (labels == 0) & (rng.random(50) < 0.02 / 0.94)
        gain = gain_over_one_grade(
            labels,
            np.where(wrong, 3, labels),
            training_counts=[1, 0, 0, 0],
            metric="mae",
            resamples=100,
        )
        called += gain.verdict == "better"
    assert called <= 5


def test_patients_count_not_images() -> None:
    labels, patients = np.repeat([0, 1, 2, 3, 0, 1, 2, 0, 1], 20), np.repeat(list("abcdefghi"), 20)
    told = {"training_counts": TRAINING, "metric": "mae", "resamples": 50}
    assert gain_over_one_grade(labels, labels, **told).verdict == "better"
    nine = gain_over_one_grade(labels, labels, groups=patients.tolist(), **told)  # too few
    assert (nine.verdict, math.isnan(nine.low)) == ("unclear", True)
    skewed = [str(place) for place in range(60)] + [
        "x"
    ] * 120  # 61 patients, one of whom has most images
    assert math.isnan(gain_over_one_grade(labels, labels, groups=skewed, **told).low)


def test_equal_images_of_a_patient_tell_no_more_than_one() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 30, p=[0.5, 0.2, 0.2, 0.1])
    grades = np.where(rng.random(30) < 0.7, labels, 1)
    told = {"training_counts": TRAINING, "metric": "mae", "resamples": 50}
    once = gain_over_one_grade(labels, grades, groups=[str(k) for k in range(30)], **told)
    often = gain_over_one_grade(
        np.repeat(labels, 8),
        np.repeat(grades, 8),
        groups=[str(k) for k in np.repeat(np.arange(30), 8)],
        **told,
    )
    assert often.low == pytest.approx(once.low)


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 5])
def test_answers_that_gain_nothing_are_seldom_called_better(images: int) -> None:
    """Half of the labels are 0: always 1 is as near as always 0, the one grade. One-sided, 2.5 %
    are promised."""
    rng, called = np.random.default_rng(images), 0
    owner = np.repeat(np.arange(30), images)
    for _ in range(200):
        own = rng.choice(4, 30, p=[0.5, 0.2, 0.2, 0.1])[owner]
        labels = np.where(
            rng.random(len(owner)) < 0.6, own, rng.choice(4, len(owner), p=[0.5, 0.2, 0.2, 0.1])
        )
        gain = gain_over_one_grade(
            labels, np.ones(len(owner), int), training_counts=[1, 0, 0, 0], metric="mae",
            groups=[str(patient) for patient in owner], resamples=100,
        )  # fmt: skip
        called += gain.verdict == "better"
    assert called <= 12  # 5 are expected; 12 or more by chance once in 200
