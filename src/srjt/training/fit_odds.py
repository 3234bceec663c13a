"""Train the network ``odds``: fit the proportional-odds model to the labels of a run at once,
without epochs.

The run is like any other: its weights are those of a linear head with ordered thresholds, its
metrics have one row per number as after one epoch, its history has the loss of every sample. There
is nothing to resume: it takes seconds.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.manifest import LeakageWarning, Manifest
from srjt.data.splits import assign_folds
from srjt.methods.single import OrdinalHead, ProportionalOdds
from srjt.networks import Standardise
from srjt.ordinal.proportional_odds import Floats, Ints, OddsModel, Targets, fit_odds
from srjt.progress import Reporter
from srjt.training import checkpoint
from srjt.training.batches import ReaderTargets, TrainingSet, balancing_weights
from srjt.training.checkpoint import MetricRow
from srjt.training.loop import Side, TrainingResult
from srjt.training.reporters import FoldReporter
from srjt.training.step import Recorder
from srjt.training.trained import Trained

STRENGTH_FOLDS = 5  # by which the strength of the penalty is chosen


def fit_at_once(
    run: Trained,
    data: TrainingSet,
    sides: dict[str, Side],
    *,
    samples: Manifest,
    rows: npt.NDArray[np.float32],
    reporter: Reporter,
) -> TrainingResult:
    """Fit the network of ``run``, evaluate it as after an epoch, and record both.

    samples: those of the training side. rows: (N, F) their features.
    """
    begin = time.perf_counter()
    method = run.method
    network = run.networks.members[0]
    assert isinstance(method, ProportionalOdds)
    scaled = network.backbone
    head = network.head
    assert isinstance(scaled, Standardise)
    assert isinstance(head, OrdinalHead)
    x = (
        rows.astype(np.float64) - scaled.mean.double().cpu().numpy()
    ) / scaled.scale.double().cpu().numpy()
    model = fit_samples(
        x, samples, method=method, readers=data.readers, balance=run.config.balance or 0.0
    )
    with torch.no_grad():
        head.weight.weight.copy_(torch.from_numpy(model.weights)[None])
        head.bias.copy_(torch.from_numpy(-model.thresholds))
    if not isinstance(reporter, FoldReporter):  # the trainings of a cross-fit are all alike
        reporter.note(
            f"odds is fitted at once, with the ridge strength {model.strength:.3g}; epochs, batch"
            " size, learning rate and seed do not apply."
        )

    recorder = Recorder(data.labels, data.true, networks=1, num_classes=method.num_classes, steps=1)
    every = torch.arange(len(data.labels), device=data.labels.device)
    with torch.no_grad():
        inputs = torch.from_numpy(rows).to(data.labels.device)
        logits = run.networks.eval()(inputs)
        loss = method.loss(logits, data.targets)
        label_loss = method.per_sample(logits[0], data.labels)[None]
    recorder.add(every, loss.total, loss.per_network, loss.selected, label_loss)
    numbers, _ = recorder.finish_epoch()

    forward = run.forward(data.feed, sides=[side.rows for side in sides.values()])
    metrics = [MetricRow(1, "train", "1", name, value) for name, value in numbers[0].items()]
    confusions = {}
    for name, side in sides.items():
        confusions[name] = forward.confusion_counts(side.rows, side.labels).cpu().numpy()
        metrics += checkpoint.metric_rows(1, name, confusions[name])
    metrics.append(MetricRow(1, "train", "", "ridge_strength", model.strength))
    metrics.append(MetricRow(1, "train", "", "seconds", time.perf_counter() - begin))
    log = checkpoint.MetricsLog(None if run.folder is None else run.folder / "metrics.csv")
    log.resume([])  # of a run that was interrupted
    log.add(metrics)
    log.sync()
    reporter.finished_epoch(1, metrics)
    return TrainingResult(
        metrics=log.table(),
        history=recorder.history(),
        confusions=confusions,
        epochs=1,
        kept_epoch=1,
    )


def fit_samples(
    x: Floats,
    samples: Manifest,
    *,
    method: ProportionalOdds,
    readers: ReaderTargets,
    balance: float,
) -> OddsModel:
    """Fit the model to standardised columns (N, F) of the samples, whose patients are held out
    together."""
    targets = _targets(samples, method, readers, balance=balance)
    fold = folds_by_patient(samples, folds=STRENGTH_FOLDS)
    if len(np.unique(fold)) < 2:  # one patient: a severity of prior variance 1
        return fit_odds(x, targets, strengths=[float(x.shape[1])])
    return fit_odds(x, targets, fold=fold)


def _targets(
    samples: Manifest, method: ProportionalOdds, readers: ReaderTargets, *, balance: float
) -> Targets:
    """What the labels say about the true grades; verified grades are certain where errors are
    corrected."""
    labels = samples.labels
    classes = method.num_classes
    weights = balancing_weights(
        torch.from_numpy(labels), balance=balance, certainty=readers.certainty
    )
    counts = np.ones(len(labels)) if weights is None else weights.double().numpy()
    counts = counts * (len(labels) / counts.sum())
    matrix = (
        np.eye(classes) if method.transition is None else method.transition.cpu().double().numpy()
    )
    kind: Literal["likelihoods", "probabilities"] = "likelihoods"
    values = matrix[:, labels].T
    if readers.draw_from is not None:  # what the mean over many draws would learn
        values = readers.draw_from.double().numpy()
        kind = "probabilities"
    elif (
        readers.targets is not None and readers.targets.ndim == 3
    ):  # of all readings of a sample together
        values = readers.targets[:, 0].double().numpy()
    elif readers.targets is not None:
        values = readers.targets.double().numpy()
        kind = "probabilities"
    values = np.array(values, dtype=np.float64)
    verified = samples.verified_labels
    if verified is not None and method.transition is not None:
        known = verified >= 0
        values[known] = np.eye(classes)[verified[known]]
    return Targets(values=values, kind=kind, weights=counts)


def folds_by_patient(samples: Manifest, *, folds: int) -> Ints:
    """(N,) the fold of each sample: by patient, stratified by the given grades; the same for every
    seed.

    There are fewer folds if there are fewer patients.
    """
    table = samples.table.drop(
        columns=["true_grade", "verified_grade", "verified_probability"], errors="ignore"
    )
    given = replace(samples, table=table)
    owners = len(set(given.groups or given.ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakageWarning)  # already shown when the split was made
        return assign_folds(given, folds=min(folds, owners), seed=0, by="stratified")
