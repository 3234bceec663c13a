"""Look at a dataset before it is used: check its images and patients, and show some of them as small pictures."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from srjt.data.duplicates import HASHED_SIZE, UNKNOWN, across_patients, identical, image_hashes, near_pairs
from srjt.data.images.decode import EMPTY_FILE, BadImageError, read_image, resized
from srjt.data.manifest import Ints, Manifest, Problem
from srjt.data.sources.table import no_image_exists
from srjt.errors import SrjtError, count_of
from srjt.files import NOT_A_FILE, why_not_a_file

# Small pictures of samples, as text that a page or a notebook can contain.


def data_uri(image: Image.Image) -> str:
    """A picture as text that a page can contain."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def thumbnail(manifest: Manifest, row: int, *, size: int = 112) -> str:
    """The image of one sample, at most ``size`` pixels a side; "" for features and for an unreadable image."""
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
        path = manifest.root / str(manifest.table["image"].iloc[row])
        return Image.fromarray(read_image(path, size=side))
    picture = Image.fromarray(np.asarray(manifest.arrays[row], dtype=np.uint8))
    return picture if side is None else resized(picture, size=side, resize="squash")


# Contact sheets: some images of each grade, mildest on top; and pairs of images that are the same.

MARGIN, GAP, LABEL_WIDTH = 12, 4, 120
CAPTION = 15  # height of a line
PAPER, INK, FAINT, WARNING = (255, 255, 255), (20, 20, 20), (120, 120, 120), (190, 30, 30)


def contact_sheet(manifest: Manifest, *, per_grade: int = 8, tile: int = 112, seed: int = 0) -> Image.Image:
    """One row per grade with up to ``per_grade`` images, of different patients if there are enough.

    Images that cannot be read are skipped.
    """
    width = 2 * MARGIN + LABEL_WIDTH + per_grade * (tile + GAP) - GAP
    height = 2 * MARGIN + manifest.num_classes * (tile + GAP) - GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    name_font, count_font = ImageFont.load_default(18), ImageFont.load_default(13)
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
    manifest: Manifest, pairs: npt.NDArray[np.int64], *, columns: int = 3, count: int = 60, tile: int = 112
) -> Image.Image:
    """The first ``count`` pairs, each side by side with its grades and ids. pairs: (M, 2) rows."""
    shown = pairs[:count].tolist()
    width, height = 2 * tile + GAP, tile + 2 * CAPTION
    rows = -(-len(shown) // columns)
    sheet = Image.new("RGB", (MARGIN + columns * (width + MARGIN), MARGIN + rows * (height + MARGIN)), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    ids, labels = manifest.ids, manifest.labels
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


def _examples(manifest: Manifest, grade: int, tile: int, seed: int) -> Iterator[Image.Image]:
    """Images of a grade in a reproducible random order: the first ones of all patients, then the second, …"""
    ids, owners = manifest.ids, manifest.patients or manifest.ids
    rows = np.flatnonzero(manifest.labels == grade).tolist()
    rows.sort(key=lambda row: hashlib.blake2b(f"{seed}/{ids[row]}".encode()).digest())
    of_patient = pd.Series([owners[row] for row in rows], dtype=object)
    for place in of_patient.groupby(of_patient).cumcount().argsort(kind="stable"):
        with contextlib.suppress(BadImageError):
            yield _picture(manifest, rows[place], tile)


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


# Check the images and patients of a manifest.

SAMPLED = 500  # images whose size is looked up

Progress = Callable[[int, int], None]


def check(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Find missing, unreadable, identical and nearly identical images, unknown patients and grades with few patients.

    Parameters
    ----------
    manifest : Manifest
        The samples to check.
    folds : int
        A grade with fewer patients than this is reported.
    images : bool
        Decode every image that has changed since the last time. ``False`` checks only the patients.
    workers : int, optional
        Number of decoding threads. Default: one per core, at most 32.
    progress : callable, optional
        Called with (images done, images in all).

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
    problems = examine_images(manifest, workers=workers, progress=progress)[0] if images else []
    return problems + few_patients(manifest, folds)


def examine_images(
    manifest: Manifest, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[list[Problem], Ints]:
    """Problems of images, and (M, 2) pairs of rows with (nearly) identical images, contradictory ones first."""
    near: Ints = np.empty((0, 2), dtype=np.int64)
    hashes = image_hashes(manifest, near=True, workers=workers, progress=progress)
    ids, problems = manifest.ids, []
    if manifest.arrays is None:
        paths = manifest.paths
        unknown = np.flatnonzero((hashes.pixels == UNKNOWN).all(axis=1)).tolist()
        problems = [problem for row in unknown if (problem := _file_problem(ids[row], paths[row]))]
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
        near = across_patients(manifest, first[near_pairs(hashes.thumbnails[first])].astype(np.int64))
    for rows in near.tolist():
        detail = _compared(manifest, rows, "nearly the same image as")
        problems.append(Problem("near-duplicates", ids[rows[0]], detail))
    groups.sort(key=lambda rows: not _contradict(manifest, rows))
    identical_rows = np.array([(rows[0], other) for rows in groups for other in rows[1:]], dtype=np.int64)
    return problems, np.concatenate([identical_rows.reshape(-1, 2), near])


def image_sizes(manifest: Manifest, *, sample: int = SAMPLED) -> list[tuple[int, int]]:
    """(width, height) of up to ``sample`` images, evenly spaced over the manifest; unreadable files are left out."""
    if manifest.are_features:
        return []
    if manifest.arrays is not None:
        return [(manifest.arrays.shape[2], manifest.arrays.shape[1])] * len(manifest)
    paths = manifest.paths[:: max(1, -(-len(manifest) // sample))]
    return [size for path in paths if (size := _size(path)) is not None]


def _file_problem(sample: str, path: Path) -> Problem | None:
    """Why an image cannot be read; None if it can be."""
    try:
        read_image(path, size=HASHED_SIZE)
    except BadImageError as problem:
        described = image_problem(sample, problem.reason)
        detail = problem.reason if described.kind == "unreadable-image" else f"{path}: {problem.reason}"
        return replace(described, detail=detail)
    return None


def image_problem(sample: str, reason: str) -> Problem:
    """The problem of an image that cannot be read, by the ``reason`` of its ``BadImageError``."""
    if reason in NOT_A_FILE:
        return Problem("missing-image", sample, reason)
    return Problem("empty-image" if reason == EMPTY_FILE else "unreadable-image", sample, reason)


def _compared(manifest: Manifest, rows: list[int], relation: str) -> str:
    """In words: what the first row has in common with the others, and where they contradict each other."""
    ids, labels, patients = manifest.ids, manifest.labels, manifest.patients
    detail = f"{relation} " + ", ".join(ids[row] for row in rows[1:])
    if _contradict(manifest, rows):
        detail += "; grades " + " and ".join(manifest.grades[g] for g in np.unique(labels[rows]))
    if patients is not None and len({patients[row] for row in rows}) > 1:
        detail += "; patients " + " and ".join(sorted({patients[row] for row in rows}))
    return detail


def _contradict(manifest: Manifest, rows: list[int]) -> bool:
    return len(set(manifest.labels[rows].tolist())) > 1


def few_patients(manifest: Manifest, folds: int) -> list[Problem]:
    """Problems of patients: they are not known, or a grade has fewer of them than folds."""
    patients, unit, problems = manifest.patients, "patient", []
    if patients is None:
        problems.append(Problem("missing-patient", "all samples", "the source has no patient column"))
        patients, unit = manifest.ids, "sample"
    owners = np.array(patients, dtype=object)
    for grade, name in enumerate(manifest.grades):
        count = len(set(owners[manifest.labels == grade]))
        if count < folds:
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
