"""Simulations of labels that are verified by doubt: how many are wrong, of all and of each grade,
at every look, and scores against the true grades; beside as many labels at random."""

from __future__ import annotations

import numpy as np

from promised.noise import known_scores, true_score_values
from promised.population import Floats, Sample, Setting, draw
from promised.scores import Held, holds
from srjt.auditing.scores import WITHIN
from srjt.auditing.verification import LOOKS
from srjt.noise.drawing import Drawing, draw_by_doubt, labels_needed
from srjt.noise.matrices import transition_matrix
from srjt.noise.model import bayes
from srjt.noise.verified import Share, Verified, read_verified, use_verified, verified_share

SUPPOSED = 0.2  # about the share of wrong labels that the doubt takes for granted, whatever it is


def posterior_of(sample: Sample, grades: int) -> Floats:
    """(N, C) p(true grade | image, label) by a matrix that is not the right one: too many or too
    few are doubted."""
    matrix = transition_matrix("truncated", num_classes=grades, rho=SUPPOSED / 2.0)
    return bayes(sample.labels, sample.probabilities, matrix)


def verified_by_doubt(setting: Setting, rng: np.random.Generator) -> Held:
    """What labels that are drawn by doubt say, and how long their interval is beside that of labels
    at random."""
    sample = draw(setting, rng)
    wrong = sample.labels != sample.true
    posterior = posterior_of(sample, setting.grades)
    doubt = 1.0 - posterior[np.arange(len(sample)), sample.labels]
    drawing = draw_by_doubt(doubt.clip(0.0, 1.0), seed=int(rng.integers(2**31)))
    rows = drawing.order[: setting.verified]
    checked = np.full(len(sample), -1)
    checked[rows] = sample.true[rows]
    probability = drawing.probability(len(rows))
    known = read_verified(
        checked, samples=len(sample), classes=setting.grades, probability=probability
    )
    found = use_verified(sample.labels, posterior, known, owner=sample.owner, confidence=0.95)
    low, high = found.interval
    held = {"doubt-rate": holds((found.rate, low, high), float(wrong.mean()))}
    for grade, (share, least, most) in enumerate(found.by_label):
        own = sample.labels == grade
        if own[rows].any():
            held[f"doubt-grades: {'rarest' if own.sum() < len(own) / 20 else 'a'} grade"] = holds(
                (share, least, most), float(wrong[own].mean())
            )
    alike = draw_by_doubt(np.full(len(sample), 0.5), seed=int(rng.integers(2**31)))
    random = _share(
        wrong.astype(np.float64), np.zeros(len(sample)), alike, len(rows), sample, looks=1
    ).interval
    held["doubt-shorter"] = (high - low) / (random[1] - random[0])
    held["doubt-at-worst"] = held["doubt-shorter"] / 1.1
    scores = known_scores(
        sample, setting.grades, verified=checked, verified_probability=probability
    )
    if scores is not None and scores.verified:
        for metric, value in true_score_values(setting).items():
            held[f"doubt-scores: {metric}"] = holds(scores.scores[metric], value)
    return held


def needed_by_doubt(setting: Setting, rng: np.random.Generator) -> Held:
    """The half-width after as many labels, verified by doubt, as an audit names, over the one that
    was wanted. The doubt supposes another share of wrong labels, and the plan knows it."""
    sample = draw(setting, rng)
    wrong = sample.labels != sample.true
    posterior = posterior_of(sample, setting.grades)
    doubt = (1.0 - posterior[np.arange(len(sample)), sample.labels]).clip(0.0, 1.0)
    number = labels_needed(doubt, within=WITHIN, rate=float(wrong.mean()))
    drawing = draw_by_doubt(doubt, seed=int(rng.integers(2**31)))
    low, high = _share(wrong.astype(np.float64), doubt, drawing, number, sample, looks=1).interval
    return {"half-width": (high - low) / 2.0 / WITHIN}


def looked_at_again(setting: Setting, rng: np.random.Generator) -> Held:
    """Whether the intervals of all looks hold the share of wrong labels."""
    sample = draw(setting, rng)
    wrong = (sample.labels != sample.true).astype(np.float64)
    posterior = posterior_of(sample, setting.grades)
    doubt = (1.0 - posterior[np.arange(len(sample)), sample.labels]).clip(0.0, 1.0)
    drawing = draw_by_doubt(doubt, seed=int(rng.integers(2**31)))
    sizes = sorted({min(size, len(sample)) for size in LOOKS})
    shares = [_share(wrong, doubt, drawing, size, sample, looks=len(sizes)) for size in sizes]
    truth = float(wrong.mean())
    return {
        "all looks": float(
            all(
                low - 1e-9 <= truth <= high + 1e-9 for low, high in (one.interval for one in shares)
            )
        )
    }


def _share(
    wrong: Floats, doubt: Floats, drawing: Drawing, size: int, sample: Sample, *, looks: int
) -> Share:
    rows = drawing.order[:size]
    known = Verified(rows=rows, true=sample.true[rows], probability=drawing.probability(size)[rows])
    return verified_share(
        wrong[rows],
        doubt[rows],
        known,
        mean_doubt=float(doubt.mean()),
        samples=len(sample),
        owner=sample.owner,
        confidence=1.0 - 0.05 / looks,
    )
