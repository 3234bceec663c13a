"""Methods with one network."""

import warnings
from math import exp, log

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta, kstest
from torch import nn

from refusals import refuses
from srjt import methods, noise
from srjt.ordinal.losses import expected_absolute_error, forward_corrected, jeffreys

# Three grades, asymmetric errors: P where Pᵀ is meant gives other numbers.
P3 = [[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]
# Two samples: p = (½, ¼, ¼) with label 1 and p = (1/8, 1/8, ¾) with label 2
LOGITS = torch.tensor([[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]], dtype=torch.float64).log()
LABELS = torch.tensor([1, 2])


def total(name: str, **options) -> float:
    loss = methods.create(name, num_classes=3, noise_rate=0.2, transition=P3, **options).loss(
        LOGITS, LABELS
    )
    assert loss.selected.tolist() == [[True, True]]
    assert float(loss.total) == float(loss.per_network[0])
    return float(loss.total)


def test_standard() -> None:
    assert total("standard") == pytest.approx((log(4) + log(4 / 3)) / 2)
    assert total("cdr") == total("mixup") == total("standard")


def test_sord() -> None:
    one, e1, e2 = 1.0, exp(-1), exp(-2)
    middle = (e1 * log(2) + one * log(4) + e1 * log(4)) / (one + 2 * e1)
    top = (e2 * log(8) + e1 * log(8) + one * log(4 / 3)) / (one + e1 + e2)
    assert total("sord") == pytest.approx((middle + top) / 2, rel=1e-6)

    # with a given matrix
    assert total("sord", label_matrix=np.eye(3)) == pytest.approx(total("standard"))
    rows = [[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]
    expected = (0.5 * log(2) + 0.5 * log(4) + 0.5 * log(8) + 0.5 * log(4 / 3)) / 2
    assert total("sord", label_matrix=rows) == pytest.approx(expected)


def test_label_smoothing_forward_correction_and_reweighting() -> None:
    each = 0.1 / 3
    first = 0.9 * log(4) + each * (log(2) + 2 * log(4))
    second = 0.9 * log(4 / 3) + each * (2 * log(8) + log(4 / 3))
    assert total("label-smooth") == pytest.approx((first + second) / 2, rel=1e-6)
    # and torch's own label smoothing means the same by 0.1
    theirs = torch.nn.functional.cross_entropy(LOGITS[0], LABELS, label_smoothing=0.1)
    assert total("label-smooth") == pytest.approx(float(theirs), rel=1e-6)
    assert total("label-smooth", smoothing=0.0) == pytest.approx(total("standard"))
    # Pr(label 1) = ½·0.2 + ¼·0.7 + ¼·0.3 = 0.35; Pr(label 2) = ⅛·0 + ⅛·0.2 + ¾·0.7 = 0.55
    assert total("f-correction") == pytest.approx(-(log(0.35) + log(0.55)) / 2)
    expected = (0.25 / 0.35 * log(4) + 0.75 / 0.55 * log(4 / 3)) / 2
    assert total("reweight") == pytest.approx(expected)


@pytest.mark.parametrize("convention", ["published-code", "original"])
@pytest.mark.parametrize(
    "name", ["standard", "sord", "label-smooth", "mixup", "cdr", "f-correction", "reweight", "garg"]
)
def test_all_conventions_are_the_paper(name: str, convention: str) -> None:
    known = {"num_classes": 3, "noise_rate": 0.4, "transition": P3}
    made = [methods.create(name, convention=one, **known) for one in ("paper", convention)]
    logits = LOGITS[..., : made[0].outputs]
    _, targets = made[0].prepare(logits[0], LABELS, generator=torch.Generator().manual_seed(0))
    assert torch.equal(*(method.loss(logits, targets).total for method in made))
    assert made[1].keep(10, 64) == 64
    if (name, convention) != ("garg", "published-code"):  # its biases start elsewhere
        assert torch.equal(*map(_seeded_head, made))


def _seeded_head(method: methods.Method) -> torch.Tensor:
    torch.manual_seed(0)
    return nn.utils.parameters_to_vector(method.head(3, method.num_classes).parameters())


# The baselines that the paper does not compare with, and the loss of the recipe: in closed form.
HARD = (log(4) + log(4 / 3)) / 2


def create(name: str, **options) -> methods.Method:
    return methods.create(name, num_classes=3, **options)


def test_expected_absolute_error() -> None:
    method = create("eae")
    expected = (0.75 + 0.375) / 2  # ½·1 + ¼·1, and ⅛·2 + ⅛·1
    assert float(method.loss(LOGITS, LABELS).total) == pytest.approx(expected)
    middle = (HARD + expected) / 2
    for progress, total in (
        (0.0, HARD),
        (0.2, HARD),
        (0.4, middle),
        (0.6, expected),
        (1.0, expected),
    ):
        memory = {"progress": torch.tensor(progress)}
        loss = method.loss(LOGITS, LABELS, memory=memory, rows=torch.arange(2))
        assert float(loss.total) == pytest.approx(total, rel=1e-6)
        assert loss.selected.all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9).filter(lambda labels: len(labels) % 2 == 1)
)
def test_the_median_of_the_labels_has_the_smallest_expected_absolute_error(
    labels: list[int],
) -> None:
    certain = 50.0 * torch.eye(5, dtype=torch.float64)
    given = torch.tensor(labels)
    totals = [
        float(expected_absolute_error(row.expand(len(labels), -1), given).sum()) for row in certain
    ]
    assert totals[sorted(labels)[len(labels) // 2]] == pytest.approx(min(totals))


def test_generalised_cross_entropy() -> None:
    assert float(create("gce", q=1.0).loss(LOGITS, LABELS).total) == pytest.approx(
        (0.75 + 0.25) / 2
    )
    half = (2 * (1 - 0.25**0.5) + 2 * (1 - 0.75**0.5)) / 2
    assert float(create("gce", q=0.5).loss(LOGITS, LABELS).total) == pytest.approx(half)
    assert float(create("gce", q=1e-6).loss(LOGITS, LABELS).total) == pytest.approx(HARD, rel=1e-5)


def test_early_learning_remembers_each_sample() -> None:
    method = create("elr", momentum=0.5, weight=2.0)
    memory, rows = method.memory(5), torch.tensor([3, 0])
    p = LOGITS[0].exp()
    average = torch.zeros(2, 3, dtype=torch.float64)
    for _ in range(3):
        average = 0.5 * average + 0.5 * p
        expected = HARD + 2.0 * (1 - (average * p).sum(dim=1)).log().mean()
        total = method.loss(LOGITS, LABELS, memory=memory, rows=rows).total
        assert float(total) == pytest.approx(float(expected), rel=1e-6)
    torch.testing.assert_close(memory["averages"][rows], average.float())
    assert memory["averages"][[1, 2, 4]].sum() == 0
    first = method.loss(LOGITS, LABELS, memory=method.memory(5), rows=rows).total
    assert float(method.loss(LOGITS, LABELS).total) == pytest.approx(
        float(first)
    )  # without a memory


def test_early_learning_pushes_towards_the_average_and_gets_no_gradient_through_it() -> None:
    method = create("elr", weight=1000.0)
    memory = {"averages": torch.tensor([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])}
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    method.loss(logits, LABELS, memory=memory, rows=torch.arange(2)).total.backward()
    assert (logits.grad[0, :, 0] < 0).all()  # a step down the gradient raises the remembered grade
    assert not memory["averages"].requires_grad


def test_symmetric_cross_entropy() -> None:
    # the reverse part by its definition: −Σ_c p^c log l^c, with log 1 = 0 at the label and log 0 =
    # −4 elsewhere
    reverse = (4 * (0.5 + 0.25) + 4 * (0.125 + 0.125)) / 2
    assert float(create("sce").loss(LOGITS, LABELS).total) == pytest.approx(0.1 * HARD + reverse)
    chosen = create("sce", alpha=6.0, beta=0.1, log_zero=-6.0)  # the authors' for a hundred classes
    assert float(chosen.loss(LOGITS, LABELS).total) == pytest.approx(6 * HARD + 0.1 * 1.5 * reverse)
    assert float(create("sce", alpha=1.0, beta=0.0).loss(LOGITS, LABELS).total) == pytest.approx(
        HARD
    )


def test_class_distance_weighted_cross_entropy() -> None:
    # label 1: grades 0 and 2 at distance 1; label 2: grade 0 at distance 2 and grade 1 at distance
    # 1
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
    for labels in torch.tensor(
        [[0, 1, 2, 3, 4, 2], [0, 0, 1, 0, 4, 4]]
    ):  # the second lacks 2 and 3
        torch.testing.assert_close(
            method.loss(logits[None], labels).total, corn_loss(logits, labels, 5)
        )
    above = torch.sigmoid(logits).cumprod(dim=1)
    clear = ((above - 0.5).abs() > 1e-9).all(dim=1)  # else Pr(grade > k) is ½ up to rounding
    assert torch.equal(method.grades(logits[None])[0][clear], corn_label_from_logits(logits)[clear])
    probabilities = method.probabilities(logits[None])
    torch.testing.assert_close(probabilities[0].flip(1).cumsum(dim=1).flip(1)[:, 1:], above)
    assert torch.equal(
        method.grades_of(probabilities)[0][clear], method.grades(logits[None])[0][clear]
    )


def test_corn_by_hand() -> None:
    # above 0: ¾; above 1, given above 0: 1/5
    logits = torch.tensor([[[log(3), -log(4)]] * 3], dtype=torch.float64)
    method = create("corn")
    assert method.probabilities(logits)[0, 0].tolist() == pytest.approx(
        [0.25, 0.75 * 0.8, 0.75 * 0.2]
    )
    assert method.grades(logits).tolist() == [[1, 1, 1]]
    # label 0 answers one question, labels 1 and 2 answer two: −log of the probabilities above, over
    # five questions
    total = method.loss(logits, torch.tensor([0, 1, 2])).total
    assert float(total) == pytest.approx((log(4) + log(4 / 3 / 0.8) + log(4 / 3 * 5)) / 5)
    assert [tuple(p.shape) for p in method.head(7, 3).parameters()] == [(2, 7), (2,)]


@pytest.mark.parametrize("name", ["sce", "corn", "cdw-ce"])
def test_derivatives_are_right(name: str) -> None:
    method = methods.create(name, num_classes=4)
    logits = torch.cos(1.7 * torch.arange(5.0 * method.outputs, dtype=torch.float64)).reshape(
        1, 5, -1
    )
    labels = torch.tensor([0, 3, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: method.loss(z, labels).total, logits.requires_grad_())


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("sce", {"log_zero": 0.0}, ("out_of_bounds", "log_zero", "got 0")),
        ("sce", {"alpha": -0.1}, ("out_of_bounds", "alpha", "alpha cannot be")),
        ("cdw-ce", {"alpha": 0.0}, ("out_of_bounds", "alpha", "alpha must be")),
        ("gce", {"q": 0.0}, ("out_of_bounds", "q")),
        ("elr", {"momentum": 1.0}, ("out_of_bounds", "momentum")),
        ("eae", {"move_from": 0.7}, ("out_of_bounds", "move_from")),
        ("srjt", {"co_lambda": -1.0, "transition": P3}, ("out_of_bounds", "co_lambda")),
    ],
)
def test_impossible_options_are_one_sentence(
    name: str, options: dict, refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        create(name, **options)


def test_the_recipe_is_forward_correction_and_agreement_on_all_samples_and_remembers() -> None:
    both = torch.stack([LOGITS[0], LOGITS[0].flip(-1)])
    method = create("srjt", transition=P3, co_lambda=0.5, grows_with="training")
    own = [forward_corrected(z, LABELS, transition=torch.tensor(P3)).mean() for z in both]
    divergence = jeffreys(both[0], both[1]).mean()
    for progress in (0.0, 0.25, 1.0):  # the weight grows over the training
        memory = {"progress": torch.tensor(progress)}
        loss = method.loss(both, LABELS, keep=1, memory=memory)  # nothing is discarded
        assert float(loss.total) == pytest.approx(
            float(own[0] + own[1] + 0.5 * progress * divergence)
        )
    assert float(method.loss(both, LABELS).total) == pytest.approx(
        float(loss.total)
    )  # as at the end
    fit = (0.25 + 0.75 + 0.25 + 0.125) / 4  # how probable the given labels are
    recipe = create("srjt", transition=P3).loss(both, LABELS)
    assert float(recipe.total) == pytest.approx(float(own[0] + own[1] + 10.0 * fit * divergence))
    assert loss.per_network.tolist() == pytest.approx([float(one) for one in own])
    assert loss.selected.all()
    twins = create("srjt", transition=P3).loss(LOGITS.expand(2, -1, -1), LABELS)
    assert float(twins.total) == pytest.approx(
        -(log(0.35) + log(0.55))
    )  # forward correction, twice
    for name in methods.names():
        method = create(name, noise_rate=0.1, transition=P3)
        assert bool(method.memory(4)) == (name in ("elr", "eae"))


# CDR: the weights that matter to the fit keep (1 − ε) of their gradient, the others none.
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


def test_weights_without_a_gradient_are_left_out_and_half_precision_stays() -> None:
    frozen = nn.Parameter(torch.ones(2, 2))
    weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    method = methods.create("cdr", num_classes=4, noise_rate=0.5)
    method.adjust([frozen, weight])
    assert frozen.grad is None
    assert weight.grad.dtype == torch.bfloat16
    assert weight.grad.tolist() == [[0.0, 0.0], [0.5, 0.5]]
    method.adjust([frozen])


# Mixup: one Beta(½, ½) draw and one permutation per batch, the same blend for samples and labels.
def prepare(seed: int, size: int = 8, **options) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    labels = torch.arange(size) % 4
    x = torch.eye(
        size, dtype=torch.float64
    )  # each sample is its own axis, so the blend can be read off
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


# Garg: ordinal logits, a shared weight vector, and a matrix that may be nearly singular.
def create_garg(num_classes: int = 4, rho: float = 0.1, kind: str = "quasi") -> methods.Garg:
    matrix = noise.transition_matrix(kind, num_classes=num_classes, rho=rho)
    return methods.create("garg", num_classes=num_classes, transition=matrix)


def test_the_head_has_one_weight_vector_and_a_bias_per_threshold() -> None:
    head = create_garg().head(7, 4)
    assert sorted(tuple(p.shape) for p in head.parameters()) == [(1, 7), (3,)]
    features = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    logits = head(features)
    assert logits.shape == (5, 3)
    # thresholds differ by their biases alone
    torch.testing.assert_close(logits - logits[:, :1], (logits - logits[:, :1])[:1].expand(5, -1))
    assert methods.create("garg", num_classes=2, transition=torch.eye(2)).head(7, 2)(
        features
    ).shape == (5, 1)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 10])
def test_every_grade_is_somewhere_the_likeliest_at_the_start(classes: int) -> None:
    method = methods.create("garg", num_classes=classes, transition=np.eye(classes))
    head = method.head(1, classes)
    position = torch.linspace(
        -30.0, 30.0, 2401, dtype=torch.float64
    )  # of a sample along the weight vector
    with torch.no_grad():
        p = method.probabilities((position[:, None] + head.bias)[None])[0]
    assert set(p.argmax(dim=-1).tolist()) == set(range(classes))
    highest = p.max(dim=0).values[1:-1]
    torch.testing.assert_close(highest, torch.full_like(highest, np.tanh(0.5)), atol=1e-3, rtol=0)
    torch.testing.assert_close(
        head.bias, -head.bias.flip(0)
    )  # no grade is preferred to its mirror image


def test_biases_learn_a_hundred_times_as_fast_as_weights() -> None:
    head = create_garg(3).head(2, 3)
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-3)
    before = [head.weight.weight.detach().clone(), head.bias.detach().clone()]
    head(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    weights, biases = (
        (now.detach() - was).abs().max()
        for now, was in zip((head.weight.weight, head.bias), before, strict=True)
    )
    assert float(weights) == pytest.approx(1e-3, rel=1e-3)
    assert float(biases) == pytest.approx(0.1, rel=1e-3)


def test_the_published_start_is_zero_without_a_faster_rate() -> None:
    """The authors' training script has ``torch.zeros``: at first no middle grade has any
    probability."""
    for classes in (2, 3, 5, 8):
        matrix = np.eye(classes)
        code = methods.create(
            "garg", num_classes=classes, transition=matrix, convention="published-code"
        )
        head = code.head(7, classes)
        assert torch.equal(dict(head.named_parameters())["bias"], torch.zeros(classes - 1))
        p = code.probabilities(
            head(torch.randn(9, 7, generator=torch.Generator().manual_seed(0)))[None]
        )[0]
        # equal logits may have sigmoids that differ in the last bit
        torch.testing.assert_close(p[:, 1:-1], torch.zeros(9, classes - 2), atol=1e-6, rtol=0.0)


def test_probabilities_and_grades_by_hand_with_crossing_thresholds_clamped_and_renormalised() -> (
    None
):
    # above 0: 0.9, above 1: 0.6, above 2: 0.2; and 0.5, 0.7: the difference −0.2 counts as 0; (0.5,
    # 0, 0.5, 0.2) / 1.2
    logits = torch.logit(torch.tensor([[[0.9, 0.6, 0.2], [0.5, 0.7, 0.2]]], dtype=torch.float64))
    ordered, crossing = create_garg().probabilities(logits)[0].tolist()
    assert ordered == pytest.approx([0.1, 0.3, 0.4, 0.2])
    assert crossing == pytest.approx([0.5 / 1.2, 0.0, 0.5 / 1.2, 0.2 / 1.2])
    assert create_garg().grades(logits)[0, 0] == 2


@given(arrays("float64", (3,), elements=st.floats(-8, 8)))
def test_ordered_thresholds_decide_the_same_through_probabilities(raw: np.ndarray) -> None:
    logits = torch.from_numpy(np.sort(raw)[::-1].copy())[None, None]
    if logits.abs().min() > 1e-6:  # else Pr(grade > k) is ½ up to rounding
        method = create_garg()
        assert torch.equal(method.grades_of(method.probabilities(logits)), method.grades(logits))


def test_a_sigmoid_of_one_half_is_not_above_it_and_a_singular_matrix_is_an_error() -> None:
    logits = torch.tensor([[[0.0, 0.0, 0.0], [1e-3, 0.0, -1.0], [9.0, 9.0, 9.0]]])
    assert create_garg().grades(logits).tolist() == [[0, 1, 3]]
    with refuses("unsupported", "noise_rate"):
        methods.create("garg", num_classes=2, transition=[[0.5, 0.5], [0.5, 0.5]])


def test_a_nearly_singular_matrix_is_a_warning_with_numbers_and_moving_does_not_warn_again() -> (
    None
):
    with pytest.warns(UserWarning, match=r"condition number 41, inverse entries up to 18"):
        method = create_garg(rho=0.3, kind="truncated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert method.to("meta").inverse.device.type == "meta"
