"""Show the progress of a training: a bar in a terminal or a notebook, plain lines elsewhere, or nothing; and
send its numbers to an experiment tracker.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from srjt.errors import count_of, missing_extra, unknown_name
from srjt.progress import NotebookBar, in_notebook, in_terminal
from srjt.training.checkpoint import MetricRow

# Show the progress of a training: a bar in a terminal or a notebook, plain lines elsewhere, or nothing.


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


# Every number of a training, sent to an experiment tracker in addition to another reporter.
#
# Each tracker is an extra. All of them work without a network: TensorBoard and MLflow write below the run's
# folder, and Weights & Biases writes files there that ``wandb sync`` uploads. The usual variables of MLflow
# and Weights & Biases (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``, …) choose a server instead.

Scalars = Mapping[str, float]
Write = Callable[[int, Scalars], None]  # epoch, name → value


class TrackingReporter:
    """Forwards everything to ``inner`` and passes the numbers of every epoch to ``write``."""

    def __init__(self, inner: Reporter, start: Callable[[str], Write], *, name: str) -> None:
        self.inner, self.name = inner, name
        self._start = start  # called at the first epoch, because the run creates its folder first
        self._write: Write | None = None
        self._title = ""
        self._recording = True

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)
        self._title = title
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
        try:
            self._write = self._write or self._start(self._title)
            self._write(epoch, {_tag(row): row.value for row in rows if math.isfinite(row.value)})
        except Exception as problem:  # a server that does not answer must not end a training
            self._recording = False
            reason = " ".join(str(problem).split())[:200] or type(problem).__name__
            self.inner.note(
                f"Logging to {self.name} has stopped ({reason}). The training continues; metrics.csv has every number."
            )


def _tag(row: MetricRow) -> str:
    return "/".join(part for part in (row.split, row.metric, row.network) if part)


def track(reporter: Reporter, tracker: str, folder: Path) -> TrackingReporter:
    """A reporter that also sends every number to ``tracker``; its files go below the run's ``folder``."""
    if tracker not in TRACKERS:
        raise unknown_name("tracker", tracker, TRACKERS)
    return TrackingReporter(reporter, TRACKERS[tracker](folder), name=tracker)


def _tensorboard(folder: Path) -> Callable[[str], Write]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_extra("tensorboard", "tensorboard", "Writing TensorBoard events") from None

    def start(title: str) -> Write:
        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def write(epoch: int, scalars: Scalars) -> None:
            for name, value in scalars.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        return write

    return start


def _mlflow(folder: Path) -> Callable[[str], Write]:
    try:
        import mlflow
    except ImportError:
        raise missing_extra("mlflow", "mlflow", "Logging to MLflow") from None

    def start(title: str) -> Write:
        if "MLFLOW_TRACKING_URI" not in os.environ:
            mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').absolute()}")
        client: Any = mlflow.MlflowClient()
        known = client.get_experiment_by_name("srjt")
        experiment = client.create_experiment("srjt") if known is None else known.experiment_id
        run = client.create_run(experiment, run_name=folder.name, tags={"method": title}).info.run_id

        def write(epoch: int, scalars: Scalars) -> None:
            for name, value in scalars.items():
                client.log_metric(run, name.replace("[", ".").replace("]", ""), value, step=epoch)

        return write

    return start


def _wandb(folder: Path) -> Callable[[str], Write]:
    try:
        import wandb
    except ImportError:
        raise missing_extra("wandb", "wandb", "Logging to Weights & Biases") from None

    def start(title: str) -> Write:
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "srjt"),
            name=folder.name,
            tags=[title],
            dir=str(folder),
            mode=mode,
        )
        return lambda epoch, scalars: run.log(dict(scalars), step=epoch)

    return start


TRACKERS: dict[str, Callable[[Path], Callable[[str], Write]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
