"""A patient has one spelling, grades are few, and neither goes through a float or is a date."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from refusals import refuses
from srjt.data.grades import MOST_GRADES
from srjt.data.manifest import LeakageWarning
from srjt.data.names import one_spelling


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Jos\u00e9", "Jose\u0301"),
        ("p1", " p1 "),
        ("p1", "p\u200b1"),
        ("p1", "\ufeffp1"),
        ("\u212b", "\u00c5"),
    ],
)
def test_names_that_look_the_same_are_one_patient(one: str, other: str) -> None:
    assert len(set(one_spelling([one, other, "x"]))) == 2


@pytest.mark.parametrize(("one", "other"), [("P1", "p1"), ("p１", "p1"), ("Straße", "STRASSE")])
def test_names_that_differ_in_case_or_width_are_reported(one: str, other: str) -> None:
    with pytest.warns(LeakageWarning, match="1 patients are written in two ways"):
        assert len(set(one_spelling([one, other, "x"]))) == 3


def test_one_patient_in_two_spellings_is_on_one_side(tmp_path: Path) -> None:
    """Composed and not: one person was in training and in test."""
    rows = [
        (f"{row}", row % 3, f"e\u0301{row // 4}" if row % 2 else f"\u00e9{row // 4}")
        for row in range(40)
    ]
    table = pd.DataFrame(rows, columns=["id", "grade", "patient"]).assign(
        f0=np.arange(40.0), f1=1.0
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    manifest = srjt.data.read(tmp_path / "a.csv", feature_columns="f*")
    assert len(set(manifest.patients or ())) == 10


def test_large_whole_numbers_of_parquet_stay_different(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    ids = pd.array([2**53 + row // 2 for row in range(40)], dtype="Int64")
    table = pd.DataFrame(
        {"patient": ids, "grade": np.arange(40) % 3, "f0": np.arange(40.0), "f1": 0.0}
    )
    table.loc[7, "patient"] = pd.NA
    table.to_parquet(tmp_path / "a.parquet")
    manifest = srjt.data.read(tmp_path / "a.parquet", feature_columns="f*")
    known = {name for name in manifest.patients or () if not name.startswith("unknown")}
    assert known == {str(2**53 + row) for row in range(20)}


def test_ids_that_a_float_cannot_hold_are_refused() -> None:
    table = pd.DataFrame(
        {"patient": [2.0**53 + 2 * row for row in range(40)], "grade": np.arange(40) % 3}
    )
    with refuses("wrong_type", says="'patient'"):
        srjt.data.read(table.assign(f0=np.arange(40.0), f1=0.0), feature_columns="f*")


@pytest.mark.parametrize("count", [MOST_GRADES + 1, 5_000])
def test_more_grades_than_a_severity_has(count: int) -> None:
    labels = np.tile(np.arange(count), 6)
    with refuses("too_many", "grade_column", says=f"{count:,} grades"):
        srjt.data.from_arrays(np.zeros((len(labels), 3)), labels)
    with refuses("too_many", "grade_column"):
        srjt.data.from_arrays(
            np.zeros((4, 3)), ["g1", "g2", "g1", "g2"], names=[f"g{n}" for n in range(count)]
        )


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=3),
        pd.to_timedelta([1, 2, 3], unit="s"),
        ["2020-01-01", "2020-01-02", "2020-01-03"],
    ],
)
def test_dates_and_durations_are_no_grades(values: object) -> None:
    table = pd.DataFrame({"grade": list(values) * 10, "f0": np.arange(30.0), "f1": 1.0})  # type: ignore[call-overload]
    with refuses("wrong_values", "grade_column"):
        srjt.data.read(table, feature_columns="f*")
