"""Drawing primitives of :mod:`srjt.data.synthetic.drawing`: dots, smooth noise, rotations, ramps.

The same seed must give the same bytes on every platform. Pixels are therefore computed with +, −, ×, ÷, √ and
comparisons only, which IEEE 754 rounds identically everywhere: no exp, sin or matrix product (libm, SIMD and BLAS
differ), no sum whose order a library chooses, and only uniform numbers of the random generator. Scalars are Python
floats: NumPy 1 and 2 promote a NumPy float64 beside a float32 array differently.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = [
    "Colour",
    "Doubles",
    "Floats",
    "bell",
    "between",
    "blend",
    "grid",
    "noise",
    "ramp",
    "stamp",
    "turn",
    "unit",
]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Colour = tuple[float, float, float]


def blend(image: Floats, colour: Colour, alpha: Floats) -> None:
    """Blend ``colour`` into the (3, H, W) image with opacity ``alpha`` (H, W), in place."""
    paint = np.asarray(colour, np.float32)[:, None, None]
    image += alpha * (paint - image)


def stamp(canvas: Floats, centres: Doubles, radii: Doubles | float, *, hardness: float = 1.6) -> None:
    """Draw soft round dots at ``centres`` (P, 2) into the canvas, in place; where they overlap, the maximum is kept."""
    size = len(canvas)
    centres, radii = centres * size, np.broadcast_to(np.asarray(radii) * size, len(centres))
    near = ((centres > -radii[:, None]) & (centres < size + radii[:, None])).all(axis=1)
    centres, radii = centres[near], radii[near]
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
    strength = np.minimum(np.float32(hardness) * bump[dot, row, column], 1) * faint[dot].astype(np.float32)
    np.maximum.at(canvas.reshape(-1), where, strength)


def noise(rng: np.random.Generator, size: int, cells: float) -> Floats:
    """(size, size) smooth noise, about −1 … 1, with ``cells`` cells per side: a cubic B-spline of random knots."""
    first, weights = _spline(size, cells)
    field = rng.random((int(cells) + 4, int(cells) + 4), dtype=np.float32) * np.float32(4) - np.float32(2)
    for _ in range(2):  # along the rows, then along the columns
        a, b, c, d = (weights[k] * field[first + k] for k in range(4))
        field = np.ascontiguousarray((a + b + c + d).T)
    return field


@lru_cache(maxsize=64)
def _spline(size: int, cells: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The first knot (size,) of each pixel, and the weights (4, size, 1) of that knot and the next three."""
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
    cos, sin = (1 - tangent * tangent) / norm, 2 * tangent / norm
    y, x = heading[:, 0], heading[:, 1]
    return np.stack([y * cos + x * sin, x * cos - y * sin], axis=1)


def unit(vectors: Doubles) -> Doubles:
    """Scale (P, 2) to length 1."""
    y, x = vectors[:, 0], vectors[:, 1]
    return vectors / np.sqrt(y * y + x * x)[:, None]


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """A uniform number."""
    return low + (high - low) * float(rng.random())


def bell(rng: np.random.Generator) -> float:
    """Mean 0, variance 1, bounded: a sum of three uniform numbers; a normal one would need a logarithm."""
    return 2 * float(rng.random() + rng.random() + rng.random() - 1.5)


def ramp(value: float, low: float, high: float) -> float:
    """0 below ``low``, 1 above ``high``, smooth in between."""
    x = min(max((value - low) / (high - low), 0.0), 1.0)
    return x * x * (3 - 2 * x)
