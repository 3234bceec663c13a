"""Which samples are on which side of a training; without a split, the data's own if they have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from srjt.data import LeakageWarning
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, official_split, unused_split_column
from srjt.errors import SrjtError, count_of, warn

__all__ = ["SplitChoice", "has_own_split", "own_split", "resolve_split", "resolved_once", "split_or_own"]

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


def resolve_split(
    split: Split | Callable[[Manifest], Split] | None, manifest: Manifest, *, skipped: bool
) -> Split:
    """The rows of each side; None: all samples are for training. skipped: whether unreadable images were left out."""
    if split is None:
        no_rows = np.empty(0, dtype=np.int64)
        return Split(train=np.arange(len(manifest)), validation=no_rows, test=no_rows)
    if not isinstance(split, Split):
        return split(manifest)
    if skipped:
        raise SrjtError(
            "Unreadable images were skipped, so the row positions of the split are no longer valid: pass a function "
            "that makes the split from the remaining manifest."
        )
    return split


def resolved_once(
    split: Split | Callable[[Manifest], Split] | None, *, samples: int
) -> Callable[[Manifest], Split]:
    """The split, made from the first manifest that it is given; from then on the same samples by their ids.

    The noise estimate and the training open the data one after the other: sides that each of them made for itself
    could differ, and test samples would be estimated from. samples: how many there are with unreadable ones.
    """
    side_of: dict[str, str] = {}

    def sides(manifest: Manifest) -> Split:
        ids = manifest.ids
        if not side_of:
            made = resolve_split(split, manifest, skipped=len(manifest) < samples)
            _check_rows(made, len(manifest), positions=isinstance(split, Split))
            side_of.update((ids[row], side) for side, rows in made.sides().items() for row in rows.tolist())
            return made
        found = np.array([side_of.get(name, "") for name in ids], dtype=object)
        return Split(**{side: np.flatnonzero(found == side) for side in ("train", "validation", "test")})

    return sides


def _check_rows(split: Split, samples: int, *, positions: bool) -> None:
    """An error for rows that do not exist, or are on two sides; a warning if a split as positions leaves some out."""
    rows = np.concatenate(list(split.sides().values()))
    if len(rows) and not 0 <= rows.min() <= rows.max() < samples:
        wrong = rows[(rows < 0) | (rows >= samples)][0]
        raise SrjtError(
            f"The split has the row {wrong}, and there are {count_of(samples, 'sample')}: it is of other data."
        )
    if len(np.unique(rows)) < len(rows):
        raise SrjtError("The split has a row twice: a sample is on one side, once.")
    if positions and (unused := samples - len(rows)):
        warn(f"{count_of(unused, 'sample is', 'samples are')} on no side of the split, and not used.")
