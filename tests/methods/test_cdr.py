"""CDR: the weights that matter to the fit keep (1 − ε) of their gradient, the others none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from srjt import methods


def parameter(values: list, gradient: list) -> nn.Parameter:
    made = nn.Parameter(torch.tensor(values))
    made.grad = torch.tensor(gradient)
    return made


def test_by_hand_over_all_weights_together() -> None:
    # |w·g|: 4, 2, 0.3, 8 in the one, 1, 0.1, 5, 0.2 in the other; ε = 0.25 keeps the largest six of eight
    linear = parameter([[1.0, 2.0], [3.0, 4.0]], [[4.0, 1.0], [-0.1, 2.0]])
    convolution = parameter([[[[1.0, -1.0]]], [[[5.0, 2.0]]]], [[[[-1.0, 0.1]]], [[[1.0, 0.1]]]])
    bias = parameter([0.001, 0.0], [0.5, -0.5])
    methods.create("cdr", num_classes=4, noise_rate=0.25).adjust([linear, bias, convolution])
    assert linear.grad.flatten().tolist() == pytest.approx([3.0, 0.75, -0.075, 1.5])
    assert convolution.grad.flatten().tolist() == pytest.approx([-0.75, 0.0, 0.75, 0.0])
    # biases and the scales of normalisation layers are not judged
    assert bias.grad.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("noise_rate", [0.0, 0.2, 0.4, 0.9])
def test_the_share_kept_and_its_size(noise_rate: float) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
    generator = torch.Generator().manual_seed(0)
    for p in network.parameters():
        p.data.normal_(generator=generator)
        p.grad = torch.randn(p.shape, generator=generator)
    before = {n: p.grad.clone() for n, p in network.named_parameters()}
    methods.create("cdr", num_classes=3, noise_rate=noise_rate).adjust(network.parameters())
    weights = [(p, before[n]) for n, p in network.named_parameters() if p.ndim > 1]
    kept = torch.cat([(p.grad != 0).flatten() for p, _ in weights])
    importance = torch.cat([(p * g).abs().flatten() for p, g in weights])
    assert int(kept.sum()) == round((1 - noise_rate) * (36 + 48))
    if not kept.all():
        assert importance[kept].min() > importance[~kept].max()
    for p, old in weights:
        torch.testing.assert_close(p.grad[p.grad != 0], (old * (1 - noise_rate))[p.grad != 0])
    for n, p in network.named_parameters():
        if p.ndim == 1:
            assert torch.equal(p.grad, before[n])


def test_weight_decay_acts_on_all_weights() -> None:
    weight = parameter([[1.0, 1.0]], [[1.0, 0.001]])
    optimiser = torch.optim.SGD([weight], lr=0.1, weight_decay=0.5)
    methods.create("cdr", num_classes=4, noise_rate=0.5).adjust([weight])
    optimiser.step()
    assert weight.tolist()[0] == pytest.approx([1 - 0.1 * (0.5 + 0.5), 1 - 0.1 * 0.5])


def test_weights_without_a_gradient_are_left_out() -> None:
    frozen, live = nn.Parameter(torch.ones(2, 2)), parameter([[1.0, 2.0]], [[1.0, 1.0]])
    method = methods.create("cdr", num_classes=4, noise_rate=0.5)
    method.adjust([frozen, live])
    assert frozen.grad is None
    assert live.grad.tolist() == [[0.0, 0.5]]
    method.adjust([])
    method.adjust([frozen])


def test_half_precision_gradients_stay_in_their_type() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    methods.create("cdr", num_classes=4, noise_rate=0.5).adjust([weight])
    assert weight.grad.dtype == torch.bfloat16
    assert weight.grad.tolist() == [[0.0, 0.0], [0.5, 0.5]]


def test_other_methods_leave_gradients_alone() -> None:
    weight = parameter([[1.0, 2.0]], [[1.0, 1.0]])
    methods.create("standard", num_classes=4, noise_rate=0.5).adjust([weight])
    assert weight.grad.tolist() == [[1.0, 1.0]]
