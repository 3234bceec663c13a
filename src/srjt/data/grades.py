"""Grades: written grades become 0 … C − 1 in an order that is never guessed, labels of any type
become such codes, and grades have names for people to read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.options import picked
from srjt.errors import Option, SrjtError, few, printable, unknown_name

# Convert written grades to 0 … C−1. The order matters most, so it is never guessed.

# Not "none": it is the name of the mildest grade in many scales.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "<na>", "?", "-"})
UNKNOWN_PATIENT = "unknown: "  # and its id: the patient of an image without one

MOST_GRADES = 100  # matrices of all pairs of grades are estimated; a severity has few
_LONGEST_NUMBER = 9  # digits at the end of a grade's name; longer ones are ids
_NUMBER_AND_WORD = re.compile(r"(\d{1,9})[\s_.:)-]+[^\W\d_]")
_TIME = re.compile(r"\d{4}-\d\d?-\d\d?|-?\d+ days?\b|\d\d?:\d\d")
_MANY_GRADES = 10  # more of them need at least
_SAMPLES_PER_GRADE = 5  # samples each, unless they are listed


@dataclass(frozen=True, kw_only=True)
class Grading:
    """``codes`` (N,) are indices into ``names``, or −1; then ``invalid`` has the reason (position →
    kind, detail)."""

    names: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    invalid: dict[int, tuple[str, str]]
    note: str


def as_text(value: object) -> str:
    """A cell as text: a missing value becomes "", 2.0 becomes "2", "007" stays "007"."""
    if isinstance(value, (list, tuple, dict, np.ndarray)):  # a nested column of Parquet
        return str(value)
    if value is None or value is pd.NA or value != value:  # NaN and NaT differ from themselves
        return ""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return "" if text == "<NA>" else text


def positions(names: Iterable[str]) -> dict[str, int]:
    """Each name → its position."""
    return {name: position for position, name in enumerate(names)}


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.casefold() in MISSING


def filled(cells: Iterable[str]) -> list[str]:
    """The cells that hold a value."""
    return [cell for cell in cells if not is_missing(cell)]


def grade_values(values: Sequence[str], *, names: Sequence[str] | None = None) -> Grading:
    """Convert ``values`` (N,) to grades, in the order of ``names`` if given, mildest first.

    Without names, the values must be integers from 0 or 1 without gaps, or names that end in such
    numbers or begin with them ("Mayo 2", "2_mild"). Other values are collected in ``invalid``; an
    unknown order is an error.
    """
    times = Counter(values)
    present = filled(times)
    if names is None:
        names, note = _infer(present, times)
        refuse_more_than_most(names)
        codes_of = _codes(names)
    else:
        names = check_scale(names)
        codes_of, note = _match(present, names)
    # A name that looks like a missing value is a grade if it is listed.
    code_of = {value: codes_of.get(_key(value), -1) for value in times}
    codes = np.array([code_of[value] for value in values], dtype=np.int64)
    invalid: dict[int, tuple[str, str]] = {}
    for row in np.flatnonzero(codes < 0).tolist():
        value = values[row]
        if not value:
            invalid[row] = ("missing-grade", "no grade")
        elif is_missing(value):
            invalid[row] = ("missing-grade", f"no grade ({value!r})")
        else:
            detail = f"'{_listed([value])}' is not one of {', '.join(names)}"
            invalid[row] = ("invalid-grade", detail)
    return Grading(names=tuple(names), codes=codes, invalid=invalid, note=note)


def check_scale(names: Sequence[str]) -> tuple[str, ...]:
    """The names of the grades that somebody lists; an error if they are no scale."""
    names = tuple(map(str.strip, map(str, names)))
    if len(names) < 2 or not all(names):
        raise SrjtError(
            f"List at least two grades, from mild to severe; got {','.join(names) or 'none'}.",
            code="too_few",
            option="grades",
        )
    if len(set(map(str.casefold, names))) < len(names):
        raise SrjtError(
            f"A grade is listed twice: {', '.join(names)}.", code="not_unique", option="grades"
        )
    refuse_more_than_most(names)
    return names


def order_names(names: Iterable[str], *, gaps: bool = False) -> tuple[str, ...]:
    """Sort names that all end in numbers ("Mayo 2", or just "2") or all begin with them ("2_mild"),
    mildest first; other names are an error.

    gaps: whether numbers may be missing.
    """
    spelling: dict[str, str] = {}
    names = sorted(set(names))
    if names and all(map(_TIME.match, names)):
        raise SrjtError(
            f"{_listed(names)} are dates or times, not grades: choose another column with ",
            Option("grade_column"),
            ".",
            code="wrong_values",
        )
    for name in names:
        spelling.setdefault(" ".join(name.casefold().split()), name)
    numbers = _numbers_at_ends(list(spelling)) or _numbers_at_beginnings(list(spelling))
    if not numbers:
        raise SrjtError(
            f"The order of the grades {_listed(sorted(spelling.values()))} is not known: list them"
            " from mild to severe with ",
            Option("grades"),
            ".",
            code="grades_without_order",
        )
    by_number = {number: spelling[key] for key, number in numbers.items()}
    if len(by_number) < len(spelling):
        raise SrjtError(
            f"Two of the grades {', '.join(spelling.values())} have the same number.",
            code="not_unique",
        )
    ordered = sorted(by_number)
    if len(ordered) < 2 and not gaps:
        raise SrjtError(
            f"Only one grade occurs ({by_number[ordered[0]]}): at least two are needed.",
            code="too_few",
        )
    first = min(ordered[0], 1)
    last = min(ordered[-1], first + 1000)
    missing = [number for number in range(first, last) if number not in by_number]
    if missing and not gaps:
        raise SrjtError(
            f"The grades {_listed(map(str, ordered))} have a gap at {_listed(map(str, missing))}:"
            " list all grades from mild to severe with ",
            Option("grades"),
            ".",
            code="grades_with_gap",
        )
    return tuple(map(by_number.__getitem__, ordered))


def _numbers_at_ends(keys: Sequence[str]) -> dict[str, int]:
    """The numbers at the ends of names that are the same otherwise; nothing for other names."""
    numbers: dict[str, int] = {}
    stems = set()
    for key in keys:
        stem = key.rstrip("0123456789")
        digits = key[len(stem) :]
        stems.add(stem.strip(" _-"))
        if 0 < len(digits) <= _LONGEST_NUMBER:
            numbers[key] = int(digits)
    return numbers if len(stems) == 1 and len(numbers) == len(keys) else {}


def _numbers_at_beginnings(keys: Sequence[str]) -> dict[str, int]:
    """The numbers before words; nothing for other names, such as ranges of numbers."""
    matches = {key: _NUMBER_AND_WORD.match(key) for key in keys}
    if not all(matches.values()):
        return {}
    return {key: int(match[1]) for key, match in matches.items() if match}


def refuse_more_than_most(names: Sequence[object]) -> None:
    """Raise an error for more grades than a severity has."""
    if len(names) > MOST_GRADES:
        raise SrjtError(
            f"{len(names):,} grades ({_listed(map(str, names))}) are too many: a severity has at"
            f" most {MOST_GRADES}. Choose another ",
            Option("grade_column"),
            ", or join measurements to a few grades.",
            code="too_many",
        )


def refuse_too_many(names: Sequence[str], *, samples: int) -> None:
    """Raise an error for grades that nobody listed and that hardly repeat: they are ids or
    measurements."""
    if len(names) > _MANY_GRADES and samples < _SAMPLES_PER_GRADE * len(names):
        raise SrjtError(
            f"{len(names):,} different grades ({_listed(names)}) for {samples:,} samples look like"
            " ids or measurements: choose the column with ",
            Option("grade_column"),
            ", or list the grades with ",
            Option("grades"),
            ".",
            code="too_many",
        )


def _infer(present: list[str], times: Mapping[str, int]) -> tuple[tuple[str, ...], str]:
    """The grades in their order, and a note."""
    if not present:
        raise SrjtError("No sample has a grade.", code="too_few")
    numeric = [value for value in present if _number(value) is not None]
    # Mostly numbers: the few words among them are mistakes. Mostly words: they are the names of the
    # grades.
    if 2 * sum(map(times.__getitem__, numeric)) < sum(map(times.__getitem__, present)):
        names = order_names(present)
        return names, f"{', '.join(names)} (ordered by their numbers)"
    whole = list(filter(str.isdecimal, map(_key, numeric)))
    if not whole:
        raise SrjtError(
            f"No grade is a whole number from 0 on: {_listed(sorted(present)[:1])!r} is not one.",
            code="unknown_grade",
        )
    names = order_names(whole)
    note = f"whole numbers {names[0]} … {names[-1]}"
    if names[0] != "0":
        note += ", stored as numbers from 0"
    return names, note


def _match(present: list[str], names: tuple[str, ...]) -> tuple[dict[str, int], str]:
    """The code of each grade by listed names, and a note; whole numbers may stand for names without
    numbers."""
    codes_of = _codes(names)
    listed = ", ".join(names)
    keys = set(map(_key, present))
    if not present or keys & codes_of.keys():
        return codes_of, f"{listed} (as listed)"
    used = set(map(int, filter(str.isdecimal, keys)))
    if not used or any(map(str.isdecimal, codes_of)):
        raise SrjtError(
            f"None of the grades {_listed(sorted(present))} is among those listed: {listed}.",
            code="unknown_grade",
            option="grades",
        )
    if 0 not in used and len(names) not in used:
        raise SrjtError(
            f"Whether the grades {_listed(map(str, sorted(used)))} start at 0 or 1 is unknown: list"
            " numbers, not names.",
            code="ambiguous",
            option="grades",
        )
    first = 0 if 0 in used else 1
    last = first + len(names) - 1
    numbers = {str(first + code): code for code in range(len(names))}
    return numbers, f"{listed} (as listed, for the numbers {first} … {last})"


def _codes(names: Sequence[str]) -> dict[str, int]:
    """Grade, in its one spelling → code."""
    return {_key(name): code for code, name in enumerate(names)}


def _listed(texts: Iterable[str]) -> str:
    """At most eight texts, none of them long."""
    return few(map(_short, texts), 8)


def _short(text: str) -> str:
    return printable(text if len(text) <= 40 else f"{text[:39]}…")


def _key(value: str) -> str:
    """One spelling of each grade: "Mayo  1" is "mayo 1", and "1.0" is "1"."""
    number = _number(value)
    if number is None or number % 1:
        return " ".join(value.casefold().split())
    return str(int(number))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


# Labels of any type as grades 0 … C − 1: arrays, strings, ordered categoricals.

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


def grade_codes(
    y: Array, *, grades: Sequence[Any] | Literal["sorted"] | None = None
) -> tuple[Array, Ints]:
    """(C,) the grades from mild to severe, and (N,) the position of each label among them.

    grades: the grades in their order, or "sorted" for the alphabetical one. Default: known from
    numbers only.
    """
    try:
        present = np.unique(y)
    except TypeError:
        raise SrjtError(
            "The labels are of different types, which cannot be sorted: use one type.",
            code="wrong_type",
        ) from None
    if len(present) < 2:
        raise SrjtError(
            f"All labels are of one class, {present[0]}: there is nothing to learn.", code="too_few"
        )
    refuse_more_than_most(present.tolist())
    if grades is None and all(isinstance(name, str) for name in present.tolist()):
        # names by their numbers, as in every other source
        classes = np.array(order_names(present.tolist(), gaps=True), dtype=present.dtype)
    elif grades is None or (isinstance(grades, str) and grades == "sorted"):
        classes = present
    else:
        listed = list(grades)
        if len(set(listed)) < max(len(listed), 2):
            raise SrjtError(
                Option("grades"),
                f" must list at least two grades, each once; got {_listed(map(str, listed))}.",
                code="wrong_values",
            )
        refuse_more_than_most(listed)
        classes = np.array(listed, dtype=object if y.dtype == object else None)
    advice = (
        ". (cross_val_predict replaces strings by numbers in alphabetical order when it computes"
        " probabilities: use integer labels there.)"
    )
    return classes, _positions(y.tolist(), classes, what="label", advice=advice)


def verified_codes(verified: Any, classes: Array) -> Ints:
    """(N,) the position of each verified grade among the classes; −1 where it is None or nan."""
    cells = np.array(verified, dtype=object)
    cells[pd.isna(cells)] = None
    advice = "; use None or nan for rows that were not verified."
    return _positions(cells.tolist(), classes, what="verified grade", advice=advice)


def _positions(labels: list[Any], classes: Array, *, what: str, advice: str) -> Ints:
    grades = classes.tolist()
    code_of = {None: -1, **dict(zip(grades, range(len(grades)), strict=True))}
    for label in labels:
        if label not in code_of:
            raise SrjtError(
                f"The {what} {label!r} is not among the grades {grades}{advice}",
                code="unknown_grade",
            )
    return np.array([code_of[label] for label in labels], dtype=np.int64)


def ordered_categories(y: Any) -> list[Any] | None:
    """The categories of an ordered categorical."""
    kind = getattr(y, "dtype", None)
    if isinstance(kind, pd.CategoricalDtype) and kind.ordered:
        return list(kind.categories)
    return None


# Names of grades for people to read. The grades themselves are identities: files and labels keep
# them.

LONGEST = 60  # letters of a name; longer ones would not fit a table


def distinct(names: list[str]) -> list[str]:
    """The names; ``ValueError`` if one occurs twice, for the fields of files."""
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return names


class Grades(tuple[str, ...]):
    """The grades from mild to severe, as files and labels have them, and their names for people.

    Parameters
    ----------
    grades : iterable of str
        Mildest first.
    names : mapping of str to str, optional
        Grade → its name, for every grade; none or empty: they have no names.

    Attributes
    ----------
    names : dict of str to str

    Examples
    --------
    >>> from srjt.data.grades import Grades
    >>> grades = Grades(("0", "1"), {"0": "none", "1": "some"})
    >>> grades.show(1), grades.show("0"), grades.find("Some"), Grades(("0", "1")).show(1)
    ('1 (some)', '0 (none)', 1, '1')
    """

    names: dict[str, str]

    def __new__(cls, grades: Iterable[str], names: Mapping[str, str] | None = None) -> Grades:
        self = super().__new__(cls, grades)
        self.names = {} if names is None else _check_display_names(names, self)
        return self

    def named(self, names: Mapping[str, str] | None) -> Grades:
        """The same grades with other names; None keeps their names."""
        return self if names is None else Grades(self, names)

    def show(self, grade: str | int) -> str:
        """A grade, or the grade at a position, for people: ``2 (minimal)`` if it has a name, else
        ``2``."""
        written = self[grade] if isinstance(grade, int) else grade
        name = self.names.get(written, written)
        if name == written:
            return written
        return f"{written} ({name})"

    @property
    def shown(self) -> list[str]:
        """All grades for people."""
        return list(map(self.show, self))

    def find(self, wanted: str | int) -> int:
        """The position of a grade that a person wrote: the grade itself, or its name."""
        key = str(wanted).strip().casefold()
        for texts in (self, [self.names.get(grade, grade) for grade in self]):
            spellings = list(map(str.casefold, texts))
            if key in spellings:
                return spellings.index(key)
        raise unknown_name("grade", wanted, [*self, *self.names.values()])


def parse_grade_names(text: str | None) -> dict[str, str] | None:
    """``"0=none,1=doubtful"`` → {"0": "none", "1": "doubtful"}; None stays None."""
    if text is None:
        return None
    names: dict[str, str] = {}
    for part in text.split(","):
        grade, equals, name = map(str.strip, part.partition("="))
        if not equals or not grade or not name:
            raise SrjtError(
                f"Grade names are written as 0=none,1=mild; {part.strip()!r} is not GRADE=NAME.",
                code="wrong_syntax",
                option="grade_names",
            )
        if grade in names:
            raise SrjtError(
                f"The grade {grade!r} has two names: {names[grade]!r} and {name!r}.",
                code="not_unique",
                option="grade_names",
            )
        names[grade] = name
    return names


def _check_display_names(names: Mapping[str, str], grades: Sequence[str]) -> dict[str, str]:
    """The names in the order of the grades; an error if they do not fit the grades."""
    if not isinstance(names, Mapping):
        raise SrjtError(
            f"Grade names are a mapping from grade to name; got {type(names).__name__}.",
            code="wrong_type",
            option="grade_names",
        )
    name_of = {str(grade): str(name).strip() for grade, name in names.items()}
    owner: dict[str, str] = {}
    for grade, name in name_of.items():
        if grade not in grades:
            raise unknown_name("grade (in the grade names)", grade, grades)
        if not name or not name.isprintable() or len(name) > LONGEST:
            raise SrjtError(
                f"{grade!r} needs a name of 1 to {LONGEST} printable letters; got {name[:80]!r}.",
                code="wrong_values",
                option="grade_names",
            )
        if (other := owner.setdefault(name.casefold(), grade)) != grade:
            raise SrjtError(
                f"The grades {other!r} and {grade!r} have the same name, {name!r}.",
                code="not_unique",
                option="grade_names",
            )
    if name_of and (missing := [grade for grade in grades if grade not in name_of]):
        raise SrjtError(
            f"Grade names must name every grade; there is none for {', '.join(missing)}.",
            code="missing_option",
            option="grade_names",
        )
    return picked(name_of, grades)
