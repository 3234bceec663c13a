"""Decoding: each answer is the best one for its own measure of error."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srjt.errors import SrjtError
from srjt.ordinal.decoding import decode, expected_grade, median_grade, most_likely_grade

# Sixteenths are exact in floating point, so that ties are real ties.
distributions = st.lists(st.integers(0, 8), min_size=2, max_size=7).filter(any)


def normalised(weights: list[int]) -> torch.Tensor:
    return torch.tensor(weights, dtype=torch.float64) / sum(weights)


def test_by_hand() -> None:
    p = torch.tensor([[0.4, 0.1, 0.2, 0.3], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert most_likely_grade(p).tolist() == [0, 0, 3]
    assert expected_grade(p).tolist() == pytest.approx([1.4, 0.5, 3.0])
    assert median_grade(p).tolist() == [1, 0, 3]
    assert decode(p).tolist() == [0, 0, 3]
    assert decode(p, "median").tolist() == [1, 0, 3]
    assert decode(p, "expected").tolist() == [1, 0, 3]


@given(distributions)
def test_the_median_minimises_expected_absolute_error_and_is_the_lowest_that_does(weights: list[int]) -> None:
    costs = [sum(w * abs(c - g) for c, w in enumerate(weights)) for g in range(len(weights))]
    assert int(median_grade(normalised(weights))) == costs.index(min(costs))


@given(distributions)
def test_the_rounded_mean_minimises_expected_squared_error(weights: list[int]) -> None:
    costs = [sum(w * (c - g) ** 2 for c, w in enumerate(weights)) for g in range(len(weights))]
    chosen = int(decode(normalised(weights), "expected"))
    assert costs[chosen] == min(costs)
    mean = sum(w * c for c, w in enumerate(weights)) / sum(weights)
    assert float(expected_grade(normalised(weights))) == pytest.approx(mean)


@given(distributions)
def test_argmax_maximises_expected_accuracy_and_is_the_mildest_that_does(weights: list[int]) -> None:
    assert int(most_likely_grade(normalised(weights))) == weights.index(max(weights))


def test_shapes_are_free_and_grades_are_whole() -> None:
    p = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    for how in ("argmax", "median", "expected"):
        assert decode(p, how).shape == (2, 3)
        assert decode(p, how).dtype == torch.int64


def test_a_misspelt_decoding_is_suggested() -> None:
    with pytest.raises(SrjtError, match="did you mean 'median'"):
        decode(torch.ones(1, 2), "medain")
