"""What a method remembers of its samples is part of the training: saved, restored, and undone after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import srjt
from srjt import methods
from srjt.methods.single import EarlyLearning


def test_the_loop_says_how_far_the_training_is(
    data: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, int]] = []

    @dataclass(frozen=True, kw_only=True)
    class Watching(EarlyLearning):
        def memory(self, samples: int) -> dict[str, Tensor]:
            return {"progress": torch.zeros(()), "averages": torch.zeros(samples, self.num_classes)}

        def loss(
            self, logits: Tensor, targets: Tensor, *, memory: Any = None, rows: Any = None, **more: Any
        ) -> Any:
            seen.append((float(memory["progress"]), len(memory["averages"])))
            return super().loss(logits, targets, memory=memory, rows=rows)

    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    srjt.methods.register("watching", scores="s", updates="u", paper="p")(Watching)
    srjt.train(data.manifest, **{**settings, "method": "watching", "epochs": 4})
    assert sorted({progress for progress, _ in seen}) == [0.0, 0.25, 0.5, 0.75]
    assert {samples for _, samples in seen} == {len(data.split.train)}
