"""The baselines that the paper does not compare with, and the loss of the recipe: in closed form."""

from __future__ import annotations

from math import log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from srjt import methods
from srjt.errors import SrjtError
from srjt.ordinal.losses import expected_absolute_error, forward_corrected, jeffreys

P3 = [[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]
# Two samples: p = (½, ¼, ¼) with label 1 and p = (1/8, 1/8, ¾) with label 2
LOGITS = torch.tensor([[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]], dtype=torch.float64).log()
LABELS = torch.tensor([1, 2])
HARD = (log(4) + log(4 / 3)) / 2


def create(name: str, **options) -> methods.Method:
    return methods.create(name, num_classes=3, **options)


def test_expected_absolute_error() -> None:
    method = create("eae")
    expected = (0.75 + 0.375) / 2  # ½·1 + ¼·1, and ⅛·2 + ⅛·1
    assert float(method.loss(LOGITS, LABELS).total) == pytest.approx(expected)
    for progress, total in (
        (0.0, HARD),
        (0.2, HARD),
        (0.4, (HARD + expected) / 2),
        (0.6, expected),
        (1.0, expected),
    ):
        memory = {"progress": torch.tensor(progress)}
        loss = method.loss(LOGITS, LABELS, memory=memory, rows=torch.arange(2))  # type: ignore[call-arg]
        assert float(loss.total) == pytest.approx(total, rel=1e-6)
        assert loss.selected.all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9).filter(lambda labels: len(labels) % 2 == 1))
def test_the_median_of_the_labels_has_the_smallest_expected_absolute_error(labels: list[int]) -> None:
    certain = 50.0 * torch.eye(5, dtype=torch.float64)
    totals = [
        float(expected_absolute_error(row.expand(len(labels), -1), torch.tensor(labels), reduction="sum"))
        for row in certain
    ]
    assert totals[sorted(labels)[len(labels) // 2]] == pytest.approx(min(totals))


def test_generalised_cross_entropy() -> None:
    assert float(create("gce", q=1.0).loss(LOGITS, LABELS).total) == pytest.approx((0.75 + 0.25) / 2)
    assert float(create("gce", q=0.5).loss(LOGITS, LABELS).total) == pytest.approx(
        (2 * (1 - 0.25**0.5) + 2 * (1 - 0.75**0.5)) / 2
    )
    assert float(create("gce", q=1e-6).loss(LOGITS, LABELS).total) == pytest.approx(HARD, rel=1e-5)


def test_early_learning_remembers_each_sample() -> None:
    method = create("elr", momentum=0.5, weight=2.0)
    memory, rows = method.memory(5), torch.tensor([3, 0])
    p = LOGITS[0].exp()
    average = torch.zeros(2, 3, dtype=torch.float64)
    for _ in range(3):
        average = 0.5 * average + 0.5 * p
        expected = HARD + 2.0 * (1 - (average * p).sum(dim=1)).log().mean()
        total = method.loss(LOGITS, LABELS, memory=memory, rows=rows).total  # type: ignore[call-arg]
        assert float(total) == pytest.approx(float(expected), rel=1e-6)
    torch.testing.assert_close(memory["averages"][rows], average.float())
    assert memory["averages"][[1, 2, 4]].sum() == 0
    first = method.loss(LOGITS, LABELS, memory=method.memory(5), rows=rows).total  # type: ignore[call-arg]
    assert float(method.loss(LOGITS, LABELS).total) == pytest.approx(float(first))  # without a memory


def test_early_learning_pushes_towards_the_average_and_gets_no_gradient_through_it() -> None:
    method = create("elr", weight=1000.0)
    memory = {"averages": torch.tensor([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])}
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    method.loss(logits, LABELS, memory=memory, rows=torch.arange(2)).total.backward()  # type: ignore[call-arg]
    assert logits.grad is not None
    assert (logits.grad[0, :, 0] < 0).all()  # a step down the gradient raises the remembered grade
    assert not memory["averages"].requires_grad


def test_symmetric_cross_entropy() -> None:
    # the reverse part by its definition: −Σ_c p^c log l^c, with log 1 = 0 at the label and log 0 = −4 elsewhere
    reverse = (4 * (0.5 + 0.25) + 4 * (0.125 + 0.125)) / 2
    assert float(create("sce").loss(LOGITS, LABELS).total) == pytest.approx(0.1 * HARD + reverse)
    chosen = create("sce", alpha=6.0, beta=0.1, log_zero=-6.0)  # the authors' for a hundred classes
    assert float(chosen.loss(LOGITS, LABELS).total) == pytest.approx(6 * HARD + 0.1 * 1.5 * reverse)
    assert float(create("sce", alpha=1.0, beta=0.0).loss(LOGITS, LABELS).total) == pytest.approx(HARD)


def test_class_distance_weighted_cross_entropy() -> None:
    # label 1: grades 0 and 2 at distance 1; label 2: grade 0 at distance 2 and grade 1 at distance 1
    first, near, far = log(2) + log(4 / 3), log(8 / 7), log(8 / 7)
    for alpha in (1.0, 5.0):
        total = float(create("cdw-ce", alpha=alpha).loss(LOGITS, LABELS).total)
        assert total == pytest.approx((first + 2**alpha * far + near) / 2)
    assert create("cdw-ce").alpha == 5.0


@given(arrays("float64", (6, 4), elements=st.floats(-30, 30)).map(torch.from_numpy))
def test_corn_agrees_with_coral_pytorch(logits: torch.Tensor) -> None:
    pytest.importorskip("coral_pytorch")
    from coral_pytorch.dataset import corn_label_from_logits
    from coral_pytorch.losses import corn_loss

    method = methods.create("corn", num_classes=5)
    for labels in (
        torch.tensor([0, 1, 2, 3, 4, 2]),
        torch.tensor([0, 0, 1, 0, 4, 4]),
    ):  # the second lacks 2 and 3
        torch.testing.assert_close(method.loss(logits[None], labels).total, corn_loss(logits, labels, 5))
    above = torch.sigmoid(logits).cumprod(dim=1)
    clear = ((above - 0.5).abs() > 1e-9).all(dim=1)  # else Pr(grade > k) is ½ up to rounding
    assert torch.equal(method.grades(logits[None])[0][clear], corn_label_from_logits(logits)[clear])
    probabilities = method.probabilities(logits[None])
    torch.testing.assert_close(probabilities[0].flip(1).cumsum(dim=1).flip(1)[:, 1:], above)
    assert torch.equal(method.grades_of(probabilities)[0][clear], method.grades(logits[None])[0][clear])


def test_corn_by_hand() -> None:
    # above 0: ¾; above 1, given above 0: 1/5
    logits = torch.tensor([[[log(3), -log(4)]] * 3], dtype=torch.float64)
    method = create("corn")
    assert method.probabilities(logits)[0, 0].tolist() == pytest.approx([0.25, 0.75 * 0.8, 0.75 * 0.2])
    assert method.grades(logits).tolist() == [[1, 1, 1]]
    # label 0 answers one question, labels 1 and 2 answer two: −log of the probabilities above, over five questions
    total = method.loss(logits, torch.tensor([0, 1, 2])).total
    assert float(total) == pytest.approx((log(4) + log(4 / 3 / 0.8) + log(4 / 3 * 5)) / 5)
    assert [tuple(p.shape) for p in method.head(7, 3).parameters()] == [(2, 7), (2,)]


@pytest.mark.parametrize("name", ["sce", "corn", "cdw-ce"])
def test_derivatives_are_right(name: str) -> None:
    method = methods.create(name, num_classes=4)
    logits = torch.cos(1.7 * torch.arange(5.0 * method.outputs, dtype=torch.float64)).reshape(1, 5, -1)
    labels = torch.tensor([0, 3, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: method.loss(z, labels).total, logits.requires_grad_())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sce", {"log_zero": 0.0}, "log_zero < 0"),
        ("sce", {"alpha": -0.1}, "alpha ≥ 0"),
        ("cdw-ce", {"alpha": 0.0}, "the power of the distance, is positive; got 0"),
        ("gce", {"q": 0.0}, "q of the generalised cross-entropy"),
        ("elr", {"momentum": 1.0}, "a momentum in"),
        ("eae", {"move_from": 0.7}, "0 ≤ move_from < move_to ≤ 1"),
        ("srjt", {"co_lambda": -1.0, "transition": P3}, "co_lambda, the weight of the divergence"),
    ],
)
def test_impossible_options_are_one_sentence(name: str, options: dict, message: str) -> None:
    with pytest.raises(SrjtError, match=message):
        create(name, **options)


def test_the_recipe_is_forward_correction_and_agreement_on_all_samples() -> None:
    both = torch.stack([LOGITS[0], LOGITS[0].flip(-1)])
    method = create("srjt", transition=P3, co_lambda=0.5)
    own = [forward_corrected(z, LABELS, transition=torch.tensor(P3)).mean() for z in both]
    divergence = jeffreys(both[0], both[1], reduction="mean")
    for progress in (0.0, 0.25, 1.0):  # the weight grows over the training
        memory = {"progress": torch.tensor(progress)}
        loss = method.loss(both, LABELS, keep=1, memory=memory)  # type: ignore[call-arg]  # nothing is discarded
        assert float(loss.total) == pytest.approx(float(own[0] + own[1] + 0.5 * progress * divergence))
    assert float(method.loss(both, LABELS).total) == pytest.approx(float(loss.total))  # as at the end
    fit = (0.25 + 0.75 + 0.25 + 0.125) / 4  # how probable the given labels are
    on_features = create("srjt", transition=P3, co_lambda=0.5, grows_with="fit").loss(both, LABELS)
    assert float(on_features.total) == pytest.approx(float(own[0] + own[1] + 0.5 * fit * divergence))
    assert loss.per_network.tolist() == pytest.approx([float(one) for one in own])
    assert loss.selected.all()
    twins = create("srjt", transition=P3).loss(LOGITS.expand(2, -1, -1), LABELS)
    assert float(twins.total) == pytest.approx(-(log(0.35) + log(0.55)))  # forward correction, twice


def test_who_remembers() -> None:
    for name in methods.names():
        method = create(name, noise_rate=0.1, transition=P3)
        assert bool(method.memory(4)) == (name in ("elr", "eae", "srjt"))
