"""``srjt train --log html``: a page in the run's folder that shows the training while it runs."""

from __future__ import annotations

import time
from pathlib import Path

from srjt.reports.pages.html import write_page
from srjt.reports.pages.live_page import State, live_page
from srjt.reports.report import report
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import Reporter
from srjt.training.record.run_folder import has_summary

__all__ = ["FILE", "LiveReporter"]

FILE = "live.html"
SHARE = 0.1  # of the time, at most, is spent on drawing
LEAST = 2.0  # seconds between two drawings


class LiveReporter:
    """Forwards everything to ``inner`` and writes the page: a context manager around a training.

    At its end the report of the run is written beside the page, which then links to it.
    """

    def __init__(self, inner: Reporter, folder: Path, *, show_test: bool = False) -> None:
        self.inner, self.folder, self.show_test = inner, folder, show_test
        self.messages: list[str] = []
        self._recording = False  # between the first step of the run itself and its end
        self._broken = False
        self._next = 0.0  # the earliest time of the next drawing

    def __enter__(self) -> LiveReporter:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if not (self.folder / "run.json").exists():
            return
        if problem is not None and self._next > 0.0:  # an error before: the folder may be that of another run
            reason = " ".join(str(problem).split())
            self._write("stopped", problem=f"{reason.rstrip('.')}." if reason else "")
        elif problem is None and has_summary(self.folder):
            self._write("finished")

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)
        self._recording = folds == 1  # the noise estimate's cross-fit is not part of the run
        self._next = 0.0

    def note(self, text: str) -> None:
        self.inner.note(text)
        self.messages.append(text)

    def decoded(self, done: int, total: int) -> None:
        self.inner.decoded(done, total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(epoch, step, steps)
        if self._next == 0.0:
            self._draw()  # the page is there before the first epoch ends

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.inner.finished_epoch(epoch, rows)
        if time.monotonic() >= self._next:
            self._draw()

    def _draw(self) -> None:
        if not self._recording:
            return
        before = time.monotonic()
        self._write("training")
        took = time.monotonic() - before
        self._next = before + took + max(LEAST, took / SHARE)

    def _write(self, state: State, *, problem: str = "") -> None:
        if self._broken:
            return
        try:
            link = ""
            if state == "finished":
                link = report(self.folder)[0].name
            page = live_page(
                self.folder, state=state, messages=self.messages, problem=problem, show_test=self.show_test,
                link=link,
            )  # fmt: skip
            write_page(page, self.folder / FILE, follow_links=False)
        except Exception as trouble:  # a page that cannot be drawn must not end a training
            self._broken = True
            reason = " ".join(str(trouble).split())[:200] or type(trouble).__name__
            self.inner.note(f"The live page has stopped ({reason}). The training is not affected.")
