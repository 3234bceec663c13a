"""Images that are graded without seeing their labels: a random sample of an audit, and a worklist
of further readings.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.auditing.review_log import Answer, Decisions, Purpose, log_exists
from srjt.data.grades import positions
from srjt.data.manifest import Manifest, neutralise_formula
from srjt.data.names import join_all_names
from srjt.data.options import without_none
from srjt.data.sources.readers_folder import ReadersFolder
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
            f"{source.folder} has no image files to show: run srjt readers again with --images DIR,"
            " the folder of the images.",
            code="missing_file",
            option="images",
        )
    return lines


def new_readings(
    source: AuditFolder | ReadersFolder, answers: list[Answer]
) -> tuple[pd.DataFrame, list[str]]:
    """The earlier readings, if the folder has them, followed by the new ones: a long table; and
    notes.

    An answer without a grade ("cannot tell") is no reading.
    """
    rows = []
    left_out = 0
    for answer in answers:
        if answer.grade is None:
            continue
        if answer.id in source.line_of and answer.grade in source.grades:
            reader = neutralise_formula(answer.reviewer)
            rows.append((answer.id, reader, neutralise_formula(answer.grade), answer.at))
        else:
            left_out += 1
    notes = []
    if left_out:
        notes.append(f"Readings left out: {left_out:,}; an image or a grade is not known here.")
    earlier = source.folder / "readings.csv"
    columns = ["image", "reader", "grade", "date"]
    if not isinstance(source, ReadersFolder) or not earlier.exists():
        return pd.DataFrame(rows, columns=columns, dtype=str), notes
    table = load_table(earlier).frame
    if "item" in table:
        columns[0] = "item"
    new = pd.DataFrame(rows, columns=columns, dtype=str)
    item = columns[0]
    by_item = table.drop_duplicates(item).set_index(item)
    about_item = [name for name in ("image", "patient", "reference") if name in by_item]
    new = new.join(by_item[about_item], on=item)
    kept = table.drop(columns=["consensus", "probability"], errors="ignore")  # computed again
    return pd.concat([kept, new], ignore_index=True).fillna(""), notes
