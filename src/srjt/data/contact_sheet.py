"""The contact sheet: some images of each grade, mildest on top."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from srjt.data.images.decode import BadImageError, read_image, resized
from srjt.data.manifest import Manifest

__all__ = ["contact_sheet"]

MARGIN, GAP, LABEL_WIDTH = 12, 4, 120
PAPER, INK, FAINT = (255, 255, 255), (20, 20, 20), (120, 120, 120)


def contact_sheet(manifest: Manifest, *, per_grade: int = 8, tile: int = 112, seed: int = 0) -> Image.Image:
    """One row per grade with up to ``per_grade`` images, of different patients if there are enough.

    Images that cannot be read are skipped.
    """
    width = 2 * MARGIN + LABEL_WIDTH + per_grade * (tile + GAP) - GAP
    height = 2 * MARGIN + manifest.num_classes * (tile + GAP) - GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    name_font, count_font = ImageFont.load_default(18), ImageFont.load_default(13)
    for grade, name in enumerate(manifest.grades):
        top = MARGIN + grade * (tile + GAP)
        shown = _shortened(name, name_font, LABEL_WIDTH - GAP)
        draw.text((MARGIN, top + tile / 2 - 22), shown, INK, font=name_font)
        count = f"{manifest.class_counts[grade]:,} images"
        draw.text((MARGIN, top + tile / 2 + 2), count, FAINT, font=count_font)
        for column, example in enumerate(_examples(manifest, grade, per_grade, tile, seed)):
            sheet.paste(example, (MARGIN + LABEL_WIDTH + column * (tile + GAP), top))
    return sheet


def _examples(manifest: Manifest, grade: int, count: int, tile: int, seed: int) -> list[Image.Image]:
    chosen: list[Image.Image] = []
    for row in _order(manifest, grade, seed):
        if len(chosen) == count:
            break
        try:
            chosen.append(_thumbnail(manifest, row, tile))
        except BadImageError:
            continue
    return chosen


def _order(manifest: Manifest, grade: int, seed: int) -> list[int]:
    """The rows of a grade in a reproducible random order: the first images of all patients, then the second, …"""
    ids = manifest.ids
    owners = manifest.patients or ids
    rows = [int(row) for row in np.flatnonzero(manifest.labels == grade)]
    rows.sort(key=lambda row: hashlib.blake2b(f"{seed}/{ids[row]}".encode()).digest())
    count: dict[str, int] = {}  # images of each patient so far
    round_of = {}
    for row in rows:
        round_of[row] = count[owners[row]] = count.get(owners[row], -1) + 1
    return sorted(rows, key=round_of.__getitem__)


def _thumbnail(manifest: Manifest, row: int, tile: int) -> Image.Image:
    if manifest.arrays is None:
        return Image.fromarray(read_image(manifest.paths[row], size=tile, resize="squash"))
    return resized(
        Image.fromarray(np.asarray(manifest.arrays[row], dtype=np.uint8)), size=tile, resize="squash"
    )


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
