"""A run on features, for what is fitted after training, and one on images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from srjt import noise
from srjt.data import Manifest, folds, from_arrays
from srjt.training.trained import Trained


@pytest.fixture(scope="session")
def features() -> Manifest:
    """600 samples of 150 patients with two eyes, in two centres, a fifth of the labels wrong."""
    rng = np.random.default_rng(0)
    severity = np.repeat(rng.uniform(0, 4, 150), 4) + 0.2 * rng.normal(size=600)
    true = severity.clip(0, 3.999).astype(int)
    x = np.stack([severity + 0.3 * rng.normal(size=600) for _ in range(6)], axis=1).astype(
        np.float32
    )
    labels = noise.corrupt(true, noise.transition_matrix("quasi", num_classes=4, rho=0.08), seed=0)
    patients = np.repeat(np.arange(150), 4).astype(str).tolist()
    made = from_arrays(x, labels, patients=patients, true_grades=true)
    made.table["centre"] = np.where(np.arange(600) // 4 % 3 == 0, "A", "B")
    made.table["eye"] = ["LLRR"[k % 4] for k in range(600)]
    return made


@pytest.fixture(scope="session")
def run(features: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return srjt.train(
        features, out=tmp_path_factory.mktemp("run") / "run", split=folds(features)[0], method="standard",
        network="mlp", epochs=15, learning_rate=0.02, batch_size=32, noise_rate=0.2, device="cpu",
        keep_columns=("centre", "eye"),
    )  # fmt: skip


@pytest.fixture(scope="session")
def image_folder(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    train(out=out, noise_rate=0.2)
    return out


@pytest.fixture(scope="session")
def image_run(image_folder: Path) -> Trained:
    return srjt.load_run(image_folder, device="cpu")
