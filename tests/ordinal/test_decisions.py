"""Referral decisions and their curves."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy import stats
from sklearn import metrics
from sklearn.metrics import precision_score, recall_score

from refusals import refuses
from srjt.ordinal import decisions
from srjt.ordinal.intervals import effective_counts, percentile_tails

PAIRS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=1, max_size=60
)


@pytest.mark.slow
@given(pairs=PAIRS)
def test_shares_agree_with_scikit_learn_and_lie_in_their_intervals(pairs: list) -> None:
    positive, referred, patients = (np.array(column) for column in zip(*pairs, strict=True))
    found = decisions.operating_point(positive, referred, groups=patients.tolist())
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
    n = 200
    found = decisions.proportion_interval([True] * 150 + [False] * 50)
    # the formula of the textbook, with the effective number for few samples
    z = stats.norm.ppf(0.975)
    # the variance between samples has n − 1 in its denominator
    m = (n - 1) * (z / stats.t.ppf(0.975, n - 1)) ** 2
    centre, half = 0.75 + z**2 / (2 * m), z * math.sqrt(0.75 * 0.25 / m + z**2 / (4 * m**2))
    assert found.low == pytest.approx((centre - half) / (1 + z**2 / m))
    assert found.high == pytest.approx((centre + half) / (1 + z**2 / m))


def test_few_patients_have_the_tails_of_student() -> None:
    """Half of ten images: Wilson's interval of nine, with Student's quantile instead of the normal
    one."""
    found = decisions.proportion_interval([True, False] * 5)
    half = 0.5 / math.sqrt(1 + 9 / stats.t.ppf(0.975, 9) ** 2)
    assert found == pytest.approx((0.5, 0.5 - half, 0.5 + half))


def test_ten_copies_of_a_patients_image_add_nothing() -> None:
    right = [True] * 15 + [False] * 5
    once = decisions.proportion_interval(right)
    copied = decisions.proportion_interval(
        np.repeat(right, 10), groups=np.repeat(np.arange(20), 10).tolist()
    )
    assert copied == pytest.approx(once)
    assert decisions.proportion_interval(np.repeat(right, 10)).low > copied.low
    copies = 1 + np.arange(20) % 3  # of equal weight together
    weights, owners = np.repeat(1 / copies, copies), np.repeat(np.arange(20), copies).tolist()
    weighted = decisions.proportion_interval(
        np.repeat(right, copies), groups=owners, weights=weights
    )
    assert weighted == pytest.approx(copied)


def test_a_share_of_patients_of_whom_three_have_most_images() -> None:
    """With the variance and the degrees of freedom of all patients, 0.91 of the intervals held."""
    rng = np.random.default_rng(1)
    images = np.r_[np.full(3, 200), np.ones(37, dtype=int)]
    owners = np.repeat(np.arange(40), images).tolist()
    trials, held = 500, 0
    for _ in range(trials):
        chances = np.repeat(rng.beta(2.8, 1.2, 40), images)  # mean 0.7
        found = decisions.proportion_interval(rng.random(len(chances)) < chances, groups=owners)
        held += found.low <= 0.7 <= found.high
    assert held / trials >= 0.95 - 2 * (0.95 * 0.05 / trials) ** 0.5


def test_patients_who_resemble_each_other_are_worth_no_more_than_their_samples() -> None:
    """Each patient has one right and one wrong image but two: the shares of patients hardly
    vary."""
    right = [True, False] * 19 + [True, True]
    owners = np.repeat(np.arange(20), 2).tolist()
    z = stats.norm.ppf(0.975)
    unequal = float(effective_counts(np.r_[np.full(19, 2.0), 4.0]))
    for weights, worth, patients in (
        (None, 40, 20),
        (np.r_[np.full(38, 1.0), 2.0, 2.0], 42**2 / (38 + 8), unequal),
    ):
        found = decisions.proportion_interval(right, groups=owners, weights=weights)
        m = worth * (z / stats.t.ppf(0.975, patients - 1)) ** 2
        share = found.value
        centre, half = (
            share + z**2 / (2 * m),
            z * math.sqrt(share * (1 - share) / m + z**2 / (4 * m**2)),
        )
        assert found.low == pytest.approx((centre - half) / (1 + z**2 / m))
        assert found.high == pytest.approx((centre + half) / (1 + z**2 / m))


def test_a_perfect_share_is_not_certain_and_depends_on_the_patients() -> None:
    few = decisions.proportion_interval([True] * 100, groups=[str(i % 5) for i in range(100)])
    many = decisions.proportion_interval([True] * 100, groups=[str(i) for i in range(100)])
    assert few.high == many.high == 1.0
    assert few.low < 0.6 < 0.95 < many.low
    assert decisions.proportion_interval([True] * 1000, groups=["one"] * 1000) == (1.0, 0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.7, 0.95])
def test_intervals_cover_the_share_of_patients_who_differ(share: float) -> None:
    """30 patients with one to eight images each; images of a patient are alike (beta-binomial)."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        sizes = rng.integers(1, 9, 30)
        owners = np.repeat(np.arange(30), sizes)
        own = rng.beta(4 * share, 4 * (1 - share), 30)
        found = decisions.proportion_interval(
            rng.random(len(owners)) < own[owners], groups=owners.tolist()
        )
        covered += found.low <= share <= found.high
    assert covered / 400 > 0.92  # three standard errors below 0.95


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=60), st.sampled_from([0.5, 0.8, 0.9, 0.95])
)
def test_the_threshold_reaches_its_sensitivity_and_no_higher_one_does(
    scores: list, wanted: float
) -> None:
    s = np.array(scores) / 20
    threshold, n, patients, reached = decisions.threshold_for_sensitivity(
        np.ones(len(s), bool), s, sensitivity=wanted
    )
    assert n == patients == len(s)
    assert reached == (n / (n + 1) >= wanted)
    if reached:
        assert (s >= threshold).sum() / (n + 1) >= wanted
        assert (s > threshold).sum() / (n + 1) < wanted
    else:
        assert threshold == s.min()


@pytest.mark.slow
def test_the_sensitivity_is_that_of_new_patients() -> None:
    """Twenty patients whose images resemble each other."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        score = np.repeat(rng.normal(size=20), 15) + 0.5 * rng.normal(size=300)
        how: dict = {"sensitivity": 0.95, "groups": np.repeat(np.arange(20), 15).tolist()}
        assert decisions.threshold_for_sensitivity(np.ones(300, bool), score, **how)[1:] == (
            300,
            20,
            True,
        )
        threshold = decisions.threshold_for_sensitivity(np.ones(300, bool), score, **how).threshold
        found.append(float(stats.norm.sf(threshold / np.sqrt(1.25))))
    assert np.mean(found) > 0.95 - 2 * np.std(found) / 20
    few = decisions.threshold_for_sensitivity(
        [True] * 40, range(40), sensitivity=0.95, groups=[1, 2] * 20
    )
    assert few == (0.0, 40, 2, False)


def test_the_probability_of_a_referral() -> None:
    p = np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]])
    assert decisions.referral_probability(p, refer_from=2).tolist() == pytest.approx([0.7, 0.0])
    for wrong in (0, 4, -1):
        with refuses("out_of_bounds", "refer_from"):
            decisions.referral_probability(p, refer_from=wrong)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.floats(0, 1),
    st.sampled_from([0.05, 0.1, 0.5, 0.9]),
)
def test_confidence_and_abstention(scores: list[float], threshold: float, share: float) -> None:
    confidence = decisions.decision_confidence(scores, threshold=threshold)
    assert ((confidence >= 0) & (confidence <= 1)).all()
    cut = decisions.abstention_cut(confidence, share=share)
    assert (confidence < cut).mean() <= share + 1e-9
    if len(set(confidence.tolist())) == len(confidence):  # without ties the share is used
        assert (confidence < cut).sum() == int(share * len(confidence) + 1e-9)


@pytest.mark.parametrize("wrong", [0.0, 1.0, float("nan")])
def test_impossible_wishes(wrong: float) -> None:
    with refuses("out_of_bounds", "sensitivity"):
        decisions.threshold_for_sensitivity([True], [0.5], sensitivity=wrong)
    with refuses("out_of_bounds", "share"):
        decisions.abstention_cut([0.5], share=wrong)


# Curves over all thresholds, with scikit-learn as the reference.
SAMPLES = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=2, max_size=50)


def both(samples: list[tuple[bool, int]]) -> tuple[np.ndarray, np.ndarray]:
    y, s = (np.array(column) for column in zip(*samples, strict=True))
    assume(y.any() and not y.all())
    return y, s / 8


@given(samples=SAMPLES)
def test_curves_and_areas_are_those_of_scikit_learn(samples: list[tuple[bool, int]]) -> None:
    y, s = both(samples)
    roc = decisions.roc_curve(y, s)
    fpr, tpr, thresholds = metrics.roc_curve(y, s, drop_intermediate=False)
    assert roc.false_positive_rate == pytest.approx(fpr)
    assert roc.sensitivity == pytest.approx(tpr)
    assert roc.threshold == pytest.approx(thresholds)
    found = decisions.areas(y, s, resamples=5)
    assert found["roc_area"].value == pytest.approx(metrics.roc_auc_score(y, s))
    assert found["average_precision"].value == pytest.approx(metrics.average_precision_score(y, s))
    curve = decisions.precision_recall_curve(y, s)
    precision, recall, thresholds = metrics.precision_recall_curve(
        y, s
    )  # from the mildest, one point more
    assert curve.precision[::-1] == pytest.approx(precision[:-1])
    assert curve.sensitivity[::-1] == pytest.approx(recall[:-1])
    assert curve.threshold[::-1] == pytest.approx(thresholds)


def test_an_area_of_1_is_not_certain() -> None:
    """20 positive and 40 negative patients in perfect order: one more of the 20 has an exponential
    weight."""
    positive = np.arange(60) >= 40
    found = decisions.areas(positive, np.arange(60.0), resamples=10_000)["roc_area"]
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(20 / (20 - math.log(percentile_tails(60)[0])), abs=0.01)


def test_intervals_of_areas_resample_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = rng.random(40) < 0.5
    s = np.clip(0.5 + 0.2 * (y - 0.5) + 0.25 * rng.standard_normal(40), 0, 1)
    once = decisions.areas(y, s, groups=list(range(40)), resamples=400)
    owners = np.repeat(np.arange(40), 5).tolist()
    copied = decisions.areas(np.repeat(y, 5), np.repeat(s, 5), groups=owners, resamples=400)
    for name in once:
        assert copied[name] == pytest.approx(once[name])  # copies change nothing
        assert once[name].low < once[name].value < once[name].high
    monkeypatch.setattr("srjt.ordinal.intervals._CELLS", 100)  # many small blocks
    assert decisions.areas(y, s, groups=list(range(40)), resamples=400) == once
    apart = decisions.areas(np.repeat(y, 5), np.repeat(s, 5), resamples=400)["roc_area"]
    assert apart.high - apart.low < copied["roc_area"].high - copied["roc_area"].low
    one = decisions.areas(y, s, groups=["p"] * 40)["roc_area"]
    assert one.value == once["roc_area"].value
    assert np.isnan(one[1:]).all()


@given(samples=SAMPLES)
def test_the_decision_curve_counts_what_it_says(samples: list[tuple[bool, int]]) -> None:
    y, s = both(samples)
    curve = decisions.net_benefit(y, s)
    for t, found, everyone in zip(*curve, strict=True):
        tp, fp = ((s >= t) & y).sum(), ((s >= t) & ~y).sum()
        assert found == pytest.approx((tp - fp * t / (1 - t)) / len(y))
        assert everyone == pytest.approx((y.sum() - (~y).sum() * t / (1 - t)) / len(y))
    assert (curve.model <= y.mean() + 1e-12).all()  # a perfect model reaches the prevalence


@given(samples=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
def test_risk_and_coverage(samples: list[tuple[int, bool]]) -> None:
    confidence, wrong = (np.array(column, dtype=float) for column in zip(*samples, strict=True))
    coverage, risk = decisions.risk_coverage_curve(confidence, wrong)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(wrong.mean())
    for share, value in zip(coverage, risk, strict=True):
        kept = np.sort(confidence)[::-1][round(share * len(wrong)) - 1]
        assert value == pytest.approx(wrong[confidence >= kept].mean())


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (
            lambda: decisions.threshold_for_sensitivity([False], [0.5], sensitivity=0.9),
            ("too_few", "", "no positive sample"),
        ),
        (lambda: decisions.roc_curve([False, False], [0.1, 0.2]), ("too_few", "", "There is no")),
        (lambda: decisions.areas([True], [0.1]), ("too_few", "", "There is no")),
        (lambda: decisions.roc_curve([True, False], [0.1]), ("wrong_shape",)),
        (lambda: decisions.risk_coverage_curve([], []), ("wrong_shape",)),
        (
            lambda: decisions.net_benefit([True], [0.5], thresholds=[1.0]),
            ("out_of_bounds", "thresholds"),
        ),
    ],
)
def test_bad_input(call, refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        call()


def test_a_thinned_curve_keeps_its_ends() -> None:
    thinned = decisions.thin(np.linspace(0, 1, 10_001))
    assert (len(thinned), thinned[0], thinned[-1]) == (400, 0.0, 1.0)
