"""What to read next for a statement other than the consensus: the gains against brute force, and
who is asked for what."""

import numpy as np
import pytest

from fixtures.reader_tables import readings_of
from srjt.errors import SrjtError
from srjt.readers import Consensus, Readings, consensus, next_readings
from srjt.readers.next_readings import expected_gain


@pytest.fixture(scope="module")
def readings() -> Readings:
    """Three readers of 150 items; the last one has read few of them."""
    rng = np.random.default_rng(1)
    true = rng.integers(0, 4, size=150)
    off = (rng.random((3, 150)) < 0.25) * rng.choice([-1, 1], size=(3, 150))
    table = (true + off).clip(0, 3)
    seen = rng.random((3, 150)) < np.array([[0.8], [0.7], [0.2]])
    reader, item = np.nonzero(seen)
    return readings_of(item, reader, table[reader, item], classes=4, readers=["a", "b", "few"])


@pytest.fixture(scope="module")
def found(readings: Readings) -> Consensus:
    return consensus(readings)


def joint(found: Consensus, item: int, reader: int, said: int) -> np.ndarray:
    """(C,) p(true grade, reading)."""
    total = np.zeros(len(found.grades))
    for weight, fit in zip(found.variants.weights, found.variants.fits, strict=True):
        by_state = weight * fit.by_state(found.variants.evidence, np.array([item]))[0]
        total += (by_state * fit.matrices[reader, :, said]) @ fit.states.of_grade
    return total


def test_the_gain_for_a_model_is_the_variance_that_a_reading_takes(found: Consensus) -> None:
    answers = np.arange(150) % 4
    items = np.arange(6)
    gain = expected_gain(found, items, goal="model", answers=answers)
    for item in items:
        error = np.abs(np.arange(4) - answers[item])
        known = sum(joint(found, item, 0, said) for said in range(4))
        now = known @ error**2 - (known @ error) ** 2
        for reader in range(3):
            after = 0.0
            for said in range(4):
                both = joint(found, item, reader, said)
                after += both @ error**2 - (both @ error) ** 2 / both.sum()
            assert gain[item, reader] == pytest.approx(now - after, abs=1e-9)


def test_the_gain_for_readers_is_the_information_about_the_rate(found: Consensus) -> None:
    """By the likelihood of a reading whose errors are a little more and a little less frequent."""
    item = 3
    gain = expected_gain(found, np.array([item]), goal="readers")[0]
    variants = found.variants
    for reader in range(3):
        rate = 0.0
        for weight, fit in zip(variants.weights, variants.fits, strict=True):
            right = (fit.matrices[reader] * fit.states.of_grade).sum(axis=1)
            rate += weight * (1.0 - right) @ fit.prior
        information = 0.0
        for said in range(4):
            chances = []
            for change in (-0.001, 0.0, 0.001):
                chance = 0.0
                for weight, fit in zip(variants.weights, variants.fits, strict=True):
                    own = fit.states.of_grade[:, said]
                    matrix = fit.matrices[reader, :, said]
                    scaled = own + (matrix - own) * (1.0 + change / rate)
                    by_state = fit.by_state(variants.evidence, np.array([item]))[0]
                    chance += weight * by_state @ scaled
                chances.append(chance)
            information += ((chances[2] - chances[0]) / 0.002) ** 2 / chances[1]
        assert gain[reader] == pytest.approx(information, rel=1e-6)


def test_readers_of_whom_little_is_known_get_items_that_are_certain(
    readings: Readings, found: Consensus
) -> None:
    wanted = next_readings(found, readings, count=20, goal="readers")
    assert wanted["item"].is_unique
    assert (wanted["reader"] == "few").all()
    assert wanted["gain"].is_monotonic_decreasing
    items = [readings.items.index(name) for name in wanted["item"]]
    for_consensus = next_readings(found, readings, count=20)["item"]
    others = [readings.items.index(name) for name in for_consensus]
    assert found.risk[items].max() < found.risk[others].mean() / 2
    limited = next_readings(found, readings, count=20, per_reader=8, goal="readers")
    assert limited["reader"].value_counts()["few"] == 8
    # the third reader is as well known as the others after enough readings
    many = next_readings(found, readings, count=90, goal="readers")
    assert many["reader"].nunique() > 1


def test_a_model_is_asked_about_where_it_has_answered(readings: Readings, found: Consensus) -> None:
    answers = np.where(np.arange(150) < 40, 1, -1)
    wanted = next_readings(found, readings, count=150, goal="model", answers=answers)
    assert set(wanted["item"]) <= set(readings.items[:40])
    assert wanted["gain"].is_monotonic_decreasing
    for options in ({"goal": "model"}, {"answers": answers}):
        with pytest.raises(SrjtError, match="belong to the goal 'model'"):
            next_readings(found, readings, count=1, **options)
    with pytest.raises(SrjtError, match="goal of further readings"):
        next_readings(found, readings, count=1, goal="entropy")  # type: ignore[arg-type]


def test_equal_gains_are_shared_by_the_readers() -> None:
    """Items that nobody has read, and two readers who read alike."""
    item, reader = (part.ravel() for part in np.indices((40, 2)))
    alike = readings_of(item, reader, item % 4, classes=4, readers=["a", "b"])
    unread = [f"new {place}" for place in range(30)]
    agreed = consensus(alike)
    wanted = next_readings(agreed, alike, count=9, unread=unread)
    assert wanted["item"].is_unique
    assert sorted(wanted["reader"].value_counts()) == [4, 5]
    both = next_readings(agreed, alike, count=9, unread=unread, unread_by_all=True)
    assert (both.groupby("item")["reader"].nunique() == 2).all()
    assert len(both) == 10
    limited = next_readings(agreed, alike, count=9, unread=unread, unread_by_all=True, per_reader=3)
    assert limited["reader"].value_counts().to_dict() == {"a": 3, "b": 3}
