"""Hosts that define which samples are selected: by a threshold of the loss, or by what they
remember."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import srjt
from refusals import refuses
from srjt import methods
from srjt.methods import JointTraining, register_method
from srjt.studies.config import parse_method

ROWS = torch.arange(6)


@dataclass(frozen=True, kw_only=True)
class Threshold(JointTraining):
    """Select the samples whose loss is below a threshold."""

    needs: ClassVar[tuple[str, ...]] = ()
    limit: float = 1.0

    def selection(self, losses_KB: Tensor, logits: Tensor, keep: int | Tensor) -> Tensor:
        return losses_KB < self.limit


@dataclass(frozen=True, kw_only=True)
class Remembered(JointTraining):
    """Select the samples whose label is at least as likely as a running mean of the likeliest
    grade's probability."""

    needs: ClassVar[tuple[str, ...]] = ()

    def memory(self, samples: int) -> dict[str, Tensor]:
        return {"confidence": torch.zeros(2, samples)}

    def selection(
        self,
        losses_KB: Tensor,
        logits: Tensor,
        keep: int | Tensor,
        *,
        memory: dict[str, Tensor],
        rows: Tensor,
    ) -> Tensor:
        highest = logits.softmax(dim=-1).amax(dim=-1)
        mean = 0.5 * memory["confidence"].index_select(1, rows) + 0.5 * highest
        memory["confidence"].index_copy_(1, rows, mean)
        return (-losses_KB).exp() > mean


class Agreeing(JointTraining):
    """Select by the logits alone, whatever the label is: ``select`` changes nothing."""

    def selection(self, losses_KB: Tensor, logits: Tensor, keep: int | Tensor) -> Tensor:
        return (logits[0] - logits[1]).abs().sum(dim=-1) < 4.0


class OwnLoss(methods.CoTeaching):
    """A host that computes the hard loss itself, and so ignores ``select``."""

    def score(self, losses_KB: Tensor, logits: Tensor) -> Tensor:
        return -logits.amax(dim=-1)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    for name, host in (
        ("threshold", Threshold),
        ("remembered", Remembered),
        ("agreeing", Agreeing),
        ("own", OwnLoss),
    ):
        register_method(name, scores="its own", updates="hard label", paper="these tests")(host)
    register_method(
        "threshold+ours", scores="its own", updates="soft label", paper="these tests", update="soft"
    )(Threshold)


def batch(seed: int = 0, size: int = 6) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(2, size, 3, generator=random), torch.randint(
        3, (size,), generator=random
    )


def test_a_network_learns_from_the_samples_that_the_other_selects() -> None:
    logits, labels = batch()
    loss = -logits.log_softmax(dim=-1).gather(-1, labels.expand(2, -1)[..., None]).squeeze(-1)
    chosen = loss < 1.0
    assert 0 < int(chosen[0].sum()) != int(chosen[1].sum()) > 0  # no fixed number
    found = Threshold(num_classes=3).loss(logits, labels, keep=2)
    assert torch.equal(found.selected, chosen)
    torch.testing.assert_close(
        found.per_network, torch.stack([loss[0][chosen[1]].mean(), loss[1][chosen[0]].mean()])
    )
    torch.testing.assert_close(found.total, found.per_network.sum())


def test_nothing_selected_is_nothing_learnt_and_a_common_mask_serves_both() -> None:
    logits, labels = batch()
    logits.requires_grad_()
    nothing = Threshold(num_classes=3, limit=0.0).loss(logits, labels)
    nothing.total.backward()
    assert (logits.grad == 0).all()

    class Common(JointTraining):
        def selection(self, losses_KB: Tensor, logits: Tensor, keep: int | Tensor) -> Tensor:
            return losses_KB.sum(dim=0) < 2.0

    selected = Common(num_classes=3, noise_rate=0.2).loss(logits, labels).selected
    assert selected.shape == (2, 6)
    assert torch.equal(selected[0], selected[1])


def test_memory_is_that_of_two_networks_and_changes_what_is_selected() -> None:
    logits, labels = batch()
    method = Remembered(num_classes=3)
    memory = method.memory(10)
    rows = torch.tensor([9, 2, 4, 0, 7, 5])
    masks = [method.loss(logits, labels, memory=memory, rows=rows).selected for _ in range(200)]
    highest = logits.softmax(dim=-1).amax(dim=-1)
    torch.testing.assert_close(memory["confidence"][:, rows], highest, atol=1e-6, rtol=0)
    assert (memory["confidence"][:, [1, 3, 6, 8]] == 0).all()
    assert masks[0].sum() > masks[-1].sum()  # in the end hardly any is above its own mean


@pytest.mark.usefixtures("registered")
def test_options_and_needs_are_those_that_the_host_has() -> None:
    assert "per_class" in methods.options("co-teaching")
    assert methods.options("threshold") == (
        "select",
        "update",
        "temperature",
        "co_lambda",
        "label_matrix",
        "limit",
    )
    assert methods.options("agreeing") == (
        *("select", "update", "temperature", "co_lambda", "ramp_epochs", "label_matrix"),
    )
    method = methods.create("threshold", num_classes=3)
    assert [method.keep(epoch, 64) for epoch in (1, 99)] == [64, 64]
    with refuses("unknown_name", says="'per_class'"):
        methods.create("threshold", num_classes=3, per_class=True)
    with refuses("option_without_effect", "per_class", says="Threshold"):
        Threshold(num_classes=3, per_class=True)
    assert methods.create("threshold+ours", num_classes=3).tau == 0.1


@pytest.mark.usefixtures("registered")
def test_a_host_that_ignores_select_has_no_soft_selection() -> None:
    usage = "select=soft,update=soft"
    for name in ("co-teaching", "jocor", "codis", "threshold", "remembered"):
        assert parse_method(f"{name}:{usage}").variant == usage
    for name in ("agreeing", "own"):
        with refuses("option_without_effect", "select"):
            parse_method(f"{name}:{usage}")
        parse_method(f"{name}:update=soft")


def test_soft_labels_of_ones_own_may_select() -> None:
    rows = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
    method = methods.create(
        "codis", num_classes=3, noise_rate=0.2, select="soft", label_matrix=rows
    )
    assert method.select == "soft"


def test_what_is_no_host_and_what_is_no_mask_is_an_error() -> None:
    class Nothing(JointTraining):
        pass

    with pytest.raises(TypeError, match="Nothing is no host"):
        Nothing(num_classes=3)
    with pytest.raises(TypeError, match="the method to define is 'selection'"):

        class Misnamed(JointTraining):
            def select(self, losses_KB: Tensor, logits: Tensor, keep: int) -> Tensor:
                return losses_KB < 1

    class Numbers(JointTraining):
        def selection(self, losses_KB: Tensor, logits: Tensor, keep: int | Tensor) -> Tensor:
            return losses_KB[..., :2]

    with refuses("wrong_shape", "selection", says=("(2, 6) or (6,)", "torch.float32")):
        Numbers(num_classes=3, noise_rate=0.2).loss(*batch())


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["threshold+ours", "remembered"])
def test_such_hosts_train_and_the_share_that_was_kept_is_logged(name: str, tmp_path: Any) -> None:
    random = np.random.default_rng(0)
    grades = np.arange(96) % 3
    rows = random.normal(size=(96, 4)) + grades[:, None]
    np.savez(
        tmp_path / "rows.npz",
        features=rows.astype(np.float32),
        grade=grades,
        patient=np.arange(96).astype(str),
    )
    run = srjt.train(
        tmp_path / "rows.npz", method=name, network="mlp", epochs=3, batch_size=16, progress=False
    )
    log = run.metrics[run.metrics["split"] == "train"]
    seen = log[log["metric"].str.startswith("kept[")].groupby("epoch")["value"].mean()
    kept = log[log["metric"] == "kept"].set_index("epoch")["value"]
    assert ((kept > 0) & (kept < 1)).any()
    assert kept.to_numpy() == pytest.approx(
        seen.to_numpy(), abs=0.08
    )  # the three grades are about equally frequent
