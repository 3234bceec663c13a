"""A network as one more reader, and what to read next."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from fixtures.reader_tables import readings_of
from srjt.errors import SrjtError
from srjt.ordinal.intervals import TOO_FEW, effective_counts, wrong_by
from srjt.readers import Consensus, Readings, compare_network, consensus, next_readings
from srjt.readers.agreement import ends, weighted_kappa
from srjt.readers.network import _Resampled, distance_at_limit
from srjt.readers.next_readings import expected_gain
from srjt.reports.aspects.readers import sentence


def make(seed: int = 0, *, items: int = 200, readers: int = 3, error: float = 0.3):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, size=items)
    wrong = rng.random((readers, items)) < error
    table = (true + wrong * rng.choice([-1, 1], size=(readers, items))).clip(0, 3)
    read = np.tile(np.arange(items), readers), np.repeat(np.arange(readers), items), table.ravel()
    return readings_of(*read, classes=4), true, table


def test_a_good_network_is_not_inferior_and_a_bad_one_is_not_shown_to_be() -> None:
    readings, true, table = make()
    good = compare_network(readings, true, resamples=100)
    assert good.not_inferior
    assert good.difference.value > 0
    assert "not shown" not in sentence(good)
    bad = compare_network(
        readings, np.random.default_rng(1).integers(0, 4, size=200), resamples=100
    )
    assert not bad.not_inferior
    assert "not shown" in sentence(bad)
    kappas = [cohen_kappa_score(row, true, weights="quadratic") for row in table]
    assert good.by_reader["network_kappa"].tolist() == pytest.approx(kappas)


@pytest.mark.parametrize("patients", [1, 2, TOO_FEW - 1, TOO_FEW])
def test_few_patients_show_nothing(patients: int) -> None:
    readings, true, _ = make()
    found = compare_network(
        replace(readings, groups=[i % patients for i in range(200)]), true, resamples=100
    )
    assert (
        np.isnan(found.difference.low) == np.isnan(found.by_reader["low"]).all() == (patients == 1)
    )
    assert found.not_inferior == (patients >= TOO_FEW)
    assert (f"not shown with {patients} patient" in sentence(found)) == (patients < TOO_FEW)


@pytest.mark.slow
def test_a_copy_of_a_reader_equals_that_reader() -> None:
    readings, _, table = make()
    row = compare_network(readings, table[1], resamples=50).by_reader.set_index("reader").loc["r1"]
    assert row["difference"] == 0.0
    assert (
        -0.03 < row["low"] < 0.0 < row["high"] < 0.03
    )  # by one more error of the one or the other
    assert row["network_kappa"] == 1.0
    readings, _, table = make(readers=4)
    alike = compare_network(
        readings.rows(readings.reader < 3), table[3], resamples=50
    )  # as good as they are
    assert "κ differs by" in sentence(alike)


@pytest.mark.slow
def test_non_inferiority_is_judged_by_the_whole_interval() -> None:
    """The lower end is below the margin, or above it."""
    readings, _, table = make(readers=4)
    compared = readings.rows(readings.reader < 3), table[3]
    low = compare_network(*compared, resamples=200).difference.low
    assert low < 0.0
    assert not compare_network(*compared, margin=-0.9 * low, resamples=200).not_inferior
    assert compare_network(*compared, margin=-1.1 * low, resamples=200).not_inferior


@pytest.mark.slow
def test_a_patient_with_most_items_makes_the_interval_wider() -> None:
    """Ends are those of effective patients: of 30, one with 60 of 89 items."""
    readings, _, table = make(items=89)
    alike = replace(readings, groups=[str(item % 30) for item in range(89)])
    skewed = replace(readings, groups=[str(max(item - 59, 0)) for item in range(89)])
    widths = []
    for one in (alike, skewed):
        _, low, high = compare_network(one, table[0], resamples=200).difference
        widths.append(high - low)
    assert widths[1] > 1.5 * widths[0]


def test_ends_are_those_of_effective_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of the three readers, and of their mean: 30 patients, one with 60 of 89 items."""
    readings, _, table = make(items=89)
    skewed = replace(readings, groups=[str(max(item - 59, 0)) for item in range(89)])
    counted: list[float] = []

    def recorded(values: np.ndarray, patients: float, *rest: float, **steps: float) -> np.ndarray:
        counted.append(patients)
        return ends(values, patients, *rest, **steps)

    monkeypatch.setitem(compare_network.__globals__, "ends", recorded)
    compare_network(skewed, table[0], resamples=10)
    samples = np.array([60.0] + [1.0] * 29)
    assert counted == pytest.approx([float(effective_counts(samples))] * 4)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2])
def test_the_distance_at_the_limit_is_that_of_wilsons_interval(share: float) -> None:
    """Of rare errors among 1,000: a Poisson number, whose score interval has the closed form."""
    samples = 1000
    z = 1.959964
    high = share + z**2 / (2 * samples) + z * np.sqrt(share / samples + z**2 / (4 * samples**2))
    found = distance_at_limit(z * np.sqrt(share / samples), 1.0 / samples, patients=1e9, level=0.95)
    assert found == pytest.approx(high - share, rel=1e-4)


def test_few_patients_move_the_limit_by_students_quantile() -> None:
    assert distance_at_limit(0.0, 0.01, patients=10, level=0.95) == pytest.approx(
        0.01 * 2.26216**2, rel=1e-4
    )
    assert distance_at_limit(0.3, 0.0, patients=10, level=0.95) == pytest.approx(0.3)


@pytest.mark.slow
def test_a_network_that_never_errs_is_not_certain() -> None:
    """Of four errors more, each by what one lowers κ, nothing would be known."""
    readings, true, table = make(error=0.1)
    network = compare_network(readings, true, resamples=300)
    assert network.difference.low < network.difference.value - 4 * 1e-3
    row = compare_network(readings, table[1], resamples=50).by_reader.set_index("reader").loc["r1"]
    assert row["difference"] - row["low"] == pytest.approx(3.8889 * _one_error(readings), rel=0.01)


def test_copies_of_an_item_do_not_make_an_error_rarer() -> None:
    """One error more is that of a patient, all of whose items are wrong together."""
    _, true, table = make(items=40)
    resampled = _Resampled(weights=np.ones((1, 40)), owner=np.arange(40), classes=4)
    tables = resampled.tables(table[0], true, np.arange(40))
    assert resampled.loss(tables) > 0
    assert resampled.loss(4 * tables) == pytest.approx(resampled.loss(tables))


def _one_error(readings: Readings) -> float:
    """By how much one error more, by one grade, lowers κ of the second reader with the consensus
    of the other two."""
    others = consensus(readings.rows(readings.reader != 1)).grade
    counts = np.zeros((4, 4))
    np.add.at(counts, (readings.grade[readings.reader == 1], others), 1.0)
    share = counts.sum(axis=1, keepdims=True) / counts.sum()
    before, after = weighted_kappa(np.stack([counts, counts + share * wrong_by(1, 4)]), power=2)
    return float(before - after)


def test_undefined_and_wrong_input_are_sentences() -> None:
    readings, true, _ = make(items=30)
    alone = readings.rows(readings.reader == 0)
    with pytest.raises(SrjtError, match="read by two readers"):
        compare_network(alone, true[:30])
    with pytest.raises(SrjtError, match="whole grade"):
        compare_network(readings, true[:5])
    with pytest.raises(SrjtError, match="margin is positive"):
        compare_network(readings, true, margin=0.0)
    constant = compare_network(readings, np.ones(30, dtype=int), resamples=20)
    assert json.dumps(constant.to_dict(), allow_nan=False)


# What to read next: the expected gain against brute force, and the limits.
@pytest.fixture(scope="module")
def readings() -> Readings:
    """Four readers; the last one is a coin."""
    rng = np.random.default_rng(0)
    items, classes = 120, 4
    true = rng.integers(0, classes, size=items)
    table = (true + (rng.random((4, items)) < 0.25) * rng.choice([-1, 1], size=(4, items))).clip(
        0, 3
    )
    table[3] = rng.integers(0, classes, size=items)
    seen = rng.random((4, items)) < 0.6
    reader, item = np.nonzero(seen)
    return readings_of(
        item, reader, table[reader, item], classes=4, readers=["a", "b", "c", "coin"]
    )


@pytest.fixture(scope="module")
def found(readings: Readings) -> Consensus:
    return consensus(readings)


def least_error(posterior: np.ndarray) -> np.ndarray:
    """(I,) the expected absolute error of the best grade."""
    grades = np.arange(posterior.shape[1])
    return (posterior @ np.abs(np.subtract.outer(grades, grades))).min(axis=1)


def test_the_gain_is_the_mean_over_all_possible_readings(found: Consensus) -> None:
    items = np.arange(5)
    evidence, fits = found.variants.evidence, found.variants.fits
    weighted = zip(found.variants.weights, fits, strict=True)
    known = [weight * fit.by_state(evidence, items) for weight, fit in weighted]
    before = least_error(sum(p @ fit.states.of_grade for p, fit in zip(known, fits, strict=True)))
    gain = expected_gain(found, items)
    for reader in range(4):
        for item in items:
            after = 0.0
            for said in range(4):
                joint = sum(
                    (by_state[item] * fit.matrices[reader, :, said]) @ fit.states.of_grade
                    for by_state, fit in zip(known, fits, strict=True)
                )
                after += joint.sum() * least_error((joint / joint.sum())[None])[0]
            assert gain[item, reader] == pytest.approx(max(before[item] - after, 0.0), abs=1e-9)


def test_the_list_is_by_gain_and_asks_nobody_twice(readings: Readings, found: Consensus) -> None:
    wanted = next_readings(found, readings, count=30)
    assert len(wanted) == 30
    assert wanted["item"].is_unique
    assert wanted["gain"].is_monotonic_decreasing
    pairs = zip(readings.item, readings.reader, strict=True)
    done = {(readings.items[i], readings.readers[r]) for i, r in pairs}
    assert not done & set(zip(wanted["item"], wanted["reader"], strict=True))
    assert "coin" not in set(wanted["reader"][:10])  # a coin tells nothing
    limited = next_readings(found, readings, count=30, per_reader=8)
    assert limited["reader"].value_counts().max() <= 8
    assert len(limited) == 30
    with pytest.raises(SrjtError, match="at least 1"):
        next_readings(found, readings, count=0)
    with pytest.raises(SrjtError, match="other items or readers"):
        next_readings(found, replace(readings, readers=["x", "y", "z", "w"]), count=1)
    # items with a reference are done
    known = replace(readings, reference=np.where(np.arange(120) < 100, 1, -1))
    assert set(next_readings(consensus(known), known, count=120)["item"]) <= set(
        readings.items[100:]
    )


def test_a_new_reader_is_the_average_of_the_others(readings: Readings) -> None:
    """With one reader the new one reads like that one; the list is then for the new reader."""
    alone = readings.rows(readings.reader == 0)
    found = consensus(alone)
    items = np.arange(20)
    assert expected_gain(found, items, new_reader=True) == pytest.approx(
        expected_gain(found, items)[:, :1]
    )
    wanted = next_readings(found, alone, count=5, new_reader=True)
    assert wanted["reader"].tolist() == ["new reader"] * 5
    assert wanted["item"].is_unique
