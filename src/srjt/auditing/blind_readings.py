"""Images that are graded without seeing their labels: a random sample of an audit, and a worklist
of further readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.auditing.review_log import Answer, Decisions, Purpose, log_exists
from srjt.data.grades import positions
from srjt.data.manifest import Manifest, neutralise_formula
from srjt.data.names import join_all_names
from srjt.data.options import without_none
from srjt.data.sources.readers_folder import (
    UNREAD,
    ReadersFolder,
    read_readers_file,
    read_readers_folder,
)
from srjt.data.sources.readings import ReadingsTable, read_readings
from srjt.data.sources.table import load_table
from srjt.errors import Option, SrjtError
from srjt.readers.next_readings import NEW_READER

# A random sample of the audited labels, and the grades that reviewers give it without seeing the
# label.

SEED = 0  # the same sample for every reviewer of an audit


def draw_sample(audit: AuditFolder, size: int) -> list[int]:
    """The lines of a simple random sample, in random order: every set of labels is equally likely.

    Labels are drawn, not patients, so that the share of wrong ones is unbiased. A larger sample
    begins with the smaller one, and the sample depends on the ids alone: a repeated audit has the
    same.
    """
    names = sorted(audit.ids)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(names))
    return [audit.line_of[names[place]] for place in order[:size]]


def read_answers(folder: Path, purpose: Purpose) -> list[Answer]:
    """The answers in the log of a folder; none if there is no log."""
    path = folder / "decisions.sqlite"
    if not log_exists(path):
        return []
    with closing(Decisions(path)) as decisions:
        return decisions.answers(purpose)


def read_verified_grades(folder: Path) -> dict[str, str]:
    """The verified grade of each sample, by id; the last answer counts. Empty if nothing was
    verified."""
    return without_none({answer.id: answer.grade for answer in read_answers(folder, "verify")})


def with_verified_grades(manifest: Manifest, verified: dict[str, str]) -> Manifest:
    """The samples with these verified grades, beside those that the manifest has already."""
    if not verified:
        return manifest
    earlier = manifest.verified_labels
    grades = np.full(len(manifest), -1, dtype=np.int64) if earlier is None else earlier
    code_of = positions(manifest.grades)
    for row, name in enumerate(manifest.ids):
        grades[row] = code_of.get(verified.get(name, ""), grades[row])
    return replace(manifest, table=manifest.table.assign(verified_grade=grades))


# A worklist of ``srjt readers``: the images that each reviewer reads once more, and their readings
# as a table.


def worklist_lines(path: Path, source: AuditFolder | ReadersFolder, *, reviewer: str) -> list[int]:
    """The lines of the images that this reviewer is to read, in the order of the list, and nobody
    else's.

    What is for a new reader is for any reviewer who is not among the earlier readers.
    """
    frame = load_table(path).frame
    named_by = [name for name in ("item", "image", "id") if name in frame]
    if not named_by or "reader" not in frame:
        raise SrjtError(
            f"{path} has no columns image and reader, so it is no worklist: srjt readers TABLE"
            " --next 50 --out DIR writes one.",
            code="wrong_file",
            option="worklist",
        )
    rows = frame[frame["reader"].isin([reviewer, neutralise_formula(reviewer)])]
    if not len(rows) and reviewer not in (source.readers or ()):
        rows = frame[frame["reader"] == NEW_READER]
    if not len(rows):
        names = ", ".join(sorted(set(frame["reader"]))[:8])
        raise SrjtError(
            f"{path} has nothing for the reviewer {reviewer!r}; it is for {names}. Give the name"
            " with ",
            Option("reviewer"),
            ".",
            code="no_match",
        )
    wanted = list(dict.fromkeys(rows[named_by[0]]))
    joined = join_all_names(wanted, source.ids, wanted_in=str(path), known_in=str(source.folder))
    lines: list[int] = joined.tolist()
    if not any(source.images[row] for row in lines):
        raise SrjtError(
            f"{source.folder} has no image files to show: run srjt readers"
            f" {source.folder} --images DIR, the folder of the images.",
            code="missing_file",
            option="images",
        )
    return lines


def hidden_answers(
    path: Path, source: AuditFolder | ReadersFolder, *, reviewer: str
) -> frozenset[tuple[str, str]]:
    """(id, at) of the answers of this reviewer that a worklist asks for once more: they are among
    the readings already, and a second reading must not show the first."""
    worklist = load_table(path).frame
    made = _combined(source)
    if "readings" not in worklist or made.empty:
        return frozenset()
    mine = {reviewer, neutralise_formula(reviewer)}
    made = made[made["reader"].isin(mine)]
    counts = made["item"].value_counts()
    worklist = worklist[worklist["reader"].isin(mine)]
    named_by = next(name for name in ("item", "image", "id") if name in worklist)
    before = worklist.set_index(named_by)["readings"].astype(int)
    again = {name for name, count in before.items() if counts.get(name, 0) <= count}
    dated = made[made["item"].isin(again) & (made["at"] != "")]
    return frozenset(dated[["item", "at"]].itertuples(index=False, name=None))


def _combined(source: AuditFolder | ReadersFolder) -> pd.DataFrame:
    """item, reader and at ("" if it is not known) of the readings of a folder."""
    columns = ["item", "reader", "at"]
    table = _earlier(source)
    if table is None:
        return pd.DataFrame(columns=columns, dtype=str)
    noun = "item" if "item" in table else "image"
    dates = table["date"] if "date" in table else pd.Series("", index=table.index)
    return table[[noun, "reader"]].set_axis(columns[:2], axis=1).assign(at=dates)


def _earlier(source: AuditFolder | ReadersFolder) -> pd.DataFrame | None:
    """The readings of a folder; None if there are none."""
    file = source.folder / "readings.csv"
    if not isinstance(source, ReadersFolder) or not file.exists():
        return None
    if source.unread == len(source.ids):  # the study has begun
        return None
    return load_table(file).frame


def new_readings(
    source: AuditFolder | ReadersFolder, answers: list[Answer]
) -> tuple[pd.DataFrame, list[str]]:
    """The earlier readings, if the folder has them, followed by the new ones: a long table; and
    notes.

    An answer without a grade ("cannot tell") is no reading, and one that is among the earlier
    readings is not counted twice.
    """
    rows = []
    left_out = 0
    combined = set(_combined(source).itertuples(index=False, name=None))
    for answer in answers:
        named = (answer.id, neutralise_formula(answer.reviewer), answer.second)
        if answer.grade is None or named in combined:
            continue
        if answer.id in source.line_of and answer.grade in source.grades:
            reader = neutralise_formula(answer.reviewer)
            rows.append((answer.id, reader, neutralise_formula(answer.grade), answer.at))
        else:
            left_out += 1
    notes = []
    if left_out:
        notes.append(f"Readings left out: {left_out:,}; an image or a grade is not known here.")
    columns = ["image", "reader", "grade", "date"]
    table = _earlier(source)
    by_item = pd.DataFrame()
    if table is not None:
        columns[0] = "item" if "item" in table else "image"
        by_item = table.drop_duplicates(columns[0]).set_index(columns[0])
    new = pd.DataFrame(rows, columns=columns, dtype=str)
    item = columns[0]
    if isinstance(source, ReadersFolder) and source.unread:
        unread = load_table(source.folder / UNREAD).frame.drop(columns="image")
        by_item = pd.concat([by_item, unread.set_index("id")])
    about_item = [name for name in ("image", "patient", "reference") if name in by_item]
    if about_item:
        new = new.join(by_item[about_item], on=item)
    if table is None:
        return new.fillna(""), notes
    kept = table.drop(columns=["consensus", "probability"], errors="ignore")  # computed again
    return pd.concat([kept, new], ignore_index=True).fillna(""), notes


def _left_to_read(folder: Path, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the worklist of a study that wait for their reader. table: all readings."""
    path = folder / "worklist.csv"
    if not path.exists():
        return pd.DataFrame({"reader": []}, dtype=str)
    worklist = load_table(path).frame
    item = "item" if "item" in table else "image"
    made = table.groupby([item, "reader"]).size().to_dict()
    unclear = {
        (answer.id, neutralise_formula(answer.reviewer))
        for answer in read_answers(folder, "read")
        if answer.grade is None
    }
    before = worklist.get("readings", pd.Series("0", index=worklist.index)).astype(int)
    named_by = next(name for name in ("item", "image", "id") if name in worklist)
    waits = []
    for item, reader, count in zip(worklist[named_by], worklist["reader"], before, strict=True):
        waits.append(made.get((item, reader), 0) <= count and (item, reader) not in unclear)
    return worklist[waits]


def _images_in(directory: Path, names: list[str]) -> dict[str, str]:
    """The files of these images that are in a directory, by id; an error if none is."""
    files = {name: directory.absolute() / name for name in names}
    found = {name: str(file) for name, file in files.items() if file.is_file()}
    if not found:
        raise SrjtError(
            f"{directory} has none of the {len(names):,} images, such as {names[0]}.",
            code="no_match",
            option="images",
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Study:
    """The folder of a study, with what was read on the page of the review since it was written."""

    loaded: ReadingsTable
    images: dict[str, str]  # the file of each image, by id
    unread: pd.DataFrame  # id, image, …: those that nobody has read yet, in the order to be read
    left: pd.DataFrame  # rows of the worklist that wait for their reader
    source: str  # what the study began with


def continued_study(folder: Path, *, given: Mapping[str, Any]) -> Study:
    """The readings so far.

    given: options for reading a table, which have no effect here; but ``images`` is where the
    images are now.
    """
    if others := [name for name in given if name != "images"]:
        raise SrjtError(
            Option(others[0]),
            f" is for a table of readings, and {folder} is the folder of a study.",
            code="option_without_effect",
        )
    about = read_readers_file(folder)
    source = read_readers_folder(folder)
    table, _ = new_readings(source, read_answers(folder, "read"))
    if table.empty:
        raise SrjtError(
            f"Nobody has read an image of {folder} yet. Start with: srjt review {folder} --reviewer"
            f" {about.readers[0]}.",
            code="not_finished",
        )
    if "date" in table and not (table["date"] != "").any():
        table = table.drop(columns="date")
    loaded = read_readings(table, grades=about.grades)
    unclear = sum(answer.grade is None for answer in read_answers(folder, "read"))
    if unclear:
        loaded = replace(loaded, notes=(*loaded.notes, f"answers ‘cannot tell’: {unclear:,}"))
    unread = pd.DataFrame({"id": [], "image": []}, dtype=str)
    if source.unread:
        listed = load_table(folder / UNREAD).frame
        unread = listed[~listed["id"].isin(loaded.readings.items)]
        # in random order, so that what is read next is no part of the alphabet
        unread = unread.sample(frac=1.0, random_state=SEED, ignore_index=True)
    images = dict(zip(source.ids, source.images, strict=True))
    if "images" in given:
        images |= _images_in(Path(given["images"]), source.ids)
        unread = unread.assign(image=[images[name] for name in unread["id"]])
    return Study(
        loaded=loaded,
        images=images,
        unread=unread,
        left=_left_to_read(folder, table),
        source=about.source,
    )
