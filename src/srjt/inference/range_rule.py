"""How wide ranges of grades are, of images or of patients, and what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, count_of
from srjt.ordinal.pooling import LearnedPooling, Pooling, pool_probabilities
from srjt.ordinal.ranges import grade_ranges, range_scores
from srjt.ordinal.recalibration import Recalibration

__all__ = ["Basis", "Pooled", "RangeRule", "values_of_units"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Basis = Literal["verified", "posterior", "labels", "corrected", "conservative"]


class Pooled(NamedTuple):
    """Ranges are those of patients, or of the values of other columns: how the images of each become one answer."""

    per: tuple[str, ...]
    how: Pooling = "highest"
    learned: LearnedPooling | None = None


@dataclass(frozen=True, kw_only=True)
class RangeRule:
    """How wide ranges are, and what they promise.

    Attributes
    ----------
    coverage : float
        The promised probability.
    thresholds : ndarray, shape (C,)
        Of each grade's score; infinite: the grade is in every range.
    patients, answers, samples : int
        That the ranges are calibrated on. There are fewer answers than samples if the answers are pooled.
    by_patient : bool
        Whether the patients are known; else each answer counts as one.
    basis : {"verified", "posterior", "labels", "corrected", "conservative"}
        What stands for the true grades of the calibration samples.
    why : str
        What the promise rests on, in one sentence.
    by : str
        "", "grade", or the column whose values have thresholds of their own.
    parts : dict of str to RangeRule
        The rules of the values of that column.
    temperature : Recalibration or None
        Applied to images before the scores. It is fitted to the same samples: one number, which does not change the
        order in which grades enter the range of an image.
    pooled : Pooled or None
        None: each image has a range. A learned pooling is fitted to the same samples, too: two numbers.
    """

    coverage: float
    thresholds: Floats
    patients: int
    answers: int
    samples: int
    by_patient: bool
    basis: Basis
    why: str
    by: str = ""
    parts: dict[str, RangeRule] = field(default_factory=dict)
    temperature: Recalibration | None = None
    pooled: Pooled | None = None

    def ranges(
        self,
        probabilities: npt.ArrayLike,
        *,
        parts: Sequence[object] | None = None,
        units: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """Lowest and highest grade of each range.

        Parameters
        ----------
        probabilities : array-like, shape (N, C)
            Of images, as the networks give them.
        parts : sequence, length N, optional
            The values of the column ``by``. A value without a rule gets the range of all grades.
        units : ndarray of int, shape (N,), optional
            The patient of each image, 0 … M − 1, for pooled ranges.

        Returns
        -------
        low, high : ndarray of int64, shape (N,) or (M,)
        """
        p = np.asarray(probabilities)
        if not self.parts:
            return grade_ranges(self.scores(p, units=units), self.thresholds)
        assert parts is not None
        if units is None or self.pooled is None:
            units, values = np.arange(len(p)), np.array([str(one) for one in parts])
        else:
            values = values_of_units(parts, units, by=self.by, per=self.pooled.per)
        low, high = np.zeros(len(values), dtype=np.int64), np.full(len(values), p.shape[1] - 1)
        for value, rule in self.parts.items():
            of = values == value
            rows = of[units]
            if rows.any():
                codes = None if self.pooled is None else np.unique(units[rows], return_inverse=True)[1]
                low[of], high[of] = rule.ranges(p[rows], units=codes)
        return low, high

    def scores(self, probabilities: npt.ArrayLike, *, units: Ints | None = None) -> Floats:
        """(N, C) or (M, C) scores of all grades, from the probabilities of images."""
        p = np.asarray(probabilities)
        return range_scores(pool(p if self.temperature is None else self.temperature(p), units, self.pooled))

    @property
    def trivial(self) -> bool:
        """Whether every range holds all grades."""
        rules = self.parts.values() if self.parts else (self,)
        return all(np.isinf(rule.thresholds).all() for rule in rules)

    def __str__(self) -> str:
        each = {"": "", "grade": ", for each true grade"}.get(self.by, f", for each value of {self.by}")
        text = (
            f"Ranges contain the true grade of {self._what()} with a probability of at least {self.coverage:g}{each}; "
            f"calibrated on {self._calibrated_on()}, {self.why}"
        )
        if self.trivial:
            return f"{text} Only the range of all grades keeps this promise here."
        if few := [name for name, rule in self.parts.items() if rule.trivial]:
            return f"{text} Too few samples, so all grades, for {self.by} {', '.join(few)}."
        lacking = [] if self.parts else np.flatnonzero(np.isinf(self.thresholds)).tolist()
        if few := [str(grade) for grade in lacking]:
            return f"{text} Too few samples of the grades at positions {', '.join(few)}: they are in every range."
        return text

    def _what(self) -> str:
        if self.pooled is None:
            return "a random image of a new patient" if self.by_patient else "a new image"
        names = [name for name in self.pooled.per if name != "patient"]
        of = "of its images"
        if not names:
            return f"a new patient, the highest {of},"
        named = " and ".join(names)
        whose = f"a random {named} of a new patient" if self.by_patient else f"a new {named}"
        return f"{whose}, the highest {of},"

    def _calibrated_on(self) -> str:
        samples = count_of(self.samples, "sample")
        if self.pooled is not None and self.answers != (self.patients if self.by_patient else self.samples):
            samples = f"{count_of(self.answers, 'answer')} of {samples}"
        return f"{count_of(self.patients, 'patient')} ({samples})" if self.by_patient else samples


def pool(probabilities: npt.ArrayLike, units: Ints | None, pooled: Pooled | None) -> npt.ArrayLike:
    """(N, C) → (M, C), or as they are without pooling."""
    if pooled is None:
        return probabilities
    assert units is not None
    return pool_probabilities(probabilities, units, how=pooled.how, learned=pooled.learned)


def values_of_units(
    values: Sequence[object], units: Ints, *, by: str, per: Sequence[str]
) -> npt.NDArray[np.str_]:
    """(M,) the value of each unit; an error if its images have different ones."""
    texts = np.array([str(one) for one in values])
    found = texts[np.unique(units, return_index=True)[1]]
    if len(different := np.flatnonzero(texts != found[units])):
        one = int(different[0])
        raise SrjtError(
            f"Ranges for each value of {by} need one value per {' and '.join(per)}; one of them has "
            f"{str(found[units[one]])!r} and {str(texts[one])!r}."
        )
    return found
