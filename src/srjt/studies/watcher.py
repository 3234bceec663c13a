"""Follow the progress of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from srjt.studies.grid import PlannedRun

__all__ = ["SilentWatcher", "StudyWatcher"]


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
