"""The highest true grade of a patient, from noisy labels."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srjt.errors import SrjtError
from srjt.noise.highest_grade import _likelihood, highest_grade_posterior, highest_grade_weights
from srjt.noise.matrices import corrupt, transition_matrix

NOISE = transition_matrix("truncated", num_classes=4, rho=0.13)


@given(images=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_without_noise_it_is_the_highest_label(images: list[tuple[int, int]]) -> None:
    labels, units = (np.array(column) for column in zip(*images, strict=True))
    units = np.unique(units, return_inverse=True)[1]
    highest = [labels[units == unit].max() for unit in range(units.max() + 1)]
    assert highest_grade_posterior(labels, units, np.eye(4)) == pytest.approx(np.eye(4)[highest])
    certain = np.ones(len(labels), bool)
    assert highest_grade_posterior(labels, units, NOISE, certain=certain) == pytest.approx(np.eye(4)[highest])


@given(images=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_it_is_a_distribution_and_does_not_depend_on_the_order(images: list[tuple[int, int]]) -> None:
    labels, units = (np.array(column) for column in zip(*images, strict=True))
    units = np.unique(units, return_inverse=True)[1]
    found = highest_grade_posterior(labels, units, NOISE)
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert highest_grade_posterior(labels[::-1], units[::-1], NOISE) == pytest.approx(found)


@pytest.mark.parametrize("shown", [0.2, 1.0])
def test_it_is_right_more_often_than_the_highest_label(shown: float) -> None:
    rng = np.random.default_rng(11)
    units = np.repeat(np.arange(300), rng.integers(1, 16, 300))
    grade = rng.integers(0, 4, 300)
    shows = rng.random(len(units)) < shown
    shows[np.unique(units, return_index=True)[1]] = True
    true = np.where(shows, grade[units], rng.integers(0, 4, len(units)) % (grade[units] + 1))
    labels = corrupt(true, NOISE, seed=5)
    naive = np.array([labels[units == unit].max() for unit in range(300)])
    found = highest_grade_posterior(labels, units, NOISE)
    assert (naive == grade).mean() < 0.7
    assert (found.argmax(axis=1) == grade).mean() > 0.85
    # what it calls likely happens so often
    assert found.max(axis=1).mean() == pytest.approx((found.argmax(axis=1) == grade).mean(), abs=0.05)


@pytest.mark.parametrize("shown", [0.3, 0.8, 1.0])
def test_the_likelihood_is_the_sum_over_all_true_grades_of_which_one_is_the_highest(shown: float) -> None:
    labels = [2, 0, 1]
    seen = NOISE[:, labels].T
    lower = np.stack([[row[:c].mean() if c else 0.0 for c in range(4)] for row in seen])
    found, scale = _likelihood(seen, lower, np.zeros(3, dtype=np.int64), shown=shown)
    for highest in range(4):
        of = np.zeros(4)  # the grades of one image, before one of them must be the highest
        of[highest] = shown if highest else 1.0
        of[:highest] = (1 - shown) / max(highest, 1)
        every = [true for true in product(range(highest + 1), repeat=3) if highest in true]
        chance = [np.prod(of[list(true)]) for true in every]
        given = [np.prod([NOISE[t, y] for t, y in zip(true, labels, strict=True)]) for true in every]
        assert found[0, highest] * np.exp(scale) == pytest.approx(np.dot(chance, given) / np.sum(chance))


def test_many_labels_of_one_patient() -> None:
    labels = np.array([2] * 1000 + [3] * 3)
    assert highest_grade_posterior(labels, np.zeros(1003, int), NOISE)[0].argmax() == 2


@given(true=st.lists(st.integers(0, 3), min_size=1, max_size=4), certain=st.booleans())
def test_the_mean_of_the_weights_is_the_truth(true: list[int], certain: bool) -> None:
    """Over all labels that the images of one patient may have; the first may be verified."""
    images = len(true)
    right = np.zeros(images, bool)
    right[0] = certain
    matrices = [np.eye(4) if known else NOISE for known in right]
    mean = np.zeros(4)
    for labels in product(range(4), repeat=images):
        chance = np.prod([matrix[t, y] for matrix, t, y in zip(matrices, true, labels, strict=True)])
        if chance > 0:
            weights = highest_grade_weights(labels, [0] * images, NOISE, certain=right)
            assert weights is not None
            mean += chance * weights[0]
    assert mean == pytest.approx(np.eye(4)[max(true)], abs=1e-9)


def test_weights_of_single_images_are_rows_of_the_inverse_matrix() -> None:
    found = highest_grade_weights([3, 0, 1], [0, 1, 2], NOISE)
    assert found == pytest.approx(np.linalg.inv(NOISE)[[3, 0, 1]])
    assert highest_grade_weights([0], [0], np.full((4, 4), 0.25)) is None


def test_bad_input() -> None:
    with pytest.raises(SrjtError, match="lists of one length"):
        highest_grade_posterior([0, 1], [0], NOISE)
    with pytest.raises(SrjtError, match="impossible under this transition matrix"):
        highest_grade_posterior([1], [0], [[1.0, 0.0], [1.0, 0.0]])


def test_so_many_images_that_the_products_overflow_have_no_weights() -> None:
    many = np.zeros(20_000, dtype=int)
    matrix = np.array([[0.6, 0.4], [0.4, 0.6]])
    assert highest_grade_weights(many, many, matrix) is None
    few = highest_grade_weights(many[:3], many[:3], matrix)
    assert few is not None
    assert np.isfinite(few).all()
