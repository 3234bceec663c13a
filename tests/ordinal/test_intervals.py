"""Intervals of metrics and of differences, and Holm's correction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from srjt.errors import SrjtError
from srjt.ordinal.intervals import bootstrap_metrics, crossed_difference, holm, resampled_metrics
from srjt.ordinal.metrics import METRICS

# Intervals by resampling patients.


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=40
    ),
    level=st.sampled_from([0.5, 0.9, 0.95]),
)
def test_every_metric_has_an_ordered_interval_of_possible_values(
    pairs: list[tuple[int, int, int]], level: float
) -> None:
    true, predicted, patients = (list(column) for column in zip(*pairs, strict=True))
    found = bootstrap_metrics(true, predicted, num_classes=4, groups=patients, resamples=50, level=level)
    assert found.keys() == METRICS.keys()
    for name, (_, low, high) in found.items():
        assert np.isnan(low) or low <= high
        if name in ("accuracy", "macro_f1", "one_off"):
            assert 0 <= low <= high <= 1


def test_the_value_is_the_metric_of_all_samples() -> None:
    found = bootstrap_metrics([0, 1, 2, 2], [0, 1, 1, 0], num_classes=3, resamples=10)
    assert found["accuracy"].value == 0.5
    assert found["mae"].value == pytest.approx(3 / 4)


def test_against_a_plain_bootstrap_over_patients() -> None:
    """Drawing patients with replacement and recounting, with another generator: the same up to chance."""
    rng = np.random.default_rng(3)
    patients = np.repeat(np.arange(30), rng.integers(1, 8, 30))
    true = rng.integers(0, 3, len(patients))
    predicted = np.where(rng.random(len(true)) < 0.6, true, rng.integers(0, 3, len(true)))
    rows = [np.flatnonzero(patients == p) for p in range(30)]
    drawn = []
    for _ in range(4000):
        chosen = np.concatenate([rows[p] for p in rng.integers(0, 30, 30)])
        drawn.append(np.mean(true[chosen] == predicted[chosen]))
    found = bootstrap_metrics(
        true, predicted, num_classes=3, groups=[f"p{p}" for p in patients], resamples=4000
    )["accuracy"]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.012)
    assert found.high == pytest.approx(high, abs=0.012)
    assert found.low < found.value < found.high


def test_patients_whose_images_stand_and_fall_together_make_it_wider() -> None:
    patients = np.repeat(np.arange(20), 10)
    true = np.zeros(200, dtype=int)
    predicted = (patients % 2).astype(int)  # all right or all wrong
    by_patient = bootstrap_metrics(true, predicted, num_classes=2, groups=patients.tolist())["accuracy"]
    by_image = bootstrap_metrics(true, predicted, num_classes=2)["accuracy"]
    assert by_patient.value == by_image.value == 0.5
    assert by_patient.high - by_patient.low > 2.5 * (by_image.high - by_image.low)


def test_one_patient_leaves_nothing_to_resample() -> None:
    found = bootstrap_metrics([0, 1, 1], [0, 1, 0], num_classes=2, groups=["a", "a", "a"])["accuracy"]
    assert found.low == found.value == found.high


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    one, same, other = (bootstrap_metrics(true, predicted, num_classes=3, seed=s) for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_metric_that_is_undefined_stays_so() -> None:
    found = bootstrap_metrics([1, 1], [1, 1], num_classes=3)
    assert np.isnan(found["qwk"].value)
    assert np.isnan(found["qwk"].low)
    assert found["accuracy"] == (1.0, 1.0, 1.0)


def test_a_wider_level_is_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    narrow, wide = (bootstrap_metrics(true, predicted, num_classes=3, level=lv)["mae"] for lv in (0.5, 0.99))
    assert wide.low < narrow.low <= narrow.high < wide.high


def test_lengths_must_fit() -> None:
    for true, predicted in (([], []), ([1], [1, 0])):
        with pytest.raises(SrjtError, match="there must be as many of both"):
            bootstrap_metrics(true, predicted, num_classes=2)


def test_two_methods_on_the_same_patients_are_resampled_alike() -> None:
    """One that is wrong on exactly one image more: each draw differs by how often that image's patient was drawn."""
    true, patients = np.array([0, 1, 1, 2, 0, 2]), ["a", "a", "b", "b", "c", "c"]
    worse = true.copy()
    worse[2] = 2
    how: dict[str, Any] = {"num_classes": 3, "groups": patients, "resamples": 40, "metrics": ["accuracy"]}
    right, wrong = (resampled_metrics(true, said, **how)["accuracy"] for said in (true, worse))
    assert (right == 1.0).all()
    gap = (right - wrong) * 6  # times that patient b was drawn
    assert gap[0] == pytest.approx(1.0)
    assert gap == pytest.approx(gap.round())
    assert set(gap[1:].round().astype(int)) == {0, 1, 2, 3}
    assert right.shape == (41,)


# Intervals of a difference that contain patients and trainings, by simulation; Holm's correction by hand.

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
        {"patient": 1.0, "training": 0.26, "both": 0.5},
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


@pytest.mark.parametrize("trainings", [2, 4])
def test_with_one_source_the_coverage_is_nominal(trainings: int) -> None:
    n = 800
    error = 3 * math.sqrt(0.95 * 0.05 / n)
    assert coverage(n, trainings=trainings, patient=0.0, training=1.0, both=0.0) == pytest.approx(
        0.95, abs=error
    )
    # patients alone: the interaction is estimated, so a little less is not excluded
    assert coverage(n, trainings=trainings, patient=1.0, training=0.0, both=0.0) == pytest.approx(
        0.95, abs=error
    )


def test_resampling_patients_alone_does_not_cover_other_trainings() -> None:
    """The reason for this module."""
    random, covered = np.random.default_rng(3), []
    for _ in range(300):
        values = simulate(random, trainings=3, patient=1.0, training=0.26, both=0.5)
        low, high = np.quantile(values.mean(axis=0)[1:], [0.025, 0.975])
        covered.append(low <= 0 <= high)
    assert np.mean(covered) < 0.85


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


def test_it_takes_the_draws_of_resampled_metrics() -> None:
    random = np.random.default_rng(1)
    true = random.integers(0, 4, 200)
    patients = (np.arange(200) // 4).tolist()
    good = [np.where(random.random(200) < 0.8, true, random.integers(0, 4, 200)) for _ in range(3)]
    poor = [np.where(random.random(200) < 0.3, true, random.integers(0, 4, 200)) for _ in range(3)]
    draws = [
        resampled_metrics(true, a, num_classes=4, groups=patients, metrics=["mae"], resamples=300)["mae"]
        - resampled_metrics(true, b, num_classes=4, groups=patients, metrics=["mae"], resamples=300)["mae"]
        for a, b in zip(good, poor, strict=True)
    ]
    found = crossed_difference(draws, patients=50)
    assert found.high < 0
    assert found.p_value < 0.05


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


def test_holm_by_hand() -> None:
    # sorted: 0.005 · 4, 0.01 · 3, 0.03 · 2, 0.04 · 1 → raised to the one before
    assert holm([0.04, 0.01, 0.03, 0.005]).tolist() == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
    some = holm([math.nan, 0.02, 0.5])
    assert math.isnan(some[0])
    assert some[1:].tolist() == pytest.approx([0.04, 0.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_never_below_the_p_value_and_keeps_its_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert (adjusted >= np.array(values) - 1e-15).all()
    assert (adjusted <= 1).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    assert adjusted.min() == pytest.approx(min(1.0, len(values) * min(values)))
