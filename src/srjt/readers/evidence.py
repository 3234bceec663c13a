"""The readings as the consensus model takes them: a sparse matrix of items × reader and grade."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags  # type: ignore[import-untyped]

from srjt.readers.readings import Readings

__all__ = ["Evidence", "Repeats", "evidence_of"]

Floats = npt.NDArray[np.float64]

Repeats = Literal["one reading", "independent"]

_CLAMP = -1e9  # the logarithm of almost nothing, finite so that no sum becomes nan


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the model is fitted to."""

    said: csr_matrix  # (I, R·C) weight of each reader's grades
    readers: int
    classes: int
    log_factor: Floats | None = None  # (I, C) of other witnesses: the reference, a network
    anchored: bool = False  # whether a reference fixes the readers' common bias
    patient: npt.NDArray[np.int64] | None = None  # (I,) None: each item is a patient of its own

    def items(self, rows: npt.NDArray[np.int64]) -> Evidence:
        """Of some items."""
        return replace(
            self,
            said=self.said[rows],
            log_factor=None if self.log_factor is None else self.log_factor[rows],
            patient=None if self.patient is None else self.patient[rows],
        )

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """(I,) items with one reading, and no other witness."""
        once = np.asarray(self.said.sum(axis=1)).ravel() <= 1.0
        return once if self.log_factor is None else once & ~self.log_factor.any(axis=1)

    @cached_property
    def comparable(self) -> csr_matrix:
        """(I, R·C) the readings that tell how readers read. One reader's reading of an item that nobody else has read
        does not: it would only make the reader's errors fit the frequencies of the grades."""
        if self.readers > 1 or not self.single.any():
            return self.said
        return diags((~self.single).astype(np.float64)).tocsr() @ self.said

    @cached_property
    def single_readings(self) -> Floats:
        """(C,) of these items, by grade."""
        votes = np.asarray(self.said[self.single].sum(axis=0))
        return np.asarray(votes.reshape(self.readers, -1).sum(axis=0))


def evidence_of(readings: Readings, *, repeats: Repeats) -> Evidence:
    """The readings, and the reference where there is one."""
    items, readers, classes = len(readings.items), len(readings.readers), len(readings.grades)
    weight = np.ones(len(readings))
    if repeats == "one reading":
        _, pair, times = np.unique(
            readings.item * readers + readings.reader, return_inverse=True, return_counts=True
        )
        weight = 1.0 / times[pair]
    column = readings.reader * classes + readings.grade
    said = csr_matrix((weight, (readings.item, column)), shape=(items, readers * classes))
    known = np.zeros(items, dtype=bool) if readings.reference is None else readings.reference >= 0
    factor = None
    if readings.reference is not None and known.any():
        factor = np.zeros((items, classes))
        factor[known] = _CLAMP
        factor[known, readings.reference[known]] = 0.0
    return Evidence(
        said=said,
        readers=readers,
        classes=classes,
        log_factor=factor,
        anchored=bool(known.any()),
        patient=None if readings.groups is None else readings.owner(),
    )
