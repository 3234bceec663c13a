"""Draw one image of the colon wall for a given severity.

Lengths are fractions of the side of the image and coordinates are (y, x) in [0, 1), so that a scene is the same at
any size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srjt.data.synthetic.primitives import (
    Colour,
    Floats,
    bell,
    between,
    blend,
    grid,
    noise,
    ramp,
    stamp,
    turn,
    unit,
)

__all__ = ["Appearance", "draw", "random_appearance"]

HEALTHY: Colour = (0.86, 0.57, 0.47)
INFLAMED: Colour = (0.77, 0.30, 0.25)
VESSEL: Colour = (0.60, 0.20, 0.20)
BLOOD: Colour = (0.48, 0.05, 0.06)
FIBRIN: Colour = (0.92, 0.84, 0.68)
MUCUS: Colour = (0.90, 0.80, 0.62)
GLARE: Colour = (1.00, 0.98, 0.95)


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """What all images of one patient have in common, whatever the severity."""

    tone: Colour  # factors on red, green, blue
    redness: float  # added to the severity that determines the redness
    vessels: float  # contrast of the vessels, 1 = usual
    calibre: float  # width of the vessels, 1 = usual
    trunks: int  # vessels that enter the image
    zoom: float  # below 1: closer to the wall, so everything is larger
    light: tuple[float, float]  # where the lamp points
    gloss: float  # probability of each possible highlight


def random_appearance(rng: np.random.Generator) -> Appearance:
    """The appearance of a random patient."""
    brightness, warmth = between(rng, 0.90, 1.05), between(rng, -0.15, 0.15)
    return Appearance(
        tone=(brightness, brightness * (1 + 0.4 * warmth), brightness * (1 - 0.6 * warmth)),
        redness=between(rng, -0.10, 0.10),
        vessels=between(rng, 0.70, 1.15),
        calibre=between(rng, 0.75, 1.25),
        trunks=2 + int(3 * rng.random()),
        zoom=between(rng, 0.75, 1.20),
        light=(between(rng, 0.35, 0.65), between(rng, 0.35, 0.65)),
        gloss=between(rng, 0.10, 0.60),
    )


def draw(
    severity: float, appearance: Appearance, *, size: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """One image, (size, size, 3) uint8, of ``severity`` in [0, 1].

    Each sign (redness, vessels, bleeding, …) follows the severity with its own random deviation, so neighbouring
    grades are truly ambiguous near their boundary.
    """

    def sign(spread: float) -> float:
        return severity + bell(rng) * spread

    inflamed = ramp(sign(0.10) + appearance.redness, 0.05, 0.80)
    vessels = appearance.vessels * (1 - ramp(sign(0.10), 0.08, 0.55))
    granular = ramp(sign(0.10), 0.15, 0.75)
    bleeding = ramp(sign(0.10), 0.25, 0.95)
    ulcerated = ramp(sign(0.08), 0.60, 1.00)

    image = _mucosa(rng, size, inflamed=inflamed)
    if vessels > 0:
        blend(image, VESSEL, 0.70 * vessels * _vessel_tree(rng, size, appearance))
    blend(image, BLOOD, 0.80 * _spots(rng, size, amount=bleeding, zoom=appearance.zoom))
    if ulcerated > 0:
        floor, rim = _ulcers(rng, size, amount=ulcerated, zoom=appearance.zoom)
        blend(image, BLOOD, 0.55 * rim)
        blend(image, FIBRIN, 0.90 * floor)
    if rng.random() < 0.3:
        blend(image, MUCUS, 0.45 * _mucus(rng, size))
    image *= 1 + _granules(rng, size, zoom=appearance.zoom, strength=granular)
    image *= np.asarray(appearance.tone, np.float32)[:, None, None] * _lamp(rng, size, appearance)
    blend(image, GLARE, 0.9 * _highlights(rng, size, gloss=appearance.gloss))
    return _camera(rng, image)


# Layers, from the colon wall to the camera


def _mucosa(rng: np.random.Generator, size: int, *, inflamed: float) -> Floats:
    """(3, size, size): the wall, paler and redder in patches, with soft folds."""
    patches = noise(rng, size, 3) + 0.5 * noise(rng, size, 7)
    redness = np.clip(inflamed + (0.10 + 0.25 * inflamed) * patches, 0, 1)
    healthy, red = (np.asarray(c, np.float32)[:, None, None] for c in (HEALTHY, INFLAMED))
    folds = noise(rng, size, 2.5)
    crease = np.clip(1 - 2.5 * np.abs(folds + between(rng, -0.4, 0.4)), 0, 1)
    shade = 1 + 0.10 * folds - 0.18 * crease * crease
    return np.asarray((healthy + (red - healthy) * redness) * shade, np.float32)


def _vessel_tree(rng: np.random.Generator, size: int, appearance: Appearance) -> Floats:
    """(size, size) in [0, 1]: vessels that enter at the border and fork five times, each time thinner."""
    canvas = np.zeros((size, size), np.float32)
    border = np.where(rng.random(appearance.trunks) < 0.5, -0.05, 1.05)
    start = np.stack([rng.random(appearance.trunks), border], axis=1)
    start = np.where(rng.random((appearance.trunks, 1)) < 0.5, start, start[:, ::-1])
    heading = unit(0.25 + 0.5 * rng.random((appearance.trunks, 2)) - start)
    radius, length = 0.017 * appearance.calibre / appearance.zoom, 0.30 / appearance.zoom
    for _ in range(5):
        # Each branch is a cubic: straight on, with a sideways bend of c t² + d t³.
        c, d = (rng.random((2, len(start))) - 0.5) * np.array([[1.2], [1.0]])
        side = np.stack([-heading[:, 1], heading[:, 0]], axis=1)
        steps = int(length * size) + 2
        t = (np.arange(1, steps + 1) / steps)[:, None]
        bend = c * t * t + d * t * t * t
        path = start + length * (t[:, :, None] * heading + bend[:, :, None] * side)
        stamp(canvas, path.reshape(-1, 2), radius)
        heading = unit(heading + (2 * c + 3 * d)[:, None] * side)
        fork = (0.15 + 0.25 * rng.random((len(start), 2))) * (1, -1)  # to the left and to the right
        heading = turn(np.repeat(heading, 2, axis=0), fork.reshape(-1))
        start = np.repeat(path[-1], 2, axis=0)
        radius, length = 0.74 * radius, 0.78 * length
    return canvas


def _granules(rng: np.random.Generator, size: int, *, zoom: float, strength: float) -> Floats:
    """(size, size) around 0: the slope of fine bumps, as if lit from above."""
    bumps = noise(rng, size, 17 * zoom) + 0.6 * noise(rng, size, 26 * zoom)
    slope = np.zeros_like(bumps)
    slope[1:] = (bumps[1:] - bumps[:-1]) * np.float32(size / 64)
    return slope * np.float32(0.04 + 0.34 * strength)


def _spots(rng: np.random.Generator, size: int, *, amount: float, zoom: float) -> Floats:
    """(size, size) in [0, 1]: petechiae and small erosions; ``amount`` makes them more and larger."""
    canvas = np.zeros((size, size), np.float32)
    chance, where, scale = rng.random(36), rng.random((36, 2)), rng.random(36)
    drawn = chance < 0.02 + 0.68 * amount
    radius = (0.010 + 0.010 * scale + 0.028 * amount * scale * scale) / zoom
    # Three lobes each, so that spots are not round.
    lobes = where[:, None, :] + 1.6 * radius[:, None, None] * (rng.random((36, 3, 2)) - 0.5)
    stamp(canvas, lobes[drawn].reshape(-1, 2), np.repeat(radius[drawn], 3), hardness=0.9)
    return canvas


def _ulcers(rng: np.random.Generator, size: int, *, amount: float, zoom: float) -> tuple[Floats, Floats]:
    """Floor and rim, (size, size) in [0, 1] each: fibrin-covered patches with irregular outlines."""
    chance, where, scale = rng.random(6), rng.random((6, 2)), rng.random(6)
    stretch = 0.6 + 0.8 * rng.random((6, 2))
    y, x = grid(size)
    height = np.full((size, size), -9, np.float32)
    for i in np.flatnonzero(chance < 0.85 * amount):
        radius = (0.05 + 0.10 * amount + 0.07 * scale[i]) / zoom * stretch[i]
        dy, dx = (y - float(where[i, 0])) / float(radius[0]), (x - float(where[i, 1])) / float(radius[1])
        height = np.maximum(height, 1 - (dy * dy + dx * dx))
    height += 0.7 * noise(rng, size, 9) + 0.4 * noise(rng, size, 18)
    floor = np.clip(height * 2.5, 0, 1)
    rim = np.clip(1 - np.abs(height + 0.25) * 1.6, 0, 1)
    return floor, rim


def _mucus(rng: np.random.Generator, size: int) -> Floats:
    """(size, size) in [0, 1]: a pale smear on some images of any grade, so that pale does not imply an ulcer."""
    smear = noise(rng, size, 4) + 0.4 * noise(rng, size, 11)
    return np.clip((smear - between(rng, 0.2, 0.8)) * 2, 0, 1)


def _lamp(rng: np.random.Generator, size: int, appearance: Appearance) -> Floats:
    """(size, size): bright where the lamp points, darker towards the corners."""
    y, x = grid(size)
    dy = y - (appearance.light[0] + between(rng, -0.12, 0.12))
    dx = x - (appearance.light[1] + between(rng, -0.12, 0.12))
    brightness, falloff = between(rng, 1.02, 1.20), between(rng, 0.9, 1.9)
    return np.asarray(brightness / (1 + falloff * (dy * dy + dx * dx)), np.float32)


def _highlights(rng: np.random.Generator, size: int, *, gloss: float) -> Floats:
    """(size, size) in [0, 1]: reflections of the lamp on the wet wall."""
    canvas = np.zeros((size, size), np.float32)
    chance, where, scale = rng.random(7), rng.random((7, 2)), rng.random(7)
    trail = where[:, None, :] + (0.01 * np.arange(4))[None, :, None] * (rng.random((7, 1, 2)) - 0.5) * 2
    drawn = chance < gloss
    stamp(canvas, trail[drawn].reshape(-1, 2), np.repeat(0.010 + 0.015 * scale[drawn], 4))
    return canvas


def _camera(rng: np.random.Generator, image: Floats) -> npt.NDArray[np.uint8]:
    """(3, H, W) in about [0, 1] to (H, W, 3) uint8: with slight blur and noise."""
    blur = np.float32(between(rng, 0.0, 0.6))
    for axis in (1, 2):
        a = np.moveaxis(image, axis, 0)
        a[1:-1] += blur * ((a[:-2] + a[2:]) * np.float32(0.5) - a[1:-1]) * np.float32(0.67)
    grain = rng.random(image.shape, dtype=np.float32) - np.float32(0.5)
    image += np.float32(between(rng, 0.02, 0.06)) * grain
    levels = np.floor(np.clip(image, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))
