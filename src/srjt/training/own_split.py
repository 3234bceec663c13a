"""Which samples a training uses if it is given no split: those of the data's own, if they have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from srjt.data import LeakageWarning
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, official_split, unused_split_column
from srjt.errors import SrjtError, warn

__all__ = ["SplitChoice", "has_own_split", "own_split", "split_or_own"]

SplitChoice = Split | Callable[[Manifest], Split] | Literal["all"] | None


def split_or_own(split: SplitChoice) -> Split | Callable[[Manifest], Split] | None:
    """The split that ``srjt.train`` is given; for None the data's own; None for "all"."""
    if split is None:
        return own_split
    if isinstance(split, Split) or callable(split):
        return split
    if isinstance(split, str) and split == "all":
        return None
    raise SrjtError(
        f"split takes a Split, a function that makes one from the data, or 'all', not {split!r}: the first of five "
        "folds is split=srjt.data.folds(data)[0]."
    )


def has_own_split(manifest: Manifest) -> bool:
    return "split" in manifest.table


def own_split(manifest: Manifest, *, all_samples: str = 'split="all"') -> Split:
    """The data's own split, if they have one: test samples are not trained on unless the user asks for it.

    all_samples: how the user asks for it, for a warning.
    """
    if has_own_split(manifest):
        return official_split(manifest)
    if (column := unused_split_column(manifest)) is not None:
        warn(
            f"All samples are used for training, but there is a column {column}: use `split_column={column!r}`, or "
            f"{all_samples} to train on all of them.",
            LeakageWarning,
        )
    empty = np.empty(0, dtype=np.int64)
    return Split(train=np.arange(len(manifest)), validation=empty, test=empty)
