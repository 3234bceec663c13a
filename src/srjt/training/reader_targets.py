"""What is learnt from samples that several readers graded: their consensus, or more of what they
say; and from verified grades."""

from __future__ import annotations

from dataclasses import replace

import torch

from srjt.data.manifest import Ints, Manifest
from srjt.errors import Option, SrjtError
from srjt.methods.base import Method
from srjt.training.batches import NO_READERS, ReaderTargets
from srjt.training.config import TrainConfig


def training_targets(
    manifest: Manifest, rows: Ints, config: TrainConfig, method: Method
) -> ReaderTargets:
    """What the training rows (N,) say beside their labels, and how much each of them counts."""
    targets = reader_targets(manifest, rows, config, method)
    if manifest.weights is None:
        return targets
    weights = torch.from_numpy(manifest.weights[rows])
    if targets.certainty is not None:
        weights = weights * targets.certainty
    return replace(targets, certainty=weights)


def reader_targets(
    manifest: Manifest, rows: Ints, config: TrainConfig, method: Method
) -> ReaderTargets:
    """The targets of the training rows (N,) that ``config.reader_targets`` asks for."""
    choice = config.reader_targets
    if choice == "auto":
        choice = "consensus"
        if manifest.posterior is not None and method.takes_probabilities:
            choice = "posterior"
    if choice == "consensus":
        return verified_targets(manifest, rows, method)
    if manifest.posterior is None:
        raise SrjtError(
            f"reader_targets {choice!r} needs the grades of several readers: read the data with ",
            Option("several_readings", "consensus"),
            ".",
            code="unsupported",
            option="reader_targets",
        )
    posterior = torch.from_numpy(manifest.posterior[rows])
    if choice == "certainty":
        labels = torch.from_numpy(manifest.labels[rows])
        return ReaderTargets(certainty=posterior[torch.arange(len(rows)), labels])
    if choice == "resample":
        if "transition" in method.needs:
            raise SrjtError(
                f"{config.method} corrects the errors of labels, and grades that are drawn from the"
                " readers' probabilities are true grades: use ",
                Option("reader_targets", "consensus"),
                ", 'posterior' or 'certainty'.",
                code="unsupported",
            )
        return ReaderTargets(draw_from=posterior)
    if choice == "readers":
        if not method.takes_likelihoods:
            raise SrjtError(
                f"{config.method} does not correct the errors of labels, which ",
                Option("reader_targets", "readers"),
                " needs: use srjt or f-correction.",
                code="unsupported",
            )
        # Bayes' rule backwards: the readers' posterior without the prior, which the network learns
        # itself
        return ReaderTargets(targets=(posterior / posterior.mean(dim=0)).unsqueeze(1))
    if not method.takes_probabilities:
        raise SrjtError(
            f"{config.method} learns from grades, not from probabilities: use ",
            Option("reader_targets", "consensus"),
            ", or a method such as standard, sord or co-teaching+ours.",
            code="unsupported",
            option="reader_targets",
        )
    return ReaderTargets(targets=posterior)


def verified_targets(manifest: Manifest, rows: Ints, method: Method) -> ReaderTargets:
    """Of the training rows (N,) those with a verified grade are learnt without correction.

    The others are corrected as ever: the likelihood of label y is the column y of the matrix.
    """
    verified = manifest.verified_labels
    if verified is None or method.transition is None or not method.takes_likelihoods:
        return NO_READERS
    grades = torch.from_numpy(verified[rows])
    is_verified = grades >= 0
    if not is_verified.any():
        return NO_READERS
    matrix = method.transition.detach().cpu().double()
    likelihoods = matrix[:, torch.from_numpy(manifest.labels[rows])].T.clone()
    certain = torch.eye(len(matrix), dtype=torch.float64)
    likelihoods[is_verified] = certain[grades[is_verified]]
    return ReaderTargets(targets=likelihoods.unsqueeze(1))
