"""Calibration, recalibration and ranges."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from refusals import refuses
from srjt import noise
from srjt.ordinal import calibration, ranges as conformal
from srjt.ordinal.ranges import grade_ranges, range_scores, range_threshold, widest_range_threshold


def test_bins_by_hand() -> None:
    p = [[0.95, 0.05], [0.91, 0.09], [0.4, 0.6], [0.5, 0.5]]
    found = calibration.calibration_bins(p, [0, 1, 1, 0], bins=10)
    assert [(b.samples, b.accuracy) for b in found] == [(1, 1.0), (1, 1.0), (2, 0.5)]
    assert [b.confidence for b in found] == pytest.approx([0.5, 0.6, 0.93])
    error = calibration.expected_calibration_error(p, [0, 1, 1, 0], bins=10)
    assert error == pytest.approx((0.5 + 0.4 + 2 * 0.43) / 4)
    assert calibration.expected_calibration_error(np.eye(3), [1, 2, 0]) == 1


def test_the_ranked_score_against_its_definition() -> None:
    rng = np.random.default_rng(2)
    p, true = rng.dirichlet(np.ones(4), 50), rng.integers(0, 4, 50)
    total = 0.0
    for row, grade in zip(p, true, strict=True):
        for k in range(3):
            total += (sum(row[: k + 1]) - (1.0 if grade <= k else 0.0)) ** 2
    assert calibration.ranked_probability_score(p, true) == pytest.approx(total / 50)


# Recalibration: it finds the temperature that spoiled the probabilities, also through wrong labels.
Floats = np.ndarray


def drawn(samples: int = 4000, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Probabilities (N, 4) of the true grades, and the true grades."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(samples, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, (rng.random((samples, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=3)


def spoilt(p: Floats, *, slope: float, offsets: Floats | float = 0.0) -> Floats:
    q = p**slope * np.exp(offsets)
    return q / q.sum(axis=1, keepdims=True)


def test_it_undoes_a_temperature() -> None:
    p, y = drawn()
    found = calibration.fit_recalibration(spoilt(p, slope=3.0), y)
    assert found.slope == pytest.approx(1 / 3, rel=0.06)
    assert not found.is_vector
    assert np.abs(found(spoilt(p, slope=3.0)) - p).max() < 0.03


def test_through_wrong_labels_it_finds_the_same() -> None:
    p, y = drawn(8000)
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    noisy = noise.corrupt(y, matrix, seed=0)
    confident = spoilt(p, slope=3.0)
    aware = calibration.fit_recalibration(confident, noisy, transition=matrix)
    assert aware.slope == pytest.approx(1 / 3, rel=0.1)
    unaware = calibration.fit_recalibration(confident, noisy)
    assert (
        unaware.slope < 0.7 * aware.slope
    )  # of the labels, which are less certain than the grades
    error = calibration.expected_calibration_error(aware(confident), y)
    assert error < 0.02 < 0.1 < calibration.expected_calibration_error(unaware(confident), y)


def test_vector_scaling_undoes_offsets() -> None:
    p, y = drawn()
    offsets = np.array([1.0, 0.0, 0.0, -1.0])
    found = calibration.fit_recalibration(spoilt(p, slope=2.0, offsets=offsets), y, vector=True)
    assert np.abs(found(spoilt(p, slope=2.0, offsets=offsets)) - p).max() < 0.06
    assert sum(found.offsets) == pytest.approx(0.0, abs=1e-9)


def test_the_form_is_chosen_by_held_out_likelihood() -> None:
    p, y = drawn(1000)
    assert calibration.choose_recalibration(p, y) is None  # they already mean what they say
    temperature = calibration.choose_recalibration(spoilt(p, slope=3.0), y)
    assert not temperature.is_vector
    assert temperature.gain > 0
    vector = calibration.choose_recalibration(
        spoilt(p, slope=1.0, offsets=np.array([2.0, 0.0, 0.0, 0.0])), y
    )
    assert vector.is_vector
    assert "offset" in str(vector)
    both = spoilt(p, slope=3.0, offsets=np.array([2.0, 0, 0, 0]))
    assert not calibration.choose_recalibration(both, y, vector=False).is_vector


def test_few_labels_or_patients_change_nothing() -> None:
    p, y = drawn(1000)
    confident = spoilt(p, slope=3.0)
    assert calibration.choose_recalibration(confident[:99], y[:99]) is None
    assert calibration.choose_recalibration(confident[:100], y[:100]) is not None
    nineteen = [n % 19 for n in range(100)]
    assert calibration.choose_recalibration(confident[:100], y[:100], groups=nineteen) is None


@pytest.mark.slow
def test_patients_are_held_out_whole() -> None:
    """Twenty patients with ten copies of one image: of nine copies the tenth could be learnt by
    heart."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        logits = 2.0 * rng.normal(size=(20, 8))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        y = (
            (rng.random((20, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=7)
        )  # they already mean what they say
        copies, labels = np.repeat(p, 10, axis=0), np.repeat(y, 10)
        names = np.repeat(np.arange(20), 10).tolist()
        assert calibration.choose_recalibration(copies, labels, groups=names) is None
        # the same images as if of 200 patients: so the test can fail
        assert calibration.choose_recalibration(copies, labels) is not None


@pytest.mark.slow
def test_a_gain_within_one_standard_error_changes_nothing() -> None:
    """Probabilities that mean what they say: a temperature gains something by chance in about one
    of five sets."""
    chosen = [
        calibration.choose_recalibration(*drawn(100, seed=seed), vector=False) for seed in range(60)
    ]
    assert sum(found is not None for found in chosen) <= 6  # a gain of any size: 13


def test_a_temperature_keeps_the_order_and_zeros() -> None:
    found = calibration.Recalibration(slope=0.5, offsets=(0.0, 0.0, 0.0))
    p = np.array([[1.0, 0.0, 0.0], [0.2, 0.5, 0.3]])
    q = found(p)
    assert q.sum(axis=1) == pytest.approx(1.0)
    assert q.argsort(axis=1)[1].tolist() == p.argsort(axis=1)[1].tolist()
    assert q[0, 0] > 0.999


def test_wrong_arguments_are_named() -> None:
    for coverage in (0.0, 1.0, -0.1):
        with refuses("out_of_bounds", "coverage"):
            range_threshold([0.5], coverage=coverage)
    with refuses("wrong_shape", says="(N, C)"):
        calibration.fit_recalibration([[0.5, 0.5]], [0, 1])
    with refuses("wrong_shape", "matrix", says="2 × 2"):
        calibration.fit_recalibration([[0.5, 0.5]], [0], transition=np.eye(3))


# Ranges of grades: no holes, nested, and the true grade is inside as often as promised.
def probabilities(classes: int = 5) -> st.SearchStrategy[Floats]:
    values = arrays(np.float64, (6, classes), elements=st.floats(0.0, 1.0))
    return values.map(lambda v: (v + 1e-6) / (v + 1e-6).sum(axis=1, keepdims=True))


@given(probabilities(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_range_grows_from_the_most_likely_grade_without_holes(
    p: Floats, one: float, other: float
) -> None:
    """It is wider at a higher threshold, and holds at least the probability of its threshold."""
    scores = range_scores(p)
    assert (scores[np.arange(6), p.argmax(axis=1)] == 0.0).all()
    for row in scores:
        for threshold in row:
            inside = np.flatnonzero(row <= threshold)
            assert inside.tolist() == list(range(inside[0], inside[-1] + 1))
    low, high = grade_ranges(scores, min(one, other))
    wider_low, wider_high = grade_ranges(scores, max(one, other))
    assert (wider_low <= low).all()
    assert (high <= wider_high).all()
    held = np.array([row[a : b + 1].sum() for row, a, b in zip(p, low, high, strict=True)])
    assert ((held > min(one, other) - 1e-9) | ((low == 0) & (high == 4))).all()


@given(probabilities(), st.floats(0.5, 4.0))
def test_a_temperature_does_not_change_the_order_in_which_grades_enter(
    p: Floats, slope: float
) -> None:
    cooled = p**slope / (p**slope).sum(axis=1, keepdims=True)
    clear = np.diff(np.sort(p, axis=1), axis=1).min(axis=1) > 1e-6  # elsewhere rounding decides
    order, cooled_order = (
        range_scores(q)[clear].argsort(axis=1, kind="stable") for q in (p, cooled)
    )
    distinct = (
        np.diff(np.sort(range_scores(cooled)[clear], axis=1), axis=1).min(axis=1, initial=1.0)
        > 1e-12
    )
    assert (order == cooled_order)[distinct].all()


def test_scores_by_hand() -> None:
    p = [[0.1, 0.2, 0.4, 0.3], [0.5, 0.1, 0.1, 0.3]]
    assert range_scores(p) == pytest.approx(np.array([[0.9, 0.7, 0.0, 0.4], [0.0, 0.5, 0.6, 0.7]]))
    # each grade may have its own threshold, and gaps are filled
    scores = np.array([[0.0, 0.5, 0.75, 0.9]])
    low, high = grade_ranges(scores, [0.0, 0.4, 0.8, 0.8])
    assert (low.item(), high.item()) == (0, 2)
    low, high = grade_ranges(scores, [-1.0, 0.4, 0.7, 0.8])  # nothing enters: the most likely grade
    assert (low.item(), high.item()) == (0, 0)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0.0, 1.0)), st.floats(0.05, 0.95))
def test_one_image_per_patient_is_split_conformal_prediction(
    scores: Floats, coverage: float
) -> None:
    rank = int(np.ceil(coverage * (len(scores) + 1) - 1e-9))
    expected = np.sort(scores)[rank - 1] if rank <= len(scores) else np.inf
    assert range_threshold(scores, coverage=coverage) == expected
    names = [f"patient {n}" for n in range(len(scores))]
    assert range_threshold(scores, coverage=coverage, groups=names) == expected


def test_images_share_the_weight_of_their_patient() -> None:
    assert conformal.patient_weights(["a", "b", "a", "a"], 4) == pytest.approx(
        [1 / 3, 1, 1 / 3, 1 / 3]
    )
    # copies of a patient's images change nothing
    scores, groups = [0.1, 0.4, 0.2, 0.3], ["a", "b", "c", "d"]
    copies = range_threshold([*scores, *[0.1] * 50], coverage=0.6, groups=[*groups, *["a"] * 50])
    assert copies == range_threshold(scores, coverage=0.6, groups=groups) == 0.3
    # weights of one grade per image are its score
    rng = np.random.default_rng(0)
    scores, labels = rng.random((50, 4)), rng.integers(0, 4, 50)
    own = range_threshold(scores[np.arange(50), labels], coverage=0.8)
    assert range_threshold(scores, np.eye(4)[labels], coverage=0.8) == own


def test_two_grades_by_hand() -> None:
    # P = [[3/4, 1/4], [1/4, 3/4]], P⁻¹ = [[3/2, −1/2], [−1/2, 3/2]]; ten labels of each grade. A
    # label of 0 adds 3/2 where grade 0 enters and takes 1/2 away where grade 1 enters. The bound is
    # 0.6 · 20 + 0.6 + 1/2 = 13.1.
    inverse = np.array([[1.5, -0.5], [-0.5, 1.5]])
    labels = np.repeat([0, 1], 10)
    scores = np.where(np.eye(2)[labels] > 0, np.linspace(0.1, 0.2, 20)[:, None], 0.5)
    # own grades enter first, 3/2 each: nine give 13.5; later the other grades take 1/2 away each:
    # 30 − 20 · 1/2 = 20
    assert range_threshold(scores, inverse[labels], coverage=0.6) == np.linspace(0.1, 0.2, 20)[8]


def test_negative_weights_beyond_the_threshold_count() -> None:
    scores = np.array([[0.1, 0.9]] * 20)
    weights = np.array([[1.6, -0.6]] * 20)  # all is covered at 0.1, but less again at 0.9
    assert range_threshold(scores, weights, coverage=0.95) == np.inf
    assert range_threshold(scores, weights, coverage=0.6) == 0.1


@pytest.mark.parametrize("negative", [False, True])
def test_the_threshold_against_its_definition(negative: bool) -> None:
    """Weights of several grades, ties, patients with several images: A_1(q) + … + A_G(q) from the
    threshold on is at least the coverage of the sum of all weights and of a new patient, of whom
    it loses most: the coverage of its weights, and all that are negative."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        patient = np.unique(rng.integers(0, 12, 20), return_inverse=True)[1]
        images = np.bincount(patient)[patient]
        scores = rng.integers(0, 8, (20, 3)) / 8
        weights = rng.normal(0.5, 0.5, (20, 3)) if negative else rng.random((20, 3))
        coverage = float(rng.choice([0.5, 0.8, 0.9]))
        lost = coverage * weights.sum(axis=1) + np.where(weights < 0, -weights, 0.0).sum(axis=1)
        need = coverage * (weights.sum(axis=1) / images).sum() + max(lost.max(), coverage)
        threshold = np.inf
        for one in np.unique(scores)[::-1]:
            inside = np.where(scores <= one, weights, 0.0).sum(axis=1)
            if (inside / images).sum() < need - 1e-9:
                break
            threshold = one
        found = range_threshold(scores, weights, coverage=coverage, groups=patient.astype(str))
        assert found == threshold


def test_the_widest_threshold_is_that_of_the_worst_combination() -> None:
    """By trying all: of each of three parts the weights are those of one of two candidates."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        scores, parts = rng.random((30, 4)).round(2), rng.integers(0, 3, 30)
        candidates = [rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.full(4, 0.2), 30)]
        groups = rng.integers(0, 12, 30).tolist()
        thresholds = []
        for which in product((0, 1), repeat=3):
            weights = np.choose(np.array(which)[parts][:, None], candidates)
            thresholds.append(range_threshold(scores, weights, coverage=0.7, groups=groups))
        found = widest_range_threshold(scores, candidates, parts=parts, coverage=0.7, groups=groups)
        assert found == max(thresholds)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0.0, 1.0)), st.floats(0.05, 0.95))
@example(np.arange(4) / 10, 0.65)  # 3.25 of four; 2.9 if a new patient of weight 2 counted as one
def test_with_one_candidate_the_widest_threshold_is_the_threshold(
    scores: Floats, coverage: float
) -> None:
    column, ones = scores[:, None], np.ones((len(scores), 1))
    parts = np.arange(len(scores)) % 3
    found = widest_range_threshold(column, [ones], parts=parts, coverage=coverage)
    assert found == range_threshold(scores, coverage=coverage)
    twice = widest_range_threshold(
        column, [2 * ones], parts=parts, coverage=coverage
    )  # so counts a new patient
    assert twice == range_threshold(scores, 2 * ones, coverage=coverage)
    for wrong in (0.0, 1.0):
        with refuses("out_of_bounds", "coverage"):
            widest_range_threshold(column, [ones], parts=parts, coverage=wrong)


def simulated(patients: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Scores and owners: half of the patients have nine easy images, the others a single difficult
    one."""
    many = rng.random(patients) < 0.5
    sizes = np.where(many, 9, 1)
    owner = np.repeat(np.arange(patients), sizes)
    level = np.where(many, 0.0, 1.0) + rng.random(patients)
    return level[owner] + 0.1 * rng.random(len(owner)), owner


def hits(*, by_patient: bool, repeats: int, coverage: float) -> int:
    """How often the threshold of 25 patients covers a random image of a new patient."""
    rng = np.random.default_rng(0)
    count = 0
    for _ in range(repeats):
        scores, owner = simulated(26, rng)
        others = owner < 25
        groups = owner[others].tolist() if by_patient else None
        threshold = range_threshold(scores[others], coverage=coverage, groups=groups)
        count += rng.choice(scores[~others]) <= threshold
    return count


@pytest.mark.slow
def test_the_promise_is_kept_for_a_random_image_of_a_new_patient() -> None:
    found = hits(by_patient=True, repeats=1000, coverage=0.8)
    # the promise, and the theorem's upper end: 2 / 26 more
    assert binom.ppf(0.001, 1000, 0.8) <= found <= binom.ppf(0.999, 1000, 0.8 + 2 / 26)
    # images as independent break it, so the test can fail
    assert hits(by_patient=False, repeats=1000, coverage=0.8) < binom.ppf(1e-6, 1000, 0.8)
