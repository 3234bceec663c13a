"""The synthetic dataset: endoscopy-like images whose true severity is known. It needs no download.

Every image has a continuous severity s in [0, C) and the grade ⌊s⌋, so neighbouring grades are truly ambiguous near
their boundary. The images of a patient are similar in severity and appearance.
``benchmarks/synthetic_ceiling.py`` measures the accuracy that a small network reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.synthetic.drawing import draw, random_appearance
from srjt.errors import SrjtError, count_of
from srjt.files import write_atomically

__all__ = ["check_empty", "generate", "redraw", "stream", "write"]

_DATASET, _PATIENT, _IMAGE = 0, 1, 2  # separate random streams, so that no image depends on another


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

    The same arguments give the same bytes on every platform. Mild grades are common and severe ones rare, as in
    LIMUC: about 53, 27, 13 and 7 % for four grades.

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
        ``arrays`` (images, size, size, 3) uint8, and a table with id, image, grade, patient and the continuous
        severity.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32, seed=0)
    >>> data.arrays.shape
    (100, 32, 32, 3)
    """
    _check(images=images, patients=patients, size=size, grades=grades, seed=seed)
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
    table = pd.DataFrame(
        {
            "id": image,
            "image": image,
            "grade": severity.astype(np.int64),
            "patient": folder,
            "severity": severity,
        }
    )
    return Manifest(table=table, grades=tuple(str(g) for g in range(grades)), arrays=arrays)


def redraw(
    rows: Sequence[int], *, images: int, patients: int, size: int, grades: int = 4, seed: int = 0
) -> npt.NDArray[np.uint8]:
    """Some images of a dataset again, at another size: the same scenes, for people to look at.

    Parameters
    ----------
    rows : sequence of int
        Which images.
    images, patients, grades, seed : int
        Of the dataset, as for ``generate``.
    size : int
        Height and width, 32 to 256.

    Returns
    -------
    ndarray of uint8, shape (len(rows), size, size, 3)

    Examples
    --------
    >>> import srjt
    >>> srjt.data.synthetic.redraw([3, 5], images=100, patients=20, size=128).shape
    (2, 128, 128, 3)
    """
    _check(images=images, patients=patients, size=size, grades=grades, seed=seed)
    patient, severity = _population(images, patients, grades, seed)
    return np.array([
        draw(
            float(severity[row]) / grades,
            random_appearance(stream(seed, _PATIENT, int(patient[row]))),
            size=size,
            rng=stream(seed, _IMAGE, int(row)),
        )
        for row in rows
    ])  # fmt: skip


def write(manifest: Manifest, folder: Path | str, *, progress: Callable[[], object] | None = None) -> Path:
    """Write the synthetic dataset as PNG files and a ``labels.csv``.

    Parameters
    ----------
    manifest : Manifest
        A dataset from ``generate``.
    folder : path
        A new or empty folder. Any other is an error, so that old images are not mixed with new labels.
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
        raise SrjtError("This dataset has no images in memory: use one from srjt.data.synthetic.generate.")
    root = Path(folder)
    check_empty(root)
    labels = root / "labels.csv"
    try:
        for name, pixels in zip(manifest.table["image"], manifest.arrays, strict=True):
            path = root / str(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            if progress is not None:
                progress()
        # Last, so that a folder with labels.csv is a complete dataset.
        table = manifest.table[["image", "grade", "patient", "severity"]]
        write_atomically(labels, table.to_csv(index=False).encode())
    except OSError as problem:
        raise SrjtError(f"Cannot write the images to {root}: {problem.strerror or problem}.") from problem
    return labels


def check_empty(folder: Path) -> None:
    """Raise unless ``folder`` is absent or an empty folder."""
    if folder.exists() and not folder.is_dir():
        raise SrjtError(f"{folder} is a file, not a folder: choose a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise SrjtError(
            f"The folder {folder} is not empty: choose a new or empty one, so that no old images are mixed in."
        )


def _check(*, images: int, patients: int, size: int, grades: int, seed: int) -> None:
    if not 2 <= grades <= 10:
        raise SrjtError(f"The synthetic data can have 2 to 10 grades, not {grades}.")
    if not 32 <= size <= 256:
        raise SrjtError(f"Synthetic images can have 32 to 256 pixels per side, not {size}.")
    if seed < 0:
        raise SrjtError(f"The seed must be 0 or larger, not {seed}.")
    if images < grades:
        raise SrjtError(
            f"{count_of(images, 'image is', 'images are')} too few for {grades} grades: use at least {grades}."
        )
    if not 1 <= patients <= images:
        raise SrjtError(
            f"{images} images need between 1 and {images} patients, not {patients}: every patient has an image."
        )


def _population(
    images: int, patients: int, grades: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The patient of each image, (N,) ascending, and its severity, (N,) in [0, grades)."""
    rng = stream(seed, _DATASET)
    others = np.floor(rng.random(images - patients) * patients).astype(np.int64)
    patient = np.sort(np.concatenate([np.arange(patients), others]))  # one image each, the others at random
    counts = _counts(images, grades)
    ladder = np.concatenate([g + (np.arange(n) + 0.5) / n for g, n in enumerate(counts)])
    severity = np.empty(images)
    for similarity in np.arange(1, 0, -0.05):  # of the images of a patient
        tendency = similarity * _triangular(rng, patients)[patient] + 0.8 * _triangular(rng, images)
        # Only the order of the tendencies is used: each grade gets its exact share, evenly spread.
        severity[np.argsort(tendency, kind="stable")] = np.floor(ladder * 1e6) / 1e6
        # In a small dataset one or two patients may have all images of a rare grade, and no split could put it on
        # every side. So images of a patient are made less similar until each grade has patients for five folds.
        if all(len(set(patient[severity.astype(int) == g])) >= min(5, n) for g, n in enumerate(counts)):
            break
    return patient, severity


def _counts(images: int, grades: int) -> list[int]:
    """Images per grade: at least five if possible; of the rest, each grade gets half as many as the one before.

    With more than four grades the decay is slower, so that the severest gets an eighth of the mildest.
    """
    ratio = 0.5 ** (3 / max(3, grades - 1))
    weights = [ratio**g for g in range(grades)]
    floor = min(5, images // grades)
    counts = [floor + int((images - grades * floor) * w / sum(weights)) for w in weights]
    counts[0] += images - sum(counts)
    return counts


def _triangular(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return rng.random(n) + rng.random(n)


def stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of one thing, such as an image: they do not depend on what else is drawn."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *key])))
