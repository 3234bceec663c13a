"""How many readings of a patient's items count as one: the design effect of readings that err together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt.readers.evidence import Evidence

__all__ = ["design_effect"]

Floats = npt.NDArray[np.float64]


def design_effect(evidence: Evidence, posterior: Floats, matrices: Floats) -> Floats:
    """The factor by which a reader's readings are fewer than they seem.

    1 + ρ(m − 1), with m the mean number of readings by patient, seen from a reading, and ρ the correlation of two
    readings of a patient by the same reader in being wrong. ρ is of all readers: one alone has too few pairs.

    Parameters
    ----------
    evidence : Evidence
    posterior : (I, C) array of float
        p(true grade) of each item.
    matrices : (R, C, C) array of float
        Pr(reading | true grade) of each reader.

    Returns
    -------
    (R,) array of float
        1 where each item is a patient of its own, or where the errors within a patient are independent.
    """
    if evidence.patient is None:
        return np.ones(evidence.readers)
    said = evidence.said.tocoo()
    reader, grade = np.divmod(said.col, evidence.classes)
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    expected = np.einsum("mc,mc->m", posterior[said.row], wrong[reader])
    off = said.data * (1.0 - posterior[said.row, grade] - expected)
    pair, place = np.unique(
        evidence.patient[said.row].astype(np.int64) * evidence.readers + reader, return_inverse=True
    )
    size = np.bincount(place, said.data)
    together = float((np.bincount(place, off) ** 2).sum() - (off**2).sum())
    alone = float((off**2).sum() / (said.data**2).sum())  # variance of one reading
    possible = alone * float((size**2).sum() - (said.data**2).sum())
    correlation = min(max(together / possible, 0.0), 1.0) if possible > 0 else 0.0
    owner = pair % evidence.readers
    total = np.bincount(owner, size, minlength=evidence.readers)
    mean = np.bincount(owner, size**2, minlength=evidence.readers) / np.maximum(total, 1e-12)
    return np.asarray(1.0 + correlation * np.maximum(mean - 1.0, 0.0))
