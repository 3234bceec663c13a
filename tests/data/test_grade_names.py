"""Names of grades for people."""

from __future__ import annotations

import pytest

from srjt.data.grade_names import check_grade_names, display_grade, find_grade, parse_grade_names
from srjt.errors import SrjtError

GRADES = ("0", "1", "2")
NAMES = {"0": "none", "1": "doubtful", "2": "minimal"}


def test_names_are_read_and_shown() -> None:
    assert check_grade_names(parse_grade_names("2=minimal, 0 = none,1=doubtful"), GRADES) == NAMES
    assert [display_grade(grade, NAMES) for grade in GRADES] == ["0 (none)", "1 (doubtful)", "2 (minimal)"]
    assert [display_grade(grade, {}) for grade in GRADES] == list(GRADES)
    assert display_grade("mild", {"mild": "mild"}) == "mild"
    assert check_grade_names({}, GRADES) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0=none,1=doubtful,3=minimal", "Unknown grade (in the grade names) '3'"),
        ("0=none,1=doubtful", "must name every grade; there is none for 2"),
        ("0=none,1=doubtful,1=mild,2=minimal", "The grade '1' has two names: 'doubtful' and 'mild'"),
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
        check_grade_names(parse_grade_names(text), GRADES)
    assert sentence in str(raised.value)


def test_a_grade_is_found_by_itself_before_its_name() -> None:
    assert find_grade(1, GRADES, NAMES) == 1
    assert find_grade(" Minimal ", GRADES, NAMES) == 2
    assert find_grade("1", ("0", "1", "2"), {"0": "1", "1": "2", "2": "3"}) == 1
    with pytest.raises(SrjtError, match="Unknown grade 4"):
        find_grade(4, GRADES, NAMES)
    with pytest.raises(SrjtError, match="a mapping"):
        check_grade_names("0=none", GRADES)  # type: ignore[arg-type]
