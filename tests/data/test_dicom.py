"""DICOM files are written for real and their pixels compared with what was drawn."""

from __future__ import annotations

import builtins
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import (
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

from fixtures.dicom_files import dicom_dataset, lookup_table, write_dicom
from srjt.data.images.decode import BadImageError, read_image
from srjt.errors import SrjtError


def test_dicom_rescale_then_window(tmp_path: Path) -> None:
    stored = np.uint16([[0, 1000, 1040, 1080, 4000]])  # −1000, 0, 40, 80 and 3000 after the rescale
    write_dicom(
        tmp_path / "a.dcm", stored, RescaleSlope=1, RescaleIntercept=-1000, WindowCenter=40.5, WindowWidth=81
    )
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 0, 128, 255, 255]


def test_dicom_window_functions(tmp_path: Path) -> None:
    stored = np.int16([[-50, 0, 50]])
    window = {"WindowCenter": [0, 900], "WindowWidth": [100, 900]}  # the first of several
    write_dicom(tmp_path / "a.dcm", stored, VOILUTFunction="LINEAR_EXACT", **window)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 128, 255]
    write_dicom(tmp_path / "b.dcm", stored, VOILUTFunction="SIGMOID", **window)
    sigmoid = 255 / (1 + np.exp(-4 * stored / 100))
    assert np.array_equal(read_image(tmp_path / "b.dcm")[..., 0], np.rint(sigmoid))


def test_dicom_without_a_window_spans_its_values(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint16([[100, 200, 300]]))
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 128, 255]
    write_dicom(tmp_path / "b.dcm", np.uint16([[100, 200, 300]]), photometric="MONOCHROME1")
    assert read_image(tmp_path / "b.dcm")[0, :, 0].tolist() == [255, 127, 0]


def test_dicom_monochrome1_is_inverted_after_the_window(tmp_path: Path) -> None:
    window = {"WindowCenter": 50, "WindowWidth": 100, "VOILUTFunction": "LINEAR_EXACT"}
    write_dicom(tmp_path / "a.dcm", np.uint16([[0, 20, 100, 4000]]), photometric="MONOCHROME1", **window)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [255, 204, 0, 0]


def test_dicom_an_empty_window_is_no_window(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint16([[100, 200, 300]]), WindowCenter="", WindowWidth="")
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 128, 255]


def test_dicom_an_impossible_window_is_an_error(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint16([[100, 200, 300]]), WindowCenter=200, WindowWidth=0)
    with pytest.raises(BadImageError, match="Window Width must be greater"):
        read_image(tmp_path / "a.dcm")


@pytest.mark.parametrize(
    ("entries", "first", "bits", "expected"),
    [
        ([0, 30, 60, 255], 100, 8, [0, 0, 30, 60, 255, 255]),
        ([0, 1000, 3000, 4095], 100, 12, [0, 0, 62, 187, 255, 255]),
        ([40000, 20000, 10000, 0], 100, 16, [156, 156, 78, 39, 0, 0]),  # a table may fall
    ],
)
def test_dicom_voi_table(
    tmp_path: Path, entries: list[int], first: int, bits: int, expected: list[int]
) -> None:
    """Below the table its first entry counts, above it the last; the window of the same file does not."""
    stored = np.uint16([[0, 100, 101, 102, 103, 65535]])
    table = lookup_table(entries, first=first, bits=bits)
    write_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=[table], WindowCenter=9, WindowWidth=2)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == expected


def test_dicom_voi_table_of_many_entries_with_8_bits(tmp_path: Path) -> None:
    stored = np.uint16([[0, 255, 256, 2048, 4095]])
    table = lookup_table([entry // 16 for entry in range(4096)], first=0, bits=8)
    write_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=[table])
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 15, 16, 128, 255]


def test_dicom_voi_table_acts_on_rescaled_values(tmp_path: Path) -> None:
    stored = np.uint16([[0, 50, 51, 52, 53, 60]])  # 0, 100, 102, 104, 106 and 120 after the rescale
    table = lookup_table([0, 10, 20, 30, 40, 50, 60], first=100, bits=8)
    more = {"RescaleSlope": 2, "RescaleIntercept": 0, "VOILUTSequence": [table]}
    write_dicom(tmp_path / "a.dcm", stored, **more)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 0, 20, 40, 60, 60]


def test_dicom_modality_table_then_window(tmp_path: Path) -> None:
    table = lookup_table([0, 500, 1000], first=0, bits=16)
    table.ModalityLUTType = "US"
    window = {"WindowCenter": 500, "WindowWidth": 1000, "VOILUTFunction": "LINEAR_EXACT"}
    write_dicom(tmp_path / "a.dcm", np.uint16([[0, 1, 2]]), ModalityLUTSequence=[table], **window)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 128, 255]


def test_dicom_colour_needs_no_suffix(tmp_path: Path, colours: np.ndarray) -> None:
    write_dicom(tmp_path / "IM000001", colours, photometric="RGB")
    assert np.array_equal(read_image(tmp_path / "IM000001"), colours)
    grey = np.asarray(Image.fromarray(np.full((4, 6, 3), 90, np.uint8)).convert("YCbCr"))
    write_dicom(tmp_path / "grey.dcm", grey, photometric="YBR_FULL")
    assert np.array_equal(read_image(tmp_path / "grey.dcm"), np.full((4, 6, 3), 90))
    ybr = np.asarray(Image.fromarray(colours).convert("YCbCr"))
    write_dicom(tmp_path / "ybr.dcm", ybr, photometric="YBR_FULL")
    assert np.abs(read_image(tmp_path / "ybr.dcm").astype(int) - colours).max() <= 3  # rounded twice


def test_dicom_sixteen_bit_colour(tmp_path: Path, colours: np.ndarray) -> None:
    write_dicom(tmp_path / "a.dcm", colours.astype(np.uint16) * 257, photometric="RGB")
    assert np.array_equal(read_image(tmp_path / "a.dcm"), colours)


def test_dicom_palette(tmp_path: Path) -> None:
    table = [2, 0, 16]  # entries, first value, bits
    lut = {
        f"{name}PaletteColorLookupTable{part}": value
        for name, entries in {"Red": [0, 65535], "Green": [0, 0], "Blue": [65535, 0]}.items()
        for part, value in {"Descriptor": table, "Data": np.uint16(entries).tobytes()}.items()
    }
    write_dicom(tmp_path / "a.dcm", np.uint8([[0, 1]]), photometric="PALETTE COLOR", **lut)
    assert read_image(tmp_path / "a.dcm").tolist() == [[[0, 0, 255], [255, 0, 0]]]


def test_dicom_frames_are_not_guessed(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.zeros((3, 2, 2), np.uint8), NumberOfFrames=3)
    with pytest.raises(BadImageError, match="3 frames"):
        read_image(tmp_path / "a.dcm")


def test_dicom_compressed(tmp_path: Path, colours: np.ndarray) -> None:
    """Run lengths are read by pydicom itself, JPEG by Pillow."""
    data = dicom_dataset(colours, photometric="RGB")
    data.compress(RLELossless, generate_instance_uid=False)
    data.save_as(tmp_path / "rle.dcm")
    assert np.array_equal(read_image(tmp_path / "rle.dcm"), colours)

    smooth = np.full((16, 16, 3), (200, 120, 40), np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(smooth).save(jpeg, format="JPEG", quality=95, subsampling=0)
    data = dicom_dataset(smooth, photometric="YBR_FULL_422", PixelData=encapsulate([jpeg.getvalue()]))
    data.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    data["PixelData"].is_undefined_length = True
    data.save_as(tmp_path / "jpeg.dcm")
    assert np.abs(read_image(tmp_path / "jpeg.dcm").astype(int) - smooth).max() <= 4


def test_dicom_compression_that_needs_a_package_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dicom_dataset(np.zeros((2, 2), np.uint8), PixelData=encapsulate([b"\xff\xd8\xff\xd9"]))
    data.file_meta.TransferSyntaxUID = JPEGLosslessSV1
    data["PixelData"].is_undefined_length = True
    data.save_as(tmp_path / "a.dcm")
    monkeypatch.setattr("pydicom.pixels.decoders.base.Decoder.is_available", False)  # where it is installed
    with pytest.raises(BadImageError, match=r'compressed as JPEG Lossless.*pip install "pylibjpeg\[all\]"'):
        read_image(tmp_path / "a.dcm")


def test_dicom_without_pydicom_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.dcm").write_bytes(b"\0" * 128 + b"DICM")
    imported = builtins.__import__

    def without_pydicom(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("pydicom"):
            raise ImportError(name)
        return imported(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_pydicom)
    with pytest.raises(SrjtError, match=r'pip install "pydicom>='):
        read_image(tmp_path / "a.dcm")


def test_a_dcm_file_without_its_prefix_gets_our_advice(tmp_path: Path) -> None:
    (tmp_path / "a.dcm").write_bytes(b"\x08\x00\x05\x00" * 100)
    with pytest.raises(BadImageError, match="not the prefix DICM: export it again"):
        read_image(tmp_path / "a.dcm")
