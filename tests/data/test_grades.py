"""Grades, and their names."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from refusals import refuses
from srjt.data.grades import Grades, as_text, grade_values, parse_grade_names
from srjt.errors import SrjtError


def test_whole_numbers_are_their_own_order() -> None:
    grading = grade_values(["2", "0", "1.0", "10", *map(str, range(3, 10))])
    assert grading.names == tuple(str(n) for n in range(11))
    assert grading.codes[:4].tolist() == [2, 0, 1, 10]
    assert not grading.invalid
    grading = grade_values(["1", "3", "2"])
    assert grading.names == ("1", "2", "3")
    assert grading.codes.tolist() == [0, 2, 1]
    assert "stored as numbers from 0" in grading.note


@given(
    st.permutations(["Mayo 0", "Mayo 1", "Mayo 2", "Mayo 10", *[f"Mayo {n}" for n in range(3, 10)]])
)
def test_names_that_end_in_numbers_are_ordered_by_number(values: list[str]) -> None:
    grading = grade_values(values)
    assert grading.names[2] == "Mayo 2"
    assert grading.names[-1] == "Mayo 10"
    assert [grading.names[code] for code in grading.codes] == values


@pytest.mark.parametrize(
    "names",
    [
        ("0_none", "1_mild", "2_moderate"),
        ("1. none", "2. mild"),
        ("0 - no DR", "1 - mild 2", "2 - severe 1"),
    ],
)
def test_names_that_begin_with_numbers_are_ordered_by_number(names: tuple[str, ...]) -> None:
    assert grade_values(sorted(names, reverse=True)).names == names


@pytest.mark.parametrize(
    "values",
    [
        ["0-12", "13-19", "20-29"],
        ["1st", "2nd"],
        ["0_none", "mild"],
        ["none", "mild", "severe"],
        ["Mayo 1", "healthy"],
        ["A1", "B2"],
        ["early", "1", "late"],
    ],
)
def test_an_order_is_never_guessed(values: list[str]) -> None:
    with refuses("grades_without_order", "grades"):
        grade_values(values)


@pytest.mark.parametrize(
    ("values", "missing"),
    [(["0", "1", "3"], "2"), (["G1", "G3"], "2"), (["2", "3"], "1"), (["0_none", "2_severe"], "1")],
)
def test_a_gap_is_named_with_the_way_out(values: list[str], missing: str) -> None:
    with refuses("grades_with_gap", "grades") as raised:
        grade_values(values)
    assert f"gap at {missing}" in str(raised.value)


def test_what_does_not_fit_is_reported_not_dropped() -> None:
    grading = grade_values(["0", "", "1", "2.5", "x", "nan", "-1"])
    assert grading.codes.tolist() == [0, -1, 1, -1, -1, -1, -1]
    kinds = {row: kind for row, (kind, _) in grading.invalid.items()}
    assert kinds == dict.fromkeys((1, 5), "missing-grade") | dict.fromkeys(
        (3, 4, 6), "invalid-grade"
    )
    assert grading.invalid[3][1] == "'2.5' is not one of 0, 1"


def test_listed_names_are_found_whatever_their_case() -> None:
    grading = grade_values(["Severe", "none", "MILD", "servere"], names=["None", "mild", "severe"])
    assert grading.codes.tolist() == [2, 0, 1, -1]
    assert "'servere'" in grading.invalid[3][1]
    assert grade_values(["Mayo 0", "mayo 0", "MAYO  1"]).codes.tolist() == [0, 0, 1]
    without_2 = grade_values(["0", "1", "3.0"], names=["0", "1", "2", "3"])
    assert without_2.codes.tolist() == [0, 1, 3]


def test_names_can_be_listed_for_numbers() -> None:
    names = ["none", "mild", "severe"]
    assert grade_values(["0", "2", "3"], names=names).codes.tolist() == [0, 2, -1]
    assert grade_values(["1", "3", "2"], names=names).codes.tolist() == [0, 2, 1]
    with refuses("ambiguous", "grades"):
        grade_values(["1", "2"], names=names)
    # a name may look like no value
    assert grade_values(["NA", "mild", ""], names=["NA", "mild"]).codes.tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("values", "names", "refused"),
    [
        (["1", "1"], None, ("too_few", "", "Only one grade")),
        (["2", "2"], None, ("too_few", "", "Only one grade")),
        (["", ""], None, ("too_few", "", "No sample has")),
        (["a"], ["b", "c"], ("unknown_grade", "grades")),
        (["a"], ["a"], ("too_few", "grades")),
        (["a"], ["a", "A"], ("not_unique", "grades")),
        (["0.5", "0.25"], None, ("unknown_grade",)),
        (["grade 1", "grade 01", "grade 2"], None, ("not_unique",)),
    ],
)
def test_nothing_to_grade_is_one_sentence(
    values: list[str], names: list[str] | None, refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        grade_values(values, names=names)


def test_cells_become_what_a_person_would_type() -> None:
    assert [as_text(value) for value in (None, np.nan, pd.NaT)] == [""] * 3
    cells = (2.0, np.float32(3), 2.5, "007", 7)
    assert [as_text(value) for value in cells] == ["2", "3", "2.5", "007", "7"]


GRADES = ("0", "1", "2")
NAMES = {"0": "none", "1": "doubtful", "2": "minimal"}


def test_names_are_read_and_shown() -> None:
    named = Grades(GRADES).named(parse_grade_names("2=minimal, 0 = none,1=doubtful"))
    assert named.names == NAMES
    assert named == GRADES  # the same grades: names are for people
    assert named.named(None).names == NAMES
    assert named.shown == ["0 (none)", "1 (doubtful)", "2 (minimal)"]
    assert [named.show("1"), named.show(1), named.show("9")] == [
        "1 (doubtful)",
        "1 (doubtful)",
        "9",
    ]
    assert Grades(GRADES, {}).shown == list(GRADES)
    assert Grades(("mild", "bad"), {"mild": "mild", "bad": "bad"}).show("mild") == "mild"
    copied = pickle.loads(pickle.dumps(named))
    assert (copied, copied.names) == (named, NAMES)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0=none,1=doubtful,3=minimal", "Unknown grade (in the grade names) '3'"),
        ("0=none,1=doubtful", "must name every grade; there is none for 2"),
        (
            "0=none,1=doubtful,1=mild,2=minimal",
            "The grade '1' has two names: 'doubtful' and 'mild'",
        ),
        ("0=none,1=None,2=minimal", "The grades '0' and '1' have the same name, 'None'"),
        ("0=none,1=,2=minimal", "'1=' is not GRADE=NAME"),
        ("none,doubtful,minimal", "'none' is not GRADE=NAME"),
        ("", "is not GRADE=NAME"),
        ("0=a\x1b[31m,1=b,2=c", "printable letters"),
        (f"0={'x' * 61},1=b,2=c", "1 to 60 printable letters"),
    ],
)
def test_bad_names_are_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SrjtError) as raised:
        Grades(GRADES, parse_grade_names(text))
    assert sentence in str(raised.value)


def test_a_grade_is_found_by_itself_before_its_name() -> None:
    grades = Grades(GRADES, NAMES)
    assert grades.find(1) == 1
    assert grades.find(" Minimal ") == 2
    assert Grades(GRADES, {"0": "1", "1": "2", "2": "3"}).find("1") == 1
    with refuses("unknown_name", says="4"):
        grades.find(4)
    with refuses("wrong_type", "grade_names"):
        Grades(GRADES, "0=none")  # type: ignore[arg-type]
