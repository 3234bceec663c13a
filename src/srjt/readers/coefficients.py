"""Coefficients of agreement from counts: weighted κ of two readers, Krippendorff's α of any number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["krippendorff_alpha", "weighted_kappa"]

Floats = npt.NDArray[np.float64]


def weighted_kappa(tables: npt.ArrayLike, *, power: int) -> Floats:
    """Weighted κ of tables of two readers' grades.

    Parameters
    ----------
    tables : (…, C, C) array
        Counts: the one reader's grade in rows, the other's in columns.
    power : {1, 2}
        1: linear, 2: quadratic weights.

    Returns
    -------
    (…) array of float
        nan where both readers gave one and the same grade, or nothing is counted.

    Examples
    --------
    >>> float(weighted_kappa([[20, 5], [10, 15]], power=2).round(3))
    0.4
    """
    counts = np.asarray(tables, dtype=np.float64)
    classes = counts.shape[-1]
    weight = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))).astype(np.float64) ** power
    size = counts.sum(axis=(-2, -1))
    chance = np.einsum("...i,ij,...j->...", counts.sum(axis=-1), weight, counts.sum(axis=-2))
    seen = (counts * weight).sum(axis=(-2, -1)) * size
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))


def krippendorff_alpha(coincidences: npt.ArrayLike) -> Floats:
    """Krippendorff's α for ordinal grades.

    Parameters
    ----------
    coincidences : (…, C·C) array
        Coincidence matrices: each ordered pair of readings of an item counts 1 / (readings of the item − 1).

    Returns
    -------
    (…) array of float
        nan where only one grade occurs.

    Examples
    --------
    >>> float(krippendorff_alpha([3, 1, 1, 3]).round(3))
    0.562
    """
    flat = np.asarray(coincidences, dtype=np.float64)
    classes = round(flat.shape[-1] ** 0.5)
    table = flat.reshape(*flat.shape[:-1], classes, classes)
    share = table.sum(axis=-1)  # (…, C)
    size = share.sum(axis=-1)
    # the distance of two grades is the number of readings from the one to the other, half of both ends
    rank = share.cumsum(axis=-1) - share / 2.0
    distance = (rank[..., :, None] - rank[..., None, :]) ** 2
    chance = (share[..., :, None] * share[..., None, :] * distance).sum(axis=(-2, -1))
    seen = (table * distance).sum(axis=(-2, -1)) * np.maximum(size - 1.0, 0.0)
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))
