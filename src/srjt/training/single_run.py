"""One training: from a manifest to a trained model, in a folder from which it resumes; the files of
the finished run, and how long a training will take.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt import networks as backbones
from srjt.data.grades import Grades
from srjt.data.images.feed import Feed, Samples
from srjt.data.images.store import ImageStore
from srjt.data.leakage import traces_of, write_traces
from srjt.data.manifest import Ints, Manifest, as_features
from srjt.data.splits import Split
from srjt.errors import Option, SrjtError, unknown_name
from srjt.files import explain_write_errors, write_atomically
from srjt.text import count_of, few
from srjt.training import checkpoint, devices, folder as run_folder, trained
from srjt.training.batches import ReaderTargets, TrainingSet
from srjt.training.config import CHOOSE_HEAD, HEAD, ODDS, ResolvedConfig, TrainConfig
from srjt.training.fit_odds import fit_at_once
from srjt.training.frozen import features_and_seconds, frozen_facts, frozen_sentences
from srjt.training.held_out import HeldOut, held_out_side, write_held_out
from srjt.training.image_identity import image_digest
from srjt.training.loop import Side, TrainingResult, as_tensor, fit
from srjt.training.provenance import describe_provenance, describe_source
from srjt.training.reader_targets import training_targets
from srjt.training.reporters import FoldReporter
from srjt.training.sides import no_validation_side, resolve_split
from srjt.training.step import weights
from srjt.training.trained import Setup, SplitChoice, Trained

# The files of a finished run: what its training has found, written once and read again.


def write_results(folder: Path, run: Trained, *, fitted: TrainingResult) -> None:
    """Write the weights, the history, the predictions for the held-out sides and the summary of a
    run."""
    config = run.config
    final = {name: tensor.detach().cpu() for name, tensor in weights(run.networks).items()}
    advice = (
        "Free some space and run the same command again: the training itself is saved in its"
        " checkpoint."
    )
    with explain_write_errors(f"The results cannot be written to {folder}", advice):
        checkpoint.write(folder / "weights.safetensors", final, {"epochs": fitted.kept_epoch})
        write_atomically(folder / "history.csv", run.history.to_csv(index=False).encode())
        write_held_out(folder, run.held_out)
        run_folder.write_skipped(folder, run.skipped)
        write_traces(folder, run.traces)
        averages = checkpoint.last_epochs(
            fitted.metrics, pooled=config.convention == "published-code"
        )
        run_folder.write_summary(
            folder,
            {
                "epochs": fitted.epochs,
                **({"kept_epoch": fitted.kept_epoch} if config.keep == "best" else {}),
                "last_epochs": averages.to_dict("records"),
                "confusion": {name: fitted.confusions[name].tolist() for name in run.held_out},
                "files": run_folder.digests(folder),
            },
        )


def finished_metrics(folder: Path) -> pd.DataFrame:
    """The metrics of a finished run, or an error if one of its files is not as the run has written
    it."""
    try:
        epochs = run_folder.read_summary(folder)["epochs"]
        metrics = checkpoint.read_metrics(folder / "metrics.csv", epochs=epochs)
    except SrjtError as problem:
        raise SrjtError(
            problem, f" The run in {folder} is finished: {run_folder.RESTORE}", code=problem.code
        ) from None
    run_folder.check_files(folder)
    return metrics


# One training: from a manifest to a trained model, in a folder from which it resumes.

# the training samples whose labels are wrong, evaluated as if they were a side
WRONG_LABELS = "wrong_labels"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a run came about, for ``run.json``."""

    noise: dict[str, Any] | None = None  # where the noise rate comes from
    # the mean held-out log-likelihood by network, if the network was chosen by it
    head: dict[str, float] | None = None
    # whether a small network is trained because no pretrained weights of a backbone were found
    weights_missing: bool = False
    grade_names: Mapping[str, str] | None = None
    command: str | None = None


def single_run(
    data: Manifest,
    *,
    config: TrainConfig,
    setup: Setup,
    out: str | Path | None = None,
    origin: Origin | None = None,
) -> Trained:
    """Train one run whose configuration is complete: ``noise_rate`` is a number, or not needed.

    The arguments are those of ``srjt.train``.
    """
    origin = origin or Origin()
    config = config.for_data(features=data.are_features, samples=len(data))
    _check_inputs(data, config, setup)
    device = devices.choose_device(setup.device)
    devices.refuse_bf16_on_cpu(config.precision, device)
    process = devices.join_process_group(device)
    folder = None if out is None else Path(out)
    method = trained.build_method(config, num_classes=data.num_classes)
    store = setup.open_store(data, config)
    manifest = store.manifest
    for sentence in about_skipped(store):
        setup.reporter.note(sentence)
    parts = _checked_split(setup.split, manifest, config, skipped=bool(store.skipped))
    readers = training_targets(manifest, parts.train, config, method)

    in_shape = _in_shape(store, config, setup)
    used = manifest.select(np.concatenate(list(parts.sides().values())), images=False)
    finished = folder is not None and run_folder.is_finished(folder)
    pixels = store.pixels if finished else setup.inputs(store, config)
    about = _about_backbone(manifest, config, setup, origin)
    described = _data_facts(manifest, parts, used, in_shape=in_shape, unreadable=len(store.skipped))
    facts = run_folder.RunFacts(
        config=config,
        grades=Grades(manifest.grades, origin.grade_names),
        data=run_folder.DataFacts(**described, **about),
        own_network=setup.network is not None,
        noise=origin.noise,
        head=origin.head,
        provenance=describe_provenance(
            device, command=origin.command, processes=process.world_size
        ),
    )
    if folder is not None and finished:
        run_folder.open_run_folder(folder, facts, used)  # raises an error if it is a different run
        return _finished_run(folder, setup)
    networks = trained.build_networks(config, method, in_shape=in_shape, network=setup.network)
    if pixels.ndim == 2:
        backbones.standardise(networks.members, as_features(pixels[parts.train]))
    # Not earlier: missing weights must not leave a run folder behind.
    with run_folder.lock_run_folder(folder if process.is_main else None, facts, used) as begun:
        # before the networks are on the device: the memory that is free decides where images go
        feed = setup.feeds.open(pixels, device=device, share=config.memory_share)
        run = trained.ready_to_compute(
            networks, method, replace(begun, config=config), setup, folder=folder
        )
        _announce(run, manifest, parts, setup, about)
        run, result = _train(
            run, manifest, parts, setup, feed=feed, pixels=pixels, readers=readers, process=process
        )
        run = replace(
            run,
            skipped=tuple(store.skipped),
            hashes=used.hashes,
            traces=traces_of(manifest.select(parts.train)),
        )
        if process.is_main and folder is not None:
            write_results(folder, run, fitted=result)
    return run


def _train(
    run: Trained,
    manifest: Manifest,
    parts: Split,
    setup: Setup,
    *,
    feed: Feed,
    pixels: Samples,
    readers: ReaderTargets,
    process: devices.Process,
) -> tuple[Trained, TrainingResult]:
    """Train the networks, and predict the samples that were held out: the run with both."""
    training, sides = _tensors(manifest, parts, feed, run, readers)
    with _training_flags(run.config, run.device, run.in_shape):
        if run.config.network == ODDS:
            rows = as_features(pixels[parts.train])
            samples = manifest.select(parts.train, images=False)
            result = fit_at_once(
                run, training, sides, samples=samples, rows=rows, reporter=setup.reporter
            )
        else:
            result = fit(run, training, sides, reporter=setup.reporter, process=process)
        # with the flags and batches of the training, so that the scores agree with its metrics
        held_out = _held_out(run, manifest, feed, sides) if process.is_main else {}
        run.networks.compiled = []  # other samples would be compiled again
    run = replace(
        run,
        networks=run.networks.eval(),
        metrics=result.metrics,
        history=_with_labels(result.history, manifest, parts.train),
        held_out=held_out,
    )
    return run, result


@contextlib.contextmanager
def _training_flags(
    config: ResolvedConfig, device: torch.device, in_shape: tuple[int, ...]
) -> Iterator[None]:
    """With torch's flags for this training and random numbers of its own; a GPU that is too small
    is an error that says what to change."""
    forked = [device] if device.type == "cuda" else []
    try:
        with devices.torch_flags(config, device), torch.random.fork_rng(devices=forked):
            yield
    except torch.cuda.OutOfMemoryError:
        raise _too_large(config, in_shape) from None


def _in_shape(store: ImageStore, config: ResolvedConfig, setup: Setup) -> tuple[int, ...]:
    """The shape of one sample as the networks get it."""
    if store.manifest.are_features:
        return tuple(store.pixels.shape[1:])
    side = config.crop if setup.transform is None else config.image_size
    return (3, side, side)


def _about_backbone(
    manifest: Manifest, config: ResolvedConfig, setup: Setup, origin: Origin
) -> dict[str, Any]:
    """What ``run.json`` says of a frozen backbone, or of one whose weights are missing."""
    about: dict[str, Any] = {"weights_missing": True} if origin.weights_missing else {}
    if config.backbone is not None:
        about["frozen"] = frozen_facts(manifest, config, seconds=setup.features.seconds)
    return about


def about_skipped(store: ImageStore) -> list[str]:
    """A sentence about images that cannot be read, if there are any."""
    if not store.skipped:
        return []
    count = count_of(len(store.skipped), "unreadable image is", "unreadable images are")
    return [f"{count} skipped: {few(name for name, _ in store.skipped)}."]


def _checked_split(
    split: SplitChoice, manifest: Manifest, config: ResolvedConfig, *, skipped: bool
) -> Split:
    parts = resolve_split(split, manifest, skipped=skipped)
    _check_samples(manifest, parts)
    if config.keep == "best" and not len(parts.validation):
        raise no_validation_side()
    return parts


def _finished_run(folder: Path, setup: Setup) -> Trained:
    """The run of a folder in which nothing is left to do."""
    setup.reporter.note(f"{folder} is already finished: nothing to do.")
    run = trained.load_run(
        folder, device=setup.device, network=setup.network, eval_transform=setup.eval_transform
    )
    if run.history.empty:
        raise SrjtError(
            f"{folder / 'history.csv'} is missing: {run_folder.RESTORE}", code="damaged_file"
        )
    return replace(run, metrics=finished_metrics(folder))


def _announce(
    run: Trained, manifest: Manifest, parts: Split, setup: Setup, about: Mapping[str, Any]
) -> None:
    """Notes about what is trained, before it begins."""
    if isinstance(setup.reporter, FoldReporter):  # the trainings of a cross-fit are all alike
        return
    kind = "rows of features" if manifest.are_features else "images"
    networks = _described(run, own_network=setup.network is not None)
    sentences = [f"{len(parts.train):,} training {kind}, {networks}."]
    if run.config.backbone is not None:
        sentences += frozen_sentences(run.config, about["frozen"])
    for sentence in sentences:
        setup.reporter.note(sentence)


def _described(run: Trained, *, own_network: bool) -> str:
    """The networks, the device and the precision, for people."""
    members = run.networks.members
    name = "custom network" if own_network else run.config.network_name
    size = sum(weights.numel() for weights in members[0].parameters()) / 1e6
    precision = "fp32" if run.device.type == "cpu" else run.config.precision
    if devices.amp_dtype(run.config, run.device):
        precision = "bf16"
    device = devices.device_name(run.device)
    return f"{len(members)} × {name} of {size:.2g} M weights, {device}, {precision}"


def _held_out(
    run: Trained, manifest: Manifest, feed: Feed, sides: Mapping[str, Side]
) -> dict[str, HeldOut]:
    """The predictions for the samples of each side."""
    forward = run.forward(feed, sides=[side.rows for side in sides.values()])
    held_out = {}
    for name, side in sides.items():
        if name != WRONG_LABELS:
            held_out[name] = held_out_side(
                manifest.select(side.rows.numpy(), images=False),
                forward.probabilities(side.rows)[0].numpy(),
                from_files=manifest.arrays is None,
                columns=run.config.keep_columns,
            )
    return held_out


def _with_labels(history: pd.DataFrame, manifest: Manifest, rows: Ints) -> pd.DataFrame:
    """The history of the training rows, with their ids, grades and patients before it."""
    columns = [name for name in ("id", "grade", "true_grade", "patient") if name in manifest.table]
    learnt = manifest.table.iloc[rows][columns].reset_index(drop=True)
    return pd.concat([learnt, history], axis=1)


def _too_large(config: ResolvedConfig, in_shape: tuple[int, ...]) -> SrjtError:
    return SrjtError(
        "The GPU does not have enough memory for batches of"
        f" {count_of(config.batch_size, 'sample')} of {'×'.join(map(str, in_shape))}: lower ",
        Option("batch_size"),
        ", choose ",
        Option("precision", "bf16"),
        ", or keep fewer images on the GPU with ",
        Option("memory_share", 0.2),
        ".",
        code="no_space",
    )


def _data_facts(
    manifest: Manifest, parts: Split, used: Manifest, *, in_shape: tuple[int, ...], unreadable: int
) -> dict[str, Any]:
    """``data`` of ``run.json``. used: the samples of all sides, those of the training side first.
    unreadable: images that were left out when they were decoded."""
    patients = manifest.patients
    left_out = manifest.left_out_counts
    sides = parts.sides()
    undecoded = Counter({"unreadable-image": unreadable})
    counts = []
    owners = {}
    for name, rows in sides.items():
        counts.append(np.bincount(manifest.labels[rows], minlength=manifest.num_classes))
        if patients:
            owners[name] = {patients[row] for row in rows}
    facts = {
        "samples": {name: len(rows) for name, rows in sides.items()},
        "class_counts": counts[0].tolist(),
        "validation_counts": counts[1].tolist(),
        "in_shape": list(in_shape),
        "fingerprint": fingerprint(manifest, parts),
        "images": image_digest(used),
        "feature_names": list(manifest.feature_names),
        "made": manifest.made,
        "source": describe_source(manifest.source) if manifest.source else None,
        "labels": (describe_source(manifest.labels_source) if manifest.labels_source else None),
        # of several readers, a label is that of their readings of a sample
        "several_readings": None if manifest.posterior is None else "consensus",
        "patients": len(set().union(*owners.values())) if owners else None,
        "side_patients": {name: len(who) for name, who in owners.items()} or None,
        "left_out": None if left_out is None else Counter(left_out) + undecoded,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _tensors(
    manifest: Manifest, parts: Split, feed: Feed, run: Trained, readers: ReaderTargets
) -> tuple[TrainingSet, dict[str, Side]]:
    """The training samples, and the samples that are evaluated every epoch: the other sides,
    against the true grades of the test side where they are known; and the training samples whose
    labels are wrong, if they are tracked.
    """
    labels = manifest.labels
    true = manifest.true_labels
    rows = parts.train
    device = run.device
    training = TrainingSet(
        feed=feed,
        rows=as_tensor(rows),
        labels=as_tensor(labels[rows], device),
        true=None if true is None else as_tensor(true[rows], device),
        readers=readers,
    )
    sides = [
        ("validation", parts.validation, labels),
        ("test", parts.test, labels if true is None else true),
    ]
    if run.config.track_wrong_labels and true is not None:
        sides.append((WRONG_LABELS, rows[labels[rows] != true[rows]], labels))
    evaluated = {}
    for name, members, judged in sides:
        if len(members):
            labels_here = as_tensor(judged[members], device)
            evaluated[name] = Side(rows=as_tensor(members), labels=labels_here)
    return training, evaluated


def _check_inputs(data: Manifest, config: TrainConfig, setup: Setup) -> None:
    """Check that the network reads this kind of data, and the columns to keep, before anything is
    decoded."""
    for column in config.keep_columns:
        if column not in data.table:
            raise unknown_name(
                "column", column, map(str, data.table.columns), option="keep_columns"
            )
    if data.are_features and (setup.transform or setup.eval_transform):
        raise SrjtError(
            "transform and eval_transform are for images; these data are rows of features.",
            code="unsupported",
            option="transform",
        )
    if config.augment != "paper" and (setup.transform or data.are_features or config.backbone):
        reason = "with a `transform` of your own"
        if setup.transform is None:
            reason = "on features, which are computed once from unchanged images"
        raise SrjtError(
            Option("augment", config.augment),
            f" has no effect {reason}: leave it out.",
            code="option_without_effect",
        )
    name = str(config.network)
    row = backbones.known(name)  # one that is not known is an error when it is built
    trained_on_rows = data.are_features or config.backbone is not None
    if setup.network is None and row is not None and (row.reads == "rows") != trained_on_rows:
        read = "images"
        given = "rows of features: choose 'odds' or 'mlp'"
        if not data.are_features:
            read = "rows of features"
            given = "images: choose 'resnet18' or another for images"
        raise SrjtError(
            f"The network {name!r} reads {read}, but these data are {given}, or leave it out.",
            code="unsupported",
            option="network",
        )


def _check_samples(manifest: Manifest, parts: Split) -> None:
    if len(parts.train) < 2:
        raise SrjtError(
            f"The training side has {count_of(len(parts.train), 'sample')}: it needs two.",
            code="too_few",
        )
    if len(set(manifest.labels[parts.train].tolist())) == 1:
        raise SrjtError(
            "All training samples have the same grade: there is nothing to learn.", code="too_few"
        )


def fingerprint(manifest: Manifest, parts: Split) -> str:
    """A hash of the samples on each side with their labels, true and verified grades and patients;
    for features also of their values; with several readers also of what they say about the true
    grades."""
    digest = hashlib.blake2b(digest_size=16)
    posterior = manifest.posterior
    about = (
        manifest.ids,
        manifest.labels,
        manifest.true_labels,
        manifest.verified_labels,
        manifest.patients,
    )
    columns: list[Any] = [column for column in about if column is not None]
    if manifest.verified_probability is not None:
        columns.append(manifest.verified_probability)
    digest.update(bytes(column is not None for column in about))
    for name, rows in parts.sides().items():
        digest.update(name.encode())
        for row in rows:
            line = "\0".join(str(column[row]) for column in columns)
            digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
        if manifest.arrays is not None and manifest.are_features:
            digest.update(np.ascontiguousarray(manifest.arrays[rows], dtype=np.float32).data)
        if posterior is not None:
            digest.update(np.ascontiguousarray(posterior[rows]).data)
        if manifest.weights is not None:
            digest.update(np.ascontiguousarray(manifest.weights[rows]).data)
    return digest.hexdigest()


# How long a training will take, from a few steps on noise.

STEPS, GPU_STEPS = 2, 30  # of an epoch; a step takes milliseconds on a GPU
CPU_BATCH = 8  # samples of a trial step on a CPU, where the time of a step grows with its samples
ODDS_SECONDS = 2.0  # of a fit at once, of some hundred rows; of thousands it is some times as much
EVALUATION = 1 / 3  # of the time of a training step: the forward pass alone


def training_seconds(
    data: Manifest, split: Split, *, config: TrainConfig, device: torch.device
) -> float:
    """About how long a training takes, without decoding and the noise estimate.

    The second epoch of a short training on noise is timed; nothing is read, written or downloaded.
    On a GPU the step is captured as in a training, but not compiled, which makes a long training
    faster and takes up to a minute.
    """
    if config.backbone is not None and not data.are_features:
        columns, seconds = features_and_seconds(config, device=device)
        rows = replace(data, arrays=np.zeros((len(data), columns), np.float32))
        head = training_seconds(rows, split, config=config.replace(backbone=None), device=device)
        return len(data) * seconds + head
    config = config.for_data(features=data.are_features, samples=len(data))
    if config.network == CHOOSE_HEAD:  # the slower of the two
        config = config.with_head(HEAD)
    if config.network == ODDS:
        return ODDS_SECONDS
    on_gpu = device.type == "cuda"
    training = len(split.train)
    batch = min(config.batch_size, training, training if on_gpu else CPU_BATCH)
    trial = config.replace(
        epochs=2,
        batch_size=batch,
        pretrained=False,
        weights=None,
        keep="last",
        patience=None,
        step="graph" if config.step == "compiled" else config.step,
        # the noise changes what a step selects, not its time
        noise_rate=0.2,
        soft_labels="paper",
        transition=config.transition or torch.eye(data.num_classes).tolist(),
    )
    count = batch * (GPU_STEPS if on_gpu else STEPS)
    draws = np.random.default_rng(0)
    arrays: npt.NDArray[np.generic]
    if data.arrays is not None and data.are_features:
        arrays = draws.normal(size=(count, *data.arrays.shape[1:])).astype(np.float32)
    else:
        arrays = draws.integers(
            0, 256, size=(count, config.image_size, config.image_size, 3), dtype=np.uint8
        )
    names = [str(row) for row in range(count)]
    table = pd.DataFrame(
        {"id": names, "image": names, "grade": np.arange(count) % data.num_classes}
    )
    samples = Manifest(table=table, grades=data.grades, arrays=arrays)
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        metrics = single_run(samples, config=trial, setup=Setup(device=str(device))).metrics
    speed = metrics.loc[metrics["metric"] == "images_per_second", "value"].iloc[-1]
    return float(
        (training + EVALUATION * (len(split.validation) + len(split.test))) * config.epochs / speed
    )
