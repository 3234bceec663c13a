"""Images without grades, for prediction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.manifest import Manifest
from srjt.data.sources.table import TABLE_SUFFIXES, load, locate_images
from srjt.errors import SrjtError

__all__ = ["read_images"]


def read_images(
    sources: Sequence[str | os.PathLike[str]],
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    grades: tuple[str, ...] = ("0", "1"),
) -> Manifest:
    """Image files, folders (searched recursively) and tables with a column of images, as one manifest.

    Every sample gets the mildest grade as a placeholder.
    """
    found: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            below = sorted(p for p in source.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
            if not below:
                raise SrjtError(f"There are no images in {source}.")
            found += below
        elif not source.exists():
            raise SrjtError(f"{source} does not exist.")
        elif source.suffix.lower() in TABLE_SUFFIXES:
            found += _from_table(source, None if images is None else Path(images), image_column)
        else:
            found.append(source)
    names = list(dict.fromkeys(str(path) for path in found))  # without repetitions, in the given order
    table = pd.DataFrame({"id": names, "image": names, "grade": 0})
    return Manifest(table=table, grades=grades, root=Path())


def _from_table(path: Path, images: Path | None, image_column: str | None) -> list[Path]:
    from srjt.data.sources.columns import choose_columns

    frame = load(path).frame
    frame["grade"] = frame.get("grade", "0")  # not needed, so its absence is no error
    chosen, _ = choose_columns(list(frame.columns), {"image": image_column}, source=path.name)
    root = images or path.parent
    located, problems = locate_images(list(frame[chosen["image"]]), root)
    if problems:
        raise SrjtError(f"{problems[0].where}: {problems[0].detail}")
    return [root / str(name) for name in located]
