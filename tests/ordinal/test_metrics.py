"""Metrics, and the naive scores beside them."""

import math
import warnings
from typing import get_args

import numpy as np
import pytest
import sklearn.metrics as oracle
import torch
from hypothesis import given, strategies as st
from sklearn.metrics import f1_score

from refusals import refuses
from srjt.ordinal import Purpose, metrics
from srjt.ordinal.metrics import METRICS, naive_baseline
from srjt.training.baselines import not_beaten

C = 5
# Few samples of five grades: absent and never predicted grades are the rule, not the exception.
pairs = st.lists(st.tuples(st.integers(0, C - 1), st.integers(0, C - 1)), min_size=1, max_size=25)


def split(drawn: list[tuple[int, int]]) -> tuple[list[int], list[int], torch.Tensor]:
    true, predicted = [t for t, _ in drawn], [p for _, p in drawn]
    counts = metrics.confusion_matrix(torch.tensor(true), torch.tensor(predicted), num_classes=C)
    return true, predicted, counts


def test_the_confusion_matrix_takes_arrays_and_lists() -> None:
    true, predicted = [0, 2, 1, 1], [0, 1, 1, 2]
    expected = metrics.confusion_matrix(torch.tensor(true), torch.tensor(predicted), num_classes=3)
    frozen = np.array(predicted)
    frozen.setflags(write=False)
    for pair in ((true, predicted), (np.array(true), frozen), (torch.tensor(true), predicted)):
        assert torch.equal(metrics.confusion_matrix(*pair, num_classes=3), expected)
    with refuses("wrong_shape", says=("4 true", "3 predicted")):
        metrics.confusion_matrix(true, predicted[:3], num_classes=3)
    with refuses("unknown_grade", says="true grades"):
        metrics.confusion_matrix(["mild"], [0], num_classes=3)
    for half in ([0.5], np.array([0.5]), torch.tensor([0.5])):
        with refuses("unknown_grade", says="whole numbers from 0 up"):
            metrics.confusion_matrix(half, [0], num_classes=3)


def test_small_integers_do_not_overflow() -> None:
    grades = np.arange(20, dtype=np.uint8)
    for pair in ((grades, grades), (torch.tensor(grades), torch.tensor(grades))):
        counts = metrics.confusion_matrix(*pair, num_classes=20)
        assert torch.equal(counts, torch.eye(20, dtype=torch.int64))


@given(pairs)
def test_the_confusion_matrix_has_the_truth_in_rows(drawn: list[tuple[int, int]]) -> None:
    true, predicted, counts = split(drawn)
    assert counts.dtype == torch.int64
    assert torch.equal(sum(split([pair])[2] for pair in drawn), counts)  # batches add up
    np.testing.assert_array_equal(counts, oracle.confusion_matrix(true, predicted, labels=range(C)))


@given(pairs)
def test_metrics_agree_with_scikit_learn(drawn: list[tuple[int, int]]) -> None:
    true, predicted, counts = split(drawn)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn warns of the divisions by zero that we compare
        expected = {
            "accuracy": oracle.accuracy_score(true, predicted),
            "mae": oracle.mean_absolute_error(true, predicted),
            "rmse": oracle.root_mean_squared_error(true, predicted),
            "macro_f1": oracle.f1_score(true, predicted, average="macro"),
            "macro_precision": oracle.precision_score(true, predicted, average="macro"),
            "macro_recall": oracle.recall_score(true, predicted, average="macro"),
            # its weights are distances between *positions* in the list of labels: all must be
            # listed
            "qwk": oracle.cohen_kappa_score(true, predicted, weights="quadratic", labels=range(C)),
        }
    found = metrics.summary(counts)
    assert {name: found[name] for name in expected} == pytest.approx(
        expected, nan_ok=True, abs=1e-12
    )


@given(pairs)
def test_the_other_metrics_agree_with_brute_force(drawn: list[tuple[int, int]]) -> None:
    true, _, counts = split(drawn)
    errors = {g: [abs(t - p) for t, p in drawn if t == g] for g in set(true)}
    by_grade = [sum(e) / len(e) for e in errors.values()]
    assert METRICS["macro_mae"](counts) == pytest.approx(sum(by_grade) / len(by_grade))
    assert METRICS["one_off"](counts) == pytest.approx(
        sum(abs(t - p) <= 1 for t, p in drawn) / len(drawn)
    )


def test_every_metric_by_hand() -> None:
    counts = [[3, 1, 0], [0, 1, 1], [1, 0, 3]]
    found = metrics.summary(counts)
    by_hand = {
        "accuracy": 7 / 10,
        "mae": (1 + 1 + 2) / 10,
        "rmse": math.sqrt((1 + 1 + 4) / 10),
        "macro_precision": (3 / 4 + 1 / 2 + 3 / 4) / 3,
        "macro_recall": (3 / 4 + 1 / 2 + 3 / 4) / 3,
        "macro_f1": (6 / 8 + 2 / 4 + 6 / 8) / 3,
        "macro_mae": (1 / 4 + 1 / 2 + 2 / 4) / 3,
        "one_off": 9 / 10,
        # chance: rows (4, 2, 4), columns (4, 2, 4); 1·(8+8+8+8)/10 + 4·(16+16)/10 = 16
        "qwk": 1 - 6 / 16,
    }
    assert found == pytest.approx(by_hand)
    assert list(found) == list(metrics.METRICS)


@given(st.lists(pairs, min_size=2, max_size=4))
def test_many_matrices_at_once(drawn: list[list[tuple[int, int]]]) -> None:
    counts = np.stack([split(one)[2].numpy() for one in drawn]).astype(np.float64)
    for metric in metrics.METRICS.values():
        np.testing.assert_array_equal(metric.function(counts), [metric(one) for one in counts])


def test_what_cannot_be_measured_is_said() -> None:
    assert math.isnan(METRICS["qwk"]([[4, 0], [0, 0]]))
    assert METRICS["qwk"]([[4, 0], [0, 3]]) == 1.0
    assert METRICS["qwk"]([[0, 4], [4, 0]]) == -1.0
    with refuses("too_few"):
        METRICS["accuracy"](np.zeros((3, 3)))
    with refuses("wrong_shape", says="(2, 3)"):
        METRICS["mae"](np.ones((2, 3)))
    with refuses("wrong_shape", says="(3, 3)"):
        metrics.label_precision(np.ones((3, 3)))


def test_label_precision_and_recall_by_hand() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    true = torch.tensor([0, 1, 0, 1, 1, 1])
    selected = torch.tensor([[True, True, False, True, False, False], [False] * 6])
    counts = metrics.selection_counts(selected, labels, true, num_classes=4)
    assert counts.shape == (2, 4, 4)
    # selected and clean, selected, clean, all; per given grade
    assert counts[0].tolist() == [[1, 1, 0, 0], [2, 1, 0, 0], [2, 2, 0, 0], [3, 2, 1, 0]]
    assert metrics.label_precision(counts[0]) == pytest.approx(2 / 3)
    assert metrics.label_recall(counts[0]) == pytest.approx(2 / 4)
    np.testing.assert_equal(
        metrics.label_precision(counts[0], per_class=True), [0.5, 1, np.nan, np.nan]
    )
    np.testing.assert_equal(
        metrics.label_recall(counts[0], per_class=True), [0.5, 0.5, np.nan, np.nan]
    )
    assert math.isnan(metrics.label_precision(counts[1]))  # nothing selected
    assert metrics.label_recall(counts[1]) == 0.0


selections = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=30
)


@given(selections, st.integers(1, 29))
def test_label_precision_agrees_with_scikit_learn(
    drawn: list[tuple[int, int, bool]], cut: int
) -> None:
    def count(part: list[tuple[int, int, bool]]) -> torch.Tensor:
        labels, true, selected = (torch.tensor([d[k] for d in part]) for k in range(3))
        return metrics.selection_counts(selected, labels, true, num_classes=4)

    counts = sum(count(part) for part in (drawn[:cut], drawn[cut:]) if part)
    clean, chosen = [y == t for y, t, _ in drawn], [s for _, _, s in drawn]
    if any(chosen):
        assert metrics.label_precision(counts) == pytest.approx(
            oracle.precision_score(clean, chosen)
        )
    if any(clean):
        assert metrics.label_recall(counts) == pytest.approx(oracle.recall_score(clean, chosen))


def test_counting_needs_no_host_synchronisation() -> None:
    """On the meta device there are no values to look at."""
    grades = torch.empty(8, dtype=torch.long, device="meta")
    selected = torch.empty(2, 8, dtype=torch.bool, device="meta")
    assert metrics.confusion_matrix(grades, grades, num_classes=4).shape == (4, 4)
    assert metrics.selection_counts(selected, grades, grades, num_classes=4).shape == (2, 4, 4)


# One grade for all samples, chosen by the training labels.
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
    assert naive.macro_f1 == pytest.approx(
        f1_score(truth, always, average="macro", zero_division=0)
    )


@pytest.mark.parametrize("purpose", get_args(Purpose))
def test_only_the_metric_that_the_grades_are_for_is_judged(purpose: Purpose) -> None:
    """Answers beat it in this metric, or in the other three only; a perfect score passes where one
    grade is right."""
    naive = naive_baseline([4, 3, 2], [4, 3, 2])
    better = METRICS[purpose].lower_is_better
    same = getattr(naive, purpose)
    for score, worse in ((same, True), (0.1 if better else 0.9, False), (1 - better, False)):
        assert not_beaten(score, same, purpose=purpose) == worse
