"""DICOM files as 8-bit images, displayed as a viewer displays them by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.data.images.pixel_depth import UInt8Array, stretch_to_8bit, to_8bit
from srjt.errors import missing_extra

__all__ = ["read_dicom", "read_patient_id"]


def read_dicom(path: Path) -> UInt8Array:
    """Read a DICOM file as (H, W) or (H, W, 3) uint8.

    Greyscale: the modality table or rescale, then the first VOI table, or else the first window, or else the range
    from minimum to maximum; MONOCHROME1 (small is white) is inverted. RGB, YBR and palette colour become RGB.
    Several frames are an error: the file does not say which of them was graded.
    """
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
        from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
    except ImportError:
        raise missing_extra("pydicom", "dicom", f"Reading the DICOM file {path}") from None

    try:
        data = dcmread(path)
    except InvalidDicomError:  # pydicom advises to read it all the same
        raise ValueError(
            "it has the suffix of a DICOM file, but not the prefix DICM: export it again, as DICOM Part 10"
        ) from None
    if "PixelData" not in data:
        raise ValueError("the DICOM file contains no image")
    frames = int(data.get("NumberOfFrames", 1) or 1)
    if frames > 1:
        raise ValueError(f"the DICOM file has {frames} frames; export the graded frame as an image file")
    _check_compression(data)

    pixels = data.pixel_array  # pydicom converts YBR to RGB
    if data.PhotometricInterpretation == "PALETTE COLOR":
        return _scale_colours(np.asarray(apply_color_lut(pixels, data)), bits=16)
    if data.SamplesPerPixel > 1:
        return _scale_colours(pixels, bits=int(data.BitsStored))
    grey = _apply_voi(np.asarray(apply_modality_lut(pixels, data)), data)
    return np.uint8(255) - grey if data.PhotometricInterpretation == "MONOCHROME1" else grey


def read_patient_id(path: Path) -> str:
    """The PatientID in the header of a DICOM file; "" without one, and for a file that cannot be read."""
    try:
        from pydicom import dcmread

        header = dcmread(path, stop_before_pixels=True, specific_tags=["PatientID"])
        return " ".join(str(header.get("PatientID") or "").replace("\0", " ").split())
    except Exception:  # also without pydicom: what is wrong is said when the image is read
        return ""


def _check_compression(data: Any) -> None:
    """Raise an error that names the missing package, which pydicom's message buries in a list of plugins."""
    from pydicom.pixels.decoders.base import get_decoder

    syntax = data.file_meta.TransferSyntaxUID
    if syntax.is_encapsulated and not get_decoder(syntax).is_available:
        raise ValueError(f'it is compressed as {syntax.name}; to read it: pip install "pylibjpeg[all]"')


def _scale_colours(colours: npt.NDArray[Any], *, bits: int) -> UInt8Array:
    return to_8bit(colours) if colours.dtype == np.uint8 else to_8bit(colours / (2.0**bits - 1))


def _apply_voi(values: npt.NDArray[Any], data: Any) -> UInt8Array:
    """The first VOI table or window of the file, from black to white in 8 bits (DICOM PS3.3, C.11.2)."""
    from pydicom.pixels.processing import apply_voi_lut

    table: Any = next(iter(data.get("VOILUTSequence") or []), {})
    if "LUTData" in table and "LUTDescriptor" in table:
        entries, first, bits = table.LUTDescriptor
        # pydicom indexes with the integer type of the table's output, where a wide input would overflow.
        table.LUTDescriptor = [entries, first, 16]
        inside = np.clip(np.rint(values), first, first + (entries or 2**16) - 1).astype(np.int64)
        share = apply_voi_lut(inside, data) / (2.0**bits - 1)
    elif all(data.get(name) not in (None, "") for name in ("WindowCenter", "WindowWidth")):
        # The output has the range of the stored values, which infinite inputs reveal.
        black, white = apply_voi_lut(np.array([-np.inf, np.inf]), data)
        share = (apply_voi_lut(values, data) - black) / (white - black)
    else:
        return stretch_to_8bit(values)
    grey: UInt8Array = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
    return grey
