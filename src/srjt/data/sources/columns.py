"""Choose the columns of a table: those that the user gives, others by their usual names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from srjt.data.sources.hints import looks_like_features, looks_like_grades
from srjt.errors import SrjtError, suggest

__all__ = ["check_wanted", "choose_columns", "one_column", "plain_name"]

# The more specific name first: if a table has both "grade" and "severity", "grade" is used.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "image": (
        *("image", "imagepath", "path", "filepath", "file", "filename", "imagename", "imagefile"),
        *("imageid", "img", "imgpath", "imgname", "idcode", "name", "id"),
    ),
    "grade": (
        *("grade", "label", "level", "severity", "score", "class", "stage", "diagnosis"),
        *("mayo", "mayoscore", "mes", "retinopathygrade", "target"),
    ),
    "patient": (
        *("patient", "patientid", "patientname", "subject", "subjectid", "participant", "participantid"),
        *("person", "personid", "case", "caseid", "pid"),
    ),
    # not "adjudicated" or "consensus": such grades exist for the difficult images, and a random sample is needed
    "verified_grade": ("verifiedgrade", "verifiedlabel", "gradeverified", "labelverified"),
    "true_grade": ("truegrade", "truelabel", "cleangrade", "cleanlabel"),
    "split": ("split", "officialsplit", "subset", "partition", "set", "usage"),
}
REQUIRED = ("image", "grade")
SHOWN = 12  # columns that an error lists
HINTS: dict[str, Callable[..., str]] = {"image": looks_like_features, "grade": looks_like_grades}


def check_wanted(columns: Sequence[str], table: pd.DataFrame, *, known: Sequence[str]) -> None:
    """Raise an error if ``table``, read from sources with the columns ``known``, lacks one of the wanted columns.

    Nothing is known of images that no table lists: whoever needs the column says so.
    """
    missing = [name for name in columns if name not in table and f"{name}_source" not in table]
    if missing and known:
        raise suggest("column (of the data to predict)", missing[0], known)


def choose_columns(
    columns: Sequence[str],
    given: Mapping[str, str | None],
    *,
    source: str,
    required: Sequence[str] = REQUIRED,
    synonyms: Mapping[str, Sequence[str]] = SYNONYMS,
    frame: pd.DataFrame | None = None,
) -> tuple[dict[str, str], list[str]]:
    """The column of each role, and a note on each choice.

    ``given`` maps roles (image, grade, patient, verified_grade, true_grade, split) to the columns that the user gave.
    synonyms: the usual names of each role, in plain small letters. frame: the table, for a hint where a required
    column is missing.
    """
    chosen: dict[str, str] = {}
    notes = []
    for role, column in given.items():
        if column is not None:
            if column not in columns:
                raise suggest(f"column (for the {role.replace('_', ' ')}, in {source})", column, columns)
            chosen[role] = column
    plain = {plain_name(column): column for column in reversed(columns)}
    for role, names in synonyms.items():
        if role in chosen:
            notes.append(f"{role.replace('_', ' ')}: column {chosen[role]!r} (as given)")
            continue
        free = [plain[name] for name in names if name in plain and plain[name] not in chosen.values()]
        if free:
            chosen[role] = free[0]
            unused = [repr(column) for column in free[1:] if column.casefold() != "id"]
            others = f", not {', '.join(unused)}" if unused else ""
            notes.append(f"{role.replace('_', ' ')}: column {free[0]!r} (by its name{others})")
        elif role in required:
            found, _ = choose_columns(columns, given, source=source, required=(), synonyms=synonyms)
            hint = "" if frame is None else HINTS[role](frame, taken=tuple(found.values()))
            more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
            shown = ", ".join(columns[:SHOWN]) + more
            raise SrjtError(
                f"No column of {source} looks like the {role}: give its name with `{role}_column`. Columns: "
                f"{shown}.{hint}"
            )
    return chosen, notes


def one_column(column: str | Sequence[str] | None) -> str | None:
    """A column that may have been given as a list of one."""
    return column if column is None or isinstance(column, str) else next(iter(column), None)


def plain_name(column: str) -> str:
    """A name in small letters, without spaces and punctuation: "Patient-ID" is patientid."""
    return re.sub(r"[\W_]+", "", column.casefold())
