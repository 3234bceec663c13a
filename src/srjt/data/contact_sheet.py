"""Contact sheets: some images of each grade, mildest on top; and pairs of images that are the same."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from srjt.data.images.decode import BadImageError, read_image, resized
from srjt.data.manifest import Manifest
from srjt.errors import count_of

__all__ = ["contact_sheet", "pair_sheet"]

MARGIN, GAP, LABEL_WIDTH = 12, 4, 120
CAPTION = 15  # height of a line
PAPER, INK, FAINT, WARNING = (255, 255, 255), (20, 20, 20), (120, 120, 120), (190, 30, 30)


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
        count = count_of(int(manifest.class_counts[grade]), "image")
        draw.text((MARGIN, top + tile / 2 + 2), count, FAINT, font=count_font)
        for column, example in enumerate(_examples(manifest, grade, per_grade, tile, seed)):
            sheet.paste(example, (MARGIN + LABEL_WIDTH + column * (tile + GAP), top))
    return sheet


def pair_sheet(
    manifest: Manifest, pairs: npt.NDArray[np.int64], *, columns: int = 3, count: int = 60, tile: int = 112
) -> Image.Image:
    """The first ``count`` pairs, each side by side with its grades and ids. pairs: (M, 2) rows."""
    shown = pairs[:count].tolist()
    width, height = 2 * tile + GAP, tile + 2 * CAPTION
    rows = -(-len(shown) // columns)
    sheet = Image.new("RGB", (MARGIN + columns * (width + MARGIN), MARGIN + rows * (height + MARGIN)), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    ids, labels = manifest.ids, manifest.labels
    for place, pair in enumerate(shown):
        left = MARGIN + place % columns * (width + MARGIN)
        top = MARGIN + place // columns * (height + MARGIN)
        contradict = labels[pair[0]] != labels[pair[1]]
        for column, row in enumerate(pair):
            at = left + column * (tile + GAP)
            sheet.paste(_thumbnail(manifest, row, tile), (at, top))
            # The end of a path tells more than its beginning.
            name = _shortened(ids[row][::-1], font, tile - GAP)[::-1]
            draw.text((at, top + tile), name, FAINT, font=font)
            grade = _shortened(manifest.grades[labels[row]], font, tile - GAP)
            draw.text((at, top + tile + CAPTION), grade, WARNING if contradict else INK, font=font)
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
