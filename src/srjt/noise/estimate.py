"""How noisy are ordinal labels? Noise rate, transition matrix and clean grade shares, each with an interval.

A pure function of labels and out-of-fold probabilities, from whatever network and method. The model and what
it assumes stand in ``mixture``. Often several levels and both of the paper's forms of noise explain the labels
about equally well, so the estimate is their mean, each weighed by how plausible it is. Patients are resampled,
and it is said when the answer should not be relied on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.noise.families import FORMS, PAPERS, Form
from srjt.noise.model import Fit, design, fit_mixture, log_likelihood, profile, recalibrated

__all__ = ["NoiseEstimate", "Weighed", "check_labels", "choose_form", "estimate_noise"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Groups = Sequence[Hashable] | npt.NDArray[Any] | None

# Some images do show their grade: a nat of ambiguity that a fit leaves to the clearest costs this many, per sample.
# It decides where wrong labels and unclear images would explain the same, and else hardly matters.
_CLEAR = 0.0075
_PARTS = 5  # of the patients, each held out once to see whether the free form is needed
_AHEAD = 2.5  # standard errors; two are found now and then where a form of the paper was injected
_SURE = 0.95  # weight of a form from which the other is not mentioned
_FEW = 10  # expected samples of a grade below which its row is guesswork
_WIDE = 0.3  # an interval of the rate that means nothing
_CLEAREST, _CLEARLY = 0.1, 0.7  # of a grade's images, and how sure of it they should make one
_TINY = 1e-12
# mean doubt about the true grade beyond which wrong labels and unclear images cannot be told apart
_VAGUE = 0.5


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
    form_weight: float = 1.0  # how probable the form is; the rest is for the other of quasi and truncated
    caution: str = ""  # what the model takes for granted and these data cannot show, in one sentence

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
        kind = f"{self.form} noise"
        if self.form_weight < _SURE:
            kind = f"probably {kind} ({self.form_weight:.0%}; the interval allows for the other form)"
        lines = [f"estimated noise rate {self.rate:.3f} ({low:.3f} to {high:.3f}), {kind}"]
        lines += [
            f"  true grade {grade} ({share:.0%}) is labelled " + "  ".join(f"{p:.3f}" for p in row)
            for grade, (share, row) in enumerate(zip(self.prior, self.transition, strict=True))
        ]
        if not self.identifiable:
            lines.append(f"  not to be relied on: {self.reason}")
        elif self.caution:
            lines.append(f"  mind: {self.caution}")
        return "\n".join(lines)


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
    bootstrap: resamples for the intervals; 0 makes them as narrow as the estimate. Each draws patients and then a
    level and form of noise by how plausible these make them, so that the intervals cover both doubts.
    """
    if bootstrap < 0 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"bootstrap counts resamples and confidence lies between 0 and 1; got {bootstrap} and {confidence:g}."
        )
    y, p = check_labels(labels, probabilities)
    owner = _owners(groups, len(y))
    parts = design(p)
    found, held_out, gain = choose_form(y, parts, owner=owner)
    transitions, priors = _resampled(y, parts, owner, found, resamples=bootstrap, seed=seed)
    tails = [(1 - confidence) / 2, 1 - (1 - confidence) / 2]
    low, high = np.quantile((priors * (1.0 - transitions.diagonal(axis1=1, axis2=2))).sum(axis=1), tails)
    # The estimate belongs into its interval, also where resampling is biased (near no noise at all).
    interval = (float(min(low, found.rate)), float(max(high, found.rate)))
    reason = _doubt(y, parts, found, interval=interval, gain=gain)
    return NoiseEstimate(
        rate=found.rate,
        rate_interval=interval,
        transition=found.transition,
        transition_interval=np.quantile(transitions, tails, axis=0),
        prior=found.prior,
        prior_interval=np.quantile(priors, tails, axis=0),
        form=found.form,
        held_out=held_out,
        temperature=found.heaviest.temperature,
        samples=len(y),
        identifiable=not reason,
        reason=reason,
        form_weight=found.share(found.form),
        caution=_caution(recalibrated(parts, found.heaviest)),
    )


@dataclass(frozen=True)
class Weighed:
    """Fits at many levels of noise, and how plausible each is."""

    fits: Sequence[Fit]
    weights: Floats  # (G,), their sum is 1

    @cached_property
    def joint(self) -> Floats:
        """(C, C) p(true grade, label), the mean over the fits."""
        return np.tensordot(self.weights, [fit.prior[:, None] * fit.transition for fit in self.fits], axes=1)

    @property
    def prior(self) -> Floats:
        return np.asarray(self.joint.sum(axis=1))

    @property
    def transition(self) -> Floats:
        return np.asarray(self.joint / self.prior[:, None])

    @property
    def rate(self) -> float:
        return 1.0 - float(np.trace(self.joint))

    @property
    def form(self) -> Form:
        return max({fit.form: None for fit in self.fits}, key=self.share)

    @property
    def heaviest(self) -> Fit:
        return self.fits[int(self.weights.argmax())]

    def share(self, form: Form) -> float:
        """The weight of all fits of a form."""
        return float(sum(w for w, fit in zip(self.weights, self.fits, strict=True) if fit.form == form))


def choose_form(
    labels: Ints, parts: Floats, *, owner: Ints | None = None
) -> tuple[Weighed, dict[str, float], Floats]:
    """The fits that explain the labels, weighed.

    Also the mean log-likelihood of each form on patients it has not seen, and by sample (N,) the gain over
    ignoring the probabilities. The two forms of the paper are weighed against each other; the freer ``banded``
    takes their place if it explains unseen labels better than either, by ``_AHEAD`` standard errors, and
    leaves every grade mostly labelled as itself.
    """
    part = _dealt(np.arange(len(labels)) if owner is None else owner)
    best = {form: fit_mixture(labels, parts, form=form) for form in FORMS}
    likelihood = {form: _held_out(labels, parts, part, whole) for form, whole in best.items()}
    papers = PAPERS if parts.shape[1] > 2 else PAPERS[:1]  # of two grades both forms are one
    fits = [fit for form in papers for fit in profile(labels, parts, best[form])]
    # Beyond, the same could be said with other names of the grades (of two, 0.8 is 0.2 with the names exchanged),
    # and the mean would lie between; only where the best fit is there itself is it left in, to be warned of.
    if _adrift(max((best[form] for form in papers), key=lambda fit: fit.objective)) is None:
        fits = [fit for fit in fits if _adrift(fit) is None]
    found = _weighed(fits, samples=len(labels))
    rival = max(papers, key=lambda form: float(likelihood[form].sum()))
    ahead = likelihood["banded"] - likelihood[rival]
    tested = part.max() + 1 == _PARTS  # of few patients hardly anything is held out, and the freest form wins
    if tested and ahead.sum() > _AHEAD * ahead.std() * len(ahead) ** 0.5 and _adrift(best["banded"]) is None:
        free = [fit for fit in profile(labels, parts, best["banded"]) if _adrift(fit) is None]
        found = _weighed(free, samples=len(labels))
    shares = (np.bincount(labels, minlength=parts.shape[1]) + 0.5) / (len(labels) + 0.5 * parts.shape[1])
    gain = likelihood[found.form] - np.log(shares[labels])
    return found, {form: float(values.mean()) for form, values in likelihood.items()}, gain


def _held_out(labels: Ints, parts: Floats, part: Ints, whole: Fit) -> Floats:
    """(N,) the log-likelihood of each sample under a fit to the other parts."""
    likelihood = np.empty(len(labels))
    for k in range(part.max() + 1):
        out = part == k
        rest = whole  # of a single patient nothing can be held out
        if not out.all():
            weights = (~out).astype(np.float64)
            rest = fit_mixture(labels, parts, form=whole.form, weights=weights, start=whole.theta, steps=15)
        likelihood[out] = log_likelihood(labels[out], parts[out], rest)
    return likelihood


def _weighed(fits: list[Fit], *, samples: int) -> Weighed:
    objective = np.array([fit.objective for fit in fits])
    return Weighed(fits, _plausibility(fits, objective, samples=samples))


def _plausibility(fits: Sequence[Fit], objective: Floats, *, samples: int) -> Floats:
    """Weights of fits with these penalised likelihoods (G, …): a posterior on a grid of rates, for each form."""
    rate, form = np.array([fit.rate for fit in fits]), np.array([fit.form for fit in fits])
    width = np.empty(len(fits))  # of the rates for which each fit stands
    for one in set(form):
        width[form == one] = np.gradient(rate[form == one])
    # Who asks has reason to: the density of the rate rises with it, lest "no noise at all" win by default.
    before = np.log(np.maximum(rate * width, _TINY))
    before -= _CLEAR * samples * np.array([fit.ambiguity for fit in fits])
    logs = objective + before.reshape(-1, *[1] * (objective.ndim - 1))
    weights = np.exp(logs - logs.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


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


def _resampled(
    labels: Ints, parts: Floats, owner: Ints, found: Weighed, *, resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """Matrices (B, C, C) and shares of the true grades (B, C) that resampled patients make plausible.

    Weighing the fits anew is enough: refitted at each level, they would hardly differ.
    """
    if not resamples:
        return found.transition[None], found.prior[None]
    rng = np.random.Generator(np.random.PCG64(seed))
    patients = int(owner.max()) + 1
    draws = rng.multinomial(patients, np.full(patients, 1.0 / patients), size=resamples)
    size = draws @ np.bincount(owner)
    objective, prior = [], []
    for fit in found.fits:
        likelihood = np.bincount(owner, log_likelihood(labels, parts, fit))
        objective.append(fit.objective - likelihood.sum() + draws @ likelihood)
        t = recalibrated(parts, fit)
        prior.append([draws @ np.bincount(owner, column) / size for column in t.T])
    cumulated = _plausibility(found.fits, np.array(objective), samples=len(labels)).cumsum(axis=0)
    drawn = (cumulated < rng.random(resamples)).sum(axis=0).clip(max=len(found.fits) - 1)
    transitions = np.array([found.fits[g].transition for g in drawn])
    return transitions, np.array(prior)[drawn, :, np.arange(resamples)]


def _adrift(fit: Fit | Weighed) -> int | None:
    """A grade that is labelled as another more often than as itself: then the grades could change names."""
    lost = np.flatnonzero(fit.transition.argmax(axis=1) != np.arange(len(fit.prior)))
    return int(lost[0]) if len(lost) else None


def _caution(t: Floats) -> str:
    """What (N, C) probabilities of the true grade leave open: a grade that even its clearest images do not show."""
    dim = [
        grade
        for grade, column in enumerate(t.T)
        if np.sort(column)[::-1][: max(3, int(_CLEAREST * column.sum()))].mean() < _CLEARLY
    ]
    if not dim:
        return ""
    names = " or ".join(filter(None, (", ".join(map(str, dim[:-1])), str(dim[-1]))))
    return (
        f"no image shows grade {names} clearly, so if labels of such images are wrong more often than others, they "
        "look like unclear images, and the rate is too low."
    )


def _doubt(
    labels: Ints, parts: Floats, found: Weighed, *, interval: tuple[float, float], gain: Floats
) -> str:
    """Why the estimate should not be relied on, in one sentence; "" where nothing speaks against it."""
    if gain.sum() < 2.0 * gain.std() * len(gain) ** 0.5:
        return "the probabilities say nothing about the labels beyond how common each grade is."
    expected = found.prior * len(labels)
    if expected.min() < _FEW:
        return (
            f"only about {expected.min():.0f} samples are of grade {int(expected.argmin())}: too few to see how "
            "often it is mistaken."
        )
    grade = _adrift(found)
    if grade is not None:
        return f"true grade {grade} would be labelled as another more often than as itself."
    vague = 1.0 - float(recalibrated(parts, found.heaviest).max(axis=1).mean())
    if vague > _VAGUE:  # however narrow the interval
        return (
            f"the networks would mistake the grade of {vague:.0%} of the images even if all labels were right, and "
            "so cannot tell wrong labels from unclear images."
        )
    low, high = interval
    if high - low > _WIDE:
        return f"the rate may lie anywhere between {low:.2f} and {high:.2f}."
    return ""
