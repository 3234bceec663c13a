"""Intervals of metrics and of differences, and Holm's correction."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import beta, norm as normal, t as student, ttest_ind

from refusals import refuses
from srjt.ordinal import metrics
from srjt.ordinal.intervals import (
    bootstrap_metrics,
    effective_counts,
    effective_patients,
    holm,
    images_worth_one,
    one_error_more,
    patient_draws,
    patients_behind,
    patients_of_grades,
    percentile_interval,
    percentile_tails,
    resampled_metrics,
    score_draws,
    t_interval,
)


def test_against_a_plain_bootstrap_over_patients() -> None:
    """Drawing patients with replacement and recounting: the same spread, but for √(n / (n + 1)),
    and middle."""
    rng = np.random.default_rng(3)
    patients = np.repeat(np.arange(30), rng.integers(1, 8, 30))
    true = rng.integers(0, 3, len(patients))
    predicted = np.where(rng.random(len(true)) < 0.6, true, rng.integers(0, 3, len(true)))
    rows = [np.flatnonzero(patients == p) for p in range(30)]
    drawn = []
    for _ in range(4000):
        chosen = np.concatenate([rows[p] for p in rng.integers(0, 30, 30)])
        drawn.append(np.mean(true[chosen] == predicted[chosen]))
    names = [f"p{p}" for p in patients]
    intervals = bootstrap_metrics(true, predicted, num_classes=3, groups=names, resamples=4000)
    assert intervals.keys() == metrics.METRICS.keys()
    assert all(one.low <= one.value <= one.high for one in intervals.values())
    ours = resampled_metrics(true, predicted, num_classes=3, groups=names, resamples=4000)[
        "accuracy"
    ]
    assert ours[1:].std() * math.sqrt(31 / 30) == pytest.approx(np.std(drawn), rel=0.05)
    assert ours[1:].mean() == pytest.approx(np.mean(drawn), abs=0.003)
    # a little wider than the percentiles, for one more error and for Student's quantile
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert low - 0.03 < intervals["accuracy"].low < low
    assert high < intervals["accuracy"].high < high + 0.03


def test_patients_whose_images_stand_and_fall_together_make_it_wider() -> None:
    patients = np.repeat(np.arange(20), 10)
    true = np.zeros(200, dtype=int)
    predicted = (patients % 2).astype(int)  # all right or all wrong
    by_patient = bootstrap_metrics(true, predicted, num_classes=2, groups=patients.tolist())[
        "accuracy"
    ]
    by_image = bootstrap_metrics(true, predicted, num_classes=2)["accuracy"]
    assert by_patient.value == by_image.value == 0.5
    assert by_patient.high - by_patient.low > 2.5 * (by_image.high - by_image.low)
    one = bootstrap_metrics([0, 1, 1], [0, 1, 0], num_classes=2, groups=["a", "a", "a"])["accuracy"]
    assert np.isnan(one[1:]).all()  # nothing to resample


def test_the_seed_decides_and_what_is_undefined_stays_so() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    one, same, other = (
        bootstrap_metrics(true, predicted, num_classes=3, seed=s) for s in (1, 1, 2)
    )
    assert one == same != other
    constant = bootstrap_metrics([1, 1], [1, 1], num_classes=3)
    assert np.isnan(constant["qwk"]).all()
    assert constant["accuracy"].low < 0.5
    assert constant["accuracy"].high == 1.0
    with refuses("wrong_shape"):
        bootstrap_metrics([1], [1, 0], num_classes=2)


def test_two_methods_on_the_same_patients_are_resampled_alike() -> None:
    """One that is wrong on exactly one image more: each draw differs by how often that image's
    patient was drawn."""
    true, patients = np.array([0, 1, 1, 2, 0, 2]), ["a", "a", "b", "b", "c", "c"]
    worse = true.copy()
    worse[2] = 2
    how: dict[str, Any] = {
        "num_classes": 3,
        "groups": patients,
        "resamples": 40,
        "metrics": ["accuracy"],
    }
    right, wrong = (resampled_metrics(true, said, **how)["accuracy"] for said in (true, worse))
    assert (right == 1.0).all()
    gap = (right - wrong) * 6  # the weight of patient b
    weights = np.concatenate([*patient_draws(3, 40, seed=0)])
    assert gap == pytest.approx(weights[:, 1])
    assert weights.sum(axis=1) == pytest.approx(3.0)
    assert weights[0] == pytest.approx(1.0)
    assert right.shape == (41,)


def test_the_tails_of_an_interval_are_equal() -> None:
    drawn = [0.7, *np.linspace(0, 1, 101)]
    assert percentile_interval(drawn, patients=10**9, level=0.9) == pytest.approx((0.7, 0.05, 0.95))


@pytest.mark.parametrize("patients", [4, 12, 400])
def test_the_percentiles_of_few_patients_are_those_of_students_interval(patients: int) -> None:
    """Draws of a mean are nearly normal, with variance (n − 1)/n · s²/(n + 1) for the standard
    deviation s of n patients."""
    spread = 2.0
    draws = 1.0 + spread * math.sqrt((patients - 1) / patients / (patients + 1)) * normal.ppf(
        np.linspace(0, 1, 10**5 + 1)[1:-1]
    )
    found = percentile_interval([1.0, *draws], patients=patients, level=0.8)
    half = student.ppf(0.9, patients - 1) * spread / math.sqrt(patients)
    assert found == pytest.approx((1.0, 1.0 - half, 1.0 + half), rel=1e-3)


@pytest.mark.slow
def test_intervals_of_few_patients_hold_the_truth() -> None:
    """Of eight patients with 20 images: 89 % of the plain percentile intervals of this simulation
    held it."""
    rng, held = np.random.default_rng(0), 0
    for seed in range(300):
        right = rng.random((8, 20)) < rng.beta(4, 2, (8, 1))
        grades = {"true": np.zeros(160, int), "predicted": 1 - right.ravel().astype(int)}
        groups = np.repeat(np.arange(8), 20).tolist()
        drawn = resampled_metrics(
            **grades, num_classes=2, groups=groups, metrics=["accuracy"], seed=seed
        )
        _, low, high = percentile_interval(drawn["accuracy"], patients=8)
        held += low <= 2 / 3 <= high
    assert 0.92 <= held / 300 <= 0.98


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


def test_the_interval_of_a_mean_is_students() -> None:
    """With exact bootstrap variance (n − 1)/n · s²/(n + 1), the interval is that of the
    textbook."""
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, 12)
    spread = math.sqrt(x.var() / (len(x) + 1))
    draws = x.mean() + spread * np.array([-1, 1]) / math.sqrt(
        2
    )  # their variance is x.var() / (n + 1)
    interval, p_value = t_interval([x.mean(), *draws], patients=12)
    error = x.std(ddof=1) / math.sqrt(12)
    assert interval.high - interval.value == pytest.approx(student.ppf(0.975, 11) * error)
    assert p_value == pytest.approx(2 * student.sf(abs(x.mean()) / error, 11))


def test_the_variance_between_trainings_is_added() -> None:
    """Patients that do not vary: the interval is that of the two-sample t-test of the trainings."""
    first, second = np.array([0.5, 0.6, 0.55]), np.array([0.4, 0.38, 0.45, 0.43])
    difference = second.mean() - first.mean()
    interval, p_value = t_interval([difference] * 5, patients=40, trainings=[first, second])
    expected = ttest_ind(second, first)
    assert p_value == pytest.approx(expected.pvalue)
    assert tuple(interval[1:]) == pytest.approx(tuple(expected.confidence_interval()))


def test_what_is_not_known_has_no_interval() -> None:
    for values, patients in (([0.1, 0.2, 0.3], 1), ([0.1, 0.2, math.nan], 9), ([math.nan] * 4, 9)):
        interval, p_value = t_interval(values, patients=patients)
        assert math.isnan(interval.low)
        assert math.isnan(p_value)


def test_patients_and_trainings_together_have_satterthwaites_degrees() -> None:
    draws, first, second = [0.3, 0.1, 0.5], [0.5, 0.6, 0.55], [0.4, 0.38, 0.45, 0.43]
    interval, p_value = t_interval([0.2, *draws], patients=12, trainings=[first, second])
    own = np.var(draws, ddof=1) * 13 / 11
    between = (2 * np.var(first, ddof=1) + 3 * np.var(second, ddof=1)) / 5 * (1 / 3 + 1 / 4)
    degrees = (own + between) ** 2 / (own**2 / 11 + between**2 / 5)
    error = math.sqrt(own + between)
    half = student.ppf(0.975, degrees) * error
    assert tuple(interval) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    assert p_value == pytest.approx(2 * student.sf(0.2 / error, degrees))


@pytest.mark.parametrize(("errors", "patients"), [(0, 40), (1, 40), (6, 60), (54, 60)])
def test_a_share_of_independent_images_has_clopper_and_pearsons_interval(
    errors: int, patients: int
) -> None:
    """With tails of Student's distribution instead of 2.5 %."""
    true = np.zeros(patients, dtype=int)
    predicted = (np.arange(patients) < errors).astype(int)
    found = bootstrap_metrics(true, predicted, num_classes=2, resamples=20_000)
    tail = percentile_tails(patients)[0]
    low = beta.ppf(tail, patients - errors, errors + 1)
    high = beta.ppf(1 - tail, patients - errors + 1, errors) if errors else 1.0
    assert found["accuracy"] == pytest.approx((1 - errors / patients, low, high), abs=0.006)
    assert found["mae"] == pytest.approx((errors / patients, 1 - high, 1 - low), abs=0.006)


def test_no_interval_has_width_0_where_all_answers_are_right() -> None:
    true = np.arange(30) % 3
    for groups in (None, (np.arange(30) // 3).tolist()):
        found = bootstrap_metrics(true, true, num_classes=3, groups=groups)
        for name, (value, low, high) in found.items():
            best = 0.0 if metrics.METRICS[name].lower_is_better else 1.0
            assert value == best
            assert high - low > 0.05
            assert best in (low, high)


def test_images_that_err_together_count_as_one() -> None:
    """Ten patients with ten images. Errors of whole patients: as ten images. Errors alone: nearly
    as a hundred."""
    own = np.zeros((10, 2, 2))
    own[:, 0, 0] = 10
    off = ~np.eye(2, dtype=bool)
    size = own.sum(axis=(1, 2))
    assert images_worth_one(own, off, size) == pytest.approx(10.0)  # nothing is known: as ten
    together, alone = own.copy(), own.copy()
    together[:3] = [[0, 10], [0, 0]]
    alone[:] = [[7, 3], [0, 0]]
    assert images_worth_one(together, off, size) == pytest.approx(10.0)
    assert images_worth_one(alone, off, size) == 1.0
    some = own.copy()
    some[0] = [[8, 2], [0, 0]]  # (2² · 0.9 of ten + 10) / (2 · 0.98 + 1)
    assert images_worth_one(some, off, size) == pytest.approx((2**2 * 0.9 + 10) / (2 * 0.98 + 1))


def test_one_error_more_weighs_as_many_images_as_are_worth_one() -> None:
    """Five patients with four images, all of them right: a patient's images may err together."""
    own = np.zeros((5, 2, 2))
    own[:, 0, 0] = 4.0
    assert one_error_more(own)["accuracy"] == pytest.approx(20 / 24 - 1)
    assert one_error_more(own)["mae"] == pytest.approx(4 / 24)
    own[:, 0, 0] = 1.0  # one image each
    assert one_error_more(own)["accuracy"] == pytest.approx(5 / 6 - 1)


def test_right_samples_of_a_grade_weigh_as_many_images_as_a_patient_has_of_it() -> None:
    """Patients of one grade each, ten images, of which one is wrong: errors are alone, grades are
    not."""
    own = np.zeros((20, 2, 2))
    own[:10, 0], own[10:, 1] = [9, 1], [1, 9]
    drawn = np.broadcast_to(own.sum(axis=0), (20_001, 2, 2))
    better = score_draws(own, drawn, metrics=["macro_recall"]).better["macro_recall"]
    added = 10.0 * np.random.default_rng(1).standard_gamma(0.5, (20_000, 2))
    expected = ((90 + added) / (100 + added)).mean(axis=1)
    assert better.mean() == pytest.approx(expected.mean(), abs=2e-4)
    assert better.std() == pytest.approx(expected.std(), rel=0.05)


def test_a_mean_over_grades_rests_on_the_patients_of_the_rarest_grade() -> None:
    """Thirty patients; twelve have grade 1, one of them eight images of it."""
    own = np.zeros((30, 2, 2))
    own[:, 0, 0] = 1.0
    own[:12, 1, 1] = 1.0
    own[0, 1, 1] = 8.0
    behind = patients_behind(own)
    samples = own.sum(axis=(1, 2))
    assert patients_of_grades(own).tolist() == [30, 12]
    for name, metric in metrics.METRICS.items():
        by_hand = _effective([8] + [1] * 11 if metric.per_grade else samples)
        assert behind[name] == pytest.approx(by_hand)
    own[9:12, 1, 1] = 0.0  # nine are too few
    assert patients_behind(own)["macro_f1"] == 0.0
    samples = own.sum(axis=(1, 2))
    assert patients_behind(own)["mae"] == pytest.approx(_effective(samples))


def _effective(samples: ArrayLike) -> float:
    """By matrices: the sum of squares Σ hᵢ² (xᵢ − x̄)² is x' A x, with mean tr A and variance
    2 tr A², as Satterthwaite has it."""
    shares = np.asarray(samples, dtype=np.float64) / np.sum(samples)
    centred = np.eye(len(shares)) - shares  # rows: xᵢ − x̄
    form = centred.T @ np.diag(shares**2) @ centred
    degrees = np.trace(form) ** 2 / np.trace(form @ form)
    too_little = len(shares) / (len(shares) + 1) * np.trace(form) / (shares**2).sum()
    wide = student.ppf(0.975, degrees) / too_little**0.5

    def wider(n: float) -> float:
        return float(student.ppf(0.975, n - 1) * ((n + 1) / (n - 1)) ** 0.5 - wide)

    return float(brentq(wider, 1.01, 1e4))


def test_effective_patients_by_hand() -> None:
    assert effective_patients([0, 1, 2, 3]) == pytest.approx(4.0)
    assert effective_patients(np.repeat([0, 1], [9, 1])) == pytest.approx(_effective([9, 1]))
    assert effective_patients([0, 0, 0]) == 1.0
    counts = np.array([[3.0, 9.0, 0.0], [3.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    with np.errstate(all="raise"):
        assert effective_counts(counts) == pytest.approx([3.0, _effective([9, 1]), 0.0])


@pytest.mark.parametrize(
    "samples",
    [
        [200.0] * 3 + [1.0] * 37,
        [30.0] * 10 + [1.0] * 90,
        [40.0, 20.0, 10.0] + [1.0] * 57,
        [5.0] * 8,
    ],
    ids=["three large", "a tenth large", "some large", "equal"],
)
def test_a_mean_of_unequal_patients_has_the_level_that_it_promises(samples: list[float]) -> None:
    """Means of patients that vary alike, with the variance that their draws have. By the number of
    patients, three large ones would be found in a third of the trials."""
    rng = np.random.default_rng(0)
    size = np.array(samples)
    patients = len(size)
    means = rng.normal(size=(6000, patients))
    shares = size / size.sum()
    of_all = means @ shares
    pull = shares * (means - of_all[:, None])
    drawn = (pull**2).sum(axis=1) * patients / (patients + 1)  # the variance of exponential weights
    n = effective_counts(size)
    error = np.sqrt(drawn * (n + 1) / (n - 1))
    found = (np.abs(of_all) > student.ppf(0.975, n - 1) * error).mean()
    assert found < 0.05 + 2 * (0.05 * 0.95 / len(means)) ** 0.5
    if size.min() == size.max():
        assert found > 0.05 - 2 * (0.05 * 0.95 / len(means)) ** 0.5


def test_a_rare_grade_that_is_absent_is_in_the_interval_of_macro_averages() -> None:
    """Recall 1 for grades 0 and 1; grade 2 may be answered rightly or wrongly, grades 3 and 4 are
    too far away."""
    true = np.arange(40) % 2
    found = bootstrap_metrics(true, true, num_classes=3)["macro_recall"]
    assert found.value == 1.0
    assert found.low < 2 / 3
    more = bootstrap_metrics(true, true, num_classes=5)["macro_recall"]
    assert more.low == pytest.approx(found.low, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "mae", "macro_f1", "qwk"])
def test_intervals_hold_where_errors_are_rare(name: str) -> None:
    """40 patients with 3 % errors: plain percentiles held the truth in 0.70 of such samples."""
    rng = np.random.default_rng(7)
    large = rng.integers(0, 3, 200_000)
    wrong_large = np.where(rng.random(len(large)) < 0.03, (large + 1) % 3, large)
    truth = metrics.METRICS[name](np.bincount(large * 3 + wrong_large, minlength=9).reshape(3, 3))
    held = 0
    for seed in range(150):
        true = rng.integers(0, 3, 40)
        said = np.where(rng.random(40) < 0.03, (true + 1) % 3, true)
        found = bootstrap_metrics(
            true, said, num_classes=3, metrics=[name], resamples=200, seed=seed
        )[name]
        held += found.low <= truth <= found.high
    assert held >= 0.93 * 150
