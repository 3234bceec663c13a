"""Folders of images: one folder per grade, the layouts of published datasets (Kaggle's Diabetic
Retinopathy Detection, LIMUC, MedMNIST), images without grades for prediction, and the patients that
the headers of DICOM files name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import platformdirs

from srjt.data import reading_file
from srjt.data.grades import MISSING, UNKNOWN_PATIENT, order_names, refuse_too_many
from srjt.data.images.decode import DICOM, IMAGE_SUFFIXES, is_dicom, is_image, read_patient_id
from srjt.data.manifest import Manifest
from srjt.data.names import one_spelling, plain_name
from srjt.data.options import ReadOptions, picked
from srjt.data.problems import Problem, ReadReport
from srjt.data.sources import table as tables
from srjt.data.sources.assemble import SPLIT_NAMES, as_colour, assemble, from_arrays
from srjt.data.sources.features import load_numpy
from srjt.errors import Option, SrjtError
from srjt.files import check_regular_file, why_not_a_file
from srjt.progress import ProgressOption, progress_bar

# One folder per grade, optionally below train, validation and test folders.

# Created by operating systems; ignored without a warning.
SYSTEM_FILES = {"thumbs.db", "desktop.ini", "__macosx"}


def read_folders(directory: Path, options: ReadOptions) -> Manifest:
    """Read ``directory/<grade>/…`` or ``directory/<train|val|test>/<grade>/…``. The patients are
    unknown."""
    if not directory.is_dir():
        raise SrjtError(f"{directory} is not a folder.", code="wrong_file")
    sides = {folder: folder.name.casefold() for folder in subfolders(directory)}
    with_split = bool(sides) and set(sides.values()) <= SPLIT_NAMES.keys()
    if not with_split:
        sides = {directory: ""}
    rows: list[tuple[str, str, str, str]] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for parent, side in sides.items():
        for path in sorted(filter(Path.is_file, parent.iterdir())):
            if not _is_system_file(path.name):
                name = path.relative_to(directory).as_posix()
                problems.append(Problem("ignored-file", name, "not in the folder of a grade"))
        for folder in subfolders(parent):
            names.add(folder.name)  # also of an empty folder: a grade without samples is no gap
            images, others = walk_images(folder, root=directory)
            problems += others
            rows += [(image, image, folder.name, side) for image in images]
    if not rows:
        raise SrjtError(
            f"{directory} has no images in subfolders, one per grade. With a table of images and"
            f" grades, give the table in place of the folder, with ",
            Option("images", str(directory)),
            ".",
            code="too_few",
        )
    grades = options.grades
    if grades is None:
        grades = order_names(names)
        refuse_too_many(grades, samples=len(rows))
    table = pd.DataFrame(rows, columns=["id", "image", "grade", "split"])
    note = f"one folder per grade below train, validation, test in {directory}"
    if not with_split:
        table = table.drop(columns="split")
        note = f"one folder per grade in {directory}"
    return assemble(
        table,
        kind="folders",
        root=directory.absolute(),
        grades=grades,
        lines=table["id"].tolist(),
        notes=[note],
        problems=problems,
    )


def subfolders(directory: Path) -> list[Path]:
    """The folders in a folder, sorted by name."""
    folders = sorted(
        path for path in directory.iterdir() if path.is_dir() and not _is_system_file(path.name)
    )
    for path in folders:
        if not is_utf8(path.name):
            raise SrjtError(
                f"The name of the folder {path} is not UTF-8 text: rename it.",
                code="unreadable_file",
            )
    return folders


def walk_images(folder: Path, *, root: Path) -> tuple[list[str], list[Problem]]:
    """The images below ``folder``, sorted, as paths relative to ``root``; and the other files. No
    links to folders.

    Files with the suffix of an image are not opened and not asked what they are: there may be
    100,000.
    """
    images = []
    problems = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_system_file(name))
        inside = Path(parent).relative_to(root).as_posix()
        for file in sorted(files):
            path = os.path.join(parent, file)
            name = file if inside == "." else f"{inside}/{file}"
            by_suffix = os.path.splitext(file)[1].lower() in IMAGE_SUFFIXES
            if _is_system_file(file):
                if by_suffix:  # such as ._a.png, which macOS adds to archives
                    problems.append(Problem("ignored-file", name, "a hidden file"))
            elif not is_utf8(name):
                problems.append(
                    Problem("unreadable-image", name, "its name is not UTF-8: rename the file")
                )
            elif by_suffix or is_image(path):
                images.append(name)
            else:
                problems.append(
                    Problem("ignored-file", name, why_not_a_file(Path(path)) or "not an image")
                )
    return images, problems


def is_utf8(name: str) -> bool:
    """Whether a file name is text; on Linux it can be any bytes, which tables do not hold."""
    return name.encode(errors="ignore").decode() == name


def _is_system_file(name: str) -> bool:
    return (
        name.startswith(".")
        or name.casefold() in SYSTEM_FILES
        or name.endswith(reading_file.SUFFIX)
    )


# Patients of DICOM files whose source names none: a pseudonym of the PatientID in each file's
# header.
#
# Nobody has asked for the ids of a hospital in tables and on pages; which images belong together is
# all that is needed. The pseudonym is a hash with a secret key, because ids can be enumerated. The
# key lies beside the images, which have the ids in their headers anyway: whoever reads the images,
# in whatever command and on whatever machine, has the same pseudonyms, and whoever has only a run
# or a table cannot go back to the ids.

KEY = ".srjt-patients.key"
KEY_BYTES = 32
WORKERS = (
    8  # parsing a header holds Python's lock; a network drive gains from several requests at once
)
# What programs write in place of an id, in lower case and without punctuation.
PLACEHOLDERS = {
    *(
        "anon",
        "anonymous",
        "anonymized",
        "anonymised",
        "anonymouspatient",
        "deidentified",
        "removed",
    ),
    *("unknown", "none", "nopatientid"),
}


def with_patients_of_headers(manifest: Manifest, *, progress: ProgressOption = True) -> Manifest:
    """The samples with the patients of their DICOM headers, if their source has no patients, and a
    note about them.

    An image whose header names no patient is a patient of its own, unless no header does.
    """
    if manifest.arrays is not None or manifest.patients is not None or find_spec("pydicom") is None:
        return manifest  # without pydicom, the error follows when an image is read
    paths = manifest.paths
    ids = manifest.ids
    others = IMAGE_SUFFIXES - DICOM
    rows = [row for row, path in enumerate(paths) if path.suffix.lower() not in others]
    if not rows:
        return manifest
    headers: list[str | None] = []
    with (
        progress_bar("Reading DICOM headers", progress) as advance,
        ThreadPoolExecutor(WORKERS, thread_name_prefix="header") as pool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # pydicom's, about values that do not matter here
        for header in pool.map(_patient, [paths[row] for row in rows]):
            headers.append(header)
            advance(len(headers), len(rows))
    if headers.count(None) == len(rows):
        return manifest
    known = {row: patient for row, patient in zip(rows, headers, strict=True) if patient}
    report = manifest.report
    if not known or len(set(known.values())) == 1 < len(known):
        why = "no DICOM file has a PatientID"
        if known:
            why = "the DICOM files have one PatientID for all"
        note = f"patient: not known, because {why}; images are split one by one"
        return replace(manifest, report=replace(report, notes=(*report.notes, note)))
    key = _secret([paths[row] for row in rows])
    names = [UNKNOWN_PATIENT + name for name in ids]
    for row, patient in known.items():
        content = patient.encode("utf-8", "surrogateescape")
        names[row] = f"dicom-{hashlib.blake2b(content, key=key, digest_size=8).hexdigest()}"
    detail = "its header has no PatientID that can be used: treated as a separate patient"
    without = [row for row in range(len(ids)) if row not in known]
    unknown = [Problem("missing-patient", ids[row], detail) for row in without]
    note = "patient: pseudonyms of the PatientID in the headers of the DICOM files"
    if unknown:
        note += f"; images without one, each a separate patient: {len(unknown):,}"
    problems = (*report.problems, *unknown)
    return replace(
        manifest,
        table=manifest.table.assign(patient=names),
        report=replace(report, problems=problems, notes=(*report.notes, note)),
    )


def _patient(path: Path) -> str | None:
    """The PatientID of a DICOM file, "" if its header names none; None for another file."""
    if not os.path.isfile(path) or not is_dicom(path):  # opening a pipe would never end
        return None
    patient = plain_name(read_patient_id(path))
    plain = re.sub(r"[\W_]", "", patient.casefold())
    if patient.casefold() in MISSING or not plain or plain in PLACEHOLDERS:
        return ""
    return patient


def _secret(images: Sequence[Path]) -> bytes:
    """The key of these images: that of the folder that holds them all, or of one above it; made if
    there is none.

    Folders that cannot be written have the user's own key, which is kept with the data of programs.
    """
    folder = users = Path(platformdirs.user_data_dir("srjt", appauthor=False))
    with contextlib.suppress(ValueError):  # images on two drives
        folder = Path(os.path.commonpath([path.absolute().parent for path in images]))
    for place in (folder, *folder.parents):
        if (place / KEY).exists():
            return _read_key(place / KEY)
    for place in (folder, users):
        with contextlib.suppress(OSError):
            _make_key(place)
            return _read_key(place / KEY)
    raise SrjtError(
        f"No key for pseudonyms can be written to {folder} or {users}: add a column of patients.",
        code="unwritable_file",
    )


def _make_key(folder: Path) -> None:
    """Write a new key, for the user's eyes only, unless there is one: of two commands at once the
    first one's stays."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f"{KEY}.", dir=folder)  # with permissions 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
        try:
            os.link(draft, folder / KEY)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            if not (folder / KEY).exists():
                Path(draft).rename(folder / KEY)
    finally:
        Path(draft).unlink(missing_ok=True)


def _read_key(path: Path) -> bytes:
    check_regular_file(path)
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        key = bytes.fromhex(file.read(4 * KEY_BYTES).decode("ascii").strip())
        if len(key) == KEY_BYTES:
            return key
    raise SrjtError(
        f"{path}, the key of patients' pseudonyms, cannot be read: add a column of patients.",
        code="unreadable_file",
    )


# Images without grades, for prediction.


# What is read of a table of images without grades.
READ_WITHOUT_GRADES = ("images", "image_column", "patient_column")


def read_images(
    sources: Sequence[str | os.PathLike[str] | pd.DataFrame],
    *,
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
    progress: ProgressOption = False,
    **options: Any,
) -> Manifest:
    """Image files, folders (searched recursively) and tables with a column of images, as one
    manifest.

    The manifest has the patients of the tables that have them, or else of DICOM headers, and their
    ``columns``; both are empty for other images. Every sample gets the mildest grade as a
    placeholder. Files that are not images, malformed rows, rows without an image and repetitions
    are left out and listed in ``problems``. progress: whether to show a bar over DICOM headers.
    options: images, image_column and patient_column of ``ReadOptions``, for tables.
    """
    given = ReadOptions.of(options)
    # the image, the line that names it, and what a table tells of it
    parts: list[pd.DataFrame] = []
    problems: list[Problem] = []
    of_tables: list[str] = []  # columns
    for source in sources:
        path = source if isinstance(source, pd.DataFrame) else _existing(source)
        if isinstance(path, pd.DataFrame) or _is_table_file(path):
            table = tables.load_table(path)
            of_tables.extend(table.frame.columns)
            parts.append(_images_of_table(path, table, given, columns, problems))
            continue
        if path.is_dir():
            names, others = walk_images(path, root=path)
            if not names:
                raise SrjtError(f"There are no images in {path}.", code="too_few")
            problems += [replace(problem, where=str(path / problem.where)) for problem in others]
            paths = sorted(path / name for name in names)
        else:
            check_regular_file(path)
            paths = [path]
        parts.append(pd.DataFrame({"image": paths, "line": paths}, dtype=str))
    if given.given and not of_tables:
        option = next(iter(given.given))
        raise SrjtError(
            Option(option),
            f" applies to a table of images, and {sources[0]} is a"
            f" {'folder' if os.path.isdir(str(sources[0])) else 'file of another kind'}.",
            code="option_without_effect",
        )
    if not len(images := pd.concat(parts)):
        raise SrjtError(
            f"No row can be used; the first: {problems[0].where}: {problems[0].detail}.",
            code="unusable_samples",
        )
    repeated = images[images["image"].duplicated(keep=False)]
    for name, lines in repeated.groupby("image", sort=False)["line"]:
        problems.append(Problem("duplicate-row", str(name), ", ".join(lines)))
    rows = images.drop(columns="line").groupby("image", sort=False).first().fillna("").reset_index()
    samples = Manifest(
        table=rows.assign(id=rows["image"], grade=0),
        grades=grades,
        report=ReadReport(kind="images", problems=tuple(problems)),
    )
    samples = with_patients_of_headers(samples, progress=progress)
    tables.check_wanted(columns, samples.table, known=of_tables)
    return samples


def _is_table_file(path: Path) -> bool:
    return path.suffix.lower() in tables.TABLE_SUFFIXES and not path.is_dir()


def _images_of_table(
    source: Path | pd.DataFrame,
    table: tables.Table,
    given: ReadOptions,
    columns: Sequence[str],
    problems: list[Problem],
) -> pd.DataFrame:
    """The images that a table names, with the lines, the patients and the wanted columns."""
    if isinstance(source, Path):
        beside = reading_file.load_reading_file(source)
        given = ReadOptions.of({**picked(beside, READ_WITHOUT_GRADES), **given.given})
    chosen, _ = tables.choose_columns(table, given.roles, required=("image",))
    names = table.frame[chosen["image"]].tolist()
    root, located, ambiguous = tables.find_images(names, given.images or table.folder)
    if ambiguous:
        raise SrjtError(f"{ambiguous[0].where}: {ambiguous[0].detail}", code="ambiguous")
    part = tables.kept_columns(table.frame, columns).assign(
        image=[str(root / name) if name else "" for name in located], line=table.lines
    )
    if "patient" in chosen:
        part["patient"] = one_spelling(table.frame[chosen["patient"]].tolist())
    problems += table.problems
    for line in part.loc[part["image"] == "", "line"]:
        problems.append(Problem("missing-image", line, "the row has no image"))
    return part[part["image"] != ""]


def _existing(source: str | os.PathLike[str]) -> Path:
    path = Path(source)
    if not is_utf8(str(path)):
        raise SrjtError(f"The name {path} is not UTF-8 text: rename it.", code="unreadable_file")
    if not os.path.exists(path):  # also for a name that is too long or contains NUL
        raise SrjtError(f"{path} does not exist.", code="missing_file")
    return path


# Kaggle's Diabetic Retinopathy Detection: trainLabels.csv ("10_left,0") and a folder of JPEG files.

DR_COUNTS = (25810, 2443, 5292, 873, 708)  # rows of trainLabels.csv per grade
DR_PAPER_COUNTS = (25802, 2438, 5288, 872, 708)  # images that the paper used


def find_labels(source: Path) -> Path | None:
    """Kaggle's label file: ``source`` itself or a file in it; None if there is none."""
    path = source
    if source.is_dir():
        path = source / "trainLabels.csv"
    if path.name == "trainLabels.csv" and path.is_file():
        return path
    return None


def read_dr(source: Path, options: ReadOptions) -> Manifest:
    """Read Kaggle's layout. The patient is the number in the image name."""
    if (labels := find_labels(source)) is None:
        raise SrjtError(f"{source} does not contain Kaggle's trainLabels.csv.", code="wrong_file")
    table = tables.load_table(labels)
    if not {"image", "level"} <= set(table.frame.columns):
        raise SrjtError(
            f"{labels} must have the columns image and level, as Kaggle publishes it.",
            code="missing_column",
        )
    names = table.frame["image"].str.removesuffix(".jpeg")
    folder, located, problems = tables.find_images(names.tolist(), options.images or labels.parent)
    eyes = names.str.extract(r"^(?P<patient>\d+)_(?P<eye>left|right)$").fillna("")
    return assemble(
        pd.DataFrame({"id": names, "image": located, "grade": table.frame["level"]}).join(eyes),
        kind="dr",
        root=folder.absolute(),
        grades=options.grades or list(map(str, range(5))),
        lines=table.lines,
        notes=[
            f"Kaggle's diabetic retinopathy labels in {labels}, images in {folder}",
            "patient: the number in the image name",
        ],
        problems=[*table.problems, *problems],
    )


# LIMUC, the labelled images of ulcerative colitis: <patient>/Mayo 0 … Mayo 3/*.bmp.

LIMUC_ARCHIVE = "patient_based_classified_images.zip"
LIMUC_URL = f"https://zenodo.org/records/5827695/files/{LIMUC_ARCHIVE}?download=1"
LIMUC_COUNTS = (6105, 3052, 1254, 865)  # published images per grade
LIMUC_PATIENTS = 564

_LIMUC_GRADE = re.compile(r"^mayo[ _-]*([0-3])$", re.IGNORECASE)


def find_patients(directory: Path) -> Path | None:
    """The folder of patients: ``directory`` itself, or the folder that the archive unpacks to."""
    for folder in (directory, directory / Path(LIMUC_ARCHIVE).stem):
        if not folder.is_dir():
            continue
        for patient in subfolders(folder):
            for grade in subfolders(patient):
                if _LIMUC_GRADE.match(grade.name):
                    return folder
    return None


def read_limuc(directory: Path, options: ReadOptions) -> Manifest:
    """Read LIMUC's patient-based layout. The patient is the name of the folder."""
    if (root := find_patients(directory)) is None:
        raise SrjtError(
            f"{directory} does not contain LIMUC's folders <patient>/Mayo 0 … Mayo 3.",
            code="wrong_file",
        )
    rows: list[tuple[str, str, str, str]] = []
    problems: list[Problem] = []
    for patient in subfolders(root):
        for folder in subfolders(patient):
            images, others = walk_images(folder, root=root)
            if match := _LIMUC_GRADE.match(folder.name):
                rows += [(image, image, f"Mayo {match[1]}", patient.name) for image in images]
                problems += others
            else:
                for name in images:
                    problems.append(Problem("ignored-file", name, "not in the folder of a grade"))
    return assemble(
        pd.DataFrame(rows, columns=["id", "image", "grade", "patient"]),
        kind="limuc",
        root=root.absolute(),
        grades=options.grades or [f"Mayo {grade}" for grade in range(4)],
        lines=[image for image, *_ in rows],
        notes=[f"LIMUC in {root}: <patient>/Mayo 0 … Mayo 3"],
        problems=problems,
    )


def not_as_published(manifest: Manifest) -> list[Problem] | None:
    """Where the counts of LIMUC or of Kaggle's data are not the published ones; None for other data
    or grades."""
    kind = manifest.report.kind
    published = {"limuc": LIMUC_COUNTS, "dr": DR_COUNTS}.get(kind, ())
    if len(published) != manifest.num_classes:
        return None
    here = manifest.class_counts.tolist()
    if kind == "dr" and here == list(DR_PAPER_COUNTS):
        return []
    counts = [("images", len(manifest), sum(published))]
    if kind == "limuc":
        counts.insert(0, ("patients", len(set(manifest.patients or ())), LIMUC_PATIENTS))
    names = map("grade {}".format, manifest.grades)
    counts += zip(names, here, published, strict=True)
    problems = []
    for what, count, expected in counts:
        if count != expected:
            detail = f"{count:,} where {expected:,} were published"
            problems.append(Problem("not-as-published", what, detail))
    return problems


# MedMNIST's .npz files: {train, val, test}_{images, labels}.


def is_medmnist(path: Path) -> bool:
    """Any ``.npz`` file that is not one of features; ``read_medmnist`` explains what is missing."""
    return path.suffix.lower() == ".npz"


def read_medmnist(path: Path, options: ReadOptions) -> Manifest:
    """Read a MedMNIST file. Its parts become the split column; greyscale images get three
    channels."""
    images = []
    labels = []
    sides = []
    ids = []
    arrays = load_numpy(path)
    for side in ("train", "val", "test"):
        if missing := [name for name in (f"{side}_images", f"{side}_labels") if name not in arrays]:
            raise SrjtError(
                f"{path} is not in MedMNIST's format: it lacks the array {missing[0]!r}.",
                code="missing_column",
            )
        images.append(as_colour(arrays[f"{side}_images"]))
        label = arrays[f"{side}_labels"]
        if label.ndim == 0 or label.size != len(label):
            raise SrjtError(
                f"{path} must have one label per image: an ordinal grade is one number.",
                code="wrong_shape",
            )
        labels.append(label.reshape(-1))
        sides += [side] * len(label)
        ids += [f"{side}/{row}" for row in range(len(label))]
    if len({image.shape[1:] for image in images}) > 1:
        raise SrjtError(f"{path} contains images of different sizes.", code="wrong_shape")
    pixels = np.concatenate(images)
    grades = np.concatenate(labels)
    samples = from_arrays(pixels, grades, split=sides, ids=ids, names=options.grades)
    read_as = samples.report.notes
    notes = (f"MedMNIST file {path.name}", *read_as, "split: as published (train, val, test)")
    return replace(samples, report=replace(samples.report, kind="medmnist", notes=notes))
