"""Targets: Eq. 1, Eq. 3 and uniform smoothing, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srjt.errors import SrjtError
from srjt.ordinal.labels import one_hot, smooth_labels, soft_label_matrix, soft_labels

grades_and_classes = st.integers(2, 12).flatmap(lambda c: st.tuples(st.integers(0, c - 1), st.just(c)))


def test_soft_labels_of_four_grades_by_hand() -> None:
    # row 0: (1, 1/e, 1/e², 1/e³) / 1.553001; row 1: (1/e, 1, 1/e, 1/e²) / 1.871094
    expected = [
        [0.643914, 0.236883, 0.087144, 0.032059],
        [0.196612, 0.534447, 0.196612, 0.072330],
        [0.072330, 0.196612, 0.534447, 0.196612],
        [0.032059, 0.087144, 0.236883, 0.643914],
    ]
    torch.testing.assert_close(soft_label_matrix(4), torch.tensor(expected), atol=1e-6, rtol=0)


def test_soft_labels_are_rows_of_the_matrix() -> None:
    labels = torch.tensor([[3, 0], [1, 1]])
    assert torch.equal(soft_labels(labels, 4), soft_label_matrix(4)[labels])
    assert soft_labels(labels, 4).shape == (2, 2, 4)


@pytest.mark.parametrize("num_classes", range(2, 9))
def test_soft_labels_agree_with_dlordinal(num_classes: int) -> None:
    oracle = pytest.importorskip("dlordinal.soft_labelling")
    ours = soft_label_matrix(num_classes, dtype=torch.float64).numpy()
    np.testing.assert_allclose(ours, oracle.get_exponential_soft_labels(num_classes), rtol=1e-12)


@given(grades_and_classes)
def test_a_soft_label_is_a_distribution_with_its_mode_at_the_label(case: tuple[int, int]) -> None:
    label, num_classes = case
    row = soft_labels([label], num_classes, dtype=torch.float64)[0]
    assert float(row.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(row.min()) > 0
    assert int(row.argmax()) == label
    # each further step away costs a factor of e, on either side
    for c in range(num_classes):
        assert float(row[c] / row[label]) == pytest.approx(math.exp(-abs(c - label)), rel=1e-12)


@given(grades_and_classes)
def test_reversing_the_grades_reverses_the_soft_label(case: tuple[int, int]) -> None:
    label, num_classes = case
    there, back = soft_labels([label, num_classes - 1 - label], num_classes, dtype=torch.float64)
    torch.testing.assert_close(there, back.flip(0), rtol=1e-12, atol=0)


def test_one_hot_by_hand() -> None:
    assert one_hot([2, 0], 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_smoothing_spreads_over_all_grades_the_label_included() -> None:
    # 0.1 over 4 grades: 0.025 each, and the label has 0.9 more
    torch.testing.assert_close(smooth_labels([1], 4), torch.tensor([[0.025, 0.925, 0.025, 0.025]]))
    torch.testing.assert_close(smooth_labels([1], 2, smoothing=1.0), torch.tensor([[0.5, 0.5]]))
    assert torch.equal(smooth_labels([1], 4, smoothing=0.0), one_hot([1], 4))


@pytest.mark.parametrize("make", [soft_labels, one_hot, smooth_labels])
@pytest.mark.parametrize("labels", [[0, 3], np.array([0, 3], dtype=np.uint8), torch.tensor([0, 3])])
def test_any_integer_labels_are_taken(make, labels) -> None:
    targets = make(labels, 4, dtype=torch.float64)
    assert targets.dtype == torch.float64
    assert targets.argmax(dim=-1).tolist() == [0, 3]


@pytest.mark.parametrize("make", [soft_labels, one_hot, smooth_labels])
def test_labels_out_of_range_or_fractional_are_named(make) -> None:
    with pytest.raises(SrjtError, match=r"0 … 3; they reach from 1 to 4"):
        make([1, 4], 4)
    with pytest.raises(SrjtError, match=r"reach from -1 to 2"):
        make([-1, 2], 4)
    with pytest.raises(SrjtError, match=r"whole grades 0 … 3, not torch.float32"):
        make(torch.tensor([1.0]), 4)
    with pytest.raises(SrjtError, match=r"not torch.bool"):
        make(torch.tensor([True]), 4)


def test_impossible_settings_are_named() -> None:
    with pytest.raises(SrjtError, match="at least two grades, not 1"):
        soft_label_matrix(1)
    with pytest.raises(SrjtError, match=r"between 0 and 1, not 1\.5"):
        smooth_labels([0], 3, smoothing=1.5)


def test_targets_are_made_without_looking_at_the_values() -> None:
    """On the meta device every look at a value fails, as it would stall or break a captured graph."""
    labels = torch.zeros(5, dtype=torch.long, device="meta")
    for make in (soft_labels, one_hot, smooth_labels):
        assert make(labels, 4).device.type == "meta"
