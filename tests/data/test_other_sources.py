"""Sources other than a table: folders of grades, LIMUC, Kaggle's eyes, MedMNIST, arrays."""

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.test_tables import kinds, picture, table
from refusals import refuses
from srjt.data import check, from_arrays, read
from srjt.data.manifest import Manifest
from srjt.data.options import ReadOptions
from srjt.data.sources import SOURCES, Source, folders as published


def test_one_folder_per_grade(tmp_path: Path) -> None:
    for name in ("Grade 10", "Grade 9", "Grade 8", *[f"Grade {n}" for n in range(1, 7)]):
        picture(tmp_path / name / "deep/a.png")
    (tmp_path / "Grade 7").mkdir()  # no sample has it
    (tmp_path / "Grade 8/notes.doc").write_text("?")
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "README").write_text("")
    reading = read(tmp_path)
    assert reading.report.kind == "folders"
    assert reading.grades == tuple(f"Grade {n}" for n in range(1, 11))
    assert reading.class_counts.tolist() == [1] * 6 + [0] + [1] * 3
    assert {problem.where for problem in reading.report.problems} == {"Grade 8/notes.doc", "README"}
    assert "Grade 9/deep/a.png" in reading.ids


def test_images_without_a_suffix_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("0/IM0001", "0/1.2.840.5", "1/IM0003"):
        picture(tmp_path / f"{name}.png").rename(tmp_path / name)
    (tmp_path / "1/README").write_text("P5 is not always a portable grey map")
    (tmp_path / "1/DICOMDIR").write_bytes(bytes(128) + b"DICM")
    os.mkfifo(tmp_path / "1/pipe.png")
    reading = read(tmp_path)
    assert reading.ids == ["0/1.2.840.5", "0/IM0001", "1/IM0003", "1/pipe.png"]
    pipe = next(problem for problem in check(reading) if problem.where == "1/pipe.png")
    assert (pipe.kind, pipe.severity) == ("missing-image", "error")
    assert "it is a pipe, a socket or a device, not a regular file" in pipe.detail
    left_out = {problem.where: problem.detail for problem in reading.report.problems}
    assert left_out == dict.fromkeys(("1/DICOMDIR", "1/README"), "not an image")


def test_named_folders_need_an_order(tmp_path: Path) -> None:
    picture(tmp_path / "mild/a.png")
    picture(tmp_path / "severe/a.png")
    with refuses("grades_without_order", "grades"):
        read(tmp_path)
    assert read(tmp_path, grades=["severe", "mild"]).labels.tolist() == [1, 0]


def test_folders_below_train_and_test(tmp_path: Path) -> None:
    for side in ("train", "val", "test"):
        picture(tmp_path / side / "0/a.png")
        picture(tmp_path / side / "1/a.png")
    manifest = read(tmp_path)
    assert manifest.grades == ("0", "1")
    assert Counter(manifest.table["split"]) == {"train": 2, "validation": 2, "test": 2}


def test_a_folder_without_images_or_options_that_do_not_apply(tmp_path: Path) -> None:
    with refuses("too_few", "images"):
        read(tmp_path)
    picture(tmp_path / "flat/a.png")
    with refuses("too_few", "images", says="flat"):
        read(tmp_path / "flat")
    shutil.rmtree(tmp_path / "flat")
    picture(tmp_path / "0/a.png")
    picture(tmp_path / "1/a.png")
    with refuses("option_without_effect", "grade_column"):
        read(tmp_path, grade_column="grade")
    with refuses("unknown_name", says="'folders'"):
        read(tmp_path, kind="folder")
    with refuses("missing_file"):
        read(tmp_path / "nowhere")
    with refuses("wrong_file"):
        read(picture(tmp_path / "x.png"))


def test_limuc_is_recognised_below_its_archive_folder_too(tmp_path: Path) -> None:
    root = tmp_path / "patient_based_classified_images"
    picture(root / "12/Mayo 0/a.bmp")
    picture(root / "12/Mayo 3/b.bmp")
    picture(root / "7/Mayo 1/a.bmp")
    picture(root / "7/odd/a.bmp")
    (tmp_path / "__MACOSX/12/Mayo 0").mkdir(parents=True)
    for folder in (root, tmp_path):
        reading = read(folder)
        assert reading.report.kind == "limuc"
        assert reading.grades == ("Mayo 0", "Mayo 1", "Mayo 2", "Mayo 3")
        assert reading.ids == ["12/Mayo 0/a.bmp", "12/Mayo 3/b.bmp", "7/Mayo 1/a.bmp"]
        assert reading.labels.tolist() == [0, 3, 1]
        assert reading.patients == ["12", "12", "7"]
        assert [problem.where for problem in reading.report.problems] == ["7/odd/a.bmp"]
    assert [
        (problem.where, problem.detail) for problem in published.not_as_published(reading) or ()
    ][:3] == [
        ("patients", "2 where 564 were published"),
        ("images", "3 where 11,276 were published"),
        ("grade Mayo 0", "1 where 6,105 were published"),
    ]
    with refuses("wrong_file", says="LIMUC"):
        read(root / "7", kind="limuc")


def kaggle(folder: Path, counts: tuple[int, ...]) -> Path:
    levels = [grade for grade, count in enumerate(counts) for _ in range(count)]
    rows = [f"{k // 2 + 10}_{('left', 'right')[k % 2]},{level}" for k, level in enumerate(levels)]
    return table(folder, "image,level\n" + "\n".join(rows), "trainLabels.csv")


def test_kaggle_patients_are_the_numbers(tmp_path: Path) -> None:
    kaggle(tmp_path, (2, 1, 1))
    picture(tmp_path / "train/10_left.jpeg")
    picture(tmp_path / "train/10_right.jpeg")
    for source in (tmp_path, tmp_path / "trainLabels.csv"):
        reading = read(source)
        assert reading.report.kind == "dr"
        assert reading.num_classes == 5
        assert reading.patients == ["10", "10", "11", "11"]
        assert reading.ids == ["10_left", "10_right", "11_left", "11_right"]
        assert reading.paths[0] == tmp_path / "train/10_left.jpeg"
        assert reading.table["eye"].tolist() == ["left", "right"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("counts", [published.DR_COUNTS, published.DR_PAPER_COUNTS])
def test_kaggle_counts_are_known(tmp_path: Path, counts: tuple[int, ...]) -> None:
    kaggle(tmp_path, counts)
    reading = read(tmp_path)
    assert published.not_as_published(reading) == []
    fewer = replace(reading.select(np.arange(1, len(reading))), report=reading.report)
    images, grade, *_ = published.not_as_published(fewer) or ()
    assert (images.where, images.detail) == (
        "images",
        f"{sum(counts) - 1:,} where 35,126 were published",
    )
    assert (grade.where, grade.detail) == (
        "grade 0",
        f"{counts[0] - 1:,} where 25,810 were published",
    )


def test_medmnist_with_its_split_and_grey_images(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    arrays = {}
    for number, side in enumerate(("train", "val", "test")):
        arrays[f"{side}_images"] = np.full((3, 5, 4), number, dtype=np.uint8)
        arrays[f"{side}_labels"] = np.array([[0], [1], [2]], dtype=np.uint8)
    np.savez(path, **arrays)
    reading = read(path)
    assert reading.report.kind == "medmnist"
    assert reading.arrays.shape == (9, 5, 4, 3)
    assert reading.arrays[:, 0, 0, 2].tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert reading.labels.tolist() == [0, 1, 2] * 3
    assert reading.table["split"].tolist() == ["train"] * 3 + ["validation"] * 3 + ["test"] * 3
    assert reading.ids[3] == "val/0"
    assert reading.patients is None

    np.savez(path, **{**arrays, "val_labels": np.zeros((3, 14))})
    with refuses("wrong_shape", says="one label"):
        read(path)
    del arrays["test_labels"]
    np.savez(path, **arrays)
    with refuses("missing_column", says="'test_labels'"):
        read(path)
    path.write_bytes(b"PK not really")
    with refuses("unsafe_file"):
        read(path)


def test_arrays_from_python() -> None:
    images = np.zeros((4, 6, 5, 3), dtype=np.uint8)
    reading = from_arrays(images, np.array([1.0, 2.0, np.nan, 3.0]), patients=[1, 1, 2, "02"])
    assert reading.grades == ("1", "2", "3")
    assert reading.labels.tolist() == [0, 1, 2]
    assert reading.patients == ["1", "1", "02"]
    assert len(reading.arrays) == 3
    assert kinds(reading.report.problems) == {"missing-grade": 1}
    named = from_arrays(
        images, list("baba"), names=["a", "b"], true_grades=["a"] * 4, split=["val"] * 4
    )
    assert named.labels.tolist() == [1, 0, 1, 0]
    assert named.table["split"].tolist() == ["validation"] * 4


@pytest.mark.parametrize(
    ("images", "options", "refused"),
    [
        (np.zeros((2, 4, 4)), {}, ("wrong_type", "images")),
        (np.zeros((2, 3, 4, 4), dtype=np.uint8), {}, ("wrong_shape", "images")),
        (np.zeros((3, 4, 4), dtype=np.uint8), {}, ("wrong_shape", "grade")),
        (np.zeros((2, 4, 4), dtype=np.uint8), {"patients": [1]}, ("wrong_shape", "patient")),
        (np.zeros((2, 4, 4), dtype=np.uint8), {"ids": ["a", "a"]}, ("not_unique", "ids")),
        (
            np.zeros((2, 4, 4), dtype=np.uint8),
            {"split": ["left", "test"]},
            ("wrong_values", "split", "'left'"),
        ),
    ],
)
def test_arrays_that_do_not_fit(
    images: np.ndarray, options: dict[str, list[object]], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        from_arrays(images, [0, 1], **options)  # type: ignore[arg-type]


def test_a_new_source_is_one_entry_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_xyz(path: Path, options: ReadOptions) -> Manifest:
        return from_arrays(np.zeros((2, 4, 4), np.uint8), ["a", "b"], names=options.grades)

    monkeypatch.setitem(SOURCES, "xyz", Source(lambda path: path.suffix == ".xyz", read_xyz))
    (tmp_path / "data.xyz").touch()
    assert read(tmp_path / "data.xyz", grades=["b", "a"]).labels.tolist() == [1, 0]
    assert read(tmp_path, kind="xyz", grades=["a", "b"]).labels.tolist() == [0, 1]
    with refuses("option_without_effect", "images"):
        read(tmp_path / "data.xyz", images=tmp_path)
