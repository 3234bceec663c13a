"""A made-up audit folder with the shape of a real one, and a server of its own process."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from srjt.data import synthetic

GRADES = ("Mayo 0", "Mayo 1", "Mayo 2", "Mayo 3")


def make_audit(
    folder: Path,
    *,
    images: int = 56,
    size: int = 32,
    grades: Sequence[str] = GRADES,
    noise: float = 0.3,
    table: bool = True,
    seed: int = 0,
) -> Path:
    """Embedded images with some labels moved by one grade; the scores know about it, but not perfectly.

    ``table``: labels.csv beside the folder is what was audited; else the images were in memory.
    """
    rng = np.random.default_rng(seed)
    data = synthetic.generate(images=images, patients=max(1, images // 5), size=size, grades=len(grades))
    truth, classes = data.labels, len(grades)
    wrong = rng.random(images) < noise
    step = np.where(truth == 0, 1, np.where(truth == classes - 1, -1, rng.choice([-1, 1], images)))
    label = np.where(wrong, truth + step, truth)
    readers = rng.choice(["A", "B"], images)

    distance = np.abs(np.arange(classes) - truth[:, None])
    p = np.exp(-2.2 * distance + 0.7 * rng.normal(size=(images, classes)))
    p[np.arange(images), label] *= 1.5
    p /= p.sum(axis=1, keepdims=True)
    quality = p[np.arange(images), label]
    order = sorted(range(images), key=lambda row: (quality[row], data.ids[row]))
    line_of = {row: line for line, row in enumerate(order)}

    folder.mkdir(parents=True)
    root = folder.parent / f"{folder.name}-data" if table else folder
    for name, pixels in zip(data.ids, data.arrays, strict=True):  # type: ignore[arg-type]
        path = root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    labels = root / "labels.csv"
    if table:
        columns = {"image": [f"images/{name}" for name in data.ids], "grade": [grades[g] for g in label],
                   "patient": data.patients, "reader": readers, "remark": "as, given"}  # fmt: skip
        pd.DataFrame(columns).to_csv(labels, index=False)

    def name(codes: np.ndarray) -> list[str]:
        return [grades[code] for code in codes]

    frame = pd.DataFrame(
        {
            "id": [f"images/{i}" for i in data.ids],
            "image": [str(root / "images" / i) if table else f"images/{i}" for i in data.ids],
            "grade": name(label),
            "suggested": name(p.argmax(axis=1)),
            "quality": quality,
            "distance": np.abs(p.argmax(axis=1) - label),
            **{f"p_{k}": p[:, k] for k in range(classes)},
            "network_1": name(p.argmax(axis=1)),
            "network_2": name(np.where(rng.random(images) < 0.8, p.argmax(axis=1), truth)),
            "fold": rng.integers(5, size=images),
            "selected": np.round(np.clip(quality + 0.1 * rng.normal(size=images), 0, 1), 2),
            "patient": data.patients,
            "reader": readers,
        }
    ).iloc[order]
    frame.insert(0, "rank", range(1, images + 1))
    frame.to_csv(folder / "audit.csv", index=False)

    neighbours = np.full((images, classes, 4), -1, np.int32)
    for row, line in line_of.items():
        for grade in range(classes):
            others = [line_of[o] for o in range(images) if o != row and label[o] == grade]
            near = sorted(
                others, key=lambda o: abs(data.table["severity"][order[o]] - data.table["severity"][row])
            )
            neighbours[line, grade, : len(near[:4])] = near[:4]
    np.savez(folder / "neighbours.npz", rows=neighbours)
    facts = {
        "format": 1, "version": "0", "created": "2025-01-01T00:00:00Z", "source": str(labels),
        "grades": list(grades), "samples": images, "method": "co-teaching+ours", "network": "tiny", "folds": 5,
        "seed": 0, "estimate": {}, "columns": {"patient": True, "reader": True, "true_grade": False},
        "label_column": "grade", "table": str(labels) if table else None,
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audit(tmp_path_factory.mktemp("template") / "audit", images=16)


@pytest.fixture
def audit_folder(template: Path, tmp_path: Path) -> Path:
    """Sixteen small images, to do with as one likes; the audited table and the images are shared."""
    return shutil.copytree(template, tmp_path / "audit")


@pytest.fixture
def make() -> Callable[..., Path]:
    return make_audit


@dataclass
class Served:
    process: subprocess.Popen[str]
    address: str  # with the token
    port: int

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def interrupt(self) -> str:
        """Ctrl-C; what it says before it goes."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=30)
        return said


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """``srjt review`` in a process of its own; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(folder: Path, *options: object) -> Served:
        command = [sys.executable, "-m", "srjt", "review", str(folder), "--no-open", *map(str, options)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append(process)
        assert process.stdout is not None
        announced = process.stdout.readline()
        found = re.search(r"http://[^:/]+:(\d+)/\?token=[\w-]+", announced)
        assert found, announced + process.stdout.read()
        return Served(process, found[0], int(found[1]))

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
