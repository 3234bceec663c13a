"""Soft labels, losses and selection."""

import math
from collections.abc import Callable
from functools import partial
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor
from torch.nn import functional as F

from refusals import refuses
from srjt.ordinal import losses, selection

grades_and_classes = st.integers(2, 12).flatmap(
    lambda c: st.tuples(st.integers(0, c - 1), st.just(c))
)


def test_soft_labels_of_four_grades_by_hand() -> None:
    # row 0: (1, 1/e, 1/e², 1/e³) / 1.553001; row 1: (1/e, 1, 1/e, 1/e²) / 1.871094
    half = torch.tensor(
        [[0.643914, 0.236883, 0.087144, 0.032059], [0.196612, 0.534447, 0.196612, 0.072330]]
    )
    whole = torch.cat([half, half.flip(0, 1)])
    torch.testing.assert_close(losses.soft_label_matrix(4), whole, atol=1e-6, rtol=0)


def test_soft_labels_agree_with_dlordinal() -> None:
    oracle = pytest.importorskip("dlordinal.soft_labelling")
    for classes in range(2, 9):
        ours = losses.soft_label_matrix(classes, dtype=torch.float64).numpy()
        np.testing.assert_allclose(ours, oracle.get_exponential_soft_labels(classes), rtol=1e-12)


@given(grades_and_classes)
def test_a_soft_label_is_a_distribution_with_its_mode_at_the_label(case: tuple[int, int]) -> None:
    label, num_classes = case
    row = losses.soft_labels([label], num_classes, dtype=torch.float64)[0]
    assert float(row.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(row.min()) > 0
    assert int(row.argmax()) == label
    # each further step away costs a factor of e, on either side
    for c in range(num_classes):
        assert float(row[c] / row[label]) == pytest.approx(math.exp(-abs(c - label)), rel=1e-12)


def test_smoothing_spreads_over_all_grades_the_label_included() -> None:
    # 0.1 over 4 grades: 0.025 each, and the label has 0.9 more
    torch.testing.assert_close(
        losses.smooth_labels([1], 4), torch.tensor([[0.025, 0.925, 0.025, 0.025]])
    )
    torch.testing.assert_close(
        losses.smooth_labels([1], 2, smoothing=1.0), torch.tensor([[0.5, 0.5]])
    )
    assert torch.equal(losses.smooth_labels([1], 4, smoothing=0.0), losses.one_hot([1], 4))


@pytest.mark.parametrize("make", [losses.soft_labels, losses.one_hot, losses.smooth_labels])
@pytest.mark.parametrize("labels", [[0, 3], np.array([0, 3], dtype=np.uint8), torch.tensor([0, 3])])
def test_any_integer_labels_are_taken(make, labels) -> None:
    targets = make(labels, 4, dtype=torch.float64)
    assert targets.dtype == torch.float64
    assert targets.argmax(dim=-1).tolist() == [0, 3]


@pytest.mark.parametrize("make", [losses.soft_labels, losses.one_hot, losses.smooth_labels])
def test_labels_out_of_range_or_fractional_are_named(make) -> None:
    with refuses("unknown_grade", "labels", says="from 1 to 4"):
        make([1, 4], 4)
    with refuses("unknown_grade", "labels", says="from -1 to 2"):
        make([-1, 2], 4)
    with refuses("wrong_type", "labels", says="torch.float32"):
        make(torch.tensor([1.0]), 4)
    with refuses("wrong_type", "labels", says="torch.bool"):
        make(torch.tensor([True]), 4)
    with refuses("too_few", "num_classes", says="not 1"):
        losses.soft_label_matrix(1)
    with refuses("out_of_bounds", "smoothing", says="1.5"):
        losses.smooth_labels([0], 3, smoothing=1.5)


# Losses against closed forms, other libraries, their own derivatives, and hard numbers.
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


def test_cross_entropy_by_hand() -> None:
    logits = logits_of(0.5, 0.25, 0.25) + 7.0  # a constant changes nothing
    label = torch.tensor([1])
    assert value(losses.hard_cross_entropy(logits, label)) == pytest.approx(log(4))
    # τ = ½ squares the probabilities: (¼, 1/16, 1/16) / (6/16) = (2/3, 1/6, 1/6)
    assert value(losses.hard_cross_entropy(logits, label, temperature=0.5)) == pytest.approx(log(6))
    target = torch.tensor([[0.2, 0.3, 0.5]])
    assert value(losses.soft_cross_entropy(logits, target)) == pytest.approx(
        0.2 * log(2) + 0.8 * log(4)
    )


def test_divergences_by_hand() -> None:
    p, q = logits_of(0.75, 0.25), logits_of(0.25, 0.75)
    # ½ · ln 3 from either grade
    assert value(losses.jeffreys(p, q)) == pytest.approx(log(3))
    # τ = ½: (0.9, 0.1) and (0.1, 0.9)
    assert value(losses.jeffreys(p, q, temperature=0.5)) == pytest.approx(1.6 * log(9))
    # m = (½, ½): KL(m‖p) = ½ ln(½/¾) + ½ ln(½/¼) = ½ ln(4/3), the same for q
    assert value(losses.reverse_jensen_shannon(p, q)) == pytest.approx(0.5 * log(4 / 3))
    # τ = ½: ½ ln(¼ / 0.09)
    sharp = losses.reverse_jensen_shannon(p, q, temperature=0.5)
    assert value(sharp) == pytest.approx(0.5 * log(0.25 / 0.09))
    # Jensen–Shannon itself would be ¾ ln(3/2) + ¼ ln(1/2)
    assert value(losses.reverse_jensen_shannon(p, q)) != pytest.approx(
        0.75 * log(1.5) - 0.25 * log(2)
    )


def test_forward_correction_by_hand_uses_the_transpose() -> None:
    logits = logits_of(0.5, 0.25, 0.25)
    # Pr(label = 1) = 0.5 · 0.2 + 0.25 · 0.7 + 0.25 · 0.3 = 0.35 (with P for Pᵀ: 0.275)
    # Pr(label = 0) = 0.5 · 0.8 + 0.25 · 0.1
    for label, probability in ((1, 0.35), (0, 0.425)):
        loss = losses.forward_corrected(logits, torch.tensor([label]), transition=P3)
        assert value(loss) == pytest.approx(-log(probability))


def test_readings_of_one_grade_are_not_the_sum_of_their_marginals() -> None:
    """Two readers with their own matrices: log Σ_i p_i P_i P'_i from a posterior without its prior,
    and log Σ_i p_i P_i + log Σ_i p_i P'_i from a row for each reading.
    """
    p, prior = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2]]).double()
    first, second = torch.tensor(
        [[0.8, 0.1, 0.0], [0.0, 0.4, 0.6]]
    ).double()  # Pr(reading | true grade)
    together = 0.3 * 0.1 * 0.4
    evidence = float((prior * first * second).sum())
    posterior = prior * first * second / evidence
    loss = losses.readings_likelihood(p.log()[None], (posterior / prior)[None, None])
    assert loss.item() == pytest.approx(-log(together / evidence))
    marginals = losses.readings_likelihood(p.log()[None], torch.stack([first, second])[None])
    assert marginals.item() == pytest.approx(
        -log(0.5 * 0.8 + 0.3 * 0.1) - log(0.3 * 0.4 + 0.2 * 0.6)
    )
    one = losses.readings_likelihood(p.log()[None], first[None, None])
    transition = torch.stack([first, 1.0 - first, torch.zeros_like(first)], dim=1)
    alone = losses.forward_corrected(p.log()[None], torch.tensor([0]), transition=transition)
    assert one.item() == pytest.approx(alone.item())


def test_reweighting_by_hand_with_no_gradient_through_the_weight() -> None:
    logits = logits_of(0.5, 0.25, 0.25).requires_grad_()
    loss = losses.reweighted(logits, torch.tensor([1]), transition=P3)
    weight = 0.25 / 0.35
    assert value(loss) == pytest.approx(weight * log(4))
    loss.sum().backward()
    assert logits.grad[0].tolist() == pytest.approx(
        [weight * 0.5, weight * (0.25 - 1), weight * 0.25]
    )


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
    assert losses.garg(logits, torch.tensor([0, 1]), inverse=inverse).tolist() == pytest.approx(
        expected
    )


@given(logits_4, logits_4, st.sampled_from([0.1, 0.5, 1.0]))
def test_divergences_agree_with_torchs_kl(a: Tensor, b: Tensor, temperature: float) -> None:
    log_p, log_q = ((z / temperature).log_softmax(-1) for z in (a, b))
    log_m = ((log_p.exp() + log_q.exp()) / 2).clamp(min=1e-300).log()

    def kl(of: Tensor, against: Tensor) -> Tensor:
        return F.kl_div(against, of, log_target=True, reduction="none").sum(-1)

    ours = losses.jeffreys(a, b, temperature=temperature)
    torch.testing.assert_close(ours, kl(log_p, log_q) + kl(log_q, log_p), rtol=1e-7, atol=1e-9)
    ours = losses.reverse_jensen_shannon(a, b, temperature=temperature)
    torch.testing.assert_close(
        ours, (kl(log_m, log_p) + kl(log_m, log_q)) / 2, rtol=1e-7, atol=1e-9
    )


@given(arrays(np.float64, (6, 4), elements=st.floats(-30, 30)).map(torch.from_numpy))
def test_coral_agrees_with_coral_pytorch(logits: Tensor) -> None:
    pytest.importorskip("coral_pytorch")
    from coral_pytorch.dataset import levels_from_labelbatch
    from coral_pytorch.losses import coral_loss

    labels = torch.tensor([0, 1, 2, 3, 4, 2])
    levels = levels_from_labelbatch(labels, num_classes=5)
    torch.testing.assert_close(
        losses.coral(logits, labels), coral_loss(logits, levels, reduction=None)
    )


@given(arrays(np.float64, (4, 3), elements=st.floats(-8, 8)).map(torch.from_numpy))
def test_gargs_mean_over_the_noise_is_the_loss_on_the_true_grade(logits: Tensor) -> None:
    inverse = torch.linalg.inv(P4)
    for true in range(4):
        of_label = (
            losses.garg(logits, torch.full((4,), given), inverse=inverse) for given in range(4)
        )
        mean = sum(P4[true, given] * loss for given, loss in enumerate(of_label))
        torch.testing.assert_close(
            mean, losses.coral(logits, torch.full((4,), true)), rtol=1e-9, atol=1e-9
        )


LABELS = torch.tensor([0, 3, 1, 2, 2])
OTHER = torch.sin(torch.arange(20, dtype=torch.float64)).reshape(5, 4)
SOFT = P4[LABELS]
INVERSE = torch.linalg.inv(P4)
LOSSES: dict[str, Callable[..., Tensor]] = {
    "hard": partial(losses.hard_cross_entropy, labels=LABELS),
    "hard at τ = 0.1": partial(losses.hard_cross_entropy, labels=LABELS, temperature=0.1),
    "soft": partial(losses.soft_cross_entropy, targets=SOFT),
    "jeffreys": lambda z: losses.jeffreys(z, OTHER),
    "jeffreys at τ = 0.1": lambda z: losses.jeffreys(OTHER, z, temperature=0.1),
    "jeffreys of opposites": lambda z: losses.jeffreys(z, -z),
    "reverse js": lambda z: losses.reverse_jensen_shannon(z, OTHER),
    "reverse js at τ = 0.1": lambda z: losses.reverse_jensen_shannon(OTHER, z, temperature=0.1),
    "reverse js of opposites": lambda z: losses.reverse_jensen_shannon(z, -z),
    "forward": partial(losses.forward_corrected, labels=LABELS, transition=P4),
    "coral": lambda z: losses.coral(z[:, :3], LABELS),
    "garg": lambda z: losses.garg(z[:, :3], LABELS, inverse=INVERSE),
}


def some_logits(scale: float = 1.0) -> Tensor:
    return scale * torch.cos(1.7 * torch.arange(20, dtype=torch.float64)).reshape(5, 4)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_derivatives_are_right(loss: Callable[..., Tensor], scale: float) -> None:
    assert torch.autograd.gradcheck(loss, some_logits(scale).requires_grad_(), eps=1e-6, atol=1e-6)


def test_a_grade_that_is_never_labelled_right_does_not_break_reweighting() -> None:
    """At the largest ρ the middle grades have P_ii = 0 and their weight has no bound."""
    edge = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    logits = torch.tensor(
        [[0.0, 1e4, 0.0], [0.0, 200.0, 0.0], [0.0, 20.0, 0.0]], requires_grad=True
    )
    loss = losses.reweighted(logits, torch.tensor([1, 1, 1]), transition=edge)
    assert loss.isfinite().all()
    loss.sum().backward()
    assert logits.grad.isfinite().all()


def test_leading_axes_are_free() -> None:
    logits = torch.stack([some_logits(), OTHER])
    labels = LABELS.expand(2, -1)
    for both, one in (
        (losses.hard_cross_entropy(logits, labels), losses.hard_cross_entropy(OTHER, LABELS)),
        (losses.soft_cross_entropy(logits, SOFT), losses.soft_cross_entropy(OTHER, SOFT)),
        (losses.forward_corrected(logits, labels, transition=P4), LOSSES["forward"](OTHER)),
        (losses.coral(logits[..., :3], labels), LOSSES["coral"](OTHER)),
        (losses.garg(logits[..., :3], labels, inverse=INVERSE), LOSSES["garg"](OTHER)),
    ):
        assert both.shape == (2, 5)
        torch.testing.assert_close(both[1], one)


def test_a_temperature_is_positive_and_there_are_as_many_labels_as_samples() -> None:
    for temperature in (0.0, -1.0, float("nan")):
        with refuses("out_of_bounds", "temperature"):
            losses.hard_cross_entropy(torch.zeros(1, 3), torch.tensor([0]), temperature=temperature)
    for size in (1, 4, 6):
        logits, labels = torch.zeros(5, 3), torch.zeros(size, dtype=torch.long)
        plain = (losses.hard_cross_entropy, losses.coral, losses.expected_absolute_error)
        corrected = (
            partial(losses.forward_corrected, transition=P3),
            partial(losses.garg, inverse=P4),
        )
        for loss in (*plain, *corrected):
            with refuses("wrong_shape", "labels", says=f"not ({size},)"):
                loss(logits, labels)


# R(T), the number kept, and which samples those are.
def test_keep_rate_of_the_published_code() -> None:
    # ε = 0.45: linspace(0, 0.45, 10) climbs by 0.05 and starts at 0
    rates = [
        selection.keep_rate(epoch, noise_rate=0.45, convention="published-code")
        for epoch in range(1, 13)
    ]
    assert rates == pytest.approx([1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.55, 0.55])


@given(st.floats(0, 0.99), st.integers(1, 30), st.integers(1, 40))
def test_keep_rate_agrees_with_the_formulas(noise_rate: float, ramp: int, epoch: int) -> None:
    paper = selection.keep_rate(epoch, noise_rate=noise_rate, ramp_epochs=ramp)
    assert paper == pytest.approx(1 - min(epoch / ramp * noise_rate, noise_rate))
    forget = np.full(40, noise_rate)
    forget[:ramp] = np.linspace(0, noise_rate, ramp)
    code = selection.keep_rate(
        epoch, noise_rate=noise_rate, ramp_epochs=ramp, convention="published-code"
    )
    assert code == pytest.approx(1 - forget[epoch - 1])


@pytest.mark.parametrize(
    ("batch", "rate", "paper", "code"),
    [
        (64, 0.8, 52, 51),  # 51.2
        (64, 1.0, 64, 64),
        (5, 1 - 0.4, 3, 3),  # whole but for rounding
        (10, 1 - 0.9, 1, 1),  # 0.9999999999999998
        (10, 0.7 - 0.4, 3, 3),  # 2.9999999999999996
        (3, 0.1, 1, 1),  # never 0
        (4, 1.5, 4, 4),  # never more than there are
    ],
)
def test_keep_count(batch: int, rate: float, paper: int, code: int) -> None:
    assert selection.keep_count(batch, rate) == paper
    assert selection.keep_count(batch, rate, convention="published-code") == code


@given(st.integers(1, 4096), st.floats(0, 1))
def test_keep_count_is_the_smallest_set_that_is_large_enough(batch: int, rate: float) -> None:
    up, down = (
        selection.keep_count(batch, rate),
        selection.keep_count(batch, rate, convention="published-code"),
    )
    assert 1 <= down <= up <= batch
    slack = 1e-9 * batch
    assert up >= rate * batch - slack
    assert up == 1 or up - 1 < rate * batch + slack
    assert down == 1 or down <= rate * batch + slack


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (lambda: selection.keep_rate(0, noise_rate=0.2), ("out_of_bounds", "epoch", "got 0")),
        (lambda: selection.keep_rate(1, noise_rate=1.0), ("out_of_bounds", "noise_rate", "got 1")),
        (
            lambda: selection.keep_rate(1, noise_rate=math.nan),
            ("out_of_bounds", "noise_rate", "got nan"),
        ),
        (
            lambda: selection.keep_rate(1, noise_rate=0.2, ramp_epochs=0),
            ("out_of_bounds", "ramp_epochs", "got 0"),
        ),
        (
            lambda: selection.keep_rate(1, noise_rate=0.2, convention="published_code"),
            ("unknown_name", "", "'published-code'"),
        ),
        (lambda: selection.keep_count(0, 0.5), ("out_of_bounds", "batch_size", "got 0")),
        (lambda: selection.keep_count(4, 0.5, convention="papr"), ("unknown_name", "", "'paper'")),
    ],
)
def test_impossible_rates_are_named(call, refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        call()


# Few distinct values, so that ties are common: at τ = 0.1 many hard losses are exactly 0.
tied_scores = st.lists(
    st.sampled_from([0.0, -0.0, 0.5, 1.0, math.inf, math.nan]), min_size=1, max_size=12
)
grades_of = partial(st.lists, st.integers(0, 3))
batches = tied_scores.flatmap(
    lambda s: st.tuples(
        st.just(s), grades_of(min_size=len(s), max_size=len(s)), st.integers(1, len(s))
    )
)


def smallest(scores: list[float], keep: int) -> set[int]:
    """By the rule in words: smaller first, not-a-number last, the earlier of equals first."""
    finite = sorted(
        (i for i in range(len(scores)) if not math.isnan(scores[i])), key=lambda i: (scores[i], i)
    )
    unknown = [i for i in range(len(scores)) if math.isnan(scores[i])]
    return set((finite + unknown)[:keep])


def indices(mask: Tensor) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def test_selection_by_hand() -> None:
    """Keep 4 of 8: grade 0 (5 samples) ceil(2.5) = 3, grade 2 (2) 1, grade 1 (1) ceil(0.5) = 1."""
    labels = torch.tensor([0, 0, 2, 0, 1, 0, 2, 0])
    graded = torch.tensor([5.0, 1.0, 9.0, 2.0, 99.0, 3.0, 8.0, 4.0])
    assert indices(selection.select_smallest(graded, keep=4, labels=labels)) == {1, 3, 5, 6, 4}
    scores = torch.tensor([3.0, 1.0, 2.0, 1.0, 0.5])
    assert selection.select_smallest(scores, keep=2).tolist() == [False, True, False, False, True]
    assert selection.select_smallest(scores, keep=3).tolist() == [False, True, False, True, True]


@given(batches)
def test_exactly_the_smallest_are_kept_and_per_class_the_same_share_of_each_grade(
    case: tuple,
) -> None:
    scores, labels, keep = case
    assert indices(selection.select_smallest(torch.tensor(scores), keep=keep)) == smallest(
        scores, keep
    )
    size = len(scores)
    expected: set[int] = set()
    for grade in set(labels):
        members = [i for i in range(size) if labels[i] == grade]
        quota = math.ceil(keep * len(members) / size)
        expected |= {members[i] for i in smallest([scores[m] for m in members], quota)}
    mask = selection.select_smallest(torch.tensor(scores), keep=keep, labels=torch.tensor(labels))
    assert indices(mask) == expected
    assert set(labels) == {labels[i] for i in indices(mask)}  # no grade is starved
    scores = torch.zeros(
        1000
    )  # ties go to the earlier sample; unstable sorting shows only in larger batches
    assert indices(selection.select_smallest(scores, keep=300)) == set(range(300))
    labels = torch.arange(1000) % 4
    assert indices(selection.select_smallest(scores, keep=300, labels=labels)) == set(range(300))


@given(batches)
def test_a_tensor_keep_and_rows_of_scores_make_no_difference(case: tuple) -> None:
    listed, grades, keep = case
    one, labels = torch.tensor(listed), torch.tensor(grades)
    rows = torch.stack([one, one.flip(0), torch.zeros_like(one)])
    for given_labels in (None, labels):
        by_int = selection.select_smallest(rows, keep=keep, labels=given_labels)
        assert torch.equal(
            by_int, selection.select_smallest(rows, keep=torch.tensor(keep), labels=given_labels)
        )
        for row, mask in zip(rows, by_int, strict=True):
            assert torch.equal(mask, selection.select_smallest(row, keep=keep, labels=given_labels))
