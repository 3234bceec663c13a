"""Which samples are on which side of a training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from srjt.data.manifest import Ints, Manifest
from srjt.data.splits import Split, official_split, warn_of_leaks
from srjt.errors import Option, SrjtError, warn
from srjt.text import count_of
from srjt.training.trained import SplitChoice


def train_on(rows: Ints) -> Split:
    """A split that trains on these rows and evaluates nothing."""
    no_rows = np.empty(0, dtype=np.int64)
    return Split(train=rows, validation=no_rows, test=no_rows, checked=True)


def resolve_split(split: SplitChoice, manifest: Manifest, *, skipped: bool) -> Split:
    """The rows of each side. None: the data's own split, if they have one, because test samples are
    not trained on unless the user asks for it. skipped: whether unreadable images were left out."""
    if split is None and "split" in manifest.table:
        return official_split(manifest)
    if split is None or split == "all":
        return train_on(np.arange(len(manifest)))
    if not isinstance(split, Split):
        return split(manifest)
    if skipped:
        raise SrjtError(
            "Unreadable images were skipped, so the row positions of the split are no longer valid:"
            " pass a function that makes the split from the remaining manifest.",
            code="unsupported",
            option="split",
        )
    return split


def resolved_once(split: SplitChoice, *, samples: int) -> Callable[[Manifest], Split]:
    """The split, made once for the same samples: sides that the noise estimate and the training
    each made for themselves could differ, and test samples would be estimated from. samples: how
    many, with unreadable ones.
    """
    made: dict[tuple[str, ...], Split] = {}

    def make(manifest: Manifest) -> Split:
        ids = tuple(manifest.ids)
        if ids not in made:
            made[ids] = resolve_split(split, manifest, skipped=len(ids) < samples)
            _check_rows(made[ids], len(ids), positions=isinstance(split, Split))
            if not made[ids].checked:
                warn_of_leaks(manifest, made[ids], name="The split")
        return made[ids]

    return make


def _check_rows(split: Split, samples: int, *, positions: bool) -> None:
    """An error for rows that do not exist, or are on two sides; a warning if a split as positions
    leaves some out."""
    rows = np.concatenate(list(split.sides().values()))
    if len(wrong := rows[(rows < 0) | (rows >= samples)]):
        raise SrjtError(
            f"The split has the row {wrong[0]}, and there are {count_of(samples, 'sample')}: it is"
            " of other data.",
            code="no_match",
            option="split",
        )
    if len(np.unique(rows)) < len(rows):
        raise SrjtError(
            "The split has a row twice: each sample can be on one side only, once.",
            code="not_unique",
            option="split",
        )
    if positions and (unused := samples - len(rows)):
        warn(
            f"{count_of(unused, 'sample is', 'samples are')} on no side of the split, and not used."
        )


def no_validation_side() -> SrjtError:
    """The error for a run that cannot tell which epoch is the best."""
    return SrjtError(
        Option("keep", "best"),
        " chooses the epoch by the validation side, and this run has none: add ",
        Option("split"),
        " or a split column, or use ",
        Option("keep", "last"),
        ".",
        code="no_split",
    )
