"""What a source that lacks something looks like, and how to read it: the second half of an error message."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pandas as pd

from srjt.data.grades import MISSING
from srjt.data.images.decode import is_image
from srjt.data.manifest import Manifest
from srjt.data.sources.text_table import TABLE_SUFFIXES
from srjt.errors import count_of

__all__ = [
    "NUMBERED",
    "folder_without_grades",
    "looks_like_features",
    "looks_like_grades",
    "no_image_exists",
    "with_common_values",
]

# names of columns of features
NUMBERED = re.compile(r"^(f|feat|feature|emb|embedding|x|v|dim)[_.-]?\d+$", re.IGNORECASE)  # f0, emb_12, …
MOST_GRADES = 12  # a column with more different values is a measurement
FEWEST_FEATURES = 3
COUNTED = 1000  # files of a folder that are opened, to see whether they are images
WALKED = 5000  # files and folders below a folder that are listed: it may be a whole home directory


def looks_like_features(frame: pd.DataFrame, *, taken: Sequence[str] | None = None) -> str:
    """A sentence if columns have the names of features, or if those that are not ``taken`` are numbers; else ""."""
    numbered = [column for column in map(str, frame.columns) if NUMBERED.match(column)]
    if len(numbered) > 1:
        patterns = list(dict.fromkeys(re.sub(r"\d+$", "*", column) for column in numbered))
        how = f"`feature_columns={','.join(patterns)!r}`"
        return f" It has {len(numbered)} columns of features, {_ends(numbered)}: read them with {how}."
    free = [] if taken is None else [column for column in map(str, frame.columns) if column not in taken]
    numbers = [column for column in free if _is_numeric(frame[column])]
    if len(numbers) < FEWEST_FEATURES:
        return ""
    what = f"{len(numbers)} columns of numbers, {_ends(numbers)}"
    return f" If its {what}, are features, name them with `feature_columns`."


def looks_like_grades(frame: pd.DataFrame, *, taken: Sequence[str], combine: bool = True) -> str:
    """A sentence if one column, or those of several readers, have a few values in common as grades have; else "".

    combine: whether the grades of several readers have to be combined.
    """
    values = {column: _values(frame[column]) for column in map(str, frame.columns) if column not in taken}
    few = {column: found for column, found in values.items() if 1 < len(found) <= MOST_GRADES}
    readers = with_common_values(few)
    if len(readers) > 1:
        how = " `several_readings='consensus'`" if combine else ""
        return f" If {_all(readers)} are the grades of {len(readers)} readers: `grade_column={readers}`{how}."
    return f" If {next(iter(few))} is the grade: `grade_column={next(iter(few))!r}`." if len(few) == 1 else ""


def with_common_values(values: Mapping[str, set[str]]) -> list[str]:
    """The columns that have a value in common with another one. values: those of each column."""
    columns_with = Counter(value for found in values.values() for value in found)
    return [column for column, found in values.items() if any(columns_with[value] > 1 for value in found)]


def folder_without_grades(folder: Path) -> str:
    """What a folder has that is not one of the sources."""
    listed = list(islice(_below(folder), WALKED + 1))
    files = [path for path, is_folder in listed[:WALKED] if not is_folder]
    tables = [path for path in files if _is_table(path)]
    images = sum(is_image(path) for path in files[:COUNTED] if not _is_table(path))
    if not images and not tables:
        return f"{folder} has no images in subfolders, one per grade."
    more = "at least " if len(files) > COUNTED or len(listed) > WALKED else ""
    seen = f"{folder} has no images"
    if images:
        seen = f"{folder} has {more}{count_of(images, 'image')}, but no subfolders, one per grade"
    if len(tables) == 1:
        return f"{seen}. If {tables[0]} has the grades, give it in place of the folder, with `images={str(folder)!r}`."
    return (
        f"{seen}. Write a table with the columns image and grade, and give it in place of the folder, with "
        f"`images={str(folder)!r}`."
    )


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLE_SUFFIXES


def _below(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Each file and folder below a folder, and whether it is a folder."""
    for parent, folders, names in os.walk(folder):
        yield from ((Path(parent) / name, True) for name in folders)
        yield from ((Path(parent) / name, False) for name in sorted(names))


def no_image_exists(manifest: Manifest) -> str:
    """The error if no image is where it is looked for, with the folder beside the table that has the first one."""
    name = str(manifest.table["image"].iloc[0])
    beside = [folder for folder in sorted(manifest.root.glob("*/")) if os.path.isfile(folder / name)]
    where = "`images`" if not beside else f"`images={_from_here(beside[0])!r}`"
    hint = looks_like_features(manifest.table)
    return (
        f"None of the {len(manifest):,} images exists; the first is {manifest.paths[0]}: give their folder with "
        f"{where}.{hint}"
    )


def _from_here(path: Path) -> str:
    """A path below the present folder as it is typed there."""
    here = Path().absolute()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _values(column: pd.Series[str]) -> set[str]:
    return {cell for cell in set(column.astype(str)) if cell.casefold() not in MISSING}


def _is_numeric(column: pd.Series[str]) -> bool:
    return bool(pd.to_numeric(column, errors="coerce").notna().all())


def _ends(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}"


def _all(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
