"""R(T), the number kept, and which samples those are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srjt.errors import SrjtError
from srjt.ordinal.selection import keep_count, keep_rate, select_smallest

# --------------------------------------------------------------------------------------- how many


def test_keep_rate_of_the_paper() -> None:
    # ε = 0.4, T' = 5: a fifth of ε more is forgotten each epoch, the first included
    rates = [keep_rate(epoch, noise_rate=0.4) for epoch in range(1, 8)]
    assert rates == pytest.approx([0.92, 0.84, 0.76, 0.68, 0.6, 0.6, 0.6])


def test_keep_rate_of_the_hosts_own_papers() -> None:
    rates = [keep_rate(epoch, noise_rate=0.5, convention="original") for epoch in (1, 2, 9, 10, 11)]
    assert rates == pytest.approx([0.95, 0.9, 0.55, 0.5, 0.5])
    assert keep_count(64, 0.9, convention="original") == keep_count(64, 0.9)


def test_keep_rate_of_the_published_code() -> None:
    # ε = 0.45: linspace(0, 0.45, 10) climbs by 0.05 and starts at 0
    rates = [keep_rate(epoch, noise_rate=0.45, convention="published-code") for epoch in range(1, 13)]
    assert rates == pytest.approx([1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.55, 0.55])


@given(st.floats(0, 0.99), st.integers(1, 30), st.integers(1, 40))
def test_keep_rate_agrees_with_the_formulas(noise_rate: float, ramp: int, epoch: int) -> None:
    paper = keep_rate(epoch, noise_rate=noise_rate, ramp_epochs=ramp)
    assert paper == pytest.approx(1 - min(epoch / ramp * noise_rate, noise_rate))
    forget = np.full(40, noise_rate)
    forget[:ramp] = np.linspace(0, noise_rate, ramp)
    code = keep_rate(epoch, noise_rate=noise_rate, ramp_epochs=ramp, convention="published-code")
    assert code == pytest.approx(1 - forget[epoch - 1])


@pytest.mark.parametrize(
    ("batch", "rate", "paper", "code"),
    [
        (64, 0.8, 52, 51),  # 51.2
        (64, 0.96, 62, 61),  # 61.44
        (64, 1.0, 64, 64),
        (128, 0.7, 90, 89),  # 89.6
        (5, 1 - 0.4, 3, 3),  # whole but for rounding
        (10, 1 - 0.9, 1, 1),  # 0.9999999999999998
        (30, 0.1 + 0.2, 9, 9),  # 9.000000000000002
        (10, 0.7 - 0.4, 3, 3),  # 2.9999999999999996
        (3, 0.1, 1, 1),  # never 0
        (1, 0.5, 1, 1),
        (4, 0.0, 1, 1),
        (4, 1.5, 4, 4),  # never more than there are
    ],
)
def test_keep_count(batch: int, rate: float, paper: int, code: int) -> None:
    assert keep_count(batch, rate) == paper
    assert keep_count(batch, rate, convention="published-code") == code


@given(st.integers(1, 4096), st.floats(0, 1))
def test_keep_count_is_the_smallest_set_that_is_large_enough(batch: int, rate: float) -> None:
    up, down = keep_count(batch, rate), keep_count(batch, rate, convention="published-code")
    assert 1 <= down <= up <= batch
    slack = 1e-9 * batch
    assert up >= rate * batch - slack
    assert up == 1 or up - 1 < rate * batch + slack
    assert down == 1 or down <= rate * batch + slack


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: keep_rate(0, noise_rate=0.2), "counted from 1; got 0"),
        (lambda: keep_rate(1, noise_rate=1.0), r"\[0, 1\); got 1"),
        (lambda: keep_rate(1, noise_rate=-0.1), r"got -0\.1"),
        (lambda: keep_rate(1, noise_rate=math.nan), "got nan"),
        (lambda: keep_rate(1, noise_rate=0.2, ramp_epochs=0), "at least one epoch; got 0"),
        (lambda: keep_rate(1, noise_rate=0.2, convention="published_code"), "did you mean 'published-code'"),
        (lambda: keep_count(0, 0.5), "at least one sample; got 0"),
        (lambda: keep_count(4, 0.5, convention="papr"), "did you mean 'paper'"),
    ],
)
def test_impossible_rates_are_named(call, sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence):
        call()


# -------------------------------------------------------------------------------------------- which

# Few distinct values, so that ties are common: at τ = 0.1 many hard losses are exactly 0.
tied_scores = st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, math.inf, math.nan]), min_size=1, max_size=12)
batches = tied_scores.flatmap(
    lambda s: st.tuples(
        st.just(s),
        st.lists(st.integers(0, 3), min_size=len(s), max_size=len(s)),
        st.integers(1, len(s)),
    )
)


def smallest(scores: list[float], keep: int) -> set[int]:
    """By the rule in words: smaller first, not-a-number last, the earlier of equals first."""
    order = sorted(range(len(scores)), key=lambda i: (math.isnan(scores[i]), scores[i], i))
    finite = [i for i in order if not math.isnan(scores[i])]
    unknown = [i for i in range(len(scores)) if math.isnan(scores[i])]
    return set((finite + unknown)[:keep])


def indices(mask: Tensor) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def test_selection_by_hand() -> None:
    scores = torch.tensor([3.0, 1.0, 2.0, 1.0, 0.5])
    assert select_smallest(scores, keep=2).tolist() == [False, True, False, False, True]
    assert select_smallest(scores, keep=3).tolist() == [False, True, False, True, True]


@given(batches)
def test_exactly_the_smallest_are_kept(case: tuple[list[float], list[int], int]) -> None:
    scores, _, keep = case
    assert indices(select_smallest(torch.tensor(scores), keep=keep)) == smallest(scores, keep)


@given(batches)
def test_per_class_keeps_the_same_share_of_each_grade_rounded_up(
    case: tuple[list[float], list[int], int],
) -> None:
    scores, labels, keep = case
    size = len(scores)
    expected: set[int] = set()
    for grade in set(labels):
        members = [i for i in range(size) if labels[i] == grade]
        quota = math.ceil(keep * len(members) / size)
        expected |= {members[i] for i in smallest([scores[m] for m in members], quota)}
    mask = select_smallest(torch.tensor(scores), keep=keep, labels=torch.tensor(labels))
    assert indices(mask) == expected
    assert set(labels) == {labels[i] for i in indices(mask)}  # no grade is starved


def test_per_class_by_hand() -> None:
    # keep 4 of 8: grade 0 (5 samples) ceil(2.5) = 3, grade 2 (2) 1, grade 1 (1) ceil(0.5) = 1
    labels = torch.tensor([0, 0, 2, 0, 1, 0, 2, 0])
    scores = torch.tensor([5.0, 1.0, 9.0, 2.0, 99.0, 3.0, 8.0, 4.0])
    mask = select_smallest(scores, keep=4, labels=labels)
    assert indices(mask) == {1, 3, 5, 6, 4}
    assert 4 not in indices(select_smallest(scores, keep=4))


@given(st.permutations(range(10)), st.integers(1, 10), st.booleans())
def test_shuffling_the_batch_shuffles_the_selection(order: list[int], keep: int, per_class: bool) -> None:
    scores = torch.tensor([0.3, 2.0, 1.5, 0.1, 7.0, 0.2, 5.0, 3.0, 0.7, 0.4])  # all different
    labels = torch.tensor([0, 1, 1, 3, 3, 0, 0, 2, 2, 0])
    grades = {"labels": labels} if per_class else {}
    shuffled = {"labels": labels[order]} if per_class else {}
    before = select_smallest(scores, keep=keep, **grades)
    assert torch.equal(select_smallest(scores[order], keep=keep, **shuffled), before[order])


def test_ties_go_to_the_earlier_sample_at_any_size() -> None:
    """Unstable sorting shows only in larger batches."""
    scores = torch.zeros(1000)
    assert indices(select_smallest(scores, keep=300)) == set(range(300))
    labels = torch.arange(1000) % 4
    assert indices(select_smallest(scores, keep=300, labels=labels)) == set(range(300))


def test_scores_that_are_not_numbers_rank_last_even_behind_infinity() -> None:
    scores = torch.tensor([math.nan, math.inf, 0.0, -math.inf])
    assert select_smallest(scores, keep=3).tolist() == [False, True, True, True]
    assert select_smallest(scores, keep=4).all()


@given(batches)
def test_a_tensor_keep_and_rows_of_scores_make_no_difference(
    case: tuple[list[float], list[int], int],
) -> None:
    listed, grades, keep = case
    one, labels = torch.tensor(listed), torch.tensor(grades)
    rows = torch.stack([one, one.flip(0), torch.zeros_like(one)])
    for given_labels in (None, labels):
        by_int = select_smallest(rows, keep=keep, labels=given_labels)
        assert torch.equal(by_int, select_smallest(rows, keep=torch.tensor(keep), labels=given_labels))
        for row, mask in zip(rows, by_int, strict=True):
            assert torch.equal(mask, select_smallest(row, keep=keep, labels=given_labels))


@pytest.mark.parametrize("per_class", [False, True])
def test_no_host_synchronisation_and_no_shape_depends_on_data(per_class: bool) -> None:
    """On the meta device there are no values to look at."""
    scores = torch.empty(2, 8, device="meta")
    labels = torch.empty(8, dtype=torch.long, device="meta") if per_class else None
    mask = select_smallest(scores, keep=torch.empty((), dtype=torch.long, device="meta"), labels=labels)
    assert mask.shape == (2, 8)
    assert mask.dtype == torch.bool
    assert mask.device.type == "meta"
