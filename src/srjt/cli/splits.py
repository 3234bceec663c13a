"""``--fold``, ``--folds``, ``--split-seed``, ``--splits`` and ``--official-split`` as a function of the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from srjt.errors import SrjtError, warn

if TYPE_CHECKING:
    from srjt.data import Manifest, Split

__all__ = ["chosen_split", "no_such_fold"]


def chosen_split(
    *, fold: int | None, folds: int, seed: int, file: Path | None, official: bool | None, skipping: bool
) -> Callable[[Manifest], Split] | None:
    """How to split the samples that remain after bad images are skipped; None: train on all of them."""
    from srjt.data import folds as make_folds
    from srjt.data import official_split, read_splits

    if official and (fold is not None or file is not None):
        raise SrjtError(
            "--official-split uses the data's own split: it cannot be combined with --fold or --splits."
        )
    if official:
        return official_split
    if fold is None and file is None:
        return None if official is False else _own_split
    wanted = fold or 0

    def choose(manifest: Manifest) -> Split:
        if file:
            found = read_splits(file, manifest, allow_missing=skipping)
        else:
            found = make_folds(manifest, folds=folds, seed=seed)
        if not 0 <= wanted < len(found):
            raise no_such_fold(wanted, len(found))
        return found[wanted]

    return choose


def no_such_fold(fold: int, folds: int) -> SrjtError:
    return SrjtError(f"There is no fold {fold}: folds are numbered 0 … {folds - 1}.")


def _own_split(manifest: Manifest) -> Split:
    """The data's own split, if they have one: test samples are not trained on unless the user asks for it."""
    import numpy as np

    from srjt.data import LeakageWarning, Split, official_split
    from srjt.data.splits import unused_split_column

    if "split" in manifest.table:
        return official_split(manifest)
    if (column := unused_split_column(manifest)) is not None:
        warn(
            f"All samples are used for training, but there is a column {column}: use --split-column {column}, or "
            "--no-official-split to train on all of them.",
            LeakageWarning,
        )
    empty = np.empty(0, dtype=np.int64)
    return Split(train=np.arange(len(manifest)), validation=empty, test=empty)
