"""Refer or not: operating points, thresholds, abstention."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score

from srjt.errors import SrjtError
from srjt.ordinal.decisions import (
    abstention_cut,
    decision_confidence,
    operating_point,
    proportion_interval,
    referral_probability,
    threshold_for_sensitivity,
)

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=1, max_size=60)


@given(pairs=PAIRS)
def test_shares_agree_with_scikit_learn_and_lie_in_their_intervals(
    pairs: list[tuple[bool, bool, int]],
) -> None:
    positive, referred, patients = (np.array(column) for column in zip(*pairs, strict=True))
    found = operating_point(positive, referred, groups=patients.tolist())
    expected = {
        "sensitivity": recall_score(positive, referred, zero_division=np.nan),
        "specificity": recall_score(~positive, ~referred, zero_division=np.nan),
        "positive_predictive_value": precision_score(positive, referred, zero_division=np.nan),
        "negative_predictive_value": precision_score(~positive, ~referred, zero_division=np.nan),
    }
    for name, (value, low, high) in found.items():
        assert value == pytest.approx(expected[name], nan_ok=True)
        assert math.isnan(value) or 0 <= low <= value <= high <= 1


def test_independent_samples_have_wilsons_interval() -> None:
    from scipy.stats import norm, t

    n = 200
    found = proportion_interval([True] * 150 + [False] * 50)
    # the formula of the textbook, with the effective number for few samples
    z = norm.ppf(0.975)
    # the variance between samples has n − 1 in its denominator
    m = (n - 1) * (z / t.ppf(0.975, n - 1)) ** 2
    centre, half = (
        0.75 + z**2 / (2 * m),
        z * math.sqrt(0.75 * 0.25 / m + z**2 / (4 * m**2)),
    )
    assert found.low == pytest.approx((centre - half) / (1 + z**2 / m))
    assert found.high == pytest.approx((centre + half) / (1 + z**2 / m))


def test_ten_copies_of_a_patients_image_add_nothing() -> None:
    right = [True] * 15 + [False] * 5
    once = proportion_interval(right)
    copied = proportion_interval(np.repeat(right, 10), groups=np.repeat(np.arange(20), 10).tolist())
    assert copied == pytest.approx(once)
    assert proportion_interval(np.repeat(right, 10)).low > copied.low
    copies = 1 + np.arange(20) % 3  # of equal weight together
    weights, owners = np.repeat(1 / copies, copies), np.repeat(np.arange(20), copies).tolist()
    weighted = proportion_interval(np.repeat(right, copies), groups=owners, weights=weights)
    assert weighted == pytest.approx(copied)


def test_a_perfect_share_is_not_certain_and_depends_on_the_patients() -> None:
    few = proportion_interval([True] * 100, groups=[str(i % 5) for i in range(100)])
    many = proportion_interval([True] * 100, groups=[str(i) for i in range(100)])
    assert few.high == many.high == 1.0
    assert few.low < 0.6 < 0.95 < many.low
    assert proportion_interval([True] * 1000, groups=["one"] * 1000) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("share", [0.7, 0.95])
def test_intervals_cover_the_share_of_patients_who_differ(share: float) -> None:
    """30 patients with one to eight images each; images of a patient are alike (beta-binomial)."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        sizes = rng.integers(1, 9, 30)
        owners = np.repeat(np.arange(30), sizes)
        own = rng.beta(4 * share, 4 * (1 - share), 30)
        found = proportion_interval(rng.random(len(owners)) < own[owners], groups=owners.tolist())
        covered += found.low <= share <= found.high
    assert covered / 400 > 0.92  # three standard errors below 0.95


@given(
    scores=st.lists(st.integers(0, 20), min_size=1, max_size=60),
    wanted=st.sampled_from([0.5, 0.8, 0.9, 0.95]),
)
def test_the_threshold_reaches_its_sensitivity_and_no_higher_one_does(
    scores: list[int], wanted: float
) -> None:
    s = np.array(scores) / 20
    threshold, n, reached = threshold_for_sensitivity(np.ones(len(s), bool), s, sensitivity=wanted)
    assert n == len(s)
    assert reached == (n / (n + 1) >= wanted)
    if reached:
        assert (s >= threshold).sum() / (n + 1) >= wanted
        assert (s > threshold).sum() / (n + 1) < wanted
    else:
        assert threshold == s.min()


def test_the_threshold_keeps_its_promise_on_new_samples() -> None:
    """On average over validation sets; the quantile of the validation set itself would give 0.905."""
    rng = np.random.default_rng(3)
    kept = [
        1 - threshold_for_sensitivity(np.ones(20, bool), rng.random(20), sensitivity=0.95).threshold
        for _ in range(4000)
    ]
    assert np.mean(kept) == pytest.approx(20 / 21, abs=0.004)


def test_the_probability_of_a_referral() -> None:
    p = np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]])
    assert referral_probability(p, refer_from=2).tolist() == pytest.approx([0.7, 0.0])
    for wrong in (0, 4, -1):
        with pytest.raises(SrjtError, match="refer_from must lie in 1"):
            referral_probability(p, refer_from=wrong)


@given(
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    threshold=st.floats(0, 1),
    share=st.sampled_from([0.05, 0.1, 0.5, 0.9]),
)
def test_confidence_and_abstention(scores: list[float], threshold: float, share: float) -> None:
    confidence = decision_confidence(scores, threshold=threshold)
    assert ((confidence >= 0) & (confidence <= 1)).all()
    cut = abstention_cut(confidence, share=share)
    assert (confidence < cut).mean() <= share + 1e-9
    if len(set(confidence.tolist())) == len(confidence):  # without ties the share is used
        assert (confidence < cut).sum() == int(share * len(confidence) + 1e-9)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_wishes(wrong: float) -> None:
    with pytest.raises(SrjtError, match="A sensitivity lies between 0 and 1"):
        threshold_for_sensitivity([True], [0.5], sensitivity=wrong)
    with pytest.raises(SrjtError, match="share to abstain from lies between 0 and 1"):
        abstention_cut([0.5], share=wrong)


def test_no_positive_sample() -> None:
    with pytest.raises(SrjtError, match="There is no positive sample"):
        threshold_for_sensitivity([False], [0.5], sensitivity=0.9)
