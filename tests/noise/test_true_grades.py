"""Weights of the true grades, given labels that may be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from srjt import noise
from srjt.noise.estimate import estimate_noise
from srjt.noise.true_grades import (
    KnownNoise,
    estimated_noise,
    given_noise,
    inverse_weights,
    posterior_weights,
    scaled_joint,
    transition_of,
)

MATRIX = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
JOINT = PRIOR[:, None] * MATRIX


def test_a_given_matrix_and_the_labels_give_the_joint_distribution() -> None:
    found = given_noise(MATRIX, PRIOR @ MATRIX)
    assert found.joint == pytest.approx(JOINT, abs=1e-5)
    assert transition_of(found.joint) == pytest.approx(MATRIX)
    assert found.rates == pytest.approx((1 - np.trace(JOINT),) * 2, abs=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5])
def test_errors_become_more_or_less_frequent(rate: float) -> None:
    scaled = scaled_joint(JOINT, rate=rate)
    assert scaled.sum() == pytest.approx(1.0)
    assert 1 - np.trace(scaled) == pytest.approx(rate)
    clean = scaled_joint(np.diag(PRIOR), rate=rate)  # no error is known: neighbours
    assert 1 - np.trace(clean) == pytest.approx(rate)
    assert clean[0, 2] == clean[3, 1] == 0.0


def test_how_far_labels_are_wrong() -> None:
    known = KnownNoise(joint=JOINT, rates=(0.1, 0.3), determined=True)
    tails = [known.wrong_by(d) for d in range(5)]
    assert tails[0] == pytest.approx(1.0)
    assert tails[1] == pytest.approx(0.3)
    assert tails == sorted(tails, reverse=True)
    assert tails[4] == 0.0
    assert (1 - np.trace(known.lowest()), 1 - np.trace(known.highest())) == pytest.approx((0.1, 0.3))


def test_posterior_weights_are_bayes_rule() -> None:
    weights = posterior_weights(np.array([0, 3]), JOINT)
    assert weights[0] == pytest.approx(JOINT[:, 0] / JOINT[:, 0].sum())
    assert weights.sum(axis=1) == pytest.approx(1.0)
    never = np.array([[0.5, 0.0], [0.5, 0.0]])  # label 1 does not occur
    assert posterior_weights(np.array([1]), never).tolist() == [[0.0, 1.0]]


def test_inverse_weights_are_unbiased() -> None:
    # Σ_j P[i, j] (P⁻¹)[j, c] is 1 for c = i, else 0: labels of true grade i count as grade i on average
    rows = inverse_weights(np.arange(4), JOINT)
    assert rows is not None
    assert MATRIX @ rows == pytest.approx(np.eye(4), abs=1e-12)
    assert rows.sum(axis=1) == pytest.approx(1.0)
    assert inverse_weights(np.arange(2), np.full((2, 2), 0.25)) is None


def test_an_estimate_with_its_interval() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 400)
    p = np.eye(4)[true] * 0.7 + 0.075
    estimate = estimate_noise(noise.corrupt(true, MATRIX, seed=0), p, bootstrap=20)
    found = estimated_noise(estimate)
    assert found.rates == estimate.rate_interval
    assert found.samples == 400
    assert found.joint.sum() == pytest.approx(1.0)
    given = estimated_noise(estimate, rate=0.25)
    assert (given.rates, given.determined) == ((0.25, 0.25), True)
    assert 1 - np.trace(given.joint) == pytest.approx(0.25)
