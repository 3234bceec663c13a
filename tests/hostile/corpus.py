"""Small valid input files, made in code, and files that once ended in a traceback, a hang or a
silent loss."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import openpyxl
import pandas as pd
from PIL import Image

from fixtures.dicom_files import dicom_dataset

ROWS = 24
IDS = [f"{row}.png" for row in range(ROWS)]
GRADES = [row % 3 for row in range(ROWS)]
PATIENTS = [f"p{row // 2:03}" for row in range(ROWS)]


def csv_table() -> bytes:
    rows = [f'{i},{g},{p},"a, note"' for i, g, p in zip(IDS, GRADES, PATIENTS, strict=True)]
    return "\n".join(["image,grade,patient,note", *rows]).encode()


def parquet_table(**more: object) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame({"image": IDS, "grade": GRADES, "patient": PATIENTS, **more}).to_parquet(buffer)
    return buffer.getvalue()


def excel_table() -> bytes:
    book, buffer = openpyxl.Workbook(), io.BytesIO()
    for row in [("image", "grade", "patient"), *zip(IDS, GRADES, PATIENTS, strict=True)]:
        book.active.append(row)
    book.save(buffer)
    return buffer.getvalue()


def split_file() -> bytes:
    sides = ["train"] * 12 + ["validation"] * 6 + ["test"] * 6
    return "\n".join(
        ["id,fold,split", *(f"{i},0,{s}" for i, s in zip(IDS, sides, strict=True))]
    ).encode()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(*, compress: bool = True, **arrays: object) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def features(**more: object) -> bytes:
    numbers = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    return npz(features=numbers, grades=np.array(GRADES), ids=np.array(IDS), **more)


def medmnist() -> bytes:
    sides = ("train", "val", "test")
    images = {f"{side}_images": np.zeros((6, 4, 4), np.uint8) for side in sides}
    return npz(**images, **{f"{side}_labels": np.arange(6)[:, None] % 3 for side in sides})


def picture(format: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=format)
    return buffer.getvalue()


def dicom() -> bytes:
    pixels, buffer = np.arange(64, dtype=np.uint16).reshape(8, 8), io.BytesIO()
    dicom_dataset(pixels, WindowCenter=100, WindowWidth=200).save_as(buffer)
    return buffer.getvalue()


def settings() -> bytes:
    return b"method: co-teaching+ours\nepochs: 3\nlearning_rate: 1e-3\nmilestones: [1, 2]\nnoise_rate: 0.2\n"


VALID: dict[str, Callable[[], bytes]] = {
    "table.csv": csv_table,
    "table.parquet": parquet_table,
    "table.xlsx": excel_table,
    "features.npz": features,
    "features.npy": lambda: npy(np.ones((ROWS, 3), np.float32)),
    "medmnist.npz": medmnist,
    "image.png": lambda: picture("PNG"),
    "image.jpg": lambda: picture("JPEG"),
    "image.tif": lambda: picture("TIFF"),
    "image.gif": lambda: picture("GIF"),
    "image.webp": lambda: picture("WEBP"),
    "image.bmp": lambda: picture("BMP"),
    "image.dcm": dicom,
    "splits.csv": split_file,
    "settings.yaml": settings,
}


def png_of_size(width: int, height: int, *, depth: int = 8, rows: bytes = bytes(100)) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def damaged_deflate() -> bytes:
    content = bytearray(features())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.infolist()[0].header_offset + 60
    content[start : start + 30] = b"\xff" * 30
    return bytes(content)


def strange_member() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("features.npy", npy(np.ones((2, 2))))
        archive.writestr("grades", b"not an array")
    return buffer.getvalue()


def alias_bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines).encode()


def nan_image() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(buffer, format="TIFF")
    return buffer.getvalue()


# name of the file → content. Each was a traceback, a hang, or rows lost in silence.
PAST_FINDINGS: dict[str, dict[str, Callable[[], bytes]]] = {
    "table.csv": {
        "an unclosed quote": lambda: csv_table().replace(b"12.png", b'"12.png'),
        "two stray quotes": lambda: b'image,grade\na.png,"0\nb.png,1\nc.png,0"\nd.png,1\n',
        "an unclosed quote over a blank line": lambda: (
            b'image,grade\na,0\nb,"1\nc,0\n\nd,1\ne,0"\nf,1\n'
        ),
        "an unclosed quote over a remark": lambda: (
            b'image,grade\na,0\nb,"1\nc,0\nx, y, z\ne,0"\nf,1\n'
        ),
        "escape sequences": lambda: b"image,grade\n\x1b]0;x\x07.png,\x1b[2J0\nb.png,1\n",
        "full-width formulas": lambda: csv_table().replace(b"p000", "＝1+1".encode()),
        "a name over 255 bytes": lambda: csv_table().replace(b"3.png", b"x" * 300),
        "a folder over 255 bytes": lambda: csv_table().replace(b"3.png", b"x" * 300 + b"/a"),
        "NUL in a name": lambda: csv_table().replace(b"3.png", b"a\0b"),
        "NUL in a folder": lambda: csv_table().replace(b"3.png", b"a\0b/c.png"),
        "latin-1": lambda: csv_table().replace(b"note", "é".encode("latin-1")),
        "UTF-16": lambda: csv_table().decode().encode("utf-16"),
        "a grade of rich markup": lambda: b"image,grade\na.png,[/] 0\nb.png,[/] 1\nc.png,[/] 1\n",
        "a grade of 5,000 digits": lambda: b"image,grade\na.png,G" + b"1" * 5000 + b"\nb.png,G1\n",
        "a grade of 100,000 digits and a letter": lambda: (
            b"image,grade\na," + b"1" * 100_000 + b"x\nb,G1\n"
        ),
        "a grade of 1e308": lambda: b"image,grade\na.png,1e308\nb.png,0\n",
        "60 grades": lambda: (
            b"image,grade\n" + b"\n".join(b"%d.png,%d" % (n, n) for n in range(60))
        ),
        "a cell of 200 kB": lambda: csv_table().replace(b"3.png", b"x" * 200_000),
        "a million commas": lambda: b"image,grade\n" + b"," * 1_000_000,
        "carriage returns": lambda: csv_table().replace(b"\n", b"\r"),
        "a formula": lambda: csv_table().replace(b"p000", b"=HYPERLINK(1)"),
        "only a byte order mark": lambda: b"\xef\xbb\xbf",
    },
    "table.parquet": {
        "a list column": lambda: parquet_table(boxes=[[1, 2]] * ROWS),
        "a list of grades": lambda: parquet_table(level=[[1, 2]] * ROWS),
        "a dictionary column": lambda: parquet_table(facts=[{"a": 1}] * ROWS),
        "missing integers": lambda: parquet_table(
            n=pd.array([None, *range(ROWS - 1)], dtype="Int64")
        ),
        "only the magic bytes": lambda: b"PAR1PAR1",
    },
    "table.xlsx": {"an archive of something else": features, "text": csv_table},
    "features.npz": {
        "a damaged deflate stream": damaged_deflate,
        "0-d names of the grades": lambda: features(grade_names=np.array("mild")),
        "2-d names of the grades": lambda: features(grade_names=np.array([["a", "b"], ["c", "d"]])),
        "bytes that are not ASCII": lambda: features(
            patients=np.array([b"\xff%d" % n for n in range(ROWS)])
        ),
        "a member that is not an array": strange_member,
        "a huge header": lambda: npz(compress=False, features=np.ones((2, 3))).replace(
            b"(2, 3)", b"(9999999999, 3)"
        ),
        "complex features": lambda: npz(features=np.ones((2, 2), complex), grades=np.array([0, 1])),
        "no rows": lambda: npz(features=np.ones((0, 2)), grades=np.array([])),
        "a structured array": lambda: features(
            extra=np.zeros(ROWS, dtype=[("a", int), ("b", "U3")])
        ),
    },
    "features.npy": {
        "a huge header": lambda: npy(np.ones((2, 3))).replace(b"(2, 3)", b"(2, 999999999)"),
        "a negative shape": lambda: npy(np.ones((2, 3))).replace(b"(2, 3)", b"(2,-3)"),
        "a header that is no dictionary": lambda: npy(np.ones((2, 3))).replace(
            b"{'descr", b"['descr"
        ),
        "an unknown version": lambda: b"\x93NUMPY\x09\x09" + bytes(100),
        "an archive": features,
    },
    "medmnist.npz": {
        "0-d labels": lambda: npz(
            **{
                f"{side}_images": np.zeros((1, 4, 4), np.uint8) for side in ("train", "val", "test")
            },
            **{f"{side}_labels": np.array(0) for side in ("train", "val", "test")},
        )
    },
    "image.png": {
        "20,000 × 20,000 pixels": lambda: png_of_size(20_000, 20_000),
        "10,000 × 10,000 pixels that are not there": lambda: png_of_size(10_000, 10_000),
        "no pixels": lambda: png_of_size(0, 0),
    },
    "image.tif": {"no numbers": nan_image},
    "image.dcm": {"no prefix": lambda: dicom()[132:], "no pixels": lambda: dicom()[:400]},
    "splits.csv": {
        "latin-1": lambda: split_file().replace(b"3.png", "é".encode("latin-1")),
        "UTF-16": lambda: split_file().decode().encode("utf-16"),
        "an unclosed quote": lambda: split_file().replace(b"3.png", b'"3.png'),
        "a fold of 5,000 digits": lambda: split_file().replace(b",0,", b"," + b"1" * 5000 + b","),
        "missing cells": lambda: b"id,fold,split\n0.png\n",
    },
    "settings.yaml": {
        "a date out of range": lambda: b"epochs: 2026-99-99\n",
        "a tag": lambda: b"epochs: !!int x\n",
        "5,000 digits": lambda: b"epochs: " + b"1" * 5000,
        "deep nesting": lambda: b"[" * 3000,
        "a bomb of aliases": alias_bomb,
        "a million bytes": lambda: b"epochs: " + b" " * 10**6,
        "modules": lambda: b"imports: [this]\n",
        "a recursive anchor": lambda: b"epochs: &a [*a]\n",
        "a Python object": lambda: b"epochs: !!python/object/apply:os.system ['true']\n",
        "a list": lambda: b"- 1\n",
    },
}
