"""Kaggle's Diabetic Retinopathy Detection: trainLabels.csv ("10_left,0") and a folder of JPEG files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.sources.assemble import Reading, assemble
from srjt.data.sources.image_files import find_image_folder, locate_images
from srjt.data.sources.text_table import load
from srjt.errors import SrjtError

__all__ = ["COUNTS", "PAPER_COUNTS", "differences", "find_labels", "is_dr", "read_dr"]

COUNTS = (25810, 2443, 5292, 873, 708)  # rows of trainLabels.csv per grade
PAPER_COUNTS = (25802, 2438, 5288, 872, 708)  # images that the paper used

_EYE = re.compile(r"^(\d+)_(left|right)$")


def is_dr(path: Path) -> bool:
    """Whether this is Kaggle's label file or the folder that holds it."""
    return find_labels(path) is not None


def find_labels(source: Path) -> Path | None:
    """Kaggle's label file: ``source`` itself or a file in it; None if there is none."""
    if source.is_file():
        return source if source.name == "trainLabels.csv" else None
    inside = source / "trainLabels.csv"
    return inside if inside.is_file() else None


def read_dr(source: Path, *, images: Path | None = None, grades: Sequence[str] | None = None) -> Reading:
    """Read Kaggle's layout. The patient is the number in the image name."""
    labels = find_labels(source)
    if labels is None:
        raise SrjtError(f"{source} does not contain Kaggle's trainLabels.csv.")
    loaded = load(labels)
    if not {"image", "level"} <= set(loaded.frame.columns):
        raise SrjtError(f"{labels} must have the columns image and level, as Kaggle publishes it.")
    names = [Path(name).stem if Path(name).suffix == ".jpeg" else name for name in loaded.frame["image"]]
    folder = find_image_folder(names, images or labels.parent)
    located, problems = locate_images(names, folder)
    eyes = [_EYE.match(name) for name in names]
    rows = pd.DataFrame(
        {
            "id": names,
            "image": located,
            "grade": loaded.frame["level"],
            "patient": [eye[1] if eye else "" for eye in eyes],
            "eye": [eye[2] if eye else "" for eye in eyes],
        }
    )
    return assemble(
        rows,
        kind="dr",
        root=folder.absolute(),
        grades=grades or [str(grade) for grade in range(5)],
        lines=loaded.lines,
        notes=[
            f"Kaggle's diabetic retinopathy labels in {labels}, images in {folder}",
            "patient: the number in the image name",
        ],
        problems=[*loaded.problems, *problems],
    )


def differences(manifest: Manifest) -> list[str]:
    """Differences from the counts of Kaggle, as text; empty if the counts are Kaggle's or the paper's."""
    here = manifest.class_counts.tolist()
    if here in (list(COUNTS), list(PAPER_COUNTS)):
        return []
    found = [] if sum(here) == sum(COUNTS) else [f"{sum(here):,} labels where Kaggle has {sum(COUNTS):,}"]
    return found + [
        f"grade {name}: {count:,} where Kaggle has {published:,}"
        for name, count, published in zip(manifest.grades, here, COUNTS, strict=True)
        if count != published
    ]
