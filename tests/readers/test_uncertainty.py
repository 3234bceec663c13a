"""Intervals of the readers: patients with several images, and images that a reader has read several times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from srjt.readers import Readings, consensus
from srjt.readers.design_effect import design_effect
from srjt.readers.uncertainty import _types_given_others

COPIES = 5


def three_of_four(items: int) -> Readings:
    """Three of four readers with normal noise read each item."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(items), 3)
    seen = rng.integers(0, 4, size=items)[item] + 0.5 * rng.normal(size=len(item))
    return Readings(
        items=[str(i) for i in range(items)],
        readers=["Kim", "Lee", "May", "Ngo"],
        grades=tuple("0123"),
        item=item,
        reader=np.argsort(rng.random((items, 4)), axis=1)[:, :3].ravel(),
        grade=np.rint(seen).astype(int).clip(0, 3),
    )


def copied(readings: Readings) -> Readings:
    """Five images of each patient with the same readings."""
    count = len(readings.items)
    return replace(
        readings,
        items=[f"{item}, {copy}" for copy in range(COPIES) for item in readings.items],
        item=np.concatenate([readings.item + copy * count for copy in range(COPIES)]),
        reader=np.tile(readings.reader, COPIES),
        grade=np.tile(readings.grade, COPIES),
        groups=readings.items * COPIES,
    )


def width(readings: Readings) -> tuple[float, float]:
    """Of the interval of all readers' noise rate, and the mean of each reader's."""
    found = consensus(readings)
    low, high = found.noise_rate_interval
    return float(np.diff(found.overall_noise_rate_interval)[0]), float((high - low).mean())


def test_copies_of_an_image_tell_nothing_new_of_the_readers() -> None:
    readings = three_of_four(60)
    once, grouped = width(readings), width(copied(readings))
    as_patients = width(replace(copied(readings), groups=None))
    for one, same, narrow in zip(once, grouped, as_patients, strict=True):
        assert 0.85 * one < same < 1.5 * one
        assert narrow < 0.8 * one  # so the test can fail


def test_one_image_per_patient_changes_nothing() -> None:
    readings = three_of_four(40)
    names = [f"patient {i:02d}" for i in range(40)]
    assert width(replace(readings, groups=names)) == pytest.approx(width(readings))


def test_the_design_effect_is_the_number_of_copies_and_near_one_for_independent_errors() -> None:
    readings = three_of_four(100)
    found = consensus(copied(readings))
    assert design_effect(found.evidence, found.posterior, found.matrices) == pytest.approx(np.full(4, COPIES))
    found = consensus(replace(readings, groups=[str(i // 4) for i in range(100)]))
    effect = design_effect(found.evidence, found.posterior, found.matrices)
    assert (effect >= 1.0).all()
    assert effect.max() < 1.5


def test_the_other_readings_of_an_image_are_those_of_other_readers() -> None:
    """Kim reads an image twice, as 0 and as 2; what Lee says of it is all that is known besides."""
    readings = Readings(
        items=["a"],
        readers=["Kim", "Lee"],
        grades=("0", "1", "2"),
        item=[0, 0, 0],
        reader=[0, 0, 1],
        grade=[0, 2, 1],
    )
    found = consensus(readings)
    fit = found.model
    prior = fit.population.log_prior(fit.family)
    by_lee = fit.states.prior(fit.grades, fit.kinds) * fit.matrices[1, :, 1]
    by_lee /= by_lee.sum()
    likelihood = np.einsum("s,tsj->tj", by_lee, fit.family.matrices)
    kim = np.exp(prior) * np.sqrt(likelihood[:, 0] * likelihood[:, 2])  # each of the two weighs a half
    types = _types_given_others(found.evidence, fit, times=np.ones(2))
    assert types[0] == pytest.approx(kim / kim.sum())


def test_independent_repeats_are_other_readings() -> None:
    """A crowd that enters as one reader: each vote is judged by the votes beside it."""
    readings = Readings(
        items=["a"], readers=["crowd"], grades=("0", "1", "2"), item=[0, 0], reader=[0, 0], grade=[0, 2]
    )
    found = consensus(readings, repeats="independent")
    fit = found.model
    states, crowd = fit.states.prior(fit.grades, fit.kinds), np.exp(fit.population.log_prior(fit.family))
    for vote, other in ((0, 2), (2, 0)):
        known = states * fit.matrices[0, :, other]
        crowd = crowd * np.einsum("s,ts->t", known / known.sum(), fit.family.matrices[:, :, vote])
    types = _types_given_others(found.evidence, fit, times=np.ones(1))
    assert types[0] == pytest.approx(crowd / crowd.sum())
