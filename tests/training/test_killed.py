"""Real processes, really killed: a resumed run ends as if nothing had happened."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from processes import Limit, epochs_done
from srjt.training.checkpoint import read_metrics

pytestmark = pytest.mark.slow

EPOCHS = 10
TIMED = ["seconds", "images_per_second", "peak_memory_mb"]


def command(labels: Path, out: Path, *more: object) -> list[object]:
    return [
        "train", labels, "--out", out, "--official-split", "--device", "cpu", "--method", "co-teaching+ours",
        "--noise-rate", 0.4, "--network", "tiny", "--image-size", 32, "--crop", 28, "--epochs", EPOCHS,
        "--batch-size", 16, "--learning-rate", 1e-3, "--set", "checkpoint_seconds=0", *more,
    ]  # fmt: skip


def untimed(out: Path) -> pd.DataFrame:
    metrics = read_metrics(out / "metrics.csv")
    return metrics[~metrics["metric"].isin(TIMED)].reset_index(drop=True)


def assert_same(out: Path, reference: Path) -> None:
    for name in ("weights.safetensors", "history.csv", "summary.json"):
        assert (out / name).read_bytes() == (reference / name).read_bytes()
    pd.testing.assert_frame_equal(untimed(out), untimed(reference), check_exact=True)
    lines = [(out / "metrics.csv").read_text().splitlines() for out in (out, reference)]
    assert [line.rsplit(",", 1)[0] for line in lines[0]] == [
        line.rsplit(",", 1)[0] for line in lines[1]
    ]
    assert list(out.rglob("*.tmp")) == []
    assert len(list((out / "checkpoints").iterdir())) == 2


@pytest.fixture(scope="module")
def uninterrupted(launcher: Any, labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    code = launcher.run(*command(labels, folder / "run"), says=folder / "says")
    assert code == 0, (folder / "says").read_text()
    return folder / "run"


def test_killed_while_the_best_epoch_is_sought(launcher: Any, labels: Path, tmp_path: Path) -> None:
    """The best networks survive as well, also when the run is killed between training and its
    results."""
    more = ("--keep", "best")
    reference, out = tmp_path / "reference", tmp_path / "run"
    assert launcher.run(*command(labels, reference, *more), says=tmp_path / "says") == 0
    assert json.loads((reference / "summary.json").read_text())["kept_epoch"] < EPOCHS
    for target in (3, 7):
        paused = Limit(tmp_path / "limit", epoch=target)
        pid = launcher.start(
            *command(labels, out, *more), says=tmp_path / "says", setup=[paused.code]
        )
        code = launcher.wait_until(pid, lambda target=target: epochs_done(out) >= target)
        assert code is None, (tmp_path / "says").read_text()
        os.kill(pid, signal.SIGKILL)
        launcher.wait(pid)
    assert launcher.run(*command(labels, out, *more), says=tmp_path / "says") == 0
    assert_same(out, reference)
    for name in ("summary.json", "weights.safetensors"):
        (out / name).unlink()
    assert launcher.run(*command(labels, out, *more), says=tmp_path / "says") == 0
    assert_same(out, reference)


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_anytime(
    launcher: Any, labels: Path, uninterrupted: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    out = tmp_path / "run"
    unfinished = Limit(tmp_path / "limit", epoch=EPOCHS - 1)
    for target in sorted(chance.sample(range(EPOCHS - 2), 4)):
        pid = launcher.start(*command(labels, out), says=tmp_path / "says", setup=[unfinished.code])
        code = launcher.wait_until(pid, lambda target=target: epochs_done(out) >= target)
        assert code is None, (tmp_path / "says").read_text()
        time.sleep(chance.random() * 0.08)
        os.kill(pid, signal.SIGKILL)
        assert launcher.wait(pid) == -signal.SIGKILL
    code = launcher.run(*command(labels, out), says=tmp_path / "says")
    assert code == 0, (tmp_path / "says").read_text()
    assert_same(out, uninterrupted)


def test_killed_while_it_starts(
    launcher: Any, labels: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    chance = random.Random(7)
    out = tmp_path / "run"
    where = {"says": tmp_path / "says", "env": {"SRJT_CACHE": str(tmp_path / "c")}}
    for _ in range(5):  # decoding, making the folder, the first steps
        pid = launcher.start(*command(labels, out), **where)
        time.sleep(chance.random() * 0.4)
        os.kill(pid, signal.SIGKILL)
        launcher.wait(pid)
    pid = launcher.start(*command(labels, out), **where)
    assert launcher.wait(pid) == 0, (tmp_path / "says").read_text()
    assert_same(out, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(
    launcher: Any, labels: Path, uninterrupted: Path, tmp_path: Path, number: int
) -> None:
    out = tmp_path / "run"
    paused = Limit(tmp_path / "limit", epoch=3)
    pid = launcher.start(
        *command(labels, out, "--quiet"), says=tmp_path / "says", setup=[paused.code]
    )
    assert launcher.wait_until(pid, lambda: epochs_done(out) >= 3) is None
    os.kill(pid, number)
    assert launcher.wait(pid) == 128 + number
    said = (tmp_path / "says").read_text()
    assert said.count("\n") == 1
    assert said.startswith("srjt: Stopped a")
    assert said.endswith("Run the same command again to resume.\n")
    assert launcher.run(*command(labels, out), says=tmp_path / "says") == 0
    assert "Resuming at epoch" in (tmp_path / "says").read_text()
    assert_same(out, uninterrupted)


def test_asked_twice_to_stop_it_stops_at_once(launcher: Any, labels: Path, tmp_path: Path) -> None:
    out, saving = tmp_path / "run", tmp_path / "saving"
    slow = (
        "import signal, srjt.training.checkpoint as c, time\n"
        "from pathlib import Path\n"
        "usual = signal.getsignal(signal.SIGTERM)\n"
        "def write(*args):\n"
        "    while True:\n"
        f"        if signal.getsignal(signal.SIGTERM) is usual: Path({str(saving)!r}).touch()\n"
        "        time.sleep(0.01)\n"
        "c.write = write\n"
    )
    pid = launcher.start(*command(labels, out), says=tmp_path / "says", setup=[slow])
    assert launcher.wait_until(pid, lambda: epochs_done(out) >= 1) is None
    os.kill(pid, signal.SIGTERM)
    assert (
        launcher.wait_until(pid, saving.exists) is None
    )  # it has noticed, and would take for ever
    os.kill(pid, signal.SIGTERM)
    assert launcher.wait(pid) == -signal.SIGTERM


def test_a_full_disk_and_resumed(
    launcher: Any, labels: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    """A limit on the size of files, set after a few checkpoints, refuses the next one as a full
    disk would."""
    out = tmp_path / "run"
    full = (
        "import resource, signal, srjt.training.checkpoint as c\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "write, calls = c.write, []\n"
        "def limited(*args):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 3: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "    write(*args)\n"
        "c.write = limited\n"
    )
    pid = launcher.start(*command(labels, out, "--quiet"), says=tmp_path / "says", setup=[full])
    assert launcher.wait(pid) == 2
    said = (tmp_path / "says").read_text()
    assert said.startswith("srjt: A checkpoint could not be written to")
    assert "File too large" in said
    assert said.count("\n") == 1
    assert list(out.rglob("*.tmp")) == []
    assert len(list((out / "checkpoints").glob("step-*"))) == 2
    assert launcher.run(*command(labels, out), says=tmp_path / "says") == 0
    assert "Resuming at epoch 4" in (tmp_path / "says").read_text()
    assert_same(out, uninterrupted)
