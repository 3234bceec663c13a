"""Every number of a training, sent to an experiment tracker in addition to another reporter.

Each tracker is an extra. All of them work without a network: TensorBoard and MLflow write below the run's folder, and
Weights & Biases writes files there that ``wandb sync`` uploads. The usual variables of MLflow and Weights & Biases
(``MLFLOW_TRACKING_URI``, ``WANDB_MODE``, …) choose a server instead.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from srjt.errors import missing_extra, suggest
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import Reporter

__all__ = ["TRACKERS", "TrackingReporter", "track"]

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
        raise suggest("tracker", tracker, TRACKERS)
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
