"""Transition matrices of label noise: the families of the paper, the rate that a matrix gives,
injection, and the noise that posterior probabilities of the true grade imply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srjt.errors import SrjtError, unknown_name

# Ordinal label noise: which grade is mistaken for which, how often, and how often it really
# happened.
#
# Matrices are (C, C) float64 arrays with P[i, j] = Pr(label = j | true grade = i). The families are
# one formula: off the diagonal P_ij = ρ · w(|i − j|), and the diagonal is the rest of the row.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Above this condition number P⁻¹ amplifies sampling noise so much that inverse corrections are
# unreliable.
ILL_CONDITIONED = 20.0


@dataclass(frozen=True)
class NoiseFamily:
    """Noise whose rate depends on the distance of the grades alone."""

    name: str  # in tables, figures and pages
    meaning: str  # in a sentence about the noise that was found
    weight: Callable[[Floats], Floats]  # w of distances ≥ 1


# In the order of tables. Everything finds a family here: injection, studies, estimates, reports.
FAMILIES: dict[str, NoiseFamily] = {
    "quasi": NoiseFamily(
        "Quasi-Gaussian noise",
        "an error by two grades is half as likely as one by one grade, and so on",
        lambda distance: 1.0 / distance,
    ),
    "truncated": NoiseFamily(  # the paper prints 1 − ρ, a slip
        "Truncated-Gaussian noise",
        "errors by one grade only",
        lambda distance: np.where(distance == 1, 1.0, 0.0),
    ),
    "uniform": NoiseFamily("Uniform noise", "every wrong grade is equally likely", np.ones_like),
}


def family_weights(kind: str, num_classes: int) -> Floats:
    """(C, C) off-diagonal shape w(|i − j|) of a noise family, zero on the diagonal."""
    if num_classes < 2:
        raise SrjtError(f"Noise needs at least two grades, not {num_classes}.", code="too_few")
    if kind not in FAMILIES:
        raise unknown_name("noise kind", kind, FAMILIES)
    grade = np.arange(num_classes, dtype=np.float64)
    distance = np.abs(grade[:, None] - grade[None, :])
    return np.where(distance > 0, FAMILIES[kind].weight(np.maximum(distance, 1.0)), 0.0)


def largest_rho(kind: str, *, num_classes: int) -> float:
    """The largest ρ for which no diagonal entry is negative.

    Parameters
    ----------
    kind : {"quasi", "truncated", "uniform"}
        A family: errors to all other grades, the rarer the farther; to neighbouring grades only; to
        all alike.
    num_classes : int
        Number of grades C.

    Examples
    --------
    >>> largest_rho("truncated", num_classes=4)
    0.5
    """
    return float(1.0 / family_weights(kind, num_classes).sum(axis=1).max())


def transition_matrix(kind: str, *, num_classes: int, rho: float) -> Floats:
    """The matrix P_ij = Pr(label = j | true grade = i) of a family of noise, such as the paper's
    two.

    Parameters
    ----------
    kind : {"quasi", "truncated", "uniform"}
        P_ij = ρ / |i − j| for all i ≠ j; ρ for neighbouring grades and 0 beyond; or ρ for all i ≠
        j.
    num_classes : int
        Number of grades C.
    rho : float
        The paper's ρ, from 0 to ``largest_rho``. ``rho_for_rate`` finds it for a noise rate.

    Examples
    --------
    >>> transition_matrix("truncated", num_classes=3, rho=0.25)
    array([[0.75, 0.25, 0.  ],
           [0.25, 0.5 , 0.25],
           [0.  , 0.25, 0.75]])
    """
    off_diagonal = family_weights(kind, num_classes)
    largest = largest_rho(kind, num_classes=num_classes)
    if not 0.0 <= rho <= largest:
        raise SrjtError(
            f"rho = {rho:g} is not possible for {kind} noise with {num_classes} grades: a row of"
            f" the matrix would be negative; choose rho between 0 and {largest:.6g}.",
            code="out_of_bounds",
        )
    matrix = rho * off_diagonal
    # a row that ρ = largest uses up would otherwise end at −1e−16
    np.fill_diagonal(matrix, np.maximum(0.0, 1.0 - matrix.sum(axis=1)))
    return matrix


def check_matrix(
    matrix: ArrayLike, *, num_classes: int | None = None, name: str = "transition matrix"
) -> Floats:
    """The matrix (C, C) as float64, or an error: it is not square, has another size, or a row does
    not sum to 1.

    Parameters
    ----------
    matrix : array-like of shape (C, C)
        Pr(label = j | true grade = i).
    num_classes : int, optional
        The number of grades that it must be for.
    name : str
        What an error calls it.

    Examples
    --------
    >>> check_matrix([[0.9, 0.1], [0.2, 0.8]]).shape
    (2, 2)
    """
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise SrjtError(
            f"A {name} is square (C, C); this one has shape {array.shape}.", code="wrong_shape"
        )
    if num_classes is not None and len(array) != num_classes:
        raise SrjtError(
            f"The {name} is for {len(array)} grades, but there are {num_classes}.",
            code="wrong_shape",
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise SrjtError(
            f"A {name} holds probabilities: an entry is negative or not finite.",
            code="wrong_values",
        )
    excess = np.abs(array.sum(axis=1) - 1.0)
    if excess.max() > 1e-6:
        row = int(excess.argmax())
        raise SrjtError(
            f"Each row of a {name} sums to 1; row {row} sums to {array[row].sum():g}.",
            code="wrong_values",
        )
    return array


def transition_of(joint: Floats) -> Floats:
    """(…, C, C) P[i, j] = Pr(label = j | true grade = i), from p(true grade, label)."""
    return np.asarray(joint / np.maximum(joint.sum(axis=-1, keepdims=True), 1e-300))


def true_given_label(joint: Floats) -> Floats:
    """(C, C) row j is p(true grade | label = j), from p(true grade, label); of a label that does
    not occur, that it is right."""
    share = joint.sum(axis=0)
    return np.asarray(
        np.where(share > 0, joint / np.where(share > 0, share, 1.0), np.eye(len(joint))).T
    )


def expected_rate(matrix: ArrayLike, *, class_counts: ArrayLike) -> float:
    """The share of labels that a matrix makes wrong.

    Parameters
    ----------
    matrix : array-like of shape (C, C)
        Pr(label = j | true grade = i).
    class_counts : array-like of shape (C,)
        The number, or the share, of samples of each true grade.

    Examples
    --------
    >>> round(expected_rate([[0.9, 0.1], [0.3, 0.7]], class_counts=[75, 25]), 3)
    0.15
    """
    probabilities = check_matrix(matrix)
    counts = _counts(class_counts, len(probabilities))
    return float(counts @ (1.0 - np.diag(probabilities)) / counts.sum())


def rho_for_rate(kind: str, *, rate: float, class_counts: ArrayLike) -> float:
    """The ρ whose expected noise rate on *this* class mix is ``rate``. The rate is linear in ρ.

    Parameters
    ----------
    kind : str
        As for ``transition_matrix``.
    rate : float
        The share of labels that shall be wrong.
    class_counts
        As for ``expected_rate``.

    Examples
    --------
    >>> rho = rho_for_rate("quasi", rate=0.4, class_counts=[60, 20, 10, 10])
    >>> matrix = transition_matrix("quasi", num_classes=4, rho=rho)
    >>> round(expected_rate(matrix, class_counts=[60, 20, 10, 10]), 3)
    0.4
    """
    counts = _counts(class_counts, None)
    per_rho = float(counts @ family_weights(kind, len(counts)).sum(axis=1) / counts.sum())
    largest = largest_rho(kind, num_classes=len(counts))
    if not 0.0 <= rate <= per_rho * largest * (1 + 1e-12):
        raise SrjtError(
            f"A noise rate of {rate:g} is not possible for {kind} noise on this class mix: the"
            f" largest is {per_rho * largest:.4g} (at rho = {largest:.4g}).",
            code="out_of_bounds",
        )
    return min(rate / per_rho, largest)


def corrupt(
    labels: ArrayLike, matrix: ArrayLike, *, seed: int, ids: Sequence[object] | None = None
) -> Ints:
    """Draw a noisy label (N,) of int64 for each true grade.

    Parameters
    ----------
    labels : array-like of shape (N,)
        True grades, counted from 0.
    matrix : array-like of shape (C, C)
        Pr(label = j | true grade = i).
    seed : int
        A whole number from 0 up. The result is the same on every platform.
    ids : sequence of N unique names, optional
        With ids a draw depends on the seed, the sample's id and its grade alone, so that adding or
        reordering rows changes no other label; without, it depends on the position.

    Examples
    --------
    >>> matrix = transition_matrix("truncated", num_classes=3, rho=0.25)
    >>> corrupt([0, 0, 1, 1, 2, 2], matrix, seed=0)
    array([0, 0, 0, 1, 2, 2])
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SrjtError(f"A seed is a whole number from 0 up, not {seed!r}.", code="out_of_bounds")
    cumulative = np.cumsum(check_matrix(matrix), axis=1)
    grades = _grades(labels, len(cumulative))
    if ids is None:
        uniform = np.random.Generator(np.random.Philox(key=int(seed))).random(len(grades))
    else:
        uniform = _keyed_uniform(ids, seed)
        if len(uniform) != len(grades):
            raise SrjtError(
                f"{len(uniform)} ids for {len(grades)} labels: they must be as many.",
                code="wrong_shape",
            )
    # The last column is not compared: rounding may leave it just under 1.
    return np.asarray((uniform[:, None] >= cumulative[grades, :-1]).sum(axis=1, dtype=np.int64))


def _keyed_uniform(ids: Sequence[object], seed: int) -> Floats:
    """(N,) numbers in [0, 1), each a hash of the seed and one id: 53 bits, as in a float64 draw."""
    names = [str(i) for i in ids]
    if len(set(names)) != len(names):
        raise SrjtError(
            "Sample ids must be unique for keyed noise: at least one occurs twice.",
            code="not_unique",
        )
    keys = (f"srjt noise {int(seed)}\0{name}".encode() for name in names)
    digests = b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    return (np.frombuffer(digests, dtype=">u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, kw_only=True)
class NoiseReport:
    """What the noise was meant to be and what it came to."""

    nominal_rate: float  # expected from the matrix on this class mix
    realised_rate: float
    per_class_nominal: tuple[float, ...]  # 1 − P_ii
    per_class_realised: tuple[float, ...]  # nan for a grade without samples
    class_counts: tuple[int, ...]  # samples per true grade
    realised_matrix: tuple[tuple[float, ...], ...]  # row-normalised counts (nan rows likewise)
    condition_number: float  # of the nominal matrix, 2-norm

    @property
    def ill_conditioned(self) -> bool:
        """Whether methods that invert the matrix (garg) amplify noise too much to be trusted."""
        return self.condition_number > ILL_CONDITIONED

    def __str__(self) -> str:
        return self.describe(range(len(self.class_counts)))

    def describe(self, grades: Iterable[object]) -> str:
        """The rates, of all samples and by grade, in lines. grades: their names."""
        lines = [f"noise rate: nominal {self.nominal_rate:.4f}, realised {self.realised_rate:.4f}"]
        rows = zip(
            grades, self.class_counts, self.per_class_nominal, self.per_class_realised, strict=True
        )
        for grade, count, nominal, realised in rows:
            lines.append(
                f"  grade {grade}: nominal {nominal:.4f}, realised {realised:.4f} of {count:,}"
            )
        if self.ill_conditioned:
            lines.append(
                f"  the matrix is nearly singular (condition number {self.condition_number:.0f}):"
                " methods that invert it, such as garg, are unreliable here"
            )
        return "\n".join(lines)


def report(labels: ArrayLike, noisy: ArrayLike, matrix: ArrayLike) -> NoiseReport:
    """Compare true grades with their noisy labels: nominal and realised rates, which ``print``
    shows.

    Parameters
    ----------
    labels, noisy : array-like of shape (N,)
        True grades, and their noisy labels.
    matrix : array-like of shape (C, C)
        The matrix that the labels were drawn from.

    Examples
    --------
    >>> print(report([0, 0, 1, 1], [0, 1, 1, 1], [[0.5, 0.5], [0.0, 1.0]]))
    noise rate: nominal 0.2500, realised 0.2500
      grade 0: nominal 0.5000, realised 0.5000 of 2
      grade 1: nominal 0.0000, realised 0.0000 of 2
    """
    nominal = check_matrix(matrix)
    num_classes = len(nominal)
    true = _grades(labels, num_classes)
    wrong = _grades(noisy, num_classes)
    if len(true) != len(wrong) or len(true) == 0:
        raise SrjtError(
            f"{len(true)} true grades and {len(wrong)} labels: both are needed, and as many.",
            code="wrong_shape",
        )
    joint = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(joint, (true, wrong), 1)
    counts = joint.sum(axis=1)
    with np.errstate(invalid="ignore"):
        realised = joint / counts[:, None].astype(np.float64)
    return NoiseReport(
        nominal_rate=expected_rate(nominal, class_counts=counts),
        realised_rate=float((true != wrong).mean()),
        per_class_nominal=tuple((1.0 - np.diag(nominal)).tolist()),
        per_class_realised=tuple((1.0 - np.diag(realised)).tolist()),
        class_counts=tuple(counts.tolist()),
        realised_matrix=tuple(map(tuple, realised.tolist())),
        condition_number=float(np.linalg.cond(nominal)),
    )


def _counts(class_counts: ArrayLike, num_classes: int | None) -> Floats:
    counts = np.asarray(class_counts, dtype=np.float64)
    if counts.ndim != 1 or (num_classes is not None and len(counts) != num_classes):
        raise SrjtError(
            f"Class counts are one number per grade; got shape {counts.shape}.", code="wrong_shape"
        )
    if not np.isfinite(counts).all() or (counts < 0).any() or counts.sum() <= 0:
        raise SrjtError("Class counts are non-negative and not all zero.", code="wrong_values")
    return counts


def _grades(labels: ArrayLike, num_classes: int) -> Ints:
    array = np.asarray(labels)
    if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise SrjtError(
            f"Labels are one-dimensional, of whole grades; got {array.dtype} {array.shape}.",
            code="wrong_type",
        )
    grades = array.astype(np.int64)
    if grades.size and (grades.min() < 0 or grades.max() >= num_classes):
        raise SrjtError(
            f"Labels must lie in 0 … {num_classes - 1}; they reach from {grades.min()} to"
            f" {grades.max()}.",
            code="unknown_grade",
        )
    return grades


# The noise of labels whose true grades are known as probabilities, from several readers: nothing is
# estimated.


class PosteriorNoise(NamedTuple):
    """rate: share of wrong labels. transition: P[i, j] = Pr(label = j | true = i). posterior:
    Pr(true = i | label = j), in row j. Rows of a grade that does not occur are those of labels
    without noise."""

    rate: float
    transition: Floats
    posterior: Floats


def noise_from_posterior(labels: ArrayLike, posterior: ArrayLike) -> PosteriorNoise:
    """The expected noise of labels, given the probability of each true grade.

    Parameters
    ----------
    labels : (N,) array of int
    posterior : (N, C) array of float
        Rows sum to 1.

    Examples
    --------
    >>> noise = noise_from_posterior([0, 0, 1], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> round(noise.rate, 3)
    0.167
    >>> noise.transition.round(2).tolist()
    [[1.0, 0.0], [0.33, 0.67]]
    """
    truth = np.asarray(posterior, dtype=np.float64)
    joint = truth.T @ np.eye(truth.shape[1])[np.asarray(labels, dtype=np.int64)]  # [true, label]
    rate = float(1 - np.trace(joint) / joint.sum())
    return PosteriorNoise(rate, true_given_label(joint.T), true_given_label(joint))


# Errors that all readers of an image share, because something in it misleads each of them alike.

# Of the errors that a reader makes alone. Not visible in readings, so it is the middle of what the
# intervals allow; chosen on ACNE04 and APPA-REAL. A panel of experts prefers 1
# (benchmarks/readers.py til), other data prefer less (docs/evidence.md).
SHARED_ERRORS = 0.5


def seen(mean: Floats, amount: float) -> Floats:
    """(C, C) Pr(what all readers see | true grade): ``amount`` times the errors that one of them
    makes alone, which have the matrix ``mean``."""
    return np.asarray((1.0 - amount) * np.eye(len(mean)) + amount * mean)
