"""``network="auto"``: of two heads for features, take the one that makes held-out labels likelier.

The labels are the noisy ones, and a patient's samples are held out together. On few rows an mlp
memorises what a proportional-odds model cannot; on many it finds what is not linear. Both learn
from the labels without correction, as in the warm-up; that of odds is used again for the noise
estimate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srjt.data.manifest import Manifest
from srjt.errors import SrjtError
from srjt.noise.matrices import Floats, Ints
from srjt.progress import Reporter
from srjt.training import folder as run_folder, single_run as one_run
from srjt.training.config import (
    CHOOSE_HEAD,
    HEAD,
    ODDS,
    TrainConfig,
)
from srjt.training.crossfit import CrossFit
from srjt.training.fit_odds import folds_by_patient
from srjt.training.noise_rate import WARM_UP_FOLDS, WARM_UP_METHOD, fit_warm_up, warm_up
from srjt.training.sides import resolve_split, train_on
from srjt.training.trained import (
    Setup,
)


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
            fit = fit_warm_up(manifest, one, setup, out=None)
            # of the images that could be read
            likelihoods[name] = likelihood_at_best_slope(fit.probabilities, fit.manifest.labels)
            fits[name] = fit
        return likelihoods

    if out is None or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        held_out = compare()
    else:
        facts = {
            "fingerprint": one_run.fingerprint(manifest, train_on(rows)),
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
    """The comparison in this folder, which one process computes."""
    file = folder / "head.json"
    run_folder.write_once(file, lambda: {**facts, "held_out": compare()}, note=reporter.note)
    saved = run_folder.read_estimate(file, run_folder.HeadFile)
    begun = (folder / "run.json").exists()
    if not begun:  # else the run compares its own settings and samples next
        before = {name: getattr(saved, name) for name in facts}
        what = f"{file} was made from other features, labels or settings"
        run_folder.refuse_differences(what, before, facts)
    return saved.held_out
