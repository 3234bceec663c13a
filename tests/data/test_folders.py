"""Folders of images without grades, and the patients of DICOM files."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.test_tables import picture
from fixtures.dicom_files import write_dicom
from refusals import refuses
from srjt.data import LeakageWarning, Manifest, folds, read
from srjt.data.sources.folders import KEY, read_images


def test_a_folder_counts_every_file_that_is_left_out(tmp_path: Path) -> None:
    images = [picture(tmp_path / name) for name in ("IM0001.png", "b/IM0002.png", "c.png")]
    images[:2] = [image.rename(image.with_suffix("")) for image in images[:2]]
    (tmp_path / "b/notes.doc").write_text("?")
    picture(tmp_path / "._c.png")
    reading = read_images([tmp_path])
    assert reading.paths == images
    assert {problem.where: problem.detail for problem in reading.report.problems} == {
        str(tmp_path / "b/notes.doc"): "not an image",
        str(tmp_path / "._c.png"): "a hidden file",
    }


def test_a_table_names_every_row_that_is_left_out(tmp_path: Path) -> None:
    rows = [f"{n}.png,x" for n in range(58)]
    rows[10:10] = ["3.png,again", "7.png", ",empty"]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(["image,note", *rows]))
    reading = read_images([path])
    assert len(reading) == 58
    assert [(p.kind, p.where, p.detail) for p in reading.report.problems] == [
        ("malformed-row", "line 13", "1 cell where the header has 2"),
        ("missing-image", "line 14", "the row has no image"),
        ("duplicate-row", str(tmp_path / "3.png"), "line 5, line 12"),
    ]


def test_images_beside_a_table_are_found(tmp_path: Path) -> None:
    image = picture(tmp_path / "test_images/a.png")
    (tmp_path / "test.csv").write_text("id_code\na\n")
    assert read_images([tmp_path / "test.csv"]).paths == [image]


def test_impossible_sources(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "empty.csv").write_text("image,note\n,x\n")
    for name, code in {
        "pipe.png": "unreadable_file",
        "x" * 300: "missing_file",
        "a\0.csv": "missing_file",
        "missing.csv": "missing_file",
        "empty.csv": "unusable_samples",
    }.items():
        with refuses(code):
            read_images([tmp_path / name])


# The patients of DICOM files are those of their headers, where the data name none.
UNKNOWN = "missing-patient"


def read_folder(folder: Path, patients: Mapping[str, str | None]) -> Manifest:
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


def said(reading: Manifest) -> list[str]:
    return [note for note in reading.report.notes if note.startswith("patient:")]


@pytest.mark.slow
def test_images_of_one_patient_stay_together(tmp_path: Path) -> None:
    suffixes = ("", ".dcm", ".dcm")  # some without
    names = {f"{k % 2}/{k}{suffixes[k % 3]}": f" id {k // 4} " for k in range(40)}
    reading = read_folder(tmp_path / "set", names)
    manifest = reading
    assert said(reading) == [
        "patient: pseudonyms of the PatientID in the headers of the DICOM files"
    ]
    pseudonyms = dict(
        zip((names[image].strip() for image in manifest.ids), manifest.patients, strict=True)
    )
    assert manifest.patients == [pseudonyms[names[image].strip()] for image in manifest.ids]
    assert len(set(pseudonyms.values())) == 10
    assert not any(word in manifest.table.to_csv() for word in ("Doe", "id 1"))
    split = folds(manifest, folds=5)[0]
    sides = [{manifest.patients[row] for row in rows} for rows in split.sides().values()]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 10
    # a column of the data comes first
    table = manifest.table[["image", "grade"]].assign(patient="own")
    table.to_csv(tmp_path / "set" / "labels.csv", index=False)
    assert set(read(tmp_path / "set").patients or ()) == {"own"}
    # each image by itself, as before headers were read
    alone = read(tmp_path / "set", image_column="image", patient_column="image")
    assert alone.patients == alone.ids == manifest.ids
    unknown = replace(manifest, table=manifest.table.drop(columns="patient"))
    with pytest.warns(LeakageWarning):
        one_by_one = folds(unknown, folds=5)
    for ours, theirs in zip(folds(alone, folds=5), one_by_one, strict=True):
        assert ours.test.tolist() == theirs.test.tolist()


@pytest.mark.parametrize(
    ("patients", "note"),
    [
        ([None, "", "ANONYMOUS"], "no DICOM file has a PatientID"),
        (["12", "12", "12 "], "the DICOM files have one PatientID for all"),
    ],
)  # fmt: skip
def test_headers_that_tell_nothing(tmp_path: Path, patients: list[str | None], note: str) -> None:
    reading = read_folder(
        tmp_path, {f"{k % 2}/{k}.dcm": patient for k, patient in enumerate(patients)}
    )
    assert said(reading) == [f"patient: not known, because {note}; images are split one by one"]
    assert reading.patients is None
    assert not any(problem.kind == UNKNOWN for problem in reading.report.problems)


def test_unknown_patients_among_known_ones(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "0" / "picture.png")
    (tmp_path / "0" / "damaged.dcm").write_bytes(b"no DICOM file")
    reading = read_folder(
        tmp_path, {"0/a.dcm": "1", "1/b.dcm": "1", "1/c.dcm": "2", "1/d.dcm": "anonymized"}
    )
    assert said(reading) == [
        "patient: pseudonyms of the PatientID in the headers of the DICOM files; images without one, each "
        "a separate patient: 3"
    ]
    nobody = {"0/picture.png", "0/damaged.dcm", "1/d.dcm"}
    assert {
        problem.where for problem in reading.report.problems if problem.kind == UNKNOWN
    } == nobody
    patient = reading.table.set_index("id")["patient"].to_dict()
    assert patient["0/a.dcm"] == patient["1/b.dcm"] != patient["1/c.dcm"]
    assert {name: patient[name] for name in nobody} == {name: f"unknown: {name}" for name in nobody}
    shutil.rmtree(tmp_path / "1")
    (tmp_path / "1").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "1" / "other.png")
    (tmp_path / "0" / "a.dcm").unlink()
    (tmp_path / "0" / "damaged.dcm").unlink()
    assert said(read(tmp_path)) == []  # no DICOM file


def patients_of(reading: Manifest) -> dict[str, str]:
    names = [Path(name).name for name in reading.ids]
    return dict(zip(names, reading.patients, strict=True))


def test_pseudonyms_cannot_be_enumerated_and_are_the_same_in_every_command(tmp_path: Path) -> None:
    first = read_folder(tmp_path / "set", {f"{k % 2}/{k}.dcm": f"4711{k // 4}" for k in range(8)})
    found = patients_of(first)
    assert len(set(found.values())) == 2
    for k, name in enumerate(sorted(found)):  # a hospital number and what may be known of the hash
        for size in range(4, 33):
            guess = hashlib.blake2b(f"4711{k // 4}".encode(), digest_size=size).hexdigest()
            assert guess[:8] not in found[name]
    key = tmp_path / "set" / KEY
    if os.name != "nt":
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "set").iterdir() if path.name.startswith(".")] == [
        KEY
    ]
    # the same images for a prediction: the folder, a part of it, single files
    assert patients_of(read_images([tmp_path / "set"])) == found
    part = patients_of(read_images([tmp_path / "set" / "1"]))
    assert part == {name: found[name] for name in part}
    assert len(part) == 4
    # other data have other pseudonyms, unless they are given the key
    shutil.copytree(tmp_path / "set", tmp_path / "other", ignore=shutil.ignore_patterns(KEY))
    assert not set(patients_of(read(tmp_path / "other")).values()) & set(found.values())
    shutil.copy(key, tmp_path / "other" / KEY)
    assert patients_of(read(tmp_path / "other")) == found
    key.write_text("not a key")
    with refuses("unreadable_file", says="the key"):
        read(tmp_path / "set")


def test_images_in_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkstemp

    def refuse(*, prefix: str, dir: Path) -> tuple[int, str]:
        if dir == tmp_path / "set":
            raise PermissionError
        return make(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path / "own"))
    names = {f"{k % 2}/{k}.dcm": str(k // 4) for k in range(8)}
    found = patients_of(read_folder(tmp_path / "set", names))
    assert (tmp_path / "own" / KEY).exists()
    assert not (tmp_path / "set" / KEY).exists()
    assert patients_of(read(tmp_path / "set")) == found
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path / "set"))
    with refuses("unwritable_file", says="No key"):
        read(tmp_path / "set")
