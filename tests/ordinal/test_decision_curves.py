"""Curves over all thresholds, with scikit-learn as the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics

from srjt.errors import SrjtError
from srjt.ordinal.decision_curves import (
    areas,
    net_benefit,
    precision_recall_curve,
    risk_coverage_curve,
    roc_curve,
    thin,
)

SAMPLES = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=2, max_size=50)


def both(samples: list[tuple[bool, int]]) -> tuple[np.ndarray, np.ndarray]:
    y, s = (np.array(column) for column in zip(*samples, strict=True))
    assume(y.any() and not y.all())
    return y, s / 8


@given(samples=SAMPLES)
def test_curves_and_areas_are_those_of_scikit_learn(samples: list[tuple[bool, int]]) -> None:
    y, s = both(samples)
    roc = roc_curve(y, s)
    fpr, tpr, thresholds = metrics.roc_curve(y, s, drop_intermediate=False)
    assert roc.false_positive_rate == pytest.approx(fpr)
    assert roc.sensitivity == pytest.approx(tpr)
    assert roc.threshold == pytest.approx(thresholds)
    found = areas(y, s, resamples=5)
    assert found["roc_area"].value == pytest.approx(metrics.roc_auc_score(y, s))
    assert found["average_precision"].value == pytest.approx(metrics.average_precision_score(y, s))
    curve = precision_recall_curve(y, s)
    precision, recall, thresholds = metrics.precision_recall_curve(y, s)  # from the mildest, one point more
    assert curve.precision[::-1] == pytest.approx(precision[:-1])
    assert curve.sensitivity[::-1] == pytest.approx(recall[:-1])
    assert curve.threshold[::-1] == pytest.approx(thresholds)


def test_intervals_of_areas_resample_patients() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(40) < 0.5
    s = np.clip(0.5 + 0.2 * (y - 0.5) + 0.25 * rng.standard_normal(40), 0, 1)
    once = areas(y, s, groups=list(range(40)), resamples=400)
    copied = areas(
        np.repeat(y, 5), np.repeat(s, 5), groups=np.repeat(np.arange(40), 5).tolist(), resamples=400
    )
    for name in once:
        assert copied[name] == pytest.approx(once[name])  # copies change nothing
        assert once[name].low < once[name].value < once[name].high
    apart = areas(np.repeat(y, 5), np.repeat(s, 5), resamples=400)["roc_area"]
    assert apart.high - apart.low < copied["roc_area"].high - copied["roc_area"].low


def test_an_area_of_one_draw_is_that_of_the_drawn_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    from srjt.ordinal import decision_curves

    rng = np.random.default_rng(1)
    y, s = rng.random(30) < 0.4, rng.integers(0, 9, 30) / 8
    whole = areas(y, s, groups=[str(i // 3) for i in range(30)], resamples=50)
    monkeypatch.setattr(decision_curves, "_BLOCK", 100)  # many small blocks
    assert areas(y, s, groups=[str(i // 3) for i in range(30)], resamples=50) == whole


@given(samples=SAMPLES)
def test_the_decision_curve_counts_what_it_says(samples: list[tuple[bool, int]]) -> None:
    y, s = both(samples)
    curve = net_benefit(y, s)
    for t, found, everyone in zip(*curve, strict=True):
        tp, fp = ((s >= t) & y).sum(), ((s >= t) & ~y).sum()
        assert found == pytest.approx((tp - fp * t / (1 - t)) / len(y))
        assert everyone == pytest.approx((y.sum() - (~y).sum() * t / (1 - t)) / len(y))
    assert (curve.model <= y.mean() + 1e-12).all()  # a perfect model reaches the prevalence


def test_perfect_probabilities_reach_the_prevalence_at_every_threshold() -> None:
    y = np.array([True, True, False, False, False])
    assert net_benefit(y, y.astype(float)).model == pytest.approx(np.full(99, 0.4))


@given(
    samples=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40),
)
def test_risk_and_coverage(samples: list[tuple[int, bool]]) -> None:
    confidence, wrong = (np.array(column, dtype=float) for column in zip(*samples, strict=True))
    coverage, risk = risk_coverage_curve(confidence, wrong)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(wrong.mean())
    for share, value in zip(coverage, risk, strict=True):
        kept = np.sort(confidence)[::-1][round(share * len(wrong)) - 1]
        assert value == pytest.approx(wrong[confidence >= kept].mean())


def test_bad_input() -> None:
    with pytest.raises(SrjtError, match="There is no positive sample"):
        roc_curve([False, False], [0.1, 0.2])
    with pytest.raises(SrjtError, match="There is no negative sample"):
        areas([True], [0.1])
    with pytest.raises(SrjtError, match="lists of one length"):
        roc_curve([True, False], [0.1])
    with pytest.raises(SrjtError, match="lists of one length"):
        risk_coverage_curve([], [])
    with pytest.raises(SrjtError, match="between 0 and 1"):
        net_benefit([True], [0.5], thresholds=[1.0])


def test_a_thinned_curve_keeps_its_ends() -> None:
    values = np.linspace(0, 1, 10_001)
    assert thin(values)[[0, -1]].tolist() == [0.0, 1.0]
    assert len(thin(values)) == 400
