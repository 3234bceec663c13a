"""Find the columns of a table with several readers: one row per reading (long), or one column per reader (wide)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from srjt.data.grades import MISSING
from srjt.data.sources.columns import SYNONYMS, choose_columns
from srjt.data.sources.hints import looks_like_grades, with_common_values
from srjt.errors import SrjtError, suggest

__all__ = [
    "ReadingColumns",
    "has_grade_column",
    "reading_columns",
    "refuse_columns_of_readers",
    "wide_columns",
]

READER_WORDS = (
    *("reader", "grader", "annotator", "rater", "observer", "doctor", "physician", "clinician", "expert"),
    *("radiologist", "pathologist", "labeller", "labeler", "reviewer", "coder", "worker"),
)
READING_SYNONYMS: dict[str, tuple[str, ...]] = {
    # before the image: one image may have several items, such as lesions or regions
    "item": ("item", "itemid", "sample", "sampleid", "lesion", "lesionid", "nodule", "noduleid"),
    "image": SYNONYMS["image"],
    "grade": SYNONYMS["grade"],
    "reader": tuple(word + end for word in READER_WORDS for end in ("", "id", "name")),
    "patient": SYNONYMS["patient"],
    "reference": (
        *(
            "reference",
            "referencegrade",
            "referencestandard",
            "adjudicated",
            "adjudicatedgrade",
            "adjudication",
        ),
        *("histology", "histologygrade", "biopsy", "goldstandard", "goldgrade", "groundtruth"),
    ),
    "date": ("date", "readingdate", "readdate", "readat", "gradedat", "reviewedat", "datetime", "timestamp"),
}
# "grade_date" is no reader's grade
_NO_READER = frozenset(
    (
        *("true", "clean", "noisy", "given", "verified", "reference", "adjudicated", "histology", "gold", "published"),
        *("consensus", "final", "majority", "mean", "median", "suggested", "predicted", "original", "source", "old"),
        *("new", "name", "names", "text", "id", "date", "time", "count", "comment", "reader", "certainty"),
    )
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadingColumns:
    """The columns that hold the readings; None where there is no such column."""

    item: str | None  # None: each row of a wide table is an item
    noun: str  # what an item is called: "image", or "item" if an image has several
    reader: str | None  # None: a wide table, or readers are not known
    grades: dict[str, str]  # wide: reader → column; long: {"": column}
    wide: bool
    image: str | None
    patient: str | None
    reference: str | None
    date: str | None
    notes: tuple[str, ...]

    @property
    def group(self) -> str | None:
        """The column whose values intervals resample: patients, or images that have several items."""
        return self.patient or (self.image if self.image != self.item else None)


def reading_columns(
    frame: pd.DataFrame,
    *,
    source: str,
    image_column: str | None = None,
    grade_column: str | Sequence[str] | None = None,
    reader_column: str | None = None,
    patient_column: str | None = None,
    reference_column: str | None = None,
    date_column: str | None = None,
    images: bool = False,
) -> ReadingColumns:
    """Choose the columns of a table of readings: those that the user gives, others by their usual names.

    grade_column: a name or a pattern such as ``"grade_*"``, or several of them: a wide table. images: an item is an
    image, also if the table has a column of items.
    """
    columns = [str(column) for column in frame.columns]
    patterns = [grade_column] if isinstance(grade_column, str) else list(grade_column or ())
    matched = _matching(columns, patterns, source=source)
    given = {
        "image": image_column,
        "grade": matched[0] if len(matched) == 1 else None,
        "reader": reader_column,
        "patient": patient_column,
        "reference": reference_column,
        "date": date_column,
    }
    known = {role: names for role, names in READING_SYNONYMS.items() if role != "item" or not images}
    if image_column is not None:
        known.pop("item", None)
    several = set(matched) if len(matched) > 1 else set()
    free = [column for column in columns if column not in several]
    chosen, notes = choose_columns(free, given, source=source, required=(), synonyms=known)
    wide = matched if len(matched) > 1 else []
    if not matched and "reader" not in chosen:
        wide = wide_columns(frame)
    if not wide and "grade" not in chosen:
        raise SrjtError(
            f"No column of {source} looks like the grade: give its name with `grade_column`, or the columns of all "
            f"readers. Columns: {', '.join(columns)}."
            f"{looks_like_grades(frame, taken=tuple(chosen.values()), combine=False)}"
        )
    item = chosen.get("item") or chosen.get("image")
    if item is None and not wide:
        raise SrjtError(
            f"No column of {source} looks like the image: give its name with `image_column`. "
            f"Columns: {', '.join(columns)}."
        )
    notes = [note for note in notes if not note.startswith("reference:")]  # said with their number
    if wide:
        notes = [note for note in notes if not note.startswith(("grade:", "reader:", "date:"))]
    return ReadingColumns(
        item=item,
        noun="item" if chosen.get("item") else "image",
        reader=None if wide else chosen.get("reader"),
        grades=_reader_names(wide) if wide else {"": chosen["grade"]},
        wide=bool(wide),
        image=chosen.get("image"),
        patient=chosen.get("patient"),
        reference=chosen.get("reference"),
        date=None if wide else chosen.get("date"),
        notes=tuple(notes),
    )


def wide_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that look like the grades of two or more readers, such as grade_anna and grade_bo; [] if none do."""
    groups: dict[str, list[str]] = {}
    numbered = re.compile(rf"(?:{'|'.join(READER_WORDS)}|r)[\W_]*(?:\d+|[a-z])")
    for column in map(str, frame.columns):
        words = [word for word in re.split(r"[\W_]+", column.casefold()) if word]
        if numbered.fullmatch(column.casefold()):
            groups.setdefault("reader", []).append(column)
        elif len(words) > 1 and words[0] in SYNONYMS["grade"] and not _NO_READER & set(words[1:]):
            groups.setdefault(f"{words[0]} …", []).append(column)
        elif len(words) > 1 and words[-1] in SYNONYMS["grade"] and not _NO_READER & set(words[:-1]):
            groups.setdefault(f"… {words[-1]}", []).append(column)
    found = [_same_scale(frame, columns) for columns in groups.values()]
    widest = max(found, key=len, default=[])
    return widest if len(widest) > 1 else []


def has_grade_column(frame: pd.DataFrame) -> bool:
    """Whether a column has a usual name of a grade, without that of a reader."""
    columns = [str(column) for column in frame.columns]
    return bool(choose_columns(columns, {}, source="", required=(), synonyms={"grade": SYNONYMS["grade"]})[0])


def refuse_columns_of_readers(frame: pd.DataFrame, *, source: str) -> None:
    """An error for a table without a column of grades but with one for each of several readers."""
    readers = [] if has_grade_column(frame) else wide_columns(frame)
    if readers:
        shown = ", ".join(readers[:6]) + (", …" if len(readers) > 6 else "")
        raise SrjtError(
            f"{source} has the grades of {len(readers)} readers ({shown}): combine them with "
            "`several_readings='consensus'`, compare them with srjt readers, or choose one with `grade_column`."
        )


def _same_scale(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns that have a value in common with another one: "score_site" is no reader's grade."""
    return with_common_values(
        {
            column: {cell for cell in set(frame[column]) if cell.casefold() not in MISSING}
            for column in columns
        }
    )


def _matching(columns: Sequence[str], patterns: Sequence[str], *, source: str) -> list[str]:
    """The columns with these names, or that match these patterns, in the order of the table."""
    found: set[str] = set()
    for pattern in patterns:
        matches = [pattern] if pattern in columns else fnmatch.filter(columns, pattern)
        if not matches:
            raise suggest(f"column (for the grade, in {source})", pattern, columns)
        found |= set(matches)
    return [column for column in columns if column in found]


def _reader_names(columns: Sequence[str]) -> dict[str, str]:
    """{"anna": "grade_anna", "bo": "grade_bo"}: the names without the words that all columns have in common."""
    parts = [re.split(r"([\W_]+)", column) for column in columns]
    start, end = _common(parts), _common([words[::-1] for words in parts])
    names = ["".join(words[start : len(words) - end]) for words in parts]
    usable = all(names) and len(set(names)) == len(names)
    return dict(zip(names if usable else columns, columns, strict=True))


def _common(parts: Sequence[Sequence[str]]) -> int:
    """How many of the first words are the same in all names."""
    same = (len(set(words)) == 1 for words in zip(*parts, strict=False))
    return next((count for count, equal in enumerate(same) if not equal), 0)
