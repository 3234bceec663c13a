"""Watching a training: a live display on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from srjt.training.metrics_log import MetricRow

__all__ = ["Naming", "PlainReporter", "SilentReporter", "TerminalReporter", "headline", "reporter_for"]

Naming = Callable[[int], str]  # what to call an epoch where "3/10" would not do: "fold 2 of 5, epoch 3 of 10"


def headline(rows: list[MetricRow]) -> dict[str, float]:
    """The few numbers of an epoch that a person follows, the networks averaged."""
    wanted = (
        ("loss", "train", "loss"),
        ("lab.prec", "train", "label_precision"),
        ("val.acc", "validation", "accuracy"),
        ("test.acc", "test", "accuracy"),
        ("test.mae", "test", "mae"),
        ("img/s", "train", "images_per_second"),
    )
    values = {}
    for title, split, metric in wanted:
        found = [
            row.value
            for row in rows
            if (row.split, row.metric) == (split, metric) and row.network not in ("ensemble", "pooled")
        ]
        if found:
            values[title] = sum(found) / len(found)
    return values


def _text(values: dict[str, float]) -> str:
    return "  ".join(
        f"{name} {value:.0f}" if name == "img/s" else f"{name} {value:.3f}" for name, value in values.items()
    )


class SilentReporter:
    """For libraries and tests. Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def decoded(self, done: int, total: int) -> None:
        pass

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        pass

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        pass

    def __enter__(self) -> SilentReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class PlainReporter(SilentReporter):
    """A line per epoch, for logs and pipes."""

    def __init__(self, epochs: int, title: str = "", *, naming: Naming | None = None) -> None:
        super().__init__()
        self.naming = naming or (lambda epoch: f"epoch {epoch}/{epochs}")
        self.title = f"{title}: " if title else ""

    def note(self, text: str) -> None:
        super().note(text)
        print(f"{self.title}{text}", flush=True)

    def decoded(self, done: int, total: int) -> None:
        if done == total:
            self.note(f"{total:,} images decoded.")

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        print(f"{self.title}{self.naming(epoch)}  {_text(headline(rows))}", flush=True)


class TerminalReporter(SilentReporter):
    """A bar over the whole training with the latest numbers beside it."""

    def __init__(self, epochs: int, title: str = "", *, naming: Naming | None = None) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.epochs, self.title, self.naming = epochs, title, naming
        self.console = Console()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16 if naming is None else 12),  # 80 columns
            TextColumn("{task.fields[done]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[latest]}"),
            console=self.console,
        )
        self.task: Any = self.progress.add_task(title or "training", total=float(epochs), done="", latest="")
        self._drawn = 0.0
        self._decoding: Any = None

    def __enter__(self) -> TerminalReporter:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        super().note(text)
        self.console.print(text, markup=False, highlight=False)

    def decoded(self, done: int, total: int) -> None:
        if self._decoding is None:
            self._decoding = self.progress.add_task("decoding images", total=total, done="", latest="")
        self.progress.update(self._decoding, completed=done, done=f"{done:,}/{total:,}", visible=done < total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        now = time.monotonic()
        if now - self._drawn > 0.2:  # drawing is not what the processor is for
            self._drawn = now
            self.progress.update(self.task, completed=epoch - 1 + step / steps, **self._where(epoch))

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        values = headline(rows)
        main = next((name for name in ("test.acc", "val.acc") if name in values), "loss")
        short = {
            name: values[name] for name in (main, "img/s") if name in values
        }  # beside the bar in 80 columns
        self.progress.update(self.task, completed=float(epoch), latest=_text(short), **self._where(epoch))

    def _where(self, epoch: int) -> dict[str, Any]:
        """A number behind the bar; a name, which is longer, before it."""
        if self.naming is None:
            return {"done": f"{epoch}/{self.epochs}"}
        return {"description": f"{self.title} {self.naming(epoch)}".strip()}


def reporter_for(
    epochs: int, title: str = "", *, naming: Naming | None = None, quiet: bool = False
) -> SilentReporter:
    """The reporter that fits where standard output goes."""
    if quiet:
        return SilentReporter()
    fitting = TerminalReporter if sys.stdout.isatty() else PlainReporter
    return fitting(epochs, title, naming=naming)
