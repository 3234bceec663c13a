"""One display for the trainings of a cross-fit: whoever watches sees a single sequence of epochs."""

from __future__ import annotations

from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import Reporter

__all__ = ["FoldReporter"]


class FoldReporter:
    """Reports the epochs of one fold as epochs of the whole cross-fit, after ``before`` epochs of other folds."""

    def __init__(self, reporter: Reporter, *, before: int, title: str = "") -> None:
        self.reporter, self.before, self.title = reporter, before, title

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        self.reporter.note(self.title + text)

    def decoded(self, done: int, total: int) -> None:
        pass

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.reporter.stepped(self.before + epoch, step, steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.reporter.finished_epoch(self.before + epoch, rows)
