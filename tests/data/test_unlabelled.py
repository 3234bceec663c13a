from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from srjt.data.sources.unlabelled import read_images
from srjt.errors import SrjtError


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3)).save(path, format="PNG")
    return path


def test_a_folder_counts_every_file_that_is_left_out(tmp_path: Path) -> None:
    images = [picture(tmp_path / name) for name in ("IM0001", "b/IM0002", "c.png")]
    (tmp_path / "b/notes.doc").write_text("?")
    picture(tmp_path / "._c.png")
    reading = read_images([tmp_path])
    assert reading.manifest.paths == images
    assert {problem.where: problem.detail for problem in reading.problems} == {
        str(tmp_path / "b/notes.doc"): "not an image",
        str(tmp_path / "._c.png"): "a hidden file",
    }


def test_a_table_names_every_row_that_is_left_out(tmp_path: Path) -> None:
    rows = [f"{n}.png,x" for n in range(58)]
    rows[10:10] = ["3.png,again", "7.png", ",empty"]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(["image,note", *rows]))
    reading = read_images([path])
    assert len(reading.manifest) == 58
    assert [(p.kind, p.where, p.detail) for p in reading.problems] == [
        ("malformed-row", "line 13", "1 cell where the header has 2"),
        ("missing-image", "line 14", "the row has no image"),
        ("duplicate-row", str(tmp_path / "3.png"), "line 5, line 12"),
    ]


def test_images_beside_a_table_are_found(tmp_path: Path) -> None:
    image = picture(tmp_path / "test_images/a.png")
    (tmp_path / "test.csv").write_text("id_code\na\n")
    assert read_images([tmp_path / "test.csv"]).manifest.paths == [image]


def test_impossible_sources(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "empty.csv").write_text("image,note\n,x\n")
    for name, sentence in {
        "pipe.png": "not a regular file",
        "x" * 300: "does not exist",
        "a\0.csv": "does not exist",
        "missing.csv": "does not exist",
        "empty.csv": "No row can be used; the first: line 2: the row has no image",
    }.items():
        with pytest.raises(SrjtError, match=sentence):
            read_images([tmp_path / name])
