"""A review server in a process of its own, and a cross-fit without training."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from srjt.cli import main
from srjt.data import Manifest
from srjt.training.crossfit import CrossFit


def cross_fit_of(manifest: Manifest, probabilities: npt.NDArray[np.float64]) -> CrossFit:
    """One network with these held-out probabilities (N, C), in two folds."""
    return CrossFit(
        manifest=manifest, probabilities=probabilities, by_network=probabilities[None],
        grades=probabilities.argmax(axis=1)[None], fold=np.arange(len(manifest)) % 2,
        selected=np.full(len(manifest), np.nan),
    )  # fmt: skip


@pytest.fixture
def srjt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Any:
    """Runs a command in ``tmp_path``: arguments → exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["srjt", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run


@dataclass
class Served:
    process: subprocess.Popen[str]
    address: str  # with the token
    port: int

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def interrupt(self) -> str:
        """Press Ctrl-C, and return the output."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=30)
        return said


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """Starts ``srjt review`` in a process of its own; those still running at the end are killed."""
    running: list[subprocess.Popen[str]] = []

    def start(folder: Path, *options: object) -> Served:
        command = [
            sys.executable,
            "-m",
            "srjt",
            "review",
            str(folder),
            "--no-open",
            *map(str, options),
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        running.append(process)
        announced = process.stdout.readline()
        found = re.search(r"http://[^:/]+:(\d+)/\?token=[\w-]+", announced)
        assert found, announced + process.stdout.read()
        return Served(process, found[0], int(found[1]))

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
