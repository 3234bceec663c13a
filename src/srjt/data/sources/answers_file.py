"""Answers of a language model, or of any other program, as one more reader.

A file of answers names an item and the grade that the program gave it, and may hold the probability
that the program claims for its answer. What such a claim is worth is not known beforehand: answers
that are claimed with more, and with less, than the median probability are two readers. How often
each is right is estimated from the items that people have read, too, like for every reader.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.names import join_names
from srjt.data.sources.readings import NO_READER, ReadingsTable, read_readings
from srjt.data.sources.table import load_table
from srjt.errors import SrjtError

ITEM = ("item", "image", "id", "file")
ANSWER = ("answer", "grade", "label")
PROBABILITY = ("probability", "confidence")


def with_answers(reading: ReadingsTable, path: Path) -> ReadingsTable:
    """The readings of people, followed by the answers in a file; the reader's name is that of the
    file.

    Parameters
    ----------
    reading : ReadingsTable
        What people have read.
    path : Path
        A table with a column ``item``, ``image``, ``id`` or ``file``, a column ``answer``,
        ``grade`` or ``label`` and, if known, ``probability`` or ``confidence``. It may have items
        that nobody has read.

    Examples
    --------
    >>> import srjt
    >>> people = pd.DataFrame({"image": ["a", "a", "b"], "reader": ["x", "y", "x"]})
    >>> people = srjt.data.read_readings(people.assign(grade=["0", "1", "2"]))
    >>> with_answers(people, Path("model.csv")).readings.readers  # doctest: +SKIP
    ['model', 'x', 'y']
    """
    if reading.readings.readers == [NO_READER]:
        raise SrjtError(
            "Answers are compared with readers, but the readings do not say whose they are: add a"
            " column of readers.",
            code="missing_column",
        )
    frame = load_table(path).frame
    columns = [[name for name in names if name in frame] for names in (ITEM, ANSWER)]
    for wanted, there in zip((ITEM, ANSWER), columns, strict=True):
        if not there:
            raise SrjtError(
                f"{path} has no column {', '.join(wanted[:-1])} or {wanted[-1]}.",
                code="missing_column",
            )
    (item, *_), (answer, *_) = columns
    people = _long_table(reading)
    names = reading.readings.items
    joined = join_names(frame[item].tolist(), names, wanted_in=str(path), known_in="the readings")
    if (joined < 0).all():
        raise SrjtError(
            f"{path} has no {reading.columns.noun} that people have read, so nothing tells how"
            " often its answers are right.",
            code="no_match",
        )
    known = np.array([*names, ""], dtype=object)[joined]
    noun = reading.columns.noun
    answers = pd.DataFrame(
        {
            noun: np.where(joined >= 0, known, frame[item].to_numpy(dtype=object)),
            "reader": _reader_of_each(frame, path),
            "grade": frame[answer].to_numpy(dtype=object),
        }
    )
    about = people.drop(columns=["reader", "grade"]).drop_duplicates(noun)
    both = pd.concat([people, answers.merge(about, on=noun, how="left")], ignore_index=True)
    joined_table = read_readings(both.fillna(""), grades=reading.readings.grades)
    if not set(joined_table.readings.readers) - set(reading.readings.readers):
        raise SrjtError(
            f"{path} has no answer that is one of the readers' grades.", code="unknown_grade"
        )
    return joined_table


def _long_table(reading: ReadingsTable) -> pd.DataFrame:
    """One row per reading."""
    readings = reading.readings
    noun = reading.columns.noun
    items = np.array(readings.items, dtype=object)
    columns = {
        noun: items[readings.item],
        "reader": np.array(readings.readers, dtype=object)[readings.reader],
        "grade": np.array(readings.grades, dtype=object)[readings.grade],
    }
    if noun == "item" and reading.columns.image is not None:
        columns["image"] = reading.frame[reading.columns.image].to_numpy(object)[reading.rows]
    if reading.columns.patient is not None and readings.groups is not None:
        columns["patient"] = np.array(readings.groups, dtype=object)[readings.item]
    if readings.reference is not None:
        trusted = np.array([*readings.grades, ""], dtype=object)
        columns["reference"] = trusted[readings.reference[readings.item]]
    if readings.times is not None:
        times = pd.Series(readings.times)
        columns["date"] = times.dt.strftime("%Y-%m-%dT%H:%M:%S").fillna("").to_numpy(object)
    return pd.DataFrame(columns)


def _reader_of_each(frame: pd.DataFrame, path: Path) -> list[str]:
    """(n,) the reader that each answer is of: the file, or its more and its less certain
    answers."""
    columns = [name for name in PROBABILITY if name in frame]
    if not columns:
        return [path.stem] * len(frame)
    claimed = pd.to_numeric(frame[columns[0]], errors="coerce").to_numpy(np.float64)
    middle = float(np.nanmedian(claimed)) if np.isfinite(claimed).any() else np.nan
    certain = claimed >= middle
    if certain.all() or not certain.any():  # the program always claims the same
        certain = claimed > middle
    if certain.all() or not certain.any():
        return [path.stem] * len(frame)
    names = (f"{path.stem} (less certain)", f"{path.stem} (certain)")
    return [names[int(one)] for one in certain]
