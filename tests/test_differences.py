"""Intervals of a difference that contain patients and trainings, by simulation (benchmarks/evidence/differences.py)."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from srjt.errors import SrjtError

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "evidence"))

from differences import crossed_difference

PATIENTS, RESAMPLES = 60, 200
DRAWS = np.random.default_rng(0).multinomial(PATIENTS, np.full(PATIENTS, 1 / PATIENTS), RESAMPLES) / PATIENTS


def simulate(random: np.random.Generator, *, trainings: int, patient: float, training: float, both: float):
    """Differences (trainings, 1 + resamples) of a metric that is a mean over patients, with a true mean of 0."""
    effect = (
        patient * random.normal(size=PATIENTS)
        + training * random.normal(size=(trainings, 1))
        + both * random.normal(size=(trainings, PATIENTS))
    )
    return np.concatenate([effect.mean(axis=1, keepdims=True), effect @ DRAWS.T], axis=1)


def coverage(simulations: int, **how) -> float:
    random = np.random.default_rng(7)
    found = (crossed_difference(simulate(random, **how), patients=PATIENTS) for _ in range(simulations))
    return float(np.mean([one.low <= 0 <= one.high for one in found]))


@pytest.mark.parametrize("trainings", [2, 3, 5])
@pytest.mark.parametrize(
    "spread",
    [
        {"patient": 1.0, "training": 0.13, "both": 0.5},  # 1/√60: both parts alike
        {"patient": 1.0, "training": 0.05, "both": 0.0},
        {
            "patient": 0.3,
            "training": 0.2,
            "both": 1.0,
        },  # most of the variance between patients differs by training
    ],
)
def test_with_both_sources_the_interval_covers_at_least_its_level(
    trainings: int, spread: dict[str, float]
) -> None:
    n = 600
    found = coverage(n, trainings=trainings, **spread)
    error = 3 * math.sqrt(0.95 * 0.05 / n)
    assert found >= 0.95 - error
    if trainings == 5:  # with two it covers up to 99 %
        assert found <= 0.97 + error


def test_trainings_alone_are_the_paired_t_test() -> None:
    values = np.array([0.02, 0.01, 0.03, 0.00, 0.04])
    found = crossed_difference(np.repeat(values[:, None], 5, axis=1), patients=100)
    known = stats.ttest_1samp(values, 0.0)
    interval = known.confidence_interval(0.95)
    assert found.value == pytest.approx(0.02)
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_patients_alone_are_the_standard_error_of_the_draws() -> None:
    draws = np.array([0.1, 0.05, 0.2, 0.1, 0.15, 0.0])
    found = crossed_difference(np.stack([draws, draws]), patients=41)
    half = stats.t.ppf(0.975, 40) * draws[1:].std(ddof=1)
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.1 / draws[1:].std(ddof=1), 40), rel=1e-6)


def test_what_patients_and_trainings_share_is_counted_once() -> None:
    """Two trainings whose draws are uncorrelated: each has the variance 0.04/3, their mean half, so the interaction
    is 0.02/3; between trainings it is 0.02/2. Together 0.02/3 + 0.01 − 0.02/3 = 0.01."""
    found = crossed_difference([[0.1, 0.2, 0.0, 0.2, 0.0], [0.3, 0.4, 0.4, 0.2, 0.2]], patients=41)
    share = 0.01 / (0.01 + 0.02 / 3)  # of the trainings, before the interaction is taken out
    half = ((1 - share) * stats.t.ppf(0.975, 40) + share * stats.t.ppf(0.975, 1)) * 0.1
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))


@given(st.integers(2, 5), st.integers(0, 10**6), st.floats(-2, 2))
def test_the_p_value_is_where_the_interval_touches_zero(trainings: int, seed: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    values = shift + simulate(random, trainings=trainings, patient=1.0, training=0.3, both=0.3)
    found = crossed_difference(values, patients=PATIENTS)
    if 1e-9 < found.p_value < 1 - 1e-9:
        edge = crossed_difference(values, patients=PATIENTS, level=1 - found.p_value)
        assert min(abs(edge.low), abs(edge.high)) == pytest.approx(0, abs=1e-6)
    mirrored = crossed_difference(-values, patients=PATIENTS)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    assert mirrored.p_value == pytest.approx(found.p_value)


def test_one_training_has_no_interval_and_equal_ones_no_width() -> None:
    alone = crossed_difference([[0.1, 0.0, 0.2]], patients=10)
    assert alone.value == 0.1
    assert math.isnan(alone.low)
    assert math.isnan(alone.p_value)
    assert crossed_difference(np.zeros((2, 5)), patients=10) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"draws": [0.1, 0.2]}, "a row per training"),
        ({"draws": [[0.1, 0.2]]}, "at least two resampled"),
        ({"patients": 1}, "at least two patients; got 1"),
        ({"level": 95.0}, "between 0 and 1"),
    ],
)
def test_impossible_arguments_are_refused(wrong: dict, sentence: str) -> None:
    given = {"draws": [[0.1, 0.1, 0.2]] * 2, "patients": 9, **wrong}
    with pytest.raises(SrjtError, match=sentence):
        crossed_difference(given.pop("draws"), **given)
