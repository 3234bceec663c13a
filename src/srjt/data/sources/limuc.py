"""LIMUC, the labelled images of ulcerative colitis: <patient>/Mayo 0 … Mayo 3/*.bmp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.data.sources.assemble import Reading, assemble
from srjt.data.sources.folders import subfolders, walk_images
from srjt.errors import SrjtError, count_of

__all__ = ["ARCHIVE", "COUNTS", "PATIENTS", "URL", "differences", "find_patients", "is_limuc", "read_limuc"]

ARCHIVE = "patient_based_classified_images.zip"
URL = f"https://zenodo.org/records/5827695/files/{ARCHIVE}?download=1"
COUNTS = (6105, 3052, 1254, 865)  # published images per grade
PATIENTS = 564

_GRADE = re.compile(r"^mayo[ _-]*([0-3])$", re.IGNORECASE)


def is_limuc(path: Path) -> bool:
    """Whether this folder has LIMUC's layout."""
    return find_patients(path) is not None


def find_patients(directory: Path) -> Path | None:
    """The folder of patients: ``directory`` itself, or the folder that the archive unpacks to."""
    for folder in (directory, directory / Path(ARCHIVE).stem):
        if folder.is_dir() and any(_GRADE.match(g.name) for p in subfolders(folder) for g in subfolders(p)):
            return folder
    return None


def read_limuc(directory: Path, *, grades: Sequence[str] | None = None) -> Reading:
    """Read LIMUC's patient-based layout. The patient is the name of the folder."""
    root = find_patients(directory)
    if root is None:
        raise SrjtError(f"{directory} does not contain LIMUC's folders <patient>/Mayo 0 … Mayo 3.")
    rows: list[dict[str, str]] = []
    problems: list[Problem] = []
    for patient in subfolders(root):
        for folder in subfolders(patient):
            match = _GRADE.match(folder.name)
            for image, problem in walk_images(folder, root=root):
                if match is None:
                    problems.append(Problem("ignored-file", image, "not in the folder of a grade"))
                elif problem is not None:
                    problems.append(problem)
                else:
                    grade = f"Mayo {match[1]}"
                    rows.append({"id": image, "image": image, "grade": grade, "patient": patient.name})
    return assemble(
        pd.DataFrame(rows, columns=["id", "image", "grade", "patient"]),
        kind="limuc",
        root=root.absolute(),
        grades=grades or [f"Mayo {grade}" for grade in range(4)],
        lines=[row["id"] for row in rows],
        notes=[f"LIMUC in {root}: <patient>/Mayo 0 … Mayo 3"],
        problems=problems,
    )


def differences(manifest: Manifest) -> list[str]:
    """Differences from the published counts, as text; empty if there are none."""
    found = []
    if len(manifest) != sum(COUNTS):
        found.append(f"{count_of(len(manifest), 'image')} where {sum(COUNTS):,} were published")
    patients = len(set(manifest.patients or []))
    if patients != PATIENTS:
        found.append(f"{count_of(patients, 'patient')} where {PATIENTS:,} were published")
    for name, here, published in zip(manifest.grades, manifest.class_counts, COUNTS, strict=True):
        if here != published:
            found.append(f"{name}: {count_of(here, 'image')} where {published:,} were published")
    return found
