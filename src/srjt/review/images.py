"""The images of an audit, in formats that a browser shows."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from srjt.auditing.folder import AuditFolder, image_file
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.images.pixel_depth import UInt8Array
from srjt.data.readers_folder import ReadersFolder
from srjt.errors import SrjtError
from srjt.files import read_limited

__all__ = [
    "EncodedImage",
    "full_image",
    "image_path",
    "image_problem",
    "pixels_alone",
    "thumbnail",
    "where_they_look",
]

THUMBNAIL_SIZE = 320  # pixels of the longer side
LARGEST_FILE = 2**26  # bytes that are sent to the browser unchanged


class EncodedImage(NamedTuple):
    content: bytes
    media_type: str


def image_path(audit: AuditFolder | ReadersFolder, line: int) -> Path:
    """The file of a sample. Raises ``BadImageError`` if there is none that may be shown."""
    name = audit.images[line]
    if not name:
        raise BadImageError(Path(audit.ids[line]), "there is no image file of this sample")
    return image_file(audit.folder, name)


def full_image(audit: AuditFolder, line: int) -> EncodedImage:
    """The file unchanged if every browser shows it as the networks saw it, else converted to PNG."""
    path = image_path(audit, line)
    try:
        content = read_limited(path, limit=LARGEST_FILE)
    except SrjtError:
        content = b""  # the decoder reports the reason, or shows a large file as a PNG
    if content.startswith(b"\xff\xd8\xff"):
        return EncodedImage(content, "image/jpeg")
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[24:25] != b"\x10":  # not 16 bits
        return EncodedImage(content, "image/png")
    return _encode(path)


def pixels_alone(audit: AuditFolder | ReadersFolder, line: int) -> EncodedImage:
    """The image as a new PNG, without the metadata of its file."""
    return _encode(image_path(audit, line))


def thumbnail(audit: AuditFolder, line: int) -> EncodedImage:
    return _cached_thumbnail(image_path(audit, line))


@lru_cache(maxsize=512)
def _cached_thumbnail(path: Path) -> EncodedImage:
    return _encode(path, size=THUMBNAIL_SIZE)


def where_they_look(audit: AuditFolder, line: int) -> EncodedImage:
    """The image with the map of each network, side by side: what raises and what lowers the expected grade."""
    from srjt.auditing.maps import look_maps  # loads torch: only on demand
    from srjt.inference.overlay import side_by_side

    buffer = io.BytesIO()
    side_by_side(look_maps(audit, line)).save(buffer, "JPEG", quality=88)
    return EncodedImage(buffer.getvalue(), "image/jpeg")


def image_problem(audit: AuditFolder, line: int) -> str:
    """Why an image cannot be shown, in one sentence. The browser itself does not know the reason."""
    try:
        _read(image_path(audit, line))
    except SrjtError as problem:
        return str(problem)
    return "The browser cannot show this image, although it can be read."


def _read(path: Path) -> UInt8Array:
    try:
        return read_image(path)
    except MemoryError:  # the header of an array file may promise any size
        raise BadImageError(path, "it needs more memory than there is") from None


def _encode(path: Path, *, size: int | None = None) -> EncodedImage:
    from PIL import Image

    image = Image.fromarray(_read(path))
    buffer = io.BytesIO()
    if size is not None:
        image.thumbnail((size, size))
        image.save(buffer, "JPEG", quality=88)
        return EncodedImage(buffer.getvalue(), "image/jpeg")
    image.save(buffer, "PNG", compress_level=1)  # speed matters more than size: the server is usually local
    return EncodedImage(buffer.getvalue(), "image/png")
