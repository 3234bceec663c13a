"""Compiled networks, the trial on a CPU, several processes."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import signal
import socket
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import cache_dir

import srjt
from processes import Limit
from srjt.data.images.feed import ResidentFeed
from srjt.errors import SrjtError
from srjt.networks import tiny
from srjt.training import checkpoint, devices
from srjt.training.batches import Preprocess, one_batch_size, predict_probabilities
from srjt.training.checkpoint import read_metrics
from srjt.training.config import TrainConfig
from srjt.training.devices import (
    CANDIDATES,
    LEFT_OUT,
    CpuSetting,
    Process,
    StackedNetworks,
    compile_networks,
    fastest_setting,
    keep_compiled_code,
    pause_garbage_collection,
    use_cpu_setting,
)
from srjt.training.trained import build_method

# Networks of one structure are compiled once, also those of later trainings; code is kept in our cache
# folder.


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """The graphs that torch has compiled, by a compiler that only counts."""
    found: list[Any] = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], *, options: dict[str, Any]) -> Any:
        assert options == LEFT_OUT
        found.append(len(inputs))
        return graph.forward

    monkeypatch.setenv("SRJT_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=count))
    torch.compiler.reset()
    devices._compiled.clear()
    yield found
    torch.compiler.reset()
    devices._compiled.clear()


def train_and_evaluate(networks: StackedNetworks, *, batch: int, evaluated: tuple[int, ...] = (6, 7)) -> None:
    compile_networks(networks, batch_size=batch)
    networks.train()(torch.rand(batch, 3)).sum().backward()
    networks.eval()
    with torch.no_grad():
        for size in evaluated:
            x = torch.rand(size, 3)
            plain = torch.stack([member(x) for member in networks.members])
            torch.testing.assert_close(networks(x), plain)


@pytest.mark.slow
def test_two_networks_and_later_trainings_share_the_compiled_code(graphs: list[Any]) -> None:
    train_and_evaluate(StackedNetworks([network(), network()]), batch=4)
    assert len(graphs) == 3  # for training, and for the two sizes of evaluation batches
    for _ in range(10):  # more than the eight times that torch compiles a function
        train_and_evaluate(StackedNetworks([network(), network()]), batch=4)
    assert len(graphs) == 3
    train_and_evaluate(StackedNetworks([network(5), network(5)]), batch=4)
    assert len(graphs) == 6
    train_and_evaluate(StackedNetworks([network(5)]), batch=9)
    assert len(graphs) == 9


@pytest.mark.slow
def test_networks_are_compiled_for_many_sizes_of_evaluation_batches(graphs: list[Any]) -> None:
    train_and_evaluate(StackedNetworks([network()]), batch=4, evaluated=tuple(range(5, 15)))
    assert len(graphs) == 1 + 10


def test_all_sides_are_evaluated_in_batches_of_one_size(graphs: list[Any]) -> None:
    feed = ResidentFeed(torch.rand(500, 3))
    networks = StackedNetworks([network()])
    compile_networks(networks, batch_size=4)
    sides = [torch.arange(300), torch.arange(300, 370), torch.arange(370, 500)]
    size = one_batch_size(networks, sides, largest=200)
    assert size == 192
    method = build_method(TrainConfig(method="standard", network="mlp"), num_classes=2)
    for rows in sides:
        (probabilities,), _ = predict_probabilities(
            networks, method, feed, rows, preprocess=Preprocess(crop=1), batch_size=size, amp=None
        )
        with torch.no_grad():
            expected = networks.members[0].eval()(feed.pixels[rows]).softmax(dim=-1)
        torch.testing.assert_close(probabilities, expected)
    assert len(graphs) == 1
    networks.compiled = []
    assert one_batch_size(networks, sides, largest=200) == 200


def test_the_compiler_knows_the_steps_that_are_left_out() -> None:
    assert LEFT_OUT.keys() <= set(torch._inductor.list_options())


def test_compiled_code_does_not_keep_the_networks(graphs: list[Any]) -> None:
    networks = StackedNetworks([network(), network()])
    train_and_evaluate(networks, batch=4)
    weights = [weakref.ref(parameter) for parameter in networks.parameters()]
    del networks
    gc.collect()
    assert [reference() for reference in weights] == [None] * len(weights)


def test_the_cache_folder_is_ours_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    keep_compiled_code()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_compiled_code()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "cache" / "compiled"
    assert (tmp_path / "cache" / "compiled").is_dir()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    cache_dir()  # torch sets the variable itself when it needs the folder, and an optimizer needs it
    assert "TORCHINDUCTOR_CACHE_DIR" in os.environ
    keep_compiled_code()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "cache" / "compiled"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "file"))
    keep_compiled_code()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_paused_and_then_as_before(enabled: bool) -> None:
    gc.enable() if enabled else gc.disable()
    try:
        with contextlib.suppress(ZeroDivisionError), pause_garbage_collection():
            assert not gc.isenabled()
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


# The trial that finds the fastest CPU setting leaves no trace but its answer.


@pytest.fixture
def tuned_network() -> nn.Module:
    return nn.Sequential(tiny(), nn.Dropout(0.5))


EXAMPLE = torch.zeros(4, 3, 16, 16)


def test_weights_statistics_gradients_and_random_state_stay(tuned_network: nn.Module, tmp_path: Path) -> None:
    before = copy.deepcopy(tuned_network.state_dict())
    random = torch.get_rng_state()
    tuned_network.eval()
    assert fastest_setting(tuned_network, EXAMPLE, cache=tmp_path) in CANDIDATES
    assert all(torch.equal(tensor, before[name]) for name, tensor in tuned_network.state_dict().items())
    assert all(p.grad is None for p in tuned_network.parameters())
    assert not tuned_network.training
    assert all(p.is_contiguous() for p in tuned_network.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.backends.mkldnn.enabled


def test_asked_once_per_network_and_shape(
    tuned_network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = []

    def seconds(network: nn.Module, example: Tensor, setting: CpuSetting, *, backward: bool) -> float:
        trials.append(setting)
        return 1.0 if setting.channels_last and not setting.onednn else 2.0

    monkeypatch.setattr(devices, "seconds_per_step", seconds)
    best = CpuSetting(channels_last=True, onednn=False)
    assert fastest_setting(tuned_network, EXAMPLE, cache=tmp_path) == best
    assert sorted(trials, key=str) == sorted(CANDIDATES, key=str)
    assert fastest_setting(tuned_network, EXAMPLE, cache=tmp_path) == best
    assert len(trials) == 4
    fastest_setting(tuned_network, torch.zeros(8, 3, 16, 16), cache=tmp_path)
    fastest_setting(tiny(), EXAMPLE, cache=tmp_path)
    assert len(trials) == 12
    fastest_setting(tuned_network, EXAMPLE, backward=False, cache=tmp_path / "applied")
    fastest_setting(tuned_network, EXAMPLE, backward=False, cache=tmp_path)  # not what was found for training
    assert len(trials) == 20
    for damaged in ("{", '{"threads": 3}', "[]"):
        for path in (tmp_path / "cpu").iterdir():
            path.write_text(damaged)
        assert fastest_setting(tuned_network, EXAMPLE, cache=tmp_path) == best
        assert vars(best) in [json.loads(p.read_text()) for p in readable(tmp_path / "cpu")]


def readable(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if '"channels_last"' in path.read_text()]


def test_a_cache_that_cannot_be_written(tuned_network: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fastest_setting(tuned_network, EXAMPLE, cache=tmp_path / "file") in CANDIDATES


def test_a_layout_that_the_network_cannot_take_is_not_chosen(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * x.view(len(x), -1)

    assert not fastest_setting(Flat(), EXAMPLE, cache=tmp_path).channels_last


def test_rows_of_features_need_no_trial(tmp_path: Path) -> None:
    assert fastest_setting(nn.Linear(3, 3), torch.zeros(4, 3), cache=tmp_path) == CpuSetting()
    assert not (tmp_path / "cpu").exists()


def test_a_setting_holds_for_the_body_only(tuned_network: nn.Module) -> None:
    flags = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic
    with use_cpu_setting(CpuSetting(channels_last=True, onednn=False), tuned_network):
        assert not torch.backends.mkldnn.enabled
        assert tuned_network[0][1][0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[index]
    assert (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic) == flags
    with contextlib.suppress(ZeroDivisionError), use_cpu_setting(CpuSetting(onednn=False)):
        _ = 1 / 0
    assert (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic) == flags
    with use_cpu_setting(None, tuned_network):
        assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("last", [False, True])
def test_a_run_keeps_its_setting_and_lays_its_images_out_by_it(
    data: Any, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    found = CpuSetting(channels_last=last, onednn=False)
    asked = []
    monkeypatch.setattr(devices, "fastest_setting", lambda *a, **k: asked.append(1) or found)
    layouts = set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tiny()

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 1:
                layouts.add(x.is_contiguous(memory_format=torch.channels_last))
            features: Tensor = self.body(x)
            return features

    chosen = {**settings, "tune_cpu": True, "epochs": 1, "network": Looks}
    run = srjt.train(data.manifest, out=tmp_path / "run", **chosen)
    assert run.cpu == found
    assert layouts == {last}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["cpu"] == vars(found)
    again = srjt.load_run(tmp_path / "run", network=Looks, device="cpu")
    assert again.cpu == found
    again.probabilities(data.manifest.arrays)
    assert layouts == {last}
    assert asked == [1]


# Two processes with half a batch each do what one does with the whole.


def command(labels: Path, out: Path, *more: object) -> list[object]:
    return [
        "train", labels, "--out", out, "--official-split", "--device", "cpu", "--network", "tiny-gn",
        "--noise-rate", 0.4, "--image-size", 32, "--crop", 28, "--epochs", 3, "--batch-size", 16,
        "--set", "tune_cpu=false", "--set", "checkpoint_seconds=0", *more,
    ]  # fmt: skip


def start_two(
    launcher: Any, arguments: list[object], folder: Path, *, setup: list[str] | None = None
) -> list[int]:
    """As torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        launcher.start(
            *arguments,
            says=folder / f"says{rank}",
            setup=setup,
            env={
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
            },
        )
        for rank in (0, 1)
    ]


@pytest.fixture(scope="module")
def alone(launcher: Any, labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    assert launcher.wait(launcher.start(*command(labels, folder / "run"), says=folder / "says")) == 0
    return folder / "run"


@pytest.mark.slow
def test_the_same_weights_selection_and_metrics(
    launcher: Any, labels: Path, alone: Path, tmp_path: Path
) -> None:
    codes = [launcher.wait(pid) for pid in start_two(launcher, command(labels, tmp_path / "run"), tmp_path)]
    assert codes == [0, 0], (tmp_path / "says1").read_text() + (tmp_path / "says0").read_text()
    ours, _ = checkpoint.read(tmp_path / "run" / "weights.safetensors")
    theirs, _ = checkpoint.read(alone / "weights.safetensors")
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6, msg=name)
    mine, other = (read_metrics(run / "metrics.csv") for run in (tmp_path / "run", alone))
    keys = ["epoch", "split", "network", "metric"]
    assert mine[keys].equals(other[keys])  # written once, by one
    compared = ~mine["metric"].isin(["seconds", "images_per_second", "peak_memory_mb"])
    assert mine.loc[compared, "value"].to_numpy() == pytest.approx(
        other.loc[compared, "value"].to_numpy(), abs=1e-5, nan_ok=True
    )
    assert (tmp_path / "says0").read_text().count("epoch 2/3") == 1
    assert (tmp_path / "says1").read_text() == ""
    assert list((tmp_path / "run").rglob("*.tmp")) == []


def epochs_written(out: Path) -> int:
    path = out / "metrics.csv"
    return int(read_metrics(path)["epoch"].max()) if path.exists() and path.read_text().count("\n") > 1 else 0


@pytest.mark.slow
def test_two_processes_stop_together_and_one_resumes(
    launcher: Any, labels: Path, alone: Path, tmp_path: Path
) -> None:
    """One process gets the signal; both stop after the epoch. The checkpoint is like any other."""
    out = tmp_path / "run"
    paused = Limit(tmp_path / "limit", epoch=1)
    pids = start_two(launcher, command(labels, out), tmp_path, setup=[paused.code])
    # Not before an epoch is written: until the loop has begun, a signal ends a process at once.
    launcher.wait_until(pids[0], lambda: epochs_written(out) >= 1)
    os.kill(pids[1], signal.SIGTERM)
    paused.lift()
    assert [launcher.wait(pid) for pid in pids] == [143, 143]
    assert launcher.wait(launcher.start(*command(labels, out), says=tmp_path / "says")) == 0
    ours, theirs = (checkpoint.read(run / "weights.safetensors")[0] for run in (out, alone))
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_evenly(launcher: Any, labels: Path, tmp_path: Path) -> None:
    arguments = command(labels, tmp_path / "run", "--set", "batch_size=15")
    codes = [launcher.wait(pid) for pid in start_two(launcher, arguments, tmp_path)]
    assert codes == [2, 2]
    assert "A batch of 15 cannot be shared evenly by 2 processes:" in (tmp_path / "says0").read_text()


def test_parts_cover_a_batch_once() -> None:
    columns = torch.arange(12)
    parts = [columns[Process(rank=rank, world_size=4).part(12)] for rank in range(4)]
    assert torch.equal(torch.cat(parts), columns)
    with pytest.raises(SrjtError, match="A batch of 13 cannot be shared evenly by 4"):
        Process(rank=0, world_size=4).part(13)
    assert Process().part(13) == slice(0, 13)
    assert Process().is_main
    assert not Process(rank=1, world_size=2).is_main
