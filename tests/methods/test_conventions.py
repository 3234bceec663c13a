"""The paper's text, its authors' published code and the hosts' own papers: ramps, rounding, and what is the same in
all of them. ``test_joint.py`` has the losses and selections of each.
"""

from __future__ import annotations

from math import log

import pytest
import torch

from srjt import methods

PAPER, CODE, ORIGINAL = "paper", "published-code", "original"


def create(name: str, convention: str, **options) -> methods.Method:
    return methods.create(name, num_classes=2, noise_rate=0.4, convention=convention, **options)


# p₁ = (¾, ¼), p₂ = (¼, ¾), label 0: ℓ₁ = ln 4/3, ℓ₂ = ln 4, J = ln 3
UNDECIDED = torch.tensor([[[log(3), 0.0]], [[0.0, log(3)]]], dtype=torch.float64)
LABEL = torch.tensor([0])


@pytest.mark.parametrize("name", ["co-teaching", "jocor", "codis", "codis+ours"])
def test_ramp_and_rounding(name: str) -> None:
    # ε = 0.4, batch of 64. Paper: 1 − 0.08 T from the first epoch, up: 58.88, 53.76, 48.64, 43.52, 38.4
    paper = create(name, PAPER)
    assert [paper.keep(epoch, 64) for epoch in (1, 2, 3, 4, 5, 6, 150)] == [59, 54, 49, 44, 39, 39, 39]
    # Code: 1 − 0.4 (T−1)/9, down: 64, 61.16, 58.31, …, 41.24, 38.4
    code = create(name, CODE)
    assert [code.keep(epoch, 64) for epoch in (1, 2, 3, 9, 10, 11, 150)] == [64, 61, 58, 41, 38, 38, 38]
    # Original: 1 − 0.04 T, up: 61.44, 58.88, …, 40.96, 38.4
    original = create(name, ORIGINAL)
    assert [original.keep(epoch, 64) for epoch in (1, 2, 9, 10, 11)] == [62, 59, 41, 39, 39]


def test_a_ramp_of_ones_own() -> None:
    assert [create("jocor", PAPER, ramp_epochs=2).keep(t, 10) for t in (1, 2, 3)] == [8, 6, 6]
    assert [create("jocor", CODE, ramp_epochs=3).keep(t, 10) for t in (1, 2, 3, 4)] == [10, 8, 6, 6]


def test_single_network_methods_keep_everything() -> None:
    assert methods.create("cdr", num_classes=2, noise_rate=0.4).keep(10, 64) == 64


@pytest.mark.parametrize("convention", [CODE, ORIGINAL])
@pytest.mark.parametrize(
    "name", ["standard", "sord", "label-smooth", "mixup", "cdr", "f-correction", "reweight", "garg"]
)
def test_for_single_networks_all_conventions_are_the_paper(name: str, convention: str) -> None:
    made = [
        methods.create(name, num_classes=2, noise_rate=0.4, transition=torch.eye(2), convention=one)
        for one in (PAPER, convention)
    ]
    logits = UNDECIDED[:1, :, : made[0].outputs]
    _, targets = made[0].prepare(logits[0], LABEL, generator=torch.Generator().manual_seed(0))
    paper, other = (method.loss(logits, targets).total for method in made)
    assert torch.equal(paper, other)
    if (name, convention) == ("garg", CODE):  # its biases start elsewhere
        return
    heads = [torch.nn.utils.parameters_to_vector(_seeded_head(method)) for method in made]
    assert torch.equal(*heads)


def _seeded_head(method: methods.Method) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return list(method.head(3, method.num_classes).parameters())
