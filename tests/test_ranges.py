"""Ranges of grades for anybody's probabilities: they keep their promise in simulations."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from refusals import refuses
from srjt import OrdinalRanges, noise
from srjt.reports.aspects.ranges import promise_in_words

MATRIX = noise.transition_matrix("truncated", num_classes=4, rho=0.15)


def simulate(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) probabilities of an over-confident classifier, and (N,) true grades."""
    rng = np.random.default_rng(seed)
    true = rng.choice(4, size=count, p=[0.4, 0.3, 0.2, 0.1])
    seen = true + rng.normal(scale=0.8, size=count)
    p = np.exp(-2.0 * (seen[:, None] - np.arange(4)) ** 2)
    return p / p.sum(axis=1, keepdims=True), true


def covered(ranges: np.ndarray, true: np.ndarray) -> float:
    low, high = ranges.T
    return float(np.mean((low <= true) & (true <= high)))


def coverages(draws: int, *, wrong: bool, **settings: Any) -> np.ndarray:
    """(draws, 2) coverage of the true grades and mean width, each of its own calibration set."""
    new, truth = simulate(2000, seed=999)
    found = []
    for seed in range(draws):
        p, y = simulate(300, seed=seed)
        if wrong:
            y = noise.corrupt(y, MATRIX, seed=seed)
        predicted = OrdinalRanges(coverage=0.8, **settings).fit(p, y).predict(new)
        found.append([covered(predicted, truth), (predicted[:, 1] - predicted[:, 0] + 1).mean()])
    return np.array(found)


@pytest.mark.slow
def test_right_labels_are_covered_as_promised() -> None:
    """On average over calibration sets, and not by the range of all grades. The standard error of
    the mean is 0.005."""
    mean, width = coverages(30, wrong=False, label_noise="none").mean(axis=0)
    assert 0.79 < mean < 0.84  # scores are discrete: a little above
    assert width < 2.2


@pytest.mark.slow
def test_true_grades_are_covered_although_labels_are_wrong() -> None:
    """Ranges that trust the labels cover too much, because wrong labels look like hard samples; the
    matrix makes them narrower."""
    trusting, wide = coverages(30, wrong=True, label_noise="none").mean(axis=0)
    mean, narrow = coverages(
        30, wrong=True, label_noise="class-conditional", transition=MATRIX
    ).mean(axis=0)
    estimated, _ = coverages(6, wrong=True, label_noise="unknown").mean(axis=0)
    assert mean > 0.79
    assert narrow < wide
    assert trusting > 0.84
    assert estimated > 0.79


@pytest.mark.slow
def test_each_grade_is_covered() -> None:
    new, truth = simulate(4000, seed=999)
    rare = []
    for each_grade in (False, True):
        shares = []
        for seed in range(20):
            p, y = simulate(400, seed=seed)
            ranges = OrdinalRanges(coverage=0.8, label_noise="none", each_grade=each_grade)
            predicted = ranges.fit(p, y).predict(new)
            shares.append([covered(predicted[truth == c], truth[truth == c]) for c in range(4)])
        rare.append(np.mean(shares, axis=0).min())
    assert rare[1] > 0.78
    assert rare[0] < rare[1]


def test_patients_and_verified_grades_are_used() -> None:
    p, true = simulate(300, seed=0)
    y = noise.corrupt(true, MATRIX, seed=0)
    groups = np.arange(300) // 3
    verified = np.where(np.arange(300) % 2 == 0, true, -1)
    ranges = OrdinalRanges(coverage=0.8, label_noise="none")
    assert clone(ranges).fit(p, y, groups).rule_.patients == 100
    assert clone(ranges).fit(p, y, groups, verified).rule_.basis == "verified"
    assert "at least 80%" in promise_in_words(clone(ranges).fit(p, y).rule_.promise)


def test_too_few_samples_give_the_range_of_all_grades() -> None:
    p, y = simulate(5, seed=0)
    ranges = OrdinalRanges(coverage=0.9, label_noise="none").fit(p, y)
    assert np.isinf(ranges.thresholds_).all()
    assert ranges.predict(p).tolist() == [[0, 3]] * 5


@pytest.mark.parametrize(
    ("p", "y", "refused"),
    [
        (np.ones(3), [0, 0, 0], ("wrong_shape",)),
        (np.ones((2, 2)), [0, 1], ("wrong_values",)),
        (np.full((2, 2), 0.5), [0, 2], ("unknown_grade", "", "from 0 to")),
        (np.full((2, 2), 0.5), [0.0, 1.0], ("unknown_grade", "", "a whole number")),
        (np.full((2, 2), 0.5), [0], ("unknown_grade", "", "one grade per")),
    ],
)
def test_inputs_are_checked(p: Any, y: Any, refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        OrdinalRanges().fit(p, y)


def test_other_grades_than_fitted_are_an_error() -> None:
    p, y = simulate(100, seed=0)
    ranges = OrdinalRanges(label_noise="none").fit(p, y)
    with refuses("wrong_shape", says="4 grades"):
        ranges.predict(np.full((3, 2), 0.5))
