"""``--fold``, ``--folds``, ``--split-seed``, ``--splits`` and ``--official-split`` as a function of the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from srjt.errors import SrjtError, warn

if TYPE_CHECKING:
    from srjt.data import Manifest, Split

__all__ = ["check_fold", "chosen_split"]

SEEDS_TRIED = 50  # for one whose sides have all grades


def chosen_split(
    *, fold: int | None, folds: int, seed: int, file: Path | None, official: bool | None, skipping: bool
) -> Callable[[Manifest], Split] | None:
    """How to split the samples that remain after bad images are skipped; None: train on all of them."""
    from srjt.data import folds as make_folds
    from srjt.data import group_duplicates, official_split, read_splits

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
            check_fold(wanted, len(found))
            return found[wanted]
        check_fold(wanted, folds)
        manifest = group_duplicates(manifest) if manifest.duplicates is None else manifest
        chosen = make_folds(manifest, folds=folds, seed=seed)[wanted]
        if absent := _absent_grade(manifest, chosen):
            others = range(seed + 1, seed + 1 + SEEDS_TRIED)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # shown for the fold that is used
                made = ((other, make_folds(manifest, folds=folds, seed=other)[wanted]) for other in others)
                better = next((other for other, split in made if not _absent_grade(manifest, split)), None)
            advice = "" if better is None else f" --split-seed {better} has every grade on every side."
            warn(f"{absent} of fold {wanted}: folds do not depend on labels.{advice}")
        return chosen

    return choose


def _absent_grade(manifest: Manifest, split: Split) -> str:
    """The first grade that a side lacks, as the beginning of a sentence; "" if all sides have all that there are."""
    for side, rows in split.sides().items():
        counts = manifest.select(rows, images=False).class_counts
        for grade, count, whole in zip(manifest.grades, counts, manifest.class_counts, strict=True):
            if whole and not count:
                return f"No sample of grade {grade} is on the {side} side"
    return ""


def check_fold(fold: int | None, folds: int) -> None:
    """Raise an error if there is no such fold, or if ``--folds`` was typed for ``--fold``."""
    if fold is None and folds < 3:
        raise SrjtError(
            f"--folds is the number of folds, at least 3, not {folds}: --fold {max(folds, 0)} chooses one of five."
        )
    if fold is not None and not 0 <= fold < folds:
        raise SrjtError(f"There is no fold {fold}: folds are numbered 0 … {folds - 1}.")
