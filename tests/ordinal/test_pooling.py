"""One answer for several images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from srjt.errors import SrjtError
from srjt.ordinal.pooling import LearnedPooling, fit_pooling, highest_per_unit, pool_probabilities

HOW = st.sampled_from(["highest", "mean", "learned"])
LEARNED = LearnedPooling(exponent=3.0, weight=1.5)


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 12))
    logits = draw(hnp.arrays(float, (n, 4), elements=st.floats(-20, 20)))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    units = np.unique(draw(hnp.arrays(int, n, elements=st.integers(0, 4))), return_inverse=True)[1]
    return p / p.sum(axis=1, keepdims=True), units


@given(images=images(), how=HOW)
def test_pooled_probabilities_are_probabilities(images: tuple[np.ndarray, np.ndarray], how: str) -> None:
    p, units = images
    pooled = pool_probabilities(p, units, how=how, learned=LEARNED)  # type: ignore[arg-type]
    assert pooled.shape == (units.max() + 1, 4)
    assert (pooled >= 0).all()
    assert pooled.sum(axis=1) == pytest.approx(1.0)


@given(images=images(), how=HOW)
def test_the_order_and_the_number_of_equal_images_do_not_matter(
    images: tuple[np.ndarray, np.ndarray], how: str
) -> None:
    p, units = images
    once = pool_probabilities(p, units, how=how, learned=LEARNED)  # type: ignore[arg-type]
    twice = pool_probabilities(
        np.repeat(p[::-1], 2, axis=0),
        np.repeat(units[::-1], 2),
        how=how,
        learned=LEARNED,  # type: ignore[arg-type]
    )
    assert twice == pytest.approx(once)


@given(images=images())
def test_one_image_stays_as_it_is(images: tuple[np.ndarray, np.ndarray]) -> None:
    p, _ = images
    alone = np.arange(len(p))
    for how in ("highest", "mean", "learned"):
        plain = LearnedPooling(exponent=7.0, weight=1.0)
        assert pool_probabilities(p, alone, how=how, learned=plain) == pytest.approx(p, abs=2e-6)  # type: ignore[arg-type]


@given(images=images())
def test_the_learned_pooling_lies_between_mean_and_highest(images: tuple[np.ndarray, np.ndarray]) -> None:
    p, units = images

    def reached(exponent: float) -> np.ndarray:
        learned = LearnedPooling(exponent=exponent, weight=1.0)
        return pool_probabilities(p, units, how="learned", learned=learned).cumsum(axis=1)

    highest = pool_probabilities(p, units, how="highest").cumsum(axis=1)
    assert (reached(2.0) <= reached(1.0) + 1e-9).all()
    assert (highest <= reached(2.0) + 2e-6).all()
    assert reached(4096.0) == pytest.approx(highest, abs=5e-3)


def test_closed_forms() -> None:
    p = [[0.9, 0.1], [0.4, 0.6]]
    geometric = pool_probabilities(p, [0, 0], how="learned", learned=LearnedPooling(exponent=1.0, weight=1.0))
    assert geometric[0, 0] == pytest.approx(np.sqrt(0.9 * 0.4))
    # twice the mean of two: independent images, whose highest grade is 0 with probability 0.9 · 0.4
    independent = pool_probabilities(
        p, [0, 0], how="learned", learned=LearnedPooling(exponent=1.0, weight=2.0)
    )
    assert independent[0, 0] == pytest.approx(0.9 * 0.4)


def draw_patients(rng: np.random.Generator, patients: int, *, worst: bool) -> tuple[np.ndarray, ...]:
    """Patients with 1 to 12 images; if ``worst``, the grade shows in one image only, else in all of them."""
    units = np.repeat(np.arange(patients), rng.integers(1, 13, patients))
    grade = rng.integers(0, 3, patients)
    first = np.append(True, units[1:] != units[:-1])
    shown = np.where(first, grade[units], 0) if worst else grade[units]
    logits = 4.0 * (np.arange(3) == shown[:, None]) + rng.normal(0, 1.5, (len(units), 3))
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), units, grade


@pytest.mark.parametrize("worst", [True, False])
def test_the_fit_is_at_least_as_likely_as_the_fixed_rules_on_new_patients(worst: bool) -> None:
    rng = np.random.default_rng(5)
    learned = fit_pooling(*draw_patients(rng, 150, worst=worst))
    p, units, grade = draw_patients(rng, 400, worst=worst)

    def likelihood(how: str) -> float:
        pooled = pool_probabilities(p, units, how=how, learned=learned)  # type: ignore[arg-type]
        return float(np.log(np.maximum(pooled[np.arange(len(grade)), grade], 1e-6)).mean())

    assert likelihood("learned") > likelihood("highest")
    assert likelihood("learned") > likelihood("mean") - 0.01


def test_certain_probabilities_are_labels() -> None:
    p, units, grade = draw_patients(np.random.default_rng(2), 40, worst=True)
    assert fit_pooling(p, units, np.eye(3)[grade]) == pytest.approx(fit_pooling(p, units, grade))


def test_few_patients_stay_near_the_prior() -> None:
    one = fit_pooling([[0.5, 0.5]], [0], [1])
    assert 2 < one.exponent < 8
    assert 0.5 < one.weight < 3


def test_a_thousand_images_of_one_patient() -> None:
    p = np.tile([[0.999999, 0.000001, 0.0]], (1000, 1))
    for how in ("highest", "mean", "learned"):
        pooled = pool_probabilities(p, np.zeros(1000, int), how=how, learned=LEARNED)  # type: ignore[arg-type]
        assert pooled[0, 0] > 0.99
        assert np.isfinite(pooled).all()
    extreme = np.tile([[0.0, 0.0, 1.0]], (1000, 1))
    assert pool_probabilities(extreme, np.zeros(1000, int), how="learned", learned=LEARNED)[0, 2] > 0.999


def test_the_highest_grade() -> None:
    assert highest_per_unit([0, 3, 1, 0], [1, 1, 0, 2]).tolist() == [1, 3, 0]


def test_bad_input() -> None:
    with pytest.raises(SrjtError, match="one unit per image"):
        pool_probabilities([[0.5, 0.5]], [0, 1])
    with pytest.raises(SrjtError, match="Unknown pooling 'heighest': did you mean 'highest'"):
        pool_probabilities([[0.5, 0.5]], [0], how="heighest")  # type: ignore[arg-type]
    with pytest.raises(SrjtError, match="needs its parameters"):
        pool_probabilities([[0.5, 0.5]], [0], how="learned")
    with pytest.raises(SrjtError, match="1 units and 2 labels"):
        fit_pooling([[0.5, 0.5]], [0], [0, 1])
