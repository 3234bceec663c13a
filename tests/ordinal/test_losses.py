"""Losses against closed forms, other libraries, their own derivatives, and hard numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor
from torch.nn import functional as F

from srjt.errors import SrjtError
from srjt.ordinal import losses

# Asymmetric on purpose: taking P where Pᵀ is meant gives other numbers.
P3 = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]], dtype=torch.float64)
P4 = torch.tensor(
    [[0.7, 0.2, 0.1, 0.0], [0.1, 0.8, 0.1, 0.0], [0.0, 0.25, 0.6, 0.15], [0.05, 0.0, 0.05, 0.9]],
    dtype=torch.float64,
)
logits_4 = arrays(np.float64, (3, 4), elements=st.floats(-20, 20)).map(torch.from_numpy)


def logits_of(*probabilities: float) -> Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def value(loss: Tensor) -> float:
    assert loss.shape == (1,)
    return float(loss.detach())


# --------------------------------------------------------------------------------------- closed forms


def test_hard_cross_entropy_by_hand() -> None:
    logits = logits_of(0.5, 0.25, 0.25) + 7.0  # a constant changes nothing
    label = torch.tensor([1])
    assert value(losses.hard_cross_entropy(logits, label)) == pytest.approx(log(4))
    # τ = ½ squares the probabilities: (¼, 1/16, 1/16) / (6/16) = (2/3, 1/6, 1/6)
    assert value(losses.hard_cross_entropy(logits, label, temperature=0.5)) == pytest.approx(log(6))


def test_soft_cross_entropy_by_hand() -> None:
    logits = logits_of(0.5, 0.25, 0.25)
    target = torch.tensor([[0.2, 0.3, 0.5]])
    assert value(losses.soft_cross_entropy(logits, target)) == pytest.approx(0.2 * log(2) + 0.8 * log(4))


def test_jeffreys_by_hand() -> None:
    p, q = logits_of(0.75, 0.25), logits_of(0.25, 0.75)
    # ½ · ln 3 from either grade
    assert value(losses.jeffreys(p, q)) == pytest.approx(log(3))
    # τ = ½: (0.9, 0.1) and (0.1, 0.9)
    assert value(losses.jeffreys(p, q, temperature=0.5)) == pytest.approx(1.6 * log(9))


def test_reverse_jensen_shannon_by_hand() -> None:
    p, q = logits_of(0.75, 0.25), logits_of(0.25, 0.75)
    # m = (½, ½): KL(m‖p) = ½ ln(½/¾) + ½ ln(½/¼) = ½ ln(4/3), the same for q
    assert value(losses.reverse_jensen_shannon(p, q)) == pytest.approx(0.5 * log(4 / 3))
    # τ = ½: ½ ln(¼ / 0.09)
    sharp = losses.reverse_jensen_shannon(p, q, temperature=0.5)
    assert value(sharp) == pytest.approx(0.5 * log(0.25 / 0.09))
    # Jensen–Shannon itself would be ¾ ln(3/2) + ¼ ln(1/2)
    assert value(losses.reverse_jensen_shannon(p, q)) != pytest.approx(0.75 * log(1.5) - 0.25 * log(2))


def test_forward_correction_by_hand_uses_the_transpose() -> None:
    logits = logits_of(0.5, 0.25, 0.25)
    # Pr(label = 1) = 0.5 · 0.2 + 0.25 · 0.7 + 0.25 · 0.3 = 0.35 (with P for Pᵀ: 0.275)
    assert value(losses.forward_corrected(logits, torch.tensor([1]), transition=P3)) == pytest.approx(
        -log(0.35)
    )
    # Pr(label = 0) = 0.5 · 0.8 + 0.25 · 0.1
    assert value(losses.forward_corrected(logits, torch.tensor([0]), transition=P3)) == pytest.approx(
        -log(0.425)
    )


def test_reweighting_by_hand_with_no_gradient_through_the_weight() -> None:
    logits = logits_of(0.5, 0.25, 0.25).requires_grad_()
    loss = losses.reweighted(logits, torch.tensor([1]), transition=P3)
    weight = 0.25 / 0.35
    assert value(loss) == pytest.approx(weight * log(4))
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([weight * 0.5, weight * (0.25 - 1), weight * 0.25])


@pytest.mark.parametrize(
    ("label", "expected"),
    [(0, log(4) + log(1.25)), (1, log(4 / 3) + log(1.25)), (2, log(4 / 3) + log(5))],
)
def test_coral_by_hand(label: int, expected: float) -> None:
    logits = torch.tensor([[log(3), -log(4)]], dtype=torch.float64)  # above 0: ¾, above 1: 1/5
    assert value(losses.coral(logits, torch.tensor([label]))) == pytest.approx(expected)


def test_garg_by_hand() -> None:
    # P = [[.9, .1], [.2, .8]], det 0.7, P⁻¹ = [[.8, −.1], [−.2, .9]] / 0.7; σ(ln 3) = ¾
    inverse = torch.tensor([[0.8, -0.1], [-0.2, 0.9]], dtype=torch.float64) / 0.7
    logits = torch.full((2, 1), log(3), dtype=torch.float64)
    below, above = log(4), log(4 / 3)  # coral's loss for grade 0 and 1
    expected = [(0.8 * below - 0.1 * above) / 0.7, (-0.2 * below + 0.9 * above) / 0.7]
    assert losses.garg(logits, torch.tensor([0, 1]), inverse=inverse).tolist() == pytest.approx(expected)


# -------------------------------------------------------------------------------------- other libraries


@given(logits_4, st.floats(0.05, 5))
def test_hard_loss_agrees_with_torch(logits: Tensor, temperature: float) -> None:
    labels = torch.tensor([3, 0, 1])
    ours = losses.hard_cross_entropy(logits, labels, temperature=temperature)
    torch.testing.assert_close(ours, F.cross_entropy(logits / temperature, labels, reduction="none"))


@given(logits_4)
def test_soft_loss_agrees_with_torch(logits: Tensor) -> None:
    targets = P4[[1, 0, 2]]
    ours = losses.soft_cross_entropy(logits, targets)
    torch.testing.assert_close(ours, F.cross_entropy(logits, targets, reduction="none"))


@given(logits_4, logits_4, st.sampled_from([0.1, 0.5, 1.0]))
def test_divergences_agree_with_torchs_kl(a: Tensor, b: Tensor, temperature: float) -> None:
    log_p, log_q = ((z / temperature).log_softmax(-1) for z in (a, b))
    log_m = ((log_p.exp() + log_q.exp()) / 2).clamp(min=1e-300).log()

    def kl(of: Tensor, against: Tensor) -> Tensor:
        return F.kl_div(against, of, log_target=True, reduction="none").sum(-1)

    ours = losses.jeffreys(a, b, temperature=temperature)
    torch.testing.assert_close(ours, kl(log_p, log_q) + kl(log_q, log_p), rtol=1e-7, atol=1e-9)
    ours = losses.reverse_jensen_shannon(a, b, temperature=temperature)
    torch.testing.assert_close(ours, (kl(log_m, log_p) + kl(log_m, log_q)) / 2, rtol=1e-7, atol=1e-9)


@given(arrays(np.float64, (6, 4), elements=st.floats(-30, 30)).map(torch.from_numpy))
def test_coral_agrees_with_coral_pytorch(logits: Tensor) -> None:
    oracle = pytest.importorskip("coral_pytorch")
    from coral_pytorch.dataset import levels_from_labelbatch
    from coral_pytorch.losses import coral_loss

    assert oracle
    labels = torch.tensor([0, 1, 2, 3, 4, 2])
    levels = levels_from_labelbatch(labels, num_classes=5)
    torch.testing.assert_close(losses.coral(logits, labels), coral_loss(logits, levels, reduction=None))
    torch.testing.assert_close(losses.coral(logits, labels, reduction="mean"), coral_loss(logits, levels))


# -------------------------------------------------------------------------------------------- identities


@given(logits_4)
def test_without_noise_the_corrections_correct_nothing(logits: Tensor) -> None:
    labels, none = torch.tensor([3, 0, 1]), torch.eye(4, dtype=torch.float64)
    hard = losses.hard_cross_entropy(logits, labels)
    torch.testing.assert_close(losses.forward_corrected(logits, labels, transition=none), hard)
    torch.testing.assert_close(losses.reweighted(logits, labels, transition=none), hard)
    coral = losses.coral(logits[:, :3], labels)
    torch.testing.assert_close(losses.garg(logits[:, :3], labels, inverse=none), coral)


@given(arrays(np.float64, (4, 3), elements=st.floats(-8, 8)).map(torch.from_numpy))
def test_gargs_mean_over_the_noise_is_the_loss_on_the_true_grade(logits: Tensor) -> None:
    inverse = torch.linalg.inv(P4)
    for true in range(4):
        mean = sum(
            P4[true, given] * losses.garg(logits, torch.full((4,), given), inverse=inverse)
            for given in range(4)
        )
        torch.testing.assert_close(mean, losses.coral(logits, torch.full((4,), true)), rtol=1e-9, atol=1e-9)


@given(logits_4)
def test_forward_corrected_probabilities_sum_to_one(logits: Tensor) -> None:
    chances = [
        (-losses.forward_corrected(logits, torch.full((3,), given), transition=P4)).exp()
        for given in range(4)
    ]
    torch.testing.assert_close(sum(chances), torch.ones(3, dtype=torch.float64))


@given(logits_4, logits_4)
def test_divergences_are_symmetric_not_negative_and_zero_for_equals(a: Tensor, b: Tensor) -> None:
    for divergence in (losses.jeffreys, losses.reverse_jensen_shannon):
        assert (divergence(a, b) >= -1e-12).all()
        torch.testing.assert_close(divergence(a, b), divergence(b, a))
        torch.testing.assert_close(divergence(a, a + 3.0), torch.zeros(3, dtype=torch.float64))


# -------------------------------------------------------------------- every loss, in one common form

LABELS = torch.tensor([0, 3, 1, 2, 2])
# eighths, so that half precision does not round them
OTHER = (8 * torch.sin(torch.arange(20, dtype=torch.float64))).round().reshape(5, 4) / 8
SOFT = P4[LABELS]
INVERSE = torch.linalg.inv(P4)
LOSSES: dict[str, Callable[..., Tensor]] = {
    "hard": partial(losses.hard_cross_entropy, labels=LABELS),
    "hard at τ = 0.1": partial(losses.hard_cross_entropy, labels=LABELS, temperature=0.1),
    "soft": partial(losses.soft_cross_entropy, targets=SOFT),
    "jeffreys": lambda z, **kw: losses.jeffreys(z, OTHER.to(z), **kw),
    "jeffreys at τ = 0.1": lambda z, **kw: losses.jeffreys(OTHER.to(z), z, temperature=0.1, **kw),
    "jeffreys of opposites": lambda z, **kw: losses.jeffreys(z, -z, **kw),
    "reverse js": lambda z, **kw: losses.reverse_jensen_shannon(z, OTHER.to(z), **kw),
    "reverse js at τ = 0.1": lambda z, **kw: losses.reverse_jensen_shannon(
        OTHER.to(z), z, temperature=0.1, **kw
    ),
    "reverse js of opposites": lambda z, **kw: losses.reverse_jensen_shannon(z, -z, **kw),
    "forward": partial(losses.forward_corrected, labels=LABELS, transition=P4),
    "coral": lambda z, **kw: losses.coral(z[:, :3], LABELS, **kw),
    "garg": lambda z, **kw: losses.garg(z[:, :3], LABELS, inverse=INVERSE, **kw),
}
EVERY = {**LOSSES, "reweighted": partial(losses.reweighted, labels=LABELS, transition=P4)}
every_loss = pytest.mark.parametrize("loss", EVERY.values(), ids=EVERY.keys())


def some_logits(scale: float = 1.0) -> Tensor:
    return scale * torch.cos(1.7 * torch.arange(20, dtype=torch.float64)).reshape(5, 4)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_derivatives_are_right(loss: Callable[..., Tensor], scale: float) -> None:
    assert torch.autograd.gradcheck(loss, some_logits(scale).requires_grad_(), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_derivative_of_reweighting_with_its_weights_held_fixed(scale: float) -> None:
    at = some_logits(scale)
    p = at.softmax(-1)
    fixed = p[range(5), LABELS] / (p @ P4)[range(5), LABELS]

    def frozen(z: Tensor) -> Tensor:
        return fixed * F.cross_entropy(z, LABELS, reduction="none")

    ours, plain = at.clone().requires_grad_(), at.clone().requires_grad_()
    loss = losses.reweighted(ours, LABELS, transition=P4)
    torch.testing.assert_close(loss, frozen(plain))
    loss.sum().backward()
    frozen(plain).sum().backward()
    torch.testing.assert_close(ours.grad, plain.grad)
    assert torch.autograd.gradcheck(frozen, plain)


@every_loss
def test_reductions(loss: Callable[..., Tensor]) -> None:
    per_sample = loss(some_logits())
    assert per_sample.shape == (5,)
    torch.testing.assert_close(loss(some_logits(), reduction="mean"), per_sample.sum() / 5)
    torch.testing.assert_close(loss(some_logits(), reduction="sum"), per_sample.sum())
    with pytest.raises(SrjtError, match="'none', 'mean' or 'sum', not 'avg'"):
        loss(some_logits(), reduction="avg")


@every_loss
def test_hard_numbers_give_finite_losses_and_gradients(loss: Callable[..., Tensor]) -> None:
    place = torch.arange(5)
    far_apart, all_certain = torch.full((5, 4), -1e4), torch.full((5, 4), -1e4)
    far_apart[place, torch.tensor([3, 0, 1, 0, 2])] = 1e4
    all_certain[place, LABELS] = 1e4
    for wide in (far_apart, all_certain, -all_certain, torch.full((5, 4), -1e4)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            logits = wide.to(dtype, copy=True).requires_grad_()
            per_sample = loss(logits)
            assert per_sample.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert per_sample.isfinite().all(), (wide, dtype)
            per_sample.sum().backward()
            assert logits.grad is not None
            assert logits.grad.dtype == dtype
            assert logits.grad.isfinite().all(), (wide, dtype)


@every_loss
def test_half_precision_only_rounds_the_input(loss: Callable[..., Tensor]) -> None:
    rounded = some_logits(3.0).to(torch.bfloat16)
    torch.testing.assert_close(loss(rounded), loss(rounded.double()).float(), rtol=1e-5, atol=1e-5)


def test_a_grade_that_is_never_labelled_right_does_not_break_reweighting() -> None:
    """At the largest ρ the middle grades have P_ii = 0 and their weight has no bound."""
    edge = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    logits = torch.tensor([[0.0, 1e4, 0.0], [0.0, 200.0, 0.0], [0.0, 20.0, 0.0]], requires_grad=True)
    loss = losses.reweighted(logits, torch.tensor([1, 1, 1]), transition=edge)
    assert loss.isfinite().all()
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@every_loss
def test_nothing_looks_at_the_values_on_the_device(loss: Callable[..., Tensor]) -> None:
    """FakeTensorMode knows shapes only: a host synchronisation or a data-dependent shape is an error."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert loss(torch.empty(5, 4)).shape == (5,)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_as_many_labels_as_samples(size: int) -> None:
    logits, labels = torch.zeros(5, 3), torch.zeros(size, dtype=torch.long)
    sentence = rf"one label per sample: \(5,\), not \({size},\)"
    for call in (
        lambda: losses.hard_cross_entropy(logits, labels),
        lambda: losses.forward_corrected(logits, labels, transition=P3),
        lambda: losses.reweighted(logits, labels, transition=P3),
        lambda: losses.coral(logits, labels),
        lambda: losses.garg(logits, labels, inverse=P4),
    ):
        with pytest.raises(SrjtError, match=sentence):
            call()


def test_leading_axes_are_free() -> None:
    logits = torch.stack([some_logits(), OTHER])
    labels = LABELS.expand(2, -1)
    for both, one in (
        (losses.hard_cross_entropy(logits, labels), losses.hard_cross_entropy(OTHER, LABELS)),
        (losses.soft_cross_entropy(logits, SOFT), losses.soft_cross_entropy(OTHER, SOFT)),
        (losses.forward_corrected(logits, labels, transition=P4), EVERY["forward"](OTHER)),
        (losses.coral(logits[..., :3], labels), EVERY["coral"](OTHER)),
        (losses.garg(logits[..., :3], labels, inverse=INVERSE), EVERY["garg"](OTHER)),
    ):
        assert both.shape == (2, 5)
        torch.testing.assert_close(both[1], one)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(SrjtError, match="temperature is positive"):
        losses.hard_cross_entropy(torch.zeros(1, 3), torch.tensor([0]), temperature=temperature)
