"""Ranges of grades: no holes, nested, and the true grade is inside as often as promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from srjt.errors import SrjtError
from srjt.ordinal.ranges import grade_ranges, patient_weights, range_scores, range_threshold

Floats = np.ndarray


def probabilities(classes: int = 5) -> st.SearchStrategy[Floats]:
    values = arrays(np.float64, (6, classes), elements=st.floats(0.0, 1.0))
    return values.map(lambda v: (v + 1e-6) / (v + 1e-6).sum(axis=1, keepdims=True))


# ---------------------------------------------------------------------- ranges


@given(probabilities())
def test_a_range_grows_from_the_most_likely_grade_without_holes(p: Floats) -> None:
    scores = range_scores(p)
    assert (scores[np.arange(6), p.argmax(axis=1)] == 0.0).all()
    for row in scores:
        for threshold in row:
            inside = np.flatnonzero(row <= threshold)
            assert inside.tolist() == list(range(inside[0], inside[-1] + 1))


@given(probabilities(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_higher_threshold_gives_a_wider_range(p: Floats, one: float, other: float) -> None:
    scores = range_scores(p)
    low, high = grade_ranges(scores, min(one, other))
    wider_low, wider_high = grade_ranges(scores, max(one, other))
    assert (wider_low <= low).all()
    assert (high <= wider_high).all()


@given(probabilities(), st.floats(0.0, 1.0))
def test_the_range_holds_the_probability_of_its_threshold(p: Floats, threshold: float) -> None:
    low, high = grade_ranges(range_scores(p), threshold)
    held = np.array([row[a : b + 1].sum() for row, a, b in zip(p, low, high, strict=True)])
    everything = (low == 0) & (high == 4)
    assert ((held > threshold - 1e-9) | everything).all()


@given(probabilities(), st.floats(0.5, 4.0))
def test_a_temperature_does_not_change_the_order_in_which_grades_enter(p: Floats, slope: float) -> None:
    cooled = p**slope / (p**slope).sum(axis=1, keepdims=True)
    clear = np.diff(np.sort(p, axis=1), axis=1).min(axis=1) > 1e-6  # elsewhere rounding decides
    order, cooled_order = (range_scores(q)[clear].argsort(axis=1, kind="stable") for q in (p, cooled))
    distinct = np.diff(np.sort(range_scores(cooled)[clear], axis=1), axis=1).min(axis=1, initial=1.0) > 1e-12
    assert (order == cooled_order)[distinct].all()


def test_scores_by_hand() -> None:
    p = [[0.1, 0.2, 0.4, 0.3], [0.5, 0.1, 0.1, 0.3]]
    assert range_scores(p) == pytest.approx(np.array([[0.9, 0.7, 0.0, 0.4], [0.0, 0.5, 0.6, 0.7]]))


def test_each_grade_may_have_its_own_threshold_and_gaps_are_filled() -> None:
    scores = np.array([[0.0, 0.5, 0.75, 0.9]])
    low, high = grade_ranges(scores, [0.0, 0.4, 0.8, 0.8])
    assert (low.item(), high.item()) == (0, 2)
    low, high = grade_ranges(scores, [-1.0, 0.4, 0.7, 0.8])  # nothing enters: the most likely grade
    assert (low.item(), high.item()) == (0, 0)


# ---------------------------------------------------------------------- thresholds


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0.0, 1.0)), st.floats(0.05, 0.95))
def test_one_image_per_patient_is_split_conformal_prediction(scores: Floats, coverage: float) -> None:
    rank = int(np.ceil(coverage * (len(scores) + 1) - 1e-9))
    expected = np.sort(scores)[rank - 1] if rank <= len(scores) else np.inf
    assert range_threshold(scores, coverage=coverage) == expected
    names = [f"patient {n}" for n in range(len(scores))]
    assert range_threshold(scores, coverage=coverage, groups=names) == expected


@given(arrays(np.float64, 30, elements=st.floats(0.0, 1.0)), st.floats(0.05, 0.9), st.floats(0.0, 0.09))
def test_a_higher_coverage_has_a_higher_threshold(scores: Floats, coverage: float, more: float) -> None:
    groups = [n // 3 for n in range(30)]
    assert range_threshold(scores, coverage=coverage, groups=groups) <= range_threshold(
        scores, coverage=coverage + more, groups=groups
    )


def test_images_share_the_weight_of_their_patient() -> None:
    assert patient_weights(["a", "b", "a", "a"], 4) == pytest.approx([1 / 3, 1, 1 / 3, 1 / 3])
    # copies of a patient's images change nothing
    scores, groups = [0.1, 0.4, 0.2, 0.3], ["a", "b", "c", "d"]
    copies = range_threshold([*scores, *[0.1] * 50], coverage=0.6, groups=[*groups, *["a"] * 50])
    assert copies == range_threshold(scores, coverage=0.6, groups=groups) == 0.3


def test_weights_of_one_grade_per_image_are_its_score() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.random((50, 4)), rng.integers(0, 4, 50)
    assert range_threshold(scores, np.eye(4)[labels], coverage=0.8) == range_threshold(
        scores[np.arange(50), labels], coverage=0.8
    )


def test_two_grades_by_hand() -> None:
    # P = [[3/4, 1/4], [1/4, 3/4]], P⁻¹ = [[3/2, −1/2], [−1/2, 3/2]]; ten labels of each grade. A label of 0 adds 3/2
    # where grade 0 enters and takes 1/2 away where grade 1 enters. The bound is 0.6 · 20 + 0.6 + 1/2 = 13.1.
    inverse = np.array([[1.5, -0.5], [-0.5, 1.5]])
    labels = np.repeat([0, 1], 10)
    scores = np.where(np.eye(2)[labels] > 0, np.linspace(0.1, 0.2, 20)[:, None], 0.5)
    # own grades enter first, 3/2 each: nine give 13.5; later the other grades take 1/2 away each: 30 − 20 · 1/2 = 20
    assert range_threshold(scores, inverse[labels], coverage=0.6) == np.linspace(0.1, 0.2, 20)[8]


def test_negative_weights_beyond_the_threshold_count() -> None:
    scores = np.array([[0.1, 0.9]] * 20)
    weights = np.array([[1.6, -0.6]] * 20)  # all is covered at 0.1, but less again at 0.9
    assert range_threshold(scores, weights, coverage=0.95) == np.inf
    assert range_threshold(scores, weights, coverage=0.6) == 0.1


@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.5, -0.1])
def test_a_coverage_is_a_probability(coverage: float) -> None:
    with pytest.raises(SrjtError, match="A coverage lies between 0 and 1"):
        range_threshold([0.5], coverage=coverage)


# ---------------------------------------------------------------------- the promise, by simulation


def simulated(patients: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Scores and owners: half of the patients have nine easy images, the others a single difficult one."""
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
        calibration = owner < 25
        groups = owner[calibration].tolist() if by_patient else None
        threshold = range_threshold(scores[calibration], coverage=coverage, groups=groups)
        count += rng.choice(scores[~calibration]) <= threshold
    return count


def test_the_promise_is_kept_for_a_random_image_of_a_new_patient() -> None:
    found = hits(by_patient=True, repeats=1000, coverage=0.8)
    # the promise, and the theorem's upper end: 2 / 26 more
    assert binom.ppf(0.001, 1000, 0.8) <= found <= binom.ppf(0.999, 1000, 0.8 + 2 / 26)


def test_images_as_independent_break_the_promise() -> None:
    """The same simulation, so that the test above fails if patients are ignored."""
    assert hits(by_patient=False, repeats=1000, coverage=0.8) < binom.ppf(1e-6, 1000, 0.8)


def test_the_promise_for_each_grade() -> None:
    """Weights of one grade: patients have one image of either grade, and grade 1 is rarer and more difficult."""
    rng = np.random.default_rng(1)
    covered, total = 0, 0
    for _ in range(1500):
        grade = (rng.random(60) < 0.3).astype(int)
        scores = rng.random(60) * (1 + grade)
        of_one = (grade[:-1] == 1).astype(float)
        threshold = range_threshold(scores[:-1], of_one, coverage=0.8)
        if grade[-1]:
            total += 1
            covered += scores[-1] <= threshold
    assert binom.ppf(0.001, total, 0.8) <= covered <= binom.ppf(0.999, total, 0.8 + 2 / 18)
