"""``srjt.train``: choose the samples, replace ``noise_rate="auto"`` by an estimate of the noise of
the labels, then train one run.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as once
from pathlib import Path
from typing import Any

import numpy as np

from srjt import methods, networks, noise
from srjt._version import __version__
from srjt.data.grades import Grades
from srjt.data.images.decode import OnBadImage
from srjt.data.images.feed import FeedCache
from srjt.data.manifest import LeakageWarning, Manifest
from srjt.data.sources import LabelledData, labelled_samples
from srjt.data.splits import Split
from srjt.errors import Message, Option, SrjtError, unknown_name, warn
from srjt.files import explain_write_errors, wait_for_lock, write_atomically, write_sealed_json
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.matrices import Floats, Ints, noise_from_posterior
from srjt.progress import Reporter
from srjt.text import count_of
from srjt.training import folder as run_folder, single_run as one_run
from srjt.training.batches import Transform
from srjt.training.config import (
    AUTO,
    CHOOSE_HEAD,
    HEAD,
    ODDS,
    PAPER_EPOCHS,
    ResolvedConfig,
    TrainConfig,
    reopened,
    resolved,
)
from srjt.training.crossfit import CrossFit, cross_fit
from srjt.training.devices import choose_device, refuse_bf16_on_cpu
from srjt.training.frozen import lacks_weights, resolve_backbone
from srjt.training.image_identity import image_digest
from srjt.training.odds import folds_by_patient
from srjt.training.reporters import reporter_in_python
from srjt.training.single_run import resolve_split
from srjt.training.trained import (
    NetworkMaker,
    Setup,
    SplitChoice,
    Trained,
    build_method,
    fetch_weights,
)

# ``noise_rate="auto"``: estimate the noise of the training labels, and replace "auto" by the
# estimate.
#
# A short cross-fit on the training side (the warm-up) gives every training sample probabilities
# from networks that have not seen it; from these and the labels the noise is estimated.
# ``noise.json`` keeps the estimate beside the run, and a resumed run uses it again.

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
            trained = _fit_warm_up(manifest, warm_up_config, setup, out=folder)
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
            "fingerprint": one_run.fingerprint(readable, one_run.train_on(rows)),
            "warm_up": warm_up_config.determining(),
            "folds": WARM_UP_FOLDS,
            "images": image_digest(learnt),
        }
        estimate = _estimate_once(Path(out), facts, estimate_in, reporter)
    if estimate.informed:
        share = CORRECTED_IN_DOUBT if config.network == ODDS and not estimate.identifiable else 1.0
        matrix = share * estimate.transition + (1.0 - share) * np.eye(manifest.num_classes)
        resolved = _apply(config, share * estimate.rate, matrix, estimate.posterior())
    else:  # a matrix of networks that know nothing would only blur the labels
        resolved = _apply(config, 0.0, np.eye(manifest.num_classes), np.eye(manifest.num_classes))
    sentences = describe(estimate, used=resolved.known_noise_rate)
    method = methods.lookup(config.method)
    nothing_discarded = (
        method.is_recipe and "noise_rate" not in method.needs
    )  # then a note is enough
    if not estimate.informed or not (estimate.identifiable or nothing_discarded):
        warn(Message.joined([*sentences, WOULD_HELP]))
    else:
        reporter.note(sentences[0])
    return resolved, estimate


def _fit_warm_up(
    manifest: Manifest, config: TrainConfig, setup: Setup, *, out: Path | None
) -> CrossFit:
    """Out-of-fold predictions for the training side. config: of ``warm_up``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakageWarning)  # already shown when the split was made
        return cross_fit(
            manifest, config=config, folds=WARM_UP_FOLDS, out=out, setup=setup, title="warm-up"
        )


# ``network="auto"``: of two heads for features, take the one that makes held-out labels likelier.
#
# The labels are the noisy ones, and a patient's samples are held out together. On few rows an mlp
# memorises what a proportional-odds model cannot; on many it finds what is not linear. Both learn
# from the labels without correction, as in the warm-up; that of odds is used again for the noise
# estimate.


@dataclass(frozen=True, kw_only=True)
class ChosenHead:
    """The configuration with the chosen head; what it was chosen by, and its warm-up, if there was
    a choice."""

    config: TrainConfig
    held_out: dict[str, float] | None = None  # mean held-out log-likelihood by network
    fitted: CrossFit | None = None


def choose_head(
    manifest: Manifest,
    *,
    config: TrainConfig,
    setup: Setup | None = None,
    out: str | Path | None = None,
) -> ChosenHead:
    """The configuration with ``odds`` or ``mlp`` in place of the network "auto"; others are
    returned unchanged.

    Only the training side of the split is used.

    out: a ``head.json`` in this folder is reused; of several processes one computes it, the others
    wait.
    """
    setup = setup or Setup()
    network = config.for_data(features=manifest.are_features, samples=len(manifest)).network
    if network != CHOOSE_HEAD:
        return ChosenHead(config=config)
    if setup.network is not None:  # one of your own learns as an mlp does
        return ChosenHead(config=config.replace(network=HEAD))
    if not manifest.are_features and config.backbone is None:
        raise SrjtError(
            "The network 'auto' chooses between heads for features, and these data are images.",
            code="unsupported",
            option="network",
        )
    heads = {name: config.with_head(name) for name in (ODDS, HEAD)}
    if config.method == WARM_UP_METHOD:  # an audit's: odds maximises a likelihood
        heads[ODDS] = heads[ODDS].replace(method="standard")
    trained = {name: warm_up(one, samples=len(manifest)) for name, one in heads.items()}
    # as long as it would be trained: after a few steps of a short warm-up an mlp knows less than it
    # could
    trained[HEAD] = trained[HEAD].replace(epochs=heads[HEAD].epochs)
    rows = resolve_split(setup.split, manifest, skipped=False).train
    learnt = manifest.select(rows)
    fits: dict[str, CrossFit] = {}

    def compare() -> dict[str, float]:
        if not _can_be_compared(learnt):
            return {}
        setup.reporter.note(
            "Choosing between odds and mlp by how likely they make held-out labels."
        )
        likelihoods = {}
        for name, one in trained.items():
            fits[name] = _fit_warm_up(manifest, one, setup, out=None)
            probabilities = fits[name].probabilities
            likelihoods[name] = likelihood_at_best_slope(probabilities, learnt.labels)
        return likelihoods

    if out is None or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        held_out = compare()
    else:
        facts = {
            "fingerprint": one_run.fingerprint(manifest, one_run.train_on(rows)),
            "compared": {name: one.determining() for name, one in trained.items()},
            "folds": WARM_UP_FOLDS,
        }
        held_out = _compare_once(Path(out), facts, compare, setup.reporter)
    chosen = max(held_out, key=held_out.__getitem__, default=ODDS)
    setup.reporter.note(head_sentence(held_out))
    return ChosenHead(
        config=heads[chosen], held_out=held_out, fitted=fits.get(ODDS) if chosen == ODDS else None
    )


def head_sentence(held_out: Mapping[str, float]) -> str:
    """Which head was chosen, and why, for a log and the run's page."""
    if not held_out:
        return "The network is odds: there are too few samples or patients to compare it with mlp."
    chosen = max(held_out, key=held_out.__getitem__)
    values = " and ".join(f"{value:.3f} with {name}" for name, value in held_out.items())
    return f"The network is {chosen}: held-out labels have a mean log-likelihood of {values}."


def _can_be_compared(samples: Manifest) -> bool:
    """Whether every part of the warm-up leaves two grades to learn."""
    if len(set(samples.groups or samples.ids)) < 2 * WARM_UP_FOLDS:
        return False
    fold = folds_by_patient(samples, folds=WARM_UP_FOLDS)
    return all(len(set(samples.labels[fold != k].tolist())) > 1 for k in range(WARM_UP_FOLDS))


def likelihood_at_best_slope(probabilities: Floats, labels: Ints) -> float:
    """The mean log-likelihood of labels by (N, C) probabilities ∝ p^β, at the best of some β.

    Soft labels and short trainings make probabilities less sure, which says nothing about who knows
    more.
    """
    log_p = np.log(np.maximum(probabilities, 1e-12))
    likelihoods = []
    for slope in 2.0 ** np.arange(-3.0, 3.1, 0.25):
        scaled = slope * log_p
        log_q = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        likelihoods.append(float(log_q[np.arange(len(labels)), labels].mean()))
    return max(likelihoods)


def _compare_once(
    folder: Path, facts: dict[str, Any], compare: Callable[[], dict[str, float]], reporter: Reporter
) -> dict[str, float]:
    """The comparison in this folder: the first process computes it while the others wait."""
    file = folder / "head.json"
    if not file.exists():
        with explain_write_errors(f"The run cannot be written to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        note_once = once(
            lambda: reporter.note(f"Waiting for another process that works on {folder}.")
        )
        with wait_for_lock(folder, waiting=note_once):
            if not file.exists():
                made_by = {"format": run_folder.FORMAT, "srjt": __version__}
                write_sealed_json(file, {**made_by, **facts, "held_out": compare()})
    saved = run_folder.read_estimate(file, run_folder.HeadFile)
    if not (
        folder / "run.json"
    ).exists():  # else the run compares its own settings and samples next
        before = {name: getattr(saved, name) for name in facts}
        what = f"{file} was made from other features, labels or settings"
        run_folder.refuse_differences(what, before, facts)
    return saved.held_out


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
    used_here = ""
    reason = ""
    if not estimate.identifiable:
        used_here = f"; they do not determine it, and {estimate.rate:.2f} is used"
        reason = f"{estimate.reason[:1].upper()}{estimate.reason[1:].rstrip('.')}."
    rate = estimate.rate_text(".2f", interval="95 %")
    sentences = [
        f"Estimated noise rate {rate} from {labels}{used_here}.",
        reason,
        estimate.assumption,
    ]
    if used is not None and used < estimate.rate:
        reason = "more labels are taken to be right than wrong"
        if not estimate.identifiable and used < LARGEST_RATE:
            reason = "it is not determined, so half of it is corrected"
        sentences.append(f"The matrix is used with a rate of {used:.2f}: {reason}.")
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
    """The estimate in this folder: the first process computes it while the others wait."""
    file = folder / "noise.json"
    if not file.exists() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SrjtError(
            "The noise cannot be estimated by several processes (",
            Option("noise_rate", "auto"),
            ", the default of srjt): estimate the rate with srjt audit first, and pass it as a"
            " number.",
            code="unsupported",
        )
    if not file.exists():
        with explain_write_errors(f"The run cannot be written to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        note_once = once(
            lambda: reporter.note(f"Waiting for another process that works on {folder}.")
        )
        with wait_for_lock(folder, waiting=note_once):
            if not file.exists():
                made_by = {"format": run_folder.FORMAT, "srjt": __version__}
                estimate = estimate_in(folder / "warmup").to_dict()
                write_sealed_json(file, {**made_by, **facts, "estimate": estimate})
    saved = run_folder.read_estimate(file, run_folder.NoiseFile)
    if not (
        folder / "run.json"
    ).exists():  # else the run compares its own settings and samples next
        before = {name: getattr(saved, name) for name in facts}
        now = dict(facts)
        run_folder.refuse_differences(
            f"{file} was estimated from other images, labels or settings",
            {**before.pop("warm_up"), **before},
            {**now.pop("warm_up"), **now},
        )
    shutil.rmtree(folder / "warmup", ignore_errors=True)
    return saved.estimate


# ``srjt.train``: resolve what is "auto", then train one run.


def train(
    data: LabelledData,
    *,
    out: str | Path | None = None,
    split: SplitChoice = None,
    network: str | NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
    device: str | None = None,
    progress: bool = True,
    reporter: Reporter | None = None,
    config: TrainConfig | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    shared_estimate: Path | None = None,
    feeds: FeedCache | None = None,
    grade_names: Mapping[str, str] | None = None,
    command: str | None = None,
    **settings: Any,
) -> Trained:
    """Train a classifier on images, or features, with ordinal labels that are partly wrong.

    The same settings, data and machine give the same weights, also if the training is interrupted
    and resumed.

    Parameters
    ----------
    data : Manifest, path, DataFrame, pair of arrays, or torch dataset
        The samples: ``srjt.data.read(path)`` or what it reads; (images, grades); or a map-style
        dataset that returns (image, label), which is read into memory once, so that its random
        transforms are drawn once.
    out : path, optional
        Folder of the run. An unfinished run of the same configuration in it is resumed, a finished
        one is opened. Without it nothing is written.
    split : Split, callable or "all", optional
        Row positions of ``data``, or a function that makes the split from the manifest that remains
        after unreadable images were skipped. ``split.train`` is trained on; the other sides are
        evaluated after every epoch: validation against the given labels, test against the true
        grades where they are known. "all": train on all samples. Default: the split column of the
        data, as ``srjt train`` does; all samples if there is none. A ``LeakageWarning`` is issued
        if a patient or an identical image is on two sides.
    network : str or callable, optional
        A name (see ``srjt.networks.names()``), or a function without arguments that returns a new
        module from images (or rows of features) to features (B, F). Default: ``resnet18`` for
        images. For features ``mlp``, or for srjt ``auto``: ``odds`` or ``mlp``, whichever makes
        held-out labels likelier.
    transform, eval_transform : callable, optional
        Your own augmentation and evaluation transform, from uint8 (B, 3, H, W) on the device to
        float, in place of the random crop and flip, and of the centre crop.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook. Nothing
        is shown elsewhere.
    reporter : Reporter, optional
        Receives the progress instead.
    config : TrainConfig, optional
        Settings as an object. Default: the paper's.
    cache : path, optional
        Folder for decoded images. Default: ``$SRJT_CACHE``, or the user's cache folder.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out and list it in ``Trained.skipped``.
    shared_estimate : path, optional
        Folder in which several runs share one noise estimate, as the runs of a study do.
    feeds : FeedCache, optional
        Keeps the images on the GPU for the next training with the same images.
    grade_names : mapping of str to str, optional
        Grade → its name for people, such as ``{"0": "none", "1": "doubtful"}``; kept with the run
        and shown beside the grades. All grades are named, or none.
    command : str, optional
        The command that started the run, for its record.
    **settings
        Any field of ``TrainConfig``; these override ``config``. With ``noise_rate="auto"`` the
        noise is estimated first, from the training side alone.

    Returns
    -------
    Run
        The networks, every metric of every epoch, and the history of every training sample
        (``Trained``), with ``summary()``, ``scores``, ``plot()``, ``predict(data)`` and more.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1}
    >>> run = srjt.train(data, split=srjt.data.folds(data)[0], noise_rate=0.2, **settings)
    >>> list(run.scores.loc["test"].index)
    ['mae', 'accuracy', 'macro_f1', 'qwk']
    """
    if not (split is None or split == "all" or callable(split) or isinstance(split, Split)):
        raise SrjtError(
            "split takes a Split, a function that makes one from the data, or 'all', not"
            f" {split!r}: the first of five folds is split=srjt.data.folds(data)[0].",
            code="wrong_type",
            option="split",
        )
    if out is not None:
        run_folder.refuse_other_files(Path(out))  # before anything is read or written
    data = labelled_samples(data, on_bad_image=on_bad_image, progress=progress and reporter is None)
    if isinstance(network, str):
        settings["network"], network = network, None
    names = Grades(data.grades, grade_names).names  # an error before images are decoded
    requested = (config or TrainConfig()).replace(**settings)
    check_settings(requested.with_recipe())
    refuse_bf16_on_cpu(
        requested.precision, choose_device(device)
    )  # an error before images are decoded
    if requested.keep == "best" and (
        split == "all" or (split is None and "split" not in data.table)
    ):
        raise one_run.no_validation_side()
    with reporter_in_python(reporter, progress=progress) as watching:
        setup = Setup(
            split=one_run.resolved_once(split, samples=len(data)),
            network=network,
            transform=transform,
            eval_transform=eval_transform,
            device=device,
            cache=cache,
            on_bad_image=on_bad_image,
            feeds=feeds or FeedCache(),
            reporter=watching,
        )
        as_given = requested
        before = None
        if out is not None and (Path(out) / "run.json").exists():
            before = run_folder.read_facts(Path(out)).config
        requested = resolve_backbone(
            as_given, features=data.are_features, note=watching.note, before=before
        )
        if out is None or not run_folder.is_finished(Path(out)):
            fetch_weights(requested, setup, features=data.are_features)
        shared = shared_estimate or out
        head = choose_head(data, config=requested, setup=setup, out=shared)
        config, estimate = resolve_noise_rate(
            data, config=head.config, setup=setup, out=shared, fitted=head.fitted
        )
        if shared_estimate is not None and out is not None:
            folder = Path(out)
            folder.mkdir(parents=True, exist_ok=True)
            made = {"noise.json": estimate is not None, "head.json": head.held_out is not None}
            for name in (name for name, used in made.items() if used):
                write_atomically(folder / name, (shared_estimate / name).read_bytes())
        config = config.for_data(features=data.are_features, samples=len(data))
        watching.begin(config.method, epochs=config.epochs)
        run = one_run.single_run(
            data,
            config=config,
            setup=setup,
            out=out,
            noise=noise_record(requested, config, estimate),
            head=head.held_out,
            weights_missing=lacks_weights(as_given, requested, features=data.are_features),
            command=command,
            grade_names=names,
        )
    return replace(run, noise_estimate=estimate)
