"""Cross-fitting: networks predict every sample without having been trained on it or on other
samples of its patient.

fold0/ …           one run per fold, trained on all other folds
fold0/held_out.npz the predictions of its networks for the held-out samples

The folds may be trained at the same time, in worker processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from srjt import files, methods
from srjt.data.images.feed import Feed, FeedCache, Samples
from srjt.data.images.store import ImageStore
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, assign_folds
from srjt.errors import Interrupted, Message, Option, SrjtError
from srjt.methods.joint import JointTraining
from srjt.networks import registry
from srjt.ordinal.metrics import Floats, Ints
from srjt.process import cores
from srjt.progress import Reporter
from srjt.text import count_of
from srjt.training import checkpoint, devices, single_run as one_run
from srjt.training.batches import evaluation_batch_size, view_batches
from srjt.training.config import ResolvedConfig, TrainConfig
from srjt.training.folder import is_finished
from srjt.training.reporters import BarReporter, FoldReporter
from srjt.training.sides import resolve_split, train_on
from srjt.training.trained import Setup, Trained, fetch_weights, use_run_settings
from srjt.training.workers import StopRequest, WorkerPool, has_forkserver

# The most similar samples of each grade, for an expert to compare with.

BLOCK = 1024  # samples compared with all others at a time


@torch.no_grad()
def features(run: Trained, feed: Feed, rows: Ints) -> npt.NDArray[np.float32]:
    """Store rows (N,) → (N, F): the input of the last layer of the run's first network."""
    amp = devices.amp_dtype(run.config, run.device)
    vectors = []
    size = evaluation_batch_size(feed, crop=run.config.crop, largest=run.config.eval_batch_size)
    with use_run_settings(run):
        batches = view_batches(
            feed, torch.from_numpy(rows), preprocess=run.preprocess, batch_size=size
        )
        for (x,), part in batches:
            with torch.autocast(x.device.type, amp or torch.bfloat16, enabled=amp is not None):
                vectors.append(run.networks.features(x)[: part.stop - part.start].float().cpu())
    return torch.cat(vectors).numpy()


def nearest(
    vectors: npt.ArrayLike, queries: Ints, labels: Ints, *, num_classes: int, count: int = 4
) -> npt.NDArray[np.int32]:
    """(N, F) features, (M,) positions of the queries, (N,) grades → (M, C, count) positions, the
    most similar first.

    By cosine similarity; ties go to the earlier sample. A sample is not its own neighbour; −1: a
    grade has too few.
    """
    array = np.asarray(vectors, dtype=np.float32)
    length = np.linalg.norm(array, axis=1, keepdims=True)
    unit = array / np.maximum(length, np.finfo(np.float32).tiny)
    neighbours = np.full((len(queries), num_classes, count), -1, dtype=np.int32)
    for grade in range(num_classes):
        members = np.flatnonzero(labels == grade)
        for start in range(0, len(queries), BLOCK):
            block = queries[start : start + BLOCK]
            distance = -(unit[block] @ unit[members].T)
            distance[block[:, None] == members[None, :]] = np.inf
            order = np.argsort(distance, axis=1, kind="stable")[:, :count]
            close = np.where(
                np.take_along_axis(distance, order, axis=1) < np.inf, members[order], -1
            )
            neighbours[start : start + BLOCK, grade, : close.shape[1]] = close
    return neighbours


# One fold of a cross-fit: train on all other folds, and predict the held-out samples.

Predicted = dict[
    str, npt.NDArray[Any]
]  # of the held-out samples: probabilities, grades, neighbours


@dataclass(frozen=True, kw_only=True)
class Folds:
    """What the trainings of a cross-fit have in common."""

    manifest: Manifest  # without true and verified grades
    config: ResolvedConfig
    stored: int  # samples in the image store
    rows: Ints  # (N,) rows of the samples in it
    labels: Ints  # (N,) their given grades
    fold: Ints  # (N,) the fold in which each is held out
    out: Path | None
    neighbours: int


def fit_fold(folds: Folds, k: int, pixels: Samples, setup: Setup) -> tuple[Trained, Predicted]:
    """Train fold ``k``, or open it if it is finished, and predict its held-out samples; a folder
    keeps both.

    pixels: of the image store, or the features of a frozen backbone.
    """
    held_out = np.flatnonzero(folds.fold == k)

    def others(readable: Manifest) -> Split:
        if len(readable) != folds.stored:
            raise SrjtError(
                "Other images can be read than when the folds were made: run the same command"
                " again.",
                code="data_changed",
            )
        return train_on(folds.rows[folds.fold != k])

    fold_setup = replace(setup, split=others)
    out = folds.out and folds.out / f"fold{k}"
    run = one_run.single_run(folds.manifest, config=folds.config, setup=fold_setup, out=out)
    if run.folder is not None:
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)  # a finished run needs none
        saved = files.load_arrays(run.folder / "held_out.npz")
        if (
            saved.keys() == {"held", "probabilities", "grades", "neighbours"}
            and np.array_equal(saved["held"], held_out)
            and saved["neighbours"].shape[-1] == folds.neighbours
        ):
            return run, saved
    feed = setup.feeds.open(pixels, device=run.device, share=run.config.memory_share)
    with use_run_settings(run):
        probabilities, grades = run.forward(feed).probabilities(
            torch.from_numpy(folds.rows[held_out])
        )
    classes = run.method.num_classes
    similar = np.empty((len(held_out), classes, 0), dtype=np.int32)
    if folds.neighbours:
        vectors = features(run, feed, folds.rows)
        similar = nearest(
            vectors, held_out, folds.labels, num_classes=classes, count=folds.neighbours
        )
    predicted = {
        "held": held_out,
        "probabilities": probabilities.numpy().astype(np.float64),
        "grades": grades.numpy(),
        "neighbours": similar,
    }
    if run.folder is not None:
        files.save_arrays(run.folder / "held_out.npz", predicted)
    return run, predicted


# Train the folds of a cross-fit at the same time, in worker processes. The caller then opens the
# finished runs.

Jobs = int | Literal["auto"]

# Images, as if of 64 × 64 pixels, that a network sees in all folds, from which worker processes
# pay: these take ten seconds to start, in which two cores train a large network on a few hundred
# images and a small one on ten thousand.
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
        """Threads of fold ``k``: the last folds share all threads if they are fewer than the
        workers."""
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
    config: ResolvedConfig,
    setup: Setup,
    out: Path | None,
) -> Workers | None:
    """The workers for a cross-fit of ``samples``; None: one fold after the other, in this process.

    ``"auto"`` uses one worker per GPU; without a GPU one per core, as far as memory allows and if
    the trainings are long enough. It depends on the settings, the cores and the free memory, never
    on a measured time, because the number of threads of a fold changes the last bits of its result.
    A number of jobs makes it independent of the memory.

    out: the folder of the runs, through which workers return them.
    """
    if jobs == 1:
        return None
    if jobs != "auto" and jobs < 1:
        raise SrjtError(
            Option("jobs"), f" must be at least 1, or auto; got {jobs}.", code="out_of_bounds"
        )
    if reason := _why_alone(config, setup, out):
        if jobs != "auto":
            raise SrjtError(
                "Folds cannot be trained at the same time, because ",
                reason,
                ": use ",
                Option("jobs", 1),
                ".",
                code="unsupported",
                option="jobs",
            )
        setup.reporter.note(Message("Folds are trained one after the other, because ", reason, "."))
        return None
    if devices.choose_device(setup.device).type == "cuda":
        all_gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        gpus = all_gpus if setup.device is None else [setup.device]
        count = min(folds, len(gpus) if jobs == "auto" else jobs)
        if count < 2:
            return None
        return Workers(devices=tuple(gpus[i % len(gpus)] for i in range(count)))
    threads = min(cores(), torch.get_num_threads())
    if isinstance(jobs, int):
        count = min(folds, jobs)
    else:
        row = registry.find(str(config.network))
        pays = PARALLEL_PAYS_SMALL if row.small else PARALLEL_PAYS
        seen = folds * samples * config.epochs * (config.crop / 64) ** 2
        available = available_memory()
        if row.reads == "rows" or seen < pays or available is None:
            return None  # rows of features are trained in seconds
        networks = methods.lookup(config.method, registered_by=config.imports).networks
        pixels = networks * min(config.batch_size, samples) * config.crop**2
        needed = PROCESS_BYTES + pixels * row.pixel_bytes
        count = min(folds, threads, available // needed)
    if count < 2:
        return None
    return Workers(devices=("cpu",) * count, threads=threads)


def available_memory() -> int | None:
    """Bytes of the machine that new processes may use; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _why_alone(config: TrainConfig, setup: Setup, out: Path | None) -> str:
    """Why no worker can train a fold; empty if it can."""
    if out is None:
        return "they have no folder in which worker processes could leave them"
    if any(part is not None for part in (setup.network, setup.transform, setup.eval_transform)):
        return "worker processes cannot import a network or a transform of your own"
    if not methods.is_known_to_workers(config.method, registered_by=config.imports):
        return Message(
            f"worker processes do not know the method {config.method!r}, which is registered in"
            " this session (name its module in ",
            Option("imports"),
            " to change that)",
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "torchrun has started several processes"
    if not has_forkserver():  # each worker would import torch again, for a short training
        return "this operating system has no fork server"
    return ""


def train_in_parallel(
    folds: Folds, workers: Workers, setup: Setup, *, told: Sequence[str] = ()
) -> set[int]:
    """Train the folds that are not finished; returns their numbers. told: notes about all folds,
    which are not repeated for one."""
    count = int(folds.fold.max()) + 1
    reporter = setup.reporter
    elsewhere = Setup(
        cache=setup.cache, on_bad_image=setup.on_bad_image
    )  # what a worker can be sent
    assert folds.out is not None, "choose_workers requires it"
    waiting = [k for k in range(count) if not is_finished(folds.out / f"fold{k}")]
    if not waiting:
        return set()
    trained = set(waiting)
    progress = _Progress([folds.out / f"fold{k}" / "metrics.csv" for k in range(count)], reporter)
    pool = WorkerPool(devices=workers.devices, networks=(str(folds.config.network),))
    with StopRequest() as stop, pool:
        while pool.running or (waiting and stop.number is None):
            while waiting and pool.has_idle and stop.number is None:
                k = waiting.pop(0)
                pool.submit(
                    str(k), _train_fold, folds, k, elsewhere, workers.threads_of(k, folds=count)
                )
            if stop.number is not None:
                stop.begin_saving()
                pool.terminate()
            for ended in pool.wait():
                if stop.number is None and ended.error:
                    if not ended.expected:
                        raise RuntimeError(ended.error)
                    raise SrjtError(ended.error, code=ended.code or "training_failed")
                if stop.number is None and ended.death:
                    raise SrjtError(
                        f"The process that trained fold {int(ended.name) + 1} was ended"
                        f" {ended.death}: run the same command again, with ",
                        Option("jobs", 1),
                        " if memory is short. Finished folds are kept.",
                        code="training_failed",
                    )
                for note in ended.result or ():
                    if note not in told:
                        reporter.note(Message(f"Fold {int(ended.name) + 1} of {count}: ", note))
            progress.update()
        if stop.number is not None:
            raise Interrupted(stop.number, "Stopped; every fold continues from its saved state.")
    return trained


def _train_fold(
    folds: Folds, k: int, setup: Setup, threads: int | None, *, device: str | None
) -> list[str]:
    """The task of a worker; returns the notes of the training."""
    methods.import_modules(folds.config.imports)
    if threads is not None:
        torch.set_num_threads(threads)
    reporter = BarReporter()
    setup = replace(setup, device=device)
    pixels = setup.inputs(setup.open_store(folds.manifest, folds.config), folds.config)
    fit_fold(folds, k, pixels, replace(setup, feeds=FEEDS, reporter=reporter))
    return reporter.notes


class _Progress:
    """Reports the epochs of all folds as one sequence, read from their metrics."""

    def __init__(self, files: list[Path], reporter: Reporter) -> None:
        self.files = files
        self.reporter = reporter
        self.sizes = dict.fromkeys(files, 0)
        self.epochs = dict.fromkeys(files, 0)

    def update(self) -> None:
        for file in self.files:
            size = file.stat().st_size if file.exists() else 0
            if size == self.sizes[file]:
                continue
            self.sizes[file] = size
            # one that a power cut has damaged is restored from the checkpoint by its worker
            with contextlib.suppress(ValueError):
                rows = checkpoint.parse_rows(file.read_bytes())
                epoch = max((row.epoch for row in rows), default=0)
                if epoch > self.epochs[file]:
                    self.epochs[file] = epoch
                    latest = [row for row in rows if row.epoch == epoch]
                    self.reporter.finished_epoch(sum(self.epochs.values()), latest)


# The cross-fit: all folds, put together.


@dataclass(frozen=True, kw_only=True, repr=False)
class CrossFit:
    """Out-of-fold predictions for N samples.

    Attributes
    ----------
    manifest : Manifest
        The N samples: those of the split's training side, without unreadable images.
    probabilities : ndarray, shape (N, C)
        Mean over the networks.
    by_network : ndarray, shape (K, N, C)
        Probabilities of each network.
    grades : ndarray, shape (K, N)
        Predicted grade of each network.
    fold : ndarray, shape (N,)
        The fold in which the sample was held out.
    selected : ndarray, shape (N,)
        Share of the times that the sample was selected as clean when it was trained on; nan for
        methods that select nothing.
    neighbours : ndarray, shape (N, C, count), optional
        Positions of the most similar samples of each given grade; −1 where there are too few.
    skipped : tuple of (str, str)
        (id, reason) of unreadable images.
    """

    manifest: Manifest
    probabilities: Floats
    by_network: Floats
    grades: Ints
    fold: Ints
    selected: Floats
    neighbours: npt.NDArray[np.int32] | None = None
    skipped: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        folds = len(np.unique(self.fold))
        return f"<CrossFit: {count_of(len(self.fold), 'sample')}, {count_of(folds, 'fold')}>"


def cross_fit(
    manifest: Manifest,
    *,
    config: TrainConfig,
    folds: int = 5,
    out: Path | None = None,
    setup: Setup | None = None,
    title: str = "",
    jobs: Jobs = 1,
    neighbours: int = 0,
) -> CrossFit:
    """Train once per fold on all other folds, and predict the held-out fold with each run.

    Folds are disjoint by patient and stratified by the *given* grades. True grades are not used,
    even where they are known.

    Parameters
    ----------
    manifest : Manifest
        The samples.
    config : TrainConfig
        Settings of the runs; ``noise_rate`` is a number, or not needed. ``seed`` also assigns
        samples to folds.
    folds : int
        Number of folds, at least 2.
    out : Path, optional
        Folder of the runs. Finished runs in it are reused, an unfinished one is resumed. Without it
        nothing is written.
    setup : Setup, optional
        Split, device, reporter and others, as for ``srjt.train``. Of a split only the training side
        is used.
    title : str
        What the progress is labelled with.
    jobs : int or "auto"
        Folds that are trained at the same time, in processes of their own; needs ``out``.
        ``"auto"``: one per GPU or CPU core, as far as memory allows and if the trainings are long
        enough. With the same number of threads per fold the result is the same for any number.
    neighbours : int
        How many similar samples of each grade to find for every sample.

    Returns
    -------
    CrossFit
        Out-of-fold predictions for every sample.

    Examples
    --------
    >>> import srjt
    >>> from srjt.training.config import TrainConfig
    >>> from srjt.training.crossfit import cross_fit
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> config = TrainConfig(method="sord", network="tiny", image_size=32, crop=28, epochs=1)
    >>> cross_fit(data, config=config, folds=2).probabilities.shape
    (60, 4)
    """
    if folds < 2:
        raise SrjtError(
            f"Cross-fitting needs at least 2 folds, not {folds}.",
            code="out_of_bounds",
            option="folds",
        )
    setup = setup or Setup()
    reporter = setup.reporter
    used = config.for_data(features=manifest.are_features, samples=len(manifest))
    workers = choose_workers(
        jobs, folds=folds, samples=len(manifest), config=used, setup=setup, out=out
    )
    if out is None or not all(is_finished(out / f"fold{k}") for k in range(folds)):
        fetch_weights(used, setup, features=manifest.are_features)
    at_once = 1 if workers is None else folds  # their epochs are counted together
    reporter.begin(title, epochs=used.epochs * at_once, folds=folds // at_once)
    store = setup.open_store(_without_truth(manifest), used)
    rows = resolve_split(setup.split, store.manifest, skipped=bool(store.skipped)).train
    samples = store.manifest.select(rows)
    fold = assign_folds(samples, folds=folds, seed=used.seed, by="stratified")
    told = [*one_run.about_skipped(store), *_rare_grades(samples)]
    for sentence in told:
        reporter.note(sentence)
    common = Folds(
        manifest=_of_store(manifest, store),
        config=used,
        stored=len(store),
        rows=rows,
        labels=samples.labels,
        fold=fold,
        out=out,
        neighbours=neighbours,
    )
    pixels = setup.inputs(store, used)
    trained = set() if workers is None else train_in_parallel(common, workers, setup, told=told)
    selections = _Selections(len(samples))
    predictions = []
    for k in range(folds):
        in_fold = FoldReporter(
            reporter, before=k * used.epochs, title=f"Fold {k + 1} of {folds}: ", told=told
        )
        watching = BarReporter() if k in trained else in_fold
        run, predicted = fit_fold(common, k, pixels, replace(setup, reporter=watching))
        in_fold.stepped(used.epochs, 1, 1)  # also if another process has trained this fold
        predictions.append(predicted)
        selections.add(run, np.flatnonzero(fold != k))
    of_all = _in_order_of_data(predictions)
    place = {name: row for row, name in enumerate(manifest.ids)}
    # with the true grades that the runs did not get, and the images as in the data
    same = manifest.select([place[name] for name in samples.ids])
    return CrossFit(
        manifest=replace(same, hashes=samples.hashes, duplicates=samples.duplicates),
        probabilities=of_all["probabilities"].mean(axis=0),
        by_network=of_all["probabilities"],
        grades=of_all["grades"],
        fold=fold,
        selected=selections.shares(),
        neighbours=of_all["neighbours"] if neighbours else None,
        skipped=tuple(store.skipped),
    )


def _in_order_of_data(predictions: Sequence[Predicted]) -> Predicted:
    """The predictions of all folds as one; networks are on the first axis of two of them."""
    order = np.argsort(np.concatenate([each["held"] for each in predictions]))
    return {
        "probabilities": np.concatenate([each["probabilities"] for each in predictions], axis=1)[
            :, order
        ],
        "grades": np.concatenate([each["grades"] for each in predictions], axis=1)[:, order],
        "neighbours": np.concatenate([each["neighbours"] for each in predictions])[order],
    }


def _without_truth(manifest: Manifest) -> Manifest:
    """No fold sees what is true or verified: grades that are verified later train nothing anew."""
    hidden = ["true_grade", "verified_grade", "verified_probability"]
    return replace(manifest, table=manifest.table.drop(columns=hidden, errors="ignore"))


def _of_store(manifest: Manifest, store: ImageStore) -> Manifest:
    """What the folds read: nothing that the store has done is done again in each of them."""
    shared = _without_truth(manifest)
    if not store.skipped:  # hash the images only once
        shared = store.manifest
    if store.path is None:  # images in memory: keep the resized ones, to resize only once
        shared = replace(shared, arrays=store.pixels)
    return shared


def _rare_grades(samples: Manifest) -> Iterator[str]:
    """Sentences about grades that only one patient has."""
    groups = np.array(samples.groups or samples.ids, dtype=object)
    for grade, name in enumerate(samples.grades):
        if len(set(groups[samples.labels == grade])) == 1:
            yield (
                f"Only one {'patient' if samples.patients else 'sample'} has the grade {name}:"
                " networks that are not trained on it cannot learn that grade."
            )


class _Selections:
    """How often joint training selects each sample, over the folds that are trained on it."""

    def __init__(self, samples: int) -> None:
        self.selected = np.zeros(samples)
        self.seen = np.zeros(samples)

    def add(self, run: Trained, rows: Ints) -> None:
        """Count the selections of a run. rows: (n,) the samples that it was trained on."""
        if isinstance(run.method, JointTraining):
            names = [f"selected_{network + 1}" for network in range(run.method.networks)]
            self.selected[rows] += run.history[names].to_numpy(np.float64).mean(axis=1)
            self.seen[rows] += run.history["seen"].to_numpy()

    def shares(self) -> npt.NDArray[np.float64]:
        """(N,) the share of times; nan of samples that no selection was made of."""
        return np.where(self.seen > 0, self.selected / np.maximum(self.seen, 1), np.nan)
