"""One folder per grade, optionally below train, validation and test folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from srjt.data.grades import order_names, refuse_too_many
from srjt.data.images.decode import IMAGE_SUFFIXES, is_image
from srjt.data.problems import Problem
from srjt.data.sources.assemble import SPLIT_NAMES, Reading, assemble
from srjt.data.sources.hints import folder_without_grades
from srjt.errors import SrjtError
from srjt.files import why_not_a_file

__all__ = ["is_folders", "is_utf8", "read_folders", "subfolders", "walk_images"]

# Created by operating systems; ignored without a warning.
SYSTEM_FILES = {"thumbs.db", "desktop.ini", "__macosx"}


def is_folders(path: Path) -> bool:
    """Any folder may be one; ``read_folders`` explains what is missing."""
    return path.is_dir()


def read_folders(directory: Path, *, grades: Sequence[str] | None = None) -> Reading:
    """Read ``directory/<grade>/…`` or ``directory/<train|val|test>/<grade>/…``. The patients are unknown."""
    if not directory.is_dir():
        raise SrjtError(f"{directory} is not a folder.")
    sides: list[tuple[str, Path]] = [(folder.name.casefold(), folder) for folder in subfolders(directory)]
    with_split = bool(sides) and all(side in SPLIT_NAMES for side, _ in sides)
    parents = sides if with_split else [("", directory)]
    rows: list[dict[str, str]] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for side, parent in parents:
        problems += [
            Problem("ignored-file", path.relative_to(directory).as_posix(), "not in the folder of a grade")
            for path in sorted(parent.iterdir())
            if path.is_file() and not _is_system_file(path.name)
        ]
        for folder in subfolders(parent):
            names.add(folder.name)
            for image, problem in walk_images(folder, root=directory):
                if problem is not None:
                    problems.append(problem)
                    continue
                row = {"id": image, "image": image, "grade": folder.name}
                rows.append(row | {"split": side} if with_split else row)
    if not rows:
        raise SrjtError(folder_without_grades(directory))
    if grades is None:
        grades = order_names(names)
        refuse_too_many(grades, samples=len(rows))
    # An empty folder also declares a grade, so a grade without samples is no gap.
    return assemble(
        pd.DataFrame(rows),
        kind="folders",
        root=directory.absolute(),
        grades=grades,
        lines=[row["id"] for row in rows],
        notes=[
            f"one folder per grade{' below train, validation, test' if with_split else ''} in {directory}"
        ],
        problems=problems,
    )


def subfolders(directory: Path) -> list[Path]:
    """The folders in a folder, sorted by name."""
    found = sorted(path for path in directory.iterdir() if path.is_dir() and not _is_system_file(path.name))
    for path in found:
        if not is_utf8(path.name):
            raise SrjtError(f"The name of the folder {path} is not UTF-8 text: rename it.")
    return found


def walk_images(folder: Path, *, root: Path) -> Iterator[tuple[str, Problem | None]]:
    """Every file below ``folder``, sorted, as a path relative to ``root``; with a problem if it is not an image."""
    inside = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    for entry, path in _walk_files(os.fspath(folder), inside):
        suffix = os.path.splitext(entry.name)[1].lower()
        if _is_system_file(entry.name):
            if suffix in IMAGE_SUFFIXES:  # such as ._a.png, which macOS adds to archives
                yield path, Problem("ignored-file", path, "a hidden file")
        elif not is_utf8(path):
            yield path, Problem("unreadable-image", path, "its name is not UTF-8 text: rename the file")
        elif (suffix in IMAGE_SUFFIXES and _is(entry.is_file)) or is_image(entry.path):
            yield path, None
        else:
            yield path, Problem("ignored-file", path, why_not_a_file(Path(entry.path)) or "not an image")


def _walk_files(folder: str, inside: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Every file below a folder, and ``inside`` followed by its place there. Links to folders are not followed.

    The list of a folder tells what is a file, so that 100,000 files need not be asked one by one.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # a folder that cannot be read is left out, as by os.walk
        return
    yield from ((entry, inside + entry.name) for entry in entries if not _is(entry.is_dir))
    for entry in entries:
        if not _is_system_file(entry.name) and _is(partial(entry.is_dir, follow_symlinks=False)):
            yield from _walk_files(entry.path, f"{inside}{entry.name}/")


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError:  # such as a link to itself
        return False


def is_utf8(name: str) -> bool:
    """Whether a file name is text; on Linux it can be any bytes, which tables do not hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_system_file(name: str) -> bool:
    return name.startswith(".") or name.casefold() in SYSTEM_FILES
