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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from srjt.data.grades import MOST_GRADES, filled, order_names, positions
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
PATIENTS = (0.1, 0.9)  # different values per row of a column that may be the patients
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
    "patient": {"patient", "subject", "participant", "person", "case", "pid", "pat", "pt"},
}
# what may stand beside "patient" in the name of a column that names patients: not the age, say
NAMING = {
    "id",
    "ids",
    "no",
    "nr",
    "num",
    "number",
    "code",
    "key",
    "name",
    "uid",
    "pseudonym",
    "hash",
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

    options: how it is read, by name: what was given, and what was guessed; what everybody finds by
    the usual names needs no option. columns: role → column, however it was found. notes: sentences
    on what was guessed, and why. typos: line → (cell, what is wrong with it). unresolved: sentences
    on what only a person can say, with what to do. proposed: options that would resolve it, if a
    person agrees. perhaps_patients: columns whose values repeat as patients do, if no column is
    known to be the patients.
    """

    options: dict[str, Any]
    columns: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    typos: dict[str, tuple[str, str]] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    proposed: dict[str, Any] = field(default_factory=dict)
    perhaps_patients: list[str] = field(default_factory=list)

    def guess(self, role: str, column: str, why: str) -> None:
        """This column, for this reason."""
        self.columns[role] = column
        self.options[f"{role}_column"] = column
        self.notes.append(f"{role}: column {column!r} ({why})")


def guess_options(table: Table, given: ReadOptions) -> Guesses:
    """How a table of images is read: what was given, and columns and grades that its cells make
    plain."""
    columns, _ = choose_columns(table, given.roles, required=())
    guesses = Guesses(options=dict(given.given), columns=columns)
    folder = given.images or table.folder
    if given.image_column is None:
        _guess_images(guesses, table, folder)
    if given.images is None and "image" in columns:
        _guess_folder(guesses, table, folder)
    if "patient" not in columns:
        _guess_patients(guesses, table)
    if given.several_readings is None and "grade" not in columns:
        _guess_grades(guesses, table)
    several = given.several_readings is not None or isinstance(given.grade_column, tuple)
    if "grade" in columns and given.grades is None and given.map_grades is None and not several:
        _check_grades(guesses, table, columns["grade"])
    if "patient" not in columns:
        guesses.perhaps_patients.extend(_repeating_columns(guesses, table))
    return guesses


def _guess_images(guesses: Guesses, table: Table, folder: Path) -> None:
    """By its name if the cells are image files, else the column whose cells are."""
    by_name = guesses.columns.get("image")
    shares = {column: _share_of_images(table.frame[column], folder) for column in _columns(table)}
    best = max(shares, key=lambda column: shares[column])
    if by_name is not None and (shares[by_name] >= FILES or shares[best] < FILES):
        return
    if shares[best] >= FILES:
        reason = f"{shares[best]:.0%} of its cells are image files"
        if by_name is not None:
            reason += f", and those of {by_name!r} are not"
        guesses.guess("image", best, reason)
    elif by_name is None and (below := _names_in_a_folder(table, folder)):
        column, directory = below
        guesses.guess("image", column, f"its cells are names of images in {directory}")
    else:
        guesses.unresolved.append(missing_column("image", table, features=True).message)


def _names_in_a_folder(table: Table, folder: Path) -> tuple[str, Path] | None:
    """The column whose cells, perhaps without a suffix, name images in a folder below the table's,
    and the folder."""
    samples = {}
    for column in _columns(table):
        if written := list(filter(None, table.frame[column].astype(str))):
            samples[column] = _sample(written, folder)
    for directory in _folders_below(folder):
        for column, sample in samples.items():
            if _count_images(sample, directory) >= FILES * len(sample):
                return column, directory
    return None


def _share_of_images(cells: pd.Series[str], folder: Path) -> float:
    """The share of the filled cells that end as image files do; of names without a suffix, that
    exist."""
    written = list(filter(None, cells.astype(str)))
    if not written:
        return 0.0
    ending = sum(cell.lower().endswith(tuple(IMAGE_SUFFIXES)) for cell in written) / len(written)
    if ending >= FILES:
        return ending
    sample = _sample(written, folder)
    return _count_images(sample, folder) / len(sample)


def _sample(names: list[str], folder: Path) -> list[str]:
    """About twenty of the names, relative to the folder."""
    root = folder.absolute()
    return [relative_name(name, root) for name in names[:: max(1, len(names) // 20)]]


def _count_images(names: list[str], folder: Path) -> int:
    """How many of the images are in the folder, or at a usual place below it."""
    root, located, _ = find_images(names, folder.absolute())
    return sum((root / name).is_file() for name in located)


def _guess_folder(guesses: Guesses, table: Table, folder: Path) -> None:
    """The folder below the table that has the images, where they are at no usual place."""
    sample = _sample(list(filter(None, table.frame[guesses.columns["image"]])), folder)
    if _count_images(sample, folder):
        return
    for directory in _folders_below(folder):
        if 2 * _count_images(sample, directory) > len(sample):
            guesses.options["images"] = directory
            guesses.notes.append(f"images: in {directory}")
            return


def _folders_below(folder: Path) -> Iterator[Path]:
    """Folders at the first level, each before those that it contains."""
    for child in itertools.islice(filter(Path.is_dir, sorted(folder.glob("*/"))), FOLDERS):
        yield child
        yield from itertools.islice(child.glob("*/"), FOLDERS)


def _guess_patients(guesses: Guesses, table: Table) -> None:
    for column in _free_columns(guesses, table):
        words = _words(column)
        if WORDS["patient"] & words and words <= WORDS["patient"] | NAMING:
            guesses.guess("patient", column, "a word in its name")
            return


def _repeating_columns(guesses: Guesses, table: Table) -> Iterator[str]:
    """The columns without a role whose values repeat, but a few times each."""
    fewest, most = PATIENTS
    for column in _free_columns(guesses, table):
        values = filled(table.frame[column].astype(str))
        if values and fewest <= len(set(values)) / len(table.frame) <= most:
            yield column


def _guess_grades(guesses: Guesses, table: Table) -> None:
    """By a word in its name, else the only column of few whole numbers."""
    free = _free_columns(guesses, table)
    named = [column for column in free if WORDS["grade"] & _words(column)]
    graded = [column for column in free if _looks_graded(table.frame[column])]
    both = [name for name in named if name in graded]
    if len(both) == 1 or (len(named) == 1 and not both):
        guesses.guess("grade", (both or named)[0], "a word in its name")
    elif len(graded) == 1:
        values = sorted(set(filled(table.frame[graded[0]])))
        guesses.guess("grade", graded[0], f"the only one with few whole numbers: {few(values, 6)}")
    else:
        sentence = missing_column("grade", table).message
        if candidates := both or named or graded:
            sentence = Message(sentence, f" It may be one of {few(map(repr, candidates), 6)}.")
        guesses.unresolved.append(sentence)


def _looks_graded(cells: pd.Series[str]) -> bool:
    """Few whole numbers that repeat; no sides of a split."""
    values = Counter(filled(cells.astype(str)))
    if not 2 <= len(values) <= MANY_VALUES or is_split(cells.rename("column"), given=False):
        return False
    numbers = 0
    for value, count in values.items():
        if re.fullmatch(r"\d{1,2}(\.0+)?", value):
            numbers += count
    return numbers >= (1 - RARE) * values.total()


def _free_columns(guesses: Guesses, table: Table) -> list[str]:
    """The columns that have no role yet."""
    return [name for name in _columns(table) if name not in guesses.columns.values()]


def _columns(table: Table) -> list[str]:
    return list(map(str, table.frame.columns))


def _words(column: str) -> set[str]:
    """The words of a name: "kl_severity" and "KlSeverity" have kl and severity."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column)
    return set(map(plain_name, re.split(r"[\W_]+", spaced))) - {""}


# Grades that are typing errors, gaps, and names whose order only a person knows.


def _check_grades(guesses: Guesses, table: Table, column: str) -> None:
    """Typing errors by their lines; without them the grades are listed, so that the other rows can
    be read."""
    values = list(map(str, table.frame[column]))
    counts = Counter(filled(values))
    numbers: dict[str, int] = {}
    samples_of: Counter[int] = Counter()
    for value, count in counts.items():
        if re.fullmatch(r"\d{1,9}(\.0+)?", value):
            numbers[value] = int(float(value))
            samples_of[numbers[value]] += count
    if 2 * samples_of.total() < counts.total():
        try:
            order_names(list(counts))
        except SrjtError as problem:
            _propose_order(guesses, table, values, counts, problem)
        return
    grades = _contiguous(samples_of)
    outside = [value for value in counts if numbers.get(value) not in grades]
    if not outside:
        return
    errors = sum(map(counts.__getitem__, outside))
    if len(grades) >= 2 and errors <= max(2, RARE * counts.total()):
        guesses.options["grades"] = tuple(map(str, grades))
        reason = f"not one of the grades {grades[0]} … {grades[-1]}, which all other rows have"
        _note_typos(guesses, table, values, dict.fromkeys(outside, reason))
    elif len(numbers) == len(counts) and max(numbers.values()) < MOST_GRADES:
        _propose_gap(guesses, sorted(samples_of), column)


def _contiguous(counts: Counter[int]) -> list[int]:
    """The numbers from 0, or from 1, up to the first one that is missing."""
    number = 0 if 0 in counts else 1
    grades = []
    while number in counts:
        grades.append(number)
        number += 1
    return grades


def _note_typos(
    guesses: Guesses, table: Table, values: Sequence[str], wrong: dict[str, str]
) -> None:
    for line, value in zip(table.lines, values, strict=True):
        if value in wrong:
            guesses.typos[line] = (value, wrong[value])
    shown = few((f"{line} has {value!r}" for line, (value, _) in guesses.typos.items()), 6)
    guesses.notes.append(
        f"grades: {few(guesses.options['grades'], 12)}; probably typing errors: {shown}"
    )


def _propose_gap(guesses: Guesses, numbers: list[int], column: str) -> None:
    """Grades that do not occur: whether they exist is for a person to say."""
    every = range(min(numbers[0], 1), numbers[-1] + 1)
    missing = sorted(set(every).difference(numbers))
    exist = "that grade exists" if len(missing) == 1 else "these grades exist"
    guesses.proposed["grades"] = tuple(map(str, every))
    guesses.unresolved.append(
        Message(
            f"The column {column!r} has the grades {few(numbers, 12)} and none of"
            f" {few(missing, 6)}: if {exist}, list all grades with ",
            Option("grades"),
            ".",
        )
    )


def _propose_order(
    guesses: Guesses,
    table: Table,
    values: Sequence[str],
    counts: Counter[str],
    problem: SrjtError,
) -> None:
    """Names whose order is not known, the probable misspellings apart."""
    usual = []
    for value, count in counts.items():
        if count > max(2, RARE * counts.total() / 2):
            usual.append(value)
    misspelt = set()
    for line, value in zip(table.lines, values, strict=True):
        if value in counts and value not in usual and (meant := _nearest(value, usual)):
            guesses.typos[line] = (value, f"perhaps {meant!r}")
            misspelt.add(value)
    names = [name for name in counts if name not in misspelt]
    if not 2 <= len(names) <= MANY_VALUES:
        guesses.unresolved.append(problem.message)
        return
    place = positions(map(plain_name, SCALE))

    def severity(name: str) -> int:
        return place.get(plain_name(name), len(place))

    ordered = sorted(names, key=severity)
    guesses.proposed["grades"] = tuple(ordered)
    counted = ", ".join(f"{printable(name)} ({counts[name]:,})" for name in ordered)
    sentence = f"The order of the grades is not known: {counted}."
    if guesses.typos:
        sentence += f" Without {count_of(len(guesses.typos), 'probable typing error')}."
    guesses.unresolved.append(
        Message(f"{sentence} List them from mild to severe with ", Option("grades"), ".")
    )


def _nearest(value: str, names: Sequence[str]) -> str | None:
    """The name that is probably meant; None if no name is alike."""
    spellings = list(map(str.casefold, names))
    near = difflib.get_close_matches(value.casefold(), spellings, n=1, cutoff=ALIKE)
    if not near:
        return None
    return names[spellings.index(near[0])]
