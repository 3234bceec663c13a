"""One fold of a cross-fit: train on all other folds, and predict the held-out samples.

fold0/ …           the run, trained on all other folds
fold0/held_out.npz the predictions of its networks for the held-out samples
"""

from __future__ import annotations

import contextlib
import io
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from srjt.data import Manifest, Split
from srjt.data.images.feed import FeedCache, Samples
from srjt.files import write_atomically
from srjt.training.config import TrainConfig
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.engine.devices import amp_dtype
from srjt.training.engine.scoring import predict_probabilities
from srjt.training.neighbours import features, nearest
from srjt.training.record.reporters import Reporter
from srjt.training.single_run import single_run
from srjt.training.trained import Trained, use_run_settings

__all__ = ["NO_ROWS", "Folds", "Predicted", "fit_fold"]

Ints = npt.NDArray[np.int64]
Predicted = dict[str, npt.NDArray[Any]]  # of the held-out samples: probabilities, grades, neighbours
NO_ROWS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Folds:
    """What the trainings of a cross-fit have in common."""

    manifest: Manifest  # without true grades
    config: TrainConfig
    rows: Ints  # (N,) rows of the samples in the image store
    labels: Ints  # (N,) their given grades
    fold: Ints  # (N,) the fold in which each is held out
    out: Path | None
    neighbours: int
    options: Mapping[str, Any] = field(default_factory=dict)  # others of single_run

    def __len__(self) -> int:
        return int(self.fold.max()) + 1

    def folder(self, k: int) -> Path | None:
        return None if self.out is None else self.out / f"fold{k}"

    def held_out(self, k: int) -> Ints:
        return np.flatnonzero(self.fold == k)

    def trained_on(self, k: int) -> Ints:
        return np.flatnonzero(self.fold != k)


def fit_fold(
    folds: Folds,
    k: int,
    pixels: Samples,
    *,
    device: str | None,
    cpu_setting: CpuSetting | None,
    feeds: FeedCache,
    reporter: Reporter,
) -> tuple[Trained, Predicted]:
    """Train fold ``k``, or open it if it is finished, and predict its held-out samples.

    pixels: of the image store.
    """
    run = single_run(
        folds.manifest,
        out=folds.folder(k),
        split=_train_on(folds.rows[folds.trained_on(k)]),
        device=device,
        reporter=reporter,
        config=folds.config,
        cpu_setting=cpu_setting,
        feeds=feeds,
        **folds.options,
    )
    found = _predict_held_out(run, folds, folds.held_out(k), pixels, feeds=feeds)
    if run.folder is not None:  # a finished run needs none
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    return run, found


def _train_on(rows: Ints) -> Callable[[Manifest], Split]:
    """A split that trains on these rows and evaluates nothing."""
    return lambda manifest: Split(train=rows, validation=NO_ROWS, test=NO_ROWS)


def _predict_held_out(
    run: Trained, folds: Folds, held_out: Ints, pixels: Samples, *, feeds: FeedCache
) -> Predicted:
    """Predictions of a run for the samples at the positions ``held_out`` (M,), cached in its folder."""
    file = None if run.folder is None else run.folder / "held_out.npz"
    if (
        file is not None
        and (cached := _read_held_out(file, held_out, neighbours=folds.neighbours)) is not None
    ):
        return cached
    feed = feeds.open(pixels, device=run.device, share=run.config.memory_share)
    with use_run_settings(run):
        probabilities, grades = predict_probabilities(
            run.networks,
            run.method,
            feed,
            torch.from_numpy(folds.rows[held_out]),
            preprocess=run.preprocess,
            batch_size=run.config.eval_batch_size,
            amp=amp_dtype(run.config, run.device),
        )
    classes = run.method.num_classes
    similar = np.empty((len(held_out), classes, 0), dtype=np.int32)
    if folds.neighbours:
        vectors = features(run, feed, folds.rows)
        similar = nearest(vectors, held_out, folds.labels, num_classes=classes, count=folds.neighbours)
    found = {
        "held": held_out,
        "probabilities": probabilities.numpy().astype(np.float64),
        "grades": grades.numpy(),
        "neighbours": similar,
    }
    if file is not None:
        buffer = io.BytesIO()
        np.savez(buffer, **found)  # type: ignore[arg-type]
        write_atomically(file, buffer.getvalue(), follow_links=False)
    return found


def _read_held_out(file: Path, held_out: Ints, *, neighbours: int) -> Predicted | None:
    damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*damaged), np.load(file, allow_pickle=False) as saved:
        found = {name: saved[name] for name in ("held", "probabilities", "grades", "neighbours")}
        if np.array_equal(found["held"], held_out) and found["neighbours"].shape[-1] == neighbours:
            return found
    return None
