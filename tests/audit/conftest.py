"""Rows of features from the embedded images, with wrong labels that we know; fits that take a blink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from srjt import noise
from srjt.data import Manifest, from_arrays
from srjt.data.synthetic import generate
from srjt.ordinal.estimation import NoiseEstimate
from srjt.training.config import TrainConfig

FITS: dict[str, Any] = {"network": "linear", "batch_size": 32, "learning_rate": 0.02, "epochs": 3}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def noisy() -> Manifest:
    """240 samples of 40 patients, a fifth of the labels wrong; the true grades are known, and two readers."""
    clean = generate(images=240, patients=40, size=32)
    assert clean.arrays is not None
    pixels = clean.arrays.astype(np.float32) / 255
    blocks = pixels.reshape(-1, 4, 8, 4, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(len(pixels), 16, 64, 3)
    parts = [blocks.mean(axis=2), blocks.std(axis=2)]  # colour and texture, wherever they are in the image
    features = np.concatenate([np.sort(part, axis=1).reshape(len(pixels), -1) for part in parts], axis=1)
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    labels = noise.corrupt(clean.labels, matrix, seed=0, ids=clean.ids)
    patients = clean.table["patient"].tolist()
    made = from_arrays(features, labels, patients=patients, true_grades=clean.labels, ids=clean.ids).manifest
    made.table["reader"] = np.where(np.arange(len(made)) % 3 == 0, "A", "B")
    return made


@pytest.fixture
def fits() -> TrainConfig:
    return TrainConfig(method="sord", **FITS)


def counted(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, identifiable: bool = True, **how: Any
) -> NoiseEstimate:
    """In place of the estimate, where a test is about something else: labels against the networks' answers."""
    y, p = np.asarray(labels), np.asarray(probabilities)
    classes = p.shape[1]
    joint = np.ones((classes, classes))
    np.add.at(joint, (p.argmax(axis=1), y), 1)
    transition = joint / joint.sum(axis=1, keepdims=True)
    prior = joint.sum(axis=1) / joint.sum()
    rate = float(prior @ (1 - np.diag(transition)))
    return NoiseEstimate(
        rate=rate,
        rate_interval=(rate - 0.05, rate + 0.05),
        transition=transition,
        transition_interval=np.stack([transition, transition]),
        prior=prior,
        prior_interval=np.stack([prior, prior]),
        form="banded",
        held_out={"quasi": -1.0, "truncated": -1.0, "banded": -0.9},
        temperature=1.0,
        samples=len(y),
        identifiable=identifiable,
        reason="" if identifiable else "the networks know nothing",
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate is only counted."""
    monkeypatch.setattr("srjt.audit.auto.estimate_noise", counted)
    monkeypatch.setattr("srjt.audit.auditing.estimate_noise", counted)
