"""What stands for the true grades of the samples that ranges are calibrated on: weights, and what they rest on.

**Images.** See ``noise.true_grades``: which weights are right depends on what wrong labels depend on.

**Patients.** The true grade of a patient is the highest true grade of the images, however their answers are pooled.
Its noise is not the noise of an image: the more images, the more likely one label is too high. With ``label_noise``

- "class-conditional": labels are wrong one by one, by the matrix P of images. Products of the rows of P⁻¹ have the mean
  of the truth, without any assumption about the true grades (``noise.highest_grade``).
- "unknown": p(highest true grade | all labels of the patient), without the images, as for images. It depends on whether
  labels of one patient are wrong one by one, as the model of ``noise.highest_grade`` has it, or all together, because
  the reader misjudges the patient: then the highest label is wrong as an image's is, by P. Unlike for images, a higher
  rate of wrong labels may make ranges narrower, because it moves the highest grade down. So the lowest, the estimated
  and the highest rate count, with both kinds of dependence, and the widest range of all is taken.
- Whatever labels depend on, the highest label of a patient is wrong by more than d grades only if one of its n labels
  is: with at most n times an image's probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.inference.range_rule import Basis
from srjt.noise.highest_grade import highest_grade_posterior, highest_grade_weights
from srjt.noise.true_grades import (
    KnownNoise,
    LabelNoise,
    given_noise,
    inverse_weights,
    posterior_weights,
    transition_of,
)
from srjt.ordinal.pooling import highest_per_unit
from srjt.ordinal.ranges import patient_weights
from srjt.training.record.held_out import HeldOut

__all__ = ["Evidence", "image_evidence", "unit_evidence"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    basis, why
        As in ``RangeRule``.
    candidates : list of list of ndarray, shape (M, C)
        Of each list of weights, one for each plausible noise, the widest range counts; of the lists the narrowest.
        Empty: nothing can be said about the noise, and only the conservative range is left.
    labels_each : float
        The share of answers with a wrong label is at most this number times the share of wrong labels.
    """

    labels: Ints
    groups: list[str] | None
    verified: Ints
    basis: Basis
    why: str
    candidates: list[list[Floats]]
    labels_each: float = 1.0


def image_evidence(
    side: HeldOut, noise: KnownNoise | None, label_noise: LabelNoise, posterior: npt.ArrayLike | None = None
) -> Evidence:
    """The evidence about images. posterior: p(true grade) of each, (N, C), if it is known."""
    basis, why, candidates = _image_weights(side, noise, label_noise, posterior)
    verified = side.verified_labels
    return Evidence(
        labels=side.labels,
        groups=side.groups,
        verified=np.full(len(side), -1) if verified is None else verified,
        basis=basis,
        why=why,
        candidates=candidates,
    )


def _image_weights(
    side: HeldOut, noise: KnownNoise | None, label_noise: LabelNoise, posterior: npt.ArrayLike | None
) -> tuple[Basis, str, list[list[Floats]]]:
    classes = side.probabilities.shape[2]
    if posterior is not None:
        given = np.asarray(posterior, dtype=np.float64)
        if given.shape != (len(side), classes):
            raise SrjtError(
                f"posterior holds a probability of each of {classes} grades for each of {len(side)} samples; "
                f"its shape is {given.shape}."
            )
        return "posterior", "by the given probabilities of their true grades.", [[given]]
    if label_noise == "none" or noise is None:
        return "labels", "by their labels, which are taken as right.", [[np.eye(classes)[side.labels]]]
    misled = [posterior_weights(side.labels, noise.highest())]
    if label_noise == "class-conditional":
        inverse = [
            inverse_weights(side.labels, one) for one in (noise.joint, noise.lowest(), noise.highest())
        ]
        why = (
            f"by their labels, corrected for a share of {_rate(noise)} wrong ones, which must depend on the true grade "
            "alone and not on the image."
        )
        return "corrected", why, [_all_or_none(inverse), misled]
    why = (
        f"by their labels, corrected for a share of up to {noise.rates[1]:.2f} wrong ones; given its label, an image "
        "must not mislead about its true grade: where readers and networks err alike, ranges contain it less often. "
        "Verified grades of a random sample would need no such condition, and make the ranges narrower."
    )
    return "corrected", why, [misled]


def unit_evidence(side: HeldOut, units: Ints, noise: KnownNoise | None, label_noise: LabelNoise) -> Evidence:
    """The evidence about patients, or other units (N,) of images: about their highest true grades."""
    sizes = np.bincount(units)
    if (sizes == 1).all():
        return image_evidence(side, noise, label_noise)
    checked = np.full(len(side), -1) if side.verified_labels is None else side.verified_labels
    certain = checked >= 0
    best = np.where(certain, checked, side.labels)
    highest = highest_per_unit(best, units)
    every = np.bincount(units, weights=certain) == sizes
    # of images that were verified at random, small patients are complete more often: no random sample of patients
    some = (np.bincount(units, weights=certain) > 0) & ~every
    by_unit = not some.any() or len(np.unique(sizes)) == 1
    first = np.unique(units, return_index=True)[1].tolist()
    groups = None if side.groups is None else [side.groups[row] for row in first]
    shares = patient_weights(groups, len(sizes))
    basis, why, candidates = _unit_weights(side, units, noise, label_noise, best, certain, every)
    return Evidence(
        labels=highest,
        groups=groups,
        verified=np.where(every & by_unit, highest, -1),
        basis=basis,
        why=why,
        candidates=candidates,
        labels_each=float(len(side) * shares.max() / shares.sum()),
    )


def _unit_weights(
    side: HeldOut,
    units: Ints,
    noise: KnownNoise | None,
    label_noise: LabelNoise,
    labels: Ints,
    certain: npt.NDArray[np.bool_],
    every: npt.NDArray[np.bool_],
) -> tuple[Basis, str, list[list[Floats]]]:
    """labels: the best of each image. certain (N,): verified ones; every (M,): units with no others."""
    highest = highest_per_unit(labels, units)
    right = np.eye(side.probabilities.shape[2])[highest]
    if label_noise == "none" or noise is None:
        return "labels", "by the highest of their labels, which are taken as right.", [[right]]
    plausible = (noise.lowest(), noise.joint, noise.highest())
    shares = np.bincount(highest, minlength=right.shape[1]) / len(highest)
    misled: list[Floats] = []
    for joint in plausible:
        matrix = transition_of(joint)
        try:
            misled.append(highest_grade_posterior(labels, units, matrix, certain=certain))
        except SrjtError:
            why = "conservatively: labels of one patient contradict the estimated noise, so that any near grade may be "
            return "conservative", f"{why}the true one.", []
        together = posterior_weights(highest, given_noise(matrix, shares).joint)
        misled.append(np.where(every[:, None], right, together))
    if label_noise == "class-conditional":
        inverse = [
            highest_grade_weights(labels, units, transition_of(joint), certain=certain) for joint in plausible
        ]
        why = (
            f"by all their labels, corrected for a share of {_rate(noise)} wrong ones, which must depend on the true "
            "grade of the image alone, image by image."
        )
        return "corrected", why, [_all_or_none(inverse), misled]
    why = (
        f"by all their labels, corrected for a share of {_rate(noise)} wrong ones, wrong one by one or together; given "
        "the labels, the images must not mislead about the highest true grade: where readers and networks err alike, "
        "ranges contain it less often. Verified grades of all images of randomly chosen patients would need no such "
        "condition, and make the ranges narrower."
    )
    return "corrected", why, [misled]


def _rate(noise: KnownNoise) -> str:
    low, high = noise.rates
    return f"{high:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def _all_or_none(weights: Sequence[Floats | None]) -> list[Floats]:
    """The widest of several ranges keeps a promise only if none of the plausible noises is left out."""
    found = [one for one in weights if one is not None]
    return found if len(found) == len(weights) else []
