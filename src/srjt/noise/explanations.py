"""Which noise explains the labels? Every form of noise, weighted by how well it predicts them.

Three kinds of readers are equally likely beforehand: readers whose errors are symmetric and depend on the true grade
alone (three forms), readers who prefer a direction or a grade (``banded``), and readers who are unsure near the boundary
between two grades (``boundary``). The last kind predicts the same labels as perfect readers of unclear images. How much of
the blur is the reader's is therefore not in the data: each of ``READER_SHARES`` is equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from srjt.noise.families import FORMS, SYMMETRIC, Form, family
from srjt.noise.model import Cells, Fit, Images, fit_model, pool, rank_images

__all__ = ["READER_SHARES", "Explanation", "Explanations", "explain"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

READER_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the blur's variance; the middles of five equal parts


@dataclass(frozen=True, kw_only=True)
class Explanation:
    fit: Fit
    reader: float  # share of the blur's variance that is the reader's
    weight: float

    def joint(self, images: Images | Cells, theta: Floats | None = None) -> Floats:
        """(N, C, C): p(true grade, label | x)."""
        return self.fit.joint(images, theta, reader=self.reader)

    def posterior(self, images: Images, labels: Ints) -> Floats:
        """(N, C): p(true grade | x, label)."""
        if self.reader:
            given = self.fit.given_label(images, labels, reader=self.reader)
        else:
            given = self.fit.true_grades(images) * self.fit.transition().T[labels]
        total = given.sum(axis=1, keepdims=True)
        # A label that is impossible at this image: the image alone decides.
        return np.where(total > 1e-300, given / np.maximum(total, 1e-300), self.fit.true_grades(images))


@dataclass(frozen=True, kw_only=True)
class Explanations:
    images: Images
    cells: Cells
    all: tuple[Explanation, ...]

    def __iter__(self) -> Iterator[Explanation]:
        """Those that matter."""
        return (one for one in self.all if one.weight > 1e-4)

    @cached_property
    def form_weights(self) -> dict[Form, float]:
        """Sums to 1."""
        found: dict[Form, float] = {}
        for one in self.all:
            found[one.fit.form] = found.get(one.fit.form, 0.0) + one.weight
        return {form: min(weight, 1.0) for form, weight in found.items()}

    @cached_property
    def joint(self) -> Floats:
        """(C, C): p(true grade, label), averaged over the samples and the explanations."""
        shares = self.cells.weights / self.cells.weights.sum()
        total = sum(one.weight * np.tensordot(shares, one.joint(self.cells), axes=1) for one in self)
        return np.asarray(total / np.sum(total))

    def label_probabilities(self) -> Floats:
        """(N, C): p(label | x)."""
        return np.asarray(
            sum(
                weight * (fit.true_grades(self.images) @ fit.transition())
                for fit, weight in ((one.fit, self.form_weights[one.fit.form]) for one in self._one_per_form())
            )
        )

    def posterior(self, labels: Ints) -> Floats:
        """(N, C): p(true grade | x, label), rows that sum to 1."""
        total = np.asarray(sum(one.weight * one.posterior(self.images, labels) for one in self))
        return np.asarray(total / total.sum(axis=1, keepdims=True))

    def given_verified(self, labels: Ints, rows: Ints, true: Ints) -> Explanations:
        """Weighted anew after the true grades of some rows are known."""
        some = Images(
            position=self.images.position[rows], width=self.images.width[rows], cell=self.images.cell[rows]
        )
        tiny = 1e-3  # a reader of verified grades may be wrong, too
        logs = np.array(
            [
                np.log(one.weight + 1e-12)
                + np.log(one.posterior(some, labels[rows])[np.arange(len(rows)), true] + tiny).sum()
                for one in self.all
            ]
        )
        return replace(self, all=_weighted(self.all, logs))

    def _one_per_form(self) -> list[Explanation]:
        return list({one.fit.form: one for one in self}.values())


def explain(labels: Ints, probabilities: Floats, *, repeated: float = 1.0) -> Explanations:
    """Fit every form to labels (N,) and out-of-fold probabilities (N, C); ``repeated`` as in ``pool``."""
    classes = probabilities.shape[1]
    images = rank_images(probabilities)
    cells = pool(labels, images, classes=classes, repeated=repeated)
    forms = [form for form in FORMS if classes > 2 or form not in SYMMETRIC[1:]]  # of two grades they are one
    symmetric = sum(form in SYMMETRIC for form in forms)
    found, logs = [], []
    for form in forms:
        fit = fit_model(cells, family(form, num_classes=classes))
        readers = READER_SHARES if form == "boundary" else (0.0,)
        equal = len(readers) * (symmetric if form in SYMMETRIC else 1)
        for reader in readers:
            found.append(Explanation(fit=fit, reader=reader, weight=0.0))
            logs.append(fit.log_evidence - np.log(equal))
    return Explanations(images=images, cells=cells, all=_weighted(tuple(found), np.array(logs)))


def _weighted(explanations: tuple[Explanation, ...], logs: Floats) -> tuple[Explanation, ...]:
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return tuple(replace(one, weight=float(w)) for one, w in zip(explanations, weights, strict=True))
