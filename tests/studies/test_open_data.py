"""Opening a study's data: the same in every process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from srjt.data import folds, read, write_splits
from srjt.data.synthetic import generate, write
from srjt.errors import SrjtError
from srjt.files import cache_folder
from srjt.studies.config import StudyConfig
from srjt.studies.folder import write_plan
from srjt.studies.open_data import open_data

Small = Callable[..., StudyConfig]


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(generate(images=40, patients=10, size=32), tmp_path_factory.mktemp("data") / "set")


@pytest.mark.parametrize("damage", ["nothing", "truncated", "empty", "nonsense", "unwritable"])
def test_drawn_images_are_remembered_and_a_damaged_memory_is_no_loss(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    config = small(reading={"images": 20, "patients": 6, "size": 32})
    if damage == "unwritable":
        (tmp_path / "cache").write_text("a file in the way")
    fresh = generate(images=20, patients=6, size=32)
    first = open_data(config)
    if damage != "unwritable":
        (file,) = (cache_folder() / "synthetic").iterdir()
        whole = file.read_bytes()
        file.write_bytes({"truncated": whole[:-500], "empty": b"", "nonsense": b"PK?"}.get(damage, whole))
    for data in (first, open_data(config)):
        assert data.manifest.grades == fresh.grades
        np.testing.assert_array_equal(data.manifest.arrays, fresh.arrays)
        pd.testing.assert_frame_equal(data.manifest.table, fresh.table, check_dtype=False)
        assert data.manifest.patients == fresh.patients
    assert [c.key for c in first.planned_runs()] == [c.key for c in open_data(config).planned_runs()]


def test_a_table_and_folds_from_a_file(small: Small, labels: Path, tmp_path: Path) -> None:
    plain = open_data(small(source=str(labels), reading={}))
    assert len(plain.manifest) == 40
    write_splits(tmp_path / "splits.csv", plain.manifest, folds(plain.manifest, folds=5, seed=3))
    given = open_data(small(source=str(labels), reading={}, splits=str(tmp_path / "splits.csv")))
    assert given.fold_numbers == (0, 1, 2, 3, 4)
    expected = open_data(small(source=str(labels), reading={}, folds=5, split_seed=3))
    assert [c.key for c in given.planned_runs()] == [c.key for c in expected.planned_runs()]


def test_other_images_of_the_same_names_are_other_runs(small: Small, labels: Path, tmp_path: Path) -> None:
    other = write(generate(images=40, patients=10, size=36), tmp_path / "set")
    copy = write(generate(images=40, patients=10, size=32), tmp_path / "copy")
    found = [
        {c.key for c in open_data(small(source=str(s), reading={})).planned_runs()}
        for s in (labels, other, copy)
    ]
    assert found[0] == found[2]
    assert not found[0] & found[1]


def test_relative_paths(small: Small, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(labels.parent)
    here = open_data(small(source=labels.name, reading={}))
    there = open_data(small(source=os.path.abspath(labels.name), reading={}))
    assert [c.key for c in here.planned_runs()] == [c.key for c in there.planned_runs()]


def test_mistakes(small: Small, labels: Path, tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="A study needs data"):
        open_data(small(source=""))
    with pytest.raises(SrjtError, match="does not exist"):
        open_data(small(source=str(tmp_path / "none.csv"), reading={}))
    with pytest.raises(
        SrjtError, match=r"Unknown reading option of synthetic 'image': did you mean 'images'"
    ):
        open_data(small(reading={"image": 20}))
    with pytest.raises(SrjtError, match=r"Unknown reading option of .* 'patients'"):
        open_data(small(source=str(labels), reading={"patients": 10}))
    with pytest.raises(SrjtError, match="At least 3 folds"):
        open_data(small(folds=2))
    with pytest.raises(SrjtError, match=r"split file .* does not exist"):
        open_data(small(splits=str(tmp_path / "none.csv")))


def invert(path: Path) -> None:
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    return write(generate(images=40, patients=10, size=32), tmp_path / "set")


def test_a_changed_image_is_other_runs_and_is_refused_with_its_name(
    small: Small, images: Path, tmp_path: Path
) -> None:
    config = small(source=str(images), reading={})
    before = open_data(config)
    write_plan(tmp_path / "study", before, command="srjt study")
    write_plan(tmp_path / "study", open_data(config), command="srjt study")
    path = before.manifest.paths[5]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0")  # other bytes, the same pixels
    same = [planned.key for planned in open_data(config).planned_runs()]
    assert same == [planned.key for planned in before.planned_runs()]
    invert(path)
    path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    after = open_data(config)
    assert not {p.key for p in after.planned_runs()} & {p.key for p in before.planned_runs()}
    with pytest.raises(
        SrjtError, match=f"The image {before.manifest.ids[5]} has changed since this study began"
    ):
        write_plan(tmp_path / "study", after, command="srjt study")


def test_near_duplicates_are_grouped_on_request(small: Small, images: Path) -> None:
    paths = read(images).manifest.paths
    Image.open(paths[0]).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(paths[39])
    groups = open_data(small(source=str(images), reading={}, group_near_duplicates=True)).manifest.groups
    assert groups is not None
    assert groups[0] == groups[39]
    alone = open_data(small(source=str(images), reading={})).manifest.groups
    assert alone is not None
    assert alone[0] != alone[39]
