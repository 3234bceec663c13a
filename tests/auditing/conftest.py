"""A review server in a process of its own, and a cross-fit without training."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from processes import Launcher
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
    launcher: Launcher
    pid: int
    says: Path
    address: str = ""  # with the token
    status: int | None = None  # when it has ended

    @property
    def port(self) -> int:
        return int(re.search(r":(\d+)/", self.address)[1])

    def wait_until_it_serves(self) -> None:
        address = re.compile(r"http://[^:/]+:\d+/\?token=[\w-]+(?=\s)")
        self.status = self.launcher.wait_until(
            self.pid, lambda: address.search(self.says.read_text()) is not None
        )
        found = address.search(self.says.read_text())
        assert found, self.says.read_text()
        self.address = found[0]

    def end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        self.status = self.launcher.wait(self.pid)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def interrupt(self) -> str:
        """Press Ctrl-C, and return the output."""
        self.end(signal.SIGINT)
        return self.says.read_text()


@pytest.fixture(scope="module")
def serve(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Served]]:
    """Starts ``srjt review`` in a process of its own; those still running at the end are killed."""
    started: list[Served] = []

    def start(folder: Path, *options: object) -> Served:
        says = tmp_path_factory.mktemp("served") / "says"
        says.touch()
        pid = launcher.start("review", folder, "--no-open", *options, says=says)
        served = Served(launcher, pid, says)
        started.append(served)
        served.wait_until_it_serves()
        return served

    yield start
    for served in started:
        if served.status is None:
            served.kill()
