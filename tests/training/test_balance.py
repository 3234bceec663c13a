"""Balanced sampling: rare grades are drawn more often, and everyone as evenly as can be."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, strategies as st

import srjt
from srjt.training.batches import balancing_weights, draw_plan

LABELS = torch.tensor([0] * 80 + [1] * 15 + [2] * 5)


def drawn(balance: float, *, epochs: int = 1) -> torch.Tensor:
    """(N,) how often each sample comes, over some epochs."""
    weights = balancing_weights(LABELS, balance=balance)
    plans = [
        draw_plan(100, batch_size=20, epoch=e, seed=0, margin=4, weights=weights)
        for e in range(1, epochs + 1)
    ]
    return torch.bincount(torch.cat([plan.rows.flatten() for plan in plans]), minlength=100)


def test_without_balance_every_sample_comes_once() -> None:
    assert balancing_weights(LABELS, balance=0.0) is None
    assert drawn(0.0).tolist() == [1] * 100


def test_full_balance_draws_all_grades_equally_often() -> None:
    counts = torch.stack([drawn(1.0, epochs=30)[grade == LABELS].sum() for grade in range(3)])
    assert (counts - 1000).abs().max() <= 30  # one comb per epoch: never more than one off


@given(balance=st.floats(0.05, 1.0), epoch=st.integers(1, 50))
def test_each_comes_as_often_as_expected_rounded_up_or_down(balance: float, epoch: int) -> None:
    weights = balancing_weights(LABELS, balance=balance)
    expected = 100 * weights / weights.sum()
    plan = draw_plan(100, batch_size=10, epoch=epoch, seed=3, margin=4, weights=weights)
    counts = torch.bincount(plan.rows.flatten(), minlength=100)
    assert (counts >= expected.floor()).all()
    assert (counts <= expected.ceil() + 1e-9).all()


def test_a_balanced_training_sees_rare_grades_more_often(data: Any) -> None:
    how = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 2, "batch_size": 16, "noise_rate": 0.2,
           "device": "cpu"}  # fmt: skip
    run = srjt.train(data.manifest, split=data.split, balance=1.0, **how)
    seen = run.history.groupby("grade")["seen"].agg(["sum", "size"])
    assert seen["sum"].max() - seen["sum"].min() <= 2 * 16 + 8  # but for the dropped last batches
    assert seen["size"].max() > 1.5 * seen["size"].min(), (
        "the data must be imbalanced for this to mean anything"
    )
