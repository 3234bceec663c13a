"""How a source is read, as options: one declaration for Python, the command line, its help and the
documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from srjt.errors import Option, SrjtError
from srjt.settings import check_types, documented, from_names, setting

Value = TypeVar("Value")

READING = "How the source is read"  # panel of the command line's help
# options that a table of readings has a use for
OF_READINGS = (
    "image_column",
    "grade_column",
    "reader_column",
    "patient_column",
    "reference_column",
    "grades",
)
_option = partial(setting, None, panel=READING)
_column = partial(_option, shown="found by its name", metavar="NAME")


@documented
@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How labels, and where the images are, are read from a source; ``srjt.data.read`` takes them
    as keywords."""

    images: Path | None = _option(  # noqa: RUF009
        "Folder of the images.",
        more=(
            "Image names are relative to it; images, train_images, img and the like in it are tried"
            " too. For a table in memory it is the present folder."
        ),
        shown="the table's, or images/ in it",
        metavar="DIR",
    )
    image_column: str | None = _column("Column of image files.")
    grade_column: str | tuple[str, ...] | None = _column(
        "Column of grades; repeat it, or give a pattern such as 'grade_*', for the columns of"
        " several readers."
    )
    patient_column: str | None = _column("Column of patient ids.")
    true_grade_column: str | None = _column("Column of true grades, if they are known.", shown=None)
    verified_grade_column: str | None = _column(
        "Column of true grades of a random sample.", more="The other cells are empty."
    )
    split_column: str | None = _column("Column with train, validation or test.", shown=None)
    grades: tuple[str, ...] | None = _option(
        'Grades from mild to severe: "none,mild,severe".',
        more="Without it, grades are whole numbers, or names that end in numbers, in their order.",
        metavar="LIST",
        takes="names of grades, the mildest first",
    )
    map_grades: tuple[str, ...] | None = _option(
        'Other names of the grades in the source: "R0=0,R1=1,R2=1".',
        more='Several may become one. In Python also `{"R0": "0", "R1": "1"}`.',
        metavar="LIST",
        takes="the source's grades and the grades that they are, such as R0=0,R1=1",
    )
    labels: Path | None = _option(  # noqa: RUF009
        "Table of grades for features: by id, or row by row.", metavar="FILE"
    )
    feature_columns: str | tuple[str, ...] | None = _option(
        "Columns of a table that are features: 'f*'.", metavar="PATTERN"
    )
    several_readings: Literal["error", "consensus"] | None = _option(
        "What to do with several grades of one image: report an error, or combine them.",
        more=(
            "They are rows of a table, or a column of grades per reader; see read_readings. The"
            " manifest of a consensus has the columns readings, certainty and p_true_0 …, the"
            " probabilities of the true grades."
        ),
        shown="error",
    )
    reader_column: str | None = _column("Column of readers.")
    reference_column: str | None = _column("Column of trusted grades, for several readings.")
    kind: str | None = _option(
        "Kind of source: table, folders, limuc, dr, medmnist or features.",
        shown="recognised",
        metavar="KIND",
    )

    def __post_init__(self) -> None:
        grades: Any = self.grades
        if isinstance(grades, Iterable) and not isinstance(grades, str):
            object.__setattr__(self, "grades", tuple(map(str, grades)))
        mapping: Any = self.map_grades
        if isinstance(mapping, Mapping):
            object.__setattr__(
                self,
                "map_grades",
                tuple(f"{written}={grade}" for written, grade in mapping.items()),
            )
        check_types(self)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ReadOptions:
        """The options by name; an unknown name is an error that suggests the nearest."""
        return from_names(cls, options, kind="reading option")

    @property
    def roles(self) -> dict[str, str | None]:
        """What a column is → its name; None if it was not given."""
        column = self.grade_column
        return {
            "image": self.image_column,
            "grade": (
                column if column is None or isinstance(column, str) else next(iter(column), None)
            ),
            "patient": self.patient_column,
            "true_grade": self.true_grade_column,
            "verified_grade": self.verified_grade_column,
            "split": self.split_column,
        }

    @property
    def grade_map(self) -> dict[str, str]:
        """A grade of the source → the grade that it is."""
        grade_of = {}
        for pair in self.map_grades or ():
            written, _, grade = map(str.strip, pair.rpartition("="))
            if not (written and grade):
                raise SrjtError(
                    Option("map_grades"),
                    f" takes SOURCE=GRADE, as in R0=0,R1=1; got {pair!r}.",
                    code="wrong_syntax",
                )
            grade_of[written] = grade
        return grade_of

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not None, by name."""
        return without_none(vars(self))


def without_none(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """Those that are not None, by name."""
    return {name: value for name, value in values.items() if value is not None}


def picked(values: Mapping[str, Value], names: Iterable[str]) -> dict[str, Value]:
    """Those with these names, as far as they are there."""
    return {name: values[name] for name in names if name in values}
