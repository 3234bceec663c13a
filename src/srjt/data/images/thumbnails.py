"""Small pictures of samples, as text that a page or a notebook can contain."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from srjt.data.images.decode import read_image
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError

__all__ = ["data_uri", "thumbnail"]


def data_uri(image: Image.Image) -> str:
    """A picture as text that a page can contain."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def thumbnail(manifest: Manifest, row: int, *, size: int = 112) -> str:
    """The image of one sample, at most ``size`` pixels a side; "" for features and for an unreadable image."""
    if manifest.are_features:
        return ""
    try:
        path = Path(manifest.root / str(manifest.table["image"].iloc[row]))
        pixels = read_image(path) if manifest.arrays is None else np.asarray(manifest.arrays[row])
    except (SrjtError, MemoryError):
        return ""
    image = Image.fromarray(pixels)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return data_uri(image)
