"""Readings say what is wrong with them."""

from typing import Any

import numpy as np
import pytest

from srjt.errors import SrjtError
from srjt.readers import Readings

GOOD: dict[str, Any] = {"items": ["a", "b"], "readers": ["x"], "grades": ("0", "1")}
GOOD |= {"item": [0, 1], "reader": [0, 0], "grade": [0, 1]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grades": ("0",)}, "at least two grades"),
        ({"item": [], "reader": [], "grade": []}, "There are no readings"),
        ({"grade": [0, 2]}, "Reading 1 has the grade 2; it must lie in 0 … 1\\."),
        ({"reader": [0, -1]}, "Reading 1 has the reader -1"),
        ({"grade": [0]}, "grade holds one whole number for each of the 2 readings"),
        ({"grade": [0.0, 1.0]}, "the type float64"),
        ({"groups": ["p"]}, "1 groups for 2 items"),
        ({"reference": [0, 5]}, "Item 1 has the reference 5; .* or be −1 where"),
        ({"reference": [0]}, "reference holds one whole number for each of the 2 items"),
        ({"times": np.array(["2020-01-01"], dtype="datetime64[s]")}, "1 times for 2 readings"),
    ],
)
def test_wrong_readings_are_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence):
        Readings(**{**GOOD, **changes})


def test_rows_keep_items_readers_and_times() -> None:
    times = np.array(["2020-01-01", "NaT"], dtype="datetime64[s]")
    part = Readings(**GOOD, times=times, groups=["p", "q"]).rows(np.array([False, True]))
    assert (part.items, part.item.tolist(), part.grade.tolist()) == (["a", "b"], [1], [1])
    assert np.isnat(part.times).all()
    assert part.owner().tolist() == [0, 1]
