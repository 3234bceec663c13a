"""One grade for all samples, chosen by the training labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from srjt.ordinal.baselines import naive_baseline
from srjt.ordinal.metrics import METRICS
from srjt.ordinal.purpose import PURPOSES, Purpose
from srjt.training.record.baselines import compare_with_naive

counts = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)


def test_by_hand() -> None:
    """Most frequent is grade 3, but the median is grade 1."""
    naive = naive_baseline([3, 3, 0, 5], [1, 1, 1, 1])
    assert naive == (0.25, (1 + 0 + 1 + 2) / 4, 2 * 0.25 / 1.25 / 4, 0.0)
    naive = naive_baseline([1, 1, 0, 5], [2, 0, 0, 2])
    assert naive == (0.5, 1.5, 2 * 0.5 / 1.5 / 2, 0.0)
    assert naive_baseline([1, 0, 5], [3, 2, 0]).macro_f1 == 0.0  # a grade that is only predicted


@given(training=counts, side=counts)
def test_against_a_list_of_samples(training: list[int], side: list[int]) -> None:
    labels, truth = np.repeat(np.arange(4), training), np.repeat(np.arange(4), side)
    lower_median = np.sort(labels)[(len(labels) - 1) // 2]
    most_frequent = max(range(4), key=lambda grade: (training[grade], -grade))
    naive = naive_baseline(training, side)
    assert naive.accuracy == pytest.approx((truth == most_frequent).mean())
    assert naive.mae == pytest.approx(np.abs(truth - lower_median).mean())
    always = np.full(len(truth), most_frequent)
    assert naive.macro_f1 == pytest.approx(f1_score(truth, always, average="macro", zero_division=0))


def test_a_run_that_does_not_beat_it_says_so() -> None:
    assert compare_with_naive("the test side", score=0.2, naive=0.3, purpose="mae") == ""
    assert compare_with_naive("these samples", score=0.3333, naive=0.3333, purpose="mae") == (
        "This run does not beat a naive prediction on these samples: MAE 0.333, and 0.333 by always predicting the "
        "median training label."
    )
    said = compare_with_naive("the test side", "SORD does", score=0.5, naive=2 / 3, purpose="accuracy")
    assert said == (
        "SORD does not beat a naive prediction on the test side: accuracy 0.500, and 0.667 by always predicting the "
        "most frequent training label."
    )


@pytest.mark.parametrize("purpose", PURPOSES)
def test_only_the_metric_that_the_grades_are_for_is_judged(purpose: Purpose) -> None:
    """Answers beat it in this metric, or in the other three only; a perfect score passes where one grade is right."""
    naive = naive_baseline([4, 3, 2], [4, 3, 2])
    better = METRICS[purpose].lower_is_better
    for score, worse in (
        (getattr(naive, purpose), True),
        (0.1 if better else 0.9, False),
        (1 - better, False),
    ):
        assert (
            bool(compare_with_naive("it", score=score, naive=getattr(naive, purpose), purpose=purpose))
            == worse
        )
