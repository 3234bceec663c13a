"""What a checkpoint must contain so that its run can resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.training.record.metrics_log import MetricRow, missing_epochs, parse_rows, read_rows

__all__ = ["check_saved_state", "saved_rows"]


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
    if "metrics" in tensors:
        missing = missing_epochs(parse_rows(tensors["metrics"].numpy().tobytes()), before=epoch)
        if missing:
            raise ValueError(f"no metrics of epoch {missing[0]}")


def saved_rows(saved: Tensor | None, file: Path | None, *, before: int) -> list[MetricRow]:
    """The metrics of the epochs before this one: from the checkpoint, or from the file beside an older checkpoint."""
    if saved is not None:
        return parse_rows(saved.numpy().tobytes())
    if file is None:
        return []
    rows = [row for row in read_rows(file) if row.epoch < before] if file.exists() else []
    if missing := missing_epochs(rows, before=before):
        raise SrjtError(
            f"{file} lacks the metrics of epoch {missing[0]}, after which this run was saved: restore the file, or "
            "delete the folder of the run to start again."
        )
    return rows
