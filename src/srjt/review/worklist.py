"""A worklist of ``srjt readers``: the images that each reviewer reads once more, and their readings as a table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.data.formulas import neutralise_formula
from srjt.data.readers_folder import ReadersFolder
from srjt.data.sources.text_table import load
from srjt.errors import SrjtError, count_of
from srjt.readers.worklist import NEW_READER
from srjt.review.decisions import Answer

__all__ = ["new_readings", "worklist_lines"]


def worklist_lines(path: Path, source: AuditFolder | ReadersFolder, *, reviewer: str) -> list[int]:
    """The lines of the images that this reviewer is to read, in the order of the list, and nobody else's.

    What is for a new reader is for any reviewer who is not among the earlier readers.
    """
    frame = load(path).frame
    item = next((name for name in ("item", "image", "id") if name in frame), None)
    if item is None or "reader" not in frame:
        raise SrjtError(
            f"{path} has no columns image and reader, so it is no worklist: srjt readers TABLE --next 50 --worklist "
            "FILE writes one."
        )
    own = frame[frame["reader"].isin([reviewer, neutralise_formula(reviewer)])]
    if not len(own) and reviewer not in (source.readers or ()):
        own = frame[frame["reader"] == NEW_READER]
    if not len(own):
        names = sorted(set(frame["reader"]))
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise SrjtError(
            f"{path} has nothing for the reviewer {reviewer!r}; it is for {shown}. Give the name with --reviewer."
        )
    lines = [source.line_of[name] for name in dict.fromkeys(own[item]) if name in source.line_of]
    if not lines:
        raise SrjtError(f"No image of {path} is in {source.folder}: the worklist belongs to other images.")
    if not any(source.images[line] for line in lines):
        raise SrjtError(
            f"{source.folder} has no image files to show: run srjt readers again with --images DIR, the folder of the "
            "images."
        )
    return lines


def new_readings(
    source: AuditFolder | ReadersFolder, answers: list[Answer]
) -> tuple[pd.DataFrame, list[str]]:
    """The earlier readings, if the folder has them, followed by the new ones: a long table; and notes.

    An answer without a grade ("cannot tell") is no reading.
    """
    given = [answer for answer in answers if answer.grade is not None]
    known = [answer for answer in given if answer.id in source.line_of and answer.grade in source.grades]
    notes = []
    if len(known) < len(given):
        notes.append(
            f"{count_of(len(given) - len(known), 'reading is', 'readings are')} left out: an image or a grade is not "
            "known here."
        )
    earlier = source.folder / "readings.csv"
    table = load(earlier).frame if isinstance(source, ReadersFolder) and earlier.exists() else None
    item = "item" if table is not None and "item" in table else "image"
    rows = pd.DataFrame(
        {
            item: [answer.id for answer in known],
            "reader": [neutralise_formula(answer.reviewer) for answer in known],
            "grade": [neutralise_formula(str(answer.grade)) for answer in known],
            "date": [answer.at for answer in known],
        },
        dtype=str,
    )
    if table is None:
        return rows, notes
    about_item = [name for name in ("image", "patient", "reference") if name in table and name != item]
    by_item = table.drop_duplicates(item).set_index(item)[about_item]
    rows = rows.join(by_item, on=item)
    kept = [
        name for name in table.columns if name not in ("consensus", "probability")
    ]  # they are computed again
    return pd.concat([table[kept], rows], ignore_index=True).fillna(""), notes
