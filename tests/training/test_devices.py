"""Compiled networks, the kernels and the layout on a CPU, several processes."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import srjt
from processes import Limit, epochs_done
from refusals import refuses
from srjt.data.grades import Grades
from srjt.data.images.feed import ResidentFeed
from srjt.errors import SrjtError
from srjt.networks import tiny
from srjt.training import checkpoint, devices
from srjt.training.checkpoint import read_metrics
from srjt.training.config import TrainConfig
from srjt.training.devices import (
    LEFT_OUT,
    Process,
    StackedNetworks,
    backward_kernels,
    compile_networks,
)
from srjt.training.folder import DataFacts, RunFacts
from srjt.training.trained import Setup, build_method, ready_to_compute


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """The graphs that torch has compiled, by a compiler that only counts."""
    found: list[Any] = []

    def count(
        graph: torch.fx.GraphModule, inputs: list[torch.Tensor], *, options: dict[str, Any]
    ) -> Any:
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


def train_and_evaluate(
    networks: StackedNetworks, *, batch: int, evaluated: tuple[int, ...] = (6, 7)
) -> None:
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


@pytest.mark.slow
def test_all_sides_are_evaluated_in_batches_of_one_size(graphs: list[Any]) -> None:
    feed = ResidentFeed(torch.rand(500, 3))
    networks = StackedNetworks([network()])
    compile_networks(networks, batch_size=4)
    sides = [torch.arange(300), torch.arange(300, 370), torch.arange(370, 500)]
    method = build_method(TrainConfig(method="standard", network="mlp"), num_classes=2)
    config = TrainConfig(method="standard", network="mlp", eval_batch_size=200)
    facts = RunFacts(config=config, grades=Grades(("0", "1")), data=DataFacts(in_shape=[3]))
    run = ready_to_compute(networks, method, facts, Setup(device="cpu"))
    forward = run.forward(feed, sides=sides)
    for rows in sides:
        (probabilities,), _ = forward.probabilities(rows)
        with torch.no_grad():
            expected = networks.members[0].eval()(feed.pixels[rows]).softmax(dim=-1)
        torch.testing.assert_close(probabilities, expected)
    assert len(graphs) == 1


@pytest.mark.slow
def test_the_compiler_knows_the_steps_that_are_left_out() -> None:
    assert LEFT_OUT.keys() <= set(torch._inductor.list_options())


@pytest.mark.slow
def test_compiled_code_does_not_keep_the_networks(graphs: list[Any]) -> None:
    networks = StackedNetworks([network(), network()])
    train_and_evaluate(networks, batch=4)
    weights = [weakref.ref(parameter) for parameter in networks.parameters()]
    del networks
    gc.collect()
    assert [reference() for reference in weights] == [None] * len(weights)


def test_an_operation_without_a_deterministic_version_is_one_sentence() -> None:
    reason = "upsample does not have a deterministic implementation"
    for problem, expected in ((reason, SrjtError), ("out of memory", RuntimeError)):
        with pytest.raises(expected), devices.torch_flags(TrainConfig(), torch.device("cpu")):
            raise RuntimeError(problem)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_paused_and_then_as_before(enabled: bool) -> None:
    gc.enable() if enabled else gc.disable()
    try:
        with contextlib.suppress(ZeroDivisionError), devices.pause_garbage_collection():
            assert not gc.isenabled()
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


# On a CPU the kernels and the layout are fixed per processor, and torch's flag is restored.
CPU = torch.device("cpu")


def test_backward_kernels_are_torchs_own_on_arm_and_the_flag_is_restored(monkeypatch: Any) -> None:
    mkldnn = torch.backends.mkldnn
    grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))
    for arm in (False, True):
        monkeypatch.setattr(devices, "ARM", arm)
        with contextlib.suppress(ZeroDivisionError), backward_kernels(tiny(), CPU):
            assert mkldnn.enabled != arm
            _ = 1 / 0
        assert mkldnn.enabled
        with backward_kernels(grouped, CPU):
            assert mkldnn.enabled
        with backward_kernels(tiny(), torch.device("meta")):
            assert mkldnn.enabled
    monkeypatch.setattr(mkldnn, "enabled", False)  # the user's choice
    with backward_kernels(tiny(), CPU):
        assert not mkldnn.enabled
    assert not mkldnn.enabled


@pytest.mark.slow
def test_a_step_uses_them_in_its_backward_pass_only(
    train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "ARM", True)
    forward, backward = set(), set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tiny()

        def forward(self, x: Tensor) -> Tensor:
            forward.add(torch.backends.mkldnn.enabled)
            features: Tensor = self.body(x)
            if features.requires_grad:
                features.register_hook(lambda _: backward.add(torch.backends.mkldnn.enabled))
            return features

    train(epochs=1, network=Looks)
    assert (forward, backward) == ({True}, {False})


def test_the_layout_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))
    for arm in (False, True):
        monkeypatch.setattr(devices, "ARM", arm)
        assert devices.uses_channels_last(tiny(), CPU)
        assert not devices.uses_channels_last(tiny(), CPU, own_network=True)  # it may call view
        assert devices.uses_channels_last(grouped, CPU) != arm
        assert devices.uses_channels_last(grouped, torch.device("cuda"), own_network=True)


@pytest.mark.slow
def test_a_run_and_its_images_are_laid_out_alike_when_opened(
    data: Any, train: Any, tmp_path: Path
) -> None:
    run = train(out=tmp_path / "run", epochs=1, network="tiny")
    opened = srjt.load_run(tmp_path / "run", device="cpu")
    for each in (run, opened):
        assert each.preprocess.channels_last
        convolutions = [p for p in each.networks.parameters() if p.ndim == 4]
        assert all(p.is_contiguous(memory_format=torch.channels_last) for p in convolutions)
    first, again = (each.probabilities(data.manifest.arrays)[0] for each in (run, opened))
    assert np.array_equal(first, again)


# Two processes with half a batch each do what one does with the whole. They add the same numbers in
# another order, and Adam divides by a gradient's size: in float32 the rounding of a gradient near 0
# becomes a difference of 1e-6 between weights, as large as that of an agreement weighted a little
# differently. In float64 only an error is that large.
DOUBLE = """
from srjt.training.devices import StackedNetworks

init, forward = StackedNetworks.__init__, StackedNetworks.forward

def init_in_double(networks, *given, **options):
    init(networks, *given, **options)
    networks.double()

StackedNetworks.__init__ = init_in_double
StackedNetworks.forward = lambda networks, x: forward(networks, x.double())
"""


def command(labels: Path, out: Path, *more: object) -> list[object]:
    return [
        "train", labels, "--out", out, "--official-split", "--device", "cpu", "--network", "tiny-gn",
        "--noise-rate", 0.4, "--image-size", 32, "--crop", 28, "--epochs", 3, "--batch-size", 16,
        "--set", "checkpoint_seconds=0", *more,
    ]  # fmt: skip


def start_two(
    launcher: Any, arguments: list[object], folder: Path, *, setup: Sequence[str] = ()
) -> list[int]:
    """As torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    group["GLOO_SOCKET_IFNAME"] = "lo"
    pids = []
    for rank in ("0", "1"):
        env = {"RANK": rank, "LOCAL_RANK": rank, **group}
        pids.append(
            launcher.start(*arguments, says=folder / f"says{rank}", setup=[DOUBLE, *setup], env=env)
        )
    return pids


@pytest.fixture(scope="module")
def alone(launcher: Any, labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    pid = launcher.start(*command(labels, folder / "run"), says=folder / "says", setup=[DOUBLE])
    assert launcher.wait(pid) == 0, (folder / "says").read_text()
    return folder / "run"


@pytest.mark.slow
def test_the_same_weights_and_metrics(
    launcher: Any, labels: Path, alone: Path, tmp_path: Path
) -> None:
    codes = [
        launcher.wait(pid)
        for pid in start_two(launcher, command(labels, tmp_path / "run"), tmp_path)
    ]
    assert codes == [0, 0], (tmp_path / "says1").read_text() + (tmp_path / "says0").read_text()
    ours, _ = checkpoint.read(tmp_path / "run" / "weights.safetensors")
    theirs, _ = checkpoint.read(alone / "weights.safetensors")
    assert ours.keys() == theirs.keys()
    assert {tensor.dtype for tensor in theirs.values()} == {torch.float64}
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-10, msg=name)
    mine, other = (read_metrics(run / "metrics.csv") for run in (tmp_path / "run", alone))
    keys = ["epoch", "split", "network", "metric"]
    assert mine[keys].equals(other[keys])  # written once, by one
    compared = ~mine["metric"].isin(["seconds", "images_per_second", "peak_memory_mb"])
    values, expected = (table.loc[compared, "value"].to_numpy() for table in (mine, other))
    assert values == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert (tmp_path / "says0").read_text().count("epoch 2/3") == 1
    assert (tmp_path / "says1").read_text() == ""
    assert list((tmp_path / "run").rglob("*.tmp")) == []


@pytest.mark.slow
def test_two_processes_stop_and_one_resumes(
    launcher: Any, labels: Path, alone: Path, tmp_path: Path
) -> None:
    """One process gets the signal; both stop after the epoch. The checkpoint is like any other."""
    out = tmp_path / "run"
    paused = Limit(tmp_path / "limit", epoch=1)
    pids = start_two(launcher, command(labels, out), tmp_path, setup=[paused.code])
    # Not before an epoch is written: until the loop has begun, a signal ends a process at once.
    launcher.wait_until(pids[0], lambda: epochs_done(out) >= 1)
    os.kill(pids[1], signal.SIGTERM)
    paused.lift()
    assert [launcher.wait(pid) for pid in pids] == [143, 143]
    assert (
        launcher.wait(launcher.start(*command(labels, out), says=tmp_path / "says", setup=[DOUBLE]))
        == 0
    )
    ours, theirs = (checkpoint.read(run / "weights.safetensors")[0] for run in (out, alone))
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-10, msg=name)


def test_parts_cover_a_batch_once() -> None:
    columns = torch.arange(12)
    parts = [columns[Process(rank=rank, world_size=4).part(12)] for rank in range(4)]
    assert torch.equal(torch.cat(parts), columns)
    with refuses("conflict", "batch_size", says=("of 13", "by 4")):
        Process(rank=0, world_size=4).part(13)
    assert Process().part(13) == slice(0, 13)
    assert Process().is_main
    assert not Process(rank=1, world_size=2).is_main


@pytest.mark.slow
def test_a_training_on_a_cpu_does_not_import_the_compiler() -> None:
    """Its import takes seconds, and every command and every worker would pay for it."""
    code = (
        "import sys, numpy as np, srjt; draw = np.random.default_rng(0); "
        "srjt.train((draw.normal(size=(60, 4)), draw.integers(0, 3, 60)), method='standard', epochs=2, "
        "device='cpu', progress=False); print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    assert ran.stdout.strip() == "False", ran.stderr
