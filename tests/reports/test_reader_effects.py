"""What each reader does: means, repetitions and drift, against closed forms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from srjt.readers import Readings
from srjt.reports.reader_effects import drift, graded_higher, mean_by_reader, repeated


def readings(item: list[int], reader: list[int], grade: list[int], **more: Any) -> Readings:
    return Readings(
        items=[f"i{k}" for k in range(max(item) + 1)],
        readers=[f"r{k}" for k in range(max(reader) + 1)],
        grades=("0", "1", "2"),
        item=np.array(item),
        reader=np.array(reader),
        grade=np.array(grade),
        **more,
    )


def test_means_and_their_intervals_are_those_of_independent_observations() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=200)
    found = mean_by_reader(values, readings(list(range(200)), [0] * 100 + [1] * 100, [0] * 200))
    for reader, part in enumerate((values[:100], values[100:])):
        error = 1.96 * part.std(ddof=1) / 10
        assert found.value[reader] == pytest.approx(part.mean())
        assert found.interval[reader] == pytest.approx([part.mean() - error, part.mean() + error])


def test_images_of_one_patient_are_one_observation() -> None:
    """Ten copies of each value, all of one patient, say no more than one of them."""
    values = np.random.default_rng(1).normal(size=50)
    one = mean_by_reader(values, readings(list(range(50)), [0] * 50, [0] * 50))
    copies = readings(list(range(500)), [0] * 500, [0] * 500, groups=[f"p{k // 10}" for k in range(500)])
    ten = mean_by_reader(np.repeat(values, 10), copies)
    assert ten.interval == pytest.approx(one.interval)


def test_a_reader_with_one_reading_has_an_interval() -> None:
    found = mean_by_reader(np.array([0.0, 1.0, 2.0]), readings([0, 1, 2], [0, 0, 1], [0, 0, 0]))
    assert np.isfinite(found.interval).all()
    assert found.interval[1, 1] > found.value[1]


def test_repetitions_are_pairs_of_readings_by_one_reader() -> None:
    # r0 reads i0 three times (1, 1, 2) and i1 twice (0, 0); r1 never twice
    pairs, same = repeated(readings([0, 0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1, 1], [1, 1, 2, 0, 0, 1, 0]))
    assert pairs.tolist() == [4, 0]
    assert same[0] == pytest.approx(2 / 4)
    assert np.isnan(same[1])


def test_a_reader_who_grades_higher_from_some_day_on_drifts() -> None:
    days = np.datetime64("2024-01-01") + np.arange(100)
    made = readings(list(range(100)), [0] * 100, [1] * 50 + [2] * 50, times=days)
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (100, 1)))
    assert graded_higher(made, agreed).value == pytest.approx([0.5])
    dates, values = drift(made, agreed)["r0"]
    assert dates == sorted(dates)
    assert values[0] == pytest.approx(0)
    assert values[-1] == pytest.approx(1)
    assert drift(readings([0], [0], [0], times=days[:1]), agreed) == {}
