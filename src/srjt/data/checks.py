"""Problems of the images and patients of a dataset, found before it is used."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from srjt.data.duplicates import (
    HASHED_SIZE,
    UNKNOWN,
    Progress,
    across_patients,
    identical,
    image_hashes,
    near_pairs,
)
from srjt.data.images.decode import EMPTY_FILE, BadImageError, read_image
from srjt.data.manifest import Ints, Manifest
from srjt.data.problems import Problem
from srjt.data.sources.table import no_image_exists
from srjt.data.splits import patients_on_two_sides
from srjt.errors import SrjtError, count_of
from srjt.files import (
    NOT_A_FILE,
    why_not_a_file,
)

SAMPLED = 500  # images whose size is looked up


def check(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Find missing, unreadable, identical and nearly identical images, unknown patients, patients
    on two sides and grades with few patients.

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
    return problems + few_patients(manifest, folds) + shared_patients(manifest)


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
    detail = f"{relation} " + ", ".join(ids[row] for row in rows[1:])
    if _contradict(manifest, rows):
        detail += "; grades " + " and ".join(
            manifest.grades[grade] for grade in np.unique(labels[rows])
        )
    people: set[str] = set()
    if patients is not None:
        people.update(patients[row] for row in rows)
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
            Problem("missing-patient", "all samples", "no patient column was recognised")
        )
        patients = manifest.ids
        unit = "sample"
    owners = np.array(patients, dtype=object)
    for grade, name in enumerate(manifest.grades):
        if (count := len(set(owners[manifest.labels == grade]))) < folds:
            detail = f"{count_of(count, unit)} for {folds} folds"
            problems.append(Problem("few-patients", f"grade {name}", detail))
    return problems


def shared_patients(manifest: Manifest) -> list[Problem]:
    """Patients who are on two sides of the published split."""
    problems = []
    for patient, sides in patients_on_two_sides(manifest).items():
        problems.append(Problem("patient-on-two-sides", patient, " and ".join(sides)))
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
