"""One grade for all samples, chosen by the training labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srjt.ordinal.baselines import naive_baseline
from srjt.training.record.baselines import compare_with_naive

counts = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)


def test_by_hand() -> None:
    """Most frequent is grade 3, but the median is grade 1."""
    naive = naive_baseline([3, 3, 0, 5], [1, 1, 1, 1])
    assert naive == (0.25, (1 + 0 + 1 + 2) / 4)
    naive = naive_baseline([1, 1, 0, 5], [2, 0, 0, 2])
    assert naive == (0.5, 1.5)


@given(training=counts, side=counts)
def test_against_a_list_of_samples(training: list[int], side: list[int]) -> None:
    labels, truth = np.repeat(np.arange(4), training), np.repeat(np.arange(4), side)
    lower_median = np.sort(labels)[(len(labels) - 1) // 2]
    most_frequent = max(range(4), key=lambda grade: (training[grade], -grade))
    naive = naive_baseline(training, side)
    assert naive.accuracy == pytest.approx((truth == most_frequent).mean())
    assert naive.mae == pytest.approx(np.abs(truth - lower_median).mean())


def test_a_run_that_does_not_beat_it_says_so() -> None:
    naive = naive_baseline([4, 2], [4, 2])
    assert compare_with_naive("the test side", accuracy=0.8, mae=0.2, naive=naive) == ""
    said = compare_with_naive("the test side", accuracy=0.5, mae=0.2, naive=naive)
    assert said == (
        "This run does not beat a naive prediction on the test side: accuracy 0.500, and 0.667 by always predicting "
        "the most frequent training label."
    )
    both = compare_with_naive("these samples", accuracy=naive.accuracy, mae=naive.mae, naive=naive)
    assert "accuracy 0.667, and 0.667" in both
    assert "MAE 0.333, and 0.333 by always predicting the median training label." in both
