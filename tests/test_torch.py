"""Losses and methods in your own training loop."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from refusals import refuses
from srjt import methods
from srjt.torch import JointLoss, OrdinalLoss

C = 4
LOGITS = torch.randn(10, C, generator=torch.Generator().manual_seed(0))
OTHERS = torch.randn(10, C, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_plain_training_is_cross_entropy(reduction: Any, weighted: bool) -> None:
    weights = torch.tensor([1.0, 2.0, 0.5, 4.0]) if weighted else None
    loss = OrdinalLoss("standard", num_classes=C, reduction=reduction, class_weights=weights)
    expected = F.cross_entropy(LOGITS, LABELS, weight=weights, reduction=reduction)
    torch.testing.assert_close(loss(LOGITS, LABELS), expected)


def test_probabilities_as_targets_are_weighted_by_their_grades() -> None:
    targets = torch.softmax(OTHERS, dim=1)
    weights = torch.tensor([1.0, 2.0, 0.5, 4.0])
    loss = OrdinalLoss("standard", num_classes=C, reduction="none", class_weights=weights)
    plain = -(targets * torch.log_softmax(LOGITS, dim=1)).sum(dim=1)
    torch.testing.assert_close(loss(LOGITS, targets), plain * (targets @ weights))


@pytest.mark.parametrize(
    "name", [name for name in methods.names() if methods.lookup(name).networks == 1]
)
def test_every_method_with_one_network_has_its_own_loss(name: str) -> None:
    transition = torch.eye(C) * 0.6 + 0.1
    options: dict[str, Any] = {"noise_rate": 0.4, "transition": transition}
    needed = {
        option: value for option, value in options.items() if option in methods.lookup(name).needs
    }
    loss = OrdinalLoss(name, num_classes=C, samples=20, **needed)
    logits = torch.randn(
        10, loss.outputs, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    loss.set_epoch(1, epochs=10)
    rows = torch.arange(10)
    total = loss(logits, LABELS, rows=rows)
    total.backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0
    method = methods.create(name, num_classes=C, **needed)
    memory = {"memory": method.memory(20), "rows": rows} if method.memory(20) else {}
    torch.testing.assert_close(total, method.loss(logits[None], LABELS, **memory).total)
    assert loss.grades(logits.detach()).shape == (10,)
    torch.testing.assert_close(loss.probabilities(logits.detach()).sum(dim=1), torch.ones(10))


@pytest.mark.parametrize("name", ["co-teaching+ours", "jocor+ours", "codis+ours", "co-teaching"])
def test_two_networks_keep_what_the_epoch_asks_for(name: str) -> None:
    loss = JointLoss(name, num_classes=C, noise_rate=0.4)
    kept = []
    for epoch in (1, 5, 20):
        loss.set_epoch(epoch)
        total = loss(LOGITS, OTHERS, LABELS)
        method = methods.create(name, num_classes=C, noise_rate=0.4)
        expected = method.loss(torch.stack([LOGITS, OTHERS]), LABELS, keep=method.keep(epoch, 10))
        torch.testing.assert_close(total, expected.total)
        assert loss.selected is not None
        assert torch.equal(loss.selected, expected.selected)
        kept.append(loss.selected.sum(dim=1).tolist())
    assert kept == [[10, 10], [6, 6], [6, 6]]


def test_what_a_method_remembers_is_saved_and_moves() -> None:
    loss = OrdinalLoss("elr", num_classes=C, samples=20)
    loss.set_epoch(1, epochs=10)
    first = loss(LOGITS, LABELS, rows=torch.arange(10))
    assert loss.get_buffer("averages").abs().sum() > 0
    copy = OrdinalLoss("elr", num_classes=C, samples=20)
    copy.load_state_dict(deepcopy(loss.state_dict()))
    copy.set_epoch(2, epochs=10)
    second = loss(LOGITS, LABELS, rows=torch.arange(10))
    torch.testing.assert_close(copy(LOGITS, LABELS, rows=torch.arange(10)), second)
    assert not torch.isclose(first, second)
    assert loss.to(torch.device("meta")).get_buffer("averages").device.type == "meta"


def test_the_loss_can_change_with_the_progress_of_the_training() -> None:
    loss = OrdinalLoss("eae", num_classes=C)
    values = []
    for epoch in (1, 5, 10):
        loss.set_epoch(epoch, epochs=10)
        values.append(float(loss(LOGITS, LABELS)))
    assert len(set(values)) > 1


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        (
            lambda: OrdinalLoss("co-teaching", num_classes=C, noise_rate=0.2),
            ("unsupported", "method", "trains two networks"),
        ),
        (lambda: JointLoss("sord", num_classes=C), ("unsupported", "method", "trains one network")),
        (
            lambda: OrdinalLoss("sord", num_classes=C, class_weights=[1, 2]),
            ("wrong_shape", "class_weights"),
        ),
        (lambda: OrdinalLoss("sord", num_classes=C, reduction="average"), ("unknown_name",)),  # type: ignore[arg-type]
        (
            lambda: OrdinalLoss("sord", num_classes=C)(LOGITS[:, :3], LABELS),
            ("wrong_shape", "logits"),
        ),
        (lambda: OrdinalLoss("elr", num_classes=C)(LOGITS, LABELS), ("missing_option", "samples")),
        (
            lambda: OrdinalLoss("eae", num_classes=C)(LOGITS, LABELS),
            ("missing_option", "epoch", "call set_epoch"),
        ),
        (lambda: OrdinalLoss("eae", num_classes=C).set_epoch(1), ("missing_option", "epochs")),
        (lambda: OrdinalLoss("sord", num_classes=C).set_epoch(0), ("out_of_bounds", "epoch")),
        (
            lambda: JointLoss("co-teaching", num_classes=C, noise_rate=0.2)(LOGITS, OTHERS, LABELS),
            ("missing_option", "epoch", "call set_epoch first"),
        ),
    ],
)
def test_what_is_missing_is_said(make: Any, refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        make()


def test_your_own_loop_learns_with_two_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    grades = torch.arange(200) % C
    x = torch.randn(200, 8, generator=generator) + grades[:, None]
    loss = JointLoss("co-teaching+ours", num_classes=C, noise_rate=0.2)
    networks = [nn.Linear(8, C), nn.Linear(8, C)]
    optimizer = torch.optim.Adam([p for network in networks for p in network.parameters()], lr=0.05)

    def error() -> float:
        return float((loss.grades(networks[0](x)) - grades).abs().float().mean())

    before = error()
    for epoch in range(1, 16):
        loss.set_epoch(epoch)
        for rows in torch.randperm(200, generator=generator).split(50):
            optimizer.zero_grad()
            total: Tensor = loss(networks[0](x[rows]), networks[1](x[rows]), grades[rows])
            total.backward()
            optimizer.step()
    assert error() < before / 2
