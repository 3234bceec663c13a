"""Joint training against a reference written sample by sample from the paper's equations."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from refusals import refuses
from srjt import methods

HOSTS = ("co-teaching", "jocor", "codis")
CONVENTIONS = ("paper", "published-code", "original")
C = 4


def softmax(logits, tau: float) -> list[float]:
    top = max(logits)
    e = [math.exp((z - top) / tau) for z in logits]
    return [x / sum(e) for x in e]


def hard(logits, label: int, tau: float = 1.0) -> float:
    return -math.log(softmax(logits, tau)[label])


def soft(logits, label: int) -> float:
    weights = [math.exp(-abs(c - label)) for c in range(C)]
    return -sum(
        w / sum(weights) * math.log(p) for w, p in zip(weights, softmax(logits, 1.0), strict=True)
    )


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def jeffreys(p: list[float], q: list[float]) -> float:
    return kl(p, q) + kl(q, p)


def codis_d(p: list[float], q: list[float]) -> float:
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return 0.5 * (kl(m, p) + kl(m, q))


def reference(host, convention, select, update, tau, lam, logits, labels, keep, per_class=False):
    """→ total, per_network, selected, as the paper's Algorithms 1–3 and DESIGN's table have
    them."""
    size = len(labels)
    if select == "soft":
        tau = 1.0

    def ranking_loss(n: int, i: int) -> float:
        return (
            hard(logits[n][i], labels[i], tau)
            if select == "hard"
            else soft(logits[n][i], labels[i])
        )

    def learning_loss(n: int, i: int) -> float:
        loss = hard(logits[n][i], labels[i]) if update == "hard" else soft(logits[n][i], labels[i])
        if host == "codis" and convention == "original":
            loss -= lam * codis_d(*both(i, 1.0))
        return loss

    def both(i: int, t: float) -> tuple[list[float], list[float]]:
        return softmax(logits[0][i], t), softmax(logits[1][i], t)

    share = 1.0 if convention == "paper" else 1.0 - lam

    def score(n: int, i: int) -> float:
        if host == "co-teaching":
            return ranking_loss(n, i)
        if host == "codis":
            d = jeffreys if convention == "paper" else codis_d
            return ranking_loss(n, i) - lam * d(*both(i, tau))
        sharp = 1.0 if convention == "published-code" else tau
        return share * (ranking_loss(0, i) + ranking_loss(1, i)) + lam * jeffreys(*both(i, sharp))

    chosen = []
    for n in (0, 1):
        members = {
            g: [i for i in range(size) if labels[i] == g]
            for g in (set(labels) if per_class else [])
        }
        groups = members.values() if per_class else [list(range(size))]
        taken: list[int] = []
        for group in groups:
            taken += sorted(group, key=lambda i: score(n, i))[: math.ceil(keep * len(group) / size)]
        chosen.append(sorted(taken))

    learnt = chosen if host == "jocor" else chosen[::-1]
    own = [sum(learning_loss(n, i) for i in learnt[n]) / len(learnt[n]) for n in (0, 1)]
    if host == "jocor":
        total = sum(
            share * (learning_loss(0, i) + learning_loss(1, i)) + lam * jeffreys(*both(i, 1.0))
            for i in chosen[0]
        ) / len(chosen[0])
    else:
        total = own[0] + own[1]
    return total, own, [[i in c for i in range(size)] for c in chosen]


def batch(seed: int, size: int, spread: float = 1.5):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (2, size, C))
    logits[1] = 0.6 * logits[0] + 0.8 * logits[1]  # networks that partly agree
    return logits, rng.integers(0, C, size)


def make(name: str, **options) -> methods.Method:
    return methods.create(name, num_classes=C, noise_rate=0.2, **options)


CELLS = list(itertools.product(HOSTS, CONVENTIONS, ("hard", "soft"), ("hard", "soft")))


@pytest.mark.parametrize(("host", "convention", "select", "update"), CELLS)
@settings(max_examples=10)  # of each of the 36 cells
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 9), data=st.data())
def test_every_cell_of_the_ablation_agrees_with_the_reference(
    host: str, convention: str, select: str, update: str, seed: int, size: int, data: st.DataObject
) -> None:
    keep = data.draw(st.integers(1, size))
    lam = data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    per_class = data.draw(st.booleans())
    logits, labels = batch(seed, size)
    temperature = data.draw(st.sampled_from([None, 0.3, 2.0])) if select == "hard" else None
    options = {"select": select, "update": update, "co_lambda": lam, "per_class": per_class}
    method = make(host, convention=convention, temperature=temperature, **options)
    found = method.loss(torch.from_numpy(logits), torch.from_numpy(labels), keep=keep)
    tau = temperature or (0.1 if (select, update) == ("hard", "soft") else 1.0)
    total, own, chosen = reference(
        host,
        convention,
        select,
        update,
        tau,
        lam,
        logits.tolist(),
        labels.tolist(),
        keep,
        per_class,
    )
    assert found.selected.tolist() == chosen
    assert float(found.total) == pytest.approx(total, rel=1e-6)
    assert found.per_network.tolist() == pytest.approx(own, rel=1e-6)


def same(a: methods.Loss, b: methods.Loss) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def evaluate(name: str, seed: int = 3, **options) -> methods.Loss:
    logits, labels = batch(seed, 16)
    return make(name, **options).loss(torch.from_numpy(logits), torch.from_numpy(labels), keep=9)


@pytest.mark.parametrize("host", HOSTS)
def test_ours_is_the_host_with_a_soft_update(host: str) -> None:
    ours = evaluate(f"{host}+ours")
    assert same(ours, evaluate(host, update="soft"))
    assert same(ours, evaluate(host, update="soft", select="hard", temperature=0.1))


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("keep", [1, 9, 16])
def test_agreement_on_all_adds_the_mean_divergence_of_the_batch(convention: str, keep: int) -> None:
    """ℓ₁ + ℓ₂ on the choice, λD on every sample: with λ = 1 the published code's weights would
    leave no loss at all."""
    logits, labels = batch(5, 16)
    x, y = torch.from_numpy(logits).requires_grad_(), torch.from_numpy(labels)
    found = make("jocor+ours", convention=convention, co_lambda=1.0, agree="all").loss(
        x, y, keep=keep
    )
    p, q = (np.exp(one) / np.exp(one).sum(axis=-1, keepdims=True) for one in logits)
    divergence = ((p - q) * np.log(p / q)).sum(axis=-1)
    distance = np.abs(np.arange(C) - labels[:, None])
    soft = np.exp(-distance) / np.exp(-distance).sum(axis=-1, keepdims=True)
    losses = -(soft * (np.log(p) + np.log(q))).sum(axis=-1)
    chosen = found.selected[0].numpy()
    assert chosen.sum() == keep
    assert float(found.total.detach()) == pytest.approx(
        losses[chosen].mean() + divergence.mean(), rel=1e-6
    )
    found.total.backward()
    assert (x.grad.abs().sum(dim=-1) > 0).all()  # the discarded ones teach as well


def test_published_weights_that_leave_nothing_of_the_labels_are_refused() -> None:
    for name in ("jocor", "jocor+ours"):
        with refuses("out_of_bounds", "co_lambda"):
            evaluate(name, convention="published-code", agree="selected", co_lambda=1.0)
    evaluate("jocor+ours", convention="published-code", agree="all", co_lambda=1.0)


def test_a_label_matrix_replaces_the_soft_labels() -> None:
    distance = np.abs(np.arange(C)[:, None] - np.arange(C)[None, :])
    eq3 = np.exp(-distance) / np.exp(-distance).sum(axis=1, keepdims=True)
    default, explicit = evaluate("codis+ours"), evaluate("codis+ours", label_matrix=eq3)
    torch.testing.assert_close(explicit.total, default.total, rtol=1e-6, atol=0)
    # one-hot rows make a soft update a hard one
    hardened = evaluate("codis+ours", label_matrix=np.eye(C), temperature=1.0)
    torch.testing.assert_close(hardened.total, evaluate("codis").total)


@pytest.mark.parametrize(("host", "convention", "select", "update"), CELLS)
def test_unselected_samples_get_no_gradient(
    host: str, convention: str, select: str, update: str
) -> None:
    method = make(host, convention=convention, select=select, update=update)
    array, labels = batch(11, 20, spread=4.0)
    logits = torch.from_numpy(array).float().requires_grad_()
    loss = method.loss(logits, torch.from_numpy(labels), keep=7)
    loss.total.backward()
    # a network learns from what the *other* chose; for JoCor both choices are the same
    learnt = loss.selected.flip(0)
    assert (logits.grad[~learnt] == 0).all()
    assert (logits.grad[learnt].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("update", ["hard", "soft"])
def test_derivatives_are_right(host: str, convention: str, update: str) -> None:
    """The selection is constant in a small neighbourhood, so the loss is smooth there."""
    method = make(host, convention=convention, update=update)
    array, labels = batch(4, 5)
    logits = torch.from_numpy(array).requires_grad_()
    if (host, convention) != ("codis", "original"):  # its networks have a loss each: below
        grades = torch.from_numpy(labels)
        assert torch.autograd.gradcheck(lambda z: method.loss(z, grades, keep=3).total, logits)


@pytest.mark.parametrize("update", ["hard", "soft"])
def test_each_network_of_the_original_codis_minimises_its_own_loss(update: str) -> None:
    """The derivative with respect to a network's logits is that of its own loss, by finite
    differences."""
    method = make("codis", convention="original", update=update)
    array, labels = batch(4, 5)
    logits = torch.from_numpy(array).requires_grad_()
    method.loss(logits, torch.from_numpy(labels), keep=3).total.backward()
    tau = 0.1 if update == "soft" else 1.0

    def own_loss(n: int, z: np.ndarray) -> float:
        return reference(
            "codis", "original", "hard", update, tau, 0.1, z.tolist(), labels.tolist(), 3
        )[1][n]

    for n, i, c in itertools.product((0, 1), range(5), range(C)):
        step = np.zeros_like(array)
        step[n, i, c] = 1e-5
        slope = (own_loss(n, array + step) - own_loss(n, array - step)) / 2e-5
        assert float(logits.grad[n, i, c]) == pytest.approx(slope, abs=1e-7)


def test_a_sample_that_is_not_a_number_is_not_selected_and_does_not_spoil_the_loss() -> None:
    for name in (f"{host}{ours}" for host in HOSTS for ours in ("", "+ours")):
        array, grades = batch(1, 9)
        array[:, 3] = math.nan
        loss = make(name).loss(torch.from_numpy(array), torch.from_numpy(grades), keep=8)
        assert not loss.selected[:, 3].any()
        assert loss.selected.sum() == 16
        assert loss.total.isfinite()


@pytest.mark.parametrize("name", ["co-teaching", "codis+ours"])
def test_ramp_and_rounding(name: str) -> None:
    def kept(convention: str, epochs: tuple[int, ...], size: int = 64, **options: int) -> list[int]:
        method = methods.create(
            name, num_classes=2, noise_rate=0.4, convention=convention, **options
        )
        return [method.keep(epoch, size) for epoch in epochs]

    # ε = 0.4, batch of 64. Paper: 1 − 0.08 T from the first epoch, up: 58.88, 53.76, 48.64, 43.52,
    # 38.4
    assert kept("paper", (1, 2, 3, 4, 5, 6, 150)) == [59, 54, 49, 44, 39, 39, 39]
    # Code: 1 − 0.4 (T−1)/9, down: 64, 61.16, 58.31, …, 41.24, 38.4
    assert kept("published-code", (1, 2, 3, 9, 10, 11, 150)) == [64, 61, 58, 41, 38, 38, 38]
    # Original: 1 − 0.04 T, up: 61.44, 58.88, …, 40.96, 38.4
    assert kept("original", (1, 2, 9, 10, 11)) == [62, 59, 41, 39, 39]
    assert kept("paper", (1, 2, 3), 10, ramp_epochs=2) == [8, 6, 6]
    assert kept("published-code", (1, 2, 3, 4), 10, ramp_epochs=3) == [10, 8, 6, 6]
