"""Folders of images: one folder per grade, the layouts of published datasets (Kaggle's Diabetic Retinopathy Detection,
LIMUC, MedMNIST), images without grades for prediction, and the patients that the headers of DICOM files name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import platformdirs

from srjt.data.grades import MISSING, order_names, refuse_too_many
from srjt.data.images.decode import IMAGE_SUFFIXES, is_image, read_patient_id
from srjt.data.manifest import Manifest, Problem
from srjt.data.options import ReadOptions
from srjt.data.sources.assemble import SPLIT_NAMES, LoadedData, as_colour, assemble, from_arrays
from srjt.data.sources.columns import (
    TABLE_SUFFIXES,
    TextTable,
    check_wanted,
    choose_columns,
    find_image_folder,
    folder_without_grades,
    from_frame,
    load_table,
    locate_images,
)
from srjt.data.sources.features import load_numpy
from srjt.errors import SrjtError
from srjt.files import check_regular_file, why_not_a_file
from srjt.progress import ProgressOption, progress_bar

# One folder per grade, optionally below train, validation and test folders.

# Created by operating systems; ignored without a warning.
SYSTEM_FILES = {"thumbs.db", "desktop.ini", "__macosx"}


def is_folders(path: Path) -> bool:
    """Any folder may be one; ``read_folders`` explains what is missing."""
    return path.is_dir()


def read_folders(directory: Path, options: ReadOptions) -> LoadedData:
    """Read ``directory/<grade>/…`` or ``directory/<train|val|test>/<grade>/…``. The patients are unknown."""
    if not directory.is_dir():
        raise SrjtError(f"{directory} is not a folder.")
    sides: list[tuple[str, Path]] = [(folder.name.casefold(), folder) for folder in subfolders(directory)]
    with_split = bool(sides) and all(side in SPLIT_NAMES for side, _ in sides)
    parents = sides if with_split else [("", directory)]
    rows: list[dict[str, str]] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for side, parent in parents:
        problems += [
            Problem("ignored-file", path.relative_to(directory).as_posix(), "not in the folder of a grade")
            for path in sorted(parent.iterdir())
            if path.is_file() and not _is_system_file(path.name)
        ]
        for folder in subfolders(parent):
            names.add(folder.name)
            for image, problem in walk_images(folder, root=directory):
                if problem is not None:
                    problems.append(problem)
                    continue
                row = {"id": image, "image": image, "grade": folder.name}
                rows.append(row | {"split": side} if with_split else row)
    if not rows:
        raise SrjtError(folder_without_grades(directory))
    grades: Sequence[str] | None = options.grades
    if grades is None:
        grades = order_names(names)
        refuse_too_many(grades, samples=len(rows))
    # An empty folder also declares a grade, so a grade without samples is no gap.
    return assemble(
        pd.DataFrame(rows),
        kind="folders",
        root=directory.absolute(),
        grades=grades,
        lines=[row["id"] for row in rows],
        notes=[
            f"one folder per grade{' below train, validation, test' if with_split else ''} in {directory}"
        ],
        problems=problems,
    )


def subfolders(directory: Path) -> list[Path]:
    """The folders in a folder, sorted by name."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir() and not _is_system_file(path.name))
    for path in folders:
        if not is_utf8(path.name):
            raise SrjtError(f"The name of the folder {path} is not UTF-8 text: rename it.")
    return folders


def walk_images(folder: Path, *, root: Path) -> Iterator[tuple[str, Problem | None]]:
    """Every file below ``folder``, sorted, as a path relative to ``root``; with a problem if it is not an image."""
    inside = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    for entry, path in _walk_files(os.fspath(folder), inside):
        suffix = os.path.splitext(entry.name)[1].lower()
        if _is_system_file(entry.name):
            if suffix in IMAGE_SUFFIXES:  # such as ._a.png, which macOS adds to archives
                yield path, Problem("ignored-file", path, "a hidden file")
        elif not is_utf8(path):
            yield path, Problem("unreadable-image", path, "its name is not UTF-8 text: rename the file")
        elif (suffix in IMAGE_SUFFIXES and _is(entry.is_file)) or is_image(entry.path):
            yield path, None
        else:
            yield path, Problem("ignored-file", path, why_not_a_file(Path(entry.path)) or "not an image")


def _walk_files(folder: str, inside: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Every file below a folder, and ``inside`` followed by its place there. Links to folders are not followed.

    The list of a folder tells what is a file, so that 100,000 files need not be asked one by one.
    """
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:  # a folder that cannot be read is left out, as by os.walk
        return
    yield from ((entry, inside + entry.name) for entry in entries if not _is(entry.is_dir))
    for entry in entries:
        if not _is_system_file(entry.name) and _is(partial(entry.is_dir, follow_symlinks=False)):
            yield from _walk_files(entry.path, f"{inside}{entry.name}/")


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError:  # such as a link to itself
        return False


def is_utf8(name: str) -> bool:
    """Whether a file name is text; on Linux it can be any bytes, which tables do not hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_system_file(name: str) -> bool:
    return name.startswith(".") or name.casefold() in SYSTEM_FILES


# Patients of DICOM files whose source names none: a pseudonym of the PatientID in each file's header.
#
# Nobody has asked for the ids of a hospital in tables and on pages; which images belong together is all
# that is needed. The pseudonym is a hash with a secret key, because ids can be enumerated. The key lies
# beside the images, which have the ids in their headers anyway: whoever reads the images, in whatever
# command and on whatever machine, has the same pseudonyms, and whoever has only a run or a table cannot go
# back to the ids.

KEY = ".srjt-patients.key"
KEY_BYTES = 32
DICOM_SUFFIXES = (".dcm", ".dicom")
WORKERS = 8  # parsing a header holds Python's lock; a network drive gains from several requests at once
# What programs write in place of an id, in lower case and without punctuation.
PLACEHOLDERS = {
    *("anon", "anonymous", "anonymized", "anonymised", "anonymouspatient", "deidentified", "removed"),
    *("unknown", "none", "nopatientid"),
}


def with_patients_of_headers(reading: LoadedData, *, progress: ProgressOption = True) -> LoadedData:
    """The samples with the patients of their DICOM headers, if their source has no patients, and a note about them.

    An image whose header names no patient is a patient of its own, unless no header does.
    """
    manifest = reading.manifest
    if manifest.arrays is not None or manifest.patients is not None:
        return reading
    patients, note = _patients_in_headers(manifest.paths, progress=progress)
    notes = (*reading.notes, *([note] if note else []))
    if not patients:
        return replace(reading, notes=notes)
    names = [patient or f"unknown: {name}" for patient, name in zip(patients, manifest.ids, strict=True)]
    detail = "its header has no PatientID that can be used: treated as a separate patient"
    unknown = [
        Problem("missing-patient", name, detail)
        for patient, name in zip(patients, manifest.ids, strict=True)
        if not patient
    ]
    known = replace(manifest, table=manifest.table.assign(patient=names))
    return replace(reading, manifest=known, problems=(*reading.problems, *unknown), notes=notes)


def _patients_in_headers(paths: Sequence[Path], *, progress: ProgressOption) -> tuple[list[str], str]:
    """(N,) patients of image files, "" where the header names none, and a note on where they come from.

    The patients are an empty list where the headers do not tell them, and the note is empty without DICOM files.
    """
    candidates = [row for row, path in enumerate(paths) if _may_be_dicom(path)]
    if not candidates or find_spec("pydicom") is None:  # the error follows when an image is read
        return [], ""
    in_headers = []
    with (
        progress_bar("Reading DICOM headers", progress) as advance,
        ThreadPoolExecutor(WORKERS, thread_name_prefix="header") as pool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # pydicom's, about values that do not matter here
        for patient in pool.map(_patient, [paths[row] for row in candidates]):
            in_headers.append(patient)
            advance(len(in_headers), len(candidates))
    if all(patient is None for patient in in_headers):
        return [], ""
    patients = [""] * len(paths)
    for row, patient in zip(candidates, in_headers, strict=True):
        patients[row] = patient or ""
    known = [patient for patient in patients if patient]
    if not known or len(set(known)) == 1 < len(known):
        why = (
            "the DICOM files have one PatientID for all"
            if known
            else "no header of the DICOM files has a PatientID"
        )
        return [], f"patient: not known, because {why}; images are split one by one"
    key = _secret([paths[row] for row in candidates])
    patients = [_pseudonym(patient, key) if patient else "" for patient in patients]
    note = "patient: pseudonyms of the PatientID in the headers of the DICOM files"
    if missing := len(patients) - len(known):
        note += f"; images without one, each treated as a separate patient: {missing:,}"
    return patients, note


def _may_be_dicom(path: Path) -> bool:
    suffix = path.suffix.lower()
    return suffix in DICOM_SUFFIXES or suffix not in IMAGE_SUFFIXES


def _patient(path: Path) -> str | None:
    """The PatientID of a DICOM file, "" if its header names none; None for another file."""
    if not _is_dicom(path):
        return None
    patient = read_patient_id(path)
    plain = re.sub(r"[\W_]", "", patient.casefold())
    if patient.casefold() in MISSING or not plain or plain in PLACEHOLDERS:
        return ""
    return patient


def _pseudonym(patient: str, key: bytes) -> str:
    content = patient.encode("utf-8", "surrogateescape")
    return f"dicom-{hashlib.blake2b(content, key=key, digest_size=8).hexdigest()}"


def _secret(images: Sequence[Path]) -> bytes:
    """The key of these images: that of the folder that holds them all, or of one above it; made if there is none.

    Folders that cannot be written have the user's own key, which is kept with the data of programs.
    """
    folder = own = Path(platformdirs.user_data_dir("srjt", appauthor=False))
    with contextlib.suppress(ValueError):  # images on two drives
        folder = Path(os.path.commonpath([path.absolute().parent for path in images]))
    for place in (folder, *folder.parents):
        if (place / KEY).exists():
            return _read_key(place / KEY)
    for place in (folder, own):
        with contextlib.suppress(OSError):
            _make_key(place)
            return _read_key(place / KEY)
    raise SrjtError(
        f"A key for the pseudonyms of patients can be written neither to {folder} nor to {own}: add a column of "
        "patients to the table of labels."
    )


def _make_key(folder: Path) -> None:
    """Write a new key, for the user's eyes only, unless there is one: of two commands at once the first one's stays."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f"{KEY}.", dir=folder)  # with permissions 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
        try:
            os.link(draft, folder / KEY)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(draft, folder / KEY)
    finally:
        Path(draft).unlink(missing_ok=True)


def _read_key(path: Path) -> bytes:
    check_regular_file(path)
    try:
        with path.open("rb") as file:
            key = bytes.fromhex(file.read(4 * KEY_BYTES).decode("ascii").strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise SrjtError(
            f"{path}, the key for the pseudonyms of patients, cannot be read: ask its owner for it, or add a column of "
            "patients to the table of labels."
        )
    return key


def _is_dicom(path: Path) -> bool:
    """Whether there is a file with a suffix of DICOM files, or one that begins as they do."""
    if not os.path.isfile(path):  # opening a pipe would never end
        return False
    if path.suffix.lower() in DICOM_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


# Images without grades, for prediction.


def read_images(
    sources: Sequence[str | os.PathLike[str] | pd.DataFrame],
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    patient_column: str | None = None,
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
    progress: ProgressOption = False,
) -> LoadedData:
    """Image files, folders (searched recursively) and tables with a column of images, as one manifest.

    Image names in a table are relative to ``images``, or to its folder; in a DataFrame to the present folder. The
    manifest has the patients of the tables that have them, or else of DICOM headers, and their ``columns``; both are
    empty for other images.
    Every sample gets the mildest grade as a placeholder. Files that are not images, malformed rows, rows without an
    image and repetitions are left out and listed in ``problems``. progress: whether to show a bar over DICOM headers.
    """
    lines: dict[str, list[str]] = {}  # for each image, in the given order: where it is named
    cells: dict[str, dict[str, str]] = {}  # for each image of a table: the columns that are kept
    problems: list[Problem] = []
    of_tables: list[str] = []  # columns
    roles = {"image": image_column, "patient": patient_column}
    for source in sources:
        table_in, name, root = None, "the table", Path().absolute()
        if isinstance(source, pd.DataFrame):
            table_in = from_frame(source)
        elif (path := _existing(source)).is_dir():
            named, more = _from_folder(path)
        elif path.suffix.lower() in TABLE_SUFFIXES:
            table_in, name, root = load_table(path), path.name, path.parent
        else:
            check_regular_file(path)
            named, more = [(path, str(path), {})], []
        if table_in is not None:
            of_tables += map(str, table_in.frame.columns)
            folder = root if images is None else Path(images)
            named, more = _from_table(table_in, folder, source=name, given=roles, columns=columns)
        problems += more
        for path, line, row in named:
            lines.setdefault(str(path), []).append(line)
            if row:
                cells.setdefault(str(path), row)
    options = {"images": images, "image_column": image_column, "patient_column": patient_column}
    without_table = [option for option, value in options.items() if value is not None and not of_tables]
    if without_table:
        raise SrjtError(
            f"`{without_table[0]}` applies to a table of images, and {sources[0]} is none: give a table, or leave it "
            "out."
        )
    problems += [
        Problem("duplicate-row", name, ", ".join(where)) for name, where in lines.items() if len(where) > 1
    ]
    if not lines:
        raise SrjtError(f"No row can be used; the first: {problems[0].where}: {problems[0].detail}.")
    table = pd.DataFrame({"id": list(lines), "image": list(lines), "grade": 0})
    for column in dict.fromkeys(name for row in cells.values() for name in row):
        table[column] = [cells.get(name, {}).get(column, "") for name in lines]
    manifest = Manifest(table=table, grades=grades, root=Path())
    reading = with_patients_of_headers(
        LoadedData(manifest=manifest, problems=tuple(problems), kind="images", notes=()), progress=progress
    )
    check_wanted(columns, reading.manifest.table, known=of_tables)
    return reading


def _existing(source: str | os.PathLike[str]) -> Path:
    path = Path(source)
    if not is_utf8(str(path)):
        raise SrjtError(f"The name {path} is not UTF-8 text: rename it.")
    if not os.path.exists(path):  # also for a name that is too long or contains NUL
        raise SrjtError(f"{path} does not exist.")
    return path


Named = list[tuple[Path, str, dict[str, str]]]  # an image, where it is named, and what else is known of it


def _from_folder(folder: Path) -> tuple[Named, list[Problem]]:
    """The images in a folder, and the files that are no images."""
    named: Named = []
    problems = []
    for name, problem in walk_images(folder, root=folder):
        path = folder / name
        if problem is None:
            named.append((path, str(path), {}))
        else:
            problems.append(replace(problem, where=str(path)))
    if not named:
        raise SrjtError(f"There are no images in {folder}.")
    return sorted(named, key=lambda image: image[0]), problems


def _from_table(
    loaded: TextTable, root: Path, *, source: str, given: Mapping[str, str | None], columns: Sequence[str]
) -> tuple[Named, list[Problem]]:
    """The image of each row that names one, with the columns to keep of it; and the problems of the others."""
    chosen, _ = choose_columns(list(loaded.frame.columns), given, source=source, required=("image",))
    names = list(loaded.frame[chosen["image"]])
    root = find_image_folder(names, root)
    located, ambiguous = locate_images(names, root)
    if ambiguous:
        raise SrjtError(f"{ambiguous[0].where}: {ambiguous[0].detail}")
    # every sample has an id, an image and a placeholder for its grade: the table's own get another name
    ours = ("id", "image", "grade", "patient")
    wanted = {f"{name}_source" if name in ours else name: name for name in columns if name in loaded.frame}
    if "patient" in chosen:
        wanted["patient"] = chosen["patient"]
    rows = loaded.frame[list(wanted.values())].set_axis(list(wanted), axis=1).to_dict("records")
    named: Named = []
    problems = list(loaded.problems)
    for line, name, row in zip(loaded.lines, located, rows or [{}] * len(names), strict=True):
        if name:
            named.append((root / name, line, {str(column): str(cell) for column, cell in row.items()}))
        else:
            problems.append(Problem("missing-image", line, "the row has no image"))
    return named, problems


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
    if manifest.class_counts.tolist() == list(DR_PAPER_COUNTS):
        return []
    return _differences(manifest, DR_COUNTS)


def _differences(manifest: Manifest, published: tuple[int, ...]) -> list[str]:
    """Where the images per grade are not those that were published, as text."""
    counts = [("images", len(manifest), sum(published))] + [
        (f"grade {name}", int(here), there)
        for name, here, there in zip(manifest.grades, manifest.class_counts, published, strict=True)
    ]
    return [
        f"{what}: {here:,} where {there:,} were published" for what, here, there in counts if here != there
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
    patients = len(set(manifest.patients or []))
    other = (
        []
        if patients == LIMUC_PATIENTS
        else [f"patients: {patients:,} where {LIMUC_PATIENTS:,} were published"]
    )
    return [*other, *_differences(manifest, LIMUC_COUNTS)]


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
        if label.ndim == 0 or label.size != len(label):
            raise SrjtError(f"{path} must have one label per image: an ordinal grade is one number.")
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
