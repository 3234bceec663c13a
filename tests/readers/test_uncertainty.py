"""Intervals of the readers: patients with several images, and images that a reader has read several times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from srjt.readers import Readings, consensus, uncertainty
from srjt.readers.design_effect import design_effect
from srjt.readers.evidence import evidence_of
from srjt.readers.family import reader_family
from srjt.readers.fit import maximise
from srjt.readers.states import item_states
from srjt.readers.uncertainty import _Resampled, _resampled, _types_given_others

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


def test_resampling_gives_the_variance_of_a_share() -> None:
    """Where the truth is known, the share of wrong readings p of n patients has the variance p(1 − p)/n, however many
    images of a patient say the same."""
    rng, readers, patients, wrong = np.random.default_rng(0), 20, 200, 0.2
    true = rng.integers(0, 2, size=patients)
    said = np.where(rng.random((readers, patients)) < wrong, 1 - true, true)
    for copies in (1, 3):
        readings = Readings(
            items=[f"{patient}, {copy}" for copy in range(copies) for patient in range(patients)],
            readers=[str(r) for r in range(readers)],
            grades=("0", "1"),
            item=np.tile(np.arange(copies * patients), readers),
            reader=np.repeat(np.arange(readers), copies * patients),
            grade=np.concatenate([np.tile(row, copies) for row in said]),
            reference=np.tile(true, copies),
            groups=[str(patient) for patient in range(patients)] * copies,
        )
        evidence, states = evidence_of(readings, repeats="one reading"), item_states(2, alike=True)
        family = reader_family(states, favourites=True)
        fit = maximise(evidence, states, family, strength=3.0, start=None, iterations=30, tolerance=1e-6)
        found = _resampled(evidence, fit, share=np.full(readers, 1 / readers))
        expected = wrong * (1 - wrong) / patients
        assert found.rate.mean() == pytest.approx(expected, rel=0.35)  # of ten draws
        assert expected / 4 < readers * found.overall < 4 * expected


def test_what_resampling_varies_is_added_to_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent doubts: variances add, so squared widths grow by (2 · 1.96)² times what is added."""
    readings, more = three_of_four(200), 0.03**2

    def squares(variance: float) -> list[np.ndarray]:
        def drawn(evidence: object, fit: object, *, share: object) -> _Resampled:
            each = np.full(4, variance)
            return _Resampled(np.full((4, 4, 4), variance), each, each, variance)

        monkeypatch.setattr(uncertainty, "_resampled", drawn)
        found = consensus(readings)
        middle = (found.matrices > 0.3) & (found.matrices < 0.7)  # near 0 and 1 an interval is cut off
        intervals = [
            found.matrices_interval[:, middle],
            found.bias_interval,
            found.noise_rate_interval,
            np.array(found.overall_noise_rate_interval)[:, None],
        ]
        return [(high - low) ** 2 for low, high in intervals]

    for without, added in zip(squares(0.0), squares(more), strict=True):
        assert len(added)
        assert added - without == pytest.approx(np.full(len(added), (2 * 1.96) ** 2 * more), rel=0.1)
