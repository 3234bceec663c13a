"""Progress for people who work in Python: a bar in a terminal, a line that is rewritten in a
notebook, or nothing; and what receives the progress of a training.
"""

from __future__ import annotations

import html
import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from srjt.text import printable_lines

# True: shown where somebody can see it; a function is called with (done, total) instead
ProgressOption = bool | Callable[[int, int], None]

REDRAWN = 0.2  # seconds between two updates: drawing takes time from the work
SOON = 1.0  # seconds: what is done by then needs no bar


class Bar:
    """Shows nothing; the other bars show how much is done of what ``label`` names."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.total = 0.0
        self.drawn = -math.inf

    def update(
        self,
        done: float,
        total: float,
        count: str = "",
        text: str = "",
        *,
        label: str = "",
        now: bool = False,
    ) -> None:
        """``done`` of ``total``, as it is counted, and what else there is to say. now: draw it at
        once."""
        if now or done >= total or total != self.total or time.monotonic() - self.drawn > REDRAWN:
            self.label = label or self.label
            self.total = total
            self.drawn = time.monotonic()
            self.draw(done, count, text)

    def draw(self, done: float, count: str, text: str) -> None: ...
    def line(self, text: str) -> None:
        """A sentence for a log, where no bar shows the same."""

    def note(self, text: str) -> None:
        """A sentence that stays."""

    def close(self) -> None:
        """Nothing more will come: show the last state."""

    def clear(self) -> None:
        """Nothing more will come: leave no trace."""
        self.close()


class Lines(Bar):
    """Prints lines, for logs and pipes."""

    def update(self, *counts: Any, **more: Any) -> None: ...
    def line(self, text: str) -> None:
        print(printable_lines(f"{self.label}: {text}" if self.label else text), flush=True)

    note = line


class TerminalBar(Bar):
    """A bar, by default on standard error, which disappears at the end unless it is ``lasting``."""

    def __init__(self, label: str, *, lasting: bool = False, stderr: bool = True) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        from srjt.console import Console

        super().__init__(label)
        self.console = Console(stderr=True) if stderr else Console()
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),  # a line has 80 columns
            TextColumn("{task.fields[count]}", markup=False),
            TimeRemainingColumn(compact=True) if lasting else TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False, style="dim"),
            console=self.console,
            transient=not lasting,
        )
        self.task = self.progress.add_task(label, total=None, count="", text="")

    def draw(self, done: float, count: str, text: str) -> None:
        if self.total != self.progress.tasks[0].total:
            self.progress.reset(self.task)  # the speed of what came before says nothing
        shown: dict[str, Any] = {"description": self.label, "count": count, "text": text}
        self.progress.update(self.task, completed=done, total=self.total, **shown)
        self.progress.start()

    def note(self, text: str) -> None:
        self.console.sentence(text)

    def close(self) -> None:
        self.progress.stop()


class NotebookBar(Bar):
    """A bar below the cell. It is one output that is rewritten, so that the saved notebook has its
    last state."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.notes = list[str]()
        self.latest = (0.0, "", "")
        self.began = time.monotonic()
        self.output: Any = None

    def draw(self, done: float, count: str, text: str) -> None:
        self.latest = done, count, text
        seconds = round(time.monotonic() - self.began)
        words = [self.label, f"{seconds // 60}:{seconds % 60:02d}", f"{count}  {text}".strip()]
        label, clock, rest = map(html.escape, words)
        value = f' value="{done:g}" max="{self.total:g}"' if self.total else ""
        bar = f'<progress style="width:12em;vertical-align:middle"{value}></progress>'
        notes = "".join(
            f'<div style="opacity:.75">{html.escape(note)}</div>' for note in self.notes
        )
        shown = {
            "text/plain": "  ".join(filter(None, words)),
            "text/html": (
                f'<div style="font-family:system-ui,sans-serif">{label} {bar} {clock}'
                f" {rest}{notes}</div>"
            ),
        }
        if self.output is None:
            display = importlib.import_module("IPython.display").display
            self.output = display(shown, raw=True, display_id=True)
        else:
            self.output.update(shown, raw=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.close()

    def close(self) -> None:
        self.draw(*self.latest)

    def clear(self) -> None:
        if self.output is not None:
            self.output.update({"text/plain": "", "text/html": ""}, raw=True)


def show_bar(label: str, *, shown: bool = True, lasting: bool = False) -> Bar:
    """The bar for where the code runs: in a notebook, or where standard error is a terminal. What a
    program writes to standard output stays as it is. Of several processes that train together, one
    shows the progress.

    shown: False for a bar that shows nothing. lasting: stays in a terminal.
    """
    ipython = sys.modules.get("IPython")
    if not shown or os.environ.get("RANK", "0") != "0":
        return Bar(label)
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookBar(label)
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    if in_terminal:
        return TerminalBar(label, lasting=lasting)
    return Bar(label)


@contextmanager
def progress_bar(label: str, progress: ProgressOption) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total): the given one, or one that moves a bar, which leaves no
    trace."""
    if callable(progress):
        yield progress
        return
    bars: list[Bar] = []
    began = time.monotonic()

    def update(done: int, total: int) -> None:
        if not bars and time.monotonic() - began > SOON:
            bars.append(show_bar(label, shown=progress))
        for bar in bars:
            bar.update(done, total, f"{done:,}/{total:,}")

    try:
        yield update
    finally:
        for bar in bars:
            bar.clear()


# The progress of a training.


class Reporter(Protocol):
    """Receives the progress of a training: a bar, a page, an experiment tracker, a function of the
    user's own.

    rows: the numbers of an epoch, each a ``srjt.training.checkpoint.MetricRow``.
    """

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        """A training of ``epochs`` begins, or a cross-fit whose ``folds`` · ``epochs`` are counted
        in one sequence."""

    def note(self, text: str) -> None: ...
    def decoded(self, done: int, total: int) -> None: ...
    def embedded(self, done: int, total: int) -> None: ...
    def stepped(self, epoch: int, step: int, steps: int) -> None: ...
    def finished_epoch(self, epoch: int, rows: list[Any]) -> None: ...


class Forwarding:
    """Passes the progress of a training on to ``inner``; others change a part of it."""

    def __init__(self, inner: Reporter) -> None:
        self.inner = inner

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)

    def note(self, text: str) -> None:
        self.inner.note(text)

    def decoded(self, done: int, total: int) -> None:
        self.inner.decoded(done, total)

    def embedded(self, done: int, total: int) -> None:
        self.inner.embedded(done, total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(epoch, step, steps)

    def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
        self.inner.finished_epoch(epoch, rows)
