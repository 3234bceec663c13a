"""A folder is read only as it was written: one digit more or less in any file that changes an
answer is an error."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from refusals import refuses
from srjt.auditing.folder import read_audit
from srjt.data.sources.readers_folder import read_readers_folder
from srjt.training.folder import lost_files


@pytest.fixture(scope="module")
def data() -> srjt.data.Manifest:
    x = np.random.default_rng(0).standard_normal((80, 4))
    patients = [f"p{row // 2}" for row in range(80)]
    return srjt.data.from_arrays(x, np.digitize(x[:, 0], [-0.5, 0.5]), patients=patients)


@pytest.fixture(scope="module")
def finished(data: srjt.data.Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checksums") / "run"
    srjt.train(
        data,
        split=srjt.data.folds(data)[0],
        out=folder,
        epochs=2,
        method="standard",
        network="linear",
    )
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def edit(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return apply


def flip_last_digit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    place = max(place for place, byte in enumerate(content) if chr(byte) in "0123456789")
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    file.write_bytes(bytes(content))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "image size": edit("run.json", lambda facts: facts["config"].update(image_size=257)),
    "grades swapped": edit("run.json", lambda facts: facts.update(grades=facts["grades"][::-1])),
    "a score": edit("summary.json", lambda facts: facts["last_epochs"][0].update(value=0.5)),
    "metrics": lambda folder: flip_last_digit(folder / "metrics.csv"),
    "hashes": lambda folder: flip_last_digit(folder / "image_hashes.npy"),
    "traces": lambda folder: flip_last_digit(folder / "training_traces.npz"),
    "history": lambda folder: flip_last_digit(folder / "history.csv"),
    "held out": lambda folder: flip_last_digit(folder / "held_out.csv"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_changed_file_of_a_run_is_noticed(run: Path, name: str) -> None:
    srjt.load_run(run)
    DAMAGE[name](run)
    with refuses("damaged_file"):
        srjt.load_run(run)


def test_a_grade_that_occurs_twice_is_one_sentence(run: Path) -> None:
    edit("run.json", lambda facts: facts.update(grades=["0", "0", "2"]))(run)
    with refuses("damaged_file", says=("run.json", "twice")):
        srjt.load_run(run)


def test_a_report_shows_no_changed_numbers(run: Path) -> None:
    DAMAGE["a score"](run)
    with refuses("damaged_file"):
        srjt.write_report(run)


def test_other_names_of_grades_are_written_with_their_checksum(
    run: Path, data: srjt.data.Manifest
) -> None:
    how: Any = {
        "split": srjt.data.folds(data)[0],
        "epochs": 2,
        "method": "standard",
        "network": "linear",
    }
    srjt.train(data, out=run, grade_names={"0": "none", "1": "mild", "2": "severe"}, **how)
    assert srjt.load_run(run).grades.names["2"] == "severe"


def test_files_that_are_gone_are_named(run: Path) -> None:
    assert lost_files(run) == []
    for name in ("weights.safetensors", "run.json", "held_out.csv"):
        (run / name).unlink()
    assert lost_files(run) == ["held_out.csv", "run.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_changed_file_of_an_audit_is_noticed(data: srjt.data.Manifest, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    srjt.audit(
        data, out=folder, folds=2, epochs=2, method="standard", network="linear", noise_rate=0.2
    )
    read_audit(folder)
    for name in ("audit.csv", "audit.json", "summary.json", "neighbours.npz"):
        before = (folder / name).read_bytes()
        flip_last_digit(folder / name)
        with refuses("damaged_file", says=name):
            read_audit(folder)
        (folder / name).write_bytes(before)
    read_audit(folder)


@pytest.mark.slow
def test_a_changed_file_of_readers_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from srjt.cli import main

    rows = [
        (f"{image}.png", reader, (image + len(reader)) % 3)
        for image in range(12)
        for reader in ("anna", "bo")
    ]
    pd.DataFrame(rows, columns=["image", "reader", "grade"]).to_csv(
        tmp_path / "readings.csv", index=False
    )
    folder = tmp_path / "out"
    monkeypatch.setattr(
        sys, "argv", ["srjt", "readers", str(tmp_path / "readings.csv"), "--out", str(folder)]
    )
    with pytest.raises(SystemExit, match="0"):
        main()
    read_readers_folder(folder)
    for name in ("consensus.csv", "readers.json", "readings.csv"):
        before = (folder / name).read_bytes()
        flip_last_digit(folder / name)
        with refuses("damaged_file", says=name):
            read_readers_folder(folder)
        (folder / name).write_bytes(before)
