"""The recipe, told nothing, does not collapse: a dominant grade, few rows, three or ten grades, clean labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import srjt
from srjt import noise
from srjt.data import Split, from_arrays
from srjt.data.synthetic import generate


def rows(shares: list[float], *, samples: int, blur: float = 0.3, seed: int = 0) -> tuple[Any, Any]:
    """Features (N, 12) that show a severity up to a blur, and grades with these shares."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=samples)
    grades = np.digitize(severity, np.quantile(severity, np.cumsum(shares)[:-1]))
    seen = severity[:, None] + blur * rng.normal(size=(samples, 12))
    return seen.astype(np.float32), grades


def trained(shares: list[float], *, samples: int, wrong: float, **settings: Any) -> tuple[Any, Any]:
    """Test grades of a run on noisy labels, and the true ones."""
    x, true = rows(shares, samples=samples + 400)
    matrix = np.eye(len(shares))
    if wrong:
        counts = np.bincount(true, minlength=len(shares))
        rho = noise.rho_for_rate("truncated", rate=wrong, class_counts=counts)
        matrix = noise.transition_matrix("truncated", num_classes=len(shares), rho=rho)
    labels = noise.corrupt(true, matrix, seed=1)
    manifest = from_arrays(x, labels, true_grades=true).manifest
    order = np.arange(len(true))
    split = Split(train=order[400:], validation=order[:0], test=order[:400])
    run = srjt.train(
        manifest, split=split, epochs=30, device="cpu", tune_cpu=False, learning_rate=1e-3, **settings
    )
    assert run.config.method == "srjt"
    return run.held_out["test"].probabilities.mean(axis=0).argmax(axis=1), true[:400]


@pytest.mark.filterwarnings("ignore::srjt.data.LeakageWarning")
@pytest.mark.parametrize(
    ("shares", "samples", "wrong"),
    [
        pytest.param(
            [0.73, 0.07, 0.15, 0.03, 0.02], 1200, 0.2, marks=pytest.mark.slow
        ),  # one grade dominates
        ([0.4, 0.3, 0.3], 180, 0.2),  # 300 images, three fifths of them to train on
        pytest.param([0.5, 0.3, 0.2], 600, 0.3, marks=pytest.mark.slow),
        pytest.param([0.1] * 10, 1200, 0.3, marks=pytest.mark.slow),
        pytest.param([0.45, 0.1, 0.2, 0.15, 0.1], 600, 0.0, marks=pytest.mark.slow),  # clean labels
    ],
    ids=["dominant", "few", "three grades", "ten grades", "clean"],
)
def test_it_beats_the_naive_answers(shares: list[float], samples: int, wrong: float) -> None:
    predicted, true = trained(shares, samples=samples, wrong=wrong)
    naive = min(np.abs(true - grade).mean() for grade in range(len(shares)))  # the best constant answer
    assert np.abs(predicted - true).mean() < 0.7 * naive
    assert (predicted == true).mean() > max(np.bincount(true)) / len(true)
    assert len(set(predicted)) >= len(shares) - 2  # rare grades may be missed, not all of them


@pytest.mark.slow
def test_tiny_on_a_cpu_with_nothing_but_data() -> None:
    clean = generate(images=300, patients=60, size=32)
    split = srjt.data.folds(clean, folds=5)[0]
    settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 15, "learning_rate": 1e-3}
    run = srjt.train(clean, split=split, device="cpu", tune_cpu=False, **settings)
    predicted = run.held_out["test"].probabilities.mean(axis=0).argmax(axis=1)
    true = clean.labels[split.test]
    assert np.mean(predicted == true) > 1.2 * max(np.bincount(true)) / len(true)
