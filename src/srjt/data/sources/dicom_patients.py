"""Patients of DICOM files whose source names none: a pseudonym of the PatientID in each file's header.

Nobody has asked for the ids of a hospital in tables and on pages; which images belong together is all that is needed.
The pseudonym is a hash with a secret key, because ids can be enumerated. The key lies beside the images, which have the
ids in their headers anyway: whoever reads the images, in whatever command and on whatever machine, has the same
pseudonyms, and whoever has only a run or a table cannot go back to the ids.
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

import platformdirs

from srjt.data.grades import MISSING
from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.images.dicom import read_patient_id
from srjt.data.problems import Problem
from srjt.data.sources.assemble import Reading
from srjt.errors import SrjtError
from srjt.files import check_regular_file
from srjt.progress import ProgressOption, progress_bar

__all__ = ["with_patients_of_headers"]

KEY = ".srjt-patients.key"
KEY_BYTES = 32
DICOM_SUFFIXES = (".dcm", ".dicom")
WORKERS = 8  # parsing a header holds Python's lock; a network drive gains from several requests at once
# What programs write in place of an id, in lower case and without punctuation.
PLACEHOLDERS = {
    *("anon", "anonymous", "anonymized", "anonymised", "anonymouspatient", "deidentified", "removed"),
    *("unknown", "none", "nopatientid"),
}


def with_patients_of_headers(reading: Reading, *, progress: ProgressOption = True) -> Reading:
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
    unknown = [
        Problem(
            "missing-patient",
            name,
            "its header has no PatientID that can be used: treated as a separate patient",
        )
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
    found = []
    with (
        progress_bar("Reading DICOM headers", progress) as advance,
        ThreadPoolExecutor(WORKERS, thread_name_prefix="header") as pool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # pydicom's, about values that do not matter here
        for patient in pool.map(_patient, [paths[row] for row in candidates]):
            found.append(patient)
            advance(len(found), len(candidates))
    if all(patient is None for patient in found):
        return [], ""
    patients = [""] * len(paths)
    for row, patient in zip(candidates, found, strict=True):
        patients[row] = patient or ""
    known = [patient for patient in patients if patient]
    if not known:
        return (
            [],
            "patient: not known, because no header of the DICOM files has a PatientID that tells patients apart",
        )
    if len(set(known)) == 1 < len(known):
        return [], (
            "patient: not known, because the headers of the DICOM files have one PatientID for all; images are split "
            "one by one"
        )
    key = _secret([paths[row] for row in candidates])
    patients = [_pseudonym(patient, key) if patient else "" for patient in patients]
    note = "patient: pseudonyms of the PatientID in the headers of the DICOM files"
    if missing := len(patients) - len(known):
        has = (
            "image has none that can be used and is"
            if missing == 1
            else "images have none that can be used and are"
        )
        as_one = "a separate patient" if missing == 1 else "separate patients"
        note += f"; {missing:,} {has} treated as {as_one}"
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
