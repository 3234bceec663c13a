"""Options of reading that are kept beside a table: who uses them, and what overrides them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import srjt
from refusals import refuses
from srjt.data.reading_file import load_reading_file, reading_file, write_reading_file
from srjt.data.sources.folders import read_images


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A table whose columns no name tells, with its images in a folder of an unusual name."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = []
    for row in range(12):
        pixels = np.full((8, 8, 3), 20 * row, np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
        rows.append((row, f"{row}.png", row % 3, f"p{row // 2}"))
    table = tmp_path / "leaves.csv"
    pd.DataFrame(rows, columns=["nr", "leaf_photo", "how_bad", "plant"]).to_csv(table, index=False)
    return table


OPTIONS = {"image_column": "leaf_photo", "grade_column": "how_bad", "patient_column": "plant"}


def test_python_reads_a_table_as_its_file_says(awkward: Path) -> None:
    with refuses("missing_column", "image_column"):
        srjt.data.read(awkward)
    assert write_reading_file(awkward, {**OPTIONS, "images": awkward.parent / "photos"})
    reading = srjt.data.read(awkward)
    assert len(reading) == 12
    assert reading.patients == [f"p{row // 2}" for row in range(12)]
    assert all(path.is_file() for path in reading.paths)
    assert reading.report.notes[-1] == (
        "read as leaves.srjt.yaml says: image_column, grade_column, patient_column, images"
    )


def test_what_is_passed_overrides_the_file(awkward: Path) -> None:
    write_reading_file(awkward, {**OPTIONS, "images": awkward.parent / "photos"})
    assert srjt.data.read(awkward, patient_column="nr").patients == [str(row) for row in range(12)]


def test_a_path_is_relative_to_the_file_and_not_to_the_present_folder(
    awkward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reading_file(awkward, {**OPTIONS, "images": awkward.parent / "photos"})
    assert "images: photos\n" in reading_file(awkward).read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert srjt.data.read(awkward).root == awkward.parent / "photos"


def test_a_file_that_says_the_same_keeps_its_comments(awkward: Path) -> None:
    assert write_reading_file(awkward, OPTIONS)
    file = reading_file(awkward)
    file.write_text(file.read_text() + "# the second photograph of each leaf is blurred\n")
    assert not write_reading_file(awkward, OPTIONS)
    assert "blurred" in file.read_text()
    assert write_reading_file(awkward, {**OPTIONS, "on_bad_image": "skip"})
    assert load_reading_file(awkward)["on_bad_image"] == "skip"


def test_grades_may_be_written_as_on_the_command_line(awkward: Path) -> None:
    reading_file(awkward).write_text(
        "image_column: leaf_photo\ngrade_column: how_bad\nimages: photos\ngrades: 0,1,2,3\n"
    )
    assert srjt.data.read(awkward).grades == ("0", "1", "2", "3")


def test_a_misspelt_option_is_an_error_that_names_the_file(awkward: Path) -> None:
    reading_file(awkward).write_text("grade_colum: how_bad\n")
    with refuses("unknown_name", says=("leaves.srjt.yaml", "'grade_column'")):
        srjt.data.read(awkward)


def test_an_error_says_that_the_options_come_from_a_file(awkward: Path) -> None:
    write_reading_file(awkward, {**OPTIONS, "grade_column": "gone"})
    with refuses("unknown_name", says=("leaves.srjt.yaml", "'gone'")):
        srjt.data.read(awkward)


def test_a_file_of_another_table_with_the_same_beginning_is_not_used(awkward: Path) -> None:
    write_reading_file(awkward.with_suffix(".tsv"), OPTIONS)
    assert load_reading_file(awkward) == {}


def test_images_without_grades_are_read_as_the_file_says_too(awkward: Path) -> None:
    write_reading_file(awkward, {**OPTIONS, "images": awkward.parent / "photos"})
    manifest = read_images([awkward])
    assert [path.name for path in manifest.paths] == [f"{row}.png" for row in range(12)]
    assert manifest.patients == [f"p{row // 2}" for row in range(12)]


def test_a_folder_of_images_gets_no_file_inside(tmp_path: Path) -> None:
    for grade in ("0", "1"):
        (tmp_path / "set" / grade).mkdir(parents=True)
        Image.new("RGB", (8, 8), (int(grade) * 90, 0, 0)).save(tmp_path / "set" / grade / "a.png")
    assert reading_file(tmp_path / "set") == tmp_path / "set.srjt.yaml"
    write_reading_file(tmp_path / "set", {"grades": ("0", "1")})
    assert srjt.data.read(tmp_path / "set").report.problems == ()
