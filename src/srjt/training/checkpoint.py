"""What a training writes while it runs: ``metrics.csv``, one number per line, and checkpoints that
survive a crash at any moment.
"""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from srjt.errors import Message, SrjtError, warn
from srjt.files import explain_write_errors, remove_unfinished, write_atomically
from srjt.ordinal.metrics import METRICS, summary

# ``metrics.csv``: one number per line (epoch, split, network, metric, value), readable during the
# training.

HEADER = ("epoch", "split", "network", "metric", "value")
LAST = 10  # the paper averages over the last ten epochs
TO_RESUME = "Free some space and run the same command again to resume."
BEST_EPOCH = "best_epoch"  # recorded every epoch by runs that keep the best one


class MetricRow(NamedTuple):
    epoch: int
    split: str  # train, validation, test; wrong_labels: of the training side, if they are tracked
    network: str  # 1, 2, ensemble, pooled; empty for numbers of the whole run
    metric: str
    value: float


def metric_rows(epoch: int, split: str, counts: np.ndarray) -> list[MetricRow]:
    """(K + 1, C, C) counts → the rows of one split: each network, and for two networks their
    ensemble and pool."""
    *single, ensemble = counts
    named = {str(k + 1): confusion for k, confusion in enumerate(single)}
    if len(single) > 1:
        named |= {"ensemble": ensemble, "pooled": np.sum(single, axis=0)}
    rows = []
    for network, confusion in named.items():
        for metric, value in summary(confusion).items():
            rows.append(MetricRow(epoch, split, network, metric, value))
    return rows


class MetricsLog:
    """Append-only; each epoch is written at once. Without a path the rows are kept in memory
    only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[MetricRow] = []

    def resume(self, rows: Iterable[MetricRow]) -> None:
        """Start from these rows, those of a checkpoint: the file is written anew, whatever became
        of it."""
        self.rows = list(rows)
        if self.path is not None:
            with self._explained():
                write_atomically(self.path, self.content())

    def content(self) -> bytes:
        """The file as it should be: what a checkpoint keeps of it."""
        return _format([HEADER, *self.rows]).encode()

    def add(self, rows: list[MetricRow]) -> None:
        self.rows += rows
        if self.path is not None:
            with self._explained(), open(self.path, "a", newline="", encoding="utf-8") as file:
                file.write(_format(rows))

    def sync(self) -> None:
        """Flush to disk, so that the file of a finished run survives a power cut."""
        if self.path is not None:
            # Windows syncs writable files only
            with self._explained(), open(self.path, "r+b") as file:
                os.fsync(file.fileno())

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=list(HEADER))

    def _explained(self) -> AbstractContextManager[None]:
        return explain_write_errors(f"{self.path} cannot be written", TO_RESUME)


def read_metrics(path: Path, *, epochs: int | None = None) -> pd.DataFrame:
    """The table of a run, finished or not; a half-written last line is dropped.

    epochs: of a finished run; an error unless all of them are there, each with as many numbers.
    """
    if not path.exists():
        raise SrjtError(
            f"There are no metrics at {path}: the run has not started, or this is not its folder.",
            code="missing_file",
        )
    try:
        metrics = pd.DataFrame(parse_rows(path.read_bytes()), columns=list(HEADER))
    except (OSError, ValueError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem}).", code="damaged_file"
        ) from None
    numbers, counts = np.unique(metrics["epoch"].to_numpy(), return_counts=True)
    if epochs is not None and (
        numbers.tolist() != list(range(1, epochs + 1)) or len(set(counts)) != 1
    ):
        raise SrjtError(f"{path} does not contain all epochs of the run.", code="damaged_file")
    return metrics


def parse_rows(content: bytes) -> list[MetricRow]:
    """The rows in the text of a ``metrics.csv``; ValueError if it is something else."""
    text = content.decode()
    whole = text[: text.rfind("\n") + 1]  # a line without its end is half-written
    rows = []
    try:
        for epoch, split, network, metric, value in csv.reader(whole.splitlines()[1:]):
            rows.append(MetricRow(int(epoch), split, network, metric, float(value)))
        return rows
    except csv.Error as problem:
        raise ValueError(str(problem)) from None


def best_epoch(rows: Iterable[MetricRow], metric: str) -> int | None:
    """The epoch with the best value of a metric on the validation side, the first of equal ones;
    None without one.

    Two networks are judged by their ensemble. An undefined value (nan) is never the best.
    """
    sign = -1.0 if METRICS[metric].lower_is_better else 1.0
    scores = [row for row in rows if row.split == "validation" and row.metric == metric]
    judged = "ensemble" if any(row.network == "ensemble" for row in scores) else "1"
    values = {row.epoch: sign * row.value for row in scores if row.network == judged}
    defined = [epoch for epoch, value in values.items() if not np.isnan(value)]
    return max(defined, key=lambda epoch: (values[epoch], -epoch), default=None)


def kept_epoch(metrics: pd.DataFrame) -> int | None:
    """The epoch whose networks a run has kept, if that is not the last."""
    recorded = metrics[metrics["metric"] == BEST_EPOCH] if len(metrics) else metrics
    if len(recorded):
        return int(recorded["value"].iloc[-1])
    return None


def last_epochs(metrics: pd.DataFrame, *, pooled: bool = False) -> pd.DataFrame:
    """The numbers that the paper reports: per split and metric the mean over the last ten epochs
    and the networks.

    Of a run that keeps the best epoch, the numbers of that epoch.

    pooled: as in the published code, the metric of the two networks' pooled predictions instead of
    the mean of their metrics. Columns: split, metric, value (mean), std (over those epochs).
    """
    scores = metrics[metrics["split"].isin(["validation", "test"])]
    if scores.empty:
        return pd.DataFrame(columns=["split", "metric", "value", "std"])
    kept = kept_epoch(metrics)
    epochs = scores["epoch"]
    recent = scores[epochs > epochs.max() - LAST if kept is None else epochs == kept]
    single = sorted(set(recent["network"]) - {"ensemble", "pooled"})
    reported = ["pooled"] if pooled and "pooled" in set(recent["network"]) else single
    per_epoch = (
        recent[recent["network"].isin(reported)]
        .groupby(["split", "metric", "epoch"])["value"]
        .mean()
    )
    grouped = per_epoch.groupby(["split", "metric"])
    return pd.DataFrame({"value": grouped.mean(), "std": grouped.std(ddof=0)}).reset_index()


def _format(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow(
            repr(float(cell)) if isinstance(cell, (float, np.floating)) else cell for cell in row
        )
    return text.getvalue()


# Checkpoints that survive a crash at any moment: each is written to a draft, synced and renamed;
# two are kept.
#
# One file contains everything: tensors as safetensors, the rest as JSON in its header. Nothing is
# ever unpickled.

KEPT = 2


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors (on the CPU) and JSON values to one safetensors file with a checksum,
    atomically."""
    from safetensors.torch import save

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    text = json.dumps(meta)
    # one entry: safetensors writes several in an order that varies from process to process
    facts = {"srjt": f"{checksum(contiguous, text)} {text}"}
    write_atomically(path, save(contiguous, metadata=facts))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write`` wrote; an error if the file is truncated, damaged or something else."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            written, _, text = (file.metadata() or {})["srjt"].partition(" ")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta: dict[str, Any] = dict(json.loads(text))
    except (
        SafetensorError,
        OSError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        struct.error,
    ) as problem:
        raise SrjtError(
            f"{path} is not a readable checkpoint ({problem}).", code="damaged_file"
        ) from None
    if written != str(checksum(tensors, text)):
        raise SrjtError(f"{path} is damaged: its checksum does not match.", code="damaged_file")
    return tensors, meta


def checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """CRC-32 over everything: safetensors detects a truncated file, but not a changed number or a
    flipped bit.

    text: the JSON values in the header.
    """
    value = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        facts = f"{name} {tensors[name].dtype} {list(tensors[name].shape)}"
        value = zlib.crc32(facts.encode("utf-8", "surrogatepass"), value)
        flat = tensors[name].contiguous().reshape(-1)
        if flat.numel():
            value = zlib.crc32(np.ascontiguousarray(flat.view(torch.uint8).numpy()).data, value)
    return value


def latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole checkpoint; damaged ones are skipped with a warning."""
    files = sorted(folder.glob("step-*.safetensors"))
    while files:
        try:
            return read(files.pop())
        except SrjtError as problem:
            fallback = "Starting from the beginning."
            if files:
                fallback = "Falling back to the previous checkpoint."
            warn(Message(problem, f" {fallback}"))
    return None


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time; a failure is raised at the next call."""

    def __init__(self, folder: Path) -> None:
        with explain_write_errors(f"Checkpoints cannot be written to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished(folder)
        self.folder = folder
        self._written: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._written is not None and not self._written.done()

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, step: int) -> None:
        """Copy the tensors now and write them later. ``step`` (of the whole training) orders the
        files."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        path = self.folder / f"step-{step:010d}.safetensors"
        pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written = pool.submit(self._write, path, copies, dict(meta))
        pool.shutdown(wait=False)

    def _write(self, path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        write(path, tensors, meta)
        # A later one was damaged: this training resumed from an earlier one.
        before = sorted(p for p in self.folder.glob("step-*.safetensors") if p.name <= path.name)
        for other in self.folder.glob("step-*.safetensors"):
            if other not in before[-KEPT:]:
                other.unlink(missing_ok=True)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk."""
        written = self._written
        self._written = None
        advice = f"The previous one is kept. {TO_RESUME}"
        with explain_write_errors(f"A checkpoint could not be written to {self.folder}", advice):
            if written is not None:
                written.result()
