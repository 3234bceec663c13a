from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from srjt.data import Manifest, from_arrays
from srjt.data.contact_sheet import contact_sheet

COLOURS = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]


def test_each_row_shows_images_of_its_grade() -> None:
    grades = np.repeat([0, 1, 2], 5)
    images = np.array([np.full((6, 6, 3), COLOURS[grade]) for grade in grades], dtype=np.uint8)
    sheet = np.asarray(contact_sheet(from_arrays(images, grades).manifest, per_grade=4, tile=20))
    for grade, colour in enumerate(COLOURS):
        where = np.flatnonzero((sheet == colour).all(axis=-1).any(axis=1))
        assert where.max() - where.min() == 19  # one row of tiles
        assert (sheet[where] == colour).all(axis=-1).sum() == 4 * 20 * 20
        assert where.min() == 12 + grade * 24


def test_patients_come_before_their_second_images_and_bad_files_are_passed_over(tmp_path: Path) -> None:
    names = []
    for shade in range(8):
        names.append(f"{shade}.png")
        Image.new("RGB", (8, 8), (10 * shade, 0, 99)).save(tmp_path / names[-1])
    (tmp_path / "7.png").write_text("broken")
    table = pd.DataFrame(
        {"id": names, "image": names, "grade": 0, "patient": ["a", "a", "a", "a", "a", "b", "c", "d"]}
    )
    whole = Manifest(table=table, grades=("mild", "a severe grade with a very long name"), root=tmp_path)
    sheet = contact_sheet(whole, per_grade=3, tile=16)
    shades = {
        int(red) // 10 for red, green, blue in np.asarray(sheet).reshape(-1, 3) if (green, blue) == (0, 99)
    }
    assert len(shades) == 3
    assert {5, 6} < shades  # patients b and c, and one image of a
    assert sheet.tobytes() == contact_sheet(whole, per_grade=3, tile=16).tobytes()
