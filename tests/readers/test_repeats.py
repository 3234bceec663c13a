"""The same reader twice: agreement with oneself, and what a second reading is worth."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from fixtures.reader_tables import readings_of
from srjt.readers import Readings, consensus
from srjt.readers.consensus import next_grade, persistence, repeated_share
from srjt.readers.readings import days_between, evidence_of, two_readings
from srjt.readers.repeats import Repeated, repeats_of
from srjt.reports.pages.repeats import sentences


def made(
    seed: int = 0, *, items: int = 200, readers: int = 3, noise: float = 0.5, own: float = 0.3
) -> Readings:
    """Each of the readers reads each item twice, on a scale without ends: grade = severity + what
    the reader sees in it each time + noise."""
    rng = np.random.default_rng(seed)
    severity = rng.uniform(10, 20, size=(items, 1, 1))
    seen = severity + own * rng.normal(size=(items, readers, 1))
    grade = np.rint(seen + noise * rng.normal(size=(items, readers, 2))).astype(int)
    item, reader, _ = np.indices(grade.shape)
    return readings_of(item.ravel(), reader.ravel(), grade.ravel(), classes=31)


def test_only_the_first_two_readings_of_a_visit_count_by_time() -> None:
    readings = Readings(
        items=["a", "b"],
        readers=["Kim", "Lee"],
        grades=tuple("0123"),
        item=[0, 0, 0, 0, 1],
        reader=[0, 0, 0, 1, 0],
        grade=[3, 1, 2, 0, 1],
        times=np.array(["2024-03", "2024-01", "2024-02", "2024-01", "2024-01"], "datetime64[s]"),
    )
    twice = two_readings(readings)
    assert [column.tolist() for column in twice] == [[0], [0], [1], [2]]


def test_noise_and_what_comes_back_are_told_apart() -> None:
    found = repeats_of(made(items=4000, noise=0.8, own=0.6), resamples=0)
    assert found is not None
    # rounding to grades adds a variance of 1/12
    assert found.noise == pytest.approx(np.sqrt(0.8**2 + 1 / 12), abs=0.02)
    assert found.reader_effect == pytest.approx(0.6, abs=0.03)


def test_kappa_and_limits_of_agreement_by_hand() -> None:
    readings = made(items=40)
    found = repeats_of(readings, resamples=50)
    assert found is not None
    twice = two_readings(readings)
    own = twice.rows(twice.reader == 1)
    row = found.by_reader.iloc[1]
    off = own.second - own.first
    kappa = cohen_kappa_score(own.first, own.second, weights="quadratic")
    assert row["kappa"] == pytest.approx(kappa)
    assert row["exact"] == pytest.approx((off == 0).mean())
    assert row["difference"] == pytest.approx(off.mean())
    assert row["limit_low"] == pytest.approx(off.mean() - 1.96 * off.std(ddof=1))
    assert row["limit_high"] == pytest.approx(off.mean() + 1.96 * off.std(ddof=1))
    for name in ("exact", "kappa", "difference", "limit_low", "limit_high"):
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]


def test_who_always_repeats_the_grade_has_an_interval_all_the_same() -> None:
    readings = made(items=30, noise=0.0)
    found = repeats_of(readings, resamples=200)
    assert found is not None
    assert found.by_reader["kappa"].tolist() == [1.0, 1.0, 1.0]
    assert (found.by_reader["kappa_low"] < 1.0).all()
    assert (found.by_reader["limit_high_high"] > 0.0).all()


def test_nothing_was_read_twice() -> None:
    assert repeats_of(made(items=20).first()) is None


@pytest.mark.parametrize(
    ("noise", "own", "worth", "readings"),
    [
        (1.0, 0.0, 1.0, 2.0),
        (2.0, 1.0, 0.8, 8 / 3),
        (1.0, 1.0, 0.5, np.inf),
        (0.0, 1.0, 0.0, np.inf),
    ],
)
def test_a_second_reading_and_a_second_reader(
    noise: float, own: float, worth: float, readings: float
) -> None:
    found = repeats_of(made(items=5), resamples=0)
    assert found is not None
    found = Repeated(**{**vars(found), "noise": noise, "reader_effect": own})
    assert found.worth == pytest.approx(worth)
    assert found.readings_for_a_reader == pytest.approx(readings)
    if np.isfinite(readings):  # as exact as two readers
        both = (own**2 + noise**2 / readings) ** 0.5
        assert both == pytest.approx(found.error(readers=2))
    assert found.error(readers=1, readings=2) == pytest.approx((own**2 + noise**2 / 2) ** 0.5)


def graded(seed: int, *, repeats: float, items: int = 400) -> tuple[Readings, np.ndarray]:
    """Three readers with matrices; a share of the second readings repeats the first one."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, size=items)
    matrix = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    draws = rng.random((items, 3, 2, 1))
    grade = (matrix.cumsum(axis=1)[true][:, None, None] < draws).sum(axis=3)
    again = rng.random((items, 3)) < repeats
    grade[:, :, 1] = np.where(again, grade[:, :, 0], grade[:, :, 1])
    item, reader, _ = np.indices(grade.shape)
    return readings_of(item.ravel(), reader.ravel(), grade.ravel(), classes=3), true


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [0.0, 0.5, 1.0])
def test_persistence_is_found(repeats: float) -> None:
    readings, _ = graded(1, repeats=repeats, items=1500)
    assert persistence(readings) == pytest.approx(repeats, abs=0.08)


@pytest.mark.slow
def test_second_readings_that_are_not_repeated_sharpen_the_consensus() -> None:
    readings, true = graded(2, repeats=0.0)
    one = consensus(readings, shared_errors=0.0)
    estimated = consensus(readings, repeats="estimated", shared_errors=0.0)
    assert np.mean(estimated.grade == true) > np.mean(one.grade == true)
    assert estimated.certainty.mean() > one.certainty.mean() + 0.02


def test_a_further_reading_weighs_what_it_is_told() -> None:
    readings = readings_of([0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 2], classes=3)
    said = evidence_of(readings, repeats="estimated", again=0.25).said.toarray()
    assert said.tolist() == [[0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_nothing_repeated_means_that_a_further_reading_tells_nothing() -> None:
    assert persistence(made(items=5).first()) == 1.0


def test_the_next_grade_is_that_of_the_item_read_by_the_reader() -> None:
    readings, _ = graded(3, repeats=0.0, items=60)
    found = consensus(readings.first(), shared_errors=0.0)
    fresh = next_grade(found.variants, np.array([4]), np.array([2]))
    by_hand = np.zeros(3)
    for weight, fit in zip(found.variants.weights, found.variants.fits, strict=True):
        by_hand += weight * fit.by_state(found.variants.evidence, slice(None))[4] @ fit.matrices[2]
    assert fresh[0] == pytest.approx(by_hand)
    assert fresh.sum() == pytest.approx(1.0)


def test_the_share_that_repeats_is_of_greatest_likelihood() -> None:
    readings, _ = graded(4, repeats=0.4, items=60)
    twice = two_readings(readings)
    fresh = np.full((len(twice.item), 3), 1 / 3)
    share = repeated_share(twice, fresh)

    def likelihood(share: float) -> float:
        same = twice.first == twice.second
        return float(np.log(share * same + (1.0 - share) / 3).sum())

    assert likelihood(share) >= max(likelihood(share - 0.01), likelihood(share + 0.01))


def test_a_second_reader_helps_more_only_if_the_intervals_say_so() -> None:
    few = repeats_of(made(items=10, readers=2, own=0.3), resamples=0)
    many = repeats_of(made(items=400, noise=0.4, own=1.5), resamples=0)
    assert few is not None
    assert many is not None
    assert (few.clear, many.clear) == (False, True)
    verdicts = [len(sentences(found)) for found in (few, many)]
    assert verdicts == [2, 3]


def test_second_readings_within_a_week_are_counted() -> None:
    readings = made(items=6, readers=1)
    assert np.isnan(days_between(readings)).all()
    days = np.tile([0, 3], 6) + np.repeat([0, 0, 0, 100, 100, 100], 2)
    days[1] = 30
    dated = replace(
        readings, times=np.datetime64("2024-01-01", "s") + days * np.timedelta64(1, "D")
    )
    assert days_between(dated).tolist() == [30, 3, 3, 3, 3, 3]
