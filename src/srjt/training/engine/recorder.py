"""Losses and selections of every training sample, kept on the device and transferred once per epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from srjt.ordinal.metrics import label_precision, label_recall, selection_counts

__all__ = ["EpochRecord", "Recorder"]

SMOOTHING = 0.9  # weight of the old value in a sample's running loss


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """The numbers of one epoch of training, on the host."""

    losses: tuple[float, ...]  # (K,) mean loss of each network
    first_bad_step: int | None  # the step whose loss was not finite
    kept: np.ndarray  # (K, C) share of each given grade's samples that each network selected
    counts: np.ndarray  # (K, 4, C), see ordinal.metrics.selection_counts

    def label_quality(self, network: int) -> dict[str, float]:
        """Precision and recall of a network's selection against the true grades, overall and per grade."""
        counts = self.counts[network]
        named = {"label_precision": label_precision, "label_recall": label_recall}
        values: dict[str, float] = {}
        for name, measure in named.items():
            values[name] = float(measure(counts))
            for grade, value in enumerate(np.asarray(measure(counts, per_class=True))):
                values[f"{name}[{grade}]"] = float(value)
        return values


class Recorder:
    """Per-sample history over the whole training, and sums over the current epoch.

    All state is in ``tensors`` (name → tensor) and is updated in place, so that it can be captured in a CUDA graph,
    saved and restored.
    """

    def __init__(
        self, labels: Tensor, true: Tensor | None, *, networks: int, num_classes: int, steps: int
    ) -> None:
        device, samples = labels.device, len(labels)
        self.labels = labels  # (N,) given grades of the training samples, on the device
        self.true = labels if true is None else true
        self.knows_truth = true is not None
        self.num_classes = num_classes
        self.steps = steps
        self.tensors: dict[str, Tensor] = {
            "seen": torch.zeros(samples, dtype=torch.int32, device=device),
            "selected": torch.zeros(networks, samples, dtype=torch.int32, device=device),
            "running_loss": torch.full((networks, samples), torch.nan, device=device),
            "loss_sum": torch.zeros(networks, dtype=torch.float64, device=device),
            "counts": torch.zeros(networks, 4, num_classes, dtype=torch.int64, device=device),
            "bad_step": torch.full((), -1, dtype=torch.int64, device=device),
            "step": torch.zeros((), dtype=torch.int64, device=device),
        }

    @torch.no_grad()
    def add(
        self, rows: Tensor, total: Tensor, per_network: Tensor, selected: Tensor, label_loss: Tensor
    ) -> None:
        """One step: rows (B,) positions, total (), per_network (K,), selected (K, B), label_loss (K, B)."""
        t = self.tensors
        t["seen"].index_add_(0, rows, torch.ones_like(rows, dtype=torch.int32))
        t["selected"].index_add_(1, rows, selected.int())
        before = t["running_loss"].index_select(1, rows)
        smoothed = torch.where(before.isnan(), label_loss, SMOOTHING * before + (1 - SMOOTHING) * label_loss)
        t["running_loss"].index_copy_(1, rows, smoothed.float())
        t["loss_sum"] += per_network
        t["counts"] += selection_counts(
            selected, self.labels[rows], self.true[rows], num_classes=self.num_classes
        )
        bad = ~torch.isfinite(total) & (t["bad_step"] < 0)
        t["bad_step"].copy_(torch.where(bad, t["step"], t["bad_step"]))
        t["step"] += 1

    def start_epoch(self) -> None:
        for name in ("loss_sum", "counts", "step"):
            self.tensors[name].zero_()
        self.tensors["bad_step"].fill_(-1)

    def finish_epoch(self) -> EpochRecord:
        """The numbers of the epoch. Only here the host waits for the device."""
        counts = self.tensors["counts"].cpu().numpy()
        bad = int(self.tensors["bad_step"])
        kept = np.divide(
            counts[:, 1], counts[:, 3], out=np.full(counts[:, 1].shape, np.nan), where=counts[:, 3] > 0
        )
        return EpochRecord(
            losses=tuple(float(v) / max(self.steps, 1) for v in self.tensors["loss_sum"].cpu()),
            first_bad_step=None if bad < 0 else bad,
            kept=kept,
            counts=counts,
        )

    def history(self) -> pd.DataFrame:
        """One row per training sample: times seen; per network, times selected and running loss."""
        host = {name: tensor.cpu().numpy() for name, tensor in self.tensors.items()}
        # the data types with which a CSV file is read back
        columns: dict[str, np.ndarray] = {"seen": host["seen"].astype(np.int64)}
        for k in range(len(host["selected"])):
            columns[f"selected_{k + 1}"] = host["selected"][k].astype(np.int64)
            columns[f"loss_{k + 1}"] = host["running_loss"][k].astype(np.float64)
        return pd.DataFrame(columns)
