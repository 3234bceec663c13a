"""Check the images and patients of a manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.errors import SrjtError
from srjt.files import why_not_a_file

__all__ = ["check", "image_sizes"]

# Images are compared at the size that training uses, so large JPEG files are not decoded in full.
COMPARED_SIZE = 256

Progress = Callable[[int, int], None]


def check(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Find missing, unreadable and identical images, unknown patients and grades with few patients.

    Parameters
    ----------
    manifest : Manifest
        The samples to check.
    folds : int
        A grade with fewer patients than this is reported.
    images : bool
        Decode every image. ``False`` checks only the patients.
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
    problems: list[Problem] = []
    if images:
        fingerprints: list[bytes | None] = []
        for found in _fingerprints(manifest, workers=workers):
            if isinstance(found, Problem):
                problems.append(found)
            fingerprints.append(None if isinstance(found, Problem) else found)
            if progress is not None:
                progress(len(fingerprints), len(manifest))
        if (
            len(manifest)
            and all(problem.kind == "missing-image" for problem in problems)
            and not any(fingerprints)
        ):
            raise SrjtError(
                f"None of the {len(manifest):,} images exists; the first is {manifest.paths[0]}: "
                "give their folder with --images."
            )
        problems += _identical(manifest, fingerprints)
    return problems + _few_patients(manifest, folds)


def image_sizes(manifest: Manifest, *, sample: int = 500) -> list[tuple[int, int]]:
    """(width, height) of up to ``sample`` images, evenly spaced over the manifest; unreadable files are left out."""
    if manifest.are_features:
        return []
    if manifest.arrays is not None:
        return [(manifest.arrays.shape[2], manifest.arrays.shape[1])] * len(manifest)
    paths = manifest.paths[:: max(1, -(-len(manifest) // sample))]
    return [size for path in paths if (size := _size(path)) is not None]


def _fingerprints(manifest: Manifest, *, workers: int | None) -> Iterator[bytes | Problem]:
    """(N,) in order: a hash of the pixels, or the problem of the file."""
    if manifest.arrays is not None:
        yield from (_digest(pixels) for pixels in manifest.arrays)
        return
    with ThreadPoolExecutor(workers or min(32, os.cpu_count() or 1)) as pool:
        try:
            yield from pool.map(_fingerprint, manifest.ids, manifest.paths)
        finally:  # on an interruption, do not wait for thousands of images
            pool.shutdown(wait=False, cancel_futures=True)


def _fingerprint(sample: str, path: Path) -> bytes | Problem:
    if (reason := why_not_a_file(path)) is not None:
        return Problem("missing-image", sample, f"{path}: {reason}")
    if path.stat().st_size == 0:
        return Problem("empty-image", sample, f"{path} has 0 bytes")
    try:
        return _digest(read_image(path, size=COMPARED_SIZE))
    except BadImageError as problem:
        return Problem("unreadable-image", sample, problem.reason)


def _digest(pixels: npt.NDArray[np.generic]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=16).digest()


def _identical(manifest: Manifest, fingerprints: Iterable[bytes | None]) -> list[Problem]:
    groups: dict[bytes, list[int]] = {}
    for row, fingerprint in enumerate(fingerprints):
        if fingerprint is not None:
            groups.setdefault(fingerprint, []).append(row)
    ids, labels, patients = manifest.ids, manifest.labels, manifest.patients
    problems = []
    for rows in groups.values():
        if len(rows) == 1:
            continue
        given = sorted({int(labels[row]) for row in rows})
        detail = f"same {'features' if manifest.are_features else 'pixels'} as " + ", ".join(
            ids[row] for row in rows[1:]
        )
        if len(given) > 1:
            detail += "; grades " + " and ".join(manifest.grades[grade] for grade in given)
        if patients is not None and len({patients[row] for row in rows}) > 1:
            detail += "; patients " + " and ".join(sorted({patients[row] for row in rows}))
        kind = "identical-images-other-grade" if len(given) > 1 else "identical-images"
        problems.append(Problem(kind, ids[rows[0]], detail))
    return problems


def _few_patients(manifest: Manifest, folds: int) -> list[Problem]:
    patients = manifest.patients
    problems = []
    if patients is None:
        problems.append(Problem("missing-patient", "all samples", "the source has no patient column"))
    owners = np.array(manifest.ids if patients is None else patients, dtype=object)
    whose = "samples" if patients is None else "patients"
    for grade, name in enumerate(manifest.grades):
        count = len(set(owners[manifest.labels == grade]))
        if count < folds:
            problems.append(Problem("few-patients", f"grade {name}", f"{count} {whose} for {folds} folds"))
    return problems


def _size(path: Path) -> tuple[int, int] | None:
    if why_not_a_file(path) is not None:
        return None
    try:
        with Image.open(path) as image:  # reads only the header
            return image.size
    except Exception:  # not a format of Pillow, damaged, or larger than it allows
        pass
    try:
        height, width, _ = read_image(path).shape
    except SrjtError:
        return None
    return width, height
