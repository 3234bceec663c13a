"""Well-formed files with strange contents: cells, types, shapes and names that nobody expects."""

import csv
import datetime
import decimal
import io
import random

import numpy as np
import openpyxl
import pandas as pd

from hostile.corpus import npy, npz

CELLS = (
    "", " ", "nan", "None", "-", "-1", "1e309", "0", "1", "2", "3", "2.5", "2.0", "007", "[/] 0", "[/] 1", "Mayo 2",
    "Mayo 3", "²", "٣", "½", "x" * 300, "a\0b", "../x.png", "/dev/zero", "/dev/null", "/", ".", "..", "C:\\x.png",
    "é.png", "a,b", 'q"uote', "=1+1", "line\nbreak", "train", "val", "test", "True", "\u202e", "😀", "1" * 5000,
    "%s{0}", "a.png", "b.png",
)  # fmt: skip
COLUMNS = (
    "image", "Image", "file", "grade", "label", "patient", "split", "part", "true_grade", "id", "sample_id", "f0", "f1",
    "features", "embedding", "note", "[/]", "", " ",
)  # fmt: skip
VALUES = (
    None, float("nan"), float("inf"), 0, 1, -1, 2**62, 1.5, True, "0", "a.png", b"\xff", [1.0, 2.0], [1.0], [], [None],
    ["x"], {"a": 1}, datetime.date(2026, 1, 1), decimal.Decimal("1.0"),
)  # fmt: skip
ARRAYS = (
    "features", "embeddings", "grades", "labels", "ids", "patients", "images", "grade_names", "made", "split",
    "true_grades", "file", "train_images", "train_labels",
)  # fmt: skip
TYPES = ("f2", "f4", "f8", "f16", "i1", "i8", "u8", "?", "c16", "U5", "S5", "M8[D]", "m8[s]", "V4")


def table(chance: random.Random, *, rows: int = 6) -> tuple[list[str], list[list[str]]]:
    columns = ["image", "grade", *chance.sample(COLUMNS, chance.randint(0, 4))]
    few = chance.sample(CELLS, chance.randint(2, 8))  # few, so that grades and patients repeat
    return columns, [[chance.choice(few) for _ in columns] for _ in range(rows)]


def csv_file(chance: random.Random) -> bytes:
    columns, rows = table(chance)
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=chance.choice(",;\t")).writerows([columns, *rows])
    return text.getvalue().encode()


def excel_file(chance: random.Random) -> bytes:
    columns, rows = table(chance)
    book, buffer = openpyxl.Workbook(), io.BytesIO()
    scalars = [value for value in VALUES if not isinstance(value, (bytes, list, dict))]
    for row in [columns, *rows]:
        cells = [cell.replace("\0", "") for cell in row]
        book.active.append(
            [chance.choice([cell, cell, cell, chance.choice(scalars)]) for cell in cells]
        )
    book.save(buffer)
    return buffer.getvalue()


def parquet_file(chance: random.Random) -> bytes:
    columns, rows = table(chance)
    frame = pd.DataFrame(dict(zip(columns, zip(*rows, strict=True), strict=False)))
    for column in frame.columns:
        if chance.random() < 0.5:  # Parquet has one type per column
            value = chance.choice(VALUES)
            frame[column] = pd.Series(
                [chance.choice([value, value, None]) for _ in rows], dtype=object
            )
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


def array(chance: random.Random) -> np.ndarray:
    flat = [(), (0,), (1,), (6,), (6,)]
    shape = chance.choice([*flat, (6, 1), (6, 2), (6, 2), (0, 2), (6, 0), (6, 2, 2), (6, 4, 4, 3)])
    kind = np.dtype(chance.choice(TYPES))
    count = int(np.prod(shape))
    return np.frombuffer(chance.randbytes(count * kind.itemsize), kind, count).reshape(shape)


def npz_file(chance: random.Random) -> bytes:
    names = ["features", "grades", *chance.sample(ARRAYS, chance.randint(0, 5))]
    arrays = {name: array(chance) for name in names}
    if chance.random() < 0.7:
        arrays["features"] = np.ones((6, 2), chance.choice(["f4", "i8", "?"]))
    if chance.random() < 0.7:
        arrays["grades"] = np.arange(6) % 2
    return npz(**{name: values for name, values in arrays.items() if name != "file"})


def npy_file(chance: random.Random) -> bytes:
    return npy(array(chance))


STRANGE = {
    "table.csv": csv_file,
    "table.xlsx": excel_file,
    "table.parquet": parquet_file,
    "features.npz": npz_file,
    "features.npy": npy_file,
    "medmnist.npz": npz_file,
}
