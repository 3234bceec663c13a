"""Predictions for the samples that a run did not learn from: its validation and test sides, in
``held_out.csv``.

What is fitted after training (recalibration, thresholds, ranges of grades) is derived from the
validation side. The file keeps the facts, not what follows from them, so that a run can be decoded
anew.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import files
from srjt.data.grades import as_text
from srjt.data.manifest import Manifest
from srjt.data.sources.table import CANONICAL
from srjt.errors import SrjtError
from srjt.ordinal.metrics import Ints

FILE = "held_out.csv"

KEPT = "column:"  # before the name of a column of the data

# column of the file → attribute of ``HeldOut``
COLUMNS = {
    "id": "ids",
    "grade": "labels",
    "patient": "patients",
    "group": "groups",
    "image": "images",
    "true_grade": "true_labels",
    "verified_grade": "verified_labels",
    "verified_probability": "verified_probability",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """The N samples of one side, with the predictions of K networks for C grades.

    Attributes
    ----------
    ids : list of str
        (N,) the name of each sample.
    probabilities : ndarray of float32, shape (K, N, C)
        Each network's probabilities, of the networks that the run has kept.
    labels : ndarray of int64, shape (N,)
        Given grades, which may be wrong.
    true_labels, verified_labels : ndarray of int64, shape (N,), or None
        True grades where the noise was injected; verified grades, −1 where there is none.
    verified_probability : ndarray of float64, shape (N,), or None
        With which each verified sample was drawn, 0 for the others; None: all were drawn alike.
    patients, groups : list of str or None
        (N,) the patient of each sample; its group, which is never split: the unit of every
        resampling.
    images : list of str or None
        (N,) the absolute path of each image file; None for samples in memory.
    columns : dict of str to list of str
        (N,) texts of each further column that training was told to keep (``keep_columns``): no
        others, since a table may say who somebody is.
    """

    ids: list[str]
    probabilities: npt.NDArray[np.float32]
    labels: Ints
    true_labels: Ints | None = None
    verified_labels: Ints | None = None
    verified_probability: npt.NDArray[np.float64] | None = None
    patients: list[str] | None = None
    groups: list[str] | None = None
    images: list[str] | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def random_verified(self) -> Ints | None:
        """(N,) verified grades if all samples were drawn alike, else None: for what cannot be
        weighted."""
        if self.verified_probability is None:
            return self.verified_labels
        return None

    @property
    def table(self) -> pd.DataFrame:
        """What is known beside the grades: ``id``, ``patient`` if known, further columns by their
        names in the data."""
        patients = {} if self.patients is None else {"patient": self.patients}
        return pd.DataFrame({"id": self.ids, **patients, **self.columns}, dtype=object)


def held_out_side(
    samples: Manifest,
    probabilities: npt.NDArray[np.float32],
    *,
    from_files: bool,
    columns: Sequence[str] = (),
) -> HeldOut:
    """The samples of a side with their predictions, (K, N, C).

    from_files: whether they are image files. columns: further columns to keep.
    """
    kept = {}
    for name in columns:
        # a column with a name of ours has another name in the table
        source = f"{name}_source" if f"{name}_source" in samples.table else name
        if source not in CANONICAL:
            kept[source] = [as_text(cell) for cell in samples.table[source]]
    return HeldOut(
        probabilities=probabilities,
        images=[str(path.absolute()) for path in samples.paths] if from_files else None,
        columns=kept,
        **{name: getattr(samples, name) for name in COLUMNS.values() if name != "images"},
    )


def write_held_out(folder: Path, sides: Mapping[str, HeldOut]) -> None:
    """Write the sides of a run: one row per sample, ``p1_0`` the first network's probability of the
    first grade."""
    tables = []
    for name, side in sides.items():
        columns = {column: getattr(side, attribute) for column, attribute in COLUMNS.items()}
        columns |= {f"{KEPT}{column}": texts for column, texts in side.columns.items()}
        # as objects: a path may contain bytes that are no text
        known = {column: values for column, values in columns.items() if values is not None}
        table = pd.DataFrame({"side": name, **known}, dtype=object)
        networks, _, classes = side.probabilities.shape
        cells = side.probabilities.transpose(1, 0, 2).reshape(len(side), -1)
        tables.append(
            table.join(pd.DataFrame(cells, columns=_probability_columns(networks, classes)))
        )
    if tables:
        # Nine digits keep every bit of a float32. Every text is quoted: pandas does not quote one
        # with a lone \\r.
        form: dict[str, Any] = {"float_format": "%.9g", "quoting": csv.QUOTE_NONNUMERIC}
        content = pd.concat(tables).to_csv(index=False, lineterminator="\n", **form)
        files.write_atomically(folder / FILE, content.encode("utf-8", "surrogateescape"))


def _probability_columns(networks: int, classes: int) -> list[str]:
    return [f"p{k + 1}_{c}" for k in range(networks) for c in range(classes)]


def read_held_out(folder: Path, *, networks: int, classes: int) -> dict[str, HeldOut]:
    """The sides of a run by name; empty if it had none."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        table = pd.read_csv(
            path, dtype=object, keep_default_na=False, encoding_errors="surrogateescape"
        )
        sides = {}
        for name, rows in table.groupby("side", sort=False):
            sides[str(name)] = _side(rows, networks=networks, classes=classes)
        return sides
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem!r}).", code="damaged_file"
        ) from None


def _side(rows: pd.DataFrame, *, networks: int, classes: int) -> HeldOut:
    facts: dict[str, Any] = {}
    for column, attribute in COLUMNS.items():
        if column in rows and (rows[column] != "").all():  # else a column of another side
            facts[attribute] = rows[column].tolist()
            if column.endswith("grade"):
                grades = facts[attribute] = np.array(
                    [int(float(cell)) for cell in rows[column]], np.int64
                )
                if not ((grades >= -1) & (grades < classes)).all():
                    raise ValueError(f"a {column} outside 0 … {classes - 1}")
            elif column == "verified_probability":
                facts[attribute] = rows[column].to_numpy().astype(np.float64)
    cells = rows[_probability_columns(networks, classes)].to_numpy().astype(np.float64)
    if not (np.isfinite(cells) & (cells >= 0.0)).all():
        raise ValueError("probabilities that are negative or not numbers")
    by_network = cells.reshape(len(rows), networks, classes).transpose(1, 0, 2)
    kept = {}
    for name, texts in rows.items():
        if str(name).startswith(KEPT) and (texts != "").any():
            kept[str(name).removeprefix(KEPT)] = texts.tolist()
    return HeldOut(
        probabilities=np.ascontiguousarray(by_network, dtype=np.float32), columns=kept, **facts
    )
