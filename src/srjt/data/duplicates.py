"""Identical and nearly identical images: what makes two images the same, and which samples that joins.

Two images are *identical* if their decoded pixels are. They are *nearly identical* if one is the other rescaled,
recompressed, mirrored or cropped by up to 3 % at each border.

A 64-bit difference hash cannot tell medical images apart: of 2,000 fundus photographs it gives 500 unrelated pairs the
same hash. The correlation of small grey thumbnails can; ``benchmarks/duplicates.py`` measures it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = [
    "CORRELATION",
    "THUMBNAILS",
    "UNKNOWN",
    "components",
    "connected",
    "identical",
    "near_pairs",
    "pixel_hash",
    "thumbnails",
]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

CORRELATION = 0.9994  # thumbnails that are correlated at least this much show the same image
SIDE = 16  # pixels of a thumbnail
CROPS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03)  # share that a thumbnail leaves out at each border
THUMBNAILS = (len(CROPS), SIDE, SIDE)
UNKNOWN = np.zeros(2, dtype=np.uint64)  # the hash of an image that cannot be read
FLAT = 4.0  # grey levels: thumbnails with a smaller range show nothing that could be compared
AXES = 8  # principal axes on which candidates are searched


def pixel_hash(pixels: npt.NDArray[np.generic]) -> Hashes:
    """(2,) uint64: a 128-bit hash of an image or of a row of features."""
    digest = hashlib.blake2b(repr((pixels.shape, pixels.dtype.str)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    return np.frombuffer(digest.digest(), dtype="<u8").astype(np.uint64)


def thumbnails(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(H, W, 3) uint8 → (crops, SIDE, SIDE) grey thumbnails: of the whole image, and of slightly cropped ones.

    Their contrast is stretched, because in images of low contrast rounding would be most of the difference. A flat
    image has thumbnails of zeros.
    """
    grey = Image.fromarray(pixels).convert("L").convert("F")
    width, height = grey.size
    made = np.empty(THUMBNAILS, dtype=np.uint8)
    for crop, share in enumerate(CROPS):
        left, top = share * width, share * height
        box = (left, top, width - left, height - top)
        thumb = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX, box=box))
        spread = float(np.ptp(thumb))
        made[crop] = 0 if spread < FLAT else np.round((thumb - thumb.min()) * (255 / spread))
    return made


def identical(hashes: Hashes) -> Ints:
    """(N, 2) hashes → (N,) numbers: equal for identical images. An unknown hash is like no other."""
    _, code = np.unique(hashes, axis=0, return_inverse=True)
    code = code.reshape(-1).astype(np.int64)
    unknown = np.flatnonzero((hashes == UNKNOWN).all(axis=1))
    code[unknown] = len(hashes) + np.arange(len(unknown))
    return code


def near_pairs(thumbs: npt.NDArray[np.uint8], *, correlation: float = CORRELATION) -> Ints:
    """(N, crops, SIDE, SIDE) → (M, 2): the pairs i < j of nearly identical images.

    A pair is one if a thumbnail of the first, cropped or mirrored or neither, and the whole thumbnail of the second
    are correlated at least ``correlation``, or the other way round. The search is exact: normalised thumbnails with
    that correlation are less than r = √(2 − 2 · correlation) apart, also after projection on a few axes, where a
    k-d tree finds all candidates.
    """
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    count = len(thumbs)
    whole = _normalised(thumbs[:, 0])
    usable = np.flatnonzero(whole.any(axis=1))
    if len(usable) < 2:
        return np.empty((0, 2), dtype=np.int64)
    _, vectors = np.linalg.eigh(whole[usable].T @ whole[usable])
    axes = vectors[:, -AXES:]
    radius = float(np.sqrt(2 - 2 * correlation))
    tree = cKDTree(whole[usable] @ axes)
    found = [np.empty((0, 2), dtype=np.int64)]
    for crop in range(len(CROPS)):
        for mirrored in (False, True):
            query = thumbs[usable, crop, :, ::-1] if mirrored else thumbs[usable, crop]
            unit = _normalised(query)
            near = cKDTree(unit @ axes).sparse_distance_matrix(tree, radius, output_type="ndarray")
            first, second = near["i"].astype(np.int64), near["j"].astype(np.int64)
            other = first != second
            first, second = first[other], second[other]
            alike = np.empty(len(first), dtype=np.bool_)
            for start in range(0, len(first), 1 << 16):
                part = slice(start, start + (1 << 16))
                product = np.einsum("nd,nd->n", unit[first[part]], whole[usable[second[part]]])
                alike[part] = product >= correlation
            found.append(np.stack([usable[first[alike]], usable[second[alike]]], axis=1))
    pairs = np.sort(np.concatenate(found), axis=1)
    code = np.unique(pairs[:, 0] * count + pairs[:, 1])
    return np.stack([code // count, code % count], axis=1)


def components(count: int, pairs: Ints) -> Ints:
    """(M, 2) pairs of ``count`` samples → (count,) numbers: equal for samples that a chain of pairs connects."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    first, second = pairs.astype(np.int32).T  # SciPy 1.11 joins everything if the indices are wider
    edges = coo_array((np.ones(len(pairs), np.bool_), (first, second)), shape=(count, count))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.int64)


def connected(*codes: Ints) -> Ints:
    """Several (N,) numberings of the same samples → one: samples that share a number in any of them are joined."""
    count = len(codes[0])
    samples = np.arange(count)
    edges = []
    for code in codes:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        edges.append(np.stack([samples, first[inverse.reshape(-1)]], axis=1))
    return components(count, np.concatenate(edges))


def _normalised(thumbs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """(N, SIDE, SIDE) → (N, SIDE²) float32 with mean 0 and length 1; all zeros for flat thumbnails."""
    flat = thumbs.reshape(len(thumbs), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.maximum(length, 1e-6), dtype=np.float32)
