from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from srjt.errors import SrjtError
from srjt.networks import weights


class Backbone(nn.Module):
    """Its own ``head`` is no classifier, as in some of timm's networks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.ModuleDict({"norm": nn.LayerNorm(4)})


@pytest.fixture
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        key: torch.randn(value.shape) if value.is_floating_point() else value + 5
        for key, value in Backbone().state_dict().items()
    }


def classified(state: dict[str, Tensor], name: str = "head.fc") -> dict[str, Tensor]:
    return state | {f"{name}.weight": torch.ones(1000, 4), f"{name}.bias": torch.ones(1000)}


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + key: value for key, value in state.items()}


def zeros(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: torch.zeros_like(value) for key, value in state.items()}


ONES = torch.ones(3, 4)


def loaded(path: Path) -> dict[str, Tensor]:
    network = Backbone()
    weights.load(network, weights.read(path), source=str(path))
    return network.state_dict()


@pytest.mark.parametrize(
    "arrange",
    [
        lambda s: s,
        classified,
        lambda s: classified(s, "fc"),
        lambda s: prefixed("module.", classified(s, "classifier")),
        lambda s: prefixed("module._orig_mod.", s),
        lambda s: prefixed("backbone.", s) | {"head.weight": torch.ones(3, 4)},
        lambda s: prefixed("module.", prefixed("backbone.", s) | {"head.weight": torch.ones(3, 4)}),
        lambda s: {"state_dict": s, "epoch": 3},
        lambda s: {"state_dict": {"model": prefixed("module.", s)}, "optimizer": {"lr": 0.1}},
        lambda s: {**s, "version": "1"},
        # one of two networks of a run, and a self-supervised training with a copy, a projection and a queue
        lambda s: prefixed("0.backbone.", s) | prefixed("1.backbone.", zeros(s)) | {"0.head.weight": ONES},
        lambda s: {
            **prefixed("module.encoder_q.", classified(s, "fc")),
            **prefixed("module.encoder_k.", zeros(s)),
            "module.projector.0.weight": ONES,
            "module.queue": ONES,
        },
    ],
)
def test_reads_what_torch_saves_however_it_is_wrapped(arrange, state, tmp_path):
    torch.save(arrange(state), tmp_path / "w.pth")
    result = loaded(tmp_path / "w.pth")
    assert all(torch.equal(result[key], state[key]) for key in state)


def test_reads_safetensors_and_the_older_torch_format(state, tmp_path):
    save_file(classified(state), tmp_path / "w.safetensors")
    torch.save(classified(state), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("w.safetensors", "old.pt"):
        result = loaded(tmp_path / name)
        assert all(torch.equal(result[key], state[key]) for key in state)


def test_missing_step_counters_of_batch_norm_are_no_fault(state, tmp_path):
    del state["norm.num_batches_tracked"]
    torch.save(state, tmp_path / "w.pth")
    assert torch.equal(loaded(tmp_path / "w.pth")["norm.running_var"], state["norm.running_var"])


def test_missing_unexpected_and_misshapen_keys_are_all_reported(state, tmp_path):
    del state["norm.bias"]
    state["head.norm.weight"] = torch.ones(5)
    torch.save(state | prefixed("layer", {str(i): torch.ones(1) for i in range(5)}), tmp_path / "w.pth")
    with pytest.raises(SrjtError) as caught:
        loaded(tmp_path / "w.pth")
    assert str(caught.value) == (
        f"The weights in {tmp_path / 'w.pth'} do not fit the network: 1 missing (norm.bias); "
        "5 unexpected (layer0, layer1, layer2, …); 1 of another shape (head.norm.weight is 5 instead of 4)."
    )


def test_a_sentence_says_what_fitted(state):
    whole = weights.load(Backbone(), state, source="w.pth")
    assert whole == "The weights in w.pth fit: 9 tensors of the network come from it."
    part = prefixed("encoder.", classified(state, "fc")) | {"queue": ONES}
    assert weights.load(Backbone(), part, source="w.pth") == (
        "The weights in w.pth fit: 9 tensors of the network come from it; 3 of the file's are not used "
        "(encoder.fc.weight, encoder.fc.bias, queue)."
    )


def test_a_deeper_networks_weights_do_not_fit(state):
    with pytest.raises(SrjtError, match=r"do not fit the network: 1 unexpected \(conv\.2\.weight\)"):
        weights.load(Backbone(), state | {"conv.2.weight": ONES}, source="w.pth")


def test_a_file_that_does_not_fit_changes_nothing(state, tmp_path):
    network = Backbone()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    del state["norm.bias"]
    with pytest.raises(SrjtError, match="do not fit"):
        weights.load(network, state, source="file")
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


class RunsACommand:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_the_file_is_executed(zipped, state, tmp_path):
    proof = tmp_path / "executed"
    torch.save(
        {"state_dict": state, "extra": RunsACommand(proof)},
        tmp_path / "w.pth",
        _use_new_zipfile_serialization=zipped,
    )
    with pytest.raises(SrjtError, match="contains Python objects besides tensors") as caught:
        weights.read(tmp_path / "w.pth")
    assert "\n" not in str(caught.value)
    assert not proof.exists()


@pytest.mark.parametrize("content", [nn.Linear(2, 2), {"options": argparse.Namespace(lr=1)}])
def test_pickled_objects_are_refused_with_what_to_do(content, tmp_path):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(
        SrjtError, match=r"Python objects besides tensors.*torch\.save\(model\.state_dict\(\)"
    ):
        weights.read(tmp_path / "w.pth")


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"<html>404</html>"])
def test_damaged_files_are_one_sentence(ending, damage, state, tmp_path):
    path = tmp_path / f"w.{ending}"
    if ending == "pth":
        torch.save(state, path)
    else:
        save_file(state, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SrjtError, match="damaged, incomplete, or another kind of file") as caught:
        weights.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [torch.ones(3), {"epoch": 3}, [1, 2], {"state_dict": {}}])
def test_a_file_without_named_tensors_is_an_error(content, tmp_path):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(SrjtError, match="contains no named weights"):
        weights.read(tmp_path / "w.pth")
