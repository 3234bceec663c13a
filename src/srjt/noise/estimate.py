"""Estimate the noise of labels from out-of-fold probabilities, and say how far the estimate can be
trusted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srjt.errors import SrjtError
from srjt.json_values import DictMixin
from srjt.noise.basis import Basis, Undetermined, basis_of_file
from srjt.noise.explain import FEW, Explanations, explain, rate_of
from srjt.noise.matrices import SHARED_ERRORS, Floats, Ints, seen, transition_of, true_given_label
from srjt.noise.verified import Verified, exact_interval, read_verified, repetition, use_verified
from srjt.notebook import HasPage
from srjt.ordinal import patient_codes

# How noisy are ordinal labels? Noise rate, transition matrix and shares of the true grades, each
# with an interval.
#
# A pure function of labels and out-of-fold probabilities of any network. Labels and probabilities
# determine a set of rates, not one rate:
#
# - **The largest rate.** If the right grade is the likeliest label of every image, no more labels
#   are wrong than differ from the likeliest label given the image. (For each true grade i, P_ii ≥
#   P_ij; averaged over the true grades that an image may have, p(right | x) ≥ p(label = j | x) for
#   every j.) Where clear images contradict this (``explain``), the largest rate of the forms
#   that explain them.
# - **The smallest rate.** Unclear images look like a blurred severity (``model``). What such a blur
#   cannot explain, for example a label two grades away from a clear image, is an error. Where the
#   blur explains everything, it is 0.
#
# Errors that readers and networks share leave no trace: neither rate contains them, and only
# verified grades show them.
#
# The interval reaches from the one to the other, each with its sampling error. The point lies
# between: the mean over the forms of noise that explain the labels (``explain``).

RIGHT = 0.005  # a rate below which labels may all be right
_PAIRS = 50  # second readings from which on they tell how much of the blur is the reader's

Groups = Sequence[Hashable] | NDArray[Any] | None


@dataclass(frozen=True, kw_only=True)
class NoiseEstimate(DictMixin, HasPage):
    """What the labels' noise is, and what that rests on."""

    # share of wrong labels that a training uses; a guess unless ``identifiable`` (``known_rate``)
    rate: float
    rate_interval: tuple[float, float]
    transition: Floats  # (C, C) P[i, j] = Pr(label = j | true grade = i)
    # (2, C, C) lower and upper, if wrong labels depend on the true grade alone; where the rate is
    # not determined, what the upper end of its interval allows for
    transition_interval: Floats
    prior: Floats  # (C,) shares of the true grades
    prior_interval: Floats  # (2, C), likewise
    form: str  # the likeliest form of noise
    held_out: Mapping[str, float]  # mean held-out log-likelihood of each form
    samples: int
    identifiable: (
        bool  # whether labels and probabilities show that some are wrong, and roughly how many
    )
    undetermined: Undetermined | None  # why not; None if they do
    form_weight: float = 1.0  # how probable the form is
    lower_bound: float = 0.0  # one-sided: at least so many are wrong, if unclear images are blurred
    basis: Basis | None = None  # what the point rests on
    verified: int = 0  # labels whose true grade is known
    verified_worth: float = 0.0  # as many verified labels would tell as much without the model
    # by verified labels, the share of wrong ones of each given grade, and its interval
    verified_shares: tuple[tuple[float, float, float], ...] = ()
    informed: bool = (
        True  # whether probabilities or verified grades say more than how common each grade is
    )
    learnt: bool = True  # whether the probabilities alone do

    @property
    def known_rate(self) -> float | None:
        """The share of wrong labels; None where labels and probabilities determine no more than its
        interval."""
        return self.rate if self.identifiable else None

    @property
    def reason(self) -> str:
        """Why the rate is not determined, in one sentence; "" if it is."""
        return "" if self.undetermined is None else f"{self.undetermined.clause}."

    @property
    def assumption(self) -> str:
        """What the rate rests on, in one sentence or two."""
        return "" if self.basis is None else self.basis.sentence

    def rate_text(self, pattern: str = ".0%", *, interval: str = "") -> str:
        """The share of wrong labels with its interval, as ``rate_text`` writes it."""
        return rate_text(self.known_rate, self.rate_interval, pattern, name=interval)

    def posterior(self) -> Floats:
        """(C, C): row ỹ is p(true grade | label = ỹ), a ``label_matrix`` for the methods."""
        return true_given_label(self.prior[:, None] * self.transition)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NoiseEstimate:
        """What ``to_dict`` made; a ValueError or TypeError for anything else."""
        values = basis_of_file(values)
        c = len(values["prior"])
        shapes = {
            "transition": (c, c),
            "transition_interval": (2, c, c),
            "prior": (c,),
            "prior_interval": (2, c),
        }
        typed: dict[str, Any] = {
            name: np.asarray(values[name], dtype=np.float64).reshape(shape)
            for name, shape in shapes.items()
        }
        low, high = np.asarray(values["rate_interval"], dtype=np.float64).tolist()
        by_label = np.asarray(values.get("verified_shares", ()), dtype=np.float64).reshape(-1, 3)
        typed["verified_shares"] = tuple(
            (share, least, most) for share, least, most in by_label.tolist()
        )
        estimate = cls(**{**values, **typed, "rate_interval": (low, high)})
        kinds = {"float": (int, float), "int": (int,), "bool": (bool,), "str": (str,)}
        for field in fields(cls):
            if type(value := getattr(estimate, field.name)) not in kinds.get(
                str(field.type), (type(value),)
            ):
                raise TypeError(f"{field.name} is no {field.type}")
        shares = np.append(estimate.prior, [estimate.rate, *estimate.transition.flat])
        if not ((shares >= 0) & (shares <= 1 + 1e-9)).all() or not isinstance(
            estimate.held_out, Mapping
        ):
            raise ValueError("a share outside 0 … 1")
        return estimate

    def __repr__(self) -> str:
        what = f"rate {self.rate_text('.3f')}, {self.form} noise, {self.samples:,} labels"
        return f"<NoiseEstimate: {what}{'' if self.identifiable else ', not determined'}>"

    def __str__(self) -> str:
        rate = (
            f"{'estimated noise rate' if self.identifiable else 'noise rate'}"
            f" {self.rate_text('.3f')}"
        )
        kind = f"{self.form} noise" + (
            f" ({self.form_weight:.0%})" if self.form_weight < 0.95 else ""
        )
        lines = [f"{rate}, {kind}, {self.samples:,} labels"]
        for grade, (share, row) in enumerate(zip(self.prior, self.transition, strict=True)):
            labelled = "  ".join(f"{p:.3f}" for p in row)
            lines.append(f"  true grade {grade} ({share:.0%}) is labelled {labelled}")
        if not self.identifiable:
            lines.append(f"  not determined: {self.reason}")
        return "\n".join([*lines, f"  {self.assumption}"] if self.assumption else lines)


def rate_text(
    rate: float | None, interval: Sequence[float], pattern: str = ".0%", *, name: str = ""
) -> str:
    """A share of wrong labels as it is written everywhere: with its interval, or the interval
    alone.

    rate: None where it is not determined. pattern: how a share is written. name: of the interval.

    >>> rate_text(0.2, (0.17, 0.25))
    '20% (17% to 25%)'
    >>> rate_text(0.2, (0.17, 0.25), name="95 % CI")
    '20% (95 % CI 17% to 25%)'
    >>> rate_text(None, (0.0, 0.37), name="95 % CI")
    'between 0% and 37% (95 % CI)'
    """
    low, high = (format(end, pattern) for end in interval)
    if rate is None:
        return f"between {low} and {high}" + (f" ({name})" if name else "")
    return f"{rate:{pattern}} ({name + ' ' if name else ''}{low} to {high})"


def estimate_noise(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    groups: Groups = None,
    verified: ArrayLike | None = None,
    verified_probability: ArrayLike | None = None,
    verified_doubt: ArrayLike | None = None,
    second: ArrayLike | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> NoiseEstimate:
    """Estimate the noise of labels from out-of-fold probabilities.

    Parameters
    ----------
    labels : (N,) array of int
        Grades 0 … C − 1, some of them wrong.
    probabilities : (N, C) array of float
        Probabilities from networks that were not trained on the sample.
    groups : (N,) sequence, optional
        Patients. Labels of one patient whose errors repeat each other count less.
    verified : (N,) array, optional
        True grades of a *random sample* of the labels; −1 or nan where the true grade is not known.
        With 17 or more the rate is unbiased whatever the model assumes, and the model makes its
        interval shorter. Of fewer the rate is their share averaged with the model's guess.
    verified_probability : (N,) array of float, optional
        The probability with which each label was drawn for verification; see ``draw_by_doubt``.
        None: all labels were drawn alike.
    verified_doubt : (N,) array of float, optional
        The probability that each label is wrong by which they were drawn. The rate and its interval
        are then those that this doubt gave when the labels were verified. None: the doubt of the
        model, which has seen the verified grades.
    second : (N,) array of int, optional
        A second label of the same image, by another reader who did not know the first; −1 where
        there is none. How often two readers differ tells how much of the doubt is theirs. With 50
        or more the rate is determined, and contains errors that readers share, as
        ``srjt.readers.consensus`` has it.
    bootstrap : int
        Draws for the intervals; 0 makes them as narrow as the estimate.
    confidence, seed
        Of the intervals, and of the draws.

    Returns
    -------
    NoiseEstimate
        The rate, the transition matrix and the shares of the true grades with intervals, a lower
        bound of the rate, and the assumption that the rate rests on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 3, size=600)
    >>> labels = np.where(rng.random(600) < 0.2, rng.integers(0, 3, size=600), true)
    >>> seen = true + 0.3 * rng.normal(size=600)
    >>> probabilities = np.exp(-((seen[:, None] - np.arange(3)) ** 2) / 0.18)
    >>> probabilities /= probabilities.sum(axis=1, keepdims=True)
    >>> estimate = estimate_noise(labels, probabilities)
    >>> bool(estimate.rate_interval[0] < (labels != true).mean() < estimate.rate_interval[1])
    True
    """
    if bootstrap < 0 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"bootstrap counts draws and confidence lies between 0 and 1; got {bootstrap} and"
            f" {confidence:g}.",
            code="out_of_bounds",
        )
    y, p = check_labels(labels, probabilities)
    owner = patient_codes(groups, len(y))
    known = read_verified(
        verified, samples=len(y), classes=p.shape[1], probability=verified_probability
    )
    explained = explain(y, p, owner, known)
    again = np.full(len(y), -1) if second is None else check_second(second, y, p.shape[1])
    paired = int((again >= 0).sum()) >= _PAIRS
    if paired:
        explained = explained.given_second(y, again)
    draws = _Draws(explained=explained, count=bootstrap, seed=seed, confidence=confidence)
    learnt = _informed(y, explained, owner)
    if paired:
        evidence = _from_second_labels(y, again, draws, informed=learnt)
    else:
        evidence = _from_labels(y, draws, informed=learnt)
    if len(known.rows):
        posterior = explained.posterior(y, p)
        doubt = None
        if verified_doubt is not None:
            doubt = check_doubt(verified_doubt, len(y))

        def unverified() -> float:
            return estimate_noise(y, p, groups=groups, second=second, bootstrap=0).rate

        evidence = _with_verified(
            evidence, y, posterior, known, draws, owner=owner, doubt=doubt, unverified=unverified
        )
    transition_interval, prior_interval = _matrix_intervals(y, evidence, draws, paired=paired)
    weights = explained.form_weights
    form = _likeliest_form(explained)
    return NoiseEstimate(
        rate=evidence.rate,
        rate_interval=evidence.interval,
        transition=transition_of(evidence.joint),
        transition_interval=transition_interval,
        prior=evidence.joint.sum(axis=1),
        prior_interval=prior_interval,
        form=form,
        held_out=dict(explained.held_out),
        samples=len(y),
        identifiable=evidence.undetermined is None,
        undetermined=evidence.undetermined,
        form_weight=weights[form],
        lower_bound=evidence.lower_bound,
        basis=evidence.basis,
        verified=len(known.rows),
        verified_worth=evidence.worth,
        verified_shares=evidence.shares,
        informed=evidence.informed,
        learnt=learnt,
    )


# What labels and probabilities tell, then second labels, then verified ones.


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """The explanations of the labels, and the draws from them that make intervals."""

    explained: Explanations
    count: int  # 0: no intervals
    seed: int
    confidence: float

    @property
    def tail(self) -> float:
        """The probability below an interval, and above it."""
        return (1.0 - self.confidence) / 2.0

    def of(self, joint: Floats) -> tuple[Floats, Floats]:
        """(B, C, C) draws and their rates (B,); of no draws, ``joint`` and its rate."""
        if self.count:
            return _draws(self.explained, self.count, seed=self.seed)
        return joint[None], np.array([rate_of(joint)])


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """What is known about the share of wrong labels."""

    joint: Floats  # (C, C) shares of the pairs of true grade and label
    joints: Floats  # (B, C, C) draws of it
    rate: float
    interval: tuple[float, float]
    lower_bound: float
    undetermined: Undetermined | None
    informed: bool
    basis: Basis
    worth: float = 0.0
    shares: tuple[tuple[float, float, float], ...] = ()


def _from_labels(y: Ints, draws: _Draws, *, informed: bool) -> _Evidence:
    explained = draws.explained
    tail = draws.tail
    undetermined = _why_undetermined(y, explained, informed=informed, unsettled=tail)
    joint = explained.guessed_joint if undetermined else explained.joint
    rate = rate_of(joint)
    joints, rates = draws.of(joint)
    low = lower_bound = high = rate
    if draws.count:
        low = min(float(np.quantile(rates, tail)), rate)
        lower_bound = min(float(np.quantile(rates, 2.0 * tail)), rate)
        differs = float((explained.label_probabilities().argmax(axis=1) != y).mean())
        patients = len(y) / explained.repeated
        largest = exact_interval(differs, patients, confidence=draws.confidence)[1]
        if explained.one_sided:
            largest = max(largest, float(np.quantile([rate_of(one) for one in joints], 1.0 - tail)))
        high = max(largest, rate)
        if not informed:
            low = lower_bound = 0.0
        low = _of_whole_labels(low, len(y))
    return _Evidence(
        joint=joint,
        joints=joints,
        rate=rate,
        interval=(low, high),
        lower_bound=lower_bound,
        undetermined=undetermined,
        informed=informed,
        basis=Basis(kind="labels", form=_likeliest_form(explained)),
    )


def _from_second_labels(y: Ints, again: Ints, draws: _Draws, *, informed: bool) -> _Evidence:
    """again: (N,) second labels, −1 where there is none."""
    explained = draws.explained
    joints, _ = draws.of(explained.joint)
    lower_bound = rate_of(explained.joint)
    matrix = transition_of(explained.joint)
    prior = explained.joint.sum(axis=1, keepdims=True)
    joint = prior * (seen(matrix, SHARED_ERRORS) @ matrix)
    rate = rate_of(joint)
    interval = (rate, rate)
    if draws.count:
        labels = len(y) / explained.repeated
        low, largest = _paired_interval(joints, labels, tail=draws.tail)
        lower_bound = _of_whole_labels(low if informed else 0.0, len(y))
        interval = (lower_bound, 1.0 - (1.0 - largest) ** 2)
    return _Evidence(
        joint=joint,
        joints=joints,
        rate=rate,
        interval=interval,
        lower_bound=lower_bound,
        undetermined=None,
        informed=True,
        basis=Basis(kind="second_labels", labels=int((again >= 0).sum())),
    )


def _with_verified(
    evidence: _Evidence,
    y: Ints,
    posterior: Floats,
    known: Verified,
    draws: _Draws,
    *,
    owner: Ints,
    doubt: Floats | None,
    unverified: Callable[[], float],
) -> _Evidence:
    """unverified: the rate that is estimated without the verified grades."""
    combined = use_verified(
        y,
        posterior,
        known,
        owner=owner,
        confidence=draws.confidence,
        guess=unverified,
        doubt=doubt,
    )
    count = len(known.rows)
    undetermined = None
    if not combined.enough:
        undetermined = Undetermined(kind="few_verified", labels=count)
    # the same spread around another mean
    joints = np.maximum(evidence.joints - evidence.joints.mean(axis=0) + combined.joint, 0.0)
    joints /= joints.sum(axis=(1, 2), keepdims=True)
    return _Evidence(
        joint=combined.joint,
        joints=joints,
        rate=combined.rate,
        interval=combined.interval if draws.count else (combined.rate, combined.rate),
        lower_bound=combined.lower_bound,
        undetermined=undetermined,
        informed=evidence.informed or combined.enough,
        basis=Basis(
            kind="verified", labels=count, at_random=known.at_random, enough=combined.enough
        ),
        worth=combined.worth,
        shares=combined.by_label,
    )


def _matrix_intervals(
    y: Ints, evidence: _Evidence, draws: _Draws, *, paired: bool
) -> tuple[Floats, Floats]:
    """(2, C, C) of the matrix and (2, C) of the shares of the true grades, lower and upper."""
    ends = [draws.tail, 1.0 - draws.tail]
    matrices = np.quantile(transition_of(evidence.joints), ends, axis=0)
    shares = np.quantile(evidence.joints.sum(axis=2), ends, axis=0)
    classes = len(evidence.joint)
    if draws.count and (evidence.undetermined or paired):
        given = np.bincount(y, minlength=classes) / len(y)
        likeliest = not draws.explained.one_sided
        matrix_bounds, share_bounds = _bounds(given, evidence.interval[1], likeliest=likeliest)
        matrices = _hull(matrices, matrix_bounds)
        shares = _hull(shares, share_bounds)
    elif draws.count and evidence.interval[0] < RIGHT:  # it is plausible that all labels are right
        matrices = _hull(matrices, np.stack([np.eye(classes)] * 2))
    return matrices, shares


def _of_whole_labels(low: float, labels: int) -> float:
    """The lower end of a share. Labels are counted: fewer than one wrong label is none."""
    return low if low * labels >= 1.0 else 0.0


def _likeliest_form(explained: Explanations) -> str:
    weights = explained.form_weights
    return max(weights, key=lambda form: weights[form])


def check_labels(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Ints, Floats]:
    """(N,) and (N, C) as whole numbers and distributions, or an error that says what is wrong."""
    p = np.asarray(probabilities, dtype=np.float64)
    y = np.asarray(labels)
    if p.ndim != 2 or y.shape != p.shape[:1] or p.shape[1] < 2 or not len(y):
        raise SrjtError(
            f"Labels (N,) and probabilities (N, C ≥ 2) are needed; got {y.shape} and {p.shape}.",
            code="wrong_shape",
        )
    if not np.isfinite(p).all() or (p < 0).any() or np.abs(p.sum(axis=1) - 1.0).max() > 1e-3:
        raise SrjtError(
            "Each row of the probabilities must be positive and sum to 1: pass softmax outputs.",
            code="wrong_values",
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise SrjtError(
            f"Labels must be whole grades 0 … {p.shape[1] - 1}, one per row of probabilities.",
            code="unknown_grade",
        )
    return y.astype(np.int64), p / p.sum(axis=1, keepdims=True)


def check_doubt(doubt: ArrayLike, samples: int) -> Floats:
    """(N,) probabilities, or an error that says what is wrong."""
    values = np.asarray(doubt, dtype=np.float64)
    if values.shape != (samples,) or not ((values >= 0.0) & (values <= 1.0)).all():
        raise SrjtError(
            f"verified_doubt holds a probability for each of the {samples} labels.",
            code="wrong_values",
        )
    return values


def _draws(explained: Explanations, draws: int, *, seed: int) -> tuple[Floats, Floats]:
    """Joint distributions (B, C, C) of true grade and label, and the smallest rate of each draw
    (B,).

    Explanations are drawn by their weight and their parameters from a normal approximation of the
    posterior. The smallest rate is without the doubt near boundaries, which may be all the images'.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = np.array([one.doubtful_weight for one in explained.all])
    joints: list[Floats] = []
    rates: list[float] = []
    # as many of each as its weight says, rounded: nothing is left to chance that need not be
    reached = np.floor(draws * np.cumsum(weights) / weights.sum() + 0.5).astype(np.int64)
    for one, count in zip(explained.all, np.diff(reached, prepend=0).tolist(), strict=True):
        drawn = rng.multivariate_normal(
            one.fit.theta, one.fit.covariance, size=count, method="cholesky"
        )
        without_reader = [
            replace(one, reader=0.0, fit=replace(one.fit, theta=theta)).joint for theta in drawn
        ]
        rates += [rate_of(joint) for joint in without_reader]
        # the reader's share matters more than the parameters, and is slow to integrate over
        joints += [one.joint] * int(count) if one.reader and count else without_reader
    return np.array(joints), np.array(rates)


def _bounds(given: Floats, wrong: float, *, likeliest: bool) -> tuple[Floats, Floats]:
    """What the noise matrix (2, C, C) and the shares of the true grades (2, C) can be, at least and
    at most, if no more than this share of the labels is wrong, whichever these are.

    given: (C,) shares of the labels. A wrong label moves one grade's share up and another's down.
    Row i is farthest from the labels if all wrong ones belong to grade i: of a share ``given[i] +
    wrong`` then ``wrong`` is mislabelled. Where fewer labels have the grade than are wrong, none of
    them need be right. likeliest: the right grade is the likeliest label of each grade.
    """
    classes = len(given)
    most = np.where(given > wrong, wrong / np.maximum(given + wrong, 1e-300), 1.0)[:, None]
    right = np.eye(classes, dtype=bool)
    lowest = np.where(right, 1.0 - most, 0.0)
    highest = np.where(right, 1.0, most)
    if likeliest:
        lowest = np.where(right, np.maximum(lowest, 1.0 / classes), lowest)
        highest = np.where(right, highest, np.minimum(highest, 0.5))
    shares = np.stack([np.maximum(given - wrong, 0.0), np.minimum(given + wrong, 1.0)])
    return np.stack([lowest, highest]), shares


def _hull(first: Floats, second: Floats) -> Floats:
    """(2, …) from the lower of two lower ends to the higher of two upper ends."""
    lowest = np.minimum(first[0], second[0])
    return np.stack([lowest, np.maximum(first[1], second[1])])


def _paired_interval(joints: Floats, labels: float, *, tail: float) -> tuple[float, float]:
    """Of the rate of errors that readers make alone: the doubt of the model, and that the labels
    are a sample."""
    rates = np.array([rate_of(one) for one in joints])
    middle = float(np.median(rates))
    sampled = exact_interval(middle, labels, confidence=1.0 - 2.0 * tail)
    below = float(np.hypot(np.quantile(rates, tail) - middle, sampled[0] - middle))
    above = float(np.hypot(np.quantile(rates, 1.0 - tail) - middle, sampled[1] - middle))
    return max(middle - below, 0.0), min(middle + above, 1.0)


def check_second(second: ArrayLike, labels: Ints, classes: int) -> Ints:
    """(N,) second labels as whole numbers, or an error that says what is wrong."""
    again = np.asarray(second)
    if (
        again.shape != labels.shape
        or again.dtype.kind not in "iu"
        or again.min() < -1
        or again.max() >= classes
    ):
        raise SrjtError(
            f"second holds a grade 0 … {classes - 1} for each of the {len(labels)} labels, or −1"
            " for none.",
            code="unknown_grade",
        )
    return again.astype(np.int64)


def _informed(y: Ints, explained: Explanations, owner: Ints) -> bool:
    """Whether labels are likelier by the probabilities than by the grades' shares, by two standard
    errors. Patients, ``owner`` (N,), are independent, and their labels are not."""
    shares = np.bincount(y, minlength=len(explained.joint)) / len(y)
    q = explained.label_probabilities()
    gain = np.log(np.maximum(q[np.arange(len(y)), y], 1e-12)) - np.log(shares[y])
    held_out_gain = max(explained.held_out.values()) - float(np.log(shares[y]).mean())
    error = gain.std() * (repetition(gain, owner) / len(gain)) ** 0.5
    return bool(held_out_gain >= 2.0 * error)


def _why_undetermined(
    y: Ints, explained: Explanations, *, informed: bool, unsettled: float
) -> Undetermined | None:
    """Why the data do not determine the rate; None if they do.

    unsettled: the weight of readers who err at boundaries from which the interval reaches down to
    0.
    """
    if not informed:
        return Undetermined(kind="uninformed")
    expected = explained.joint.sum(axis=1) * len(y)
    if expected.min() < FEW:  # the model's own number is a guess: what is said counts labels
        grade = int(expected.argmin())
        labels = int((y == grade).sum())
        kind: Literal["few_labels", "indistinct"] = "few_labels" if labels < FEW else "indistinct"
        return Undetermined(kind=kind, grade=grade, labels=labels)
    if sum(one.doubtful_weight for one in explained.all if one.fit.form == "boundary") > unsettled:
        return Undetermined(kind="boundaries")
    return None
