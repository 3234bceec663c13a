"""TensorBoard events in addition to another reporter (extra: ``tensorboard``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srjt.errors import missing_extra
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import Reporter

__all__ = ["TensorBoardReporter"]


class TensorBoardReporter:
    """Forwards everything to ``inner`` and writes every number of an epoch as a scalar event."""

    def __init__(self, inner: Reporter, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_extra("tensorboard", "tensorboard", "Writing TensorBoard events") from None
        self.inner = inner
        # opened at the first epoch, because the run creates its folder first
        self._open: Callable[[], Any] = lambda: SummaryWriter(str(folder))
        self._writer: Any = None
        self._recording = True

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)
        self._recording = folds == 1  # the noise estimate's cross-fit is not part of the run

    def note(self, text: str) -> None:
        self.inner.note(text)

    def decoded(self, done: int, total: int) -> None:
        self.inner.decoded(done, total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(epoch, step, steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.inner.finished_epoch(epoch, rows)
        if not self._recording:
            return
        self._writer = self._writer or self._open()
        for row in rows:
            if math.isfinite(row.value):
                tag = "/".join(part for part in (row.split, row.metric, row.network) if part)
                self._writer.add_scalar(tag, row.value, epoch)
        self._writer.flush()
