from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from PIL import Image

from srjt.data import check, from_arrays, read
from srjt.data.images.store import open_store
from srjt.data.sources import SOURCES, Reading, Source, dr, limuc
from srjt.data.sources.table import write_table
from srjt.errors import SrjtError


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
    labels = "File Name,Patient ID,Severity,reader\nx/a.png,007,2,anna\nx/b.png,7,0,\nx/c.png,08,1,bo\n"
    reading = read(table(tmp_path, labels))
    manifest = reading.manifest
    assert reading.kind == "table"
    assert not reading.problems
    assert manifest.labels.tolist() == [2, 0, 1]
    assert manifest.patients == ["007", "7", "08"]
    assert manifest.ids == ["x/a.png", "x/b.png", "x/c.png"]
    assert manifest.paths[0] == tmp_path / "x/a.png"
    assert manifest.table["reader"].tolist() == ["anna", "", "bo"]
    assert "patient: column 'Patient ID' (by its name)" in reading.notes


def test_columns_can_be_named_and_the_more_telling_name_wins(tmp_path: Path) -> None:
    path = table(tmp_path, "image,label,grade,second\na.png,0,1,1\nb.png,1,0,0\n")
    assert read(path).manifest.labels.tolist() == [1, 0]
    assert "grade: column 'grade' (by its name, not 'label')" in read(path).notes
    assert read(path, grade_column="label").manifest.labels.tolist() == [0, 1]
    reading = read(path, grade_column="label", true_grade_column="second")
    assert reading.manifest.true_labels is not None
    assert reading.manifest.true_labels.tolist() == [1, 0]
    assert reading.manifest.table["grade_source"].tolist() == ["1", "0"]


def test_verified_grades_are_of_a_few_rows(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade,Verified grade\na.png,0,\nb.png,2,1\nc.png,1,n/a\nd.png,0,0\n")
    reading = read(path)
    manifest = reading.manifest
    assert not reading.problems
    assert "verified grade: column 'Verified grade' (by its name)" in reading.notes
    assert manifest.grades == ("0", "1", "2")
    assert manifest.verified_labels is not None
    assert manifest.verified_labels.tolist() == [-1, 1, -1, 0]
    write_table(manifest, tmp_path / "again.csv")
    again = read(tmp_path / "again.csv").manifest
    pd.testing.assert_frame_equal(again.table, manifest.table)
    assert manifest.select([0, 2]).verified_labels is None
    arrays = from_arrays(np.zeros((3, 2)), [0, 1, 0], verified_grades=[None, 1, float("nan")]).manifest
    assert arrays.table["verified_grade"].tolist() == [-1, 1, -1]


def test_a_verified_grade_that_is_none_is_a_problem_of_its_row(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade,checked\na.png,0,0\nb.png,1,maybe\nc.png,1,\n")
    reading = read(path, verified_grade_column="checked")
    assert [problem.detail for problem in reading.problems] == [
        "line 3: verified grade: 'maybe' is not one of 0, 1"
    ]
    assert reading.manifest.ids == ["a.png", "c.png"]
    with pytest.raises(SrjtError, match="Verified grades must lie in 0 … 1"):
        replace(reading.manifest, table=reading.manifest.table.assign(verified_grade=2))


def test_a_misspelt_column_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="'patientt': did you mean 'patient'"):
        read(table(tmp_path, "image,grade,patient\na.png,0,1\n"), patient_column="patientt")


def test_a_table_without_a_grade_says_which_columns_it_has(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match=r"looks like the grade: .*--grade-column.* Columns: image, value"):
        read(table(tmp_path, "image,value\na.png,0\n"))


def test_images_can_be_elsewhere_and_every_file_has_one_name(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    root = tmp_path / "pictures"
    reading = read(table(tmp_path, f"image,grade\n./a.png,0\nx\\b.png,1\n{root}/x/c.png,1\n"), images=root)
    assert reading.manifest.ids == ["a.png", "x/b.png", "x/c.png"]
    assert reading.manifest.paths == [root / "a.png", root / "x/b.png", root / "x/c.png"]


def test_names_without_a_suffix_are_completed_from_the_files(tmp_path: Path) -> None:
    picture(tmp_path / "s/10_left.png")
    picture(tmp_path / "s/10_right.jpg")
    picture(tmp_path / "s/10_right.png")
    reading = read(table(tmp_path, "image,grade\ns/10_left,0\ns/10_right,1\ns/11_left,1\n"))
    assert [path.name for path in reading.manifest.paths] == ["10_left.png", "10_right.jpg", "11_left"]
    assert reading.manifest.ids == ["s/10_left", "s/10_right", "s/11_left"]
    assert kinds(reading.problems) == {"ambiguous-image": 1}


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", ",")])
def test_other_separators_quotes_and_a_byte_order_mark(tmp_path: Path, name: str, mark: str) -> None:
    path = tmp_path / name
    path.write_text(f'image{mark}grade\n"a, b; c.png"{mark}0\n\nd.png{mark}1\n', encoding="utf-8-sig")
    assert read(path).manifest.ids == ["a, b; c.png", "d.png"]


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
    ]
    reading = read(table(tmp_path, "\n".join(rows)))
    assert reading.manifest.ids == ["a.png", "d.png", "h.png"]
    assert kinds(reading.problems) == {
        "malformed-row": 1,
        "missing-grade": 1,
        "invalid-grade": 1,
        "missing-image": 1,
        "missing-patient": 1,
        "duplicate-row": 1,
        "conflicting-rows": 2,
    }
    details = {problem.where: problem.detail for problem in reading.problems}
    assert details["line 11"] == "2 cells where the header has 3"
    assert details["e.png"] == "line 7, line 8: grades 1 and 0"
    assert details["f.png"] == "line 9, line 10: patients 2 and 3"
    assert details["c.png"] == "line 4: '7.5' is not one of 0, 1"
    patients = reading.manifest.patients
    assert patients is not None
    assert patients[2] not in ("", "1", "2")


def test_samples_of_unknown_patients_are_not_one_patient(tmp_path: Path) -> None:
    patients = read(table(tmp_path, "image,grade,patient\na.png,0,\nb.png,1,NA\n")).manifest.patients
    assert patients is not None
    assert len(set(patients)) == 2


def test_own_ids_are_kept_when_they_are_ids(tmp_path: Path) -> None:
    assert read(table(tmp_path, "id,image,grade\nu,a.png,0\nv,b.png,1\n")).manifest.ids == ["u", "v"]
    assert read(table(tmp_path, "id,image,grade\nu,a.png,0\nu,b.png,1\n")).manifest.ids == ["a.png", "b.png"]


def test_a_split_column_is_taken_when_it_speaks_of_one(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade,set\na.png,0,Train\nb.png,1,val\nc.png,1,\n")
    assert read(path).manifest.table["split"].tolist() == ["train", "validation", ""]
    path = table(tmp_path, "image,grade,set\na.png,0,left\nb.png,1,right\n")
    assert read(path).manifest.table["set"].tolist() == ["left", "right"]
    with pytest.raises(SrjtError, match="'set' must contain train, validation or test; it contains 'left'"):
        read(path, split_column="set")


def test_true_grades_must_be_known_for_all_rows(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="in 1 of 2 rows only"):
        read(table(tmp_path, "image,grade,true_grade\na.png,0,0\nb.png,1,\n"))


def test_a_grade_that_only_the_truth_has_counts(tmp_path: Path) -> None:
    manifest = read(table(tmp_path, "image,grade,true_grade\na.png,0,1\nb.png,2,2\n")).manifest
    assert manifest.grades == ("0", "1", "2")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no rows below its header"),
        (b"image,grade\n", "no rows below its header"),
        (b"image,grade\n\xff\xfe,0\n", "not UTF-8"),
        (b"image,grade,grade\na,0,0\n", "two columns named 'grade'"),
        (b"image,grade\na\nb\n", "No row of .* line 2: 1 cells where the header has 2"),
        (b"image,grade\n,0\n,1\n", "None of the 2 rows can be used"),
    ],
)
def test_a_hopeless_table_is_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(SrjtError, match=sentence):
        read(path)


def test_an_unclosed_quote_hides_no_rows(tmp_path: Path) -> None:
    rows = [f"{n}.png,{n % 2}" for n in range(60)]
    rows[29] = '29.png,"1'
    with pytest.raises(SrjtError, match=r"never closed, in the row that begins in line 31\."):
        read(table(tmp_path, "\n".join(["image,grade", *rows])))
    rows[40] += '"'  # a second stray quote closes the first
    reading = read(table(tmp_path, "\n".join(["image,grade", *rows])))
    assert [(problem.kind, problem.where) for problem in reading.problems] == [("malformed-row", "line 31")]
    assert "ends in line 42 contains other rows" in reading.problems[0].detail


def test_a_report_of_several_lines_is_one_cell(tmp_path: Path) -> None:
    labels = (
        'image,grade,report\na.png,0,"no findings,\nerosions: none, ulcers: none, bleeding: none"\nb.png,1,\n'
    )
    reading = read(table(tmp_path, labels))
    assert reading.manifest.ids == ["a.png", "b.png"]
    assert not reading.problems


def test_excel(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.create_sheet("notes")
    sheet = book.active
    for row in [("image", "grade", "patient", None), ("a.png", 0, "007"), (None,) * 3, ("b.png", 1.0)]:
        sheet.append(row)
    sheet.append(("c.png", 1, 8, None, "astray"))
    book.save(tmp_path / "labels.xlsx")
    reading = read(tmp_path / "labels.xlsx")
    assert reading.manifest.ids == ["a.png", "b.png"]
    assert reading.manifest.labels.tolist() == [0, 1]
    assert [(p.kind, p.where) for p in reading.problems] == [
        ("malformed-row", "row 5"),
        ("missing-patient", "b.png"),
    ]
    assert "sheet 'Sheet'; 1 other sheets are not read" in reading.notes


def test_excel_without_its_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(SrjtError, match=r'pip install "openpyxl>='):
        read(table(tmp_path, "", "labels.xlsx"))


def test_a_damaged_excel_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="cannot be read as an Excel file: File is not a zip file"):
        read(table(tmp_path, "not excel", "labels.xlsx"))


@pytest.mark.parametrize("folder", ["images", "train_images", "img"])
@pytest.mark.parametrize("suffix", ["", ".png"])
def test_images_in_a_folder_beside_the_table_are_found(tmp_path: Path, folder: str, suffix: str) -> None:
    picture(tmp_path / folder / "a.png")
    picture(tmp_path / folder / "b.png")
    path = table(tmp_path, f"id_code,diagnosis\na{suffix},0\nb{suffix},1\n")
    for reading in (read(path), read(path, images=tmp_path)):
        assert reading.manifest.paths == [tmp_path / folder / "a.png", tmp_path / folder / "b.png"]
        assert reading.manifest.ids == [f"a{suffix}", f"b{suffix}"]


def test_a_file_without_the_suffix_of_its_name_is_found(tmp_path: Path) -> None:
    picture(tmp_path / "a.png").rename(tmp_path / "a")
    picture(tmp_path / "b.png")
    manifest = read(table(tmp_path, "image,grade\na.dcm,0\nb.dcm,1\n")).manifest
    assert [path.name for path in manifest.paths] == ["a", "b.dcm"]  # b.png is another image


def test_sixty_grades_for_sixty_images_are_not_grades(tmp_path: Path) -> None:
    path = table(tmp_path, "image,grade\n" + "\n".join(f"{n}.png,{n}" for n in range(60)))
    with pytest.raises(
        SrjtError, match=r"60 different grades \(0, 1, 2, 3, …\) for 60 samples.*--grade-column"
    ):
        read(path)
    assert read(path, grades=[str(n) for n in range(60)]).manifest.num_classes == 60
    for patient in range(30):
        picture(tmp_path / "folders" / f"{patient}/a.png")
    with pytest.raises(SrjtError, match="30 different grades"):
        read(tmp_path / "folders")


@pytest.mark.parametrize("name", ["x" * 300, "y" * 300 + "/a.png", "a\0b", "a\0b/c.png"])
def test_impossible_file_names_are_missing_images(tmp_path: Path, name: str) -> None:
    picture(tmp_path / "a.png")
    manifest = read(table(tmp_path, f"image,grade\na.png,0\n{name},1\n")).manifest
    (problem,) = (found for found in check(manifest, folds=0) if found.kind == "missing-image")
    assert "too long" in problem.detail or "NUL" in problem.detail
    with pytest.raises(SrjtError, match="1 of 2 images cannot be read"):
        open_store(manifest, size=8, cache=tmp_path / "cache")
    for impossible in (tmp_path / name, tmp_path / f"{name}.csv"):
        with pytest.raises(SrjtError, match="does not exist"):
            read(impossible)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("a.csv", "a.npz", "a.npy", "a.parquet", "a.xlsx", "trainLabels.csv"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(SrjtError, match="it is a pipe, a socket or a device, not a regular file"):
            read(tmp_path / name)
    with pytest.raises(SrjtError, match="not a regular file"):
        read("/dev/zero", kind="table")


def test_a_list_column_of_parquet_is_text(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    columns = {"image": ["a", "b"], "grade": pd.array([0, 1], dtype="Int64"), "boxes": [[1, 2], None]}
    pd.DataFrame(columns).to_parquet(path)
    assert read(path).manifest.table["boxes"].tolist() == ["[1 2]", ""]
    with pytest.raises(SrjtError, match="not known from their names"):
        read(path, grade_column="boxes")


def test_parquet_keeps_ids_and_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    frame = pd.DataFrame(
        {"image": ["a", "b", "c"], "grade": [0.0, 1.0, np.nan], "patient": ["007", "8", "9"]}
    )
    frame.to_parquet(path)
    reading = read(path)
    assert reading.manifest.labels.tolist() == [0, 1]
    assert reading.manifest.patients == ["007", "8"]
    assert reading.problems[0].kind == "missing-grade"
    assert "row 3" in reading.problems[0].detail


def test_parquet_without_its_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SrjtError, match=r'pip install "pyarrow>='):
        read(table(tmp_path, "", "labels.parquet"))


def test_a_damaged_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="cannot be read as Parquet"):
        read(table(tmp_path, "not parquet", "labels.parquet"))


def test_what_is_written_is_read_back_from_any_folder(tmp_path: Path) -> None:
    picture(tmp_path / "data/x/a.png")
    reading = read(table(tmp_path / "data", "image,level,patient,eye\nx/a.png,G1,01,l\nx/b.png,G2,02,r\n"))
    noisy = reading.manifest.with_noisy_labels([1, 1])
    (tmp_path / "out").mkdir()
    write_table(noisy, tmp_path / "out/noisy.csv")
    again = read(tmp_path / "out/noisy.csv").manifest
    assert again.ids == noisy.ids
    assert again.grades == ("G1", "G2")
    assert again.labels.tolist() == [1, 1]
    assert again.true_labels is not None
    assert again.true_labels.tolist() == [0, 1]
    assert again.patients == ["01", "02"]
    assert again.table["eye"].tolist() == ["l", "r"]
    assert again.paths[0].samefile(tmp_path / "data/x/a.png")


def test_one_folder_per_grade(tmp_path: Path) -> None:
    for name in ("Grade 10", "Grade 9", "Grade 8", *[f"Grade {n}" for n in range(1, 7)]):
        picture(tmp_path / name / "deep/a.png")
    (tmp_path / "Grade 7").mkdir()  # no sample has it
    (tmp_path / "Grade 8/notes.doc").write_text("?")
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "README").write_text("")
    reading = read(tmp_path)
    assert reading.kind == "folders"
    assert reading.manifest.grades == tuple(f"Grade {n}" for n in range(1, 11))
    assert reading.manifest.class_counts.tolist() == [1] * 6 + [0] + [1] * 3
    assert {problem.where for problem in reading.problems} == {"Grade 8/notes.doc", "README"}
    assert "Grade 9/deep/a.png" in reading.manifest.ids


def test_images_without_a_suffix_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("0/IM0001", "0/1.2.840.5", "1/IM0003"):
        picture(tmp_path / f"{name}.png").rename(tmp_path / name)
    (tmp_path / "1/README").write_text("P5 is not always a portable grey map")
    (tmp_path / "1/DICOMDIR").write_bytes(bytes(128) + b"DICM")
    os.mkfifo(tmp_path / "1/pipe.png")
    reading = read(tmp_path)
    assert reading.manifest.ids == ["0/1.2.840.5", "0/IM0001", "1/IM0003"]
    assert {problem.where: problem.detail for problem in reading.problems} == {
        "1/DICOMDIR": "not an image",
        "1/README": "not an image",
        "1/pipe.png": "it is a pipe, a socket or a device, not a regular file",
    }


def test_named_folders_need_an_order(tmp_path: Path) -> None:
    picture(tmp_path / "mild/a.png")
    picture(tmp_path / "severe/a.png")
    with pytest.raises(SrjtError, match="mild, severe is not known"):
        read(tmp_path)
    assert read(tmp_path, grades=["severe", "mild"]).manifest.labels.tolist() == [1, 0]


def test_folders_below_train_and_test(tmp_path: Path) -> None:
    for side in ("train", "val", "test"):
        picture(tmp_path / side / "0/a.png")
        picture(tmp_path / side / "1/a.png")
    manifest = read(tmp_path).manifest
    assert manifest.grades == ("0", "1")
    assert Counter(manifest.table["split"]) == {"train": 2, "validation": 2, "test": 2}


def test_a_folder_without_images_or_options_that_do_not_apply(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="no images in subfolders"):
        read(tmp_path)
    picture(tmp_path / "0/a.png")
    picture(tmp_path / "1/a.png")
    with pytest.raises(
        SrjtError, match=r"--grade-column applies to features, table, but .* is read as folders"
    ):
        read(tmp_path, grade_column="grade")
    with pytest.raises(SrjtError, match="did you mean 'folders'"):
        read(tmp_path, kind="folder")
    with pytest.raises(SrjtError, match="does not exist"):
        read(tmp_path / "nowhere")
    with pytest.raises(SrjtError, match="neither a folder nor a file of a known kind"):
        read(picture(tmp_path / "x.png"))


def test_a_folder_with_a_label_table_is_that_table(tmp_path: Path) -> None:
    table(tmp_path, "image,grade\na.png,0\nb.png,1\n")
    assert read(tmp_path).kind == "table"


def test_limuc_is_recognised_below_its_archive_folder_too(tmp_path: Path) -> None:
    root = tmp_path / "patient_based_classified_images"
    picture(root / "12/Mayo 0/a.bmp")
    picture(root / "12/Mayo 3/b.bmp")
    picture(root / "7/Mayo 1/a.bmp")
    picture(root / "7/odd/a.bmp")
    (tmp_path / "__MACOSX/12/Mayo 0").mkdir(parents=True)
    for folder in (root, tmp_path):
        reading = read(folder)
        assert reading.kind == "limuc"
        assert reading.manifest.grades == ("Mayo 0", "Mayo 1", "Mayo 2", "Mayo 3")
        assert reading.manifest.ids == ["12/Mayo 0/a.bmp", "12/Mayo 3/b.bmp", "7/Mayo 1/a.bmp"]
        assert reading.manifest.labels.tolist() == [0, 3, 1]
        assert reading.manifest.patients == ["12", "12", "7"]
        assert [problem.where for problem in reading.problems] == ["7/odd/a.bmp"]
    assert limuc.differences(reading.manifest)[:3] == [
        "3 images where 11,276 were published",
        "2 patients where 564 were published",
        "Mayo 0: 1 images where 6,105 were published",
    ]
    with pytest.raises(SrjtError, match="LIMUC's folders"):
        read(root / "7", kind="limuc")


def kaggle(folder: Path, counts: tuple[int, ...]) -> Path:
    levels = [grade for grade, count in enumerate(counts) for _ in range(count)]
    rows = [
        f"{row // 2 + 10}_{'left' if row % 2 == 0 else 'right'},{level}" for row, level in enumerate(levels)
    ]
    return table(folder, "image,level\n" + "\n".join(rows), "trainLabels.csv")


def test_kaggle_patients_are_the_numbers(tmp_path: Path) -> None:
    kaggle(tmp_path, (2, 1, 1))
    picture(tmp_path / "train/10_left.jpeg")
    picture(tmp_path / "train/10_right.jpeg")
    for source in (tmp_path, tmp_path / "trainLabels.csv"):
        reading = read(source)
        assert reading.kind == "dr"
        assert reading.manifest.num_classes == 5
        assert reading.manifest.patients == ["10", "10", "11", "11"]
        assert reading.manifest.ids == ["10_left", "10_right", "11_left", "11_right"]
        assert reading.manifest.paths[0] == tmp_path / "train/10_left.jpeg"
        assert reading.manifest.table["eye"].tolist() == ["left", "right"] * 2


@pytest.mark.parametrize("counts", [dr.COUNTS, dr.PAPER_COUNTS])
def test_kaggle_counts_are_known(tmp_path: Path, counts: tuple[int, ...]) -> None:
    kaggle(tmp_path, counts)
    manifest = read(tmp_path).manifest
    assert dr.differences(manifest) == []
    differences = dr.differences(manifest.select(np.arange(1, len(manifest))))
    assert differences[0] == f"{sum(counts) - 1:,} labels where Kaggle has 35,126"
    assert differences[1] == f"grade 0: {counts[0] - 1:,} where Kaggle has 25,810"


def test_medmnist_with_its_split_and_grey_images(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    arrays = {}
    for number, side in enumerate(("train", "val", "test")):
        arrays[f"{side}_images"] = np.full((3, 5, 4), number, dtype=np.uint8)
        arrays[f"{side}_labels"] = np.array([[0], [1], [2]], dtype=np.uint8)
    np.savez(path, **arrays)
    reading = read(path)
    assert reading.kind == "medmnist"
    assert reading.manifest.arrays is not None
    assert reading.manifest.arrays.shape == (9, 5, 4, 3)
    assert reading.manifest.arrays[:, 0, 0, 2].tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert reading.manifest.labels.tolist() == [0, 1, 2] * 3
    assert reading.manifest.table["split"].tolist() == ["train"] * 3 + ["validation"] * 3 + ["test"] * 3
    assert reading.manifest.ids[3] == "val/0"
    assert reading.manifest.patients is None

    np.savez(path, **{**arrays, "val_labels": np.zeros((3, 14))})
    with pytest.raises(SrjtError, match="several labels"):
        read(path)
    del arrays["test_labels"]
    np.savez(path, **arrays)
    with pytest.raises(SrjtError, match="lacks the array 'test_labels'"):
        read(path)
    path.write_bytes(b"PK not really")
    with pytest.raises(SrjtError, match="cannot be read as a NumPy archive"):
        read(path)


def test_no_pickle_is_ever_loaded(tmp_path: Path) -> None:
    objects = np.array([print, print], dtype=object)
    names = [f"{side}_{what}" for side in ("train", "val", "test") for what in ("images", "labels")]
    np.savez(tmp_path / "x.npz", **dict.fromkeys(names, objects))
    with pytest.raises(SrjtError, match="cannot be read as a NumPy archive"):
        read(tmp_path / "x.npz")


def test_arrays_from_python() -> None:
    images = np.zeros((4, 6, 5, 3), dtype=np.uint8)
    reading = from_arrays(images, np.array([1.0, 2.0, np.nan, 3.0]), patients=[1, 1, 2, "02"])
    assert reading.manifest.grades == ("1", "2", "3")
    assert reading.manifest.labels.tolist() == [0, 1, 2]
    assert reading.manifest.patients == ["1", "1", "02"]
    assert reading.manifest.arrays is not None
    assert len(reading.manifest.arrays) == 3
    assert kinds(reading.problems) == {"missing-grade": 1}
    named = from_arrays(
        images, ["b", "a", "b", "a"], names=["a", "b"], true_grades=["a"] * 4, split=["val"] * 4
    )
    assert named.manifest.labels.tolist() == [1, 0, 1, 0]
    assert named.manifest.table["split"].tolist() == ["validation"] * 4


@pytest.mark.parametrize(
    ("images", "options", "sentence"),
    [
        (np.zeros((2, 4, 4)), {}, "must be uint8"),
        (np.zeros((2, 3, 4, 4), dtype=np.uint8), {}, "shape"),
        (np.zeros((3, 4, 4), dtype=np.uint8), {}, "3 images but 2 entries in grade"),
        (np.zeros((2, 4, 4), dtype=np.uint8), {"patients": [1]}, "1 entries in patient"),
        (np.zeros((2, 4, 4), dtype=np.uint8), {"ids": ["a", "a"]}, "ids must be unique"),
        (np.zeros((2, 4, 4), dtype=np.uint8), {"split": ["left", "test"]}, "not 'left'"),
    ],
)
def test_arrays_that_do_not_fit(images: np.ndarray, options: dict[str, list[object]], sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence):
        from_arrays(images, [0, 1], **options)  # type: ignore[arg-type]


def test_a_new_source_is_one_entry_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_xyz(path: Path, *, grades: list[str] | None = None) -> Reading:
        return from_arrays(np.zeros((2, 4, 4), np.uint8), ["a", "b"], names=grades)

    monkeypatch.setitem(SOURCES, "xyz", Source(lambda path: path.suffix == ".xyz", read_xyz))
    (tmp_path / "data.xyz").touch()
    assert read(tmp_path / "data.xyz", grades=["b", "a"]).manifest.labels.tolist() == [1, 0]
    assert read(tmp_path, kind="xyz", grades=["a", "b"]).manifest.labels.tolist() == [0, 1]
    with pytest.raises(SrjtError, match=r"--images applies to dr, features, table, but .* is read as xyz"):
        read(tmp_path / "data.xyz", images=tmp_path)
