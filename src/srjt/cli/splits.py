"""``--fold``, ``--folds``, ``--split-seed``, ``--splits`` and ``--official-split`` as a function of the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from srjt.errors import SrjtError

if TYPE_CHECKING:
    from srjt.data import Manifest, Split

__all__ = ["check_fold", "chosen_split"]


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
        from srjt.training.own_split import own_split

        return None if official is False else partial(own_split, all_samples="--no-official-split")
    wanted = fold or 0

    def choose(manifest: Manifest) -> Split:
        if file:
            found = read_splits(file, manifest, allow_missing=skipping)
        else:
            found = make_folds(manifest, folds=folds, seed=seed)
        check_fold(wanted, len(found))
        return found[wanted]

    return choose


def check_fold(fold: int | None, folds: int) -> None:
    """Raise an error if there is no such fold, or if ``--folds`` was typed for ``--fold``."""
    if fold is None and folds < 3:
        raise SrjtError(
            f"--folds is the number of folds, at least 3, not {folds}: --fold {max(folds, 0)} chooses one of five."
        )
    if fold is not None and not 0 <= fold < folds:
        raise SrjtError(f"There is no fold {fold}: folds are numbered 0 … {folds - 1}.")
