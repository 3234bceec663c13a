"""Cross-fitting: every sample is judged by networks that have not seen it, nor anything else of its patient.

crossfit.json      what was asked, to refuse other settings in the same folder
fold0/ …           one run each, trained on all other folds
fold0/held_out.npz what its networks say of the samples that they have not seen
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from srjt._version import __version__
from srjt.data import Manifest, Split
from srjt.data.images.feed import Samples, open_feed
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.splits import assign_folds
from srjt.errors import SrjtError
from srjt.files import is_foreign, write_atomically, write_json
from srjt.methods import JointTraining
from srjt.training.config import TrainConfig
from srjt.training.engine.batches import Transform
from srjt.training.engine.cpu_tuning import applied
from srjt.training.engine.devices import amp_dtype
from srjt.training.engine.scoring import predict_probabilities
from srjt.training.neighbours import features, nearest
from srjt.training.record.progress import FoldReporter
from srjt.training.record.reporters import Reporter, SilentReporter
from srjt.training.single_run import fingerprint, resolve_split, single_run
from srjt.training.trained import NetworkMaker, Trained

__all__ = ["CrossFit", "cross_fit"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NO_ROWS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """What networks say of N samples that they were not trained on."""

    manifest: Manifest  # the N samples: without those left out, of a split only the training side
    probabilities: Floats  # (N, C), the mean over the networks
    by_network: Floats  # (K, N, C)
    grades: Ints  # (K, N) each network's own answer
    fold: Ints  # (N,) which fold held the sample out
    selected: (
        Floats  # (N,) share of the times it was selected where it was trained on; nan: nothing is selected
    )
    neighbours: npt.NDArray[np.int32] | None = (
        None  # (N, C, count) the most similar of each given grade; −1: none
    )
    skipped: tuple[tuple[str, str], ...] = ()  # (id, reason) of images that could not be read


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
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    neighbours: int = 0,
    network: NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
) -> CrossFit:
    """Train once per fold on all other folds, and let each run judge the fold that it has not seen.

    Folds are dealt by patient, stratified by the *given* grades: true ones, where they are known, are not
    looked at. out: finished runs in it are not repeated, an unfinished one is gone on with. split: only the
    samples of its training side take part. neighbours: how many similar samples of each grade to find.
    The rest is as for ``training.train.train``.
    """
    if folds < 2:
        raise SrjtError(f"Cross-fitting needs at least 2 folds, not {folds}.")
    config = config.for_data(features=manifest.are_features)
    reporter = reporter or SilentReporter()
    blind = replace(manifest, table=manifest.table.drop(columns="true_grade", errors="ignore"))
    store = open_store(
        blind,
        size=config.image_size,
        resize=config.resize,
        cache=cache,
        on_bad_image=on_bad_image,
        progress=reporter.decoded,
    )
    if store.path is None:  # resized in memory: once is enough
        blind = replace(blind, arrays=store.pixels)
    rows = resolve_split(split, store.manifest, skipped=bool(store.skipped)).train
    samples = store.manifest.select(rows)
    fold = assign_folds(samples, folds=folds, seed=seed)
    _say_what_is_rare(samples, reporter)
    if out is not None:
        _settle(out, samples, config=config, folds=folds, seed=seed)

    by_network: Floats | None = None
    grades = similar = None
    chosen, seen = np.zeros(len(samples)), np.zeros(len(samples))
    for k in range(folds):
        held, learnt = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        title = f"Fold {k + 1} of {folds}: "
        watch = FoldReporter(reporter, before=k * config.epochs, title=title)
        folder = None if out is None else out / f"fold{k}"
        run = single_run(
            blind,
            out=folder,
            split=_only(rows[learnt]),
            network=network,
            transform=transform,
            eval_transform=eval_transform,
            device=device,
            reporter=watch,
            config=config,
            cache=cache,
            on_bad_image=on_bad_image,
        )
        watch.stepped(config.epochs, 1, 1)  # also where an earlier process has done it
        found = _judged(run, store.pixels, rows, held, samples.labels, neighbours=neighbours)
        if by_network is None or grades is None:
            networks = len(found["probabilities"])
            by_network = np.empty((networks, len(samples), samples.num_classes))
            grades = np.empty((networks, len(samples)), dtype=np.int64)
            similar = np.empty((len(samples), samples.num_classes, neighbours), dtype=np.int32)
        assert similar is not None
        by_network[:, held], grades[:, held] = found["probabilities"], found["grades"]
        similar[held] = found["neighbours"]
        if isinstance(run.method, JointTraining):
            chosen[learnt] += _times_selected(run)
            seen[learnt] += run.history["seen"].to_numpy()
        if folder is not None:  # nobody goes on from a finished run
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    assert by_network is not None
    assert grades is not None
    return CrossFit(
        manifest=_with_truth(samples, manifest),
        probabilities=by_network.mean(axis=0),
        by_network=by_network,
        grades=grades,
        fold=fold,
        selected=np.divide(chosen, seen, out=np.full(len(seen), np.nan), where=seen > 0),
        neighbours=similar if neighbours else None,
        skipped=tuple(store.skipped),
    )


def _only(rows: Ints) -> Callable[[Manifest], Split]:
    """A training on these rows, with nothing evaluated on the way."""
    return lambda manifest: Split(train=rows, validation=NO_ROWS, test=NO_ROWS)


def _judged(
    run: Trained, pixels: Samples, rows: Ints, held: Ints, labels: Ints, *, neighbours: int
) -> dict[str, npt.NDArray[Any]]:
    """What a run says of the held-out samples; remembered in its folder, because it will never say otherwise.

    rows (N,): where the samples are in the store; held (M,): positions among them.
    """
    file = None if run.folder is None else run.folder / "held_out.npz"
    if file is not None and (known := _remembered(file, held, neighbours=neighbours)) is not None:
        return known
    feed = open_feed(pixels, device=run.device, share=run.config.memory_share)
    with applied(run.cpu, run.networks):
        probabilities, grades = predict_probabilities(
            run.networks,
            run.method,
            feed,
            torch.from_numpy(rows[held]),
            preprocess=run.preprocess,
            batch_size=run.config.eval_batch_size,
            amp=amp_dtype(run.config, run.device),
        )
    classes = run.method.num_classes
    similar = np.empty((len(held), classes, 0), dtype=np.int32)
    if neighbours:
        similar = nearest(features(run, feed, rows), held, labels, num_classes=classes, count=neighbours)
    found = {
        "held": held,
        "probabilities": probabilities.numpy().astype(np.float64),
        "grades": grades.numpy(),
        "neighbours": similar,
    }
    if file is not None:
        buffer = io.BytesIO()
        np.savez(buffer, **found)  # type: ignore[arg-type]
        write_atomically(file, buffer.getvalue())
    return found


def _remembered(file: Path, held: Ints, *, neighbours: int) -> dict[str, npt.NDArray[Any]] | None:
    damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*damaged), np.load(file, allow_pickle=False) as kept:
        found = {name: kept[name] for name in ("held", "probabilities", "grades", "neighbours")}
        if np.array_equal(found["held"], held) and found["neighbours"].shape[-1] == neighbours:
            return found
    return None


def _times_selected(run: Trained) -> Floats:
    """(M,) how often each training sample was selected, the networks averaged."""
    names = [f"selected_{k + 1}" for k in range(run.method.networks)]
    times: Floats = run.history[names].to_numpy(np.float64).mean(axis=1)
    return times


def _with_truth(samples: Manifest, given: Manifest) -> Manifest:
    """The samples with the true grades that the fits were not shown, and their images as they were given."""
    place = {name: row for row, name in enumerate(given.ids)}
    return given.select([place[name] for name in samples.ids])


def _say_what_is_rare(samples: Manifest, reporter: Reporter) -> None:
    owners = np.array(samples.patients or samples.ids, dtype=object)
    for grade, name in enumerate(samples.grades):
        who = len(set(owners[samples.labels == grade]))
        if who == 1:
            whose = "patient" if samples.patients else "sample"
            reporter.note(
                f"Only one {whose} has the grade {name}: networks that have not seen it cannot know that grade."
            )


def _settle(out: Path, samples: Manifest, *, config: TrainConfig, folds: int, seed: int) -> None:
    """Write down what is asked, or compare with what was; other settings do not go into the same folder."""
    file = out / "crossfit.json"
    everyone = Split(train=np.arange(len(samples)), validation=NO_ROWS, test=NO_ROWS)
    wanted = {
        "format": 1,
        "srjt": __version__,
        "folds": folds,
        "seed": seed,
        "fingerprint": fingerprint(samples, everyone),
        "config": config.to_dict(),
    }
    begun = any(
        out.glob("fold*")
    )  # else a device that is not there, say, ended it before anything was trained
    if not file.exists() or not begun:
        if out.is_dir() and any(is_foreign(path) and path != file for path in out.iterdir()):
            raise SrjtError(f"{out} holds something else already: choose another --out.")
        out.mkdir(parents=True, exist_ok=True)
        write_json(file, wanted)
        return
    try:
        found = json.loads(file.read_text())
        was, before = TrainConfig.from_dict(found["config"]), found["fingerprint"]
        differences = [
            f"{name} was {found[name]} and is now {wanted[name]}"
            for name in ("folds", "seed")
            if found[name] != wanted[name]
        ]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(f"{file} is damaged or not from srjt ({problem}).") from None
    for name, (old, new) in was.difference(config).items():
        if name not in wanted:  # the seed is in both
            differences.append(f"{name} was {old!r} and is now {new!r}")
    if before != wanted["fingerprint"]:
        differences.append("the samples or their labels are not the same")
    if differences:
        raise SrjtError(
            f"{out} was made with other settings ({'; '.join(differences)}): choose another --out, or delete that "
            "folder."
        )
