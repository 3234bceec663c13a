"""REDCap: exports as it writes them, raw and labelled, with repeated instruments and a data
dictionary beside them."""

import csv
from pathlib import Path

import pytest

import srjt
from refusals import refuses
from srjt.data.sources.readings import read_readings

SCALE = "0, Normal | 1, Mild | 2, Moderate, patchy | 3, Severe | 9, Not gradable"
FIELDS = [
    ("record_id", "base", "text", "Record ID", ""),
    ("photo", "base", "text", "Photo file", ""),
    ("site", "base", "dropdown", "Site", "1, North | 2, South"),
    ("reader", "reading", "dropdown", "Who reads", "1, Dr A | 2, Dr B"),
    (
        "mayo",
        "reading",
        "radio",
        "Mayo score",
        "0, Normal | 1, Mild | 2, Moderate, patchy | 3, Severe | 9, Not gradable",
    ),
    ("read_date", "reading", "text", "Date", ""),
]
RAW = [
    "record_id",
    "redcap_repeat_instrument",
    "redcap_repeat_instance",
    "photo",
    "site",
    "base_complete",
    "reader",
]
RAW += ["mayo", "read_date", "reading_complete"]
LABELLED = [
    "Record ID",
    "Repeat Instrument",
    "Repeat Instance",
    "Photo file",
    "Site",
    "Complete?",
    "Who reads",
]
LABELLED += ["Mayo score", "Date", "Complete?"]
CHOICE = {
    "site": {"1": "North", "2": "South"},
    "reader": {"1": "Dr A", "2": "Dr B"},
    "mayo": {
        "0": "Normal",
        "1": "Mild",
        "2": "Moderate, patchy",
        "3": "Severe",
        "9": "Not gradable",
    },
}
ROWS = [
    ["007", "", "", "a.png", "1", "2", "", "", "", ""],
    ["007", "reading", "1", "", "", "", "1", "3", "2026-01-02", "2"],
    ["007", "reading", "2", "", "", "", "2", "2", "2026-01-03", "2"],
    ["008", "", "", "b.png", "2", "2", "", "", "", ""],
    ["008", "reading", "1", "", "", "", "1", "9", "2026-01-02", "2"],
    ["008", "reading", "2", "", "", "", "2", "0", "2026-01-04", "2"],
]


def write(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(rows)
    return path


def write_dictionary(folder: Path, *, by_program: bool = False) -> Path:
    names = ["Variable / Field Name", "Form Name", "Field Type", "Field Label"]
    names += ["Choices, Calculations, OR Slider Labels"]
    if by_program:
        names = [
            "field_name",
            "form_name",
            "field_type",
            "field_label",
            "select_choices_or_calculations",
        ]
    return write(folder / "Study_DataDictionary_2026-01-31.csv", [names, *map(list, FIELDS)])


def labelled(row: list[str]) -> list[str]:
    return [CHOICE.get(name, {}).get(cell, cell) for name, cell in zip(RAW, row, strict=True)]


@pytest.mark.parametrize("by_program", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_raw_and_labelled_exports_are_the_same_readings(
    tmp_path: Path, labels: bool, by_program: bool
) -> None:
    write_dictionary(tmp_path, by_program=by_program)
    rows = [LABELLED, *map(labelled, ROWS)] if labels else [RAW, *ROWS]
    table = read_readings(write(tmp_path / "Study_DATA.csv", rows), image_column="photo")
    readings = table.readings
    assert readings.grades == (
        "Normal",
        "Mild",
        "Moderate, patchy",
        "Severe",
    )  # in the order of the dictionary
    assert readings.items == ["a.png", "b.png"]  # filled up from the record
    assert readings.groups == ["007", "008"]
    named = [
        (readings.readers[reader], readings.grades[grade])
        for reader, grade in zip(readings.reader, readings.grade, strict=True)
    ]
    assert named == [("Dr A", "Severe"), ("Dr B", "Moderate, patchy"), ("Dr B", "Normal")]
    assert table.frame["site"].tolist() == ["North", "North", "South", "South"]
    assert any("left empty: 1" in note for note in table.notes)


def test_a_project_without_repeats_is_a_table_of_labels(tmp_path: Path) -> None:
    write_dictionary(tmp_path)
    rows = [
        ["record_id", "photo", "mayo"],
        ["1", "a.png", "0"],
        ["2", "b.png", "3"],
        ["3", "c.png", "1"],
    ]
    manifest = srjt.data.read(write(tmp_path / "data.csv", rows), image_column="photo")
    assert manifest.grades == ("Normal", "Mild", "Moderate, patchy", "Severe")
    assert manifest.labels.tolist() == [0, 3, 1]
    assert manifest.patients == ["1", "2", "3"]


def test_visits_keep_their_own_values(tmp_path: Path) -> None:
    write_dictionary(tmp_path)
    header = [
        "record_id",
        "redcap_event_name",
        "redcap_repeat_instrument",
        "redcap_repeat_instance",
        "photo",
        "reader",
        "mayo",
    ]
    rows = [
        ["1", "visit_1", "", "", "one.png", "", ""],
        ["1", "visit_1", "reading", "1", "", "1", "0"],
        ["1", "visit_2", "", "", "two.png", "", ""],
        ["1", "visit_2", "reading", "1", "", "1", "3"],
    ]
    table = read_readings(write(tmp_path / "data.csv", [header, *rows]), image_column="photo")
    assert table.readings.items == ["one.png", "two.png"]
    assert table.readings.grade.tolist() == [0, 3]


def test_a_table_without_its_dictionary_is_a_plain_table(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", [["image", "grade"], ["a.png", "0"], ["b.png", "1"]])
    write_dictionary(tmp_path)  # of another project
    assert srjt.data.read(path).grades == ("0", "1")


def test_two_questions_with_one_label_are_an_error(tmp_path: Path) -> None:
    write_dictionary(tmp_path)
    rows = [[*LABELLED, "Mayo score"], *([*labelled(row), ""] for row in ROWS)]
    with refuses("not_unique", says="raw"):
        read_readings(write(tmp_path / "data.csv", rows))
