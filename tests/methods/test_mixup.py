"""Mixup: one Beta(½, ½) draw and one permutation per batch, the same blend for samples and labels."""

from __future__ import annotations

from math import log

import pytest
import torch
from scipy.stats import beta, kstest

from srjt import methods


def prepare(seed: int, size: int = 8, **options) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    labels = torch.arange(size) % 4
    x = torch.eye(size, dtype=torch.float64)  # each sample is its own axis, so the blend can be read off
    method = methods.create("mixup", num_classes=4, **options)
    blended, targets = method.prepare(x, labels, generator=torch.Generator().manual_seed(seed))
    return blended, targets, labels


def share_of(blended: torch.Tensor) -> float | None:
    """λ, read from a sample that was blended with another one; None if none was."""
    rows = [i for i in range(len(blended)) if float(blended[i, i]) < 1]
    return float(blended[rows[0], rows[0]]) if rows else None


@pytest.mark.parametrize("seed", range(5))
def test_samples_and_labels_are_blended_alike_by_one_share(seed: int) -> None:
    blended, targets, labels = prepare(seed)
    share = share_of(blended)
    assert share is not None
    partners = []
    for i in range(len(blended)):
        partner = int((blended[i] * (torch.arange(8) != i)).argmax()) if blended[i, i] < 1 else i
        partners.append(partner)
        expected = torch.zeros(8, dtype=torch.float64)
        expected[i] += share
        expected[partner] += 1 - share
        torch.testing.assert_close(blended[i], expected)
        label = torch.zeros(4)
        label[labels[i]] += share
        label[labels[partner]] += 1 - share
        torch.testing.assert_close(targets[i], label)
    assert sorted(partners) == list(range(8))  # a permutation: everyone is a partner once


def test_the_share_is_drawn_from_the_beta_distribution() -> None:
    method = methods.create("mixup", num_classes=4)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.eye(5, dtype=torch.float64), torch.zeros(5, dtype=torch.long)
    shares = [share_of(method.prepare(x, y, generator=generator)[0]) for _ in range(600)]
    drawn = [s for s in shares if s is not None]
    assert len(drawn) > 550
    assert kstest(drawn, beta(0.5, 0.5).cdf).pvalue > 1e-3
    assert kstest(drawn, beta(1.0, 1.0).cdf).pvalue < 1e-6  # the test can tell α = ½ from 1


def test_the_same_generator_gives_the_same_blend_and_the_next_call_another() -> None:
    assert torch.equal(prepare(3)[0], prepare(3)[0])
    assert not torch.equal(prepare(3)[0], prepare(4)[0])
    method = methods.create("mixup", num_classes=4)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.eye(8), torch.arange(8) % 4
    assert not torch.equal(
        method.prepare(x, y, generator=generator)[0], method.prepare(x, y, generator=generator)[0]
    )


def test_alpha_is_an_option() -> None:
    shares = [share_of(prepare(seed, alpha=500.0)[0]) for seed in range(10)]
    assert all(s is None or abs(s - 0.5) < 0.1 for s in shares)


def test_the_loss_of_blended_labels_by_hand() -> None:
    logits = torch.tensor([[[0.5, 0.25, 0.25]]], dtype=torch.float64).log()
    loss = methods.create("mixup", num_classes=3).loss(logits, torch.tensor([[0.3, 0.7, 0.0]]))
    assert float(loss.total) == pytest.approx(0.3 * log(2) + 0.7 * log(4))


def test_other_methods_leave_the_batch_alone() -> None:
    x, y = torch.rand(3, 2), torch.tensor([0, 1, 2])
    for name in ("standard", "sord", "co-teaching+ours"):
        out_x, out_y = methods.create(name, num_classes=3, noise_rate=0.1).prepare(x, y)
        assert out_x is x
        assert out_y is y
