"""Folds in worker processes: the same bits as one after the other, and the same answers to errors and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import Limit
from srjt.data import Manifest
from srjt.data.synthetic import generate
from srjt.errors import Interrupted, SrjtError
from srjt.methods import Sord, register, registry
from srjt.training import cost
from srjt.training.config import TrainConfig
from srjt.training.cost import available_memory, step_memory
from srjt.training.crossfit import cross_fit
from srjt.training.engine.cpu_tuning import use_threads
from srjt.training.parallel_folds import Workers, choose_workers
from srjt.training.record.reporters import SilentReporter

CONFIG = TrainConfig(
    method="co-teaching+ours",
    noise_rate=0.2,
    network="tiny",
    image_size=40,
    crop=32,
    epochs=3,
    batch_size=16,
    checkpoint_seconds=0.0,
)


class Counting(SilentReporter):
    def __init__(self) -> None:
        super().__init__()
        self.finished: list[int] = []

    def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
        self.finished.append(epoch)


@pytest.fixture(scope="module")
def images() -> Manifest:
    return generate(images=60, patients=12, size=32)


@pytest.mark.slow
def test_folds_at_the_same_time_have_the_bits_of_one_after_the_other(
    images: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(tmp_path / "limit", epoch=1)
    (tmp_path / "pause.py").write_text(limit.code)  # for the workers: this process does not import it
    monkeypatch.chdir(tmp_path)

    class Stop(Counting):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            if not self.finished:  # a second signal would end this process
                os.kill(os.getpid(), signal.SIGTERM)
            self.finished.append(epoch)

    with use_threads(1):
        expected = cross_fit(
            images, config=CONFIG, folds=3, out=tmp_path / "serial", device="cpu", neighbours=2
        )
        paused = CONFIG.replace(imports=("pause",))
        options: dict[str, Any] = {"config": paused, "folds": 3, "device": "cpu", "neighbours": 2, "jobs": 2}
        with pytest.raises(Interrupted, match="the state of every fold is saved"):
            cross_fit(images, out=tmp_path / "parallel", reporter=Stop(), **options)
        limit.lift()
        watching = Counting()
        found = cross_fit(images, out=tmp_path / "parallel", reporter=watching, **options)
        again = cross_fit(images, out=tmp_path / "parallel", **options)
    assert watching.finished == sorted(watching.finished)
    assert watching.finished[-1] == 9
    assert watching.epochs == 9  # of all folds together
    trained = int((found.fold != 2).sum())
    first = f"Fold 3 of 3: {trained} training images, 2 × tiny"
    assert any(note.startswith(first) for note in watching.notes), watching.notes
    assert not any("already finished" in note for note in watching.notes)
    for other in (found, again):
        np.testing.assert_array_equal(other.by_network, expected.by_network)
        np.testing.assert_array_equal(other.selected, expected.selected)
        np.testing.assert_array_equal(other.neighbours, expected.neighbours)
    assert not list((tmp_path / "parallel").glob("fold*/checkpoints"))


@pytest.mark.slow
def test_an_error_of_a_fold_is_the_error_of_the_cross_fit(images: Manifest, tmp_path: Path) -> None:
    impossible = CONFIG.replace(learning_rate=1e30, tune_cpu=False)
    with pytest.raises(SrjtError, match=r"no longer finite|was not finite"):
        cross_fit(images, config=impossible, folds=3, out=tmp_path, device="cpu", jobs=2)


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import srjt\n"
        "data = srjt.data.synthetic.generate(images=240, patients=24, size=32)\n"  # more than a pipe holds
        "srjt.audit(data, folds=2, jobs=2, out='audit', device='cpu', method='sord', network='tiny', image_size=32,"
        " crop=28, epochs=1, tune_cpu=False)\n"
    )
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "worker process failed while it started" in last
    assert 'put the calls of srjt.audit and srjt.study under if __name__ == "__main__":' in last
    assert "which calls srjt.audit again" in ended.stderr  # the error of the worker


def test_how_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(jobs: Any, *, device: str | None = None, **changes: Any) -> Workers | None:
        given: dict[str, Any] = {"folds": 5, "samples": 1000, "own_code": False, "writes": True}
        settings = {"method": "sord", "epochs": 30, "network": "resnet18", **changes.pop("config", {})}
        config = TrainConfig(**settings)
        return choose_workers(jobs, device=device, config=config, reporter=reporter, **{**given, **changes})

    reporter = SilentReporter()
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    register("registered-here", scores="", updates="", paper="")(Sord)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("srjt.training.parallel_folds.cores", lambda: 4)
    monkeypatch.setattr("srjt.training.parallel_folds.available_memory", lambda: 64 * 2**30)
    monkeypatch.setattr("srjt.training.parallel_folds.step_memory", lambda config, *, batch: 2 * 2**30)
    with use_threads(4):
        assert choose("auto") == Workers(devices=("cpu",) * 4, threads=4)
        assert choose(2) == Workers(devices=("cpu", "cpu"), threads=4)
        assert choose(9) == Workers(devices=("cpu",) * 5, threads=4)
        assert choose(1) is None
        assert choose("auto", config={"network": "tiny", "image_size": 64, "crop": 56}) is None  # too short
        assert (
            choose("auto", samples=4000, config={"network": "tiny", "image_size": 64, "crop": 56}) is not None
        )
        assert choose("auto", samples=10**6, config={"network": "mlp"}) is None
        assert choose("auto", samples=2) is None
        here = {"method": "registered-here"}
        assert choose(2, config={**here, "imports": ("my_methods",)}) is not None
        assert reporter.notes == []
        for reason, alone in (
            ("cannot import a network or a transform", {"own_code": True}),
            ("they have no folder", {"writes": False}),
            (
                "do not know the method 'registered-here', which is registered in this session",
                {"config": here},
            ),
        ):
            assert choose("auto", **alone) is None
            assert reason in reporter.notes[-1]
            with pytest.raises(SrjtError, match=rf"{reason}.*: use `jobs=1`\."):
                choose(2, **alone)
        with pytest.raises(SrjtError, match="jobs must be at least 1, or auto; got 0"):
            choose(0)
        monkeypatch.setattr("srjt.training.parallel_folds.available_memory", lambda: 6 * 2**30)
        assert choose("auto") == Workers(devices=("cpu", "cpu"), threads=4)
        monkeypatch.setattr("srjt.training.parallel_folds.available_memory", lambda: 2**30)
        assert choose("auto") is None
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose("auto") == Workers(devices=("cuda:0", "cuda:1"))
    assert choose("auto", device="cuda:1") is None
    assert choose(2, device="cuda:1") == Workers(devices=("cuda:1", "cuda:1"))


def test_the_last_folds_share_all_threads() -> None:
    pair = Workers(devices=("cpu", "cpu"), threads=2)
    assert [pair.threads_of(k, folds=5) for k in range(5)] == [1, 1, 1, 1, 2]
    assert [pair.threads_of(k, folds=4) for k in range(4)] == [1, 1, 1, 1]
    eight = Workers(devices=("cpu",) * 5, threads=8)
    assert [eight.threads_of(k, folds=5) for k in range(5)] == [1, 1, 1, 1, 1]
    assert Workers(devices=("cuda:0", "cuda:1")).threads_of(4, folds=5) is None


def test_the_memory_of_a_step_grows_with_the_batch_and_the_networks() -> None:
    one, two = (step_memory(CONFIG.replace(method="standard", crop=32), batch=n) for n in (16, 32))
    both = step_memory(CONFIG.replace(crop=32), batch=16)
    assert both == 2 * one
    activations = (
        two - one
    )  # of 16 images: those of the first convolution alone are 16 × 32 × 32 × 4 bytes each
    assert 16 * 16 * 32 * 32 * 4 < activations < 16 * 100 * 16 * 32 * 32 * 4


@pytest.mark.parametrize("version", [1, 2])
def test_memory_that_holds_cached_files_is_available(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = [(tmp_path / folder.name, *names) for folder, *names in cost.CONTAINERS]
    monkeypatch.setattr(cost, "CONTAINERS", containers)
    monkeypatch.setattr(cost, "MEMORY", tmp_path / "meminfo")
    assert available_memory() is None
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert available_memory() == 8000 * 1024
    if version == 2:
        folder, limit, used, cached = tmp_path / "cgroup", "memory.max", "memory.current", "inactive_file"
    else:
        folder, cached = tmp_path / "memory", "total_inactive_file"
        limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
    folder.mkdir()
    (folder / used).write_text("700000\n")
    (folder / "memory.stat").write_text(f"anon 200000\n{cached} 450000\nactive_file 50000\n")
    (folder / limit).write_text("1000000\n")
    assert available_memory() == 1_000_000 - 700_000 + 450_000
    (folder / limit).write_text("max\n")
    assert available_memory() == 8000 * 1024
