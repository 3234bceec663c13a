"""Checks of a dataset, and contact sheets."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fixtures.dicom_files import write_dicom
from hostile.corpus import png_of_size
from refusals import refuses
from srjt.data import Manifest, Problem, check, drop_unusable, from_arrays, write_problems
from srjt.data.checks import image_problem, image_sizes
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.problems import examples
from srjt.data.thumbnails import contact_sheet


def noise_image(seed: int, size: tuple[int, int] = (20, 16)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def manifest(folder: Path, grades: dict[str, int], patients: list[str] | None = None) -> Manifest:
    table = pd.DataFrame(
        {"id": list(grades), "image": list(grades), "grade": list(grades.values())}
    )
    if patients is not None:
        table["patient"] = patients
    return Manifest(table=table, grades=("0", "1", "2"), root=folder)


def test_all_faults_of_the_images_are_found_at_once(tmp_path: Path) -> None:
    noise_image(0).save(tmp_path / "good.png")
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("this is no image")
    (tmp_path / "folder.png").mkdir()
    noise_image(1, (200, 200)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:5000])
    for seed, name in ((2, "one.bmp"), (2, "two.png"), (3, "three.png"), (3, "four.png")):
        noise_image(seed).save(tmp_path / name)  # the same pixels, also in another format
    grades = dict.fromkeys(
        ["good.png", "gone.png", "empty.png", "text.png", "folder.png", "cut.jpg"], 0
    )
    grades |= {"one.bmp": 1, "two.png": 1, "three.png": 0, "four.png": 2}
    seen: list[tuple[int, ...]] = []
    whole = manifest(tmp_path, grades, [*"aaaaaabbcd"])
    problems = check(whole, folds=1, workers=2, progress=lambda *step: seen.append(step))
    assert {(problem.kind, problem.where) for problem in problems} == {
        ("missing-image", "gone.png"),
        ("missing-image", "folder.png"),
        ("empty-image", "empty.png"),
        ("unreadable-image", "text.png"),
        ("unreadable-image", "cut.jpg"),
        ("identical-images", "one.bmp"),
        ("identical-images-other-grade", "three.png"),
    }
    for problem in problems[
        :5
    ]:  # the list of samples that a training leaves out calls them the same
        with pytest.raises(BadImageError) as refused:
            read_image(tmp_path / problem.where)
        assert image_problem(problem.where, refused.value.reason).kind == problem.kind

    detail = {problem.where: problem.detail for problem in problems}
    assert detail["three.png"] == "same pixels as four.png; grades 0 and 2; patients c and d"
    assert detail["one.bmp"] == "same pixels as two.png"
    assert "cut short" in detail["cut.jpg"]
    assert seen == [(n + 1, 10) for n in range(10)]


def test_images_that_are_all_elsewhere_are_one_sentence(tmp_path: Path) -> None:
    with refuses("missing_file", "images"):
        check(manifest(tmp_path, {"a.png": 0, "b.png": 1}))
    assert (
        check(manifest(tmp_path, {"a.png": 0, "b.png": 1}, ["1", "2"]), images=False, folds=0) == []
    )


def test_patients_are_counted_per_grade(tmp_path: Path) -> None:
    grades = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
    problems = check(manifest(tmp_path, grades, ["p", "q", "r", "p", "p"]), images=False, folds=3)
    assert problems == [
        Problem("few-patients", "grade 1", "1 patient for 3 folds"),
        Problem("few-patients", "grade 2", "0 patients for 3 folds"),
    ]
    problems = check(manifest(tmp_path, grades), images=False, folds=2)
    found = {problem.kind: problem.where for problem in problems}
    assert found == {"missing-patient": "all samples", "few-patients": "grade 2"}


def test_patients_on_two_sides_of_a_split_column_are_a_problem(tmp_path: Path) -> None:
    samples = manifest(tmp_path, {"a": 0, "b": 1, "c": 0, "d": 1}, ["p", "p", "q", "r"])
    split = ["train", "test", "", "train"]  # q is on no side
    samples = replace(samples, table=samples.table.assign(split=split))
    problem = Problem("patient-on-two-sides", "p", "train and test")
    assert check(samples, images=False, folds=0) == [problem]
    alone = replace(samples, table=samples.table.assign(split=["train", "train", "test", ""]))
    assert check(alone, images=False, folds=0) == []


def test_sizes_are_read_from_the_files_that_can_be(tmp_path: Path) -> None:
    noise_image(0, (30, 20)).save(tmp_path / "a.png")
    write_dicom(tmp_path / "b.dcm", np.zeros((7, 9), dtype=np.uint16))
    whole = manifest(tmp_path, {"a.png": 0, "b.dcm": 1, "gone.png": 1})
    assert image_sizes(whole) == [(30, 20), (9, 7)]
    assert image_sizes(whole, sample=1) == [(30, 20)]


PROBLEMS = [
    Problem("identical-images", "a", "same pixels as c"),
    Problem("missing-image", "b", "gone"),
    Problem("invalid-grade", "line 7", "'x' is not one of 0, 1"),
]


def test_unusable_samples_stop_or_are_left_out_and_listed(tmp_path: Path) -> None:
    whole = manifest(tmp_path, {"a": 0, "b": 1, "c": 2})
    listed_in = tmp_path / "skipped.csv"
    with refuses(
        "unusable_samples",
        "on_bad_image",
        says=("2 rows or images", "missing-image", "invalid-grade"),
    ):
        drop_unusable(whole, PROBLEMS, listed_in=listed_in)
    assert drop_unusable(whole, PROBLEMS, on_bad_image="skip", listed_in=listed_in).ids == [
        "a",
        "c",
    ]
    with listed_in.open(newline="") as file:
        assert [row["where"] for row in csv.DictReader(file)] == ["b", "line 7"]
    with refuses("unknown_name", "on_bad_image", says="'skip'"):
        drop_unusable(whole, PROBLEMS, on_bad_image="skp")
    with refuses("unusable_samples"):
        drop_unusable(whole.select([1]), PROBLEMS, on_bad_image="skip")


def test_a_bad_row_does_not_take_a_good_row_of_its_image_along(tmp_path: Path) -> None:
    whole = manifest(tmp_path, {"a": 0, "b": 1, "c": 2})
    bad = [
        Problem("invalid-grade", "a", "line 5: 'x' is not one of 0, 1, 2"),
        Problem("empty-image", "b"),
    ]
    assert drop_unusable(whole, bad, on_bad_image="skip").ids == ["a", "c"]


def test_warnings_alone_change_nothing(tmp_path: Path) -> None:
    whole = manifest(tmp_path, {"a": 0, "b": 1})
    assert drop_unusable(whole, PROBLEMS[:1], listed_in=tmp_path / "skipped.csv") is whole
    assert not (tmp_path / "skipped.csv").exists()


def test_problems_are_counted_with_their_first_examples(tmp_path: Path) -> None:
    many = [
        Problem("few-patients", "grade 1"),
        *[Problem("missing-image", str(n)) for n in range(9)],
    ]
    (kind, severity, count, first), last = examples(many)
    assert (kind, severity, count) == ("missing-image", "error", 9)
    assert [problem.where for problem in first] == ["0", "1", "2"]
    assert last[:3] == ("few-patients", "warning", 1)
    write_problems(many, tmp_path / "problems.csv")
    assert len((tmp_path / "problems.csv").read_text().splitlines()) == 11


def test_the_size_of_a_file_that_claims_too_many_pixels_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_of_size(20_000, 20_000))
    os.mkfifo(tmp_path / "b.png")
    both = manifest(tmp_path, {"a.png": 0, "b.png": 1}, ["a", "b"])
    assert image_sizes(both) == []
    kinds = {problem.where: problem.kind for problem in check(both, folds=0)}
    assert kinds == {"a.png": "unreadable-image", "b.png": "missing-image"}


COLOURS = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]


def test_each_row_shows_images_of_its_grade() -> None:
    grades = np.repeat([0, 1, 2], 5)
    images = np.array([np.full((6, 6, 3), COLOURS[grade]) for grade in grades], dtype=np.uint8)
    sheet = np.asarray(contact_sheet(from_arrays(images, grades), per_grade=4, tile=20))
    for grade, colour in enumerate(COLOURS):
        where = np.flatnonzero((sheet == colour).all(axis=-1).any(axis=1))
        assert where.max() - where.min() == 19  # one row of tiles
        assert (sheet[where] == colour).all(axis=-1).sum() == 4 * 20 * 20
        assert where.min() == 12 + grade * 24


def test_patients_come_before_their_second_images_and_bad_files_are_passed_over(
    tmp_path: Path,
) -> None:
    names = [f"{shade}.png" for shade in range(8)]
    for shade, name in enumerate(names):
        Image.new("RGB", (8, 8), (10 * shade, 0, 99)).save(tmp_path / name)
    (tmp_path / "7.png").write_text("broken")
    whole = manifest(tmp_path, dict.fromkeys(names, 0), [*"aaaaabcd"])
    whole = replace(whole, grades=("mild", "a severe grade with a very long name"))
    sheet = contact_sheet(whole, per_grade=3, tile=16)
    pixels = np.asarray(sheet).reshape(-1, 3).tolist()
    shades = {red // 10 for red, green, blue in pixels if (green, blue) == (0, 99)}
    assert len(shades) == 3
    assert {5, 6} < shades  # patients b and c, and one image of a
    assert sheet.tobytes() == contact_sheet(whole, per_grade=3, tile=16).tobytes()
