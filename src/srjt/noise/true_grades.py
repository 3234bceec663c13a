"""What labels say about true grades: weights for calibrating on labels that may be wrong.

Which weights are right depends on what wrong labels depend on, which labels and probabilities alone cannot show:

- **On the true grade alone** ("class-conditional"). Then Σ_c (P⁻¹)[ỹ, c] · f(x, c) has the mean of f(x, true grade),
  whatever the network's probabilities are.
- **On the image as well.** Readers and networks may be misled by the same images: the network then agrees with a wrong
  label, and the weights above promise too much. p(true grade | label), without the image, promises enough as long as
  an image does not mislead about its true grade *given the label*: of two images with one label, the one that looks
  more severe is not the milder one more often than chance.
- **On anything.** Only how many labels are wrong by how many grades is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from srjt.noise.estimate import NoiseEstimate

__all__ = [
    "KnownNoise",
    "LabelNoise",
    "estimated_noise",
    "given_noise",
    "inverse_weights",
    "posterior_weights",
    "scaled_joint",
    "transition_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LabelNoise = Literal["unknown", "class-conditional", "none"]


@dataclass(frozen=True, kw_only=True)
class KnownNoise:
    """What is known about the noise of labels.

    Attributes
    ----------
    joint : ndarray, shape (C, C)
        p(true grade, label), as far as it is known.
    rates : tuple of float
        The lowest and the highest plausible share of wrong labels.
    determined : bool
        Whether the labels show how many are wrong.
    samples : int
        Labels that it was estimated from; 0 if it was given.
    """

    joint: Floats
    rates: tuple[float, float]
    determined: bool
    samples: int = 0

    def lowest(self) -> Floats:
        """(C, C) the joint distribution with no more wrong labels than are certain."""
        return scaled_joint(self.joint, rate=self.rates[0])

    def highest(self) -> Floats:
        """(C, C) the joint distribution with as many wrong labels as are plausible."""
        return scaled_joint(self.joint, rate=self.rates[1])

    def wrong_by(self, grades: int) -> float:
        """At most this share of the labels is wrong by at least so many grades."""
        far = np.abs(np.subtract.outer(*[np.arange(len(self.joint))] * 2)) >= grades
        return float(self.highest()[far].sum())


def given_noise(transition: npt.ArrayLike, shares: npt.ArrayLike) -> KnownNoise:
    """Noise of a known transition matrix (C, C); shares: of the labels, (C,).

    Examples
    --------
    >>> given_noise([[0.9, 0.1], [0.0, 1.0]], [0.45, 0.55]).joint.round(2).tolist()
    [[0.45, 0.05], [0.0, 0.5]]
    """
    matrix, labelled = np.asarray(transition, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    prior = np.maximum(np.linalg.lstsq(matrix.T, labelled, rcond=None)[0], 1e-6)
    joint = (prior / prior.sum())[:, None] * matrix
    rate = float(1.0 - np.trace(joint))
    return KnownNoise(joint=joint, rates=(rate, rate), determined=True)


def estimated_noise(estimate: NoiseEstimate, *, rate: float | None = None) -> KnownNoise:
    """Noise of an estimate with its uncertainty; rate: the share of wrong labels, if that is known."""
    joint = estimate.prior[:, None] * estimate.transition
    return KnownNoise(
        joint=joint if rate is None else scaled_joint(joint, rate=rate),
        rates=estimate.rate_interval if rate is None else (rate, rate),
        determined=estimate.identifiable or rate is not None,
        samples=estimate.samples,
    )


def scaled_joint(joint: Floats, *, rate: float) -> Floats:
    """The same errors, (C, C), more or less often: the share of wrong labels becomes ``rate``."""
    right = np.diag(np.diag(joint))
    wrong = joint - right
    if wrong.sum() <= 0.0:  # no error is known: any neighbour
        wrong = joint.sum(axis=1, keepdims=True) * (
            np.abs(np.subtract.outer(*[np.arange(len(joint))] * 2)) == 1
        )
    scaled = right * (1.0 - rate) / max(float(right.sum()), 1e-12) + wrong * rate / float(wrong.sum())
    return np.asarray(scaled / scaled.sum())


def posterior_weights(labels: Ints, joint: Floats) -> Floats:
    """(N, C) p(true grade | label), from p(true grade, label)."""
    share = joint.sum(axis=0)
    posterior = np.where(share > 0, joint / np.maximum(share, 1e-300), np.eye(len(joint))).T
    return np.asarray(posterior[labels])


def inverse_weights(labels: Ints, joint: Floats) -> Floats | None:
    """(N, C) rows of P⁻¹, which sum to 1 and may be negative; None where P cannot be inverted."""
    transition = transition_of(joint)
    if np.linalg.cond(transition) > 1e6:
        return None
    return np.asarray(np.linalg.inv(transition)[labels])


def transition_of(joint: Floats) -> Floats:
    """(C, C) P[i, j] = Pr(label = j | true grade = i), from p(true grade, label)."""
    return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))
