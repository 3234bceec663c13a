"""``noise_rate="auto"``: estimate the noise of the training labels first, then train with what was found.

A short cross-fitted warm-up, on the training side alone, gives every training sample probabilities from
networks that have not seen it; from these and the labels the noise is estimated. ``noise.json`` keeps the
answer beside the run, and a run that is gone on with uses it again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from srjt import methods
from srjt._version import __version__
from srjt.audit.crossfit import NOBODY, cross_fit
from srjt.audit.progress import NotesOnly, in_folds
from srjt.data import LeakageWarning, Manifest, Split
from srjt.data.store import OnBadImage, open_store
from srjt.errors import SrjtError
from srjt.ordinal import noise
from srjt.ordinal.estimation import NoiseEstimate, estimate_noise
from srjt.training import train as training
from srjt.training.config import HOW, TrainConfig
from srjt.training.folder import held, write_json
from srjt.training.inputs import Transform
from srjt.training.loop import Reporter
from srjt.training.reporters import SilentReporter
from srjt.training.trained import NetworkMaker, Trained, build_method

__all__ = [
    "name_warm_up_epoch",
    "needs_estimate",
    "read_estimate",
    "sentence",
    "settle_noise",
    "train",
    "warm_up",
    "warm_up_epochs",
]

WARM_UP_METHOD = "sord"  # needs to be told nothing, and is slow to learn a wrong label by heart
WARM_UP_FOLDS = 3
WARM_UP_SHARE = 5  # a fifth of the run's epochs,
WARM_UP_LEAST = 10  # but no fewer than this, if the run itself is not shorter
PLAUSIBLE = (0.05, 0.4)  # where a rate that the data do not settle is kept
PAUSE = 0.2  # seconds between two looks at a folder that another process works in


def train(
    data: Manifest,
    *,
    out: str | Path | None = None,
    split: Split | Callable[[Manifest], Split] | None = None,
    network: str | NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
    device: str | None = None,
    reporter: Reporter | None = None,
    config: TrainConfig | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    **settings: Any,
) -> Trained:
    """Train on ``data`` (on ``split.train`` if a split is given; then its other sides are evaluated every epoch).

    split: row positions of ``data``, or a function of the manifest that is left when bad images are skipped.
    out: the run's folder; an unfinished run of the same configuration is gone on with, a finished one opened.
    network: a name, or a function without arguments that makes a module from images (or rows of features)
    to features (B, F); by default the data decide, as they do about the learning rate.
    transform, eval_transform: one's own, uint8 (B, 3, H, W) on the device → float, instead of the random
    crop and flip, and of the centre crop. settings: any field of TrainConfig, over ``config``; with
    ``noise_rate="auto"`` the noise is estimated first, from the training side alone.

    Validation labels are the given ones, as noisy as those of training; the test side is judged by the true
    grades where they are known.
    """
    if not isinstance(data, Manifest):
        raise SrjtError("srjt.train takes a manifest: srjt.train(srjt.data.read(path).manifest, …).")
    if isinstance(network, str):
        settings["network"] = network
    how: dict[str, Any] = {
        "split": split,
        "network": None if isinstance(network, str) else network,
        "transform": transform,
        "eval_transform": eval_transform,
        "device": device,
        "cache": cache,
        "on_bad_image": on_bad_image,
    }
    watching = reporter or SilentReporter()
    config, _ = settle_noise(
        data,
        config=(config or TrainConfig()).replace(**settings),
        out=out,
        reporter=NotesOnly(watching),
        **how,
    )
    return training.train(data, config=config, out=out, reporter=watching, **how)


def settle_noise(
    manifest: Manifest,
    *,
    config: TrainConfig,
    split: Split | Callable[[Manifest], Split] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    reporter: Reporter | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    network: NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
) -> tuple[TrainConfig, NoiseEstimate | None]:
    """The configuration with numbers in the place of ``noise_rate="auto"``, and the estimate they come from.

    Only the training side of ``split`` is looked at. The estimate is None where the method does not need it:
    then nothing is trained. out: ``noise.json`` there is used again, and one process at a time makes it.
    """
    if config.rate_or_recipe != "auto":
        return config, None
    config = config.for_data(features=manifest.are_features)
    if not needs_estimate(config):
        return config.replace(noise_rate=None), None
    _check_options(config, num_classes=manifest.num_classes)
    reporter = reporter or SilentReporter()
    wanted = warm_up(config)
    kept = manifest
    if manifest.arrays is None:  # in memory everything can be read
        opened = open_store(
            manifest,
            size=config.image_size,
            resize=config.resize,
            cache=cache,
            on_bad_image=on_bad_image,
            progress=reporter.decoded,
        )
        kept = opened.manifest
    rows = training.settle_split(split, kept, skipped=len(kept) < len(manifest)).train
    facts = {
        "fingerprint": training.fingerprint(kept, Split(train=rows, validation=NOBODY, test=NOBODY)),
        "warm_up": {name: value for name, value in wanted.to_dict().items() if name not in HOW},
        "folds": WARM_UP_FOLDS,
    }

    def make(folder: Path | None) -> NoiseEstimate:
        reporter.note(
            f"The noise is estimated first: {WARM_UP_FOLDS} trainings of {wanted.epochs} epochs ({wanted.method})."
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeakageWarning)  # whoever made the split has said it
            fitted = cross_fit(
                manifest,
                config=wanted,
                folds=WARM_UP_FOLDS,
                seed=config.seed,
                out=folder,
                split=split,
                device=device,
                reporter=reporter,
                cache=cache,
                on_bad_image=on_bad_image,
                network=network,
                transform=transform,
                eval_transform=eval_transform,
            )
        return estimate_noise(
            fitted.manifest.labels, fitted.probabilities, groups=fitted.manifest.patients, seed=config.seed
        )

    estimate = make(None) if out is None else _once(Path(out), facts, make, reporter)
    told = _told(config, estimate)
    reporter.note(sentence(estimate))
    if not estimate.identifiable:
        warnings.warn(_doubt(estimate, used=float(told.settled_rate or 0.0)), stacklevel=2)
    elif told.settled_rate != estimate.rate:
        reporter.note(
            f"{config.method} takes it for {told.settled_rate:.2f}: no image shows some of the grades clearly, so "
            "their wrong labels are not counted. A rate that is given is used as it is."
        )
    return told, estimate


def needs_estimate(config: TrainConfig) -> bool:
    """Whether ``noise_rate="auto"`` has anything to find out for this method."""
    needs = set(methods.entry(config.method).method.needs)
    if config.transition is not None:
        needs -= {"transition"}
    if config.soft_labels == "estimated" and "label_matrix" not in methods.options(config.method):
        raise SrjtError(
            f"{config.method} does not learn from soft labels: leave --soft-labels estimated out, or choose a method "
            "that does, such as co-teaching+ours or sord."
        )
    if config.soft_labels == "estimated" and "label_matrix" in config.method_options:
        raise SrjtError("soft_labels 'estimated' makes the label_matrix: do not give one as well.")
    return config.rate_or_recipe == "auto" and bool(needs or config.soft_labels == "estimated")


def _check_options(config: TrainConfig, *, num_classes: int) -> None:
    """A misspelt option of the method is better known now than after the warm-up."""
    told = {"noise_rate": 0.0, "transition": np.eye(num_classes).tolist(), "soft_labels": "paper"}
    build_method(config.replace(**told), num_classes=num_classes)


def warm_up(config: TrainConfig) -> TrainConfig:
    """The settings of the warm-up: those of the run, but short, and with a method that is told nothing. Nothing of
    the method's own recipe is left, so that all methods share one estimate."""
    return config.replace(
        method=WARM_UP_METHOD,
        method_options={},
        noise_rate=None,
        transition=None,
        soft_labels="paper",
        epochs=min(config.epochs, max(WARM_UP_LEAST, round(config.epochs / WARM_UP_SHARE))),
        milestones=None,
        balance=0.0,  # grades drawn as they occur: the estimate compares predictions with how often labels are given
    )


def warm_up_epochs(config: TrainConfig) -> int:
    """Epochs that are trained before the run itself begins; 0 where nothing is to be estimated."""
    return WARM_UP_FOLDS * warm_up(config).epochs if needs_estimate(config) else 0


def name_warm_up_epoch(epoch: int, *, config: TrainConfig) -> str:
    """The place of one of the ``warm_up_epochs``, counted from 1."""
    return in_folds(epoch, folds=WARM_UP_FOLDS, epochs=warm_up(config).epochs)


def sentence(estimate: NoiseEstimate) -> str:
    """The estimate as a log says it."""
    low, high = estimate.rate_interval
    doubt = "" if estimate.identifiable else "; the data do not settle it"
    return (
        f"Estimated noise rate {estimate.rate:.2f} (95 %: {low:.2f}–{high:.2f}), {estimate.form} form, from "
        f"{estimate.samples:,} labels{doubt}."
    )


def read_estimate(folder: Path) -> NoiseEstimate | None:
    """The estimate that a run was told; None where it was told a number, or nothing."""
    file = folder / "noise.json"
    if not file.exists():
        return None
    return NoiseEstimate.from_dict(_read(file)["estimate"])


def _told(config: TrainConfig, estimate: NoiseEstimate) -> TrainConfig:
    least = _least(config, estimate)
    if not estimate.identifiable:
        estimate = _plain(estimate, rate=max(float(np.clip(estimate.rate, *PLAUSIBLE)), least))
    told: dict[str, Any] = {"noise_rate": max(estimate.rate, least)}
    if config.transition is None and "transition" in methods.entry(config.method).method.needs:
        told["transition"] = estimate.transition.tolist()
    if config.soft_labels == "estimated":
        told["method_options"] = {**config.method_options, "label_matrix": estimate.posterior().tolist()}
    return config.replace(**told)


def _least(config: TrainConfig, estimate: NoiseEstimate) -> float:
    """What the method's recipe takes a lower estimate for, where that is likely to be too low."""
    doubtful = bool(estimate.caution) or not estimate.identifiable
    return methods.entry(config.method).recipe.least_rate if doubtful else 0.0


def _plain(estimate: NoiseEstimate, *, rate: float) -> NoiseEstimate:
    """In the place of an estimate that is not to be relied on: quasi noise of this rate, or as much as there can be."""
    classes = len(estimate.prior)
    largest = noise.largest_rho("quasi", num_classes=classes)
    most = float(
        estimate.prior @ (1.0 - np.diag(noise.transition_matrix("quasi", num_classes=classes, rho=largest)))
    )
    rho = largest * min(rate / most, 1.0)  # the rate is linear in ρ
    matrix = noise.transition_matrix("quasi", num_classes=classes, rho=rho)
    return replace(estimate, rate=rate, transition=matrix)


def _doubt(estimate: NoiseEstimate, *, used: float) -> str:
    return (
        f"The data do not settle the noise rate ({estimate.reason.rstrip('.')}); {used:.2f} is used. A rate known from "
        "elsewhere would be better."
    )


def _once(
    folder: Path,
    facts: dict[str, Any],
    make: Callable[[Path | None], NoiseEstimate],
    reporter: Reporter,
) -> NoiseEstimate:
    """The estimate in this folder; made by the first process that comes, while the others wait for it."""
    file = folder / "noise.json"
    if not file.exists() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SrjtError(
            "noise_rate 'auto' is settled by one process, not by several at once: estimate the rate with srjt audit "
            "first, and give it as a number."
        )
    if not file.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise SrjtError(f"The run cannot be written to {folder}: {problem.strerror}.") from None
        with _alone(folder, reporter):
            if not file.exists():
                estimate = make(folder / "warmup")
                written = {"format": 1, "srjt": __version__, **facts, "estimate": estimate.to_dict()}
                write_json(file, written)
    known = _read(file)
    if {name: known.get(name) for name in facts} != facts:
        raise SrjtError(
            f"{file} is an estimate from other labels or settings: choose another --out, or delete that folder."
        )
    shutil.rmtree(folder / "warmup", ignore_errors=True)
    return NoiseEstimate.from_dict(known["estimate"])


def _read(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
        NoiseEstimate.from_dict(known["estimate"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(f"{file} is damaged or not from srjt ({problem}).") from None
    assert isinstance(known, dict)
    return known


@contextmanager
def _alone(folder: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the folder, after waiting for a process that does."""
    with ExitStack() as stack:
        told = False
        while True:
            try:
                stack.enter_context(held(folder))
                break
            except SrjtError:
                if not told:
                    reporter.note(f"Another process works on {folder}; waiting for it.")
                told = True
                time.sleep(PAUSE)
        yield
