"""Images without grades, for prediction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.data.sources.assemble import Reading
from srjt.data.sources.columns import choose_columns
from srjt.data.sources.folders import is_utf8, walk_images
from srjt.data.sources.image_files import find_image_folder, locate_images
from srjt.data.sources.text_table import TABLE_SUFFIXES, load
from srjt.errors import SrjtError
from srjt.files import check_regular_file

__all__ = ["read_images"]


def read_images(
    sources: Sequence[str | os.PathLike[str]],
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    grades: tuple[str, ...] = ("0", "1"),
) -> Reading:
    """Image files, folders (searched recursively) and tables with a column of images, as one manifest.

    Every sample gets the mildest grade as a placeholder. Files that are not images, malformed rows, rows without an
    image and repetitions are left out and listed in ``problems``.
    """
    lines: dict[str, list[str]] = {}  # for each image, in the given order: where it is named
    problems: list[Problem] = []
    for source in map(Path, sources):
        if not is_utf8(str(source)):
            raise SrjtError(f"The name {source} is not UTF-8 text: rename it.")
        if not os.path.exists(source):  # also for a name that is too long or contains NUL
            raise SrjtError(f"{source} does not exist.")
        if source.is_dir():
            named = []
            for name, problem in walk_images(source, root=source):
                path = source / name
                if problem is None:
                    named.append((path, str(path)))
                else:
                    problems.append(replace(problem, where=str(path)))
            named.sort()
            if not named:
                raise SrjtError(f"There are no images in {source}.")
        elif source.suffix.lower() in TABLE_SUFFIXES:
            named, more = _from_table(source, None if images is None else Path(images), image_column)
            problems += more
        else:
            check_regular_file(source)
            named = [(source, str(source))]
        for path, line in named:
            lines.setdefault(str(path), []).append(line)
    problems += [
        Problem("duplicate-row", name, ", ".join(where)) for name, where in lines.items() if len(where) > 1
    ]
    if not lines:
        raise SrjtError(f"No row can be used; the first: {problems[0].where}: {problems[0].detail}.")
    table = pd.DataFrame({"id": list(lines), "image": list(lines), "grade": 0})
    manifest = Manifest(table=table, grades=grades, root=Path())
    return Reading(manifest=manifest, problems=tuple(problems), kind="images", notes=())


def _from_table(
    path: Path, images: Path | None, image_column: str | None
) -> tuple[list[tuple[Path, str]], list[Problem]]:
    """(image, line) of each row with an image, and the problems of the others."""
    loaded = load(path)
    chosen, _ = choose_columns(
        list(loaded.frame.columns), {"image": image_column}, source=path.name, required=("image",)
    )
    names = list(loaded.frame[chosen["image"]])
    root = find_image_folder(names, images or path.parent)
    located, problems = locate_images(names, root)
    if problems:
        raise SrjtError(f"{problems[0].where}: {problems[0].detail}")
    empty = [
        Problem("missing-image", line, "the row has no image")
        for line, name in zip(loaded.lines, located, strict=True)
        if not name
    ]
    named = [(root / name, line) for line, name in zip(loaded.lines, located, strict=True) if name]
    return named, [*loaded.problems, *empty]
