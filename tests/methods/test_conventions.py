"""The paper's text, its authors' published code and the hosts' own papers, on cases that tell them apart.

Two grades and τ = 0.1 make everything a closed form: for logits (z, 0) and label 0 the sharpened hard loss
is softplus(−10 z). The batches have two samples and one is kept, so a selection is one index.
"""

from __future__ import annotations

from math import log

import pytest
import torch

from srjt import methods
from srjt.errors import SrjtError

PAPER, CODE, ORIGINAL = "paper", "published-code", "original"


def create(name: str, convention: str, **options) -> methods.Method:
    return methods.create(name, num_classes=2, noise_rate=0.4, convention=convention, **options)


def kept(method: methods.Method, first: list[float], second: list[float]) -> list[int]:
    """Which of two samples each network keeps. Network 1 has logits (z, 0) with z from ``first``."""
    z = torch.tensor([first, second], dtype=torch.float64)
    logits = torch.stack([z, torch.zeros_like(z)], dim=-1)
    return method.loss(logits, torch.tensor([0, 0]), keep=1).selected.long().argmax(dim=1).tolist()


# p₁ = (¾, ¼), p₂ = (¼, ¾), label 0: ℓ₁ = ln 4/3, ℓ₂ = ln 4, J = ln 3
UNDECIDED = torch.tensor([[[log(3), 0.0]], [[0.0, log(3)]]], dtype=torch.float64)
LABEL = torch.tensor([0])


# ------------------------------------------------------------------------------- ramp and rounding


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


# -------------------------------------------------------------------------------------------- JoCor


def test_jocors_update_is_weighted_in_the_published_code_only() -> None:
    paper, code = (create("jocor", c).loss(UNDECIDED, LABEL, keep=1) for c in (PAPER, CODE))
    assert float(paper.total) == pytest.approx(log(16 / 3) + 0.1 * log(3))
    assert float(code.total) == pytest.approx(0.9 * log(16 / 3) + 0.1 * log(3))
    # what is reported per network is its own loss, unweighted
    assert code.per_network.tolist() == pytest.approx([log(4 / 3), log(4)])


def test_the_original_jocor_weights_labels_and_divergence() -> None:
    loss = create("jocor", ORIGINAL, co_lambda=0.3).loss(UNDECIDED, LABEL, keep=1)
    assert float(loss.total) == pytest.approx(0.7 * log(16 / 3) + 0.3 * log(3))
    batch = ([2.0, -1.0], [-2.0, -1.0])  # as below: the weight alone decides
    assert kept(create("jocor", ORIGINAL, co_lambda=0.12), *batch) == [1, 1]
    with pytest.raises(SrjtError, match=r"The original JoCoR weights the labels by 1 − co_lambda.* got 1"):
        create("jocor", ORIGINAL, co_lambda=1.0)


def test_jocors_divergence_in_the_update_is_jeffreys_at_temperature_one_in_both() -> None:
    for convention, weight in ((PAPER, 1.0), (CODE, 0.7)):
        loss = create("jocor+ours", convention, co_lambda=0.3).loss(UNDECIDED, LABEL, keep=1)
        # two grades: soft label (e, 1) / (e + 1)
        share = 2.718281828459045 / 3.718281828459045
        soft = [share * log(4 / 3) + (1 - share) * log(4), share * log(4) + (1 - share) * log(4 / 3)]
        assert float(loss.total) == pytest.approx(weight * sum(soft) + 0.3 * log(3), rel=1e-6)


def test_jocors_selection_takes_d_at_tau_in_the_paper_and_at_one_in_the_published_code() -> None:
    # Sample 0: the networks disagree (z = ±1): ℓ₁ + ℓ₂ ≈ 10, J(τ = 0.1) ≈ 20, J(τ = 1) = 0.92.
    # Sample 1: they agree and are wrong (z = −0.55): ℓ₁ + ℓ₂ ≈ 11, J = 0.
    disagree_or_wrong = ([1.0, -0.55], [-1.0, -0.55])
    # paper: 10 + 2 against 11 → sample 1 (with D at 1 it would be 10.1 against 11)
    assert kept(create("jocor+ours", PAPER), *disagree_or_wrong) == [1, 1]
    # code: 9 + 0.09 against 9.9 → sample 0 (with D at τ it would be 11 against 9.9)
    assert kept(create("jocor+ours", CODE), *disagree_or_wrong) == [0, 0]


def test_jocors_selection_is_weighted_in_the_published_code() -> None:
    # τ = 1 everywhere, so only the weight differs. Sample 0: z = ±2: ℓ₁ + ℓ₂ = 2.254, J = 3.046.
    # Sample 1: z = −1.0 twice: ℓ₁ + ℓ₂ = 2.627, J = 0. λ = 0.12: paper 2.619 against 2.627,
    # code 0.88 · 2.254 + 0.366 = 2.349 against 0.88 · 2.627 = 2.311.
    batch = ([2.0, -1.0], [-2.0, -1.0])
    assert kept(create("jocor", PAPER, co_lambda=0.12), *batch) == [0, 0]
    assert kept(create("jocor", CODE, co_lambda=0.12), *batch) == [1, 1]


# -------------------------------------------------------------------------------------------- CoDis


def test_codis_d_is_jeffreys_in_the_paper_and_reverse_jensen_shannon_in_the_published_code() -> None:
    # Sample 0 for network 1: z = −1, the other +1: ℓ ≈ 10, J ≈ 20, KL(m‖·) ≈ 5 − ln 2 (all at τ = 0.1).
    # Sample 1: z = −0.9 twice: ℓ ≈ 9, D = 0. Network 2 finds sample 0 easy either way.
    batch = ([-1.0, -0.9], [1.0, -0.9])
    assert kept(create("codis+ours", PAPER), *batch) == [0, 0]  # 10 − 2 against 9
    assert kept(create("codis+ours", CODE), *batch) == [1, 0]  # 10 − 0.43 against 9


def test_codis_d_is_at_the_selections_temperature_in_both() -> None:
    # D at τ = 1 would be J = 0.92 and 0.12: too small to bring sample 0's 10 under 9.75.
    batch = ([-1.0, -0.975], [1.0, -0.975])
    assert kept(create("codis+ours", PAPER), *batch) == [0, 0]  # 10 − 2 against 9.75
    assert kept(create("codis+ours", CODE), *batch) == [0, 0]  # 10 − 0.43 against 9.75


def test_codis_d_without_sharpening() -> None:
    # τ = 1: sample 0 has 1.313 − 0.092 (Jeffreys) or − 0.012 (published), sample 1 has 1.295
    batch = ([-1.0, -0.975], [1.0, -0.975])
    assert kept(create("codis", PAPER), *batch) == [0, 0]
    assert kept(create("codis", CODE), *batch) == [1, 0]


def test_codis_learns_without_the_divergence_in_both() -> None:
    for convention in (PAPER, CODE):
        loss = create("codis", convention).loss(UNDECIDED, LABEL, keep=1)
        assert float(loss.total) == pytest.approx(log(4 / 3) + log(4))


def test_the_original_codis_learns_from_the_divergence_too() -> None:
    # m = (½, ½): ½ [KL(m‖p) + KL(m‖q)] = ½ [½ ln(½ / ¾) + ½ ln(½ / ¼)] · 2 = ½ ln 4/3, once per network
    loss = create("codis", ORIGINAL, co_lambda=0.3).loss(UNDECIDED, LABEL, keep=1)
    divergence = 0.5 * log(4 / 3)
    assert loss.per_network.tolist() == pytest.approx(
        [log(4 / 3) - 0.3 * divergence, log(4) - 0.3 * divergence]
    )
    batch = ([-1.0, -0.975], [1.0, -0.975])  # D as in the published code: see above
    assert kept(create("codis", ORIGINAL), *batch) == [1, 0]


@pytest.mark.parametrize("name", ["standard", "sord", "label-smooth", "mixup", "cdr", "garg"])
def test_for_single_networks_original_is_the_paper(name: str) -> None:
    made = [
        methods.create(name, num_classes=2, noise_rate=0.4, transition=torch.eye(2), convention=convention)
        for convention in (PAPER, ORIGINAL)
    ]
    logits = UNDECIDED[:1, :, : made[0].outputs]
    _, targets = made[0].prepare(logits[0], LABEL, generator=torch.Generator().manual_seed(0))
    paper, original = (method.loss(logits, targets).total for method in made)
    assert torch.equal(paper, original)
    heads = [torch.nn.utils.parameters_to_vector(_seeded_head(method)) for method in made]
    assert torch.equal(*heads)


def _seeded_head(method: methods.Method) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return list(method.head(3, method.num_classes).parameters())


# ------------------------------------------------------------------------- temperature and averaging


@pytest.mark.parametrize("host", ["co-teaching", "jocor", "codis"])
@pytest.mark.parametrize("convention", [PAPER, CODE])
def test_the_temperature_is_a_tenth_for_hard_and_soft_only(host: str, convention: str) -> None:
    taus = {
        (select, update): create(host, convention, select=select, update=update).tau
        for select in ("hard", "soft")
        for update in ("hard", "soft")
    }
    assert taus == {
        ("hard", "hard"): 1.0,
        ("hard", "soft"): 0.1,
        ("soft", "soft"): 1.0,
        ("soft", "hard"): 1.0,
    }


@pytest.mark.parametrize("convention", [PAPER, CODE])
def test_soft_and_soft_ranks_by_the_soft_loss_at_temperature_one(convention: str) -> None:
    # Three grades, label 1. Sample 0 is right with a flat rest, sample 1 a little less sure but ordered…
    logits = torch.tensor([[3.0, 3.2, -6.0], [0.0, 0.0, 0.0]], dtype=torch.float64).expand(2, 2, 3)
    labels = torch.tensor([1, 1])
    made = {
        select: methods.create(
            "co-teaching", num_classes=3, noise_rate=0.4, convention=convention, select=select, update="soft"
        )
        for select in ("hard", "soft")
    }
    # … hard: −log p is 0.60 against 1.10; soft (0.21, 0.58, 0.21): 2.6 against 1.10
    assert made["hard"].loss(logits, labels, keep=1).selected.tolist() == [[True, False]] * 2
    assert made["soft"].loss(logits, labels, keep=1).selected.tolist() == [[False, True]] * 2


@pytest.mark.parametrize("convention", [PAPER, CODE])
@pytest.mark.parametrize("name", ["co-teaching", "jocor", "codis+ours", "standard", "sord"])
def test_the_loss_is_a_mean_so_that_repeating_the_batch_changes_nothing(name: str, convention: str) -> None:
    method = create(name, convention)
    once = UNDECIDED[: method.networks]
    alone = method.loss(once, LABEL, keep=1).total
    torch.testing.assert_close(method.loss(once.expand(-1, 6, -1), LABEL.expand(6), keep=6).total, alone)
    torch.testing.assert_close(method.loss(once.expand(-1, 6, -1), LABEL.expand(6), keep=3).total, alone)
