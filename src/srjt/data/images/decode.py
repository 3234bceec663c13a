"""Decode one image file of any supported format to an 8-bit RGB array."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image, UnidentifiedImageError

from srjt.data.images.dicom import read_dicom
from srjt.data.images.pixel_depth import UInt8Array, to_8bit
from srjt.errors import SrjtError, suggest
from srjt.files import describe_os_error, why_not_a_file

__all__ = [
    "DECODER_VERSION",
    "IMAGE_SUFFIXES",
    "BadImageError",
    "Resize",
    "check_resize",
    "is_image",
    "read_image",
    "resized",
]

Resize = Literal["squash", "crop"]

# A file with another suffix, or with none, is an image if its content is one.
IMAGE_SUFFIXES = frozenset(
    {".bmp", ".dcm", ".dicom", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"}
)

# Part of the key of every store: raise it when the same file gives other pixels.
DECODER_VERSION = 2

# Only these are tried: some other Pillow readers start programs (EPS) or do not read photographs.
_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "GIF", "JPEG2000", "PPM")

_EXIF_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


EMPTY_FILE = "the file is empty (0 bytes)"
# what Pillow says of the bytes after the header of a damaged file
DAMAGED = ("decoder", "broken", "data stream", "corrupt")


class BadImageError(SrjtError):
    """A file that cannot be read as an image. ``reason`` is the message without the file name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"Cannot read the image {path}: {reason}.")
        self.reason = reason


def read_image(
    path: str | os.PathLike[str], *, size: int | None = None, resize: Resize = "squash"
) -> UInt8Array:
    """Read an image as (size, size, 3) uint8 RGB, or (H, W, 3) if ``size`` is None.

    ``squash`` changes the aspect ratio (as in the paper); ``crop`` scales the short side to ``size`` and keeps the
    centre. The EXIF orientation is applied. Transparency is composited on black, the surround of endoscopic and
    fundus images. Other bit depths are converted by ``to_8bit``. The first frame of an animation is used. ICC
    profiles are not applied.

    Raises ``BadImageError`` with the file and the reason.
    """
    check_resize(size, resize)
    path = Path(path)
    if (reason := why_not_a_file(path)) is not None:
        raise BadImageError(path, reason)
    try:
        head = _read_head(path)
        if not head:
            raise BadImageError(path, EMPTY_FILE)
        picture = _read(path, head, size)
    except (SrjtError, MemoryError):
        raise
    except Exception as error:  # damaged files make the readers raise almost any exception
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise SrjtError(
                f"{path} cannot be opened because too many files are open: allow more of them (ulimit -n) and run the "
                "command again."
            ) from error
        raise BadImageError(path, _reason(error)) from error
    return np.array(picture if size is None else resized(picture, size=size, resize=resize))


def is_image(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an image: by its suffix, else by its first bytes. Exports of a PACS have no suffix.

    DICOMDIR, the index of such an export, is not an image.
    """
    path = Path(path)
    if why_not_a_file(path) is not None or path.name.upper() == "DICOMDIR":
        return False
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        head = _read_head(path)
        if head[128:] == b"DICM" or head.startswith(b"\x93NUMPY"):
            return True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the reader of the image says it
            with Image.open(path, formats=_FORMATS):
                return True
    except Image.DecompressionBombError:
        return True  # the reader of the image reports the error
    except Exception:  # damaged files make the readers raise almost any exception
        return False


def resized(picture: Image.Image, *, size: int, resize: Resize) -> Image.Image:
    """Resize an image to size × size.

    Bilinear with antialiasing (Pillow widens the filter when it shrinks), as for the ImageNet weights. Unlike
    bicubic it adds no bright and dark rims around small lesions.
    """
    if picture.size == (size, size):
        return picture
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    # The same as scaling the short side and then cropping, without the rounding of two steps.
    box = (left, top, left + side, top + side) if resize == "crop" else None
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=box)


def check_resize(size: int | None, resize: str) -> None:
    """Raise an error for an impossible size or resize rule, before any file is read."""
    if resize not in get_args(Resize):
        raise suggest("resize rule", resize, get_args(Resize))
    if size is not None and size < 1:
        raise SrjtError(f"The image size must be at least 1 pixel, not {size}.")


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(132)


def _read(path: Path, head: bytes, size: int | None) -> Image.Image:
    if head[128:] == b"DICM" or path.suffix.lower() in {".dcm", ".dicom"}:
        return Image.fromarray(read_dicom(path)).convert("RGB")
    if head.startswith(b"\x93NUMPY") or path.suffix.lower() == ".npy":
        return Image.fromarray(_read_npy(path)).convert("RGB")
    with Image.open(path, formats=_FORMATS) as image:
        if size is not None:
            # A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, at least twice the target size.
            image.draft(None, (2 * size, 2 * size))
        image.load()
        transpose = _EXIF_TRANSPOSE.get(image.getexif().get(0x0112, 1))
        picture = _rgb(image)
        return picture.transpose(transpose) if transpose is not None else picture


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):  # 16 and 32 bits, which Pillow's conversion would clip
        values = np.asarray(image)
        if image.mode == "I" and image.format == "PNG":  # how Pillow 10 returns 16-bit PNGs
            values = values.astype(np.uint16)
        return Image.fromarray(to_8bit(values)).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, (0, 0, 0, 255)), rgba).convert("RGB")
    return image.convert("RGB")


def _read_npy(path: Path) -> UInt8Array:
    """(H, W) or (H, W, 3) uint8 from an array of shape (H, W), (H, W, 1) or (H, W, 3)."""
    try:
        values: Any = np.load(path, mmap_mode="r", allow_pickle=False)  # a false header allocates no memory
    except ValueError as error:
        if "Python objects" in str(error):
            raise ValueError("it contains Python objects (a pickle) instead of numbers") from None
        raise
    if not isinstance(values, np.ndarray):
        raise ValueError("it is not a single NumPy array")
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if 0 in values.shape or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] != 3):
        raise ValueError(
            f"an array image must be H×W, H×W×1 or H×W×3, not {'×'.join(map(str, values.shape))}"
        )
    if values.dtype.kind == "f" and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(
            f"a float array must lie in [0, 1]; its values range from {values.min():g} to {values.max():g}"
        )
    if values.dtype.kind not in "fbu" or (values.dtype.kind == "u" and values.dtype.itemsize > 2):
        raise ValueError(f"an array image must be uint8, uint16, bool or float in [0, 1], not {values.dtype}")
    return to_8bit(values)


def _reason(error: Exception) -> str:
    """Why it failed, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image of a known format"
    if isinstance(error, Image.DecompressionBombError):
        return (
            f"it claims to be larger than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels; reduce its size first"
        )
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error)
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if "truncated" in text.lower():
        return f"it is cut short ({text})"
    return f"it is damaged or cut short ({text})" if any(word in text.lower() for word in DAMAGED) else text
