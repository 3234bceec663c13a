"""One training: from a manifest to a trained model, in a folder from which it resumes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from srjt.data.features import as_features
from srjt.data.grade_names import display_grade
from srjt.data.images.feed import FeedCache
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.splits import Split
from srjt.errors import SrjtError, count_of, suggest
from srjt.networks import backbones
from srjt.networks.small import standardise
from srjt.training.config import TrainConfig
from srjt.training.engine import cpu_tuning
from srjt.training.engine.batches import Preprocess, TrainingSet, Transform
from srjt.training.engine.cpu_tuning import CpuSetting, channels_last, use_cpu_setting
from srjt.training.engine.devices import amp_dtype, choose_device, device_name, torch_flags
from srjt.training.engine.distributed import join_process_group
from srjt.training.engine.scoring import one_batch_size, predict_probabilities
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.loop import Fitted, Side, as_tensor, fit
from srjt.training.own_split import resolve_split
from srjt.training.reader_targets import reader_targets
from srjt.training.record.held_out import held_out_side
from srjt.training.record.image_identity import check_images, image_digest
from srjt.training.record.provenance import describe_provenance, describe_source
from srjt.training.record.reporters import Reporter, SilentReporter
from srjt.training.record.run_folder import (
    RunFacts,
    is_finished,
    lock_run_folder,
    open_run_folder,
    write_facts,
)
from srjt.training.run_results import open_finished, write_results
from srjt.training.trained import NetworkMaker, Trained, build_method, build_networks

__all__ = ["fingerprint", "no_validation_side", "single_run"]


def single_run(
    data: Manifest,
    *,
    config: TrainConfig,
    out: str | Path | None = None,
    split: Split | Callable[[Manifest], Split] | None = None,
    network: NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
    device: str | None = None,
    reporter: Reporter | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    noise: dict[str, Any] | None = None,
    grade_names: dict[str, str] | None = None,
    cpu_setting: CpuSetting | None = None,
    feeds: FeedCache | None = None,
    command: str | None = None,
) -> Trained:
    """Train one run whose configuration is complete: ``noise_rate`` is a number, or not needed.

    The arguments are those of ``srjt.train``; noise: where the noise rate comes from, for ``run.json``.
    """
    config = config.for_data(features=data.are_features)
    _check_inputs(
        data, config, custom_network=network is not None, custom_transform=transform or eval_transform
    )
    reporter = reporter or SilentReporter()
    chosen = choose_device(device)
    process = join_process_group(chosen)
    folder = None if out is None else Path(out)
    method = build_method(config, num_classes=data.num_classes)

    store = open_store(
        data,
        size=config.image_size,
        resize=config.resize,
        cache=cache,
        on_bad_image=on_bad_image,
        progress=reporter.decoded,
        find_duplicates=True,
    )
    manifest = store.manifest
    if store.skipped:
        names = ", ".join(name for name, _ in store.skipped[:3]) + (", …" if len(store.skipped) > 3 else "")
        listed = ""
        if store.path is not None and len(store.skipped) > 3:
            listed = f"; all are listed in {store.path / 'bad_images.csv'}"
        reporter.note(
            f"{count_of(len(store.skipped), 'unreadable image is', 'unreadable images are')} skipped: {names}{listed}"
        )
    parts = resolve_split(split, manifest, skipped=bool(store.skipped))
    _check_samples(manifest, parts)
    if config.keep == "best" and not len(parts.validation):
        raise no_validation_side()
    readers = reader_targets(manifest, parts.train, config, method)

    side = config.crop if transform is None else config.image_size
    in_shape = store.pixels.shape[1:] if manifest.are_features else (3, side, side)
    used = manifest.select(np.concatenate(list(parts.sides().values())), images=False)
    facts = RunFacts(
        config=config,
        grades=manifest.grades,
        data={
            "samples": {name: len(rows) for name, rows in parts.sides().items()},
            "class_counts": np.bincount(
                manifest.labels[parts.train], minlength=manifest.num_classes
            ).tolist(),
            "validation_counts": np.bincount(
                manifest.labels[parts.validation], minlength=manifest.num_classes
            ).tolist(),
            "in_shape": list(in_shape),
            "fingerprint": fingerprint(manifest, parts),
            "images": image_digest(used),
            "feature_names": list(manifest.feature_names),
            **({"made": manifest.made} if manifest.made else {}),
            **({"source": describe_source(manifest.source)} if manifest.source else {}),
            "patients": None if manifest.patients is None else len(set(used.patients or ())),
        },
        own_network=network is not None,
        grade_names=grade_names or {},
        noise=noise,
        provenance=describe_provenance(chosen, command=command, processes=process.world_size),
    )
    if folder is not None and is_finished(folder):
        found = open_run_folder(folder, facts)  # raises an error if it is a different run
        check_images(folder, used, recorded=found.data.get("images"), what="run")
        reporter.note(f"{folder} is already finished: nothing to do.")
        return open_finished(folder, device=device, network=network, eval_transform=eval_transform)
    networks = build_networks(config, method, in_shape=in_shape, network=network)
    if manifest.are_features:
        standardise(networks, as_features(store.pixels[parts.train]))
    # Not earlier: missing weights must not leave a run folder behind.
    with lock_run_folder(folder if process.is_main else None, facts) as facts:
        if folder is not None and process.is_main:
            check_images(folder, used, recorded=facts.data.get("images"), what="run")
        feed = (feeds or FeedCache()).open(store.pixels, device=chosen, share=config.memory_share)
        if chosen.type == "cuda":
            channels_last(networks.to(chosen))
        elif facts.cpu is None:
            cpu = cpu_setting or CpuSetting()
            may_tune = config.tune_cpu and not config.deterministic and process.world_size == 1
            if cpu_setting is None and may_tune:
                example = torch.zeros(min(config.batch_size, len(parts.train)), *in_shape)
                cpu = cpu_tuning.fastest_setting(networks.members[0], example)
            facts = replace(facts, cpu=cpu)
            if folder is not None and process.is_main:
                write_facts(folder, facts)
        amp = amp_dtype(config, chosen)
        preprocess = Preprocess(
            crop=config.crop,
            dtype=amp or torch.float32,
            channels_last=chosen.type == "cuda" or (facts.cpu is not None and facts.cpu.channels_last),
            train_transform=transform,
            eval_transform=eval_transform,
        )
        reporter.note(
            _first_note(
                f"{len(parts.train):,} training {'rows of features' if manifest.are_features else 'images'}",
                networks,
                config,
                name="custom network" if network else None,
                device=chosen,
                amp=amp,
            )
        )
        labels, true = manifest.labels, manifest.true_labels
        sides = {
            name: Side(
                rows=as_tensor(rows),
                labels=as_tensor((true if name == "test" and true is not None else labels)[rows], chosen),
            )
            for name, rows in parts.sides().items()
            if name != "train" and len(rows)
        }
        held_out = tuple(sides)
        if config.track_wrong_labels and true is not None:
            wrong = parts.train[labels[parts.train] != true[parts.train]]
            if len(wrong):
                sides["wrong_labels"] = Side(rows=as_tensor(wrong), labels=as_tensor(labels[wrong], chosen))
        try:
            with (
                torch_flags(config, chosen),
                use_cpu_setting(facts.cpu, networks),
                torch.random.fork_rng(devices=[chosen] if chosen.type == "cuda" else []),
            ):
                fitted = fit(
                    networks,
                    method.to(chosen),
                    feed,
                    TrainingSet(
                        feed=feed,
                        rows=as_tensor(parts.train),
                        labels=as_tensor(labels[parts.train], chosen),
                        true=None if true is None else as_tensor(true[parts.train], chosen),
                        readers=readers,
                    ),
                    config=config,
                    preprocess=preprocess,
                    sides=sides,
                    grades=tuple(display_grade(g, facts.grade_names) for g in manifest.grades),
                    image_size=config.image_size,
                    amp=amp,
                    folder=folder,
                    reporter=reporter,
                    process=process,
                )
                # with the flags and batches of the training, so that the scores agree with its metrics
                batch_size = one_batch_size(
                    networks, (side.rows for side in sides.values()), largest=config.eval_batch_size
                )
                probabilities = {
                    name: predict_probabilities(
                        networks, method, feed, sides[name].rows, preprocess=preprocess, batch_size=batch_size, amp=amp
                    )[0].numpy()
                    for name in (held_out if process.is_main else ())
                }  # fmt: skip
                networks.compiled = []  # other samples would be compiled again
        except torch.cuda.OutOfMemoryError:
            raise SrjtError(
                f"The GPU does not have enough memory for batches of {count_of(config.batch_size, 'sample')} of "
                f"{'×'.join(map(str, in_shape))}: lower `batch_size`, choose `precision='bf16'`, or keep fewer images "
                "on the GPU with `memory_share=0.2`."
            ) from None
        history = _history(manifest, parts, fitted)
        trained = Trained(
            networks=networks.eval(),
            method=method.to(chosen),
            config=config,
            grades=manifest.grades,
            preprocess=preprocess,
            in_shape=in_shape,
            feature_names=manifest.feature_names,
            feature_settings=manifest.made,
            device=chosen,
            cpu=facts.cpu,
            folder=folder,
            metrics=fitted.metrics,
            history=history,
            grade_names=facts.grade_names,
            skipped=tuple(store.skipped),
            facts=facts,
            hashes=used.hashes,
        )
        if process.is_main:
            predicted = {
                name: held_out_side(
                    manifest.select(sides[name].rows.numpy(), images=False),
                    scores,
                    from_files=manifest.arrays is None,
                    columns=config.keep_columns,
                )
                for name, scores in probabilities.items()
            }
            trained = replace(trained, held_out=predicted)
            if folder is not None:
                write_results(folder, trained, fitted=fitted)
    return trained


def _first_note(
    samples: str,
    networks: StackedNetworks,
    config: TrainConfig,
    *,
    name: str | None,
    device: torch.device,
    amp: object,
) -> str:
    """One line about the training that begins."""
    size = sum(p.numel() for p in networks.members[0].parameters()) / 1e6
    precision = "bf16" if amp else "fp32" if device.type == "cpu" else config.precision
    return (
        f"{samples}, {len(networks.members)} × {name or config.network} of {size:.2g} M weights, "
        f"{device_name(device)}, {precision}."
    )


def _history(manifest: Manifest, parts: Split, fitted: Fitted) -> pd.DataFrame:
    columns = [c for c in ("id", "grade", "true_grade") if c in manifest.table]
    samples = manifest.table.iloc[parts.train][columns].reset_index(drop=True)
    return pd.concat([samples, fitted.history], axis=1)


def _check_inputs(
    data: Manifest, config: TrainConfig, *, custom_network: bool, custom_transform: object
) -> None:
    """Check that the network reads this kind of data, and the columns to keep, before anything is decoded."""
    for column in config.keep_columns:
        if column not in data.table:
            raise suggest("column (of the data, for `keep_columns`)", column, map(str, data.table.columns))
    if data.are_features and custom_transform is not None:
        raise SrjtError("transform and eval_transform are for images; these data are rows of features.")
    name = str(config.network)
    known = name in backbones.names() or name.startswith("timm:")
    if custom_network or not known or backbones.takes_rows(name) == data.are_features:
        return  # an unknown name is an error when the network is built
    if data.are_features:
        raise SrjtError(
            f"The network {config.network!r} reads images, but these data are rows of features: choose 'linear' or "
            "'mlp', or do not set the network."
        )
    raise SrjtError(
        f"The network {config.network!r} reads rows of features, but these data are images: choose 'resnet18' or "
        "another network for images, or do not set the network."
    )


def no_validation_side() -> SrjtError:
    """The error for a run that cannot tell which epoch is the best."""
    return SrjtError(
        "keep 'best' chooses the epoch by the validation side, and this run has none: add `split` or a split "
        "column, or leave keep at 'last'."
    )


def _check_samples(manifest: Manifest, parts: Split) -> None:
    if len(parts.train) < 2:
        raise SrjtError(
            f"The training side has {count_of(len(parts.train), 'sample')}: training needs at least two."
        )
    missing = [
        manifest.grades[c]
        for c, n in enumerate(np.bincount(manifest.labels[parts.train], minlength=manifest.num_classes))
        if n == 0
    ]
    if len(missing) == manifest.num_classes - 1:
        raise SrjtError("All training samples have the same grade: there is nothing to learn.")


def fingerprint(manifest: Manifest, parts: Split) -> str:
    """A hash of the samples on each side with their labels; for features also of their values; with several readers
    also of what they say about the true grades."""
    digest = hashlib.blake2b(digest_size=16)
    ids, labels, true, posterior = manifest.ids, manifest.labels, manifest.true_labels, manifest.posterior
    for name, rows in parts.sides().items():
        digest.update(name.encode())
        for row in rows:
            truth = "" if true is None else int(true[row])
            digest.update(f"{ids[row]}\0{int(labels[row])}\0{truth}\n".encode())
        if manifest.arrays is not None and manifest.are_features:
            digest.update(np.ascontiguousarray(manifest.arrays[rows], dtype=np.float32).data)
        if posterior is not None:
            digest.update(np.ascontiguousarray(posterior[rows]).data)
    return digest.hexdigest()
