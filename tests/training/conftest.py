"""Small noisy data, settings that train in a blink, and processes that start at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from srjt import noise
from srjt.data import Manifest, Split, folds
from srjt.data.corruption import corrupt_sides
from srjt.data.synthetic import generate, write

SETTINGS: dict[str, Any] = {
    "network": "tiny",
    "image_size": 32,
    "crop": 28,
    "epochs": 3,
    "batch_size": 16,
    "learning_rate": 1e-3,
    "noise_rate": 0.4,
    "tune_cpu": False,
    "device": "cpu",
}


@dataclass(frozen=True)
class Data:
    manifest: Manifest  # noisy on the training and validation sides
    split: Split
    matrix: npt.NDArray[np.float64]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data() -> Data:
    clean = generate(images=130, patients=20, size=32)
    split = folds(clean, folds=5)[0]
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    noisy, _ = corrupt_sides(clean, split, matrix, seed=0)
    return Data(noisy, split, matrix)


@pytest.fixture
def settings(data: Data) -> dict[str, Any]:
    """Keyword arguments of ``srjt.train`` beside the data."""
    return {**SETTINGS, "split": data.split}


@pytest.fixture(scope="session")
def labels(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data as files: images, and a table with noisy grades, true ones and the split."""
    path = write(data.manifest, tmp_path_factory.mktemp("data") / "set")
    table = data.manifest.table[["image", "grade", "true_grade", "patient"]].copy()
    for side, rows in data.split.sides().items():
        table.loc[rows, "split"] = side
    table.to_csv(path, index=False)
    return path


class Launcher:
    """Starts ``srjt`` processes; see launcher.py."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("launcher.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, *argv: object, says: Path, setup: list[str] | None = None, env: dict[str, str] | None = None
    ) -> int:
        """The process id of ``srjt argv…``; ``says`` gets its output. setup: Python lines run in it before."""
        environment = {"SRJT_CACHE": str(self.cache), "COLUMNS": "80", **(env or {})}
        pid: int = self.order(
            argv=[str(a) for a in argv],
            cwd=str(says.parent),
            says=str(says),
            env=environment,
            setup=setup or [],
        )
        return pid

    def wait(self, pid: int) -> int:
        code: int = self.order(wait=pid)
        return code

    def wait_until(self, pid: int, happened: Callable[[], bool], *, seconds: float = 60.0) -> int | None:
        """Until something has happened (None), or the process has ended before it (its exit code)."""
        end = time.monotonic() + seconds
        while not happened():
            code: int | None = self.order(poll=pid)
            if code is not None:
                return code
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.002)
        return None


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp("cache"))
    yield launcher
    assert launcher.process.stdin is not None
    launcher.process.stdin.close()
    launcher.process.wait(timeout=20)
    assert launcher.process.stdout is not None
    launcher.process.stdout.close()
