"""The page of ``srjt explain``: each image, where each network looks, and similar training images."""

from __future__ import annotations

import base64
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.images.decode import BadImageError, read_image
from srjt.inference.explain import Explanation
from srjt.reports.pages.html import Note, Page, Section, Tile

__all__ = ["explain_page", "overlay"]

PICTURE = 320  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144
RAISES, LOWERS = np.array([255, 96, 0]), np.array([40, 120, 255])


def explain_page(found: Explanation, *, title: str) -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    samples, networks = len(found.images), len(found.maps)
    images = "1 image" if samples == 1 else f"{samples:,} images"
    return Page(
        kind="Explanation",
        title=title,
        lead=f"{images}, and where {'the network looks' if networks == 1 else 'the two networks look'}.",
        notes=[Note(text=f"{len(found.skipped):,} could not be read and are left out.")]
        if found.skipped
        else [],
        sections=[
            _how_to_read(found),
            Section(slug="images", heading="Images", parts=[_image(found, row) for row in range(samples)]),
        ],
    )


def _how_to_read(found: Explanation) -> Section:
    text = [
        "Orange places raise the expected grade, blue places lower it. The stronger the colour, the more; each map has "
        "its own scale, given in grades. Maps are coarse: the network's last feature map has "
        f"{found.maps.shape[2]} × {found.maps.shape[3]} places.",
        "A map shows what the network used, not what is there. It is no evidence that a prediction is right.",
    ]
    facts = []
    if found.network_correlation is not None:
        facts.append(("rank correlation of the two networks' maps", f"{found.network_correlation:.2f}"))
    if found.random_correlation is not None:
        facts.append(("… with maps of networks with random weights", f"{found.random_correlation:.2f}"))
        text.append(
            "As a check, the maps are compared with those of networks with random weights: a correlation near 1 would "
            "mean that the maps show the image and not what was learnt."
        )
    return Section(slug="how-to-read", heading="How to read the maps", text=text, facts=facts)


def _image(found: Explanation, row: int) -> Section:
    prediction = found.predictions.iloc[row]
    grades = [name.removeprefix("p_") for name in found.predictions.columns if name.startswith("p_")]
    image, maps = found.images[row], found.maps[:, row]
    tiles = [Tile(picture=_data_uri(_enlarged(image, PICTURE)), title="image")]
    tiles += [
        Tile(
            picture=_data_uri(overlay(image, heat)),
            title="where it looks" if len(maps) == 1 else f"network {number}",
            number=f"scale ± {np.abs(heat).max():.2g}",
        )
        for number, heat in enumerate(maps, start=1)
    ]
    probabilities = ", ".join(f"{grade}: {prediction[f'p_{grade}']:.2f}" for grade in grades)
    return Section(
        slug=f"image-{row + 1}",
        heading=str(prediction["image"]),
        facts=[
            ("predicted grade", str(prediction["grade"])),
            ("expected grade", f"{prediction['expected_grade']:.2f}"),
            ("probabilities", probabilities),
        ],
        large_tiles=tiles,
        tiles=_similar(found, row),
    )


def _similar(found: Explanation, row: int) -> list[Tile]:
    if found.neighbours is None or found.training is None:
        return []
    names, labels, ids = found.training.grades, found.training.labels, found.training.ids
    return [
        Tile(
            picture=_training_picture(found, place),
            title=f"labelled {names[labels[place]]}",
            number=f"similar {rank}",
            text=ids[place],
        )
        for rank, place in enumerate(found.neighbours[row], start=1)
    ]


def _training_picture(found: Explanation, row: int) -> str:
    assert found.training is not None
    try:
        if found.training.arrays is None:
            pixels = read_image(found.training.paths[row], size=SIMILAR, resize="squash")
        else:
            pixels = np.asarray(found.training.arrays[row], dtype=np.uint8)
    except BadImageError:
        return ""
    return _data_uri(_enlarged(pixels, SIMILAR))


def overlay(image: npt.NDArray[np.uint8], heat: npt.NDArray[np.float32]) -> Image.Image:
    """uint8 (H, W, 3) and a map (h, w) → the grey image with orange where the map is positive, blue where negative."""
    side = max(PICTURE, image.shape[0])
    grey = np.asarray(_enlarged(image, side).convert("L"), dtype=np.float64)[..., None]
    scale = float(np.abs(heat).max()) or 1.0
    smooth = Image.fromarray((heat / scale).astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    value = np.clip(np.asarray(smooth, dtype=np.float64), -1.0, 1.0)[..., None]
    colour = np.where(value > 0, RAISES, LOWERS)
    strength = 0.75 * np.abs(value)
    return Image.fromarray(((1 - strength) * grey + strength * colour).astype(np.uint8))


def _enlarged(image: npt.NDArray[np.uint8], side: int) -> Image.Image:
    return Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)


def _data_uri(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
