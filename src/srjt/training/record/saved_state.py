"""What a checkpoint must contain so that its run can resume."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from srjt.training.record.metrics_log import missing_epochs, parse_rows

__all__ = ["check_saved_state"]


def check_saved_state(
    tensors: dict[str, Tensor], meta: dict[str, Any], *, epochs: int, steps: int, grades: int
) -> None:
    """ValueError if a checkpoint, though its checksum is right, contains nothing that a run can resume from."""
    epoch, step, starved = meta.get("epoch"), meta.get("step"), meta.get("starved")
    if not (type(epoch) is int and type(step) is int and 1 <= epoch <= epochs + 1 and 0 <= step < steps):
        raise ValueError(f"epoch {epoch!r}, step {step!r} of {epochs} epochs with {steps} steps")
    counts = starved.get("epochs") if isinstance(starved, dict) and "spoken" in starved else None
    if not (
        isinstance(counts, list) and len(counts) == grades and all(type(count) is int for count in counts)
    ):
        raise ValueError(f"starved is {starved!r}")
    for name, live in (
        ("random.method", torch.Generator().get_state()),
        ("random.cpu", torch.get_rng_state()),
    ):
        if name not in tensors or tensors[name].shape != live.shape or tensors[name].dtype != live.dtype:
            raise ValueError(f"no {name}")
    if "metrics" not in tensors:
        raise ValueError("no metrics")
    if missing := missing_epochs(parse_rows(tensors["metrics"].numpy().tobytes()), before=epoch):
        raise ValueError(f"no metrics of epoch {missing[0]}")
