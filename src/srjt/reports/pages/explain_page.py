"""The page of ``srjt explain``: each image, where each network looks, and similar training images."""

from __future__ import annotations

import numpy as np

from srjt.data.grade_names import display_grade
from srjt.data.images.decode import BadImageError, read_image
from srjt.errors import count_of
from srjt.inference.explain import Explanation
from srjt.inference.overlay import overlay, resized_square
from srjt.reports.pages.html import Note, Page, Section, Tile, data_uri

__all__ = ["explain_page"]

PICTURE = 320  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144


def explain_page(found: Explanation, *, title: str) -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    samples, networks = len(found.images), len(found.maps)
    images = count_of(samples, "image")
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
    tiles = [Tile(picture=data_uri(resized_square(image, PICTURE)), title="image")]
    tiles += [
        Tile(
            picture=data_uri(overlay(image, heat, side=PICTURE)),
            title="where it looks" if len(maps) == 1 else f"network {number}",
            number=f"scale ± {np.abs(heat).max():.2g}",
        )
        for number, heat in enumerate(maps, start=1)
    ]
    probabilities = ", ".join(
        f"{display_grade(grade, found.grade_names)}: {prediction[f'p_{grade}']:.2f}" for grade in grades
    )
    return Section(
        slug=f"image-{row + 1}",
        heading=str(prediction["image"]),
        facts=[
            ("predicted grade", display_grade(str(prediction["grade"]), found.grade_names)),
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
            title=f"labelled {display_grade(names[labels[place]], found.grade_names)}",
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
    return data_uri(resized_square(pixels, SIMILAR))
