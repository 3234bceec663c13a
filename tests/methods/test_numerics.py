"""Every method on numbers that break careless code: huge logits, certain mistakes, half
precision."""

import warnings
from itertools import product

import pytest
import torch

from srjt import methods, noise

LABELS = torch.tensor([0, 3, 1, 2, 2, 0])
JOINT = [n for n in methods.names() if issubclass(methods.lookup(n).method, methods.JointTraining)]
SOFT = {"select": "soft", "update": "soft"}
CASES = [(n, {}) for n in methods.names()] + [(n, SOFT) for n in ("co-teaching", "jocor", "codis")]


PATTERNS = ("certain and right", "certain and wrong", "certain of opposites", "undecided", "mixed")


def extreme(pattern: str, shape: tuple[int, int, int]) -> torch.Tensor:
    networks, size, columns = shape
    right = LABELS.clamp(max=columns - 1)
    logits = torch.full(shape, -1e4)
    place = torch.arange(size)
    if pattern == "certain and right":
        logits[:, place, right] = 1e4
    elif pattern == "certain and wrong":
        logits[:, place, (right + 1) % columns] = 1e4
    elif pattern == "certain of opposites":
        logits[0, place, right] = 1e4
        logits[-1, place, (right + 2) % columns] = 1e4
    elif pattern == "mixed":
        logits = torch.linspace(-1e4, 1e4, networks * size * columns).reshape(shape)
        logits[:, ::2] = 0.0
    return logits


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{n}{''.join(o.values())}" for n, o in CASES]
)
def test_losses_gradients_and_probabilities_are_finite(name: str, options: dict) -> None:
    # forbidden transitions (log 0) and a nearly singular inverse: the hardest of the paper's
    # matrices
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.3)
    for convention in ("paper", "published-code", "original"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = {"noise_rate": 0.4, "transition": matrix, "convention": convention}
            method = methods.create(name, num_classes=4, **known, **options)
        for pattern, dtype in product(PATTERNS, (torch.float32, torch.bfloat16, torch.float16)):
            where = f"{convention}, {pattern}, {dtype}"
            shape = (method.networks, len(LABELS), method.outputs)
            logits = extreme(pattern, shape).to(dtype).requires_grad_()
            loss = method.loss(logits, LABELS, keep=4)
            assert loss.total.dtype == torch.float32, where
            assert loss.total.isfinite(), where
            assert loss.per_network.isfinite().all(), where
            kept = [4 if name in JOINT else 6] * method.networks
            assert loss.selected.sum(dim=1).tolist() == kept, where
            loss.total.backward()
            assert logits.grad.dtype == dtype, where
            assert logits.grad.isfinite().all(), where
            probabilities = method.probabilities(logits)
            assert probabilities.dtype == torch.float32, where
            ones = torch.ones(method.networks, len(LABELS))
            torch.testing.assert_close(probabilities.sum(dim=-1), ones, msg=where)


@pytest.mark.parametrize("name", methods.names())
def test_half_precision_only_rounds_the_logits(name: str) -> None:
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    method = methods.create(name, num_classes=4, noise_rate=0.4, transition=matrix)
    generator = torch.Generator().manual_seed(0)
    rounded = torch.randn(method.networks, 6, method.outputs, generator=generator).bfloat16()
    half, exact = (
        method.loss(rounded, LABELS, keep=4),
        method.loss(rounded.double(), LABELS, keep=4),
    )
    assert torch.equal(half.selected, exact.selected)
    assert float(half.total) == pytest.approx(float(exact.total), rel=1e-5)


@pytest.mark.parametrize("name", ["co-teaching+ours", "codis+ours", "jocor+ours"])
def test_sharpened_scores_still_tell_certain_mistakes_apart(name: str) -> None:
    """Where p underflows to 0 the loss still grows with the margin, so the ranking stays right."""
    method = methods.create(name, num_classes=4, noise_rate=0.4)
    logits = torch.zeros(2, 3, 4)
    logits[:, :, 3] = torch.tensor([3000.0, 1000.0, 2000.0])
    loss = method.loss(logits, torch.zeros(3, dtype=torch.long), keep=2)
    assert loss.selected.tolist() == [[False, True, True]] * 2
