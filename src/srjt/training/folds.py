"""The folds of a cross-fit: train on all other folds, predict the held-out samples, find similar samples for an
expert; one fold after another, or several at the same time in worker processes.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.images.feed import Feed, FeedCache, Samples
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.data.splits import Split
from srjt.errors import Interrupted, SrjtError, cores
from srjt.files import write_atomically
from srjt.methods.registry import import_modules, is_known_to_workers
from srjt.networks import takes_rows
from srjt.progress import Reporter
from srjt.training.batches import centre_batches, evaluation_batch_size, predict_probabilities
from srjt.training.checkpoint import parse_rows
from srjt.training.config import TrainConfig
from srjt.training.cost import available_memory, step_memory
from srjt.training.devices import amp_dtype, choose_device
from srjt.training.folder import is_finished
from srjt.training.reporters import BarReporter, FoldReporter
from srjt.training.single_run import single_run
from srjt.training.trained import Trained, use_run_settings
from srjt.training.workers import Ended, StopRequest, WorkerPool

# The most similar samples of each grade, for an expert to compare with.

Ints = npt.NDArray[np.int64]
BLOCK = 1024  # samples compared with all others at a time


@torch.no_grad()
def features(run: Trained, feed: Feed, rows: Ints) -> npt.NDArray[np.float32]:
    """Store rows (N,) → (N, F): the input of the last layer of the run's first network."""
    backbone = run.networks.members[0].backbone
    assert isinstance(backbone, torch.nn.Module)
    amp = amp_dtype(run.config, run.device)
    vectors = []
    size = evaluation_batch_size(feed, crop=run.config.crop, largest=run.config.eval_batch_size)
    with use_run_settings(run):
        for x, part in centre_batches(
            feed, torch.from_numpy(rows), preprocess=run.preprocess, batch_size=size
        ):
            with torch.autocast(x.device.type, amp or torch.bfloat16, enabled=amp is not None):
                vectors.append(backbone(x)[: part.stop - part.start].float().cpu())
    return torch.cat(vectors).numpy()


def nearest(
    vectors: npt.ArrayLike, queries: Ints, labels: npt.ArrayLike, *, num_classes: int, count: int = 4
) -> npt.NDArray[np.int32]:
    """(N, F) features, (M,) positions of the queries, (N,) grades → (M, C, count) positions, the most similar first.

    By cosine similarity; ties go to the earlier sample. A sample is not its own neighbour; −1: a grade has too few.
    """
    array = np.asarray(vectors, dtype=np.float32)
    length = np.linalg.norm(array, axis=1, keepdims=True)
    unit = array / np.maximum(length, np.finfo(np.float32).tiny)
    grades = np.asarray(labels)
    found = np.full((len(queries), num_classes, count), -1, dtype=np.int32)
    for grade in range(num_classes):
        members = np.flatnonzero(grades == grade)
        for start in range(0, len(queries), BLOCK):
            block = queries[start : start + BLOCK]
            distance = -(unit[block] @ unit[members].T)
            distance[block[:, None] == members[None, :]] = np.inf
            order = np.argsort(distance, axis=1, kind="stable")[:, :count]
            close = np.where(np.take_along_axis(distance, order, axis=1) < np.inf, members[order], -1)
            found[start : start + BLOCK, grade, : close.shape[1]] = close
    return found


# One fold of a cross-fit: train on all other folds, and predict the held-out samples.
#
# fold0/ …           the run, trained on all other folds
# fold0/held_out.npz the predictions of its networks for the held-out samples

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


# Train the folds of a cross-fit at the same time, in worker processes. The caller then opens the finished
# runs.

Jobs = int | Literal["auto"]

# Images, as if of 64 × 64 pixels, that a network sees in all folds, from which worker processes pay: these take ten
# seconds to start, in which two cores train a large network on a few hundred images and a small one on ten thousand.
PARALLEL_PAYS = 4_000
PARALLEL_PAYS_SMALL = 200_000
PROCESS_BYTES = 600 * 2**20  # of a process that has imported torch, and MONAI or timm

FEEDS = FeedCache()  # of a worker process


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How many folds at a time, on which devices, with how many threads in all."""

    devices: tuple[str, ...]
    threads: int | None = None

    def threads_of(self, k: int, *, folds: int) -> int | None:
        """Threads of fold ``k``: the last folds share all threads if they are fewer than the workers."""
        if self.threads is None:
            return None
        jobs = len(self.devices)
        full = folds // jobs * jobs
        return max(1, self.threads // (jobs if k < full else folds - full))


def choose_workers(
    jobs: Jobs,
    *,
    folds: int,
    samples: int,
    config: TrainConfig,
    device: str | None,
    own_code: bool,
    writes: bool,
    reporter: Reporter,
) -> Workers | None:
    """The workers for a cross-fit of ``samples``; None: one fold after the other, in this process.

    ``"auto"`` uses one worker per GPU; without a GPU one per core, as far as memory allows and if the trainings are
    long enough. It depends on the settings, the cores and the free memory, never on a measured time, because the number
    of threads of a fold changes the last bits of its result. A number of jobs makes it independent of the memory.

    own_code: whether a network or a transform of your own is used, which a worker cannot import. writes: whether the
    runs have a folder, through which workers return them.
    """
    if jobs == 1:
        return None
    if jobs != "auto" and jobs < 1:
        raise SrjtError(f"`jobs` must be at least 1, or auto; got {jobs}.")
    if reason := _why_alone(config, own_code=own_code, writes=writes):
        if jobs != "auto":
            raise SrjtError(f"Folds cannot be trained at the same time, because {reason}: use `jobs=1`.")
        reporter.note(f"Folds are trained one after the other, because {reason}.")
        return None
    chosen = choose_device(device)
    if chosen.type == "cuda":
        gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if device is None else [device]
        count = min(folds, len(gpus) if jobs == "auto" else jobs)
        return None if count < 2 else Workers(devices=tuple(gpus[i % len(gpus)] for i in range(count)))
    threads = min(cores(), torch.get_num_threads())
    if isinstance(jobs, int):
        count = min(folds, jobs)
    elif _is_long(config, folds * samples):
        count = min(folds, threads, _fit_in_memory(config, samples))
    else:
        count = 1
    return None if count < 2 else Workers(devices=("cpu",) * count, threads=threads)


def _why_alone(config: TrainConfig, *, own_code: bool, writes: bool) -> str:
    """Why no worker can train a fold; empty if it can."""
    if not writes:
        return "they have no folder in which worker processes could leave them"
    if own_code:
        return "worker processes cannot import a network or a transform of your own"
    if not is_known_to_workers(config.method, registered_by=config.imports):
        return (
            f"worker processes do not know the method {config.method!r}, which is registered in this session (name its "
            "module in `imports` to change that)"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "torchrun has started several processes"
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "this operating system has no fork server"
    return ""


def _is_long(config: TrainConfig, samples: int) -> bool:
    name = str(config.network)
    if takes_rows(name):  # rows of features are trained in seconds
        return False
    pays = PARALLEL_PAYS_SMALL if name.startswith("tiny") else PARALLEL_PAYS
    return samples * config.epochs * (config.crop / 64) ** 2 >= pays


def _fit_in_memory(config: TrainConfig, samples: int) -> int:
    """How many trainings fit in the memory that is available; at least one."""
    available = available_memory()
    if available is None:
        return 1
    return max(1, available // (PROCESS_BYTES + step_memory(config, batch=min(config.batch_size, samples))))


def train_in_parallel(folds: Folds, workers: Workers, *, reporter: Reporter) -> set[int]:
    """Train the folds that are not finished; returns their numbers."""
    count = len(folds)
    waiting = [k for k in range(count) if not is_finished(_folder(folds, k))]
    if not waiting:
        return set()
    trained = set(waiting)
    progress = _Progress(folds, reporter)
    pool = WorkerPool(devices=workers.devices, networks=(str(folds.config.network),))
    with StopRequest() as stop, pool:
        while pool.running or (waiting and stop.number is None):
            while waiting and pool.has_idle and stop.number is None:
                k = waiting.pop(0)
                pool.submit(str(k), _train_fold, folds, k, workers.threads_of(k, folds=count))
            if stop.number is not None:
                pool.terminate()
            for ended in pool.wait():
                if stop.number is None:
                    _raise_error(ended)
                for note in ended.result or ():
                    FoldReporter(reporter, before=0, title=f"Fold {int(ended.name) + 1} of {count}: ").note(
                        note
                    )
            progress.update()
        if stop.number is not None:
            raise Interrupted(stop.number, "Stopped; the state of every fold is saved.")
    return trained


def _train_fold(folds: Folds, k: int, threads: int | None, *, device: str | None) -> list[str]:
    """The task of a worker; returns the notes of the training."""
    config = folds.config
    import_modules(config.imports)
    if threads is not None:
        torch.set_num_threads(threads)
    store = open_store(
        folds.manifest,
        size=config.image_size,
        resize=config.resize,
        cache=folds.options["cache"],
        on_bad_image=folds.options["on_bad_image"],
        find_duplicates=True,
    )
    reporter = BarReporter()
    fit_fold(folds, k, store.pixels, device=device, feeds=FEEDS, reporter=reporter)
    return reporter.notes


def _raise_error(ended: Ended) -> None:
    if ended.error:
        raise SrjtError(ended.error) if ended.expected else RuntimeError(ended.error)
    if ended.death:
        raise SrjtError(
            f"The process that trained fold {int(ended.name) + 1} was ended {ended.death}: run the same command "
            "again, with `jobs=1` if memory is short. Finished folds are kept."
        )


def _folder(folds: Folds, k: int) -> Path:
    folder = folds.folder(k)
    assert folder is not None, "choose_workers requires it"
    return folder


class _Progress:
    """Reports the epochs of all folds as one sequence, read from their metrics."""

    def __init__(self, folds: Folds, reporter: Reporter) -> None:
        self.reporter = reporter
        self.files = [_folder(folds, k) / "metrics.csv" for k in range(len(folds))]
        self.sizes = [0] * len(self.files)
        self.epochs = [0] * len(self.files)

    def update(self) -> None:
        for k, file in enumerate(self.files):
            size = file.stat().st_size if file.exists() else 0
            if size == self.sizes[k]:
                continue
            self.sizes[k] = size
            content = file.read_bytes()
            try:
                rows = parse_rows(content[: content.rfind(b"\n") + 1])  # a line may be half written
            except ValueError:  # damaged by a power cut: its worker restores it from the checkpoint
                continue
            epoch = max((row.epoch for row in rows), default=0)
            if epoch > self.epochs[k]:
                self.epochs[k] = epoch
                latest = [row for row in rows if row.epoch == epoch]
                self.reporter.finished_epoch(sum(self.epochs), latest)
