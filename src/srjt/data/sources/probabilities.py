"""Probabilities of a network for the items that several readers have read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data.sources.text_table import load
from srjt.errors import SrjtError
from srjt.readers import Readings

__all__ = ["read_probabilities"]


def read_probabilities(path: Path, readings: Readings) -> npt.NDArray[np.float64]:
    """(I, C) the probabilities of each item's grades, from a table such as ``srjt predict`` writes.

    The table names the item (``id`` or ``image``) and has a column ``p_<grade>`` for each grade. An item that it does
    not name has the mean of the others, which says nothing about it.
    """
    frame = load(path).frame
    if {"quality", "suggested"} <= set(frame.columns):
        raise SrjtError(
            f"{path} is the list of an audit, whose probabilities follow from the labels too, so that they would "
            "count twice: give the predictions of networks alone, or run srjt audit --several-readings consensus."
        )
    names = [f"p_{grade}" for grade in readings.grades]
    if missing := [name for name in names if name not in frame]:
        raise SrjtError(f"{path} has no column {missing[0]!r}: it must have {', '.join(names)}.")
    try:
        values = frame[names].to_numpy(np.float64)
    except ValueError as problem:
        raise SrjtError(f"{path} contains a value that is not a number: {problem}.") from None
    if not ((values >= 0).all() and (values.sum(axis=1) > 0).all()):
        raise SrjtError(f"The columns {', '.join(names)} of {path} must hold probabilities.")
    for column in ("id", "image", "item"):
        row_of = {} if column not in frame else {name: row for row, name in enumerate(frame[column])}
        # predictions name the files, a table of readings often their names alone
        row_of |= {Path(name).name: row for name, row in row_of.items()}
        rows = np.array([row_of.get(name, row_of.get(Path(name).name, -1)) for name in readings.items])
        if (rows >= 0).any():
            known = values[rows[rows >= 0]] / values[rows[rows >= 0]].sum(axis=1, keepdims=True)
            found = np.tile(known.mean(axis=0), (len(rows), 1))
            found[rows >= 0] = known
            return found
    raise SrjtError(
        f"{path} names none of the images that were read; the first of them is {readings.items[0]!r}."
    )
