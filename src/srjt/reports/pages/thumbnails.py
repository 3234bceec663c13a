"""Small pictures of samples, wherever their images are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.reports.pages.html import data_uri

__all__ = ["thumbnail", "thumbnails_of"]

PICTURE = 144  # pixels


def thumbnail(path: str | os.PathLike[str]) -> str:
    """The picture of an image file; "" if it cannot be read."""
    try:
        return data_uri(Image.fromarray(read_image(path, size=PICTURE, resize="squash")))
    except (BadImageError, MemoryError):
        return ""


def thumbnails_of(images: Sequence[str], data: Manifest | None) -> Callable[[int], str]:
    """Row → its picture, for images named as in ``data``; without data the names are paths. Features have none."""
    if data is None:
        return lambda row: thumbnail(images[row])
    place = {str(image): row for row, image in enumerate(data.table["image"])}
    paths = data.paths

    def picture(row: int) -> str:
        found = place.get(images[row])
        if found is None or data.are_features:
            return ""
        if data.arrays is None:
            return thumbnail(paths[found])
        pixels = Image.fromarray(np.asarray(data.arrays[found], dtype=np.uint8))
        return data_uri(pixels.resize((PICTURE, PICTURE), Image.Resampling.BILINEAR))

    return picture
