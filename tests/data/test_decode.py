"""Image files as arrays, DICOM too."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import JPEGBaseline8Bit, JPEGLosslessSV1, RLELossless

from fixtures.dicom_files import dicom_dataset, lookup_table, write_dicom
from hostile.corpus import png_of_size
from refusals import refuses
from srjt.data.images.decode import BadImageError, is_image, read_image, stretch_to_8bit, to_8bit

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "A.TIFF"])
def test_lossless_formats_come_back_exactly(tmp_path: Path, colours: np.ndarray, name: str) -> None:
    Image.fromarray(colours).save(tmp_path / name)
    picture = read_image(tmp_path / name)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, colours)


def test_the_content_decides_and_not_the_suffix(tmp_path: Path, colours: np.ndarray) -> None:
    Image.fromarray(colours).save(tmp_path / "a.webp", lossless=True)
    assert np.array_equal(read_image(tmp_path / "a.webp"), colours)
    Image.fromarray(colours).save(tmp_path / "really_a_png.jpg", format="PNG")
    assert np.array_equal(read_image(tmp_path / "really_a_png.jpg"), colours)


@pytest.mark.parametrize("suffix", [".jpg", ".tif", ".png", ".webp"])
def test_every_exif_orientation_is_undone(tmp_path: Path, suffix: str) -> None:
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :16], upright[:8, 16:], upright[8:, :16] = (
        RED,
        GREEN,
        BLUE,
    )  # bottom right stays black
    turned = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(
            a, 1
        ),  # the camera was held turned: the viewer must turn it clockwise
        7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: lambda a: np.rot90(a, -1),
    }
    options = {".jpg": {"quality": 95, "subsampling": 0}, ".webp": {"lossless": True}}.get(
        suffix, {}
    )
    path = tmp_path / f"a{suffix}"
    for orientation, turn in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(np.ascontiguousarray(turn(upright))).save(path, exif=exif, **options)
        picture = read_image(path)
        assert picture.shape == upright.shape
        assert np.abs(picture.astype(int) - upright).max() <= 12  # JPEG is not exact


@pytest.mark.parametrize("levels", [np.uint8, np.uint16])
def test_an_uncompressed_grey_tiff_is_turned(tmp_path: Path, levels: type[np.integer]) -> None:
    grey = np.arange(60, dtype=levels).reshape(6, 10) * (
        levels(np.iinfo(levels).max) // levels(255)
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(grey).save(tmp_path / "a.tif", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.tif")[..., 0], np.rot90(to_8bit(grey), -1))


def test_cmyk(tmp_path: Path) -> None:
    cmyk = np.zeros((8, 8, 4), np.uint8)
    cmyk[:, :, 1:3] = 255  # magenta and yellow ink: red
    Image.fromarray(cmyk, "CMYK").save(tmp_path / "a.tif")
    assert np.array_equal(read_image(tmp_path / "a.tif"), np.broadcast_to(np.uint8(RED), (8, 8, 3)))
    Image.fromarray(cmyk, "CMYK").save(tmp_path / "a.jpg", quality=95)
    assert np.abs(read_image(tmp_path / "a.jpg")[4, 4].astype(int) - RED).max() <= 6


def test_palette_with_and_without_a_transparent_colour(tmp_path: Path) -> None:
    palette = Image.fromarray(np.uint8([[0, 1], [2, 1]]), "P")
    palette.putpalette([*RED, *GREEN, *BLUE])
    palette.save(tmp_path / "opaque.png")
    palette.save(tmp_path / "clear.png", transparency=1)
    palette.save(tmp_path / "a.gif")
    expected = np.uint8([[RED, GREEN], [BLUE, GREEN]])
    assert np.array_equal(read_image(tmp_path / "opaque.png"), expected)
    assert np.array_equal(read_image(tmp_path / "a.gif"), expected)
    assert np.array_equal(
        read_image(tmp_path / "clear.png"), np.uint8([[RED, BLACK], [BLUE, BLACK]])
    )


def test_alpha_is_laid_on_black(tmp_path: Path) -> None:
    rgba = np.uint8([[[200, 100, 50, 255], [200, 100, 50, 0], [200, 100, 50, 128]]])
    Image.fromarray(rgba).save(tmp_path / "a.png")
    opaque, clear, half = read_image(tmp_path / "a.png")[0]
    assert tuple(opaque) == (200, 100, 50)
    assert tuple(clear) == BLACK
    assert np.abs(half.astype(int) - (100, 50, 25)).max() <= 1
    Image.fromarray(np.uint8([[[80, 255], [80, 0]]]), "LA").save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").tolist() == [[[80, 80, 80], [0, 0, 0]]]


def test_one_bit_and_grey(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False, True]])).convert("1").save(tmp_path / "bit.png")
    assert read_image(tmp_path / "bit.png").tolist() == [[list(WHITE), list(BLACK), list(WHITE)]]
    Image.fromarray(np.uint8([[7, 130]])).save(tmp_path / "grey.png")
    assert read_image(tmp_path / "grey.png").tolist() == [[[7, 7, 7], [130, 130, 130]]]


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_are_taken_full_range(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(np.uint16([[0, 257, 128 * 257, 65535]])).save(tmp_path / f"a{suffix}")
    assert read_image(tmp_path / f"a{suffix}")[0, :, 0].tolist() == [0, 1, 128, 255]


def test_sixteen_bit_colour_png(tmp_path: Path) -> None:
    """Pillow cannot write one, so the file is put together by hand."""
    row = b"\0" + np.array([65535, 128 * 257, 0], ">u2").tobytes()
    (tmp_path / "a.png").write_bytes(png_of_size(1, 1, depth=16, rows=row))
    assert read_image(tmp_path / "a.png").tolist() == [[[255, 128, 0]]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.float32([[0, 0.5, 1]]), [0, 128, 255]),
        (np.float32([[0, 0.3, np.nan]]), [0, 76, 0]),
        (np.float32([[-100, 0, 100]]), [0, 128, 255]),
        (np.int32([[-1000, 0, 1000]]), [0, 128, 255]),
        (np.int32([[0, 1_000_000, 500_000]]), [0, 255, 128]),
    ],
)
def test_32_bit_tiff(tmp_path: Path, values: np.ndarray, expected: list[int]) -> None:
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.abs(read_image(tmp_path / "a.tif")[0, :, 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tif"])
def test_an_animation_does_not_say_which_frame_was_graded(tmp_path: Path, name: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    with refuses("unreadable_file", says="has 2"):
        read_image(tmp_path / name, size=4)
    frames[0].save(tmp_path / name)
    assert read_image(tmp_path / name, size=4).shape == (4, 4, 3)


def test_depth_rules() -> None:
    assert to_8bit(np.array([False, True])).tolist() == [0, 255]
    assert to_8bit(np.array([65535], ">u2")).tolist() == [255]
    assert stretch_to_8bit(np.array([np.nan, 1.0, np.inf, 3.0])).tolist() == [0, 0, 255, 255]
    assert stretch_to_8bit(np.array([7, 7])).tolist() == [0, 0]


def test_squash_and_crop(tmp_path: Path) -> None:
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, :20], wide[:, 20:60], wide[:, 60:] = RED, GREEN, BLUE
    Image.fromarray(wide).save(tmp_path / "a.png")
    squashed = read_image(tmp_path / "a.png", size=8)
    assert squashed.shape == (8, 8, 3)
    assert [tuple(squashed[4, x]) for x in (0, 4, 7)] == [RED, GREEN, BLUE]
    cropped = read_image(tmp_path / "a.png", size=8, resize="crop")
    short_side = Image.fromarray(wide).resize((16, 8), Image.Resampling.BILINEAR)
    assert np.array_equal(cropped, np.asarray(short_side)[:, 4:12])  # the definition, in two steps
    assert tuple(cropped[4, 4]) == GREEN
    Image.fromarray(wide.swapaxes(0, 1).copy()).save(tmp_path / "tall.png")
    tall = read_image(tmp_path / "tall.png", size=8, resize="crop")
    assert np.array_equal(tall, cropped.swapaxes(0, 1))


def test_shrinking_averages_instead_of_picking(tmp_path: Path) -> None:
    checkers = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    Image.fromarray(checkers).save(tmp_path / "a.png")
    assert np.abs(read_image(tmp_path / "a.png", size=8).astype(int) - 128).max() <= 6


def test_a_large_jpeg_drafted_looks_like_the_full_decode(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 1024)
    picture = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], 128.0), axis=2).astype(
        np.uint8
    )
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=95)
    full = Image.open(tmp_path / "a.jpg").resize((32, 32), Image.Resampling.BILINEAR)
    drafted = read_image(tmp_path / "a.jpg", size=32)
    assert np.abs(drafted.astype(int) - np.asarray(full)).max() <= 4


def test_misspelt_rule_and_impossible_size(tmp_path: Path) -> None:
    Image.new("RGB", (3, 5)).save(tmp_path / "a.png")
    with refuses("unknown_name", says="'crop'"):
        read_image(tmp_path / "a.png", size=8, resize="corp")  # type: ignore[arg-type]
    with refuses("out_of_bounds", "image_size"):
        read_image(tmp_path / "a.png", size=0)


# Files that are no images
def test_missing_empty_folder_and_text(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "folder.png").mkdir()
    said = {
        "missing": "no such file",
        "empty": "0 bytes",
        "text": "not an image",
        "folder": "a folder",
    }
    for name, message in said.items():
        with pytest.raises(BadImageError, match=message) as caught:
            read_image(tmp_path / f"{name}.png")
        assert f"{name}.png" in str(caught.value)
        assert message in caught.value.reason
        assert ".png" not in caught.value.reason


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".tif", ".webp", ".gif", ".dcm"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / f"a{suffix}"
    if suffix == ".dcm":
        write_dicom(path, noise, photometric="RGB")
    else:
        Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    for share in (0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(
            BadImageError, match="damaged or cut short" if suffix == ".webp" else str(path)
        ):
            read_image(path)


def test_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (200, 200)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    with refuses("unreadable_file", says="20,000"):
        read_image(tmp_path / "a.png")


def test_an_image_is_known_by_its_content(tmp_path: Path, colours: np.ndarray) -> None:
    write_dicom(tmp_path / "IM000001", colours, photometric="RGB")
    Image.fromarray(colours).save(tmp_path / "scan.0001", format="JPEG")
    (tmp_path / "huge").write_bytes(png_of_size(20_000, 20_000))
    for name in ("IM000001", "scan.0001", "huge"):
        assert is_image(tmp_path / name), name
    write_dicom(tmp_path / "DICOMDIR", colours, photometric="RGB")
    (tmp_path / "notes").write_text("no image")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("DICOMDIR", "notes", "empty", "missing", "x" * 300, "a\0b", ""):
        assert not is_image(tmp_path / name), name


# DICOM files are written for real and their pixels compared with what was drawn.
def voi(entries: list[int], bits: int, first: int = 100, **more: object) -> dict[str, object]:
    return {"VOILUTSequence": [lookup_table(entries, first=first, bits=bits)], **more}


EXACT = {"VOILUTFunction": "LINEAR_EXACT"}
WINDOW = {"WindowCenter": 9, "WindowWidth": 2}  # where there is a table, it does not count
TO_2000 = lookup_table([0, 500, 1000], first=0, bits=16)
TO_2000.ModalityLUTType = "US"
STORED = [0, 100, 101, 102, 103, 65535]  # below a table its first entry counts, above it the last
GREY: dict[str, tuple[list[int], dict[str, object], list[int]]] = {
    "no window spans the values": ([100, 200, 300], {}, [0, 128, 255]),
    "an empty window is none": ([100, 200, 300], {"WindowCenter": "", "WindowWidth": ""}, [0, 128, 255]),
    # −1000, 0, 40, 80 and 3000 after the rescale
    "rescale, then window": ([0, 1000, 1040, 1080, 4000], {"RescaleSlope": 1, "RescaleIntercept": -1000,
                             "WindowCenter": 40.5, "WindowWidth": 81}, [0, 0, 128, 255, 255]),
    "inverted after the window": ([0, 20, 100, 4000], {"photometric": "MONOCHROME1", "WindowCenter": 50,
                                  "WindowWidth": 100, **EXACT}, [255, 204, 0, 0]),
    "table, 8 bits": (STORED, voi([0, 30, 60, 255], 8, **WINDOW), [0, 0, 30, 60, 255, 255]),
    "table, 12 bits": (STORED, voi([0, 1000, 3000, 4095], 12, **WINDOW), [0, 0, 62, 187, 255, 255]),
    "a table may fall": (STORED, voi([40000, 20000, 10000, 0], 16, **WINDOW), [156, 156, 78, 39, 0, 0]),
    "a table of many entries": ([0, 255, 256, 2048, 4095], voi([entry // 16 for entry in range(4096)], 8, 0),
                                [0, 15, 16, 128, 255]),
    # 0, 100, 102, 104, 106 and 120 after the rescale
    "rescale, then table": ([0, 50, 51, 52, 53, 60], voi([0, 10, 20, 30, 40, 50, 60], 8, RescaleSlope=2,
                            RescaleIntercept=0), [0, 0, 20, 40, 60, 60]),
    "modality table, then window": ([0, 1, 2], {"ModalityLUTSequence": [TO_2000], "WindowCenter": 500,
                                    "WindowWidth": 1000, **EXACT}, [0, 128, 255]),
}  # fmt: skip


@pytest.mark.parametrize(("stored", "tags", "shown"), GREY.values(), ids=GREY)
def test_dicom_grey(
    tmp_path: Path, stored: list[int], tags: dict[str, Any], shown: list[int]
) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint16([stored]), **tags)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == shown


NO_NUMBERS = np.full((8, 8), np.nan, np.float32)
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"  # never run


@pytest.mark.parametrize(
    ("name", "write", "refused"),
    [
        ("a.png", lambda path: path.write_bytes(POSTSCRIPT), ("unreadable_file", "", "not an image")),
        ("a.tif", lambda path: Image.fromarray(NO_NUMBERS).save(path), ("unreadable_file", "", "it contains no")),
        ("a.dcm", lambda path: path.write_bytes(b"\x08\x00\x05\x00" * 100), ("unreadable_file", "", "without the prefix")),
        ("a.dcm", lambda path: write_dicom(path, np.zeros((3, 2, 2), np.uint8), NumberOfFrames=3), ("unreadable_file", "", "3 frames")),
        ("a.dcm", lambda path: write_dicom(path, np.uint16([[1]]), WindowCenter=2, WindowWidth=0), ("unreadable_file", "", "Width must be")),
    ],
)  # fmt: skip
def test_what_cannot_be_shown(
    tmp_path: Path, name: str, write: Any, refused: tuple[str, ...]
) -> None:
    write(tmp_path / name)
    with refuses(*refused):
        read_image(tmp_path / name)


def test_dicom_window_functions(tmp_path: Path) -> None:
    stored = np.int16([[-50, 0, 50]])
    window = {"WindowCenter": [0, 900], "WindowWidth": [100, 900]}  # the first of several
    write_dicom(tmp_path / "a.dcm", stored, VOILUTFunction="LINEAR_EXACT", **window)
    assert read_image(tmp_path / "a.dcm")[0, :, 0].tolist() == [0, 128, 255]
    write_dicom(tmp_path / "b.dcm", stored, VOILUTFunction="SIGMOID", **window)
    sigmoid = 255 / (1 + np.exp(-4 * stored / 100))
    assert np.array_equal(read_image(tmp_path / "b.dcm")[..., 0], np.rint(sigmoid))


def test_dicom_colour_needs_no_suffix(tmp_path: Path, colours: np.ndarray) -> None:
    write_dicom(tmp_path / "IM000001", colours, photometric="RGB")
    assert np.array_equal(read_image(tmp_path / "IM000001"), colours)
    grey = np.asarray(Image.fromarray(np.full((4, 6, 3), 90, np.uint8)).convert("YCbCr"))
    write_dicom(tmp_path / "grey.dcm", grey, photometric="YBR_FULL")
    assert np.array_equal(read_image(tmp_path / "grey.dcm"), np.full((4, 6, 3), 90))
    ybr = np.asarray(Image.fromarray(colours).convert("YCbCr"))
    write_dicom(tmp_path / "ybr.dcm", ybr, photometric="YBR_FULL")
    assert (
        np.abs(read_image(tmp_path / "ybr.dcm").astype(int) - colours).max() <= 3
    )  # rounded twice


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


def test_dicom_compressed(tmp_path: Path, colours: np.ndarray) -> None:
    """Run lengths are read by pydicom itself, JPEG by Pillow."""
    data = dicom_dataset(colours, photometric="RGB")
    data.compress(RLELossless, generate_instance_uid=False)
    data.save_as(tmp_path / "rle.dcm")
    assert np.array_equal(read_image(tmp_path / "rle.dcm"), colours)

    smooth = np.full((16, 16, 3), (200, 120, 40), np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(smooth).save(jpeg, format="JPEG", quality=95, subsampling=0)
    data = dicom_dataset(
        smooth, photometric="YBR_FULL_422", PixelData=encapsulate([jpeg.getvalue()])
    )
    data.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    data["PixelData"].is_undefined_length = True
    data.save_as(tmp_path / "jpeg.dcm")
    assert np.abs(read_image(tmp_path / "jpeg.dcm").astype(int) - smooth).max() <= 4


def test_dicom_compression_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dicom_dataset(np.zeros((2, 2), np.uint8), PixelData=encapsulate([b"\xff\xd8\xff\xd9"]))
    data.file_meta.TransferSyntaxUID = JPEGLosslessSV1
    data["PixelData"].is_undefined_length = True
    data.save_as(tmp_path / "a.dcm")
    monkeypatch.setattr(
        "pydicom.pixels.decoders.base.Decoder.is_available", False
    )  # where it is installed
    with refuses("unreadable_file", says=("JPEG Lossless", "pylibjpeg[all]")):
        read_image(tmp_path / "a.dcm")


def test_dicom_without_pydicom_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.dcm").write_bytes(b"\0" * 128 + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with refuses("missing_extra", says="pydicom>="):
        read_image(tmp_path / "a.dcm")
