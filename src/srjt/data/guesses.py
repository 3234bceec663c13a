"""Which columns of a table are the images, the grades and the patients, where neither the user nor
their names tell: by words in a name, and by what the cells hold. And grades that are probably
typing errors.

``srjt data inspect`` guesses, shows what it guessed, and keeps it in the reading file; no other
command does.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from srjt.data.grades import MISSING, MOST_GRADES, order_names
from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.options import ReadOptions
from srjt.data.sources.table import (
    Table,
    choose_columns,
    find_images,
    is_split,
    missing_column,
    plain_name,
    relative_name,
)
from srjt.errors import Message, Option, SrjtError, count_of, few, printable

FILES = 0.8  # share of the cells of a column of images that name image files
FOLDERS = 100  # in which images are looked for, at each level
MANY_VALUES = 12  # more different values are no grades, unless the column is named so
RARE = 0.02  # share of the rows that typing errors may be
ALIKE = 0.7  # similarity of two words, one of which may be a misspelling of the other
WORDS = {
    "grade": {
        "grade",
        "grading",
        "label",
        "level",
        "severity",
        "score",
        "stage",
        "diagnosis",
        "class",
        "rating",
    },
    "patient": {"patient", "subject", "participant", "person", "case", "pid"},
}
# words of severity, mildest first: the order in which names of grades are proposed, never one that
# is assumed
SCALE = (
    *(
        "none",
        "no",
        "healthy",
        "normal",
        "absent",
        "negative",
        "minimal",
        "very mild",
        "doubtful",
        "slight",
        "mild",
    ),
    *(
        "low",
        "moderate",
        "medium",
        "marked",
        "high",
        "severe",
        "very severe",
        "proliferative",
        "extreme",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What is known of a table before it is read.

    options: how it is read, by name: what was asked, and what was guessed; what everybody finds by
    the usual names needs no option. columns: role → column, however it was found. notes: sentences
    on what was guessed, and why. typos: line → (cell, what is wrong with it). unresolved: sentences
    on what only a person can say, with what to do. proposed: options that would resolve it, if a
    person agrees.
    """

    options: dict[str, Any]
    columns: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    typos: dict[str, tuple[str, str]] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    proposed: dict[str, Any] = field(default_factory=dict)

    def guess(self, role: str, column: str, why: str) -> None:
        """This column, for this reason."""
        self.columns[role] = column
        self.options[f"{role}_column"] = column
        self.notes.append(f"{role}: column {column!r} ({why})")


def guess_options(table: Table, asked: ReadOptions) -> Guesses:
    """How a table of images is read: what was asked, and columns and grades that its cells make
    plain."""
    columns, _ = choose_columns(table, asked.roles, required=())
    found = Guesses(options=dict(asked.given), columns=columns)
    folder = asked.images or table.folder
    if asked.image_column is None:
        _guess_images(found, table, folder)
    if asked.images is None and "image" in columns:
        _guess_folder(found, table, folder)
    if "patient" not in columns:
        _guess_patients(found, table)
    if asked.several_readings is None and "grade" not in columns:
        _guess_grades(found, table)
    several = asked.several_readings is not None or isinstance(asked.grade_column, tuple)
    if "grade" in columns and asked.grades is None and asked.map_grades is None and not several:
        _check_grades(found, table, columns["grade"])
    return found


def _guess_images(found: Guesses, table: Table, folder: Path) -> None:
    """By its name if the cells are image files, else the column whose cells are."""
    by_name = found.columns.get("image")
    shares = {column: _share_of_images(table.frame[column], folder) for column in _columns(table)}
    best = max(shares, key=lambda column: shares[column])
    if by_name is not None and (shares[by_name] >= FILES or shares[best] < FILES):
        return
    if shares[best] >= FILES:
        instead = f", and those of {by_name!r} are not" if by_name is not None else ""
        found.guess("image", best, f"{shares[best]:.0%} of its cells are image files{instead}")
    else:
        found.unresolved.append(missing_column("image", table, features=True).message)


def _share_of_images(cells: pd.Series[str], folder: Path) -> float:
    """The share of the filled cells that end as image files do; of names without a suffix, that
    exist."""
    filled = [cell for cell in cells.astype(str) if cell]
    if not filled:
        return 0.0
    ending = sum(cell.lower().endswith(tuple(IMAGE_SUFFIXES)) for cell in filled) / len(filled)
    if ending >= FILES:
        return ending
    sample = filled[:: max(1, len(filled) // 20)]
    root, located, _ = find_images(
        [relative_name(cell, folder.absolute()) for cell in sample], folder.absolute()
    )
    return sum((root / name).is_file() for name in located) / len(sample)


def _guess_folder(found: Guesses, table: Table, folder: Path) -> None:
    """The folder below the table that has the images, where they are at no usual place."""
    names = [
        relative_name(name, folder.absolute())
        for name in table.frame[found.columns["image"]]
        if name
    ]
    sample = names[:: max(1, len(names) // 20)]

    def found_in(directory: Path) -> int:
        root, located, _ = find_images(sample, directory)
        return sum((root / name).is_file() for name in located)

    if found_in(folder.absolute()):
        return
    below = itertools.islice((path for path in sorted(folder.glob("*/")) if path.is_dir()), FOLDERS)
    for directory in itertools.chain.from_iterable(
        (one, *itertools.islice(one.glob("*/"), FOLDERS)) for one in below
    ):
        if 2 * found_in(directory.absolute()) > len(sample):
            found.options["images"] = directory
            found.notes.append(f"images: in {directory}")
            return


def _guess_patients(found: Guesses, table: Table) -> None:
    taken = found.columns.values()
    named = [
        column
        for column in _columns(table)
        if column not in taken and WORDS["patient"] & _words(column)
    ]
    if named:
        found.guess("patient", named[0], "a word in its name")


def _guess_grades(found: Guesses, table: Table) -> None:
    """By a word in its name, else the only column of few whole numbers."""
    free = [column for column in _columns(table) if column not in found.columns.values()]
    named = [column for column in free if WORDS["grade"] & _words(column)]
    graded = [column for column in free if _looks_graded(table.frame[column])]
    both = [column for column in named if column in graded]
    if len(both) == 1 or (len(named) == 1 and not both):
        found.guess("grade", (both or named)[0], "a word in its name")
    elif len(graded) == 1:
        values = sorted({cell for cell in table.frame[graded[0]] if cell.casefold() not in MISSING})
        found.guess("grade", graded[0], f"the only one with few whole numbers: {few(values, 6)}")
    else:
        candidates = few(map(repr, both or named or graded), 6)
        several = f" It may be one of {candidates}." if candidates else ""
        found.unresolved.append(Message(missing_column("grade", table), several))


def _looks_graded(cells: pd.Series[str]) -> bool:
    """Few whole numbers that repeat; no sides of a split."""
    values = Counter(cell for cell in cells.astype(str) if cell.casefold() not in MISSING)
    if not 2 <= len(values) <= MANY_VALUES or is_split(cells.rename("column"), given=False):
        return False
    numbers = sum(
        count for value, count in values.items() if re.fullmatch(r"\d{1,2}(\.0+)?", value)
    )
    return numbers >= (1 - RARE) * values.total()


def _columns(table: Table) -> list[str]:
    return list(map(str, table.frame.columns))


def _words(column: str) -> set[str]:
    """The words of a name: "kl_severity" and "KlSeverity" have kl and severity."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column)
    return set(map(plain_name, re.split(r"[\W_]+", spaced))) - {""}


# Grades that are typing errors, gaps, and names whose order only a person knows.


def _check_grades(found: Guesses, table: Table, column: str) -> None:
    """Typing errors by their lines; without them the grades are listed, so that the other rows can
    be read."""
    values = list(map(str, table.frame[column]))
    counts = Counter(value for value in values if value.casefold() not in MISSING)
    numbers = {
        value: int(float(value)) for value in counts if re.fullmatch(r"\d{1,9}(\.0+)?", value)
    }
    if 2 * sum(counts[value] for value in numbers) >= counts.total():
        grades = _contiguous(_by_number(counts, numbers))
        outside = [value for value in counts if numbers.get(value) not in grades]
        errors = sum(counts[value] for value in outside)
        if not outside:
            return
        if len(grades) >= 2 and errors <= max(2, RARE * counts.total()):
            found.options["grades"] = tuple(map(str, grades))
            reason = f"not one of the grades {grades[0]} … {grades[-1]}, which all other rows have"
            _note_typos(found, table, values, dict.fromkeys(outside, reason))
        elif len(numbers) == len(counts) and max(numbers.values()) < MOST_GRADES:
            _propose_gap(found, sorted(set(numbers.values())), column)
        return
    try:
        order_names(list(counts))
    except SrjtError as problem:
        _propose_order(found, table, values, counts, problem)


def _by_number(counts: Counter[str], numbers: dict[str, int]) -> Counter[int]:
    total: Counter[int] = Counter()
    for value, number in numbers.items():
        total[number] += counts[value]
    return total


def _contiguous(counts: Counter[int]) -> list[int]:
    """The numbers from 0, or from 1, up to the first one that is missing."""
    number = 0 if 0 in counts else 1
    grades = []
    while number in counts:
        grades.append(number)
        number += 1
    return grades


def _note_typos(found: Guesses, table: Table, values: Sequence[str], wrong: dict[str, str]) -> None:
    for line, value in zip(table.lines, values, strict=True):
        if value in wrong:
            found.typos[line] = (value, wrong[value])
    shown = few((f"{line} has {value!r}" for line, (value, _) in found.typos.items()), 6)
    found.notes.append(
        f"grades: {few(found.options['grades'], 12)}; probably typing errors: {shown}"
    )


def _propose_gap(found: Guesses, numbers: list[int], column: str) -> None:
    """Grades that do not occur: whether they exist is for a person to say."""
    first = min(numbers[0], 1)
    missing = [str(number) for number in range(first, numbers[-1]) if number not in numbers]
    found.proposed["grades"] = tuple(map(str, range(first, numbers[-1] + 1)))
    found.unresolved.append(
        Message(
            f"The column {column!r} has the grades {few(numbers, 12)} and none of {few(missing, 6)}: if"
            f" {'that grade exists' if len(missing) == 1 else 'these grades exist'}, list all grades"
            " with ",
            Option("grades"),
            ".",
        )
    )


def _propose_order(
    found: Guesses, table: Table, values: Sequence[str], counts: Counter[str], problem: SrjtError
) -> None:
    """Names whose order is not known, the probable misspellings apart."""
    usual = [value for value, count in counts.items() if count > max(2, RARE * counts.total() / 2)]
    for line, value in zip(table.lines, values, strict=True):
        if value and value not in usual and value.casefold() not in MISSING:
            near = difflib.get_close_matches(
                value.casefold(), [name.casefold() for name in usual], n=1, cutoff=ALIKE
            )
            meant = next((name for name in usual if near and name.casefold() == near[0]), None)
            if meant is not None:
                found.typos[line] = (value, f"perhaps {meant!r}")
    misspelt = {value for value, _ in found.typos.values()}
    names = [value for value in counts if value not in misspelt]
    if not 2 <= len(names) <= MANY_VALUES:
        found.unresolved.append(problem.message)
        return
    scale = list(map(plain_name, SCALE))
    ordered = sorted(
        names,
        key=lambda name: scale.index(plain_name(name)) if plain_name(name) in scale else len(scale),
    )
    found.proposed["grades"] = tuple(ordered)
    counted = ", ".join(f"{printable(name)} ({counts[name]:,})" for name in ordered)
    typed = (
        f" Without {count_of(len(found.typos), 'probable typing error')}." if found.typos else ""
    )
    found.unresolved.append(
        Message(
            f"The order of the grades is not known: {counted}.{typed} List them from mild to severe"
            " with ",
            Option("grades"),
            ".",
        )
    )
