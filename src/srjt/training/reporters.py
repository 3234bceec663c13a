"""Show the progress of a training: a bar in a terminal or a notebook, plain lines elsewhere, or
nothing; and send its numbers to an experiment tracker.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from srjt.errors import Message, missing_extra, unknown_name
from srjt.process import import_quietly
from srjt.progress import Bar, Forwarding, Lines, Reporter, TerminalBar, show_bar
from srjt.text import count_of
from srjt.training.checkpoint import MetricRow

LINES = 10  # of a training in a log, if it does not take long
SILENCE = 60.0  # seconds after which the next epoch has a line in any case


def headline(rows: list[MetricRow]) -> dict[str, float]:
    """The main numbers of an epoch, averaged over the networks.

    Those of the test side are not among them: whoever watches them will choose settings by them.
    """
    shown = (
        ("loss", "train", "loss"),
        ("lab.prec", "train", "label_precision"),
        ("val.acc", "validation", "accuracy"),
        ("val.mae", "validation", "mae"),
        ("samples/s", "train", "images_per_second"),
    )
    values = {}
    single = [row for row in rows if row.network not in ("ensemble", "pooled")]
    for title, split, metric in shown:
        numbers = [row.value for row in single if (row.split, row.metric) == (split, metric)]
        if numbers:
            values[title] = sum(numbers) / len(numbers)
    return values


def _text(values: dict[str, float]) -> str:
    return "  ".join(
        f"{name} {value:.{0 if name == 'samples/s' else 3}f}" for name, value in values.items()
    )


class BarReporter:
    """Shows a training by a bar, in the terminal or a notebook, by lines, or not at all; and keeps
    the notes.

    notes: of the trainings before this one, if they belong together; a note is shown once.
    """

    def __init__(self, bar: Bar | None = None, *, notes: list[str] | None = None) -> None:
        self.bar = bar or Bar()
        self.notes: list[str] = [] if notes is None else notes
        self.title = ""
        self.epochs = 1
        self.folds = 1
        self._latest = ""
        self._logged = time.monotonic()

    def __enter__(self) -> BarReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.title = title
        self.epochs = epochs
        self.folds = folds
        self._latest = ""
        self.bar.label = title
        self.bar.update(0, epochs * folds, now=True)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.bar.note(text)

    def embedded(self, done: int, total: int) -> None:
        """The features of so many images have been computed by a frozen backbone."""
        self.bar.update(done, total, f"{done:,}/{total:,}", label="computing features")

    def decoded(self, done: int, total: int) -> None:
        processed = f"{count_of(total, 'image file')} processed."  # some of them may be damaged
        # a search for identical images may decode them again
        if done == total and processed not in self.notes:
            self.notes.append(processed)
            self.bar.line(processed)
        self.bar.update(done, total, f"{done:,}/{total:,}", label="decoding images")

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self._show(epoch, epoch - 1 + step / steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        values = headline(rows)
        total = self.epochs * self.folds
        is_tenth = epoch % max(1, total // LINES) == 0
        if is_tenth or epoch == total or time.monotonic() - self._logged > SILENCE:
            self.bar.line(f"{self._position(epoch)}  {_text(values)}")
            self._logged = time.monotonic()
        main = "val.acc" if "val.acc" in values else "loss"
        self._latest = _text({name: values[name] for name in (main, "samples/s") if name in values})
        self._show(epoch, epoch, now=True)

    def _show(self, epoch: int, done: float, *, now: bool = False) -> None:
        position = self._position(epoch)
        total = self.epochs * self.folds
        self.bar.update(
            done, total, position, self._latest, label=self.title or "training", now=now
        )

    def _position(self, epoch: int) -> str:
        """ "epoch 3/10", or "fold 2/5, epoch 3/10"."""
        fold, within = divmod(epoch - 1, self.epochs)
        before = f"fold {fold + 1}/{self.folds}, " if self.folds > 1 else ""
        return f"{before}epoch {within + 1 if before else epoch}/{self.epochs}"


def reporter_for(*, quiet: bool = False, notes: list[str] | None = None) -> BarReporter:
    """The reporter for standard output: a bar in a terminal, lines in a file or pipe. notes: as of
    ``BarReporter``."""
    if quiet:
        return BarReporter(notes=notes)
    bar = TerminalBar("training", lasting=True, stderr=False) if sys.stdout.isatty() else Lines()
    return BarReporter(bar, notes=notes)


def reporter_in_python(
    reporter: Reporter | None, *, progress: bool
) -> AbstractContextManager[Reporter]:
    """The given reporter; without one, with ``progress``: a bar in a notebook or a terminal,
    nothing elsewhere.

    A script whose output goes to a file stays silent, as other libraries are.
    """
    if reporter is not None:
        return nullcontext(reporter)
    return BarReporter(show_bar("training", shown=progress, lasting=True))


class FoldReporter:
    """Reports the epochs of one fold as epochs of the whole cross-fit, after ``before`` epochs of
    other folds. told: notes about all folds, which are not repeated for one."""

    def __init__(
        self, inner: Reporter, *, before: int, title: str = "", told: Sequence[str] = ()
    ) -> None:
        self.inner = inner
        self.before = before
        self.title = title
        self.told = told

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        if text not in self.told:
            self.inner.note(Message(self.title, text))

    def decoded(self, done: int, total: int) -> None:
        pass

    def embedded(self, done: int, total: int) -> None:
        pass

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(self.before + epoch, step, steps)

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.inner.finished_epoch(self.before + epoch, rows)


# Every number of a training, sent to an experiment tracker in addition to another reporter.
#
# Each tracker is an extra. All of them work without a network: TensorBoard and MLflow write below
# the run's folder, and Weights & Biases writes files there that ``wandb sync`` uploads. The usual
# variables of MLflow and Weights & Biases (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``, …) choose a
# server instead.

Scalars = Mapping[str, float]
Write = Callable[[int, Scalars], None]  # epoch, name → value


class TrackingReporter(Forwarding):
    """Passes the numbers of every epoch to ``write``, too."""

    def __init__(self, inner: Reporter, start: Callable[[str], Write], *, name: str) -> None:
        super().__init__(inner)
        # started at the first epoch, because the run creates its folder first
        self.name = name
        self._start = start
        self._title = ""
        self._recording = True
        self._write: Write | None = None

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        super().begin(title, epochs=epochs, folds=folds)
        # the noise estimate's cross-fit is not part of the run
        self._title = title
        self._recording = folds == 1

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        super().finished_epoch(epoch, rows)
        if not self._recording:
            return
        try:
            self._write = self._write or self._start(self._title)
            self._write(epoch, {_tag(row): row.value for row in rows if math.isfinite(row.value)})
        except Exception as problem:  # a server that does not answer must not end a training
            self._recording = False
            reason = " ".join(str(problem).split())[:200] or type(problem).__name__
            self.note(
                f"Logging to {self.name} has stopped ({reason}); metrics.csv has every number."
            )


def _tag(row: MetricRow) -> str:
    return "/".join(part for part in (row.split, row.metric, row.network) if part)


def track(reporter: Reporter, tracker: str, folder: Path) -> TrackingReporter:
    """A reporter that also sends every number to ``tracker``; its files go below the run's
    ``folder``."""
    if tracker not in TRACKERS:
        raise unknown_name("tracker", tracker, TRACKERS)
    module, purpose, start = TRACKERS[tracker]
    try:
        import_quietly(module)
    except ImportError:
        raise missing_extra(tracker, tracker, purpose) from None
    return TrackingReporter(reporter, partial(start, folder), name=tracker)


def _tensorboard(folder: Path, title: str) -> Write:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(epoch: int, scalars: Scalars) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    return write


def _mlflow(folder: Path, title: str) -> Write:
    import mlflow

    if "MLFLOW_TRACKING_URI" not in os.environ:
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').absolute()}")
    client: Any = mlflow.MlflowClient()
    earlier = client.get_experiment_by_name("srjt")
    experiment = client.create_experiment("srjt") if earlier is None else earlier.experiment_id
    run = client.create_run(experiment, run_name=folder.name, tags={"method": title}).info.run_id

    def write(epoch: int, scalars: Scalars) -> None:
        for name, value in scalars.items():
            client.log_metric(run, name.replace("[", ".").replace("]", ""), value, step=epoch)

    return write


def _wandb(folder: Path, title: str) -> Write:
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    project = os.environ.get("WANDB_PROJECT", "srjt")
    run: Any = wandb.init(
        project=project, name=folder.name, tags=[title], dir=str(folder), mode=mode
    )
    return lambda epoch, scalars: run.log(dict(scalars), step=epoch)


# name → the module that it needs, what the error says if it is missing, and how it starts
TRACKERS: dict[str, tuple[str, str, Callable[[Path, str], Write]]] = {
    "tensorboard": ("torch.utils.tensorboard", "Writing TensorBoard events", _tensorboard),
    "mlflow": ("mlflow", "Logging to MLflow", _mlflow),
    "wandb": ("wandb", "Logging to Weights & Biases", _wandb),
}
