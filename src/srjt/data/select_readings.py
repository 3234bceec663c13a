"""The readings of some samples, in the order of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from srjt.readers import Readings

__all__ = ["select_readings"]


def select_readings(readings: Readings, ids: Sequence[str]) -> Readings:
    """The readings of these samples, which become the items in this order; the others are left out."""
    row_of = {name: row for row, name in enumerate(ids)}
    place = np.array([row_of.get(name, -1) for name in readings.items], dtype=np.int64)
    known = readings.rows(place[readings.item] >= 0)
    item_of = {name: item for item, name in enumerate(readings.items)}
    order = np.array([item_of.get(name, -1) for name in ids], dtype=np.int64)
    reference, groups = readings.reference, readings.groups
    return replace(
        known,
        items=list(ids),
        item=place[known.item],
        groups=None
        if groups is None
        else [groups[item] if item >= 0 else name for item, name in zip(order, ids, strict=True)],
        reference=None if reference is None else np.where(order >= 0, reference[order], -1),
    )
