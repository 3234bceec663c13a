"""Show the progress of a training: a bar in a terminal or a notebook, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from srjt.errors import count_of
from srjt.progress import NotebookBar, in_notebook, in_terminal
from srjt.training.record.metrics_log import MetricRow

__all__ = [
    "FoldReporter",
    "NotebookReporter",
    "PlainReporter",
    "Reporter",
    "SilentReporter",
    "TerminalReporter",
    "headline",
    "reporter_for",
    "reporter_in_python",
]


class Reporter(Protocol):
    """Receives the progress of a training: a terminal, a log, a study."""

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        """A training of ``epochs`` begins, or a cross-fit whose ``folds`` · ``epochs`` are counted in one sequence."""

    def note(self, text: str) -> None: ...
    def decoded(self, done: int, total: int) -> None: ...
    def stepped(self, epoch: int, step: int, steps: int) -> None: ...
    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None: ...


def headline(rows: list[MetricRow], *, show_test: bool = False) -> dict[str, float]:
    """The main numbers of an epoch, averaged over the networks.

    show_test: also those of the test side. Whoever watches them will choose settings by them.
    """
    shown = (
        ("loss", "train", "loss"),
        ("lab.prec", "train", "label_precision"),
        ("val.acc", "validation", "accuracy"),
        ("val.mae", "validation", "mae"),
        ("test.acc", "test", "accuracy"),
        ("test.mae", "test", "mae"),
        ("samples/s", "train", "images_per_second"),
    )
    values = {}
    for title, split, metric in shown:
        if split == "test" and not show_test:
            continue
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
        f"{name} {value:.0f}" if name == "samples/s" else f"{name} {value:.3f}"
        for name, value in values.items()
    )


def _position(epoch: int, *, epochs: int, folds: int) -> str:
    """ "epoch 3/10", or "fold 2 of 5, epoch 3 of 10"."""
    if folds == 1:
        return f"epoch {epoch}/{epochs}"
    fold, within = divmod(epoch - 1, epochs)
    return f"fold {fold + 1} of {folds}, epoch {within + 1} of {epochs}"


class SilentReporter:
    """Shows nothing and keeps the notes: for use as a library, and for tests."""

    def __init__(self, *, show_test: bool = False) -> None:
        self.show_test = show_test
        self.notes: list[str] = []
        self.title, self.epochs, self.folds = "", 1, 1

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.title, self.epochs, self.folds = title, epochs, folds

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
    """Prints one line per epoch, for logs and pipes."""

    def note(self, text: str) -> None:
        super().note(text)
        self._print(text)

    def decoded(self, done: int, total: int) -> None:
        said = f"{count_of(total, 'image file')} processed."  # some of them may be damaged
        if done == total and said not in self.notes:  # a search for identical images may decode them again
            self.note(said)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        position = _position(epoch, epochs=self.epochs, folds=self.folds)
        self._print(f"{position}  {_text(headline(rows, show_test=self.show_test))}")

    def _print(self, text: str) -> None:
        print(f"{self.title}: {text}" if self.title else text, flush=True)


class TerminalReporter(SilentReporter):
    """Shows a progress bar of the whole training with the latest numbers beside it."""

    def __init__(self, *, show_test: bool = False, stderr: bool = False) -> None:
        super().__init__(show_test=show_test)
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from srjt.console import Console

        self.console = Console(stderr=True) if stderr else Console()
        self.bar = BarColumn(bar_width=16)
        self.progress = Progress(
            TextColumn("{task.description}"),
            self.bar,
            TextColumn("{task.fields[done]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[latest]}"),
            console=self.console,
        )
        self.task: Any = self.progress.add_task("training", total=None, done="", latest="", visible=False)
        self._drawn = 0.0
        self._decoding: Any = None

    def __enter__(self) -> TerminalReporter:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        super().begin(title, epochs=epochs, folds=folds)
        self.bar.bar_width = 16 if folds == 1 else 8  # the position is longer, and a line has 80 columns
        self.progress.reset(
            self.task,
            total=float(epochs * folds),
            description=f"{title or 'training':16}",
            visible=True,
            done="",
            latest="",
        )

    def note(self, text: str) -> None:
        super().note(text)
        self.console.print(text, markup=False, highlight=False)

    def decoded(self, done: int, total: int) -> None:
        if self._decoding is None:
            self._decoding = self.progress.add_task("decoding images", total=total, done="", latest="")
        self.progress.update(self._decoding, completed=done, done=f"{done:,}/{total:,}", visible=done < total)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        now = time.monotonic()
        if now - self._drawn > 0.2:  # drawing takes training time
            self._drawn = now
            self.progress.update(
                self.task, completed=epoch - 1 + step / steps, **self._position_fields(epoch)
            )

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        values = headline(rows, show_test=self.show_test)
        main = next((name for name in ("test.acc", "val.acc") if name in values), "loss")
        short = {name: values[name] for name in (main, "samples/s") if name in values}  # fits in 80 columns
        self.progress.update(
            self.task, completed=float(epoch), latest=_text(short), **self._position_fields(epoch)
        )

    def _position_fields(self, epoch: int) -> dict[str, Any]:
        """The position: a short one after the bar, or a long one before it."""
        if self.folds == 1:
            return {"done": f"{epoch}/{self.epochs}"}
        return {
            "description": f"{self.title} {_position(epoch, epochs=self.epochs, folds=self.folds)}".strip()
        }


class NotebookReporter(SilentReporter):
    """Shows the same in the output of a notebook's cell."""

    def __init__(self) -> None:
        super().__init__()
        self.bar = NotebookBar("training")
        self._latest = ""

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        super().begin(title, epochs=epochs, folds=folds)
        self.bar.label, self._latest = title or "training", ""

    def note(self, text: str) -> None:
        super().note(text)
        self.bar.note(text)

    def decoded(self, done: int, total: int) -> None:
        self.bar.update(done, total, f"{done:,}/{total:,} images decoded")

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self._update(epoch, done=epoch - 1 + step / steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self._latest = _text(headline(rows))
        self._update(epoch, done=epoch)

    def _update(self, epoch: int, *, done: float) -> None:
        position = _position(epoch, epochs=self.epochs, folds=self.folds)
        self.bar.update(done, self.epochs * self.folds, f"{position}  {self._latest}".strip())


def reporter_for(*, quiet: bool = False, show_test: bool = False) -> SilentReporter:
    """The reporter for standard output: a bar in a terminal, lines in a file or pipe.

    show_test: show the test side's scores during the training.
    """
    if quiet:
        return SilentReporter()
    shown = TerminalReporter if sys.stdout.isatty() else PlainReporter
    return shown(show_test=show_test)


def reporter_in_python(reporter: Reporter | None, *, progress: bool) -> AbstractContextManager[Reporter]:
    """The given reporter; without one, with ``progress``: a bar in a notebook or a terminal, nothing elsewhere.

    A script whose output goes to a file stays silent, as other libraries are.
    """
    if reporter is not None:
        return nullcontext(reporter)
    if progress and in_notebook():
        return NotebookReporter()
    return TerminalReporter(stderr=True) if progress and in_terminal() else SilentReporter()


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
