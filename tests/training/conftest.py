"""Small noisy data, and settings that train in a blink."""

from __future__ import annotations

from collections.abc import Iterator
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
