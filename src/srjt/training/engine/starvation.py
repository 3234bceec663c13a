"""Watch the selection: on imbalanced data, small losses can come to mean one grade only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["StarvationWatch"]

PATIENCE = 3  # epochs in a row
STARVED = 0.1  # of the share that is kept overall


class StarvationWatch:
    """Speaks once, when a grade that is in the data has hardly been selected for several epochs."""

    def __init__(self, grades: Sequence[str]) -> None:
        self.grades = tuple(grades)
        self.epochs = np.zeros(len(grades), dtype=np.int64)  # in a row that a grade has been starved
        self.spoken = False

    def memory(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {"epochs": self.epochs.tolist(), "spoken": self.spoken}

    def recall(self, memory: dict[str, Any]) -> None:
        self.epochs = np.array(memory["epochs"], dtype=np.int64)
        self.spoken = bool(memory["spoken"])

    def look(self, counts: np.ndarray) -> str | None:
        """counts: (K, 4, C) of one epoch (ordinal.metrics.selection_counts) → a warning, or None.

        A network's selection is what its peer learns from, so a grade starved for either counts.
        """
        selected, total = counts[:, 1].astype(np.float64), counts[:, 3].astype(np.float64)
        overall = selected.sum(axis=1, keepdims=True) / np.maximum(total.sum(axis=1, keepdims=True), 1)
        share = np.divide(selected, total, out=np.ones_like(selected), where=total > 0)
        starved = (share < STARVED * overall).any(axis=0)
        self.epochs = np.where(starved, self.epochs + 1, 0)
        if self.spoken or not (self.epochs >= PATIENCE).any():
            return None
        self.spoken = True
        named = ", ".join(self.grades[c] for c in np.flatnonzero(self.epochs >= PATIENCE))
        return (
            f"The selection is starving grade {named}: for {PATIENCE} epochs hardly any of its samples were taken "
            f"as clean ({share.min():.0%} of them, {float(overall.mean()):.0%} of all), so the networks are "
            "unlearning it. Try --per-class, a slower ramp (--ramp-epochs) or a smaller --noise-rate."
        )
