"""Losses and weights that are not finite: the training stops, and the last good checkpoint is
kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from refusals import refuses
from srjt.networks import tiny
from srjt.training import checkpoint


class Explodes(nn.Module):
    """Gives infinite features from its n-th training batch on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.body, self.after = tiny(), after

    def forward(self, x: Tensor) -> Tensor:
        self.after -= self.training
        features: Tensor = self.body(x)
        return features if self.after >= 0 else self.spoilt(features)

    def spoilt(self, features: Tensor) -> Tensor:
        return features / 0.0


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_with_epoch_and_step(train: Any, tmp_path: Path) -> None:
    chosen = {"checkpoint_seconds": 0, "network": lambda: Explodes(7)}
    with refuses("training_failed", "learning_rate", says="epoch 2, step 3 of 5"):
        train(out=tmp_path / "run", **chosen)
    tensors, meta = checkpoint.latest(tmp_path / "run" / "checkpoints") or ({}, {})
    assert {k: meta[k] for k in ("epoch", "step")} == {"epoch": 2, "step": 0}
    assert all(t.isfinite().all() for name, t in tensors.items() if name.startswith("network."))
    healed = train(out=tmp_path / "run", **{**chosen, "network": lambda: Explodes(10**6)})
    assert np.isfinite(healed.metrics.query("metric == 'loss'")["value"]).all()
    assert sorted(set(healed.metrics["epoch"])) == [1, 2, 3]


def test_a_huge_learning_rate(data: Any, train: Any, tmp_path: Path) -> None:
    with refuses("training_failed", "learning_rate", says="epoch 1, step 2"):
        train(out=tmp_path, learning_rate=1e30)
    chosen = {"learning_rate": 1e30, "method": "garg", "transition": data.matrix}
    with refuses("training_failed", "learning_rate", says="transition matrix"):
        train(**chosen)


class LastStepPoisons(Explodes):
    """Its gradient becomes nan at the n-th step, while the loss is still a number."""

    def spoilt(self, features: Tensor) -> Tensor:
        return features + (features * 0.0).sqrt() * 0.0


@pytest.mark.slow
def test_weights_that_are_not_finite_are_never_saved(train: Any, tmp_path: Path) -> None:
    chosen = {"checkpoint_seconds": 0, "network": lambda: LastStepPoisons(14)}  # the last of 15
    with refuses("training_failed", "learning_rate", says="weights"):
        train(out=tmp_path / "run", **chosen)
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    tensors, meta = checkpoint.latest(tmp_path / "run" / "checkpoints") or ({}, {})
    assert {k: meta[k] for k in ("epoch", "step")} == {"epoch": 3, "step": 0}
    assert all(t.isfinite().all() for name, t in tensors.items() if name.startswith("network."))
