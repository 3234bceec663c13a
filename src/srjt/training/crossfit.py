"""Cross-fitting: networks predict every sample without having been trained on it or on other samples of its patient.

crossfit.json      the settings; other settings in the same folder are an error
fold0/ …           one run per fold, with its predictions: see folds.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from srjt._version import __version__
from srjt.data.images.feed import FeedCache
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, assign_folds
from srjt.errors import SrjtError
from srjt.files import is_foreign, made_by, read_json, write_json
from srjt.methods.joint import JointTraining
from srjt.progress import Reporter
from srjt.training.batches import Transform
from srjt.training.config import TrainConfig
from srjt.training.folder import HASHES_FILE, check_images, image_digest, is_finished
from srjt.training.folds import NO_ROWS, Folds, Jobs, choose_workers, fit_fold, train_in_parallel
from srjt.training.reporters import BarReporter, FoldReporter
from srjt.training.single_run import fingerprint, resolve_split
from srjt.training.trained import NetworkMaker, Trained, fetch_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FORMAT = 3


@dataclass(frozen=True, kw_only=True)
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
        Share of the times that the sample was selected as clean when it was trained on; nan for methods that select
        nothing.
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


def cross_fit(
    manifest: Manifest,
    *,
    config: TrainConfig,
    folds: int = 5,
    seed: int = 0,
    out: Path | None = None,
    split: Split | Callable[[Manifest], Split] | None = None,
    device: str | None = None,
    reporter: Reporter | None = None,
    title: str = "",
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    feeds: FeedCache | None = None,
    jobs: Jobs = 1,
    neighbours: int = 0,
    network: NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
) -> CrossFit:
    """Train once per fold on all other folds, and predict the held-out fold with each run.

    Folds are disjoint by patient and stratified by the *given* grades. True grades are not used, even where they are
    known.

    Parameters
    ----------
    manifest : Manifest
        The samples.
    config : TrainConfig
        Settings of the runs; ``noise_rate`` is a number, or not needed.
    folds : int
        Number of folds, at least 2.
    seed : int
        Seed of the assignment to folds.
    out : Path, optional
        Folder of the runs. Finished runs in it are reused, an unfinished one is resumed. Without it nothing is
        written.
    split : Split or callable, optional
        Only the samples of its training side are used.
    title : str
        What the progress is labelled with.
    jobs : int or "auto"
        Folds that are trained at the same time, in processes of their own; needs ``out``. ``"auto"``: one per GPU or
        CPU core, as far as memory allows and if the trainings are long enough. With the same number of threads per
        fold the result is the same for any number.
    neighbours : int
        How many similar samples of each grade to find for every sample.
    device, reporter, cache, on_bad_image, feeds, network, transform, eval_transform
        As for ``srjt.train``.

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
        raise SrjtError(f"Cross-fitting needs at least 2 folds, not {folds}.")
    config = config.for_data(features=manifest.are_features)
    reporter = reporter or BarReporter()
    workers = choose_workers(
        jobs,
        folds=folds,
        samples=len(manifest),
        config=config,
        device=device,
        own_code=any(part is not None for part in (network, transform, eval_transform)),
        writes=out is not None,
        reporter=reporter,
    )
    if out is None or not all(is_finished(out / f"fold{k}") for k in range(folds)):
        fitted = fetch_weights(config, network=network, features=manifest.are_features)
        if fitted is not None:
            reporter.note(fitted)
    if workers is None:
        reporter.begin(title, epochs=config.epochs, folds=folds)
    else:  # their epochs are counted together
        reporter.begin(title, epochs=config.epochs * folds)
    without_truth = replace(manifest, table=manifest.table.drop(columns="true_grade", errors="ignore"))
    store = open_store(
        without_truth,
        size=config.image_size,
        resize=config.resize,
        cache=cache,
        on_bad_image=on_bad_image,
        progress=reporter.decoded,
        find_duplicates=True,
    )
    if not store.skipped:  # hash the images only once
        without_truth = store.manifest
    if store.path is None:  # images in memory: keep the resized ones, to resize only once
        without_truth = replace(without_truth, arrays=store.pixels)
    rows = resolve_split(split, store.manifest, skipped=bool(store.skipped)).train
    samples = store.manifest.select(rows)
    fold = assign_folds(samples, folds=folds, seed=seed, by="stratified")
    _note_rare_grades(samples, reporter)
    if out is not None:
        _open_folder(out, samples, config=config, folds=folds, seed=seed)

    given = Folds(
        manifest=without_truth,
        config=config,
        rows=rows,
        labels=samples.labels,
        fold=fold,
        out=out,
        neighbours=neighbours,
        options={
            "cache": cache,
            "on_bad_image": on_bad_image,
            "network": network,
            "transform": transform,
            "eval_transform": eval_transform,
        },
    )
    trained: set[int] = set()
    if workers is not None:
        trained = train_in_parallel(given, workers, reporter=reporter)
    feeds = feeds or FeedCache()
    by_network: Floats | None = None
    grades = similar = None
    times_selected, times_seen = np.zeros(len(samples)), np.zeros(len(samples))
    for k in range(folds):
        held_out, trained_on = given.held_out(k), given.trained_on(k)
        fold_reporter = FoldReporter(reporter, before=k * config.epochs, title=f"Fold {k + 1} of {folds}: ")
        run, found = fit_fold(
            given,
            k,
            store.pixels,
            device=device,
            feeds=feeds,
            reporter=BarReporter() if k in trained else fold_reporter,
        )
        fold_reporter.stepped(config.epochs, 1, 1)  # also if another process has trained this fold
        if by_network is None or grades is None:
            networks = len(found["probabilities"])
            by_network = np.empty((networks, len(samples), samples.num_classes))
            grades = np.empty((networks, len(samples)), dtype=np.int64)
            similar = np.empty((len(samples), samples.num_classes, neighbours), dtype=np.int32)
        assert similar is not None
        by_network[:, held_out], grades[:, held_out] = found["probabilities"], found["grades"]
        similar[held_out] = found["neighbours"]
        if isinstance(run.method, JointTraining):
            times_selected[trained_on] += _times_selected(run)
            times_seen[trained_on] += run.history["seen"].to_numpy()
    assert by_network is not None
    assert grades is not None
    return CrossFit(
        manifest=_with_truth(samples, manifest),
        probabilities=by_network.mean(axis=0),
        by_network=by_network,
        grades=grades,
        fold=fold,
        selected=np.divide(
            times_selected, times_seen, out=np.full(len(samples), np.nan), where=times_seen > 0
        ),
        neighbours=similar if neighbours else None,
        skipped=tuple(store.skipped),
    )


def _times_selected(run: Trained) -> Floats:
    """(M,) how often each training sample was selected, mean over the networks."""
    names = [f"selected_{k + 1}" for k in range(run.method.networks)]
    times: Floats = run.history[names].to_numpy(np.float64).mean(axis=1)
    return times


def _with_truth(samples: Manifest, given: Manifest) -> Manifest:
    """The samples with the true grades that the runs did not get, and their images as given."""
    place = {name: row for row, name in enumerate(given.ids)}
    found = given.select([place[name] for name in samples.ids])
    return replace(found, hashes=samples.hashes, duplicates=samples.duplicates)


def _note_rare_grades(samples: Manifest, reporter: Reporter) -> None:
    groups = np.array(samples.groups or samples.ids, dtype=object)
    for grade, name in enumerate(samples.grades):
        count = len(set(groups[samples.labels == grade]))
        if count == 1:
            unit = "patient" if samples.patients else "sample"
            reporter.note(
                f"Only one {unit} has the grade {name}: networks that are not trained on it cannot learn that grade."
            )


class CrossFitFile(BaseModel, extra="forbid"):
    """``crossfit.json``."""

    format: Literal[3]
    srjt: str
    folds: int
    seed: int
    fingerprint: str
    images: str | None
    config: Annotated[TrainConfig, made_by(TrainConfig.from_dict)]


def _open_folder(out: Path, samples: Manifest, *, config: TrainConfig, folds: int, seed: int) -> None:
    """Write the settings, or compare with those in the folder; a folder with other settings is an error."""
    file = out / "crossfit.json"
    all_rows = Split(train=np.arange(len(samples)), validation=NO_ROWS, test=NO_ROWS)
    requested = {
        "format": FORMAT,
        "srjt": __version__,
        "folds": folds,
        "seed": seed,
        "fingerprint": fingerprint(samples, all_rows),
        "images": image_digest(samples),
        "config": config.to_dict(),
    }
    trained = any(
        out.glob("fold*")
    )  # an earlier call may have failed before it, for example for lack of a GPU
    if not file.exists() or not trained:
        own = (file, out / HASHES_FILE)
        if out.is_dir() and any(is_foreign(path) and path not in own for path in out.iterdir()):
            raise SrjtError(f"{out} already contains other files: choose another `out`.")
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / HASHES_FILE).unlink(missing_ok=True)
            write_json(file, requested)
        except OSError as problem:
            raise SrjtError(f"{out} cannot be written: {problem.strerror or problem}.") from None
        check_images(out, samples, recorded=image_digest(samples), what="cross-fit")
        return
    found = read_json(file, CrossFitFile)
    differences = [
        f"{name} was {old} and is now {new}"
        for name, old, new in (("folds", found.folds, folds), ("seed", found.seed, seed))
        if old != new
    ]
    for name, (old, new) in found.config.difference(config).items():
        if name not in requested:  # the seed is among both
            differences.append(f"{name} was {old!r} and is now {new!r}")
    if found.fingerprint != requested["fingerprint"]:
        differences.append("the samples or their labels are not the same")
    if differences:
        raise SrjtError(
            f"{out} was made with other settings ({'; '.join(differences)}): choose another `out`, or delete that "
            "folder."
        )
    check_images(out, samples, recorded=found.images, what="audit or estimate")
