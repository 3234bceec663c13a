"""Published datasets: Kaggle's Diabetic Retinopathy Detection, LIMUC and MedMNIST."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.options import ReadOptions
from srjt.data.problems import Problem
from srjt.data.sources.assemble import LoadedData, as_colour, assemble, from_arrays
from srjt.data.sources.columns import find_image_folder, load_table, locate_images
from srjt.data.sources.features import load_numpy
from srjt.data.sources.folders import subfolders, walk_images
from srjt.errors import SrjtError, count_of

# Kaggle's Diabetic Retinopathy Detection: trainLabels.csv ("10_left,0") and a folder of JPEG files.

DR_COUNTS = (25810, 2443, 5292, 873, 708)  # rows of trainLabels.csv per grade
DR_PAPER_COUNTS = (25802, 2438, 5288, 872, 708)  # images that the paper used

_DR_EYE = re.compile(r"^(\d+)_(left|right)$")


def is_dr(path: Path) -> bool:
    """Whether this is Kaggle's label file or the folder that holds it."""
    return find_labels(path) is not None


def find_labels(source: Path) -> Path | None:
    """Kaggle's label file: ``source`` itself or a file in it; None if there is none."""
    if source.is_file():
        return source if source.name == "trainLabels.csv" else None
    inside = source / "trainLabels.csv"
    return inside if inside.is_file() else None


def read_dr(source: Path, options: ReadOptions) -> LoadedData:
    """Read Kaggle's layout. The patient is the number in the image name."""
    labels = find_labels(source)
    if labels is None:
        raise SrjtError(f"{source} does not contain Kaggle's trainLabels.csv.")
    loaded = load_table(labels)
    if not {"image", "level"} <= set(loaded.frame.columns):
        raise SrjtError(f"{labels} must have the columns image and level, as Kaggle publishes it.")
    names = [Path(name).stem if Path(name).suffix == ".jpeg" else name for name in loaded.frame["image"]]
    folder = find_image_folder(names, options.images or labels.parent)
    located, problems = locate_images(names, folder)
    eyes = [_DR_EYE.match(name) for name in names]
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
        grades=options.grades or [str(grade) for grade in range(5)],
        lines=loaded.lines,
        notes=[
            f"Kaggle's diabetic retinopathy labels in {labels}, images in {folder}",
            "patient: the number in the image name",
        ],
        problems=[*loaded.problems, *problems],
    )


def dr_differences(manifest: Manifest) -> list[str]:
    """Differences from the counts of Kaggle, as text; empty if the counts are Kaggle's or the paper's."""
    here = manifest.class_counts.tolist()
    if here in (list(DR_COUNTS), list(DR_PAPER_COUNTS)):
        return []
    differences = (
        [] if sum(here) == sum(DR_COUNTS) else [f"{sum(here):,} labels where Kaggle has {sum(DR_COUNTS):,}"]
    )
    return differences + [
        f"grade {name}: {count:,} where Kaggle has {published:,}"
        for name, count, published in zip(manifest.grades, here, DR_COUNTS, strict=True)
        if count != published
    ]


# LIMUC, the labelled images of ulcerative colitis: <patient>/Mayo 0 … Mayo 3/*.bmp.

LIMUC_ARCHIVE = "patient_based_classified_images.zip"
LIMUC_URL = f"https://zenodo.org/records/5827695/files/{LIMUC_ARCHIVE}?download=1"
LIMUC_COUNTS = (6105, 3052, 1254, 865)  # published images per grade
LIMUC_PATIENTS = 564

_LIMUC_GRADE = re.compile(r"^mayo[ _-]*([0-3])$", re.IGNORECASE)


def is_limuc(path: Path) -> bool:
    """Whether this folder has LIMUC's layout."""
    return find_patients(path) is not None


def find_patients(directory: Path) -> Path | None:
    """The folder of patients: ``directory`` itself, or the folder that the archive unpacks to."""
    for folder in (directory, directory / Path(LIMUC_ARCHIVE).stem):
        if folder.is_dir() and any(
            _LIMUC_GRADE.match(g.name) for p in subfolders(folder) for g in subfolders(p)
        ):
            return folder
    return None


def read_limuc(directory: Path, options: ReadOptions) -> LoadedData:
    """Read LIMUC's patient-based layout. The patient is the name of the folder."""
    root = find_patients(directory)
    if root is None:
        raise SrjtError(f"{directory} does not contain LIMUC's folders <patient>/Mayo 0 … Mayo 3.")
    rows: list[dict[str, str]] = []
    problems: list[Problem] = []
    for patient in subfolders(root):
        for folder in subfolders(patient):
            match = _LIMUC_GRADE.match(folder.name)
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
        grades=options.grades or [f"Mayo {grade}" for grade in range(4)],
        lines=[row["id"] for row in rows],
        notes=[f"LIMUC in {root}: <patient>/Mayo 0 … Mayo 3"],
        problems=problems,
    )


def limuc_differences(manifest: Manifest) -> list[str]:
    """Differences from the published counts, as text; empty if there are none."""
    differences = []
    if len(manifest) != sum(LIMUC_COUNTS):
        differences.append(f"{count_of(len(manifest), 'image')} where {sum(LIMUC_COUNTS):,} were published")
    patients = len(set(manifest.patients or []))
    if patients != LIMUC_PATIENTS:
        differences.append(f"{count_of(patients, 'patient')} where {LIMUC_PATIENTS:,} were published")
    for name, here, published in zip(manifest.grades, manifest.class_counts, LIMUC_COUNTS, strict=True):
        if here != published:
            differences.append(f"{name}: {count_of(here, 'image')} where {published:,} were published")
    return differences


# MedMNIST's .npz files: {train, val, test}_{images, labels}.

_PARTS = ("train", "val", "test")


def is_medmnist(path: Path) -> bool:
    """Any ``.npz`` file that is not one of features; ``read_medmnist`` explains what is missing."""
    return path.suffix.lower() == ".npz"


def read_medmnist(path: Path, options: ReadOptions) -> LoadedData:
    """Read a MedMNIST file. Its parts become the split column; greyscale images get three channels."""
    images, labels, sides, ids = [], [], [], []
    arrays = load_numpy(path)
    for side in _PARTS:
        if missing := [name for name in (f"{side}_images", f"{side}_labels") if name not in arrays]:
            raise SrjtError(f"{path} is not in MedMNIST's format: it lacks the array {missing[0]!r}.")
        images.append(as_colour(arrays[f"{side}_images"]))
        label = arrays[f"{side}_labels"]
        if label.reshape(len(label), -1).shape[1] != 1:
            raise SrjtError(f"{path} has several labels per image; an ordinal grade is one number.")
        labels.append(label.reshape(-1))
        sides += [side] * len(label)
        ids += [f"{side}/{row}" for row in range(len(label))]
    if len({image.shape[1:] for image in images}) > 1:
        raise SrjtError(f"{path} contains images of different sizes.")
    reading = from_arrays(
        np.concatenate(images), np.concatenate(labels), split=sides, ids=ids, names=options.grades
    )
    notes = (f"MedMNIST file {path.name}", *reading.notes, "split: as published (train, val, test)")
    return replace(reading, kind="medmnist", notes=notes)
