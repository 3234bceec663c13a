"""The one table that everything else reads: which image has which grade and belongs to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError

__all__ = ["Manifest"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """N samples with ordinal grades 0 … C−1. Immutable: every change gives a new one.

    ``table`` has one row per sample, index 0 … N−1, and the columns

    - ``id`` (str, unique): the sample's lasting name; noise and history are keyed by it
    - ``image`` (str): path of the image below ``root`` (or absolute); when ``arrays`` is given, a label or
      the path of the image that the features were made from
    - ``grade`` (int64): the label as given, possibly wrong
    - ``patient`` (str, optional column): who must not be split
    - ``true_grade`` (int64, optional column): known when the noise was injected by us
    - ``split`` (str, optional column): train / validation / test as published with the data

    and whatever else the source had (reader, eye, …), untouched.
    """

    table: pd.DataFrame
    grades: tuple[str, ...]  # names, mildest first; a grade is an index into them
    root: Path = field(default_factory=Path)
    # in memory: (N, H, W, 3) uint8 images, or (N, F) float32 features, from which there is no way to images
    arrays: npt.NDArray[np.generic] | None = None
    made: str = ""  # how the features were made, as JSON, where that is known

    def __post_init__(self) -> None:
        missing = {"id", "image", "grade"} - set(self.table.columns)
        if missing:
            raise SrjtError(f"A manifest needs the columns id, image and grade; missing: {sorted(missing)}.")
        if self.arrays is not None and len(self.arrays) != len(self.table):
            what = "rows of features" if self.are_features else "images"
            raise SrjtError(f"{len(self.arrays)} {what} but {len(self.table)} labels: they must be as many.")
        if not self.table["id"].is_unique:
            twice = self.table.loc[self.table["id"].duplicated(), "id"].iloc[0]
            raise SrjtError(f"Sample ids must be unique; {twice!r} occurs more than once.")
        if len(self) and not self.table["grade"].between(0, self.num_classes - 1).all():
            raise SrjtError(f"Grades must lie in 0 … {self.num_classes - 1}.")

    def __len__(self) -> int:
        return len(self.table)

    @property
    def num_classes(self) -> int:
        return len(self.grades)

    @property
    def are_features(self) -> bool:
        """Whether the samples are rows of features (``arrays`` is (N, F)) rather than images."""
        return self.arrays is not None and self.arrays.ndim == 2

    @property
    def labels(self) -> Ints:
        """(N,) grades as given; a copy that may be changed."""
        return self.table["grade"].to_numpy(np.int64, copy=True)

    @property
    def true_labels(self) -> Ints | None:
        """(N,) true grades where they are known."""
        if "true_grade" not in self.table:
            return None
        return self.table["true_grade"].to_numpy(np.int64, copy=True)

    @property
    def ids(self) -> list[str]:
        return [str(i) for i in self.table["id"]]

    @property
    def patients(self) -> list[str] | None:
        return [str(p) for p in self.table["patient"]] if "patient" in self.table else None

    @property
    def paths(self) -> list[Path]:
        return [self.root / str(image) for image in self.table["image"]]

    @property
    def class_counts(self) -> Ints:
        """(C,) samples per given grade."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def select(self, rows: Sequence[int] | npt.NDArray[np.generic]) -> Manifest:
        """The samples at these positions (or where a boolean mask is true), in this order."""
        chosen = np.asarray(rows)
        positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        return replace(
            self,
            table=self.table.iloc[positions].reset_index(drop=True),
            arrays=None if self.arrays is None else self.arrays[positions],
        )

    def with_noisy_labels(self, noisy: npt.ArrayLike) -> Manifest:
        """The same samples with ``noisy`` (N,) as their grades; the present ones become ``true_grade``."""
        table = self.table.copy()
        if "true_grade" not in table:
            table["true_grade"] = table["grade"]
        table["grade"] = np.asarray(noisy, dtype=np.int64)
        return replace(self, table=table)
