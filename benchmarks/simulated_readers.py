"""Simulated readers: severities, images that show them more or less clearly, and four families of
wrong labels.

The severity s of an image is continuous and its true grade is the interval that holds s. The image
shows x = s + blur, so that images near a boundary between two grades are unclear; in half of the
settings the blur differs from image to image, and the network knows it. A reader gives the label:

- ``quasi``, ``truncated``: by the paper's matrices;
- ``one-sided``: one grade too low or one grade too high, in one direction for all grades;
- ``by class``: one grade off, with a rate and a preferred direction for each grade;
- ``boundary``: one grade off, with a probability that is 1/2 at the boundary between two grades and
  falls exponentially with the distance from it;
- ``uniform``: any other grade.

Readers of kinds that the model was not developed on, as ``readers.py`` has them:

- ``probit``: a biased reader sees the severity with an error of his own, and lapses now and then;
- ``irregular``: random rows around an ordinal matrix;
- ``nominal``: errors to random other grades.

A network gives probabilities of one of three kinds: ``true``, p(true grade | x);
``over-confident``, the same cubed and normalised; ``labels``, p(label | x), what a good network
learns from the noisy labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from srjt import noise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FAMILIES = {
    "quasi, truncated": ("quasi", "truncated"),
    "asymmetric": ("one-sided", "by class"),
    "boundary": ("boundary",),
    "uniform": ("uniform",),
}
UNTUNED = {name: (name,) for name in ("probit", "irregular", "nominal")}
KINDS = ("true", "over-confident", "labels")
CELLS = 200  # of a grade, for integrals over the severity


@dataclass(frozen=True, kw_only=True)
class Simulation:
    family: str
    noise: str
    kind: str
    blur: float  # of the image, in widths of a grade
    varied: bool  # whether the blur differs from image to image
    labels: Ints  # (N,)
    true: Ints
    probabilities: Floats  # (N, C)
    oracle: Floats  # (N, C) p(true grade | x, label)
    matrix: Floats  # (C, C)

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        return self.labels != self.true

    @property
    def rate(self) -> float:
        return float(self.wrong.mean())


def simulations(
    seeds: Iterator[int] | range,
    *,
    kinds: tuple[str, ...] = KINDS,
    sizes: tuple[int, ...] = (300, 1000, 3000),
    families: dict[str, tuple[str, ...]] = FAMILIES,
) -> Iterator[Simulation]:
    """For each seed all noises and kinds; grades, size, blur, level and imbalance are drawn from
    the seed."""
    noises = [(family, name) for family, names in families.items() for name in names]
    for seed, (family, name) in product(seeds, noises):
        yield from simulate(family, name, seed=seed, kinds=kinds, sizes=sizes)


def simulate(
    family: str,
    name: str,
    *,
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    sizes: tuple[int, ...] = (300, 1000, 3000),
    blurs: tuple[float, ...] = (0.15, 0.3, 0.5),
    lowered: float | None = None,
) -> list[Simulation]:
    """The same readings with each kind of probabilities. lowered: the share of labels above the
    mildest, one-sided."""
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    classes, samples = int(rng.integers(3, 8)), int(rng.choice(sizes))
    blur, rate = float(rng.choice(blurs)), float(rng.choice([0.1, 0.2, 0.35]))
    shares = np.geomspace(1.0, float(rng.choice([1.0, 0.3, 0.1])), classes)
    shares /= shares.sum()
    grid = (np.arange(classes * CELLS) + 0.5) / CELLS
    grade = (grid.astype(np.int64)).clip(max=classes - 1)
    weight = shares[grade] / CELLS  # density of the severity: even within each grade
    given = _reader(name, grid, grade, weight, rate=rate, rng=rng)  # (S, C) p(label | severity)
    if lowered is not None:
        off = lowered * (np.arange(classes) > 0)
        given = (np.diag(1 - off) + np.diag(off[1:], k=-1))[grade]
    cell = rng.choice(len(grid), size=samples, p=weight / weight.sum())
    varied = bool(rng.integers(2))
    own = blur * np.exp(0.5 * varied * rng.normal(size=samples))  # some images are clearer
    seen = grid[cell] + own * rng.normal(size=samples)
    true = grade[cell]
    labels = (rng.random(samples)[:, None] > given[cell].cumsum(axis=1)[:, :-1]).sum(axis=1)
    joint = np.zeros((samples, classes, classes))  # p(true grade, label | x)
    both = np.zeros((len(grid), classes * classes))
    both.reshape(len(grid), classes, classes)[np.arange(len(grid)), grade] = given
    for part in np.array_split(np.arange(samples), max(1, samples // 2000)):
        exponent = -0.5 * ((seen[part, None] - grid) / own[part, None]) ** 2
        density = weight * np.exp(exponent - exponent.max(axis=1, keepdims=True))
        density /= density.sum(axis=1, keepdims=True)
        joint[part] = (density @ both).reshape(-1, classes, classes)
    oracle = joint[np.arange(samples), :, labels]
    oracle /= np.maximum(oracle.sum(axis=1, keepdims=True), 1e-300)
    t, q = joint.sum(axis=2), joint.sum(axis=1)
    sharp = np.maximum(t, 1e-12) ** 3
    told = {"true": t, "over-confident": sharp / sharp.sum(axis=1, keepdims=True), "labels": q}
    matrix = np.zeros((classes, classes))
    np.add.at(matrix, grade, weight[:, None] * given)
    matrix /= matrix.sum(axis=1, keepdims=True)
    return [
        Simulation(
            family=family, noise=name, kind=kind, blur=blur, varied=varied, labels=labels, true=true,
            probabilities=told[kind].clip(0.0, 1.0), oracle=oracle, matrix=matrix,
        )
        for kind in kinds
    ]  # fmt: skip


def _reader(
    name: str, grid: Floats, grade: Ints, weight: Floats, *, rate: float, rng: np.random.Generator
) -> Floats:
    """(S, C) p(label | severity) with about this share of wrong labels, or the largest possible."""
    classes = int(grade.max()) + 1
    shares = np.bincount(grade, weight)
    if name in ("quasi", "truncated"):
        most = noise.expected_rate(
            noise.transition_matrix(
                name, num_classes=classes, rho=noise.largest_rho(name, num_classes=classes)
            ),
            class_counts=shares,
        )
        rho = noise.rho_for_rate(name, rate=min(rate, 0.8 * most), class_counts=shares)
        return noise.transition_matrix(name, num_classes=classes, rho=rho)[grade]
    if name == "uniform":
        return np.where(np.eye(classes)[grade] > 0, 1 - rate, rate / (classes - 1))
    if name == "boundary":
        below, above = grid - grade, grade + 1 - grid  # distances to the boundaries of the grade
        below, above = (
            np.where(grade > 0, below, np.inf),
            np.where(grade < classes - 1, above, np.inf),
        )
        near = np.minimum(below, above)
        scale = _solve(lambda w: float(weight @ (0.5 * np.exp(-near / w))), rate, 0.01, 3.0)
        flip = 0.5 * np.exp(-near / scale)
        other = grade + np.where(below < above, -1, 1)
        return (1 - flip)[:, None] * np.eye(classes)[grade] + flip[:, None] * np.eye(classes)[other]
    if name == "probit":
        bias, lapse = rng.normal(0.0, 0.3), rng.beta(0.5, 8.0)
        limits = np.arange(1, classes)

        def read(spread: float) -> Floats:
            below = ndtr((limits - (grid + bias)[:, None]) / spread)
            shares = np.diff(below, axis=1, prepend=0.0, append=1.0)
            return (1.0 - lapse) * shares + lapse / classes

        right = np.eye(classes)[grade]
        return read(
            _solve(lambda w: float(weight @ (1 - (read(w) * right).sum(axis=1))), rate, 0.01, 3.0)
        )
    if name in ("irregular", "nominal"):
        away = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes)))
        near = np.exp(-1.2 * away) if name == "irregular" else np.full((classes, classes), 0.5)
        rows = np.array(
            [rng.dirichlet(5.0 * row / row.sum() + 0.05) for row in np.where(away > 0, near, 0.0)]
        )
        np.fill_diagonal(rows, 0.0)
        wrong = np.minimum(rate * rng.uniform(0.5, 1.5, size=classes), 0.6)
        return (np.diag(1 - wrong) + wrong[:, None] * rows / rows.sum(axis=1, keepdims=True))[grade]
    if name == "one-sided":
        up = np.full(classes, float(rng.integers(2)))
        each = np.ones(classes)
    else:
        up, each = rng.choice([0.1, 0.5, 0.9], size=classes), rng.uniform(0.2, 1.8, size=classes)
    up[0], up[-1] = 1.0, 0.0  # outside there is no grade
    if name == "one-sided":
        each[0 if up[1] == 0 else -1] = 0.0
    level = _solve(lambda w: float(shares @ np.minimum(w * each, 0.45)), rate, 0.0, 5.0)
    wrong = np.minimum(level * each, 0.45)
    matrix = np.diag(1 - wrong)
    for i in range(classes):
        if i + 1 < classes:
            matrix[i, i + 1] += wrong[i] * up[i]
        if i > 0:
            matrix[i, i - 1] += wrong[i] * (1 - up[i])
    return matrix[grade]


def _solve(rate_of: Callable[[float], float], rate: float, low: float, high: float) -> float:
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(middle) < rate else (low, middle)
    return (low + high) / 2
