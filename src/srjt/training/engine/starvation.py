"""Warn when the selection hardly keeps any samples of a grade.

On imbalanced data the common grade is learnt first and has the smallest losses, so that methods which keep samples of
small loss can come to keep one grade only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["STARVED", "StarvationMonitor"]

PATIENCE = 3  # epochs in a row
STARVED = 0.1  # of the share that is kept overall


class StarvationMonitor:
    """Gives one warning per training, when a grade is hardly selected for ``PATIENCE`` epochs in a row."""

    def __init__(self, grades: Sequence[str]) -> None:
        self.grades = tuple(grades)
        self.starved_epochs = np.zeros(len(grades), dtype=np.int64)  # per grade, in a row
        self.warned = False

    def state(self) -> dict[str, Any]:
        """What a checkpoint saves."""
        return {"epochs": self.starved_epochs.tolist(), "spoken": self.warned}

    def load_state(self, state: dict[str, Any]) -> None:
        self.starved_epochs = np.array(state["epochs"], dtype=np.int64)
        self.warned = bool(state["spoken"])

    def update(self, counts: np.ndarray) -> str | None:
        """counts: (K, 4, C) of one epoch (ordinal.metrics.selection_counts) → a warning, or None.

        One network's selection is what the other learns from, so a grade that either starves counts.
        """
        selected, total = counts[:, 1].astype(np.float64), counts[:, 3].astype(np.float64)
        overall = selected.sum(axis=1, keepdims=True) / np.maximum(total.sum(axis=1, keepdims=True), 1)
        share = np.divide(selected, total, out=np.ones_like(selected), where=total > 0)
        starved = (share < STARVED * overall).any(axis=0)
        self.starved_epochs = np.where(starved, self.starved_epochs + 1, 0)
        if self.warned or not (self.starved_epochs >= PATIENCE).any():
            return None
        self.warned = True
        named = ", ".join(self.grades[c] for c in np.flatnonzero(self.starved_epochs >= PATIENCE))
        return (
            f"The selection is starving grade {named}: for {PATIENCE} epochs hardly any of its samples were selected "
            f"as clean ({share.min():.0%} of them, {float(overall.mean()):.0%} of all), so the networks are "
            "unlearning it. Try `per_class=True`, a slower ramp (`ramp_epochs`) or a smaller `noise_rate`."
        )
