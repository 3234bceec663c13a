"""Tables of labels: CSV, Excel, Parquet; their columns, images and problems."""

import os
import sys
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from PIL import Image

from refusals import refuses
from srjt.data import check, from_arrays, read
from srjt.data.images.store import open_store
from srjt.data.sources import table as excel
from srjt.data.sources.table import write_table


def picture(path: Path, shade: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), (shade, shade, shade)).save(path)
    return path


def table(folder: Path, text: str, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def kinds(problems: tuple[object, ...]) -> dict[str, int]:
    return dict(Counter(problem.kind for problem in problems))  # type: ignore[attr-defined]


def test_a_table_is_understood_by_its_column_names(tmp_path: Path) -> None:
    labels = (
        "File Name,Patient ID,Severity,reader\nx/a.png,007,2,anna\nx/b.png,7,0,\nx/c.png,08,1,bo\n"
    )
    reading = read(table(tmp_path, labels))
    manifest = reading
    assert reading.report.kind == "table"
    assert not reading.report.problems
    assert manifest.labels.tolist() == [2, 0, 1]
    assert manifest.patients == ["007", "7", "08"]
    assert manifest.ids == ["x/a.png", "x/b.png", "x/c.png"]
    assert manifest.paths[0] == tmp_path / "x/a.png"
    assert manifest.table["reader"].tolist() == ["anna", "", "bo"]
    assert "patient: column 'Patient ID' (by its name)" in reading.report.notes


def test_columns_can_be_named_and_the_more_telling_name_wins(tmp_path: Path) -> None:
    path = table(tmp_path, "image,label,grade,second\na.png,0,1,1\nb.png,1,0,0\n")
    assert read(path).labels.tolist() == [1, 0]
    assert "grade: column 'grade' (by its name, not 'label')" in read(path).report.notes
    assert read(path, grade_column="label").labels.tolist() == [0, 1]
    reading = read(path, grade_column="label", true_grade_column="second")
    assert reading.true_labels.tolist() == [1, 0]
    assert reading.table["grade_source"].tolist() == ["1", "0"]


def test_verified_grades_are_of_a_few_rows(tmp_path: Path) -> None:
    path = table(
        tmp_path, "image,grade,Verified grade\na.png,0,\nb.png,2,1\nc.png,1,n/a\nd.png,0,0\n"
    )
    reading = read(path)
    manifest = reading
    assert not reading.report.problems
    assert "verified grade: column 'Verified grade' (by its name)" in reading.report.notes
    assert manifest.grades == ("0", "1", "2")
    assert manifest.verified_labels.tolist() == [-1, 1, -1, 0]
    write_table(manifest, tmp_path / "again.csv")
    again = read(tmp_path / "again.csv")
    pd.testing.assert_frame_equal(again.table, manifest.table)
    assert manifest.select([0, 2]).verified_labels is None
    arrays = from_arrays(np.zeros((3, 2)), [0, 1, 0], verified_grades=[None, 1, float("nan")])
    assert arrays.table["verified_grade"].tolist() == [-1, 1, -1]


def test_a_verified_grade_that_is_none_is_a_problem_of_its_row(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade,checked\na.png,0,0\nb.png,1,maybe\nc.png,1,\n")
    reading = read(path, verified_grade_column="checked")
    (problem,) = reading.report.problems
    assert problem.detail == "line 3: verified grade: 'maybe' is not one of 0, 1"
    assert reading.ids == ["a.png", "c.png"]
    with refuses("unknown_grade", says="Verified"):
        replace(reading, table=reading.table.assign(verified_grade=2))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    with refuses("unknown_name", says=("'patientt'", "'patient'")):
        read(table(tmp_path, "image,grade,patient\na.png,0,1\n"), patient_column="patientt")
    with refuses("wrong_type", "grades"):
        read("nowhere.csv", grades=3)
    with refuses("wrong_values", "true_grade_column", says="1 of 2"):
        read(table(tmp_path, "image,grade,true_grade\na.png,0,0\nb.png,1,\n"))
    with refuses("missing_column", "grade_column"):
        read(table(tmp_path, "image,value\na.png,0\n"))


def test_images_can_be_elsewhere_and_every_file_has_one_name(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    root = tmp_path / "pictures"
    reading = read(
        table(tmp_path, f"image,grade\n./a.png,0\nx\\b.png,1\n{root}/x/c.png,1\n"), images=root
    )
    assert reading.ids == ["a.png", "x/b.png", "x/c.png"]
    assert reading.paths == [root / "a.png", root / "x/b.png", root / "x/c.png"]


def test_names_without_a_suffix_are_completed_from_the_files(tmp_path: Path) -> None:
    picture(tmp_path / "s/10_left.png")
    picture(tmp_path / "s/10_right.jpg")
    picture(tmp_path / "s/10_right.png")
    reading = read(table(tmp_path, "image,grade\ns/10_left,0\ns/10_right,1\ns/11_left,1\n"))
    assert [path.name for path in reading.paths] == [
        "10_left.png",
        "10_right.jpg",
        "11_left",
    ]
    assert reading.ids == ["s/10_left", "s/10_right", "s/11_left"]
    assert kinds(reading.report.problems) == {"ambiguous-image": 1}


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", ",")])
def test_other_separators_quotes_and_a_byte_order_mark(
    tmp_path: Path, name: str, mark: str
) -> None:
    path = tmp_path / name
    path.write_text(
        f'image{mark}grade\n"a, b; c.png"{mark}0\n\nd.png{mark}1\n', encoding="utf-8-sig"
    )
    assert read(path).ids == ["a, b; c.png", "d.png"]


def test_every_bad_row_is_told_at_once_and_none_is_lost(tmp_path: Path) -> None:
    rows = [
        "image,grade,patient",
        "a.png,0,1",
        "b.png,,1",  # no grade
        "c.png,7.5,1",  # no grade of this scale
        "d.png,1,2",
        "d.png,1,2",  # repeats
        "e.png,1,2",
        "./e.png,0,2",  # contradicts
        "f.png,1,2",
        "f.png,1,3",  # contradicts in its patient
        "g.png,1",  # a cell short
        ",1,4",  # no image
        "h.png,0,",  # no patient
        "i.png,0,NA",
    ]
    reading = read(table(tmp_path, "\n".join(rows)))
    assert reading.ids == ["a.png", "d.png", "h.png", "i.png"]
    assert kinds(reading.report.problems) == {
        "malformed-row": 1,
        "missing-grade": 1,
        "invalid-grade": 1,
        "missing-image": 1,
        "missing-patient": 2,
        "duplicate-row": 1,
        "conflicting-rows": 2,
    }
    details = {problem.where: problem.detail for problem in reading.report.problems}
    assert details["line 11"] == "2 cells where the header has 3"
    assert details["e.png"] == "line 7, line 8: grades 1 and 0"
    assert details["f.png"] == "line 9, line 10: patients 2 and 3"
    assert details["c.png"] == "line 4: '7.5' is not one of 0, 1"
    assert len(set(reading.patients)) == 4  # unknown ones are not one patient


def test_own_ids_are_kept_when_they_are_ids(tmp_path: Path) -> None:
    assert read(table(tmp_path, "id,image,grade\nu,a.png,0\nv,b.png,1\n")).ids == [
        "u",
        "v",
    ]
    assert read(table(tmp_path, "id,image,grade\nu,a.png,0\nu,b.png,1\n")).ids == [
        "a.png",
        "b.png",
    ]


def test_a_split_column_is_taken_when_it_speaks_of_one(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade,set\na.png,0,Train\nb.png,1,val\nc.png,1,\n")
    assert read(path).table["split"].tolist() == ["train", "validation", ""]
    path = table(tmp_path, "image,grade,phase\na.png,0,training\nb.png,1,testing\n")
    assert read(path).table["split"].tolist() == ["train", "test"]
    path = table(tmp_path, "image,grade,set\na.png,0,left\nb.png,1,right\n")
    assert read(path).table["set"].tolist() == ["left", "right"]
    with refuses("wrong_values", "split_column", says=("'set'", "'left'")):
        read(path, split_column="set")


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (b"", ("too_few", "", "labels.csv")),
        (b"image,grade\n", ("unusable_samples", "", "no rows in")),
        (b"image,grade\n\xff\xfe,0\n", ("unreadable_file",)),
        (b"image,grade,grade\na,0,0\n", ("not_unique", "", "'grade'")),
        (b"image,grade\na\nb\n", ("unusable_samples", "", "line 2")),
        (b"image,grade\n,0\n,1\n", ("unusable_samples", "", "None of the")),
    ],
)
def test_a_hopeless_table_is_one_sentence(
    tmp_path: Path, content: bytes, refused: tuple[str, ...]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with refuses(*refused):
        read(path)


def test_an_unclosed_quote_hides_no_rows(tmp_path: Path) -> None:
    rows = [f"{n}.png,{n % 2}" for n in range(60)]
    rows[29] = '29.png,"1'
    with refuses("wrong_file", says="line 31"):
        read(table(tmp_path, "\n".join(["image,grade", *rows])))
    rows[40] += '"'  # a second stray quote closes the first
    reading = read(table(tmp_path, "\n".join(["image,grade", *rows])))
    assert [(problem.kind, problem.where) for problem in reading.report.problems] == [
        ("malformed-row", "line 31")
    ]
    assert "ends in line 42 contains other rows" in reading.report.problems[0].detail


@pytest.mark.parametrize("line", ["", "a.png,1,,", "12.png, 0"])
def test_no_swallowed_line_hides_the_others(tmp_path: Path, line: str) -> None:
    rows = [f"{n}.png,{n % 2}" for n in range(20)]
    rows[9:16:3] = ['9.png,"1', line, '15.png,1"']
    reading = read(table(tmp_path, "\n".join(["image,grade", *rows])))
    assert [(problem.kind, problem.where) for problem in reading.report.problems] == [
        ("malformed-row", "line 11")
    ]


def test_a_report_of_several_lines_is_one_cell(tmp_path: Path) -> None:
    report = '"no findings,\nerosions: none, ulcers: none, bleeding: none"'
    reading = read(table(tmp_path, f"image,grade,report\na.png,0,{report}\nb.png,1,\n"))
    assert reading.ids == ["a.png", "b.png"]
    assert not reading.report.problems


def test_excel(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.create_sheet("notes")
    sheet = book.active
    for row in [
        ("image", "grade", "patient", None),
        ("a.png", 0, "007"),
        (None,) * 3,
        ("b.png", 1.0),
    ]:
        sheet.append(row)
    sheet.append(("c.png", 1, 8, None, "astray"))
    book.save(tmp_path / "labels.xlsx")
    reading = read(tmp_path / "labels.xlsx")
    assert reading.ids == ["a.png", "b.png"]
    assert reading.labels.tolist() == [0, 1]
    found = {p.kind: p.where for p in reading.report.problems}
    assert found == {"malformed-row": "row 5", "missing-patient": "b.png"}
    assert "sheet 'Sheet'; 1 other sheet is not read" in reading.report.notes


@pytest.mark.parametrize(
    ("kind", "reader", "damaged"),
    [
        ("xlsx", "openpyxl", "Excel file: File is not a zip file"),
        ("parquet", "pyarrow", "Parquet"),
    ],
)
def test_damaged_or_no_reader(
    tmp_path: Path, monkeypatch: Any, kind: str, reader: str, damaged: str
) -> None:
    path = table(tmp_path, "something else", f"labels.{kind}")
    with refuses("wrong_file", says=damaged):
        read(path)
    monkeypatch.setitem(sys.modules, reader, None)
    with refuses("missing_extra", says=f'pip install "{reader}>='):
        read(path)


@pytest.mark.parametrize(("folder", "suffix"), [("images", ""), ("img", ".png")])
def test_images_in_a_folder_beside_the_table_are_found(
    tmp_path: Path, folder: str, suffix: str
) -> None:
    picture(tmp_path / folder / "a.png")
    picture(tmp_path / folder / "b.png")
    path = table(tmp_path, f"id_code,diagnosis\na{suffix},0\nb{suffix},1\n")
    for reading in (read(path), read(path, images=tmp_path)):
        assert reading.paths == [tmp_path / folder / "a.png", tmp_path / folder / "b.png"]
        assert reading.ids == [f"a{suffix}", f"b{suffix}"]


def test_a_file_without_the_suffix_of_its_name_is_found(tmp_path: Path) -> None:
    picture(tmp_path / "a.png").rename(tmp_path / "a")
    picture(tmp_path / "b.png")
    manifest = read(table(tmp_path, "image,grade\na.dcm,0\nb.dcm,1\n"))
    assert [path.name for path in manifest.paths] == ["a", "b.dcm"]  # b.png is another image


def test_sixty_grades_for_sixty_images_are_not_grades(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade\n" + "\n".join(f"{n}.png,{n}" for n in range(60)))
    with refuses("too_many", "grade_column"):
        read(path)
    assert read(path, grades=[str(n) for n in range(60)]).num_classes == 60
    for patient in range(30):
        picture(tmp_path / "folders" / f"{patient}/a.png")
    with refuses("too_many", "grade_column", says="30"):
        read(tmp_path / "folders")


@pytest.mark.parametrize("name", ["x" * 300, "y" * 300 + "/a.png", "a\0b", "a\0b/c.png"])
def test_impossible_file_names_are_missing_images(tmp_path: Path, name: str) -> None:
    picture(tmp_path / "a.png")
    manifest = read(table(tmp_path, f"image,grade\na.png,0\n{name},1\n"))
    (problem,) = (found for found in check(manifest, folds=0) if found.kind == "missing-image")
    assert "too long" in problem.detail or "NUL" in problem.detail
    with refuses("unusable_samples", "on_bad_image", says="1 of 2"):
        open_store(manifest, size=8, cache=tmp_path / "cache")
    for impossible in (tmp_path / name, tmp_path / f"{name}.csv"):
        with refuses("missing_file"):
            read(impossible)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("a.csv", "a.npz", "a.npy", "a.parquet", "a.xlsx", "trainLabels.csv"):
        os.mkfifo(tmp_path / name)
        with refuses("unreadable_file", says="a pipe"):
            read(tmp_path / name)
    with refuses("unreadable_file", says="a pipe"):
        read("/dev/zero", kind="table")


def test_parquet_keeps_ids_and_missing_values_and_lists_as_text(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    columns = {
        "image": ["a", "b"],
        "grade": pd.array([0, 1], dtype="Int64"),
        "boxes": [[1, 2], None],
    }
    pd.DataFrame(columns).to_parquet(path)
    assert read(path).table["boxes"].tolist() == ["[1 2]", ""]
    with refuses("grades_without_order", "grades"):
        read(path, grade_column="boxes")
    patients = ["007", "8", "9"]
    pd.DataFrame(
        {"image": list("abc"), "grade": [0.0, 1.0, np.nan], "patient": patients}
    ).to_parquet(path)
    reading = read(path)
    assert reading.labels.tolist() == [0, 1]
    assert reading.patients == ["007", "8"]
    assert reading.report.problems[0].kind == "missing-grade"
    assert "row 2" in reading.report.problems[0].detail


def test_what_is_written_is_read_back_from_any_folder(tmp_path: Path) -> None:
    picture(tmp_path / "data/x/a.png")
    reading = read(
        table(tmp_path / "data", "image,level,patient,eye\nx/a.png,G1,01,l\nx/b.png,G2,02,r\n")
    )
    noisy = reading.with_noisy_labels([1, 1])
    (tmp_path / "out").mkdir()
    write_table(noisy, tmp_path / "out/noisy.csv")
    again = read(tmp_path / "out/noisy.csv")
    assert again.ids == noisy.ids
    assert again.grades == ("G1", "G2")
    assert again.labels.tolist() == [1, 1]
    assert again.true_labels.tolist() == [0, 1]
    assert again.patients == ["01", "02"]
    assert again.table["eye"].tolist() == ["l", "r"]
    assert again.paths[0].samefile(tmp_path / "data/x/a.png")


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pandas.errors.PerformanceWarning")
def test_columns_are_not_added_to_a_table_one_by_one() -> None:
    """Each insertion copies the names of all columns: ten thousand took minutes; pandas warns from
    a hundred on."""
    frame = pd.DataFrame(
        {"image": ["a", "b"], "grade": [0, 1], **{f"c{i}": ["x", "y"] for i in range(200)}}
    )
    assert len(read(frame).table.columns) == 203
    features = frame.drop(columns="image").assign(f1=1.0, f2=2.0)
    assert len(read(features, kind="features").table.columns) == 203


def test_excel_cells_that_a_sheet_only_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs write the largest possible dimension: 16,384 columns, a million rows."""
    book = openpyxl.Workbook()
    for row in (["image", "grade"], ["a.png", 0], ["b.png", 1]):
        book.active.append(row)
    small, large = tmp_path / "small.xlsx", tmp_path / "labels.xlsx"
    book.save(small)
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(large, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'ref="A1:B3"', b'ref="A1:XFD1048576"'))
    converted: list[object] = []
    monkeypatch.setattr(excel, "as_text", lambda value: (converted.append(value), str(value))[1])
    assert read(tmp_path / "labels.xlsx").ids == ["a.png", "b.png"]
    assert len(converted) == 6


def test_grades_of_the_source_become_those_wanted() -> None:
    frame = pd.DataFrame({"f0": np.arange(5.0), "grade": ["R0", "R1", "R2", "R2b", "R0"]})
    frame["verified_grade"] = ["R0", "", "R2b", "", "R1"]
    mapping = {"R0": "0", "R1": "1", "R2": "2", "R2b": "2"}
    found = read(frame, feature_columns="f0", map_grades=mapping, grades=["0", "1", "2"])
    assert found.grades == ("0", "1", "2")
    assert found.labels.tolist() == [0, 1, 2, 2, 0]
    assert found.verified_labels.tolist() == [0, -1, 2, -1, 1]
    listed = [f"{own}={grade}" for own, grade in mapping.items()]
    assert read(frame, feature_columns="f0", map_grades=listed).table.equals(found.table)


@pytest.mark.parametrize(
    ("mapping", "refused"),
    [
        ({"R0": "0", "R1": "7"}, ("unknown_name", "map_grades")),
        (["R0"], ("wrong_syntax", "map_grades")),
        ({"A": "0", "B": "1"}, ("unknown_grade", "grades")),
    ],
)
def test_a_mapping_that_does_not_fit(mapping: object, refused: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"f0": [0.0, 1.0], "grade": ["R0", "R1"]})
    with refuses(*refused):
        read(frame, feature_columns="f0", map_grades=mapping, grades=["0", "1"])
