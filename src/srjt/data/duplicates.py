"""Identical and nearly identical images, and the groups of samples that are never split."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from srjt.data.images.decode import DECODER_VERSION, BadImageError, read_image
from srjt.data.manifest import Ints, LeakageWarning, Manifest, components, connected
from srjt.errors import count_of, warn
from srjt.files import (
    cache_folder,
    load_arrays,
    private_folder,
    save_arrays,
    wait_for_lock,
)

# Two images are *identical* if their decoded pixels are. They are *nearly identical* if one is the
# other rescaled, recompressed, mirrored or cropped by up to 3 % at each border.
#
# A 64-bit difference hash cannot tell medical images apart: of 2,000 fundus photographs it gives
# 500 unrelated pairs the same hash. The correlation of small grey thumbnails can;
# ``benchmarks/duplicates.py`` measures it.

Hashes = npt.NDArray[np.uint64]

CORRELATION = 0.9994  # thumbnails that are correlated at least this much show the same image
SIDE = 16  # pixels of a thumbnail
# share that a thumbnail leaves out at each border
CROPS = (
    0.0,
    0.005,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
)
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
    """(H, W, 3) uint8 → (crops, SIDE, SIDE) grey thumbnails: of the whole image, and of slightly
    cropped ones.

    Their contrast is stretched, because in images of low contrast rounding would be most of the
    difference. A flat image has thumbnails of zeros.
    """
    grey = Image.fromarray(pixels).convert("L").convert("F")
    if grey.width % SIDE or grey.height % SIDE:
        # areas of whole pixels: else the thumbnail of a mirrored image is not the mirrored
        # thumbnail
        grey = grey.resize((HASHED_SIZE, HASHED_SIZE), Image.Resampling.BILINEAR)
    width, height = grey.size
    thumbs = np.empty(THUMBNAILS, dtype=np.float32)
    for crop, share in enumerate(CROPS):
        left = share * width
        top = share * height
        box = (left, top, width - left, height - top)
        small = grey.resize((SIDE, SIDE), Image.Resampling.BOX, box=box)
        thumbs[crop] = np.asarray(small)
    thumbs -= thumbs.min(axis=(1, 2), keepdims=True)
    spread = thumbs.max(axis=(1, 2), keepdims=True).astype(np.float64)
    stretch = np.where(spread >= FLAT, 255 / np.maximum(spread, FLAT), 0)
    return np.round(thumbs * stretch.astype(np.float32)).astype(np.uint8)


def identical(hashes: Hashes) -> Ints:
    """(N, 2) hashes → (N,) numbers: equal for identical images. An unknown hash is like no
    other."""
    _, code = np.unique(hashes, axis=0, return_inverse=True)
    code = code.reshape(-1).astype(np.int64)
    unknown = np.flatnonzero((hashes == UNKNOWN).all(axis=1))
    code[unknown] = len(hashes) + np.arange(len(unknown))
    return code


def near_pairs(thumbs: npt.NDArray[np.uint8], *, correlation: float = CORRELATION) -> Ints:
    """(N, crops, SIDE, SIDE) → (M, 2): the pairs i < j of nearly identical images."""
    pairs = _near_whole(thumbs, thumbs, correlation=correlation, same=True)
    return _unique_pairs(np.sort(pairs, axis=1))


def near_across(
    first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8], *, correlation: float = CORRELATION
) -> Ints:
    """(N, crops, SIDE, SIDE) and (K, …) → (M, 2): the pairs (i, k) of nearly identical images."""
    there = _near_whole(first, second, correlation=correlation)
    back = _near_whole(second, first, correlation=correlation)[:, ::-1]
    return _unique_pairs(np.concatenate([there, back]))


def _unique_pairs(pairs: Ints) -> Ints:
    if not len(pairs):
        return pairs
    return np.unique(pairs, axis=0)


def _near_whole(
    first: npt.NDArray[np.uint8],
    second: npt.NDArray[np.uint8],
    *,
    correlation: float,
    same: bool = False,
) -> Ints:
    """(M, 2) the pairs in which a thumbnail of the first, cropped or mirrored or neither, and the
    whole thumbnail of the second are correlated at least ``correlation``. same: both are the same
    images, and a pair has two of them.

    The search is exact: normalised thumbnails with that correlation are less than r = √(2 − 2 ·
    correlation) apart, also after projection on a few axes, where a k-d tree finds all candidates.
    """
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    whole = _normalised(second[:, 0])
    usable = np.flatnonzero(whole.any(axis=1))
    filled = np.flatnonzero(first[:, 0].any(axis=(1, 2)))
    pairs_by_crop = [np.empty((0, 2), dtype=np.int64)]
    if not len(usable) or not len(filled) or (same and len(usable) < 2):
        return pairs_by_crop[0]
    _, vectors = np.linalg.eigh(whole[usable].T @ whole[usable])
    axes = vectors[:, -AXES:]
    radius = float(np.sqrt(2 - 2 * correlation))
    tree = cKDTree(whole[usable] @ axes)
    for crop in range(first.shape[1]):
        for query in (first[filled, crop], first[filled, crop, :, ::-1]):  # as it is, and mirrored
            unit = _normalised(query)
            near = cKDTree(unit @ axes).sparse_distance_matrix(tree, radius, output_type="ndarray")
            if same:
                near = near[filled[near["i"]] != usable[near["j"]]]
            for start in range(0, len(near), 1 << 16):
                one = near["i"][start : start + (1 << 16)]
                other = near["j"][start : start + (1 << 16)]
                alike = np.einsum("nd,nd->n", unit[one], whole[usable[other]]) >= correlation
                pairs_by_crop.append(np.stack([filled[one[alike]], usable[other[alike]]], axis=1))
    return np.concatenate(pairs_by_crop)


def _normalised(thumbs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """(N, SIDE, SIDE) → (N, SIDE²) float32 with mean 0 and length 1; all zeros for flat
    thumbnails."""
    flat = thumbs.reshape(len(thumbs), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.maximum(length, 1e-6), dtype=np.float32)


# Hashes of all images of a manifest, computed once and kept in the cache folder.
#
# Images are hashed at one size, whatever size they are trained at: the same samples are the same
# groups everywhere.

HASHED_SIZE = (
    256  # the size at which images are stored by default: their pixels need not be decoded again
)

Progress = Callable[[int, int], None]  # (images done, images in all)

CHUNK = 16  # images that a thread hashes before it takes others


@dataclass(frozen=True, kw_only=True)
class ImageHashes:
    """pixels: (N, 2) uint64, ``UNKNOWN`` for an unreadable image; thumbnails: (N, crops, SIDE,
    SIDE) uint8."""

    pixels: Hashes
    thumbnails: npt.NDArray[np.uint8] | None


def image_hashes(
    manifest: Manifest,
    *,
    near: bool = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    decoded: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None = None,
) -> ImageHashes:
    """Hash every image, or read the hashes of an earlier call.

    near: images in memory get thumbnails too (image files always have them). decoded: pixels of
    size HASHED_SIZE and the rows that they belong to, if the files have been decoded already.
    """
    workers = workers or min(32, os.cpu_count() or 1)
    arrays = manifest.arrays
    paths = manifest.paths
    if arrays is not None:
        near = near and not manifest.are_features
        return _hash_all(len(arrays), arrays.__getitem__, near=near, workers=workers)
    key = hashlib.sha256(
        f"{file_facts(paths)}\0{DECODER_VERSION}".encode("utf-8", "surrogateescape")
    )
    folder = Path(cache or cache_folder()).expanduser() / "hashes" / key.hexdigest()[:32]
    place = {} if decoded is None else {int(row): at for at, row in enumerate(decoded[1])}

    def read(row: int) -> npt.NDArray[np.uint8]:
        if decoded is None:
            return read_image(paths[row], size=HASHED_SIZE)
        if row not in place:
            raise BadImageError(paths[row], "it was skipped")
        return np.asarray(decoded[0][place[row]])

    with contextlib.ExitStack() as stack:
        # without a writable cache they are computed again next time
        with contextlib.suppress(OSError):
            private_folder(folder)
            # the runs of a study begin together
            stack.enter_context(wait_for_lock(folder, waiting=lambda: None))
        saved = load_arrays(folder / "hashes.npz")  # none if the file is damaged
        shapes = {"pixels": (len(paths), 2), "thumbnails": (len(paths), *THUMBNAILS)}
        if {name: array.shape for name, array in saved.items()} != shapes:
            saved = {"pixels": np.zeros(shapes["pixels"], np.uint64)}
            saved["thumbnails"] = np.zeros(shapes["thumbnails"], np.uint8)
        # also what could not be read the last time: a decoder may have been installed
        todo = np.flatnonzero((saved["pixels"] == UNKNOWN).all(axis=1)).tolist()
        told = None if decoded else progress
        made = _hash_all(
            len(todo), lambda at: read(todo[at]), near=True, workers=workers, progress=told
        )
        saved["pixels"][todo] = made.pixels
        saved["thumbnails"][todo] = made.thumbnails
        if made.pixels.any():
            with contextlib.suppress(OSError):
                save_arrays(folder / "hashes.npz", saved)
    return ImageHashes(**saved)


def file_facts(paths: list[Path]) -> str:
    """Path, size and modification time of each file; a missing file counts too."""
    facts = []
    for path in paths:
        try:
            status = path.stat()
            facts.append(f"{os.path.abspath(path)}\0{status.st_size}\0{status.st_mtime_ns}")
        except (OSError, ValueError):  # ValueError: a NUL character in the name
            facts.append(f"{os.path.abspath(path)}\0missing")
    return "\n".join(facts)


def _hash_all(
    count: int,
    read: Callable[[int], npt.NDArray[Any]],
    *,
    near: bool,
    workers: int,
    progress: Progress | None = None,
) -> ImageHashes:
    """read: the pixels of a row; ``BadImageError`` if there are none."""
    hashes = np.empty((count, 2), dtype=np.uint64)
    made = np.zeros((count, *THUMBNAILS), dtype=np.uint8) if near else None

    def hash_rows(rows: range) -> None:
        for row in rows:
            try:
                pixels = read(row)
            except BadImageError:
                hashes[row] = UNKNOWN
                continue
            hashes[row] = pixel_hash(pixels)
            if made is not None:
                made[row] = thumbnails(pixels)

    step = CHUNK if progress is None else 1
    parts = [range(count)[start : start + step] for start in range(0, count, step)]
    pool = ThreadPoolExecutor(workers, thread_name_prefix="hash")
    try:
        for part, _ in zip(parts, pool.map(hash_rows, parts), strict=True):
            if progress is not None:
                progress(part.stop, count)
    finally:  # on an interruption, do not wait for thousands of images
        pool.shutdown(wait=False, cancel_futures=True)
    return ImageHashes(pixels=hashes, thumbnails=made)


# Groups of samples that are never split: patients, joined with the images that they share.

# Rows of fewer features coincide by chance: they are table cells, not what a network computed from
# an image.
MIN_FEATURES = 16


class DuplicateImagesWarning(LeakageWarning):
    """Some images are identical; they are kept on one side of every split that srjt makes."""


def group_duplicates(
    manifest: Manifest,
    *,
    near: bool = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Find identical images, so that they are never on two sides of a split.

    ``folds``, ``srjt.train``, ``srjt.audit`` and ``srjt.evaluate`` call this themselves. Call it to
    group nearly identical images as well. Every image is decoded once; the hashes stay in the cache
    folder.

    Parameters
    ----------
    manifest : Manifest
        The samples. Images that cannot be read are like no other. Rows of features count as images
        if there are at least 16 features.
    near : bool
        Group nearly identical images too: rescaled, recompressed, mirrored, or cropped by up to 3 %
        at each border.
    cache : path, optional
        Folder for the hashes. Default: ``$SRJT_CACHE``, or the user's cache folder.
    workers : int, optional
        Number of decoding threads. Default: one per core, at most 32.
    progress : callable, optional
        Called with (images done, images in all).

    Returns
    -------
    Manifest
        The same samples with ``hashes`` and ``duplicates``, and so with other ``groups`` where
        images are shared. A ``DuplicateImagesWarning`` says how many there are.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> grouped = srjt.data.group_duplicates(data)
    >>> grouped.groups == data.patients
    True
    """
    hashes = image_hashes(manifest, near=near, cache=cache, workers=workers, progress=progress)
    marked = with_hashes(manifest, hashes, near=near)
    warn_of_duplicates(marked, near=near)
    return marked


def with_hashes(manifest: Manifest, hashes: ImageHashes, *, near: bool = False) -> Manifest:
    """The manifest with these hashes and the duplicates that they show."""
    code = same_pixels(replace(manifest, hashes=hashes.pixels))
    if near and hashes.thumbnails is not None:
        pairs = across_patients(manifest, near_pairs(hashes.thumbnails))
        code = connected(code, components(len(manifest), pairs))
    return replace(manifest, hashes=hashes.pixels, thumbnails=hashes.thumbnails, duplicates=code)


def warn_of_duplicates(manifest: Manifest, *, near: bool = False) -> None:
    """Warn of identical images, where samples are divided by groups."""
    if sentence := describe_duplicates(manifest, near=near):
        warn(sentence, DuplicateImagesWarning)


def across_patients(manifest: Manifest, pairs: Ints) -> Ints:
    """The pairs (M, 2) of rows of different patients: alike images of one patient are usual, and
    never split."""
    if manifest.patients is None:
        return pairs
    owner = np.unique(np.array(manifest.patients, dtype=object), return_inverse=True)[1]
    return np.asarray(pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]])


def describe_duplicates(manifest: Manifest, *, near: bool = False) -> str:
    """One sentence on how many images are the same as another; "" if there are none, or if it is
    not known."""
    if manifest.duplicates is None:
        return ""
    sizes = np.unique(manifest.duplicates, return_counts=True)[1]
    sizes = sizes[sizes > 1]
    if not len(sizes):
        return ""
    what = "rows of features" if manifest.are_features else "images"
    same = "identical or nearly identical" if near else "identical"
    groups = count_of(len(sizes), "group")
    count = f"{sizes.sum():,} {what} are {same} to another"
    return f"{count}: they make {groups}, and the folds that srjt makes never split a group."


def same_pixels(manifest: Manifest) -> Ints:
    """(N,) numbers, equal for samples with identical images (not for nearly identical ones)."""
    few = (
        manifest.arrays is not None
        and manifest.are_features
        and manifest.arrays.shape[1] < MIN_FEATURES
    )
    if few or manifest.hashes is None:
        return np.arange(len(manifest))
    return identical(manifest.hashes)


def contradictory_twins(manifest: Manifest) -> Ints:
    """(N,) numbers from 1, equal for samples with identical images of different grades; 0 for all
    other samples."""
    code = same_pixels(manifest)
    grades = pd.Series(manifest.labels).groupby(code).transform("nunique").to_numpy()
    number = np.zeros(len(manifest), dtype=np.int64)
    number[grades > 1] = np.unique(code[grades > 1], return_inverse=True)[1].reshape(-1) + 1
    return number
