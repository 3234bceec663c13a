"""Names of grades for people to read. The grades themselves are identities: files and labels keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srjt.errors import SrjtError, suggest

__all__ = ["check_grade_names", "display_grade", "find_grade", "parse_grade_names"]

LONGEST = 60  # letters of a name; longer ones would not fit a table


def display_grade(grade: str, names: Mapping[str, str]) -> str:
    """A grade for people: ``2 (minimal)`` if it has a name, else ``2``.

    Parameters
    ----------
    grade : str
    names : mapping of str to str
        Grade → its name; may be empty.

    Returns
    -------
    str

    Examples
    --------
    >>> from srjt.data.grade_names import display_grade
    >>> display_grade("2", {"2": "minimal"}), display_grade("2", {})
    ('2 (minimal)', '2')
    """
    name = names.get(grade, grade)
    return grade if name == grade else f"{grade} ({name})"


def parse_grade_names(text: str) -> dict[str, str]:
    """``"0=none,1=doubtful"`` → {"0": "none", "1": "doubtful"}.

    Parameters
    ----------
    text : str

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from srjt.data.grade_names import parse_grade_names
    >>> parse_grade_names("0=none, 1=doubtful")
    {'0': 'none', '1': 'doubtful'}
    """
    names: dict[str, str] = {}
    for part in text.split(","):
        grade, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or not grade or not name:
            raise SrjtError(
                f'Grade names are written as "0=none,1=doubtful,2=minimal"; {part.strip()!r} is not GRADE=NAME.'
            )
        if grade in names:
            raise SrjtError(f"The grade {grade!r} has two names: {names[grade]!r} and {name!r}.")
        names[grade] = name
    return names


def check_grade_names(names: Mapping[str, str], grades: Sequence[str]) -> dict[str, str]:
    """The names, one per grade, in the order of the grades; an error if they do not fit the grades.

    Parameters
    ----------
    names : mapping of str to str
        Grade → its name; empty: no grade has a name.
    grades : sequence of str
        Mildest first.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from srjt.data.grade_names import check_grade_names
    >>> check_grade_names({"1": "some", "0": "none"}, ("0", "1"))
    {'0': 'none', '1': 'some'}
    """
    if not isinstance(names, Mapping):
        raise SrjtError(f"Grade names are a mapping from grade to name; got {type(names).__name__}.")
    given = {str(grade): str(name).strip() for grade, name in names.items()}
    if not given:
        return {}
    for grade, name in given.items():
        if grade not in grades:
            raise suggest("grade (in the grade names)", grade, grades)
        if not name or not name.isprintable() or len(name) > LONGEST:
            raise SrjtError(
                f"The name of the grade {grade!r} must have 1 to {LONGEST} printable letters; got {name[:80]!r}."
            )
    if missing := [grade for grade in grades if grade not in given]:
        raise SrjtError(
            f"Grade names must name every grade; there is none for {', '.join(missing)}. "
            f"Grades: {', '.join(grades)}."
        )
    seen: dict[str, str] = {}
    for grade, name in given.items():
        if (other := seen.setdefault(name.casefold(), grade)) != grade:
            raise SrjtError(f"The grades {other!r} and {grade!r} have the same name, {name!r}.")
    return {grade: given[grade] for grade in grades}


def find_grade(wanted: str | int, grades: Sequence[str], names: Mapping[str, str]) -> int:
    """The position of a grade that a person wrote: the grade itself, or its name.

    Parameters
    ----------
    wanted : str or int
    grades : sequence of str
        Mildest first.
    names : mapping of str to str
        Grade → its name; may be empty.

    Returns
    -------
    int

    Examples
    --------
    >>> from srjt.data.grade_names import find_grade
    >>> find_grade(2, ("0", "1", "2"), {}), find_grade("Some", ("0", "1"), {"0": "none", "1": "some"})
    (2, 1)
    """
    key = str(wanted).strip().casefold()
    for position, grade in enumerate(grades):
        if key == grade.casefold():
            return position
    for position, grade in enumerate(grades):
        if key == names.get(grade, grade).casefold():
            return position
    raise suggest("grade", wanted, [*grades, *names.values()])
