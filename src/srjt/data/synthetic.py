"""The synthetic dataset: endoscopy-like images whose true severity is known, and a simulated reader
who grades them. It needs no download.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.manifest import Ints, Manifest
from srjt.errors import SrjtError
from srjt.files import explain_write_errors, write_atomically

# Drawing primitives of :mod:`srjt.data.synthetic`: dots, smooth noise, rotations, ramps.
#
# The same seed must give the same bytes on every platform. Pixels are therefore computed with +, −,
# ×, ÷, √ and comparisons only, which IEEE 754 rounds identically everywhere: no exp, sin or matrix
# product (libm, SIMD and BLAS differ), no sum whose order a library chooses, and only uniform
# numbers of the random generator. Scalars are Python floats: NumPy 1 and 2 promote a NumPy float64
# beside a float32 array differently.

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Colour = tuple[float, float, float]


def blend(image: Floats, colour: Colour, alpha: Floats) -> None:
    """Blend ``colour`` into the (3, H, W) image with opacity ``alpha`` (H, W), in place."""
    paint = np.asarray(colour, np.float32)[:, None, None]
    image += alpha * (paint - image)


def stamp(
    canvas: Floats, centres: Doubles, radii: Doubles | float, *, hardness: float = 1.6
) -> None:
    """Draw soft round dots at ``centres`` (P, 2) into the canvas, in place; where they overlap, the
    maximum is kept."""
    size = len(canvas)
    centres = centres * size
    radii = np.broadcast_to(np.asarray(radii) * size, len(centres))
    near = ((centres > -radii[:, None]) & (centres < size + radii[:, None])).all(axis=1)
    centres = centres[near]
    radii = radii[near]
    if len(centres) == 0:
        return
    reach = np.maximum(radii, 0.9)  # a line thinner than a pixel would break into dots …
    faint = np.minimum(radii / 0.9, 1)  # … so it is drawn paler instead
    window = np.arange(-int(reach.max()) - 1, int(reach.max()) + 2)
    pixels = np.floor(centres)[:, :, None] + window  # (P, 2, W): rows and columns around each dot
    away = (pixels + 0.5 - centres[:, :, None]) / reach[:, None, None]
    away = np.where((pixels >= 0) & (pixels < size), away * away, 1).astype(np.float32)
    bump = 1 - away[:, 0, :, None] - away[:, 1, None, :]  # (P, W, W), above 0 inside the dot
    dot, row, column = np.nonzero(bump > 0)
    where = (pixels[dot, 0, row] * size + pixels[dot, 1, column]).astype(np.int64)
    strength = np.minimum(np.float32(hardness) * bump[dot, row, column], 1) * faint[dot].astype(
        np.float32
    )
    np.maximum.at(canvas.reshape(-1), where, strength)


def noise(rng: np.random.Generator, size: int, cells: float) -> Floats:
    """(size, size) smooth noise, about −1 … 1, with ``cells`` cells per side: a cubic B-spline of
    random knots."""
    first, weights = _spline(size, cells)
    field = rng.random((int(cells) + 4, int(cells) + 4), dtype=np.float32) * np.float32(
        4
    ) - np.float32(2)
    for _ in range(2):  # along the rows, then along the columns
        a, b, c, d = (weights[k] * field[first + k] for k in range(4))
        field = np.ascontiguousarray((a + b + c + d).T)
    return field


@lru_cache(maxsize=64)
def _spline(size: int, cells: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The first knot (size,) of each pixel, and the weights (4, size, 1) of that knot and the next
    three."""
    at = (np.arange(size) + 0.5) / size * cells
    first = at.astype(np.int64)
    u = at - first
    v = 1 - u
    inner = ((4 - 6 * w * w + 3 * w * w * w) / 6 for w in (u, v))
    return first, np.stack([v * v * v / 6, *inner, u * u * u / 6])[:, :, None].astype(np.float32)


def grid(size: int) -> tuple[Floats, Floats]:
    """Pixel centres as (size, 1) and (1, size)."""
    at = ((np.arange(size) + 0.5) / size).astype(np.float32)
    return at[:, None], at[None, :]


def turn(heading: Doubles, tangent: Doubles) -> Doubles:
    """Rotate (P, 2) by angles that are given as tan(angle / 2): this form needs no sine."""
    norm = 1 + tangent * tangent
    cos = (1 - tangent * tangent) / norm
    sin = 2 * tangent / norm
    y = heading[:, 0]
    x = heading[:, 1]
    return np.stack([y * cos + x * sin, x * cos - y * sin], axis=1)


def unit(vectors: Doubles) -> Doubles:
    """Scale (P, 2) to length 1."""
    y = vectors[:, 0]
    x = vectors[:, 1]
    return vectors / np.sqrt(y * y + x * x)[:, None]


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """A uniform number."""
    return low + (high - low) * float(rng.random())


def bell(rng: np.random.Generator) -> float:
    """Mean 0, variance 1, bounded: a sum of three uniform numbers; a normal one would need a
    logarithm."""
    return 2 * float(rng.random() + rng.random() + rng.random() - 1.5)


def ramp(value: float, low: float, high: float) -> float:
    """0 below ``low``, 1 above ``high``, smooth in between."""
    x = min(max((value - low) / (high - low), 0.0), 1.0)
    return x * x * (3 - 2 * x)


# Draw one image of the colon wall for a given severity.
#
# Lengths are fractions of the side of the image and coordinates are (y, x) in [0, 1), so that a
# scene is the same at any size.

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
    brightness = between(rng, 0.90, 1.05)
    warmth = between(rng, -0.15, 0.15)
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

    Each sign (redness, vessels, bleeding, …) follows the severity with its own random deviation, so
    neighbouring grades are truly ambiguous near their boundary.
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
    """(size, size) in [0, 1]: vessels that enter at the border and fork five times, each time
    thinner."""
    canvas = np.zeros((size, size), np.float32)
    border = np.where(rng.random(appearance.trunks) < 0.5, -0.05, 1.05)
    start = np.stack([rng.random(appearance.trunks), border], axis=1)
    start = np.where(rng.random((appearance.trunks, 1)) < 0.5, start, start[:, ::-1])
    heading = unit(0.25 + 0.5 * rng.random((appearance.trunks, 2)) - start)
    radius = 0.017 * appearance.calibre / appearance.zoom
    length = 0.30 / appearance.zoom
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
        radius = 0.74 * radius
        length = 0.78 * length
    return canvas


def _granules(rng: np.random.Generator, size: int, *, zoom: float, strength: float) -> Floats:
    """(size, size) around 0: the slope of fine bumps, as if lit from above."""
    bumps = noise(rng, size, 17 * zoom) + 0.6 * noise(rng, size, 26 * zoom)
    slope = np.zeros_like(bumps)
    slope[1:] = (bumps[1:] - bumps[:-1]) * np.float32(size / 64)
    return slope * np.float32(0.04 + 0.34 * strength)


def _spots(rng: np.random.Generator, size: int, *, amount: float, zoom: float) -> Floats:
    """(size, size) in [0, 1]: petechiae and small erosions; ``amount`` makes them more and
    larger."""
    canvas = np.zeros((size, size), np.float32)
    chance = rng.random(36)
    where = rng.random((36, 2))
    scale = rng.random(36)
    drawn = chance < 0.02 + 0.68 * amount
    radius = (0.010 + 0.010 * scale + 0.028 * amount * scale * scale) / zoom
    # Three lobes each, so that spots are not round.
    lobes = where[:, None, :] + 1.6 * radius[:, None, None] * (rng.random((36, 3, 2)) - 0.5)
    stamp(canvas, lobes[drawn].reshape(-1, 2), np.repeat(radius[drawn], 3), hardness=0.9)
    return canvas


def _ulcers(
    rng: np.random.Generator, size: int, *, amount: float, zoom: float
) -> tuple[Floats, Floats]:
    """Floor and rim, (size, size) in [0, 1] each: fibrin-covered patches with irregular
    outlines."""
    chance = rng.random(6)
    where = rng.random((6, 2))
    scale = rng.random(6)
    stretch = 0.6 + 0.8 * rng.random((6, 2))
    y, x = grid(size)
    height = np.full((size, size), -9, np.float32)
    for i in np.flatnonzero(chance < 0.85 * amount):
        radius = (0.05 + 0.10 * amount + 0.07 * scale[i]) / zoom * stretch[i]
        dy = (y - float(where[i, 0])) / float(radius[0])
        dx = (x - float(where[i, 1])) / float(radius[1])
        height = np.maximum(height, 1 - (dy * dy + dx * dx))
    height += 0.7 * noise(rng, size, 9) + 0.4 * noise(rng, size, 18)
    return np.clip(height * 2.5, 0, 1), np.clip(1 - np.abs(height + 0.25) * 1.6, 0, 1)


def _mucus(rng: np.random.Generator, size: int) -> Floats:
    """(size, size) in [0, 1]: a pale smear on some images of any grade, so that pale does not imply
    an ulcer."""
    smear = noise(rng, size, 4) + 0.4 * noise(rng, size, 11)
    return np.clip((smear - between(rng, 0.2, 0.8)) * 2, 0, 1)


def _lamp(rng: np.random.Generator, size: int, appearance: Appearance) -> Floats:
    """(size, size): bright where the lamp points, darker towards the corners."""
    y, x = grid(size)
    dy = y - (appearance.light[0] + between(rng, -0.12, 0.12))
    dx = x - (appearance.light[1] + between(rng, -0.12, 0.12))
    brightness = between(rng, 1.02, 1.20)
    falloff = between(rng, 0.9, 1.9)
    return np.asarray(brightness / (1 + falloff * (dy * dy + dx * dx)), np.float32)


def _highlights(rng: np.random.Generator, size: int, *, gloss: float) -> Floats:
    """(size, size) in [0, 1]: reflections of the lamp on the wet wall."""
    canvas = np.zeros((size, size), np.float32)
    chance = rng.random(7)
    where = rng.random((7, 2))
    scale = rng.random(7)
    trail = (
        where[:, None, :] + (0.01 * np.arange(4))[None, :, None] * (rng.random((7, 1, 2)) - 0.5) * 2
    )
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


# The synthetic dataset: endoscopy-like images whose true severity is known. It needs no download.
#
# Every image has a continuous severity s in [0, C) and the grade ⌊s⌋, so neighbouring grades are
# truly ambiguous near their boundary. The images of a patient are similar in severity and
# appearance. ``benchmarks/synthetic_ceiling.py`` measures the accuracy that a small network
# reaches.

# separate random streams, so that no image depends on another
_DATASET = 0
_PATIENT = 1
_IMAGE = 2


def generate(
    *,
    images: int = 1200,
    patients: int = 120,
    size: int = 64,
    grades: int = 4,
    seed: int = 0,
    progress: Callable[[], object] | None = None,
) -> Manifest:
    """Generate the synthetic dataset in memory.

    The same arguments give the same bytes on every platform. Mild grades are common and severe ones
    rare, as in LIMUC: about 53, 27, 13 and 7 % for four grades.

    Parameters
    ----------
    images : int
        Number of images.
    patients : int
        Number of patients; each has at least one image.
    size : int
        Height and width of the images, 32 to 256.
    grades : int
        Number of grades, 2 to 10.
    seed : int
        Seed of the random numbers, at least 0.
    progress : callable, optional
        Called without arguments after each image.

    Returns
    -------
    Manifest
        ``arrays`` (images, size, size, 3) uint8, and a table with id, image, grade, patient and the
        continuous severity.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32, seed=0)
    >>> data.arrays.shape
    (100, 32, 32, 3)
    """
    for possible, sentence in (
        (2 <= grades <= 10, f"The synthetic data can have 2 to 10 grades, not {grades}."),
        (32 <= size <= 256, f"Synthetic images can have 32 to 256 pixels per side, not {size}."),
        (seed >= 0, f"The seed must be 0 or larger, not {seed}."),
        (images >= grades, f"{grades} grades need at least {grades} images, not {images}."),
        (
            1 <= patients <= images,
            f"{images} images need between 1 and {images} patients, not {patients}.",
        ),
    ):
        if not possible:
            raise SrjtError(sentence, code="out_of_bounds")
    patient, severity = _population(images, patients, grades, seed)
    appearances = [random_appearance(stream(seed, _PATIENT, p)) for p in range(patients)]
    arrays = np.empty((images, size, size, 3), np.uint8)
    for i in range(images):
        share = float(severity[i]) / grades
        arrays[i] = draw(share, appearances[patient[i]], size=size, rng=stream(seed, _IMAGE, i))
        if progress is not None:
            progress()
    folder = [f"p{p:03d}" for p in patient]
    number = pd.Series(patient).groupby(patient).cumcount()
    image = [f"{f}/{n:04d}.png" for f, n in zip(folder, number, strict=True)]
    grade = severity.astype(np.int64)
    columns = {"id": image, "image": image, "grade": grade, "patient": folder, "severity": severity}
    return Manifest(
        table=pd.DataFrame(columns), grades=tuple(map(str, range(grades))), arrays=arrays
    )


def write(
    manifest: Manifest, folder: Path | str, *, progress: Callable[[], object] | None = None
) -> Path:
    """Write the synthetic dataset as PNG files and a ``labels.csv``.

    Parameters
    ----------
    manifest : Manifest
        A dataset from ``generate``.
    folder : path
        A new or empty folder. Any other is an error, so that old images are not mixed with new
        labels.
    progress : callable, optional
        Called without arguments after each image.

    Returns
    -------
    Path
        The path of ``labels.csv``, with the columns image, grade, patient and severity.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> labels = srjt.data.synthetic.write(data, "synthetic")
    """
    from PIL import Image

    if manifest.arrays is None:
        raise SrjtError(
            "This dataset has no images in memory: use one from srjt.data.synthetic.generate.",
            code="unsupported",
        )
    root = Path(folder)
    check_empty(root)
    labels = root / "labels.csv"
    with explain_write_errors(f"The images cannot be written to {root}"):
        for name, pixels in zip(manifest.table["image"], manifest.arrays, strict=True):
            path = root / str(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            if progress is not None:
                progress()
        # Last, so that a folder with labels.csv is a complete dataset.
        table = manifest.table[["image", "grade", "patient", "severity"]]
        write_atomically(labels, table.to_csv(index=False).encode())
    return labels


def check_empty(folder: Path) -> None:
    """Raise unless ``folder`` is absent or an empty folder."""
    if folder.exists() and not folder.is_dir():
        raise SrjtError(
            f"{folder} is a file, not a folder: choose a new folder.", code="wrong_file"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise SrjtError(
            f"The folder {folder} is not empty: choose a new or empty one.", code="folder_in_use"
        )


def _population(images: int, patients: int, grades: int, seed: int) -> tuple[Ints, Doubles]:
    """The patient of each image, (N,) ascending, and its severity, (N,) in [0, grades)."""
    rng = stream(seed, _DATASET)
    others = np.floor(rng.random(images - patients) * patients).astype(np.int64)
    # one image each, the others at random
    patient = np.sort(np.concatenate([np.arange(patients), others]))
    counts = _counts(images, grades)
    ladder = np.concatenate([g + (np.arange(n) + 0.5) / n for g, n in enumerate(counts)])
    severity = np.empty(images)
    for similarity in np.arange(1, 0, -0.05):  # of the images of a patient
        of_patients = rng.random(patients) + rng.random(patients)
        tendency = similarity * of_patients[patient] + 0.8 * (
            rng.random(images) + rng.random(images)
        )
        # Only the order of the tendencies is used: each grade gets its exact share, evenly spread.
        severity[np.argsort(tendency, kind="stable")] = np.floor(ladder * 1e6) / 1e6
        # In a small dataset one or two patients may have all images of a rare grade, and no split
        # could put it on every side. So images of a patient are made less similar until each grade
        # has patients for five folds.
        if all(
            len(set(patient[severity.astype(int) == g])) >= min(5, n) for g, n in enumerate(counts)
        ):
            break
    return patient, severity


def _counts(images: int, grades: int) -> list[int]:
    """Images per grade: at least five if possible; of the rest, each grade gets half as many as the
    one before.

    With more than four grades the decay is slower, so that the severest gets an eighth of the
    mildest.
    """
    ratio = 0.5 ** (3 / max(3, grades - 1))
    weights = [ratio**g for g in range(grades)]
    floor = min(5, images // grades)
    counts = [floor + int((images - grades * floor) * w / sum(weights)) for w in weights]
    counts[0] += images - sum(counts)
    return counts


def stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of one thing, such as an image: they do not depend on what else is drawn."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *key])))


# A simulated reader, whose labels err as those of people do: by one grade, near a boundary, more
# often to one side.

_READER = 3  # a random stream beside those of ``generate``

# As in published readings: a third of the labels differs from the truth, 95 of 100 of these by one
# grade, and more of them are too mild than too severe.
BIAS = -0.3
SPREAD = 0.6


def read_labels(
    manifest: Manifest, *, bias: float = BIAS, spread: float = SPREAD, seed: int = 0
) -> npt.NDArray[np.int64]:
    """The grades that one reader gives to synthetic images.

    The reader sees the severity of an image with an error, and says the grade of what is seen. So
    an image near the boundary between two grades is read wrong more often than one in the middle,
    and hardly ever by two grades.

    Parameters
    ----------
    manifest : Manifest
        A dataset from ``generate``.
    bias : float
        Mean error in grades; below 0: the reader is too mild.
    spread : float
        Standard deviation of the error in grades.
    seed : int
        Seed of the errors. The label of an image does not depend on the other images.

    Returns
    -------
    ndarray of int64, shape (N,)

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> labels = srjt.data.synthetic.read_labels(data)
    >>> noisy = data.with_noisy_labels(labels)
    """
    if "severity" not in manifest.table:
        raise SrjtError(
            "A simulated reader needs the severity of each image, as in synthetic.generate.",
            code="unsupported",
        )
    if spread < 0:
        raise SrjtError(
            f"The spread of a reader is 0 or larger, not {spread:g}.",
            code="out_of_bounds",
            option="spread",
        )
    errors = np.array(
        [bias + spread * bell(stream(seed, _READER, row)) for row in range(len(manifest))]
    )
    seen = np.floor(manifest.table["severity"].to_numpy(np.float64) + errors)
    return np.asarray(np.clip(seen, 0, manifest.num_classes - 1), dtype=np.int64)
