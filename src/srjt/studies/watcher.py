"""Follow the progress of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from srjt.progress import Bar
from srjt.studies.grid import PlannedRun

__all__ = ["BarWatcher", "SilentWatcher", "StudyWatcher"]


class StudyWatcher(Protocol):
    """Receives the progress of a study: a terminal, a log, a test."""

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        """The study begins; ``done`` of its runs are finished already."""

    def note(self, text: str) -> None:
        """A sentence for the user."""

    def started(self, planned: PlannedRun) -> None: ...

    def updated(self, running: Sequence[PlannedRun]) -> None:
        """Called several times per second with the runs in progress."""

    def ended(self, planned: PlannedRun, status: str) -> None: ...


class SilentWatcher:
    """Shows nothing."""

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None: ...
    def note(self, text: str) -> None: ...
    def started(self, planned: PlannedRun) -> None: ...
    def updated(self, running: Sequence[PlannedRun]) -> None: ...
    def ended(self, planned: PlannedRun, status: str) -> None: ...


class BarWatcher:
    """Moves a bar: the runs that are done, and what is being trained."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.done, self.total = bar, 0, 0

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        self.done, self.total = done, len(planned_runs)
        self.updated([])

    def note(self, text: str) -> None:
        self.bar.note(text)

    def started(self, planned: PlannedRun) -> None: ...

    def updated(self, running: Sequence[PlannedRun]) -> None:
        named = ", ".join(f"{run.method.name} {run.noise.label} fold {run.fold}" for run in running)
        self.bar.update(self.done, self.total, f"{self.done}/{self.total} runs  {named}".strip())

    def ended(self, planned: PlannedRun, status: str) -> None:
        self.done += status == "done"
        if status == "failed":
            self.bar.note(f"failed: {planned.key}")
        if self.done == self.total:  # nothing will be updated any more
            self.updated([])
