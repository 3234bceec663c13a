"""What stands for the true grades of the samples that ranges are calibrated on: weights, and what
they rest on.

Labels and predictions leave a *set* of noises open. A range keeps its promise for all of them if
its threshold is the highest of theirs. With the default, "unknown":

- **How many labels are wrong.** Any share, for each given grade on its own, from none to what the
  noise says: the coverage is linear in these shares, so the worst case has one of the two ends in
  each given grade (``widest_range_threshold``). No end is the worst for all: many wrong labels of
  a rare grade mean that the true grade is mostly the common one, which every range holds. So
  ranges are never narrower than with "none".
- **At which rate.** The middle of the plausible ones. The promise holds on average over the
  interval: at its upper end right labels would be covered needlessly often (0.98 to 1.00 in
  simulations, where 0.9 is promised).
- **Which grade is the true one.** p(true grade | label) without the image, as if networks knew no
  better than the label which grade is right. Where the labels do not determine the noise, they do
  not show its direction either: labels that are all too low, or all too high, count as well.
- **Which images have wrong labels.** Of the images with one label the unclear ones, in proportion
  to 1 − the network's largest probability. The upper end of the interval rests on the same: a
  label is wrong no more often than labels of such an image differ from the likeliest.

With "class-conditional" labels are wrong by the true grade alone: Σ_c (P⁻¹)[ỹ, c] · f(x, c) has
the mean of f(x, true grade), whatever the networks say (``noise.quality``).

**Patients.** The true grade of a patient is the highest true grade of the images, however their
answers are pooled. Its noise is not the noise of an image: the more images, the more likely one
label is too high. With ``label_noise``

- "class-conditional": labels are wrong one by one, by the matrix P of images. Products of the
  rows of P⁻¹ have the mean of the truth, without any assumption about the true grades
  (``noise.quality``).
- "unknown": p(highest true grade | all labels of the patient), without the images, as for images.
  It depends on whether labels of one patient are wrong one by one, or all together, because the
  reader misjudges the patient: then the highest label is wrong as an image's is, by P. Both
  count, for each of the noises above.
- Whatever labels depend on, the highest label of a patient is wrong by more than d grades only if
  one of its n labels is: with at most n times an image's probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import brentq  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.inference.answers import pick_known
from srjt.noise import quality
from srjt.noise.matrices import transition_of
from srjt.noise.quality import LabelNoise, NoiseBounds, posterior_weights
from srjt.ordinal import ranges as conformal
from srjt.ordinal.decoding import highest_per_unit, pool_probabilities
from srjt.ordinal.metrics import Floats, Ints
from srjt.training.held_out import HeldOut

Basis = Literal["verified", "labels", "corrected", "conservative"]


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What a promise rests on.

    Attributes
    ----------
    kind : str
        "right": the calibration labels are right. "random": the verified ones were drawn at random.
        Labels are wrong at one of the ``rates``, and "unclear": unclear images more often; "units":
        those of a patient one by one or together; in both cases the networks do not repeat their
        errors. "class-conditional", "class-conditional units": by the true grade of the image
        alone. "near": whichever near grade is the true one.
    rates : (float, float) or None
        The lowest and the highest share of wrong labels.
    labels : int
        Of "near": the number of labels if they are too few to say which grades are confused; 0:
        labels of one patient contradict the estimated noise.
    """

    kind: Literal[
        "right",
        "random",
        "unclear",
        "units",
        "class-conditional",
        "class-conditional units",
        "near",
    ] = "right"
    rates: tuple[float, float] | None = None
    labels: int = 0


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known about the true grades of M answers.

    Attributes
    ----------
    labels : ndarray of int64, shape (M,)
        The given grades; of a patient the highest.
    groups : list of str or None
        (M,) the patients, or what else is exchangeable.
    verified : ndarray of int64, shape (M,)
        True grades of a random sample, −1 elsewhere.
    basis : {"verified", "labels", "corrected", "conservative"}
        As in ``RangeRule``.
    assumption : Assumption
        What a promise by this evidence rests on.
    right : ndarray, shape (M, C)
        The weights if no label is wrong.
    plausible : list of ndarray, shape (M, C)
        The weights of each plausible noise. The widest range counts, and with each noise any
        smaller share of wrong labels, for each given grade.
    inverse : list of ndarray, shape (M, C)
        Weights that may be negative, one for each plausible rate, if labels are wrong by the true
        grade alone. The widest range counts if it is narrower than by ``plausible``. Empty: not
        assumed, or not possible.
    known : bool
        Whether anything can be said about the noise; else only the conservative range is left.
    labels_each : float
        The share of answers with a wrong label is at most this number times the share of wrong
        labels.
    """

    labels: Ints
    groups: list[str] | None
    verified: Ints
    basis: Basis = "labels"
    assumption: Assumption = Assumption()
    right: Floats
    plausible: list[Floats] = field(default_factory=list)
    inverse: list[Floats] = field(default_factory=list)
    known: bool = True
    labels_each: float = 1.0


def image_evidence(
    side: HeldOut, probabilities: Floats, noise: NoiseBounds | None, label_noise: LabelNoise
) -> Evidence:
    """The evidence about images. probabilities: (N, C), by which images are clear or not."""
    verified = side.random_verified
    evidence = Evidence(
        labels=side.labels,
        groups=side.groups,
        verified=np.full(len(side), -1) if verified is None else verified,
        right=np.eye(probabilities.shape[1])[side.labels],
    )
    if label_noise == "none" or noise is None:
        return evidence
    plausible = []
    for joint in plausible_noises(noise, side.labels):
        posterior = posterior_weights(side.labels, joint)
        plausible.append(unclear_weights(evidence.right, posterior, side.labels, probabilities))
    assumption = Assumption(kind="unclear", rates=noise.rates)
    inverse: list[Floats] = []
    if label_noise == "class-conditional":
        joints = (noise.joint, noise.lowest(), noise.highest())
        inverse = _all_or_none([quality.inverse_weights(side.labels, one) for one in joints])
        assumption = replace(assumption, kind="class-conditional")
    return replace(
        evidence, basis="corrected", assumption=assumption, plausible=plausible, inverse=inverse
    )


def plausible_noises(noise: NoiseBounds, labels: Ints) -> list[Floats]:
    """(C, C) joint distributions of true grade and label, at the middle of the plausible rates.

    The estimated one; where the labels do not determine it, also labels that are all too low, or
    all too high.
    """
    rate = sum(noise.rates) / 2.0
    noises = [quality.scaled_joint(noise.joint, rate=rate)]
    if not noise.determined:
        shares = np.bincount(labels, minlength=len(noise.joint)) / len(labels)
        noises += [one_sided_noise(shares, rate=rate, step=step) for step in (-1, 1)]
    return noises


def one_sided_noise(shares: Floats, *, rate: float, step: int) -> Floats:
    """(C, C) p(true grade, label) if every wrong label is ``step`` grades off, which is −1 (too
    low) or 1.

    shares: (C,) of the labels. All grades that have a neighbour there are mislabelled equally
    often, at most every second time.
    """
    classes = len(shares)
    at_the_end = 0 if step < 0 else classes - 1

    def joint(wrong: float) -> Floats:
        matrix = (1.0 - wrong) * np.eye(classes) + wrong * np.eye(classes, k=step)
        matrix[at_the_end] = np.eye(classes)[at_the_end]
        return quality.given_noise(matrix, shares).joint

    def excess(wrong: float) -> float:
        return 1.0 - float(np.trace(joint(wrong))) - rate

    if excess(0.5) <= 0.0:
        return joint(0.5)
    return joint(float(brentq(excess, 0.0, 0.5)) if rate > 0.0 else 0.0)


def unclear_weights(
    right: Floats, posterior: Floats, labels: Ints, probabilities: Floats
) -> Floats:
    """(M, C) p(true grade | label), where of the answers with one label the unclear ones have the
    wrong labels.

    The share of wrong labels of each given grade stays. An answer that is twice as unclear, by 1 −
    its largest probability, has a wrong label twice as often. right, posterior: (M, C) if no label
    is wrong, and if wrong ones are those of clear and unclear answers alike. labels: (M,) given
    grades. probabilities: (M, C) of the networks.
    """
    doubt = 1.0 - probabilities.max(axis=1)
    wrong = 1.0 - (posterior * right).sum(axis=1)
    total = np.bincount(labels, wrong)[labels]
    mean = np.divide(
        np.bincount(labels, wrong * doubt)[labels],
        total,
        out=np.zeros_like(doubt),
        where=total > 0.0,
    )
    times = np.divide(doubt, mean, out=np.ones_like(doubt), where=mean > 1e-9)
    most = np.divide(
        1.0, wrong, out=np.ones_like(wrong), where=wrong > 0.0
    )  # no label is wrong more than always
    return np.asarray(right + np.minimum(times, most)[:, None] * (posterior - right))


def unit_evidence(
    side: HeldOut,
    units: Ints,
    probabilities: Floats,
    noise: NoiseBounds | None,
    label_noise: LabelNoise,
) -> Evidence:
    """The evidence about patients, or other units (N,) of images: about their highest true
    grades."""
    sizes = np.bincount(units)
    if (sizes == 1).all():
        return image_evidence(side, probabilities, noise, label_noise)
    checked = np.full(len(side), -1) if side.verified_labels is None else side.verified_labels
    certain = checked >= 0
    labels = np.where(certain, checked, side.labels)
    highest = highest_per_unit(labels, units)
    verified = np.bincount(units, weights=certain)
    every = verified == sizes
    # of images that were verified at random, small patients are complete more often: no random
    # sample of patients
    by_unit = not ((verified > 0) & ~every).any() or len(np.unique(sizes)) == 1
    by_unit = by_unit and side.verified_probability is None
    first = np.unique(units, return_index=True)[1]
    groups = pick_known(side.groups, first)
    shares = conformal.patient_weights(groups, len(sizes))
    right = np.eye(probabilities.shape[1])[highest]
    evidence = Evidence(
        labels=highest,
        groups=groups,
        verified=np.where(every & by_unit, highest, -1),
        right=right,
        labels_each=float(len(side) * shares.max() / shares.sum()),
    )
    if label_noise == "none" or noise is None:
        return evidence
    mix = np.bincount(highest, minlength=right.shape[1]) / len(highest)
    pooled = pool_probabilities(probabilities, units, pooling="highest")
    plausible: list[Floats] = []
    for joint in plausible_noises(noise, side.labels):
        matrix = transition_of(joint)
        try:
            one_by_one = quality.highest_grade_posterior(labels, units, matrix, certain=certain)
        except SrjtError:
            near = Assumption(kind="near")
            return replace(evidence, basis="conservative", assumption=near, known=False)
        together = posterior_weights(highest, quality.given_noise(matrix, mix).joint)
        together = np.where(every[:, None], right, together)
        for posterior in (one_by_one, together):
            plausible.append(unclear_weights(right, posterior, highest, pooled))
    assumption = Assumption(kind="units", rates=noise.rates)
    if label_noise != "class-conditional":
        return replace(evidence, basis="corrected", assumption=assumption, plausible=plausible)
    weights = []
    for joint in (noise.lowest(), noise.joint, noise.highest()):
        matrix = transition_of(joint)
        weights.append(quality.highest_grade_weights(labels, units, matrix, certain=certain))
    inverse = _all_or_none(weights)
    assumption = replace(assumption, kind="class-conditional units")
    return replace(
        evidence, basis="corrected", assumption=assumption, plausible=plausible, inverse=inverse
    )


def _all_or_none(weights: Sequence[Floats | None]) -> list[Floats]:
    """The widest of several ranges keeps a promise only if none of the plausible noises is left
    out."""
    known = [one for one in weights if one is not None]
    if len(known) < len(weights):
        return []
    return known
