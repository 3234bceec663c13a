"""Small pictures of samples for pages and notebooks; contact sheets of grades and duplicates."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from srjt.data.images.decode import BadImageError, read_image, resized
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, count_of


def data_uri(image: Image.Image) -> str:
    """A picture as text that a page can contain."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def thumbnail(manifest: Manifest, row: int, *, size: int = 112) -> str:
    """The image of one sample, at most ``size`` pixels a side; "" for features and for an
    unreadable image."""
    if manifest.are_features:
        return ""
    try:
        image = _picture(manifest, row)
    except (SrjtError, MemoryError):
        return ""
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return data_uri(image)


def _picture(manifest: Manifest, row: int, side: int | None = None) -> Image.Image:
    """The image of one sample. side: of the square that it is squashed to."""
    if manifest.arrays is None:
        return Image.fromarray(
            read_image(manifest.root / str(manifest.table["image"].iloc[row]), size=side)
        )
    picture = Image.fromarray(np.asarray(manifest.arrays[row], dtype=np.uint8))
    return picture if side is None else resized(picture, size=side, resize="squash")


# Contact sheets: some images of each grade, mildest on top; and pairs of images that are the same.

MARGIN = 12
GAP = 4
LABEL_WIDTH = 120
CAPTION = 15  # height of a line
PAPER = (255, 255, 255)
INK = (20, 20, 20)
FAINT = (120, 120, 120)
WARNING = (190, 30, 30)


def contact_sheet(
    manifest: Manifest, *, per_grade: int = 8, tile: int = 112, seed: int = 0
) -> Image.Image:
    """One row per grade with up to ``per_grade`` images, of different patients if there are enough.

    Images that cannot be read are skipped.
    """
    width = 2 * MARGIN + LABEL_WIDTH + per_grade * (tile + GAP) - GAP
    height = 2 * MARGIN + manifest.num_classes * (tile + GAP) - GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    name_font = ImageFont.load_default(18)
    count_font = ImageFont.load_default(13)
    for grade, name in enumerate(manifest.grades):
        top = MARGIN + grade * (tile + GAP)
        shown = _shortened(name, name_font, LABEL_WIDTH - GAP)
        draw.text((MARGIN, top + tile / 2 - 22), shown, INK, font=name_font)
        count = count_of(int(manifest.class_counts[grade]), "image")
        draw.text((MARGIN, top + tile / 2 + 2), count, FAINT, font=count_font)
        for column, example in enumerate(islice(_examples(manifest, grade, tile, seed), per_grade)):
            sheet.paste(example, (MARGIN + LABEL_WIDTH + column * (tile + GAP), top))
    return sheet


def pair_sheet(
    manifest: Manifest,
    pairs: npt.NDArray[np.int64],
    *,
    columns: int = 3,
    count: int = 60,
    tile: int = 112,
) -> Image.Image:
    """The first ``count`` pairs, each side by side with its grades and ids. pairs: (M, 2) rows."""
    shown = pairs[:count].tolist()
    width = 2 * tile + GAP
    height = tile + 2 * CAPTION
    rows = -(-len(shown) // columns)
    sheet = Image.new(
        "RGB", (MARGIN + columns * (width + MARGIN), MARGIN + rows * (height + MARGIN)), PAPER
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    ids = manifest.ids
    labels = manifest.labels
    for place, pair in enumerate(shown):
        left = MARGIN + place % columns * (width + MARGIN)
        top = MARGIN + place // columns * (height + MARGIN)
        contradict = labels[pair[0]] != labels[pair[1]]
        for column, row in enumerate(pair):
            at = left + column * (tile + GAP)
            sheet.paste(_picture(manifest, row, tile), (at, top))
            # The end of a path tells more than its beginning.
            name = _shortened(ids[row][::-1], font, tile - GAP)[::-1]
            draw.text((at, top + tile), name, FAINT, font=font)
            grade = _shortened(manifest.grades[labels[row]], font, tile - GAP)
            draw.text((at, top + tile + CAPTION), grade, WARNING if contradict else INK, font=font)
    return sheet


def example_rows(manifest: Manifest, grade: int, *, seed: int = 0) -> list[int]:
    """The rows of a grade in a reproducible random order: the first ones of all patients, then the
    second, …"""
    ids = manifest.ids
    owners = manifest.patients or manifest.ids
    rows: list[int] = np.flatnonzero(manifest.labels == grade).tolist()
    rows.sort(key=lambda row: hashlib.blake2b(f"{seed}/{ids[row]}".encode()).digest())
    of_patient = pd.Series([owners[row] for row in rows], dtype=object)
    order = of_patient.groupby(of_patient).cumcount().argsort(kind="stable")
    return [rows[place] for place in order]


def _examples(manifest: Manifest, grade: int, tile: int, seed: int) -> Iterator[Image.Image]:
    """Images of a grade, in the order of ``example_rows``."""
    for row in example_rows(manifest, grade, seed=seed):
        with contextlib.suppress(BadImageError):
            yield _picture(manifest, row, tile)


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
