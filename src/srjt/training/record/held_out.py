"""Predictions for the samples that a run did not learn from: its validation and test sides, in ``held_out.csv``.

What is fitted after training (recalibration, thresholds, ranges of grades) is derived from the validation side. The
file keeps the facts, not what follows from them, so that a run can be decoded anew.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.manifest import Manifest
from srjt.data.sources.table import CANONICAL
from srjt.errors import SrjtError
from srjt.files import write_atomically

__all__ = ["FILE", "HeldOut", "held_out_side", "read_held_out", "write_held_out"]

FILE = "held_out.csv"

# Names of the file's own columns; such a name in the data gets one more _source.
OWN = re.compile(r"(side|group|p\d+_\d+)(_source)*")

Ints = npt.NDArray[np.int64]


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
    patients, groups : list of str or None
        (N,) the patient of each sample; its group, which is never split: the unit of every resampling.
    images : list of str or None
        (N,) the absolute path of each image file; None for samples in memory.
    columns : dict of str to list of str
        (N,) texts of each further column that training was told to keep (``keep_columns``): no others, since a table
        may say who somebody is.
    """

    ids: list[str]
    probabilities: npt.NDArray[np.float32]
    labels: Ints
    true_labels: Ints | None = None
    verified_labels: Ints | None = None
    patients: list[str] | None = None
    groups: list[str] | None = None
    images: list[str] | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def table(self) -> pd.DataFrame:
        """What is known beside the grades: ``id``, ``patient`` if known, further columns by their names in the data."""
        patients = {} if self.patients is None else {"patient": self.patients}
        columns = {_name_in_data(name): values for name, values in self.columns.items()}
        return pd.DataFrame({"id": self.ids, **patients, **columns}, dtype=object)


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
    return HeldOut(
        ids=samples.ids,
        probabilities=probabilities,
        labels=samples.labels,
        true_labels=samples.true_labels,
        verified_labels=samples.verified_labels,
        patients=samples.patients,
        groups=samples.groups,
        images=[str(path.absolute()) for path in samples.paths] if from_files else None,
        columns=_kept_columns(samples.table, columns),
    )


def _kept_columns(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, list[str]]:
    """Those that were asked for and are not kept anyway; a name that the file uses itself becomes another."""
    found: dict[str, list[str]] = {}
    for column in (f"{name}_source" if f"{name}_source" in table else name for name in columns):
        if column not in CANONICAL:
            name = f"{column}_source" if OWN.fullmatch(column) else column
            found[name] = [as_text(value) for value in table[column]]
    return found


def _name_in_data(name: str) -> str:
    return name.removesuffix("_source") if OWN.fullmatch(name) else name


def _is_own(name: str) -> bool:
    """Whether the file has a column of this name itself."""
    return name in CANONICAL or (OWN.fullmatch(name) is not None and not name.endswith("_source"))


def write_held_out(folder: Path, sides: Mapping[str, HeldOut]) -> None:
    """Write the sides of a run: one row per sample, ``p1_0`` the first network's probability of the first grade."""
    tables = [pd.DataFrame({"side": name, **_columns(side)}) for name, side in sides.items() if len(side)]
    if tables:
        # Nine digits keep every bit of a float32. Every text is quoted: pandas does not quote one with a lone \\r.
        form: dict[str, Any] = {
            "float_format": "%.9g",
            "quoting": csv.QUOTE_NONNUMERIC,
            "lineterminator": "\n",
        }
        content = pd.concat(tables).to_csv(index=False, **form)
        write_atomically(folder / FILE, content.encode("utf-8", "surrogateescape"), follow_links=False)


def _columns(side: HeldOut) -> dict[str, object]:
    names = {"patient": side.patients, "group": side.groups, "image": side.images}
    optional = {
        **{
            name: None if column is None else pd.Series(column, dtype=object)
            for name, column in names.items()
        },
        "true_grade": side.true_labels,
        "verified_grade": side.verified_labels,
    }
    networks, _, classes = side.probabilities.shape
    return {
        "id": pd.Series(side.ids, dtype=object),  # a path may contain bytes that are no text
        "grade": side.labels,
        **{name: values for name, values in optional.items() if values is not None},
        **{name: pd.Series(values, dtype=object) for name, values in side.columns.items()},
        **{f"p{k + 1}_{c}": side.probabilities[k, :, c] for k in range(networks) for c in range(classes)},
    }


def read_held_out(folder: Path, *, networks: int, classes: int) -> dict[str, HeldOut]:
    """The sides of a run by name; empty if it had none, or was trained before they were kept."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        if not rows:  # an empty file is never written
            raise ValueError("no samples")
        return {
            name: _side([row for row in rows if row["side"] == name], networks=networks, classes=classes)
            for name in dict.fromkeys(row["side"] for row in rows)
        }
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({type(problem).__name__}: {problem})."
        ) from None


def _side(rows: list[dict[str, str]], *, networks: int, classes: int) -> HeldOut:
    def texts(name: str) -> list[str] | None:
        found = [row[name] for row in rows if row.get(name)]
        return found if len(found) == len(rows) else None

    def grades(name: str) -> Ints | None:
        found = texts(name)
        if found is None:
            return None
        values = np.array([int(float(cell)) for cell in found], dtype=np.int64)
        if not ((values >= -1) & (values < classes)).all():
            raise ValueError(f"a {name} outside 0 … {classes - 1}")
        return values

    labels = grades("grade")
    if labels is None:
        raise ValueError("no grades")
    cells = [[[float(row[f"p{k + 1}_{c}"]) for row in rows] for c in range(classes)] for k in range(networks)]
    probabilities = np.array(cells, dtype=np.float32).transpose(0, 2, 1)
    if not (np.isfinite(probabilities) & (probabilities >= 0.0)).all():
        raise ValueError("probabilities that are negative or not numbers")
    further = {name: [row[name] for row in rows] for name in rows[0] if name and not _is_own(name)}
    return HeldOut(
        ids=[row["id"] for row in rows],
        probabilities=np.ascontiguousarray(probabilities),
        labels=labels,
        true_labels=grades("true_grade"),
        verified_labels=grades("verified_grade"),
        patients=texts("patient"),
        groups=texts("group"),
        images=texts("image"),
        columns={
            name: values for name, values in further.items() if any(values)
        },  # those of another side are empty
    )
