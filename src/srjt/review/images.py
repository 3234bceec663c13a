"""The images of an audit as a browser can show them."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from srjt.data.images.decode import BadImageError, read_image
from srjt.errors import SrjtError
from srjt.review.audit_folder import AuditFolder

__all__ = ["Picture", "full", "locate", "problem", "thumbnail"]

THUMBNAIL = 320  # pixels of the longer side


class Picture(NamedTuple):
    content: bytes
    media_type: str


def locate(audit: AuditFolder, line: int) -> Path:
    """The file of a sample. Raises ``BadImageError`` when there is none that may be shown.

    An absolute path was named by the person who ran the audit. A relative one belongs to the folder, and a
    folder that came from elsewhere must not reach out of it, neither by ".." nor through a link.
    """
    name = audit.images[line]
    if not name:
        raise BadImageError(Path(audit.ids[line]), "the audit was of features and has no image of it")
    path = audit.folder / name
    if not Path(name).is_absolute() and not path.resolve().is_relative_to(audit.folder.resolve()):
        raise BadImageError(path, "it leads out of the audit's folder")
    if path.exists() and not path.is_file():  # a pipe or a device would never end
        raise BadImageError(path, "it is not a regular file")
    return path


def full(audit: AuditFolder, line: int) -> Picture:
    """The file as it is where every browser shows it as the networks saw it, else converted to PNG."""
    path = locate(audit, line)
    try:
        content = path.read_bytes()
    except OSError:
        content = b""  # the decoder will say why
    if content.startswith(b"\xff\xd8\xff"):
        return Picture(content, "image/jpeg")
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[24:25] != b"\x10":  # not with 16 bits
        return Picture(content, "image/png")
    return _encoded(path)


@lru_cache(maxsize=512)
def _small(path: Path) -> Picture:
    return _encoded(path, side=THUMBNAIL)


def thumbnail(audit: AuditFolder, line: int) -> Picture:
    return _small(locate(audit, line))


def problem(audit: AuditFolder, line: int) -> str:
    """Why an image cannot be shown, in one sentence; the browser only knows that it cannot."""
    try:
        read_image(locate(audit, line))
    except SrjtError as bad:
        return str(bad)
    return "The browser cannot show this image, although it can be read."


def _encoded(path: Path, *, side: int | None = None) -> Picture:
    from PIL import Image

    picture = Image.fromarray(read_image(path))
    buffer = io.BytesIO()
    if side is not None:
        picture.thumbnail((side, side))
        picture.save(buffer, "JPEG", quality=88)
        return Picture(buffer.getvalue(), "image/jpeg")
    picture.save(buffer, "PNG", compress_level=1)  # for one wire on one machine
    return Picture(buffer.getvalue(), "image/png")
