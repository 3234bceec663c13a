"""DICOM files as 8-bit pictures, shown as a viewer would show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.data.images.pixel_depth import UInt8Array, stretch_to_8bit, to_8bit
from srjt.errors import missing_extra

__all__ = ["read_dicom"]


def read_dicom(path: Path) -> UInt8Array:
    """(H, W) or (H, W, 3) uint8.

    Greyscale: rescale slope and intercept (or the modality table), then the file's first window, or
    minimum to maximum where it has none; MONOCHROME1 (white is small) is inverted. Colour (RGB, YBR and
    palette) comes as RGB. Several frames are an error: which one carries the grade is not ours to guess.
    """
    try:
        from pydicom import dcmread
        from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
    except ImportError:
        raise missing_extra("pydicom", "dicom", f"Reading the DICOM file {path}") from None

    data = dcmread(path)
    if "PixelData" not in data:
        raise ValueError("this DICOM file holds no picture")
    frames = int(data.get("NumberOfFrames", 1) or 1)
    if frames > 1:
        raise ValueError(
            f"this DICOM file holds {frames} frames; export the graded one as an image of its own"
        )

    pixels = data.pixel_array  # YBR is converted to RGB here
    if data.PhotometricInterpretation == "PALETTE COLOR":
        return _drop_spare_bits(np.asarray(apply_color_lut(pixels, data)), bits=16)
    if data.SamplesPerPixel > 1:
        return _drop_spare_bits(pixels, bits=int(data.BitsStored))
    grey = _windowed(np.asarray(apply_modality_lut(pixels, data)), data)
    return np.uint8(255) - grey if data.PhotometricInterpretation == "MONOCHROME1" else grey


def _drop_spare_bits(colour: npt.NDArray[Any], *, bits: int) -> UInt8Array:
    return to_8bit(colour) if colour.dtype == np.uint8 else to_8bit(colour / (2.0**bits - 1))


def _windowed(values: npt.NDArray[Any], data: Any) -> UInt8Array:
    """The standard's three window functions (PS3.3, C.11.2.1); a file may offer several windows: the first."""
    centre, width = _first(data.get("WindowCenter")), _first(data.get("WindowWidth"))
    if centre is None or width is None:
        return stretch_to_8bit(values)
    kind = data.get("VOILUTFunction", "LINEAR")
    if kind == "SIGMOID":
        share = 1 / (1 + np.exp(-4 * (values - centre) / max(width, 1e-6)))
    elif kind == "LINEAR_EXACT":
        share = (values - centre) / max(width, 1e-6) + 0.5
    else:
        share = (values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5
    return np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)


def _first(value: Any) -> float | None:
    """A DICOM number that may be absent, empty, one value or several."""
    if value is None or value == "":
        return None
    try:
        return float(value)
    except TypeError:
        return float(value[0]) if len(value) else None
