"""One display for several trainings: to whoever watches they are one row of epochs."""

from __future__ import annotations

from srjt.training.loop import Reporter
from srjt.training.metrics_log import MetricRow

__all__ = ["NotesOnly", "Shifted", "in_folds"]


def in_folds(epoch: int, *, folds: int, epochs: int) -> str:
    """Which of the ``folds`` · ``epochs`` epochs it is, counted from 1: "fold 2 of 5, epoch 3 of 10"."""
    fold, within = divmod(epoch - 1, epochs)
    return f"fold {fold + 1} of {folds}, epoch {within + 1} of {epochs}"


class Shifted:
    """Hands on a training that comes after ``before`` epochs of others."""

    def __init__(self, reporter: Reporter, *, before: int, title: str = "", decodes: bool = True) -> None:
        self.reporter, self.before, self.title, self.decodes = reporter, before, title, decodes

    def note(self, text: str) -> None:
        self.reporter.note(self.title + text)

    def decoded(self, done: int, total: int) -> None:
        if self.decodes:
            self.reporter.decoded(done, total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.reporter.stepped(self.before + epoch, step, steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.reporter.finished_epoch(self.before + epoch, rows)


class NotesOnly:
    """For a warm-up inside a training: whoever watches the training counts only its own epochs."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def note(self, text: str) -> None:
        self.reporter.note(text)

    def decoded(self, done: int, total: int) -> None:
        self.reporter.decoded(done, total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        pass

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        pass
