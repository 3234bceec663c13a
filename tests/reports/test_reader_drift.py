"""How a reader's grades change over time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from srjt.readers import Readings
from srjt.reports.reader_drift import drift


def readings(count: int, grades: list[int], **more: Any) -> Readings:
    return Readings(
        items=[f"i{k}" for k in range(count)],
        readers=["r"],
        grades=("0", "1", "2"),
        item=np.arange(count),
        reader=np.zeros(count, dtype=np.int64),
        grade=np.array(grades),
        **more,
    )


def test_a_reader_who_grades_higher_from_some_day_on_drifts() -> None:
    days = np.datetime64("2024-01-01") + np.arange(100)
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (100, 1)))
    dates, values = drift(readings(100, [1] * 50 + [2] * 50, times=days[::-1]), agreed)["r"]
    assert dates == sorted(dates)
    assert values[0] == pytest.approx(1)  # the first days have the last readings
    assert values[-1] == pytest.approx(0)


def test_without_dates_or_with_few_of_them_there_is_no_drift() -> None:
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (15, 1)))
    assert drift(readings(15, [1] * 15), agreed) == {}
    few = np.full(15, np.datetime64("NaT", "s"))
    few[:12] = np.datetime64("2024-01-01")
    assert drift(readings(15, [1] * 15, times=few), agreed) == {}
