"""Images without grades, for prediction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.data.sources.assemble import Reading
from srjt.data.sources.columns import check_wanted, choose_columns
from srjt.data.sources.dicom_patients import with_patients_of_headers
from srjt.data.sources.folders import is_utf8, walk_images
from srjt.data.sources.image_files import find_image_folder, locate_images
from srjt.data.sources.text_table import TABLE_SUFFIXES, TextTable, from_frame, load
from srjt.errors import SrjtError
from srjt.files import check_regular_file
from srjt.progress import ProgressOption

__all__ = ["read_images"]


def read_images(
    sources: Sequence[str | os.PathLike[str] | pd.DataFrame],
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    patient_column: str | None = None,
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
    progress: ProgressOption = False,
) -> Reading:
    """Image files, folders (searched recursively) and tables with a column of images, as one manifest.

    Image names in a table are relative to ``images``, or to its folder; in a DataFrame to the present folder. The
    manifest has the patients of the tables that have them, or else of DICOM headers, and their ``columns``; both are
    empty for other images.
    Every sample gets the mildest grade as a placeholder. Files that are not images, malformed rows, rows without an
    image and repetitions are left out and listed in ``problems``. progress: whether to show a bar over DICOM headers.
    """
    lines: dict[str, list[str]] = {}  # for each image, in the given order: where it is named
    problems: list[Problem] = []
    cells: dict[str, dict[str, str]] = {}  # for each image of a table: the columns that are kept
    of_a_table = {"images": images, "image_column": image_column, "patient_column": patient_column}
    given = [option for option, value in of_a_table.items() if value is not None]
    has_table = False
    known: list[str] = []  # columns of the tables
    for source in sources:
        listed = None
        if isinstance(source, pd.DataFrame):
            listed, name, root = from_frame(source), "the table", Path().absolute()
        elif (path := _existing(source)).is_dir():
            named, ignored = _from_folder(path)
            problems += ignored
        elif path.suffix.lower() in TABLE_SUFFIXES:
            listed, name, root = load(path), path.name, path.parent
        else:
            check_regular_file(path)
            named = [(path, str(path))]
        if listed is not None:
            has_table = True
            known += map(str, listed.frame.columns)
            named, kept, more = _from_table(
                listed,
                root if images is None else Path(images),
                source=name,
                given={"image": image_column, "patient": patient_column},
                columns=columns,
            )
            problems += more
            for (path, _), row in zip(named, kept, strict=True):
                cells.setdefault(str(path), row)
        for path, line in named:
            lines.setdefault(str(path), []).append(line)
    if given and not has_table:
        raise SrjtError(
            f"`{given[0]}` applies to a table of images, and {sources[0]} is none: give a table, or leave it out."
        )
    problems += [
        Problem("duplicate-row", name, ", ".join(where)) for name, where in lines.items() if len(where) > 1
    ]
    if not lines:
        raise SrjtError(f"No row can be used; the first: {problems[0].where}: {problems[0].detail}.")
    table = pd.DataFrame({"id": list(lines), "image": list(lines), "grade": 0})
    for column in dict.fromkeys(name for row in cells.values() for name in row):
        table[column] = [cells.get(name, {}).get(column, "") for name in lines]
    manifest = Manifest(table=table, grades=grades, root=Path())
    reading = with_patients_of_headers(
        Reading(manifest=manifest, problems=tuple(problems), kind="images", notes=()), progress=progress
    )
    check_wanted(columns, reading.manifest.table, known=known)
    return reading


def _existing(source: str | os.PathLike[str]) -> Path:
    path = Path(source)
    if not is_utf8(str(path)):
        raise SrjtError(f"The name {path} is not UTF-8 text: rename it.")
    if not os.path.exists(path):  # also for a name that is too long or contains NUL
        raise SrjtError(f"{path} does not exist.")
    return path


def _from_folder(folder: Path) -> tuple[list[tuple[Path, str]], list[Problem]]:
    """(image, image) of each image in a folder, and the files that are no images."""
    named, problems = [], []
    for name, problem in walk_images(folder, root=folder):
        path = folder / name
        if problem is None:
            named.append((path, str(path)))
        else:
            problems.append(replace(problem, where=str(path)))
    if not named:
        raise SrjtError(f"There are no images in {folder}.")
    return sorted(named), problems


def _from_table(
    loaded: TextTable, root: Path, *, source: str, given: Mapping[str, str | None], columns: Sequence[str]
) -> tuple[list[tuple[Path, str]], list[dict[str, str]], list[Problem]]:
    """(image, line) of each row with an image, the columns to keep of it, and the problems of the others."""
    chosen, _ = choose_columns(list(loaded.frame.columns), given, source=source, required=("image",))
    names = list(loaded.frame[chosen["image"]])
    root = find_image_folder(names, root)
    located, problems = locate_images(names, root)
    if problems:
        raise SrjtError(f"{problems[0].where}: {problems[0].detail}")
    empty = [
        Problem("missing-image", line, "the row has no image")
        for line, name in zip(loaded.lines, located, strict=True)
        if not name
    ]
    named = [(root / name, line) for line, name in zip(loaded.lines, located, strict=True) if name]
    # every sample has an id, an image and a placeholder for its grade: the table's own get another name
    ours = ("id", "image", "grade", "patient")
    wanted = {f"{name}_source" if name in ours else name: name for name in columns if name in loaded.frame}
    if "patient" in chosen:
        wanted["patient"] = chosen["patient"]
    rows = (
        zip(*(loaded.frame[column] for column in wanted.values()), strict=True)
        if wanted
        else ((),) * len(names)
    )
    kept = [dict(zip(wanted, row, strict=True)) for row, name in zip(rows, located, strict=True) if name]
    return named, kept, [*loaded.problems, *empty]
