"""Workers that stay: nothing passes from one task to the next, and one that dies takes only its own task with it."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srjt.errors import SrjtError
from srjt.training import workers
from srjt.training.devices import preserve_process_state
from srjt.training.workers import Ended, Task, WorkerPool

pytestmark = pytest.mark.slow  # starts processes


def process_facts() -> dict[str, Any]:
    return {
        "python": random.random(),
        "random": [float(np.random.rand()), float(torch.rand(()))],
        "threads": torch.get_num_threads(),
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "onednn": torch.backends.mkldnn.enabled,
        "environment": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "folder": os.getcwd(),
    }


def change_everything() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic = True
    torch.backends.mkldnn.set_flags(False)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.chdir("/")


# ---- tasks


def write_facts(file: str, *, device: str | None) -> None:
    Path(file).write_text(json.dumps({"process": os.getpid(), "device": device, "facts": process_facts()}))


def change(*, device: str | None) -> None:
    change_everything()


def fail(kind: str, *, device: str | None) -> None:
    change_everything()
    if kind == "with a thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
    raise SrjtError("a sentence") if kind == "expected" else RuntimeError("a bug")


def warn(*, device: str | None) -> None:
    warnings.warn("mind this", stacklevel=1)


def die(*, device: str | None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(pool: WorkerPool, function: Callable[..., None], *arguments: Any, settings: Any = None) -> Ended:
    pool.start(
        Task(name="task", function=function, arguments=arguments, folder=Path("none"), settings=settings)
    )
    assert pool.running == ["task"]
    while not (ended := pool.wait()):
        pass
    assert pool.running == []
    return ended[0]


def read(pool: WorkerPool, file: Path, settings: Any = None) -> dict[str, Any]:
    assert run(pool, write_facts, str(file), settings=settings) == Ended(name="task")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_the_state_of_a_process_is_restored() -> None:
    with preserve_process_state():
        expected = process_facts()
    with preserve_process_state():
        change_everything()
    with preserve_process_state():
        assert process_facts() == expected


def test_workers_share_a_gpu_that_occurs_twice() -> None:
    assert WorkerPool(devices=("cuda:0", "cuda:1", "cuda:0")).shares_gpus
    for devices in [("cuda:0", "cuda:1"), ("cpu", "cpu"), (None, None)]:
        assert not WorkerPool(devices=devices).shares_gpus


def test_a_worker_serves_one_task_after_another_as_if_each_were_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WorkerPool(devices=("cpu",), threads=1, networks=("tiny",)) as pool:
        first = read(pool, tmp_path / "facts.json")
        assert first["device"] == "cpu"
        assert first["facts"]["threads"] == 1
        assert run(pool, change) == Ended(name="task")
        assert read(pool, tmp_path / "facts.json") == first
        with pytest.warns(UserWarning, match="^mind this$"):  # here, not on the terminal
            assert run(pool, warn) == Ended(name="task")
        assert run(pool, fail, "expected") == Ended(name="task", error="a sentence")
        assert read(pool, tmp_path / "facts.json") == first

        bug = run(pool, fail, "unexpected")
        assert not bug.expected
        assert "RuntimeError: a bug" in bug.error
        second = read(pool, tmp_path / "facts.json")
        assert second["process"] != first["process"]
        second["facts"]["python"] = first["facts"]["python"]  # Python seeds it anew in every process
        assert second["facts"] == first["facts"]

        assert run(pool, die) == Ended(name="task", exitcode=-signal.SIGKILL)
        third = read(pool, tmp_path / "facts.json")
        assert third["process"] != second["process"]
        process = pool._slots[0].process
        assert process is not None
        process.kill()  # while it is idle
        process.join()
        fourth = read(pool, tmp_path / "facts.json")
        assert fourth["process"] != third["process"]

        other = read(pool, tmp_path / "facts.json", settings="deterministic")
        assert other["process"] != fourth["process"]
        assert read(pool, tmp_path / "facts.json", settings="deterministic") == other

        monkeypatch.setattr(workers, "END_SECONDS", 0.1)
        assert "RuntimeError: a bug" in run(pool, fail, "with a thread", settings="deterministic").error
        last = read(pool, tmp_path / "facts.json", settings="deterministic")
        assert last["process"] != other["process"]
