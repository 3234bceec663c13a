"""Find the image files that a table names."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path

from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.problems import Problem

__all__ = ["find_image_folder", "locate_images", "relative_name"]

# Where images are, beside a table. The first folder that has some of them is used.
IMAGE_FOLDERS = ("", "images", "train_images", "img", "imgs", "train", "test_images", "test")


def find_image_folder(names: Sequence[str], directory: Path) -> Path:
    """``directory``, or the folder in it that has images of these names: archives are unpacked to different places."""
    sample = [name for name in names if name][:: max(1, len(names) // 20)]
    for name in IMAGE_FOLDERS:
        folder = directory / name
        located, _ = locate_images(sample, folder)
        if any(os.path.isfile(folder / image) for image in located):
            return folder
    return directory


def locate_images(names: Sequence[str], root: Path) -> tuple[list[str], list[Problem]]:
    """Find the files of names without a suffix ("10_left"), and files without the suffix of their name.

    A name for which there is no file is unchanged.
    """
    files: dict[str, dict[str, list[str]]] = {}
    found, problems = [], []
    for name in names:
        folder, file = posixpath.split(name)
        if folder not in files:
            files[folder] = _files_by_stem(root / folder)
        stem, suffix = posixpath.splitext(file)
        if suffix.lower() not in IMAGE_SUFFIXES:
            stem = file
        same_stem = files[folder].get(stem, [])
        if file in same_stem:
            matching = [file]
        elif stem != file:  # another suffix would be another image
            matching = [stem] if stem in same_stem else []
        else:
            matching = same_stem
        if len(matching) > 1:
            problems.append(Problem("ambiguous-image", name, f"{', '.join(matching)}: the first is used"))
        found.append(posixpath.join(folder, matching[0]) if matching else name)
    return found, problems


def relative_name(name: str, root: Path) -> str:
    """One spelling per file: forward slashes, no "./", relative to ``root`` if it is below it."""
    if not name:
        return ""
    name = posixpath.normpath(name.replace("\\", "/"))
    path = Path(name)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else name


def _files_by_stem(folder: Path) -> dict[str, list[str]]:
    """The files in a folder by their names without the suffix of an image."""
    by_stem: dict[str, list[str]] = {}
    if os.path.isdir(folder):  # False for a name that is too long or contains NUL
        for name in sorted(os.listdir(folder)):
            stem, suffix = os.path.splitext(name)
            by_stem.setdefault(stem if suffix.lower() in IMAGE_SUFFIXES else name, []).append(name)
    return by_stem
