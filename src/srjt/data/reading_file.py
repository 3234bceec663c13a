"""How a source is read, written beside it once: ``labels.srjt.yaml`` for ``labels.csv``.

``srjt data inspect`` writes it, people edit it, and everything that reads the source uses it.
Options that somebody types, or passes in Python, override it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from srjt.data.options import ReadOptions, without_none
from srjt.errors import Message, Option, SrjtError, unknown_name
from srjt.files import path_from, write_output
from srjt.settings import load_config

SUFFIX = ".srjt.yaml"
TABLE = "table"  # the file that the options are for: labels.csv and labels.npz would share a name
ON_BAD_IMAGE = "on_bad_image"
PATHS = ("images", "labels")  # relative to the reading file
LISTS = ("grades", "map_grades")  # may be written as one text, as on the command line
HEADER = """\
# How {name} is read. Every srjt command and srjt.data.read use this file; \
options that are typed override it.
# Edit it, or delete it and run srjt data inspect again.
"""


def reading_file(source: str | os.PathLike[str]) -> Path:
    """Where the options of a source are kept: beside the table, or beside a folder of images."""
    path = Path(source)
    if path.is_dir():
        inside = path / "labels.csv"
        # a folder of images gets no other file: it would be one that is not an image
        return inside.with_suffix(SUFFIX) if inside.is_file() else Path(f"{path.resolve()}{SUFFIX}")
    return path.with_suffix(SUFFIX)


def load_reading_file(source: str | os.PathLike[str]) -> dict[str, Any]:
    """The options that are kept beside a source, by name; empty if there are none."""
    try:
        file = reading_file(source)
        if not file.is_file():
            return {}
    except (OSError, ValueError):  # too long, or contains NUL: reading the source says so
        return {}
    values = load_config(file)
    if values.pop(TABLE, None) not in (None, table_name(source)):
        return {}  # of another file with the same beginning
    known = {*(field.name for field in fields(ReadOptions)), ON_BAD_IMAGE}
    for name in values:
        if name not in known:
            raise unknown_name(f"reading option (in {file})", str(name), known)
    for name in LISTS:
        if isinstance(values.get(name), str):
            values[name] = list(map(str.strip, values[name].split(",")))
    for name in PATHS:
        if values.get(name) is not None:
            values[name] = file.parent / str(values[name])
    if values.get(ON_BAD_IMAGE, "error") not in ("error", "skip"):
        kind = Message(Option(ON_BAD_IMAGE), f" (in {file})")
        raise unknown_name(kind, values[ON_BAD_IMAGE], ["error", "skip"])
    return without_none(values)


def write_reading_file(source: str | os.PathLike[str], options: Mapping[str, Any]) -> bool:
    """Keep the options beside the source; returns whether the file is new or has changed.

    A file that says the same is left alone, with the comments that somebody wrote into it.
    """
    import yaml

    file = reading_file(source)
    values = _as_written(without_none(options), file.parent)
    if file.is_file() and _as_written(load_reading_file(source), file.parent) == values:
        return False
    name = table_name(source)
    text = HEADER.format(name=name)
    for option, value in {TABLE: name, **values}.items():  # one per line, also a list
        line = yaml.safe_dump(
            {option: value}, allow_unicode=True, default_flow_style=None, width=10_000
        )
        text += line.strip("{}\n") + "\n"
    write_output(file, text.encode("utf-8", "surrogateescape"))
    return True


def table_name(source: str | os.PathLike[str]) -> str:
    """The name of the table, or of the folder, that a reading file is for."""
    path = Path(source)
    if path.is_dir():
        return "labels.csv" if (path / "labels.csv").is_file() else path.resolve().name
    return path.name


def used(source: str | os.PathLike[str], problem: SrjtError) -> SrjtError:
    """The error, with where the options came from: the table may have changed since."""
    return type(problem)(
        problem,
        f" (Options of reading come from {reading_file(source)}: edit or delete it.)",
        code=problem.code,
        option=problem.option,
    )


def _as_written(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The options as YAML keeps them; a path below the folder is relative to it."""
    written: dict[str, Any] = {}
    for name, value in options.items():
        if name in PATHS:
            written[name] = path_from(Path(value).absolute(), folder.absolute())
        elif isinstance(value, (list, tuple)):
            written[name] = list(map(str, value))
        else:
            written[name] = str(value)
    return written
