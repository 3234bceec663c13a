"""Two processes with half a batch each do what one does with the whole."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from processes import Limit
from srjt.errors import SrjtError
from srjt.training.engine.distributed import Process
from srjt.training.record import checkpoint
from srjt.training.record.metrics_log import read_metrics


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
