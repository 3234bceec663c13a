"""How noisy are ordinal labels? Noise rate, transition matrix and clean grade shares, each with an interval.

A pure function of labels and out-of-fold probabilities, from whatever network and method. The model and what
it assumes stand in ``mixture``; here the form of the matrix is chosen by likelihood on held-out patients,
patients are resampled, and it is said when the answer should not be relied on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.mixture import OWN_SHARPNESS, Fit, design, fit_mixture, fitness, recalibrated
from srjt.ordinal.transitions import FORMS, Form

__all__ = ["NoiseEstimate", "check_labels", "choose_form", "estimate_noise"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Groups = Sequence[Hashable] | npt.NDArray[Any] | None

_PARTS = 5  # of the patients, each held out once to choose the form
_FEW = 10  # expected samples of a grade below which its row is guesswork
_WIDE = 0.3  # an interval of the rate that means nothing
_VAGUE = 0.4  # mean doubt about the true grade beyond which wrong labels look like vague images


@dataclass(frozen=True, kw_only=True)
class NoiseEstimate:
    """What the labels' noise is, and how sure that is."""

    rate: float  # share of wrong labels
    rate_interval: tuple[float, float]
    transition: Floats  # (C, C) P[i, j] = Pr(label = j | true grade = i)
    transition_interval: Floats  # (2, C, C) lower and upper
    prior: Floats  # (C,) shares of the true grades
    prior_interval: Floats  # (2, C)
    form: Form
    held_out: Mapping[str, float]  # mean held-out log-likelihood of each form
    temperature: float  # by which the network's logits were divided
    samples: int
    identifiable: bool
    reason: str  # "" or one sentence why not

    def posterior(self) -> Floats:
        """(C, C): row ỹ is p(true grade | label = ỹ), a ``label_matrix`` for the methods."""
        joint = self.prior[:, None] * self.transition
        share = joint.sum(axis=0)
        posterior = np.eye(len(joint))  # a label that cannot occur says nothing else
        known = share > 0
        posterior[known] = (joint[:, known] / share[known]).T
        return posterior

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON keeps them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {name: value.tolist() for name, value in plain.items() if isinstance(value, np.ndarray)}
        return plain | {"rate_interval": list(self.rate_interval), "held_out": dict(self.held_out)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NoiseEstimate:
        arrays = ("transition", "transition_interval", "prior", "prior_interval")
        low, high = values["rate_interval"]
        typed = {name: np.asarray(values[name], dtype=np.float64) for name in arrays}
        return cls(**{**values, **typed, "rate_interval": (float(low), float(high))})

    def __str__(self) -> str:
        low, high = self.rate_interval
        lines = [f"estimated noise rate {self.rate:.3f} ({low:.3f} to {high:.3f}), {self.form} noise"]
        lines += [
            f"  true grade {grade} ({share:.0%}) is labelled " + "  ".join(f"{p:.3f}" for p in row)
            for grade, (share, row) in enumerate(zip(self.prior, self.transition, strict=True))
        ]
        return "\n".join(lines if self.identifiable else [*lines, f"  not to be relied on: {self.reason}"])


def estimate_noise(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    groups: Groups = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> NoiseEstimate:
    """The noise of ``labels`` (N,) by out-of-fold ``probabilities`` (N, C).

    groups: (N,) patients, which are held out and resampled as a whole (None: each sample is its own).
    bootstrap: resamples for the intervals; 0 makes them as narrow as the estimate. The intervals hold for the
    form that was chosen, and cover the doubt about the model's preference for sharp grades by varying it.
    """
    if bootstrap < 0 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"bootstrap counts resamples and confidence lies between 0 and 1; got {bootstrap} and {confidence:g}."
        )
    y, p = check_labels(labels, probabilities)
    owner = _owners(groups, len(y))
    parts = design(p)
    fit, held_out, gain = choose_form(y, parts, owner=owner)
    again = _resampled(y, parts, owner, fit, resamples=bootstrap, seed=seed) or [fit]
    tails = [(1 - confidence) / 2, 1 - (1 - confidence) / 2]
    low, high = np.quantile([one.rate for one in again], tails)
    # The estimate belongs into its interval, also where resampling is biased (near no noise at all).
    interval = (float(min(low, fit.rate)), float(max(high, fit.rate)))
    reason = _doubt(y, parts, fit, interval=interval, gain=gain)
    return NoiseEstimate(
        rate=fit.rate,
        rate_interval=interval,
        transition=fit.transition,
        transition_interval=np.quantile([one.transition for one in again], tails, axis=0),
        prior=fit.prior,
        prior_interval=np.quantile([one.prior for one in again], tails, axis=0),
        form=fit.form,
        held_out=held_out,
        temperature=fit.temperature,
        samples=len(y),
        identifiable=not reason,
        reason=reason,
    )


def choose_form(
    labels: Ints, parts: Floats, *, owner: Ints | None = None
) -> tuple[Fit, dict[str, float], Floats]:
    """The fit of the form that does best on patients it has not seen.

    Also the mean held-out log-likelihood of each form, and by sample (N,) the gain over ignoring the
    probabilities. The two forms of the paper have one parameter each and compete by the penalised likelihood;
    the freer ``banded`` must explain unseen labels better than their winner, by two standard errors, and
    leave every grade mostly labelled as itself.
    """
    part = _dealt(np.arange(len(labels)) if owner is None else owner)
    fits = {form: fit_mixture(labels, parts, form=form) for form in FORMS}
    likelihood, fair = {}, {}
    for form, whole in fits.items():
        likelihood[form], fair[form] = np.empty(len(labels)), np.empty(len(labels))
        for k in range(part.max() + 1):
            out = part == k
            rest = whole  # of a single patient nothing can be held out
            if not out.all():
                rest = fit_mixture(
                    labels, parts, form=form, weights=(~out).astype(np.float64), start=whole, steps=15
                )
            likelihood[form][out], fair[form][out] = fitness(labels[out], parts[out], rest)
    best: Form = max(("quasi", "truncated"), key=lambda form: float(fair[form].sum()))
    ahead = likelihood["banded"] - likelihood[best]
    if ahead.sum() > 2.0 * ahead.std() * len(ahead) ** 0.5 and _adrift(fits["banded"]) is None:
        best = "banded"
    shares = (np.bincount(labels, minlength=parts.shape[1]) + 0.5) / (len(labels) + 0.5 * parts.shape[1])
    gain = likelihood[best] - np.log(shares[labels])
    settled = fit_mixture(labels, parts, form=best, start=fits[best], sharpness=OWN_SHARPNESS[best])
    return settled, {form: float(values.mean()) for form, values in likelihood.items()}, gain


def check_labels(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> tuple[Ints, Floats]:
    """(N,) and (N, C) as whole numbers and distributions, or an error that says what is wrong."""
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or y.shape != p.shape[:1] or p.shape[1] < 2 or not len(y):
        raise SrjtError(
            f"Labels (N,) and probabilities (N, C) of the same N and of C ≥ 2 grades are needed; their shapes "
            f"are {y.shape} and {p.shape}."
        )
    if not np.isfinite(p).all() or (p < 0).any() or np.abs(p.sum(axis=1) - 1.0).max() > 1e-3:
        raise SrjtError("Each row of the probabilities must be positive and sum to 1: pass softmax outputs.")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise SrjtError(
            f"Labels must be whole grades 0 … {p.shape[1] - 1}, one for each row of probabilities."
        )
    return y.astype(np.int64), p / p.sum(axis=1, keepdims=True)


def _owners(groups: Groups, samples: int) -> Ints:
    if groups is None:
        return np.arange(samples)
    if len(groups) != samples:
        raise SrjtError(f"{len(groups)} groups for {samples} labels: they must be as many.")
    _, owner = np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)
    return owner.astype(np.int64)


def _dealt(owner: Ints) -> Ints:
    """(N,) the part of each sample: patients in turn, so that nothing depends on chance."""
    return np.asarray(owner % min(_PARTS, int(owner.max()) + 1))


def _resampled(labels: Ints, parts: Floats, owner: Ints, fit: Fit, *, resamples: int, seed: int) -> list[Fit]:
    """Fits to resampled patients, begun at ``fit``."""
    rng = np.random.Generator(np.random.PCG64(seed))
    patients = int(owner.max()) + 1
    draws = rng.multinomial(patients, np.full(patients, 1.0 / patients), size=resamples)
    # How much sharpness is worth is an assumption, so the intervals do not take it for certain.
    prices = OWN_SHARPNESS[fit.form] * 2.0 ** rng.uniform(-1.0, 1.0, size=resamples)
    return [
        fit_mixture(
            labels,
            parts,
            form=fit.family,
            weights=draw[owner].astype(np.float64),
            start=fit,
            sharpness=float(price),
            steps=8,
        )
        for draw, price in zip(draws, prices, strict=True)
    ]


def _adrift(fit: Fit) -> int | None:
    """A grade that is labelled as another more often than as itself: then the grades could change names."""
    lost = np.flatnonzero(fit.transition.argmax(axis=1) != np.arange(len(fit.prior)))
    return int(lost[0]) if len(lost) else None


def _doubt(labels: Ints, parts: Floats, fit: Fit, *, interval: tuple[float, float], gain: Floats) -> str:
    """Why the estimate should not be relied on, in one sentence; "" where nothing speaks against it."""
    if gain.sum() < 2.0 * gain.std() * len(gain) ** 0.5:
        return "the probabilities say nothing about the labels beyond how common each grade is."
    expected = fit.prior * len(labels)
    if expected.min() < _FEW:
        return (
            f"only about {expected.min():.0f} samples are of grade {int(expected.argmin())}: too few to see how "
            "often it is mistaken."
        )
    grade = _adrift(fit)
    if grade is not None:
        return f"true grade {grade} would be labelled as another more often than as itself."
    vague = 1.0 - float(recalibrated(parts, fit).max(axis=1).mean())
    if vague > _VAGUE:  # however narrow the interval: the fit may have taken the noise for ambiguity
        return (
            f"the networks would mistake the grade of {vague:.0%} of the images even if all labels were right, and "
            "so cannot tell wrong labels from unclear images."
        )
    low, high = interval
    if high - low > _WIDE:
        return f"the rate may lie anywhere between {low:.2f} and {high:.2f}."
    return ""
