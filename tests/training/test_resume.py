"""Stopping at a given step, damaged checkpoints, other configurations, a full disk, lost files."""

import errno
import json
import os
import shutil
import signal
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import srjt
from refusals import refuses
from srjt.errors import Interrupted
from srjt.files import lock_folder
from srjt.networks import tiny
from srjt.training import checkpoint
from srjt.training.checkpoint import read_metrics
from srjt.training.reporters import BarReporter
from srjt.training.trained import Trained

TIMED = ["seconds", "images_per_second", "peak_memory_mb"]


class StopAt(BarReporter):
    """Sends this process a signal at a given step, as if it had come from outside."""

    def __init__(self, epoch: int, step: int, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.when = (epoch, step)
        self.number = number

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        if (epoch, step) == self.when:
            os.kill(os.getpid(), self.number)


def with_dropout() -> nn.Module:
    return nn.Sequential(tiny(), nn.Dropout(0.5))


def jitter(images: Tensor) -> Tensor:
    """A custom transform that draws from torch's global generator."""
    return images[..., :28, :28].float() / 255 + 0.1 * torch.randn(len(images), 1, 1, 1)


def assert_same(one: Trained, other: Trained) -> None:
    ours, theirs = one.networks.state_dict(), other.networks.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    pd.testing.assert_frame_equal(one.history, other.history, check_exact=True)
    tables = [
        run.metrics[~run.metrics["metric"].isin(TIMED)].reset_index(drop=True)
        for run in (one, other)
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(
            {"method": "mixup", "optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"method": "co-teaching+ours", "network": with_dropout}, marks=pytest.mark.slow
        ),
        {"method": "elr"},
        pytest.param({"method": "eae"}, marks=pytest.mark.slow),
        pytest.param(
            {"method": "standard", "network": tiny, "transform": jitter}, marks=pytest.mark.slow
        ),
        pytest.param({"method": "cdr", "network": "tiny"}, marks=pytest.mark.slow),
    ],
    ids=["mixup and adamw", "dropout", "elr", "eae", "own transform", "cdr"],
)
def test_stopped_within_an_epoch(train: Any, tmp_path: Path, chosen: dict[str, Any]) -> None:
    """Random states in the middle of an epoch are part of what is saved. Stopped three times."""
    whole = train(**chosen)
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for epoch, step, number in (
        (1, 2, signal.SIGTERM),
        (2, 1, signal.SIGINT),
        (3, 4, signal.SIGTERM),
    ):
        with pytest.raises(
            Interrupted, match=f"Stopped at epoch {epoch}, step {step} of 5"
        ) as stopped:
            train(out=tmp_path / "run", reporter=StopAt(epoch, step, number), **chosen)
        assert stopped.value.status == 128 + number
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    reporter = BarReporter()
    assert_same(train(out=tmp_path / "run", reporter=reporter, **chosen), whole)
    assert reporter.notes[1:] == ["Resuming at epoch 3, step 4 of 5."]


@pytest.mark.slow
def test_stopped_at_the_last_step_of_an_epoch(
    train: Any, uninterrupted: Trained, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match="Stopped after epoch 1 of 3"):
        train(out=tmp_path / "run", reporter=StopAt(1, 5))
    assert_same(train(out=tmp_path / "run"), uninterrupted)


@pytest.mark.slow
def test_a_signal_at_the_very_end_changes_nothing(train: Any, tmp_path: Path) -> None:
    run = train(out=tmp_path / "run", reporter=StopAt(3, 5))
    assert run.metrics["epoch"].max() == 3


@pytest.fixture(scope="module")
def uninterrupted(train: Any) -> Trained:
    return train()


@pytest.fixture(scope="module")
def stopped_once(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Interrupted):
        train(out=out, reporter=StopAt(2, 2), checkpoint_seconds=0)
    assert len(list((out / "checkpoints").iterdir())) == 2
    return out


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A run with two checkpoints: after epoch 1, and after two steps of epoch 2."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip_a_bit, empty])
def test_damage_is_passed_over(
    train: Any, uninterrupted: Trained, stopped: Path, damage: Any
) -> None:
    _, newest = sorted((stopped / "checkpoints").iterdir())
    damage(newest)
    reporter = BarReporter()
    with pytest.warns(
        UserWarning, match=f"{newest.name}.* Falling back to the previous checkpoint"
    ):
        run = train(out=stopped, reporter=reporter, checkpoint_seconds=0)
    assert reporter.notes[1:] == ["Resuming at epoch 2, step 0 of 5."]
    assert_same(run, uninterrupted)
    kept = sorted(path.name for path in (stopped / "checkpoints").iterdir())
    assert len(kept) == 2
    assert newest.name not in kept
    for path in (stopped / "checkpoints").iterdir():
        checkpoint.read(path)


@pytest.mark.slow
def test_two_damaged_checkpoints_restart(train: Any, uninterrupted: Trained, stopped: Path) -> None:
    for path in (stopped / "checkpoints").iterdir():
        flip_a_bit(path)
    with pytest.warns(UserWarning, match="damaged") as said, pytest.raises(Interrupted):
        train(out=stopped, reporter=StopAt(1, 3), checkpoint_seconds=0)
    previous, none = (str(w.message).rpartition(". ")[2] for w in said)
    assert previous == "Falling back to the previous checkpoint."
    assert none == "Starting from the beginning."
    (left,) = (stopped / "checkpoints").iterdir()
    meta = checkpoint.read(left)[1]
    assert (meta["epoch"], meta["step"]) == (1, 3)
    assert_same(train(out=stopped, checkpoint_seconds=0), uninterrupted)


def test_another_configuration_is_refused_and_named(data: Any, train: Any, stopped: Path) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with refuses(
        "settings_changed", "out", says=("epochs was 3 and is now 4", "seed was 0 and is now 7")
    ):
        train(out=stopped, epochs=4, seed=7)
    matrix = (np.eye(4) * 0.9 + 0.025).tolist()
    with refuses("settings_changed", "out", says=("transition is not the same",)):
        train(out=stopped, method="f-correction", transition=matrix)
    labels = data.manifest.labels
    labels[data.split.train[0]] = (labels[data.split.train[0]] + 1) % 4
    with refuses("settings_changed", "out", says="verified grades"):
        train(data.manifest.with_noisy_labels(labels), out=stopped)
    verified = data.manifest.table.assign(verified_grade=-1)
    verified.loc[data.split.test[0], "verified_grade"] = 1
    patients = data.manifest.table.assign(
        patient=[f"other {row // 2}" for row in range(len(data.manifest))]
    )
    for table in (verified, patients):
        with refuses("settings_changed", "out", says="patients"):
            train(replace(data.manifest, table=table), out=stopped)
    with refuses("settings_changed", "out", says="your own"):
        train(out=stopped, network=tiny)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_finished_run_is_opened_or_mended(
    train: Any, uninterrupted: Trained, ended: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(ended, tmp_path / "run")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.rglob("*") if p.is_file()}
    reporter = StopAt(1, 1)  # would be seen if it trained
    again = train(out=out, reporter=reporter)
    assert reporter.notes == [f"{out} is already finished: nothing to do."]
    assert_same(again, uninterrupted)
    assert {
        p: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.rglob("*") if p.is_file()
    } == before
    (out / "weights.safetensors").unlink()
    with refuses("missing_file", says="weights.safetensors"):
        srjt.load_run(out)
    train(out=out)
    assert (out / "weights.safetensors").read_bytes() == (
        ended / "weights.safetensors"
    ).read_bytes()
    cut_in_half(out / "summary.json")
    train(out=out)
    assert (out / "summary.json").read_bytes() == (ended / "summary.json").read_bytes()


def test_a_folder_with_other_files_is_refused_and_not_changed(train: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for noise_rate in (0.4, "auto"):  # not after the noise has been estimated
        with refuses("folder_in_use", "out"):
            train(out=tmp_path, noise_rate=noise_rate)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with refuses("unwritable_file"):
        train(out=tmp_path / "thesis.tex")


@pytest.mark.slow
def test_two_processes_do_not_work_on_one_run(
    train: Any, uninterrupted: Trained, stopped: Path
) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with lock_folder(stopped), refuses("folder_busy", "out"):
        train(out=stopped)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before
    (stopped / ".run.json.123.tmp").write_text('{"format": 1')  # the draft of a killed process
    run = train(out=stopped, checkpoint_seconds=30)
    assert_same(run, uninterrupted)  # how it is computed may change
    assert list(stopped.rglob("*.tmp")) == []


@pytest.mark.slow
def test_no_room_for_a_file(
    train: Any, uninterrupted: Trained, tmp_path: Path, monkeypatch: Any
) -> None:
    """One sentence whichever file it is; afterwards the same call resumes and gives the same
    result."""
    real = os.replace

    def full(name: str, source: Any, target: Any) -> None:
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    for name in ("run.json", "metrics.csv", "weights.safetensors", "history.csv", "summary.json"):
        monkeypatch.setattr(os, "replace", partial(full, name))
        with refuses("unwritable_file", says="No space"):
            train(out=tmp_path / "run")
    monkeypatch.undo()
    run = train(out=tmp_path / "run")
    assert_same(run, uninterrupted)
    assert list((tmp_path / "run").rglob("*.tmp")) == []


# Files that were lost or changed.
def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize("lose", [Path.unlink, cut_in_half], ids=["deleted", "cut"])
def test_lost_metrics_are_restored(
    train: Any, uninterrupted: Trained, ended: Path, tmp_path: Path, lose: Any
) -> None:
    with pytest.raises(Interrupted):
        train(out=tmp_path / "run", reporter=StopAt(3, 2))
    lose(tmp_path / "run" / "metrics.csv")
    run = train(out=tmp_path / "run")
    assert_same(run, uninterrupted)
    assert (tmp_path / "run" / "summary.json").read_bytes() == (ended / "summary.json").read_bytes()
    assert sorted(set(read_metrics(tmp_path / "run" / "metrics.csv")["epoch"])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("tensors", "meta"),
    [
        ({}, {"step": "x"}),
        ({"random.cpu": torch.ones(3, dtype=torch.uint8)}, {}),
        ({"metrics": torch.ones(3, dtype=torch.float32)}, {}),
        ({"network.0.head.bias": torch.ones(3)}, {}),
    ],
)
def test_a_checkpoint_of_another_program(
    train: Any, stopped: Path, tensors: Any, meta: Any
) -> None:
    """Its checksum is right."""
    _, newest = sorted((stopped / "checkpoints").iterdir())
    saved = checkpoint.read(newest)
    checkpoint.write(newest, {**saved[0], **tensors}, {**saved[1], **meta})
    with refuses("other_version", "out"):
        train(out=stopped)


@pytest.fixture(scope="module")
def ended(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ended") / "run"
    train(out=out)
    return out


@pytest.mark.parametrize(
    ("name", "lose", "code"),
    [
        ("history.csv", Path.unlink, "damaged_file"),
        ("history.csv", empty, "damaged_file"),
        ("metrics.csv", Path.unlink, "missing_file"),
        ("metrics.csv", cut_short, "damaged_file"),
    ],
)
def test_a_lost_file(
    train: Any, ended: Path, tmp_path: Path, name: str, lose: Any, code: str
) -> None:
    out = shutil.copytree(ended, tmp_path / "run")
    lose(out / name)
    with refuses(code, says=(name, "summary.json")):
        train(out=out)
    (out / "summary.json").unlink()
    train(out=out)
    assert (out / name).read_bytes() == (ended / name).read_bytes()


def test_the_history_is_read_back_exactly(train: Any, ended: Path) -> None:
    """Also ids that pandas would take for missing values."""
    run = train(out=ended)
    losses = [0.1 + 0.2, 1e-310, float("nan")]
    written = pd.DataFrame(
        {"id": ["NA", "null", "07"], "grade": 0, "loss_1": losses, "seen": [1, 2, 3]}
    )
    (ended / "history.csv").write_bytes(written.to_csv(index=False).encode())
    summary = json.loads((ended / "summary.json").read_text())
    summary["files"] = {}  # else: not what the run has written
    (ended / "summary.json").write_text(json.dumps(summary))
    (ended / "checksums.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train(out=ended).history
    assert again["id"].tolist() == ["NA", "null", "07"]
    pd.testing.assert_frame_equal(
        again[["loss_1", "seen"]], written[["loss_1", "seen"]], check_exact=True
    )
    assert run.history["loss_1"].dtype == again["loss_1"].dtype
