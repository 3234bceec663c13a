"""``noise_rate="auto"``: estimate the noise of the training labels, and replace "auto" by the
estimate.

A short cross-fit on the training side (the warm-up) gives every training sample probabilities from
networks that have not seen it; from these and the labels the noise is estimated. ``noise.json``
keeps the estimate beside the run, and a resumed run uses it again.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from srjt import methods, networks, noise
from srjt.data.manifest import LeakageWarning, Manifest
from srjt.data.splits import Split
from srjt.errors import Message, Option, SrjtError, unknown_name, warn
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.matrices import Floats, Ints, noise_from_posterior
from srjt.progress import Reporter
from srjt.text import count_of
from srjt.training import folder as run_folder, single_run as one_run
from srjt.training.config import (
    AUTO,
    CHOOSE_HEAD,
    ODDS,
    PAPER_EPOCHS,
    ResolvedConfig,
    TrainConfig,
    reopened,
    resolved,
)
from srjt.training.crossfit import CrossFit, cross_fit
from srjt.training.image_identity import image_digest
from srjt.training.sides import resolve_split, train_on
from srjt.training.trained import (
    Setup,
    build_method,
)

# Of an estimated matrix; where the warm-up's networks know nothing, the estimate is larger.
LARGEST_RATE = 0.5

# Of the network odds: so much of an estimated matrix is used, between no correction and all of it,
# where labels and predictions do not determine it. benchmarks/recipe_on_features.py: weak models
# estimate too many errors.
CORRECTED_IN_DOUBT = 0.5

WOULD_HELP = Message(
    "Verified grades of a random sample (column verified_grade) or a rate that you know (",
    Option("noise_rate"),
    ") would help.",
)

WARM_UP_METHOD = "sord"  # needs no noise rate, and is slow to memorise a wrong label
WARM_UP_FOLDS = 3
WARM_UP_SHARE = 5  # a fifth of the run's epochs,
WARM_UP_MIN_EPOCHS = 10  # but no fewer than this,
# and at most a third: three trainings of one network on two thirds of the samples then cost a third
# of the run's two
WARM_UP_MOST = 3


def resolve_noise_rate(
    manifest: Manifest,
    *,
    config: TrainConfig,
    setup: Setup | None = None,
    out: str | Path | None = None,
    fitted: CrossFit | None = None,
) -> tuple[TrainConfig, NoiseEstimate | None]:
    """The configuration with numbers in place of ``noise_rate="auto"``, and the estimate that they
    come from.

    Only the training side of the split is used. The estimate is None, and nothing is trained, if
    the method needs none, or if several readers graded the samples: then the rate follows from
    their consensus.

    out: a ``noise.json`` in this folder is reused; of several processes one computes it, the others
    wait. fitted: the warm-up, if ``choose_head`` has trained it already.
    """
    if config.requested_noise_rate != "auto":
        return _with_matrix_of_rate(config, manifest), None
    config = config.for_data(features=manifest.are_features, samples=len(manifest))
    if not needs_estimate(config):
        return config.replace(noise_rate=None), None
    placeholders = {
        "noise_rate": 0.0,
        "transition": np.eye(manifest.num_classes),
        "soft_labels": "paper",
    }
    # a misspelt option of the method is reported now, not after the warm-up
    build_method(config.replace(**placeholders), num_classes=manifest.num_classes)
    setup = setup or Setup()
    reporter = setup.reporter
    warm_up_config = warm_up(config, samples=len(manifest))
    # arrays in memory are always readable
    readable = setup.open_store(manifest, config).manifest if manifest.arrays is None else manifest
    rows = resolve_split(setup.split, readable, skipped=len(readable) < len(manifest)).train
    if (posterior := readable.posterior) is not None:
        by_readers = noise_from_posterior(readable.labels[rows], posterior[rows])
        resolved = _apply(config, by_readers.rate, by_readers.transition, by_readers.posterior)
        reporter.note(from_readers(resolved))
        return resolved, None
    learnt = readable.select(rows, images=False)

    def estimate_in(folder: Path | None) -> NoiseEstimate:
        trained = fitted
        if trained is None:
            length = f"of {count_of(warm_up_config.epochs, 'epoch')} ({warm_up_config.method})"
            if warm_up_config.network == ODDS:
                length = "of odds, each at once"
            reporter.note(f"Estimating the noise first: {WARM_UP_FOLDS} trainings {length}.")
            trained = fit_warm_up(manifest, warm_up_config, setup, out=folder)
        assert trained.manifest.ids == learnt.ids, "the warm-up uses the training side alone"
        return estimate_noise(
            trained.manifest.labels,
            trained.probabilities,
            groups=trained.manifest.groups,
            verified=trained.manifest.verified_labels,
            verified_probability=trained.manifest.verified_probability,
            seed=config.seed,
        )

    if out is None:
        estimate = estimate_in(None)
    else:
        facts = {
            "fingerprint": one_run.fingerprint(readable, train_on(rows)),
            "warm_up": warm_up_config.determining(),
            "folds": WARM_UP_FOLDS,
            "images": image_digest(learnt),
        }
        estimate = _estimate_once(Path(out), facts, estimate_in, reporter)
    resolved = _as_estimated(config, estimate)
    _tell_estimate(estimate, resolved, reporter)
    return resolved, estimate


def _as_estimated(config: TrainConfig, estimate: NoiseEstimate) -> TrainConfig:
    """The configuration with as much of an estimate as can be trusted."""
    nothing = np.eye(len(estimate.prior))
    if not estimate.informed:  # a matrix of networks that know nothing would only blur the labels
        return _apply(config, 0.0, nothing, nothing)
    share = CORRECTED_IN_DOUBT if config.network == ODDS and not estimate.identifiable else 1.0
    matrix = share * estimate.transition + (1.0 - share) * nothing
    return _apply(config, share * estimate.rate, matrix, estimate.posterior())


def _tell_estimate(estimate: NoiseEstimate, resolved: TrainConfig, reporter: Reporter) -> None:
    """A note about the estimate; a warning if it is doubtful and samples are discarded by it."""
    sentences = describe(estimate, used=resolved.known_noise_rate)
    method = methods.lookup(resolved.method)
    nothing_discarded = method.is_recipe and "noise_rate" not in method.needs
    if not estimate.informed or not (estimate.identifiable or nothing_discarded):
        warn(Message.joined([*sentences, WOULD_HELP]))
    else:
        reporter.note(sentences[0])


def fit_warm_up(
    manifest: Manifest, config: TrainConfig, setup: Setup, *, out: Path | None
) -> CrossFit:
    """Out-of-fold predictions for the training side. config: of ``warm_up``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakageWarning)  # already shown when the split was made
        return cross_fit(
            manifest, config=config, folds=WARM_UP_FOLDS, out=out, setup=setup, title="warm-up"
        )


def _with_matrix_of_rate(config: TrainConfig, manifest: Manifest) -> TrainConfig:
    """A recipe that needs a matrix and is given a rate: errors by one grade, as most errors of
    readers are."""
    method = methods.lookup(config.method, registered_by=config.imports)
    rate = config.known_noise_rate
    needs_matrix = method.is_recipe and "transition" in method.needs and config.transition is None
    if not needs_matrix or rate is None:
        return config
    matrix = neighbour_matrix(rate, class_counts=manifest.class_counts)
    reached = float(noise.expected_rate(matrix, class_counts=manifest.class_counts))
    # a rate that errors by one grade cannot produce is lowered; rounding must not change one that
    # they can
    return config.replace(
        noise_rate=reached if reached < rate - 1e-9 else rate, transition=matrix.tolist()
    )


def neighbour_matrix(rate: float, *, class_counts: Ints | Sequence[int]) -> Floats:
    """The matrix of errors by one grade with this rate, or with the largest at which the own label
    is likeliest."""
    largest = noise.largest_rho("truncated", num_classes=len(class_counts))
    most = largest / (
        1.0 + largest
    )  # 1/3, or 1/2 of two grades: a neighbour's label is as likely as the own
    matrix = noise.transition_matrix("truncated", num_classes=len(class_counts), rho=most)
    share = min(1.0, rate / noise.expected_rate(matrix, class_counts=class_counts))
    return np.asarray(
        noise.transition_matrix("truncated", num_classes=len(class_counts), rho=share * most)
    )


def needs_estimate(config: TrainConfig) -> bool:
    """Whether the noise must be estimated for this method."""
    needs = set(methods.lookup(config.method).method.needs)
    if config.transition is not None:
        needs -= {"transition"}
    if config.soft_labels == "estimated" and "label_matrix" not in methods.options(config.method):
        raise SrjtError(
            f"{config.method} does not learn from soft labels: drop ",
            Option("soft_labels", "estimated"),
            ", or choose a method that does, such as co-teaching+ours or sord.",
            code="unsupported",
            option="soft_labels",
        )
    if config.soft_labels == "estimated" and "label_matrix" in config.method_options:
        raise SrjtError(
            Option("soft_labels", "estimated"),
            " computes label_matrix: do not pass both.",
            code="conflict",
        )
    return config.requested_noise_rate == "auto" and bool(
        needs or config.soft_labels == "estimated"
    )


def check_settings(config: TrainConfig) -> None:
    """Raise an error if the method lacks what it needs to know, or the network does not exist:
    before images are read.

    config: with the recipe of the method.
    """
    method = methods.lookup(config.method, registered_by=config.imports)
    needs = (
        () if method.is_recipe and config.noise_rate is not None else method.needs
    )  # a rate suffices
    if "noise_rate" in needs and config.noise_rate is None:
        raise SrjtError(
            f"{config.method} needs the share of wrong labels: ",
            Option("noise_rate", 0.2),
            " if a fifth of them is wrong, ",
            Option("noise_rate", "auto"),
            " to estimate it, or ",
            Option("method", "srjt"),
            ", which needs none.",
            code="missing_option",
        )
    if "transition" in needs and config.transition is None and config.noise_rate != "auto":
        raise SrjtError(
            f"{config.method} needs the matrix of label errors: ",
            Option("transition"),
            " (a row of numbers for each true grade; in a file, separated by commas), or ",
            Option("noise_rate", "auto"),
            " to estimate it.",
            code="missing_option",
        )
    needs_estimate(config)  # an error if the soft labels cannot follow the estimate
    for name in (config.network, config.backbone):
        if name is not None and networks.known(name) is None and name not in (CHOOSE_HEAD, AUTO):
            raise unknown_name("network", name, (*networks.names(), CHOOSE_HEAD, "timm:NAME"))


def warm_up(config: TrainConfig, *, samples: int) -> ResolvedConfig:
    """The settings of the warm-up: those of the run, but short, and with a method that needs no
    noise rate.

    Nothing of the method's own remains, so that all methods share one estimate. The weights are
    learnt as ``srjt`` learns them, unless the run was given something else: at the paper's rate so
    few epochs see too little.

    config: of ``for_data``. samples: of all sides, as given to it.
    """
    epochs = config.epochs or PAPER_EPOCHS
    # odds cannot memorise a label
    method = "standard" if config.network == ODDS else WARM_UP_METHOD
    learning = {**config.optimisation(), "batch_size": config.length(samples)["batch_size"]}
    unset = {name: None for name, value in learning.items() if getattr(config, name) == value}
    recipe = reopened(
        config, method="srjt", method_options={}, soft_labels="paper", milestones=None, **unset
    )
    defaults = {**recipe.optimisation(), "batch_size": recipe.length(samples)["batch_size"]}
    chosen = {name: value for name, value in defaults.items() if getattr(recipe, name) is None}
    share = max(WARM_UP_MIN_EPOCHS, round(epochs / WARM_UP_SHARE))
    settings = recipe.replace(
        **chosen,
        method=method,
        noise_rate=None,
        transition=None,
        epochs=max(1, min(epochs // WARM_UP_MOST, share)),
        target_metric="mae",
        keep="last",  # a fold of the warm-up has no validation side
        patience=None,
        keep_columns=(),
        reader_targets="consensus",
        balance=0.0,  # the estimate compares predictions with the frequency of the given labels
    )
    return resolved(settings)


def warm_up_seconds(
    data: Manifest, split: Split, *, config: TrainConfig, device: torch.device
) -> float:
    """About how long the trainings of the estimate take together, by ``training_seconds``; 0 where
    there are none. Not measured, and 0, where the head is still to be chosen, and where the run
    computes its own features: most of its time is theirs."""
    not_measured = config.backbone is not None or config.network == CHOOSE_HEAD
    if not_measured or data.posterior is not None or not needs_estimate(config):
        return 0.0
    learnt = max(1, len(split.train) * (WARM_UP_FOLDS - 1) // WARM_UP_FOLDS)
    fold = replace(train_on(split.train[:learnt]), test=split.train[learnt:])
    short = warm_up(config, samples=len(data))
    return WARM_UP_FOLDS * one_run.training_seconds(data, fold, config=short, device=device)


def describe(estimate: NoiseEstimate, *, used: float | None) -> list[str]:
    """The estimate and the rate that is used: a sentence for a log, and others for a warning and
    the run's page."""
    low, high = estimate.rate_interval
    verified = f" ({estimate.verified:,} of them verified)" if estimate.verified else ""
    labels = f"{estimate.samples:,} training labels{verified}"
    if not estimate.informed:
        return [
            f"From {labels} and {WARM_UP_FOLDS} short trainings: noise unknown, {low:.0%} to"
            f" {high:.0%}; trained as if 0%, because the short trainings have not learnt to tell"
            " the grades apart."
        ]
    corrected = estimate.rate if used is None else used
    lowered = corrected < estimate.rate
    halved = lowered and not estimate.identifiable and corrected < LARGEST_RATE
    used_here = ""
    reason = ""
    if estimate.undetermined is not None:
        used_here = f"; they do not determine it, and {estimate.rate:.2f} is used"
        if lowered:
            used_here = f"; they do not determine it, and the best guess is {estimate.rate:.2f}"
        if halved:
            used_here += f", of which half is corrected ({corrected:.2f})"
        clause = estimate.undetermined.clause
        reason = f"{clause[:1].upper()}{clause[1:]}."
    rate = estimate.rate_text(".2f", interval="95 %")
    sentences = [
        f"Estimated noise rate {rate} from {labels}{used_here}.",
        reason,
        estimate.assumption,
    ]
    if lowered and not halved:
        sentences.append(
            f"The matrix is used with a rate of {corrected:.2f}: more labels are taken to be right"
            " than wrong."
        )
    return [sentence for sentence in sentences if sentence]


def noise_record(
    requested: TrainConfig, used: TrainConfig, estimate: NoiseEstimate | None
) -> dict[str, Any]:
    """For ``run.json``: the noise rate that was requested, estimated and used, and why."""
    needs = methods.lookup(used.method).method.needs
    rate = used.known_noise_rate
    requested_rate = requested.requested_noise_rate
    if estimate is not None:
        why = " ".join(describe(estimate, used=rate))
    elif rate is not None and requested_rate == "auto":
        why = from_readers(used)
    elif "noise_rate" in needs:
        why = "The rate was given."
    elif needs and requested.transition is None:
        why = "The rate was given; errors by one grade are assumed."
        if isinstance(requested_rate, float) and rate is not None and rate < requested_rate:
            why += (
                f" A rate of {rate:.2f} is used, the largest at which the own label is the"
                " likeliest."
            )
    else:
        rate = None
        why = "The matrix was given." if needs else "The method needs no noise rate."
    estimated = estimate.rate if estimate is not None and estimate.informed else None
    return {"requested": requested_rate, "estimated": estimated, "used": rate, "why": why}


def from_readers(used: TrainConfig) -> str:
    """Where the rate comes from if several readers graded the samples, for a log."""
    return (
        f"Noise rate {used.known_noise_rate:.2f}: the expected share of wrong labels on the"
        " training side, where a label is the consensus of the readers, from the probabilities"
        " that the readers' grades give to each true grade. No training was needed to estimate it."
    )


def _apply(config: TrainConfig, rate: float, transition: Floats, posterior: Floats) -> TrainConfig:
    """The configuration with this noise, as far as the method needs it."""
    resolved: dict[str, Any] = {
        "noise_rate": min(rate, 0.95)
    }  # a method that discards keeps some samples
    if config.transition is None and "transition" in methods.lookup(config.method).method.needs:
        resolved["transition"] = usable_matrix(rate, transition).tolist()
        if "noise_rate" not in methods.lookup(config.method).method.needs:
            resolved["noise_rate"] = min(rate, LARGEST_RATE)
    if config.soft_labels == "estimated":
        resolved["method_options"] = {**config.method_options, "label_matrix": posterior.tolist()}
    return config.replace(**resolved)


def usable_matrix(rate: float, transition: Floats) -> Floats:
    """The estimated matrix, with a rate of at most one half. A grade that never occurs by the
    estimate keeps its own label."""
    occurs = transition.sum(axis=1, keepdims=True) > 0
    identity = np.eye(len(occurs))
    matrix = np.where(occurs, transition, identity)
    if rate <= LARGEST_RATE:
        return matrix
    return np.asarray(identity + LARGEST_RATE / rate * (matrix - identity))


def _estimate_once(
    folder: Path,
    facts: dict[str, Any],
    estimate_in: Callable[[Path | None], NoiseEstimate],
    reporter: Reporter,
) -> NoiseEstimate:
    """The estimate in this folder, which one process computes."""
    file = folder / "noise.json"
    if not file.exists() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SrjtError(
            "The noise cannot be estimated by several processes (",
            Option("noise_rate", "auto"),
            ", the default of srjt): estimate the rate with srjt audit first, and pass it as a"
            " number.",
            code="unsupported",
        )

    def content() -> dict[str, Any]:
        return {**facts, "estimate": estimate_in(folder / "warmup").to_dict()}

    run_folder.write_once(file, content, note=reporter.note)
    saved = run_folder.read_estimate(file, run_folder.NoiseFile)
    begun = (folder / "run.json").exists()
    if not begun:  # else the run compares its own settings and samples next
        before = {name: getattr(saved, name) for name in facts}
        now = dict(facts)
        run_folder.refuse_differences(
            f"{file} was estimated from other images, labels or settings",
            {**before.pop("warm_up"), **before},
            {**now.pop("warm_up"), **now},
        )
    shutil.rmtree(folder / "warmup", ignore_errors=True)
    return saved.estimate
