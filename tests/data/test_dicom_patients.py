"""The patients of DICOM files are those of their headers, where the data name none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixtures.dicom_files import write_dicom
from srjt.data import LeakageWarning, Reading, folds, read

UNKNOWN = "missing-patient"


def read_folder(folder: Path, patients: Mapping[str, str | None]) -> Reading:
    """A folder per grade of DICOM files with these names and PatientIDs; None: without the tag."""
    for k, (name, patient) in enumerate(patients.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        tags = {} if patient is None else {"PatientID": patient}
        pixels = np.random.default_rng(k).integers(0, 1000, (4, 4), dtype=np.uint16)
        write_dicom(folder / name, pixels, PatientName="Doe^Jane", **tags)
    steps: list[tuple[int, int]] = []
    reading = read(folder, progress=lambda *step: steps.append(step))
    assert steps == [(done, len(steps)) for done in range(1, len(steps) + 1)]
    assert len(steps) >= len(patients)  # the headers of all DICOM files
    return reading


def said(reading: Reading) -> list[str]:
    return [note for note in reading.notes if note.startswith("patient:")]


def test_images_of_one_patient_stay_together(tmp_path: Path) -> None:
    names = {
        f"{k % 2}/{k}{'.dcm' * (k % 3 > 0)}": f" id {k // 4} " for k in range(40)
    }  # some without a suffix
    reading = read_folder(tmp_path / "set", names)
    manifest = reading.manifest
    assert said(reading) == ["patient: pseudonyms of the PatientID in the headers of the DICOM files"]
    assert manifest.patients is not None
    pseudonyms = dict(zip((names[image].strip() for image in manifest.ids), manifest.patients, strict=True))
    assert manifest.patients == [pseudonyms[names[image].strip()] for image in manifest.ids]
    assert len(set(pseudonyms.values())) == 10
    assert not any(word in manifest.table.to_csv() for word in ("Doe", "id 1"))
    split = folds(manifest, folds=5)[0]
    sides = [{manifest.patients[row] for row in rows} for rows in split.sides().values()]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 10
    # a column of the data comes first
    table = manifest.table[["image", "grade"]].assign(patient="own")
    table.to_csv(tmp_path / "set" / "labels.csv", index=False)
    assert set(read(tmp_path / "set").manifest.patients or ()) == {"own"}
    # each image by itself, as before headers were read
    alone = read(tmp_path / "set", image_column="image", patient_column="image").manifest
    assert alone.patients == alone.ids == manifest.ids
    unknown = replace(manifest, table=manifest.table.drop(columns="patient"))
    with pytest.warns(LeakageWarning):
        one_by_one = folds(unknown, folds=5)
    for ours, theirs in zip(folds(alone, folds=5), one_by_one, strict=True):
        assert ours.test.tolist() == theirs.test.tolist()


@pytest.mark.parametrize(
    ("patients", "note"),
    [
        ([None, "", "ANONYMOUS"], "no header of the DICOM files has a PatientID that tells patients apart"),
        (["12", "12", "12 "], "the headers of the DICOM files have one PatientID for all; images are split one by one"),
    ],
)  # fmt: skip
def test_headers_that_tell_nothing(tmp_path: Path, patients: list[str | None], note: str) -> None:
    reading = read_folder(tmp_path, {f"{k % 2}/{k}.dcm": patient for k, patient in enumerate(patients)})
    assert said(reading) == [f"patient: not known, because {note}"]
    assert reading.manifest.patients is None
    assert not any(problem.kind == UNKNOWN for problem in reading.problems)


def test_unknown_patients_among_known_ones(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "0" / "picture.png")
    (tmp_path / "0" / "damaged.dcm").write_bytes(b"no DICOM file")
    reading = read_folder(tmp_path, {"0/a.dcm": "1", "1/b.dcm": "1", "1/c.dcm": "2", "1/d.dcm": "anonymized"})
    assert said(reading) == [
        "patient: pseudonyms of the PatientID in the headers of the DICOM files; 3 images have none that can be used "
        "and are treated as separate patients"
    ]
    nobody = {"0/picture.png", "0/damaged.dcm", "1/d.dcm"}
    assert {problem.where for problem in reading.problems if problem.kind == UNKNOWN} == nobody
    patient = reading.manifest.table.set_index("id")["patient"].to_dict()
    assert patient["0/a.dcm"] == patient["1/b.dcm"] != patient["1/c.dcm"]
    assert {name: patient[name] for name in nobody} == {name: f"unknown: {name}" for name in nobody}
    shutil.rmtree(tmp_path / "1")
    (tmp_path / "1").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "1" / "other.png")
    (tmp_path / "0" / "a.dcm").unlink()
    (tmp_path / "0" / "damaged.dcm").unlink()
    assert said(read(tmp_path)) == []  # no DICOM file
