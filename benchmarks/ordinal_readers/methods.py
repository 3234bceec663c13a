"""The methods of the benchmark, each a loss of a linear softmax head on frozen features.

A method is a function of a case (``cases.Case``). It returns a loss, and the parameters that the
loss has of its own. A loss is a function of the head and of a side, "train" or "validation", to a
number; the head turns features (n, D) into the logarithms of probabilities (n, C). ``METHODS`` at
the end names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from cases import Case, Floats

from srjt.readers import consensus
from srjt.readers.consensus import Consensus

Head = Callable[[torch.Tensor], torch.Tensor]
Loss = Callable[[Head, str], torch.Tensor]
Method = Callable[[Case], tuple[Loss, list[torch.Tensor]]]

START = 3.0  # the logits of the diagonal of a matrix that is learnt
MIXED = 0.5  # of the Beta distribution of mixup


# What several methods need of the readings.


def vote_shares(case: Case) -> Floats:
    """(N, C)"""
    votes = np.zeros((len(case.features), case.classes))
    np.add.at(votes, (case.item, case.grade), 1.0)
    return votes / np.maximum(votes.sum(axis=1, keepdims=True), 1.0)


def consensus_of(case: Case) -> Consensus:
    """Computed once for a case."""
    if id(case) not in _AGREED:
        _AGREED.clear()
        repeats = "independent" if case.anonymous else "one reading"
        _AGREED[id(case)] = consensus(case.readings(), repeats=repeats)
    return _AGREED[id(case)]


_AGREED: dict[int, Consensus] = {}


def dawid_skene(case: Case, *, iterations: int = 50, smoothing: float = 0.01) -> Floats:
    """(N, C) probabilities of the true grades, by expectation–maximisation from the votes."""
    posterior = vote_shares(case)
    read = posterior.sum(axis=1) > 0
    for _ in range(iterations):
        counts = np.full((case.readers, case.classes, case.classes), smoothing)
        np.add.at(counts, (case.reader, slice(None), case.grade), posterior[case.item])
        matrices = np.log(counts / counts.sum(axis=2, keepdims=True))
        log = np.tile(np.log(posterior[read].mean(axis=0)), (len(posterior), 1))
        np.add.at(log, case.item, matrices[case.reader, :, case.grade])
        log -= log.max(axis=1, keepdims=True)
        posterior = np.exp(log) / np.exp(log).sum(axis=1, keepdims=True) * read[:, None]
    return posterior


# Losses.


class Side(NamedTuple):
    """The images of a side, and their readings."""

    x: torch.Tensor  # (n, D)
    rows: torch.Tensor  # (n,) of all images
    item: torch.Tensor  # (m,) place among the n images
    reader: torch.Tensor  # (m,)
    grade: torch.Tensor  # (m,)


def sides(case: Case) -> dict[str, Side]:
    found = {}
    for name in ("train", "validation"):
        rows = getattr(case, name)
        place = np.full(len(case.features), -1)
        place[rows] = np.arange(len(rows))
        own = place[case.item] >= 0
        found[name] = Side(
            x=torch.as_tensor(case.features[rows]),
            rows=torch.as_tensor(rows),
            item=torch.as_tensor(place[case.item[own]]),
            reader=torch.as_tensor(case.reader[own]),
            grade=torch.as_tensor(case.grade[own]),
        )
    return found


def learn(case: Case, targets: Floats) -> tuple[Loss, list[torch.Tensor]]:
    """Cross-entropy with target distributions (N, C)."""
    images = sides(case)
    fixed = torch.as_tensor(targets)

    def loss(head: Head, side: str) -> torch.Tensor:
        return -(fixed[images[side].rows] * head(images[side].x)).sum(dim=1).mean()

    return loss, []


def per_reader(case: Case, log_matrices: Callable[[], torch.Tensor]) -> Loss:
    """One logarithm per reader: readings are independent given the image. Matrices (R, C, C)."""
    images = sides(case)

    def loss(head: Head, side: str) -> torch.Tensor:
        of = images[side]
        said = log_matrices()[of.reader, :, of.grade]
        return -torch.logsumexp(head(of.x)[of.item] + said, dim=1).mean()

    return loss


def joint(case: Case, log_matrices: torch.Tensor) -> Loss:
    """All readings of an image together: independent given its true grade."""
    images = sides(case)
    evidence = {}
    for name, of in images.items():
        evidence[name] = torch.zeros(len(of.x), case.classes, dtype=torch.float64)
        evidence[name].index_add_(0, of.item, log_matrices[of.reader, :, of.grade])

    def loss(head: Head, side: str) -> torch.Tensor:
        return -torch.logsumexp(head(images[side].x) + evidence[side], dim=1).mean()

    return loss


# The methods.


def majority(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    shares = vote_shares(case)
    return learn(case, np.eye(case.classes)[shares.argmax(axis=1)])


def votes(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    return learn(case, vote_shares(case))


def by_dawid_skene(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    return learn(case, dawid_skene(case))


def posterior(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    return learn(case, case.on_rows(consensus_of(case).posterior))


def _log_matrices(case: Case) -> torch.Tensor:
    return torch.as_tensor(np.log(consensus_of(case).matrices))


def likelihood_per_reader(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    fixed = _log_matrices(case)
    return per_reader(case, lambda: fixed), []


def likelihood_joint(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    return joint(case, _log_matrices(case)), []


def _learnt_matrices(case: Case) -> torch.Tensor:
    """(R, C, C) logits, which are learnt with the head."""
    near = (START * torch.eye(case.classes, dtype=torch.float64)).repeat(case.readers, 1, 1)
    return near.requires_grad_()


def crowd_layer(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    """Rodrigues and Pereira, 2018: a matrix for each reader is learnt with the head."""
    weights = _learnt_matrices(case)
    return per_reader(case, lambda: weights.log_softmax(dim=2)), [weights]


def annotator_mixup(case: Case) -> tuple[Loss, list[torch.Tensor]]:
    """After Herde and others, 2024: pairs of readings are mixed, features, matrices and grades."""
    weights = _learnt_matrices(case)
    images = sides(case)
    rng = np.random.default_rng(case.seed)

    def loss(head: Head, side: str) -> torch.Tensor:
        of = images[side]
        other = torch.as_tensor(rng.permutation(len(of.item)))
        share = torch.as_tensor(rng.beta(MIXED, MIXED, size=(len(other), 1)))
        x = of.x[of.item]
        matrices = weights.softmax(dim=2)[of.reader]
        grade = torch.eye(case.classes, dtype=torch.float64)[of.grade]
        p = head(share * x + (1.0 - share) * x[other]).exp()
        matrices = share[:, :, None] * matrices + (1.0 - share)[:, :, None] * matrices[other]
        said = torch.einsum("mc,mcj->mj", p, matrices).clamp(min=1e-12).log()
        return -((share * grade + (1.0 - share) * grade[other]) * said).sum(dim=1).mean()

    return loss, [weights]


METHODS: dict[str, Method] = {
    "majority": majority,
    "votes": votes,
    "Dawid–Skene": by_dawid_skene,
    "posterior": posterior,
    "likelihood, one log per reader": likelihood_per_reader,
    "likelihood, joint": likelihood_joint,
    "crowd layer": crowd_layer,
    "annotator mixup": annotator_mixup,
}
