"""Verified grades: exact intervals, an unbiased rate with any model, and a shorter interval with a
good one."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import betabinom, t

from srjt.errors import SrjtError
from srjt.noise import corrupt, transition_matrix, verified as checks
from srjt.noise.basis import Basis, Undetermined
from srjt.noise.estimate import estimate_noise
from srjt.noise.quality import label_quality
from srjt.noise.verified import (
    exact_interval,
    labels_to_verify,
    read_verified,
    repetition,
    use_verified,
)


def test_the_exact_interval_is_clopper_and_pearsons() -> None:
    assert exact_interval(0.0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    assert exact_interval(1.0, 10) == pytest.approx((0.025 ** (1 / 10), 1.0))
    low, high = exact_interval(0.3, 20)
    assert exact_interval(0.7, 20) == pytest.approx((1 - high, 1 - low))


def test_the_number_to_verify_gives_the_width_that_was_asked_for() -> None:
    for rate, within in ((0.2, 0.05), (0.5, 0.1), (0.0, 0.02)):
        needed = labels_to_verify(rate, within=within)
        low, high = exact_interval(rate, needed)
        assert (high - low) / 2 <= within
        low, high = exact_interval(rate, needed - 1)
        assert (high - low) / 2 > within
    assert labels_to_verify(0.2, verified=100) == labels_to_verify(0.2) - 100
    assert labels_to_verify(0.2, verified=100, worth=200.0) < labels_to_verify(0.2) / 2
    assert labels_to_verify(0.2, verified=1000) == 0
    with pytest.raises(SrjtError, match="between 0 and 1"):
        labels_to_verify(1.2)


def test_repeated_values_of_a_patient_count_once() -> None:
    values = np.repeat(np.random.default_rng(0).random(50), 4)
    assert repetition(values, np.repeat(np.arange(50), 4)) == pytest.approx(4.0)
    assert repetition(values, np.arange(200)) == pytest.approx(1.0)
    assert repetition(np.zeros(5), np.arange(5)) == 1.0
    # values of a patient that cancel out do not make labels worth more than they are
    assert repetition(np.tile([0.0, 1.0], 50), np.repeat(np.arange(50), 2)) == 1.0


def checked(true: np.ndarray, rows: np.ndarray, *, classes: int = 4) -> checks.Verified:
    """The true grades of these rows are known."""
    grades = np.full(len(true), -1)
    grades[rows] = true[rows]
    return read_verified(grades, samples=len(true), classes=classes)


def simulated(seed: int, *, samples: int = 1500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, samples)
    label = np.where(
        rng.random(samples) < 0.25, np.clip(true + rng.choice([-1, 1], samples), 0, 3), true
    )
    seen = true + 0.3 * rng.normal(size=samples)
    p = np.exp(-((seen[:, None] - np.arange(4)) ** 2) / 0.18)
    return true, label, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("helpful", [True, False])
def test_the_combined_interval_covers_with_any_model_and_is_shorter_with_a_good_one(
    helpful: bool,
) -> None:
    held, shorter, rates = [], [], []
    for seed in range(60):
        true, label, p = simulated(seed, samples=800)
        rng = np.random.default_rng(seed)
        posterior = (
            0.7 * p + 0.3 * np.eye(4)[label] if helpful else rng.dirichlet(np.ones(4), len(label))
        )
        rows = rng.choice(len(label), 100, replace=False)
        known = checked(true, rows)
        found = use_verified(label, posterior, known, owner=np.arange(len(label)), confidence=0.95)
        truth = (label != true).mean()
        held.append(found.interval[0] <= truth <= found.interval[1])
        alone = exact_interval(float((label[rows] != true[rows]).mean()), len(rows))
        shorter.append(np.diff(found.interval) < np.diff(alone))
        rates.append(found.rate - truth)
        assert 1 - np.trace(found.joint) == pytest.approx(found.rate)
        assert found.joint.sum() == pytest.approx(1.0)
    assert np.mean(held) >= 0.93
    assert abs(np.mean(rates)) < 0.01
    if helpful:
        assert np.mean(shorter) > 0.9


def two_grades(wrong: np.ndarray, doubt: np.ndarray, rows: np.ndarray) -> checks.VerifiedRate:
    """All labels are 0, ``wrong`` ones are truly 1, and the model takes them to be so with
    probability ``doubt``."""
    known = checked(wrong, rows, classes=2)
    labels, posterior = np.zeros(len(wrong), dtype=np.int64), np.stack([1 - doubt, doubt], axis=1)
    return use_verified(labels, posterior, known, owner=np.arange(len(wrong)), confidence=0.95)


def test_the_interval_is_that_of_a_regression_with_half_an_error_more_in_a_finite_population() -> (
    None
):
    rng = np.random.default_rng(3)
    doubt = rng.random(300)
    wrong = rng.random(300) < doubt**2
    rows = np.arange(60)
    found = two_grades(wrong, doubt, rows)
    columns = np.stack([np.ones(60), doubt[rows]], axis=1)
    (_, slope), squares, *_ = np.linalg.lstsq(columns, wrong[rows].astype(float), rcond=None)
    assert 0.5 < slope < 1.0
    share = wrong[rows].mean()
    assert found.rate == pytest.approx(share + slope * (doubt.mean() - doubt[rows].mean()))
    variance = (squares[0] / (60 - 2) + 0.5 / 60) / 60 * (1 - 60 / 300)
    size = found.rate * (1 - found.rate) / variance
    assert found.worth == pytest.approx(size)
    ends = [binomial_score(found.rate, size, t.ppf(q, 59)) for q in (0.025, 0.975, 0.05)]
    assert [*found.interval, found.lower_bound] == pytest.approx(ends)


def binomial_score(share: float, size: float, quantile: float) -> float:
    """The rate p at which (share − p) / √(p (1 − p) / size) is the quantile, with the opposite
    sign."""
    low, high = (1e-12, share) if quantile < 0 else (share, 1 - 1e-12)
    return float(brentq(lambda p: (p - share) / np.sqrt(p * (1 - p) / size) - quantile, low, high))


def test_the_model_is_trusted_between_not_at_all_and_fully() -> None:
    rng = np.random.default_rng(4)
    wrong, rows = rng.random(400) < 0.3, np.arange(100)
    timid = 0.1 + 0.4 * wrong + 0.02 * rng.random(400)  # the slope would be 2.5
    share = wrong[rows].mean()
    assert two_grades(wrong, timid, rows).rate == pytest.approx(
        share + timid.mean() - timid[rows].mean()
    )
    contrary = two_grades(wrong, 1 - timid, rows)
    assert contrary.rate == share
    assert contrary.interval == pytest.approx(exact_interval(share, 100 / (1 - 100 / 400)))


def test_a_model_without_an_error_is_worth_no_more_than_all_labels() -> None:
    wrong = np.arange(2000) % 10 == 0
    for size in (3, 50, 1500, 2000):
        found = two_grades(wrong, wrong.astype(float), np.arange(size))
        assert found.worth <= 2000
        assert found.interval[0] <= 0.1 <= found.interval[1]
    assert found.interval == pytest.approx((0.1, 0.1), abs=1e-12)  # all are verified


def test_a_sample_without_an_error_of_the_model_counts_as_all_labels() -> None:
    """Of 2,000 labels 1,500 are verified, and the model knows every error: as sure as 2,000
    verified ones, no more."""
    wrong = np.arange(2000) % 10 == 0
    found = two_grades(wrong, wrong.astype(float), np.arange(1500))
    low, high = (
        binomial_score(0.1, 2000 / (1 - 1500 / 2000), t.ppf(q, 1499)) for q in (0.025, 0.975)
    )
    assert found.interval == pytest.approx((low, high))


@pytest.mark.slow
def test_verified_grades_replace_the_assumption() -> None:
    true, label, p = simulated(0, samples=600)
    rng = np.random.default_rng(1)
    verified = np.full(len(label), np.nan)
    rows = rng.choice(len(label), 80, replace=False)
    verified[rows] = true[rows]
    found = estimate_noise(label, p, verified=verified, bootstrap=40)
    assert found.verified == 80
    assert found.verified_worth > 80
    assert found.identifiable
    assert found.basis == Basis(kind="verified", labels=80)
    assert found.rate_interval[0] <= (label != true).mean() <= found.rate_interval[1]
    assert found.lower_bound <= found.rate
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0)
    nothing = estimate_noise(label, p, verified=np.full(len(label), -1), bootstrap=0)
    assert nothing.to_dict() == estimate_noise(label, p, bootstrap=0).to_dict()


def test_the_matrix_of_a_rare_grade_leans_on_the_model() -> None:
    """Fifty verified labels of four grades, one of them rare: the sample alone does not show how it
    is mistaken."""
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        true = rng.choice(4, size=2000, p=[0.5, 0.3, 0.17, 0.03])
        matrix = transition_matrix("truncated", num_classes=4, rho=0.15)
        label = corrupt(true, matrix, seed=seed)
        seen = true + 0.4 * rng.normal(size=2000)
        posterior = np.exp(-((seen[:, None] - np.arange(4)) ** 2) / 0.32) * matrix.T[label]
        posterior /= posterior.sum(axis=1, keepdims=True)
        known = checked(true, rng.permutation(2000) < 50)
        found = use_verified(label, posterior, known, owner=np.arange(2000), confidence=0.95).joint
        counts = np.zeros((4, 4))
        np.add.at(counts, (known.true, label[known.rows]), 1.0)
        alone = (counts[3] + 0.25) / (counts[3].sum() + 1.0)
        errors.append(
            [np.abs(row - matrix[3]).sum() / 2 for row in (found[3] / found[3].sum(), alone)]
        )
    ours, theirs = np.mean(errors, axis=0)
    assert ours < 0.5 * theirs


def test_patients_are_the_unit_of_verified_grades() -> None:
    true, label, p = simulated(2, samples=300)
    copies = np.repeat(np.arange(300), 4)
    worth = []
    for rows, owner in (
        (np.arange(300), np.arange(300)),
        (copies, copies),
        (copies, np.arange(1200)),
    ):
        known = checked(true[rows], rows < 60)
        worth.append(use_verified(label[rows], p[rows], known, owner=owner, confidence=0.95).worth)
    once, together, apart = worth
    assert together == pytest.approx(once, rel=0.02)
    assert apart > 3 * together


@pytest.mark.parametrize(
    ("verified", "sentence"),
    [([0, 1, 2], "one grade for each of the 2"), ([0, 5], "0 … 2"), ([0.5, 1], "whole numbers")],
)
def test_bad_verified_grades_get_one_sentence(verified, sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence):
        read_verified(verified, samples=2, classes=3)


@pytest.mark.slow
def test_a_few_verified_labels_determine_nothing() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=300)
    guesses = rng.dirichlet(np.ones(4), size=300)  # networks that know nothing
    verified = np.full(300, -1)
    verified[7] = (labels[7] + 1) % 4
    one = estimate_noise(labels, guesses, verified=verified, bootstrap=5)
    assert not one.informed
    assert one.undetermined == Undetermined(kind="few_verified", labels=1)
    rows = rng.choice(300, size=60, replace=False)
    verified[rows] = labels[rows]
    assert estimate_noise(labels, guesses, verified=verified, bootstrap=5).informed


@pytest.mark.slow
def test_a_few_wrong_ones_do_not_make_all_labels_wrong() -> None:
    """The rate is the model's as far as the exact interval allows; rate, matrix and expected errors
    agree."""
    count = 6
    true, label, p = simulated(3, samples=300)
    rows = np.flatnonzero(label != true)[:count]
    verified = np.where(np.isin(np.arange(300), rows), true, -1)
    found = estimate_noise(label, p, verified=verified, bootstrap=5)
    low, high = found.rate_interval
    assert low == pytest.approx(exact_interval(1.0, count)[0], abs=0.01)
    assert high == 1.0
    model = estimate_noise(label, p, bootstrap=0).rate
    assert found.rate == pytest.approx(max(low, model), abs=0.05)
    assert not found.identifiable
    assert found.lower_bound <= found.rate
    assert found.basis == Basis(kind="verified", labels=count, enough=False)
    assert 1 - found.prior @ np.diag(found.transition) == pytest.approx(found.rate)
    assert np.diag(found.transition).min() > 0.1 * (1 - found.rate)
    quality = label_quality(label, p, verified=verified, rate=found.rate)
    assert (1 - quality).mean() == pytest.approx(found.rate, abs=1e-6)


@pytest.mark.slow
def test_no_wrong_label_among_the_verified_leaves_an_order() -> None:
    true, label, p = simulated(4, samples=300)
    rows = np.flatnonzero(label == true)[:60]
    verified = np.where(np.isin(np.arange(300), rows), true, -1)
    rate = estimate_noise(label, p, verified=verified, bootstrap=5).rate
    quality = label_quality(label, p, verified=verified, rate=rate)
    assert rate == 0.0
    assert (1 - quality).sum() == pytest.approx(0.5)
    assert quality[label != true].mean() < quality[label == true].mean()


def test_the_lower_bound_is_never_above_the_rate() -> None:
    """Two of two are wrong, and the model suspects none: its rate is moved to the lower end of the
    two-sided interval, below the one-sided bound."""
    wrong = np.arange(200) < 2
    found = two_grades(wrong.astype(int), np.full(200, 0.01), np.arange(2))
    assert found.rate == pytest.approx(exact_interval(1.0, 2)[0], abs=0.01)
    assert found.lower_bound == found.rate < exact_interval(1.0, 2, confidence=0.9)[0]


def test_the_model_counts_as_much_as_the_verified_labels_agree_with_it() -> None:
    """The model says that a tenth of both labels is wrong; of the verified ones it is 20 of 40 and
    one of 40. The mean over its strengths, by the likelihood of beta-binomials, by hand."""
    labels = np.repeat([0, 1], 500)
    posterior = np.where(labels[:, None] == np.arange(2), 0.9, 0.1)
    rows = np.concatenate([np.arange(40), 500 + np.arange(40)])
    true = np.concatenate([np.repeat([1, 0], 20), np.repeat([0, 1], [1, 39])])
    known = checks.Verified(rows=rows, true=true, probability=np.full(80, 0.08))
    right, wrong = np.array([450.5, 50.5]) / 501
    likelihood, shares = [], []
    for strength in 2.0 ** np.arange(-2, 11):
        law = betabinom(40, strength * wrong, strength * right)
        likelihood.append(law.pmf(20) * law.pmf(1))
        shares.append((np.array([20, 1]) + strength * wrong) / (40 + strength))
    first, second = np.average(shares, axis=0, weights=likelihood)
    assert first / second > 8  # all strengths alike: 3
    joint = checks._joint(labels, posterior, known, rate=0.2)
    assert joint[1, 0] == pytest.approx(0.2 * first / (first + second))
    assert joint[0, 1] == pytest.approx(0.2 * second / (first + second))


@pytest.mark.parametrize("misled", [True, False])
def test_the_rates_of_the_grades_are_between_the_model_and_the_sample(misled: bool) -> None:
    """They add up to the rate of all, and are nearer to the truth than the model is, if that takes
    all grades to be alike; where the model is right, nearer than the verified labels alone."""
    model = []
    alone = []
    ours = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        label = rng.integers(0, 4, 400)
        rate = np.array([0.08, 0.7, 0.4, 0.4] if misled else [0.4] * 4)
        true = np.where(rng.random(400) < rate[label], (label + 1) % 4, label)
        posterior = 0.6 * np.eye(4)[label] + 0.4 * np.eye(4)[(label + 1) % 4]
        rows = rng.choice(400, 100, replace=False)
        found = use_verified(
            label, posterior, checked(true, rows), owner=np.arange(400), confidence=0.95
        )
        share, low, high = np.array(found.by_label).T
        sizes = np.bincount(label) / 400
        assert share @ sizes == pytest.approx(found.rate, abs=1e-6)
        assert ((low <= share) & (share <= high)).all()
        wrong = true != label
        truth = np.array([wrong[label == grade].mean() for grade in range(4)])
        seen = np.array([wrong[rows][label[rows] == grade].mean() for grade in range(4)])
        model.append(np.abs(found.rate - truth).mean())
        alone.append(np.abs(seen - truth).mean())
        ours.append(np.abs(share - truth).mean())
    assert np.mean(ours) < np.mean(model if misled else alone) * (0.5 if misled else 0.8)


def of_label(rate: float, half: float, worth: float = 100.0) -> checks.Share:
    interval = (rate - half, rate + half)
    return checks.Share(rate=rate, interval=interval, lower_bound=0.0, worth=worth)


def test_what_verified_labels_of_a_grade_say_counts_only_beyond_chance() -> None:
    """Half widths of 0.1 are standard errors of 0.05: two differences of 0.7 of them are chance."""
    expected = np.array([0.3, 0.5])
    shares = [of_label(0.335, 0.1), of_label(0.465, 0.1)]
    by_chance = checks._shrunk(shares, expected, confidence=0.95)
    np.testing.assert_allclose(by_chance[0], expected)
    # two of four: the variance between grades is 32 − 1 of theirs
    far = [of_label(0.5, 0.1), of_label(0.3, 0.1)]
    found = checks._shrunk(far, expected, confidence=0.95)[0]
    np.testing.assert_allclose(found, [0.3 + 0.2 * 31 / 32, 0.5 - 0.2 * 31 / 32])


def test_too_few_verified_labels_of_a_grade_are_an_interval_alone() -> None:
    expected = np.array([0.3, 0.5])
    shares = [of_label(0.6, 0.4, worth=5.0), of_label(0.5, 0.1)]
    found = checks._shrunk(shares, expected, confidence=0.95)
    np.testing.assert_allclose(found[0], expected)


def test_what_is_missing_goes_to_grades_with_many_labels() -> None:
    """Least squares: in proportion to the number of labels, if all are as uncertain."""
    shares = np.array([[0.2, 0.2], [0.0, 0.0], [1.0, 1.0]])
    sizes = np.array([0.75, 0.25])
    found = checks._adding_up(shares, sizes, 0.25)
    np.testing.assert_allclose([share for share, _, _ in found], [0.26, 0.22], atol=1e-9)


def test_the_model_is_corrected_where_labels_are_verified() -> None:
    labels = np.repeat([0, 1], 40)
    true = np.concatenate([np.repeat([0, 1], [30, 10]), np.repeat([1, 0], [20, 20])])
    posterior = np.full((80, 2), 0.5)
    checked = checks.read_verified(true, samples=80, classes=2)
    used = checks.use_verified(labels, posterior, checked, owner=np.arange(80), confidence=0.95)
    np.testing.assert_allclose([share for share, _, _ in used.by_label], [0.25, 0.5], atol=1e-6)


def test_what_the_model_thinks_of_verified_labels_does_not_count() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    true = np.where(rng.random(300) < [[0.1], [0.3]], 1 - labels, labels)[labels, np.arange(300)]
    rows = np.arange(60)
    posterior = np.full((300, 2), 0.3) + 0.4 * np.eye(2)[labels]
    other = posterior.copy()
    other[rows[labels[rows] == 1]] = 0.5
    found = [
        use_verified(
            labels,
            model,
            checked(true, rows),
            owner=np.arange(300),
            confidence=0.95,
            doubt=np.full(300, 0.3),
        ).by_label
        for model in (posterior, other)
    ]
    np.testing.assert_allclose(*found)


def test_few_verified_labels_and_the_guess_of_the_networks_are_averaged() -> None:
    """So many labels as the guess is worth, and the verified ones; more than a few decide alone."""
    labels = np.arange(300) % 3
    posterior = 0.5 * np.eye(3)[labels] + 0.5 / 3
    for count, wrong in ((10, 4), (40, 16)):
        rows = np.arange(count)
        true = np.where(np.arange(300) < wrong, (labels + 1) % 3, labels)
        given = {"owner": np.arange(300), "confidence": 0.95, "doubt": np.full(300, 0.4)}
        found = use_verified(labels, posterior, checked(true, rows), **given, guess=lambda: 0.25)
        share = found.worth * 0.4
        alone = found.rate == pytest.approx(0.4, abs=0.02)
        assert alone == found.enough == (count == 40)
        if not found.enough:
            together = (share + checks._GUESS_WORTH * 0.25) / (found.worth + checks._GUESS_WORTH)
            assert found.rate == pytest.approx(together, abs=0.005)
