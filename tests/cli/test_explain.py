"""``srjt explain`` as a person runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Srjt = Callable[..., tuple[int, str, str]]


def test_the_training_data_are_read_with_the_same_options(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    """The table is not beside its images, and names its columns in its own way."""
    table = Path("table.csv")
    shutil.copy(labelled, table)
    renamed = table.read_text().replace("image,", "picture,", 1).replace(",grade,", ",reading,", 1)
    table.write_text(renamed)
    how = ("--images", labelled.parent, "--image-column", "picture", "--grade-column", "reading")
    code, _, err = command("explain", finished, table, "--training", table, "--limit", 2, *how)
    assert (code, err) == (0, "")
    assert Path("explanation.html").read_text().count("labelled") >= 2 * 4
    # a folder of new images, which is no table
    code, said, _ = command(
        "explain", finished, labelled.parent, "--training", table, "--limit", 2, "--force", *how
    )
    assert code == 0
    assert said.startswith("2 images")


def test_a_page_without_a_suffix_gets_one(command: Srjt, finished: Path, labelled: Path) -> None:
    code, said, _ = command("explain", finished, labelled, "--limit", 1, "--out", "maps")
    assert (code, "explained in maps.html" in " ".join(said.split())) == (0, True)
    assert Path("maps.html").read_text().startswith("<!doctype html>")
    assert command("report", finished, "--out", "page")[0] == 0
    assert sorted(path.name for path in Path().iterdir()) == ["maps.html", "page.html"]
