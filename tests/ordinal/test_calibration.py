"""Calibration and the ranked probability score."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srjt.ordinal.calibration import calibration_bins, expected_calibration_error, ranked_probability_score


def distributions(seed: int, n: int = 400, classes: int = 4) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), n)


def test_bins_by_hand() -> None:
    p = [[0.95, 0.05], [0.91, 0.09], [0.4, 0.6], [0.5, 0.5]]
    found = calibration_bins(p, [0, 1, 1, 0], bins=10)
    assert [(b.samples, b.accuracy) for b in found] == [(1, 1.0), (1, 1.0), (2, 0.5)]
    assert [b.confidence for b in found] == pytest.approx([0.5, 0.6, 0.93])
    error = expected_calibration_error(p, [0, 1, 1, 0], bins=10)
    assert error == pytest.approx((0.5 + 0.4 + 2 * 0.43) / 4)


@given(seed=st.integers(0, 50), bins=st.integers(1, 20))
def test_every_sample_is_in_one_bin(seed: int, bins: int) -> None:
    p = distributions(seed, 30)
    p[0] = [0, 1, 0, 0]  # certain: the upper edge belongs to the last bin
    true = np.random.default_rng(seed).integers(0, 4, 30)
    found = calibration_bins(p, true, bins=bins)
    assert sum(b.samples for b in found) == 30
    assert sum(b.samples * b.accuracy for b in found) == pytest.approx(np.sum(p.argmax(axis=1) == true))
    assert 0 <= expected_calibration_error(p, true, bins=bins) <= 1


def test_honest_probabilities_are_calibrated_and_boastful_ones_are_not() -> None:
    p = distributions(0, 20_000)
    rng = np.random.default_rng(1)
    true = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    assert expected_calibration_error(p, true) < 0.02
    boast = p**5 / (p**5).sum(axis=1, keepdims=True)
    assert expected_calibration_error(boast, true) > 0.2


def test_extremes() -> None:
    sure = np.eye(3)
    assert expected_calibration_error(sure, [0, 1, 2]) == 0
    assert expected_calibration_error(sure, [1, 2, 0]) == 1
    assert ranked_probability_score(sure, [0, 1, 2]) == 0
    assert ranked_probability_score(sure, [2, 1, 0]) == pytest.approx((2 + 0 + 2) / 3)


def test_the_ranked_score_against_its_definition() -> None:
    p, true = distributions(2, 50), np.random.default_rng(2).integers(0, 4, 50)
    total = 0.0
    for row, grade in zip(p, true, strict=True):
        for k in range(3):
            total += (sum(row[: k + 1]) - (1.0 if grade <= k else 0.0)) ** 2
    assert ranked_probability_score(p, true) == pytest.approx(total / 50)


def test_a_neighbour_is_forgiven_more_than_a_distant_grade() -> None:
    near, far = [[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]
    assert ranked_probability_score(near, [0]) == 1
    assert ranked_probability_score(far, [0]) == 3
