"""Decode one image file of any supported format, DICOM too, to an 8-bit RGB array."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from srjt.errors import SrjtError, missing_extra, reason_of, unknown_name
from srjt.files import describe_os_error, why_not_a_file

# Convert pixels of any bit depth to 8 bits.

UInt8Array = npt.NDArray[np.uint8]


def to_8bit(values: npt.NDArray[Any]) -> UInt8Array:
    """Convert an image of any shape to 8 bits.

    - uint8 is unchanged, booleans become 0 and 255
    - uint16 is scaled by its full range (65535 → 255), so that brightness is comparable between
      files
    - floats in [0, 1] are multiplied by 255; NaN becomes 0
    - anything else (signed, 32-bit, other floats) has no defined white and goes through
      ``stretch_to_8bit``
    """
    if values.dtype == np.uint8:
        return values.astype(np.uint8, copy=False)
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # of either byte order
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        if known.size and known.min() >= 0 and known.max() <= 1:
            return np.asarray(np.rint(np.nan_to_num(values) * 255.0), dtype=np.uint8)
    return stretch_to_8bit(values)


def stretch_to_8bit(values: npt.NDArray[Any]) -> UInt8Array:
    """Scale the smallest finite value to 0 and the largest to 255. NaN becomes 0; a constant image
    is black."""
    as_float = values.astype(np.float64)
    finite = as_float[np.isfinite(as_float)]
    if values.size and not finite.size:
        raise ValueError("it contains no numbers (all pixels are NaN or infinite)")
    if not finite.size or finite.min() == finite.max():
        return np.zeros(values.shape, np.uint8)
    low = finite.min()
    high = finite.max()
    share = np.nan_to_num((as_float - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.rint(255 * share), dtype=np.uint8)


# DICOM files as 8-bit images, displayed as a viewer displays them by default.


def read_dicom(path: Path) -> UInt8Array:
    """Read a DICOM file as (H, W) or (H, W, 3) uint8.

    Greyscale: the modality table or rescale, then the first VOI table, or else the first window, or
    else the range from minimum to maximum; MONOCHROME1 (small is white) is inverted. RGB, YBR and
    palette colour become RGB. Several frames are an error: the file does not say which of them was
    graded.
    """
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
        from pydicom.pixels.decoders.base import get_decoder
        from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
    except ImportError:
        raise missing_extra("pydicom", "dicom", f"Reading the DICOM file {path}") from None

    try:
        data = dcmread(path)
    except InvalidDicomError:  # pydicom advises to read it all the same
        raise ValueError(
            "it is a DICOM file without the prefix DICM: export it again, as Part 10"
        ) from None
    if "PixelData" not in data:
        raise ValueError("the DICOM file contains no image")
    if (frames := int(data.get("NumberOfFrames", 1) or 1)) > 1:
        raise ValueError(
            f"the DICOM file has {frames} frames; export the graded frame as an image file"
        )
    syntax = data.file_meta.TransferSyntaxUID
    # pydicom buries it in a list of plugins
    if syntax.is_encapsulated and not get_decoder(syntax).is_available:
        raise ValueError(
            f'it is compressed as {syntax.name}; to read it: pip install "pylibjpeg[all]"'
        )

    pixels = data.pixel_array  # pydicom converts YBR to RGB
    if data.PhotometricInterpretation == "PALETTE COLOR":
        return _scale_colours(np.asarray(apply_color_lut(pixels, data)), bits=16)
    if data.SamplesPerPixel > 1:
        return _scale_colours(pixels, bits=int(data.BitsStored))
    grey = _apply_voi(np.asarray(apply_modality_lut(pixels, data)), data)
    return np.uint8(255) - grey if data.PhotometricInterpretation == "MONOCHROME1" else grey


def read_patient_id(path: Path) -> str:
    """The PatientID in the header of a DICOM file; "" without one, and for a file that cannot be
    read."""
    try:
        from pydicom import dcmread

        header = dcmread(path, stop_before_pixels=True, specific_tags=["PatientID"])
        return " ".join(str(header.get("PatientID") or "").replace("\0", " ").split())
    except Exception:  # also without pydicom: what is wrong is said when the image is read
        return ""


def _scale_colours(colours: npt.NDArray[Any], *, bits: int) -> UInt8Array:
    return to_8bit(colours) if colours.dtype == np.uint8 else to_8bit(colours / (2.0**bits - 1))


def _apply_voi(values: npt.NDArray[Any], data: Any) -> UInt8Array:
    """The first VOI table or window of the file, from black to white in 8 bits (DICOM PS3.3,
    C.11.2)."""
    from pydicom.pixels.processing import apply_voi_lut

    table: Any = next(iter(data.get("VOILUTSequence") or []), {})
    if "LUTData" in table and "LUTDescriptor" in table:
        entries, first, bits = table.LUTDescriptor
        # pydicom indexes with the integer type of the table's output, where a wide input would
        # overflow.
        table.LUTDescriptor = [entries, first, 16]
        inside = np.clip(np.rint(values), first, first + (entries or 2**16) - 1).astype(np.int64)
        share = apply_voi_lut(inside, data) / (2.0**bits - 1)
    elif all(data.get(name) not in (None, "") for name in ("WindowCenter", "WindowWidth")):
        # The output has the range of the stored values, which infinite inputs reveal.
        black, white = apply_voi_lut(np.array([-np.inf, np.inf]), data)
        share = (apply_voi_lut(values, data) - black) / (white - black)
    else:
        return stretch_to_8bit(values)
    return np.asarray(np.rint(255 * np.clip(share, 0, 1)), dtype=np.uint8)


# Decode one image file of any supported format to an 8-bit RGB array.

Resize = Literal["squash", "crop", "pad"]
PADDING = (124, 116, 104)  # the mean colour of ImageNet, which networks see as 0
OnBadImage = Literal["error", "skip"]

# A file with another suffix, or with none, is an image if its content is one.
DICOM = frozenset({".dcm", ".dicom"})
IMAGE_SUFFIXES = DICOM | {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}

# Part of the key of every store: raise it when the same file gives other pixels.
DECODER_VERSION = 3

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
        super().__init__(f"Cannot read the image {path}: {reason}.", code="unreadable_file")
        self.reason = reason


def read_image(
    path: str | os.PathLike[str], *, size: int | None = None, resize: Resize = "squash"
) -> UInt8Array:
    """Read an image as (size, size, 3) uint8 RGB, or (H, W, 3) if ``size`` is None.

    ``squash`` changes the aspect ratio (as in the paper); ``crop`` scales the short side to
    ``size`` and keeps the centre. The EXIF orientation is applied. Transparency is composited on
    black, the surround of endoscopic and fundus images. Other bit depths are converted by
    ``to_8bit``. Several pages or frames are an error: the file does not say which of them was
    graded. ICC profiles are not applied.

    Raises ``BadImageError`` with the file and the reason.
    """
    check_resize(size, resize)
    path = Path(path)
    if (reason := why_not_a_file(path)) is not None:
        raise BadImageError(path, reason)
    try:
        if not path.stat().st_size:
            raise BadImageError(path, EMPTY_FILE)
        picture = _read(path, size)
    except (SrjtError, MemoryError):
        raise
    except Exception as error:  # damaged files make the readers raise almost any exception
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise SrjtError(
                f"{path} cannot be opened: too many files are open (ulimit -n).",
                code="unreadable_file",
            ) from error
        raise BadImageError(path, _reason(error)) from error
    return np.array(picture if size is None else resized(picture, size=size, resize=resize))


def is_image(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an image: by its suffix, else by its first bytes. Exports of a PACS have no
    suffix.

    DICOMDIR, the index of such an export, is not an image.
    """
    path = Path(path)
    if why_not_a_file(path) is not None or path.name.upper() == "DICOMDIR":
        return False
    if path.suffix.lower() in IMAGE_SUFFIXES or is_dicom(path):
        return True
    try:
        with warnings.catch_warnings():
            # the reader of the image says it
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS):
                return True
    except Image.DecompressionBombError:
        return True  # the reader of the image reports the error
    except Exception:  # damaged files make the readers raise almost any exception
        return False


def resized(picture: Image.Image, *, size: int, resize: Resize) -> Image.Image:
    """Resize an image to size × size: all of it squashed, its centre, or all of it with a border.

    Bilinear with antialiasing (Pillow widens the filter when it shrinks), as for the ImageNet
    weights. Unlike bicubic it adds no bright and dark rims around small lesions.
    """
    if picture.size == (size, size):
        return picture
    width, height = picture.size
    if resize == "pad":
        scale = size / max(width, height)
        inner = (max(1, round(width * scale)), max(1, round(height * scale)))
        square = Image.new("RGB", (size, size), PADDING)
        square.paste(
            picture.resize(inner, Image.Resampling.BILINEAR),
            ((size - inner[0]) // 2, (size - inner[1]) // 2),
        )
        return square
    side = min(width, height)
    left = (width - side) / 2
    top = (height - side) / 2
    # The same as scaling the short side and then cropping, without the rounding of two steps.
    box = (left, top, left + side, top + side) if resize == "crop" else None
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=box)


def check_resize(size: int | None, resize: str) -> None:
    """Raise an error for an impossible size or resize rule, before any file is read."""
    if resize not in get_args(Resize):
        raise unknown_name("resize rule", resize, get_args(Resize))
    if size is not None and size < 1:
        raise SrjtError(
            f"The image size must be at least 1 pixel, not {size}.",
            code="out_of_bounds",
            option="image_size",
        )


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, by its suffix, else by its first bytes; not one that cannot be
    opened."""
    if path.suffix.lower() in DICOM:
        return True
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"
    return False


def _read(path: Path, size: int | None) -> Image.Image:
    if is_dicom(path):
        return Image.fromarray(read_dicom(path)).convert("RGB")
    # not by its path: Pillow maps such a file, and turns uncompressed grey TIFFs with the wrong row
    # length
    with path.open("rb") as file, Image.open(file, formats=_FORMATS) as image:
        # MPO, as cameras write it, has the photograph first and then smaller ones of the same
        if image.format != "MPO" and (pages := getattr(image, "n_frames", 1)) > 1:
            what = "pages" if image.format == "TIFF" else "frames"
            raise ValueError(
                f"the {image.format} file has {pages} {what}; export the graded one as an image"
                " file"
            )
        if size is not None:
            # A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, at least twice the target
            # size.
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
        return Image.alpha_composite(Image.new("RGBA", rgba.size, (0, 0, 0, 255)), rgba).convert(
            "RGB"
        )
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    """Why it failed, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image of a known format"
    if isinstance(error, Image.DecompressionBombError):
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        return f"it claims to be larger than {most:,} pixels; reduce its size first"
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error)
    text = reason_of(error)
    if "truncated" in text.lower():
        return f"it is cut short ({text})"
    return (
        f"it is damaged or cut short ({text})"
        if any(word in text.lower() for word in DAMAGED)
        else text
    )


# Many files: threads share Python's lock, which an image needs for about 0.4 ms, so that processes
# are faster where there are many cores. They are not multiprocessing's, which would import the
# user's script again.

PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from srjt.data.images import decode; decode.decode_files()"
)


@contextlib.contextmanager
def decoding_process(
    files: Sequence[tuple[int, Path]], *, pixels: Path, size: int, resize: Resize
) -> Iterator[Iterator[int]]:
    """A process that decodes files, each to a row of ``pixels``; the rows that it has done, as it
    does them.

    A file that it cannot read is left out, and so are the rest if it fails: the caller finds out
    why.
    """
    todo = [(row, os.fspath(path)) for row, path in files]
    job = {"files": todo, "pixels": os.fspath(pixels), "size": size, "resize": resize}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps(job).encode())
        yield (int(line) for line in process.stdout if line.endswith(b"\n"))
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def decode_files() -> None:
    """What such a process does. It ends when nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    job = json.load(sys.stdin)
    with open(job["pixels"], "r+b", buffering=0) as pixels:
        for row, path in job["files"]:
            with contextlib.suppress(BadImageError):
                picture = read_image(Path(path), size=job["size"], resize=job["resize"])
                pixels.seek(row * picture.nbytes)
                if pixels.write(picture.data) < picture.nbytes:
                    break  # the disk is full
                print(row, flush=True)
