"""The last step of every source: turn rows of text into a manifest, and unusable rows into problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING, grade_values, refuse_too_many
from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.errors import SrjtError
from srjt.notebook_html import html_block, html_table, html_text
from srjt.readers import Readings

__all__ = ["GRADED", "SPLIT_NAMES", "Reading", "assemble"]

# Common names of the sides of a split.
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}

GRADED = ("grade", "true_grade", "verified_grade")  # columns of grades


PROBLEMS_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of reading a source.

    Parameters
    ----------
    manifest : Manifest
        The usable samples.
    problems : tuple of Problem
        Rows that were left out, and warnings.
    kind : str
        The kind of source, such as ``"table"``.
    notes : tuple of str
        How the source was understood, for people.
    readings : Readings or None
        Every single reading, if the grades are the consensus of several readers. Its items are ids of samples.

    Examples
    --------
    >>> import srjt
    >>> reading = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    >>> reading.kind, len(reading.manifest), reading.problems[0].kind
    ('arrays', 2, 'missing-grade')
    """

    manifest: Manifest
    problems: tuple[Problem, ...]
    kind: str
    notes: tuple[str, ...]
    readings: Readings | None = None

    def __repr__(self) -> str:
        count = len(self.problems)
        problems = f"; {count:,} problem{'s' * (count != 1)}" if count else ""
        return f"<Reading ({self.kind}): {self.manifest.describe()}{problems}>"

    def _repr_html_(self) -> str:
        listed = [(problem.kind, problem.where, problem.detail) for problem in self.problems[:PROBLEMS_SHOWN]]
        more = len(self.problems) - len(listed)
        return self.manifest._repr_html_() + html_block(
            "",
            *map(html_text, self.notes),
            html_table(("problem", "where", "what"), listed, text_columns=3) if listed else "",
            html_text(f"… and {more:,} more problems" if more else ""),
        )


def assemble(
    rows: pd.DataFrame,
    *,
    kind: str,
    root: Path,
    grades: Sequence[str] | None,
    lines: Sequence[str],
    notes: Sequence[str],
    problems: Sequence[Problem] = (),
    arrays: npt.NDArray[np.generic] | None = None,
) -> Reading:
    """Check ``rows``: id, image and grade, optionally patient, true_grade, verified_grade, split and other columns.

    All cells are text. ``lines`` (N,) are the positions of the rows in the source, for messages.
    """
    if not len(rows):
        raise SrjtError(f"The source ({kind}) has no samples.")
    found = list(problems)
    keep = np.ones(len(rows), dtype=bool)
    table = rows.reset_index(drop=True)
    names = table["id"].tolist()

    truths = table["true_grade"].tolist() if "true_grade" in table else []
    _refuse_incomplete_true_grades(truths)
    columns = [name for name in GRADED if name in table]
    # All columns at once: a grade may occur in only one of them.
    grading = grade_values([value for name in columns for value in table[name]], names=grades)
    if grades is None:
        refuse_too_many(grading.names, samples=len(table))
    for position, (problem, detail) in grading.invalid.items():
        column, row = columns[position // len(table)], position % len(table)
        if (column, problem) == ("verified_grade", "missing-grade"):
            continue  # few grades are verified
        side = "" if column == "grade" else f"{column.replace('_', ' ')}: "
        found.append(Problem(problem, names[row] or lines[row], f"{lines[row]}: {side}{detail}"))
        keep[row] = False
    for column, codes in zip(columns, grading.codes.reshape(len(columns), -1), strict=True):
        table[column] = codes

    for row in np.flatnonzero((table["image"] == "").to_numpy()).tolist():
        found.append(Problem("missing-image", lines[row], "the row has no image"))
        keep[row] = False
    if "patient" in table:
        unknown = table["patient"].str.casefold().isin(MISSING).to_numpy()
        for row in np.flatnonzero(unknown & keep).tolist():
            found.append(
                Problem("missing-patient", names[row], f"{lines[row]}: treated as a separate patient")
            )
        table.loc[unknown, "patient"] = "unknown: " + table.loc[unknown, "id"]
    if "split" in table:
        table["split"] = table["split"].str.casefold().map(lambda side: SPLIT_NAMES.get(side, ""))
    if arrays is None or arrays.ndim > 2:  # many rows of features may come from one image
        found += _drop_repeated(table, keep, lines, grading.names)

    if not keep.any():
        raise SrjtError(f"None of the {len(table):,} rows can be used; the first: {found[0].detail}.")
    manifest = Manifest(
        table=table[keep].reset_index(drop=True),
        grades=grading.names,
        root=root,
        arrays=arrays if arrays is None or keep.all() else arrays[keep],
    )
    return Reading(
        manifest=manifest,
        problems=tuple(found),
        kind=kind,
        notes=(*notes, f"grades: {grading.note}"),
    )


def _refuse_incomplete_true_grades(truths: list[str]) -> None:
    known = sum(truth.casefold() not in MISSING for truth in truths)
    if known < len(truths):
        raise SrjtError(
            f"The true grade is known in {known:,} of {len(truths):,} rows only: fill it in for all rows, "
            "or leave the column out."
        )


def _drop_repeated(
    table: pd.DataFrame, keep: npt.NDArray[np.bool_], lines: Sequence[str], names: tuple[str, ...]
) -> list[Problem]:
    """Rows with the same image: keep the first if they agree, none if they contradict each other."""
    problems = []
    usable = table[keep]
    repeated = usable[usable["image"].duplicated(keep=False)]
    for _, group in repeated.groupby("image", sort=False):
        rows = group.index.to_numpy()
        where = ", ".join(lines[row] for row in rows)
        first = str(group["id"].iloc[0])
        values = {column: group[column].unique() for column in ("grade", "patient") if column in group}
        if all(len(found) == 1 for found in values.values()):
            keep[rows[1:]] = False
            problems.append(Problem("duplicate-row", first, where))
        else:
            keep[rows] = False
            given = " and ".join(names[grade] for grade in values["grade"])
            detail = (
                f"grades {given}"
                if len(values["grade"]) > 1
                else f"patients {' and '.join(values['patient'])}"
            )
            problems.append(Problem("conflicting-rows", first, f"{where}: {detail}"))
    return problems
