"""Look at a dataset before it is used: identical and nearly identical images, which samples they
join, problems of images and patients, and some images as small pictures.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from srjt.choose import pick
from srjt.data.images.decode import DECODER_VERSION, EMPTY_FILE, BadImageError, read_image, resized
from srjt.data.manifest import Ints, LeakageWarning, Manifest, components, connected
from srjt.data.problems import Problem
from srjt.data.sources.table import no_image_exists
from srjt.errors import SrjtError, count_of, warn
from srjt.files import (
    NOT_A_FILE,
    cache_folder,
    load_arrays,
    private_folder,
    save_arrays,
    wait_for_lock,
    why_not_a_file,
)

# Identical and nearly identical images: what makes two images the same, and which samples that
# joins.
#
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
    made = np.empty(THUMBNAILS, dtype=np.uint8)
    for crop, share in enumerate(CROPS):
        left = share * width
        top = share * height
        box = (left, top, width - left, height - top)
        thumb = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX, box=box))
        spread = float(np.ptp(thumb))
        made[crop] = 0
        if spread >= FLAT:
            made[crop] = np.round((thumb - thumb.min()) * (255 / spread))
    return made


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
    query_rows = np.flatnonzero(first[:, 0].any(axis=(1, 2)))
    pairs_by_crop = [np.empty((0, 2), dtype=np.int64)]
    if not len(usable) or not len(query_rows) or (same and len(usable) < 2):
        return pairs_by_crop[0]
    _, vectors = np.linalg.eigh(whole[usable].T @ whole[usable])
    axes = vectors[:, -AXES:]
    radius = float(np.sqrt(2 - 2 * correlation))
    tree = cKDTree(whole[usable] @ axes)
    for crop in range(first.shape[1]):
        for query in (
            first[query_rows, crop],
            first[query_rows, crop, :, ::-1],
        ):  # as it is, and mirrored
            unit = _normalised(query)
            near = cKDTree(unit @ axes).sparse_distance_matrix(tree, radius, output_type="ndarray")
            if same:
                near = near[query_rows[near["i"]] != usable[near["j"]]]
            for start in range(0, len(near), 1 << 16):
                one = near["i"][start : start + (1 << 16)]
                other = near["j"][start : start + (1 << 16)]
                alike = np.einsum("nd,nd->n", unit[one], whole[usable[other]]) >= correlation
                pairs_by_crop.append(
                    np.stack([query_rows[one[alike]], usable[other[alike]]], axis=1)
                )
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


# Small pictures of samples, as text that a page or a notebook can contain.


def data_uri(image: Image.Image) -> str:
    """A picture as text that a page can contain."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def thumbnail(manifest: Manifest, row: int, *, size: int = 112) -> str:
    """The image of one sample, at most ``size`` pixels a side; "" for features and for an
    unreadable image."""
    if manifest.are_features:
        return ""
    try:
        image = _picture(manifest, row)
    except (SrjtError, MemoryError):
        return ""
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return data_uri(image)


def _picture(manifest: Manifest, row: int, side: int | None = None) -> Image.Image:
    """The image of one sample. side: of the square that it is squashed to."""
    if manifest.arrays is None:
        return Image.fromarray(
            read_image(manifest.root / str(manifest.table["image"].iloc[row]), size=side)
        )
    picture = Image.fromarray(np.asarray(manifest.arrays[row], dtype=np.uint8))
    return picture if side is None else resized(picture, size=side, resize="squash")


# Contact sheets: some images of each grade, mildest on top; and pairs of images that are the same.

MARGIN = 12
GAP = 4
LABEL_WIDTH = 120
CAPTION = 15  # height of a line
PAPER = (255, 255, 255)
INK = (20, 20, 20)
FAINT = (120, 120, 120)
WARNING = (190, 30, 30)


def contact_sheet(
    manifest: Manifest, *, per_grade: int = 8, tile: int = 112, seed: int = 0
) -> Image.Image:
    """One row per grade with up to ``per_grade`` images, of different patients if there are enough.

    Images that cannot be read are skipped.
    """
    width = 2 * MARGIN + LABEL_WIDTH + per_grade * (tile + GAP) - GAP
    height = 2 * MARGIN + manifest.num_classes * (tile + GAP) - GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    name_font = ImageFont.load_default(18)
    count_font = ImageFont.load_default(13)
    for grade, name in enumerate(manifest.grades):
        top = MARGIN + grade * (tile + GAP)
        shown = _shortened(name, name_font, LABEL_WIDTH - GAP)
        draw.text((MARGIN, top + tile / 2 - 22), shown, INK, font=name_font)
        count = count_of(int(manifest.class_counts[grade]), "image")
        draw.text((MARGIN, top + tile / 2 + 2), count, FAINT, font=count_font)
        for column, example in enumerate(islice(_examples(manifest, grade, tile, seed), per_grade)):
            sheet.paste(example, (MARGIN + LABEL_WIDTH + column * (tile + GAP), top))
    return sheet


def pair_sheet(
    manifest: Manifest,
    pairs: npt.NDArray[np.int64],
    *,
    columns: int = 3,
    count: int = 60,
    tile: int = 112,
) -> Image.Image:
    """The first ``count`` pairs, each side by side with its grades and ids. pairs: (M, 2) rows."""
    shown = pairs[:count].tolist()
    width = 2 * tile + GAP
    height = tile + 2 * CAPTION
    rows = -(-len(shown) // columns)
    sheet = Image.new(
        "RGB", (MARGIN + columns * (width + MARGIN), MARGIN + rows * (height + MARGIN)), PAPER
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    ids = manifest.ids
    labels = manifest.labels
    for place, pair in enumerate(shown):
        left = MARGIN + place % columns * (width + MARGIN)
        top = MARGIN + place // columns * (height + MARGIN)
        contradict = labels[pair[0]] != labels[pair[1]]
        for column, row in enumerate(pair):
            at = left + column * (tile + GAP)
            sheet.paste(_picture(manifest, row, tile), (at, top))
            # The end of a path tells more than its beginning.
            name = _shortened(ids[row][::-1], font, tile - GAP)[::-1]
            draw.text((at, top + tile), name, FAINT, font=font)
            grade = _shortened(manifest.grades[labels[row]], font, tile - GAP)
            draw.text((at, top + tile + CAPTION), grade, WARNING if contradict else INK, font=font)
    return sheet


def example_rows(manifest: Manifest, grade: int, *, seed: int = 0) -> list[int]:
    """The rows of a grade in a reproducible random order: the first ones of all patients, then the
    second, …"""
    ids = manifest.ids
    owners = manifest.patients or manifest.ids
    rows: list[int] = np.flatnonzero(manifest.labels == grade).tolist()
    rows.sort(key=lambda row: hashlib.blake2b(f"{seed}/{ids[row]}".encode()).digest())
    of_patient = pd.Series(pick(owners, rows), dtype=object)
    return pick(rows, of_patient.groupby(of_patient).cumcount().argsort(kind="stable"))


def _examples(manifest: Manifest, grade: int, tile: int, seed: int) -> Iterator[Image.Image]:
    """Images of a grade, in the order of ``example_rows``."""
    for row in example_rows(manifest, grade, seed=seed):
        with contextlib.suppress(BadImageError):
            yield _picture(manifest, row, tile)


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


# Check the images and patients of a manifest.

SAMPLED = 500  # images whose size is looked up


def check(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Find missing, unreadable, identical and nearly identical images, unknown patients and grades
    with few patients.

    Parameters
    ----------
    manifest : Manifest
        The samples to check.
    folds : int
        A grade with fewer patients than this is reported.
    images : bool
        Decode every image that has changed since the last time. ``False`` checks only the patients.
    workers, progress : optional
        As for ``group_duplicates``.

    Returns
    -------
    list of Problem
        All problems, in the order of the samples.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> srjt.data.check(data)
    []
    """
    problems: list[Problem] = []
    if images:
        problems, _ = examine_images(manifest, workers=workers, progress=progress)
    return problems + few_patients(manifest, folds)


def examine_images(
    manifest: Manifest, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[list[Problem], Ints]:
    """Problems of images, and (M, 2) pairs of rows with (nearly) identical images, contradictory
    ones first."""
    near: Ints = np.empty((0, 2), dtype=np.int64)
    hashes = image_hashes(manifest, near=True, workers=workers, progress=progress)
    ids = manifest.ids
    problems = []
    if manifest.arrays is None:
        paths = manifest.paths
        for row in np.flatnonzero((hashes.pixels == UNKNOWN).all(axis=1)).tolist():
            if problem := _file_problem(ids[row], paths[row]):
                problems.append(problem)
    if len(manifest) and [p.kind for p in problems] == ["missing-image"] * len(manifest):
        raise no_image_exists(manifest)
    code = identical(hashes.pixels)
    repeated = pd.Series(np.flatnonzero(pd.Series(code).duplicated(keep=False)))
    groups = [rows.tolist() for _, rows in repeated.groupby(code[repeated], sort=False)]
    same = f"same {'features' if manifest.are_features else 'pixels'} as"
    for rows in groups:
        kind = "identical-images-other-grade" if _contradict(manifest, rows) else "identical-images"
        problems.append(Problem(kind, ids[rows[0]], _compared(manifest, rows, same)))
    if hashes.thumbnails is not None:
        # of identical images only the first is compared
        first = np.sort(np.unique(code, return_index=True)[1])
        near = across_patients(
            manifest, first[near_pairs(hashes.thumbnails[first])].astype(np.int64)
        )
    for rows in near.tolist():
        detail = _compared(manifest, rows, "nearly the same image as")
        problems.append(Problem("near-duplicates", ids[rows[0]], detail))
    groups.sort(key=lambda rows: not _contradict(manifest, rows))
    pairs: list[tuple[int, int]] = []
    for rows in groups:
        pairs += [(rows[0], other) for other in rows[1:]]
    identical_rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return problems, np.concatenate([identical_rows, near])


def image_sizes(manifest: Manifest, *, sample: int = SAMPLED) -> list[tuple[int, int]]:
    """(width, height) of up to ``sample`` images, evenly spaced over the manifest; unreadable files
    are left out."""
    if manifest.are_features:
        return []
    if manifest.arrays is not None:
        return [(manifest.arrays.shape[2], manifest.arrays.shape[1])] * len(manifest)
    paths = manifest.paths[:: max(1, -(-len(manifest) // sample))]
    return [size for size in map(_size, paths) if size is not None]


def _file_problem(sample: str, path: Path) -> Problem | None:
    """Why an image cannot be read; None if it can be."""
    try:
        read_image(path, size=HASHED_SIZE)
    except BadImageError as problem:
        described = image_problem(sample, problem.reason)
        if described.kind == "unreadable-image":
            return described
        return replace(described, detail=f"{path}: {problem.reason}")
    return None


def image_problem(sample: str, reason: str) -> Problem:
    """The problem of an image that cannot be read, by the ``reason`` of its ``BadImageError``."""
    if reason in NOT_A_FILE:
        return Problem("missing-image", sample, reason)
    return Problem("empty-image" if reason == EMPTY_FILE else "unreadable-image", sample, reason)


def _compared(manifest: Manifest, rows: list[int], relation: str) -> str:
    """In words: what the first row has in common with the others, and where they contradict each
    other."""
    ids = manifest.ids
    labels = manifest.labels
    patients = manifest.patients
    detail = f"{relation} " + ", ".join(pick(ids, rows[1:]))
    if _contradict(manifest, rows):
        detail += "; grades " + " and ".join(pick(manifest.grades, np.unique(labels[rows])))
    people: set[str] = set()
    if patients is not None:
        people.update(pick(patients, rows))
    if len(people) > 1:
        detail += "; patients " + " and ".join(sorted(people))
    return detail


def _contradict(manifest: Manifest, rows: list[int]) -> bool:
    return len(set(manifest.labels[rows].tolist())) > 1


def few_patients(manifest: Manifest, folds: int) -> list[Problem]:
    """Problems of patients: they are not known, or a grade has fewer of them than folds."""
    patients = manifest.patients
    unit = "patient"
    problems = []
    if patients is None:
        problems.append(
            Problem("missing-patient", "all samples", "the source has no patient column")
        )
        patients = manifest.ids
        unit = "sample"
    owners = np.array(patients, dtype=object)
    for grade, name in enumerate(manifest.grades):
        if (count := len(set(owners[manifest.labels == grade]))) < folds:
            detail = f"{count_of(count, unit)} for {folds} folds"
            problems.append(Problem("few-patients", f"grade {name}", detail))
    return problems


def _size(path: Path) -> tuple[int, int] | None:
    if why_not_a_file(path) is not None:
        return None
    with contextlib.suppress(Exception), Image.open(path) as image:  # reads only the header
        return image.size
    # not a format of Pillow, damaged, or larger than it allows
    with contextlib.suppress(SrjtError):
        height, width, _ = read_image(path).shape
        return width, height
    return None
