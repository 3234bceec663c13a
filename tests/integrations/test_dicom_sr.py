"""Structured reports, read back by highdicom and pydicom."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pydicom
import pytest
from pydicom.uid import SecondaryCaptureImageStorage, generate_uid

from fixtures.dicom_files import write_dicom
from srjt.errors import SrjtError
from srjt.integrations.dicom_sr import NOT_A_DIAGNOSIS, write_reports

highdicom = pytest.importorskip("highdicom")
GRADES = ["Mayo 0", "Mayo 1", "Mayo 2", "Mayo 3"]


def images(folder: Path, studies: list[str]) -> list[Path]:
    """A DICOM file for each name of a study; files of one study belong to one patient."""
    uids = {name: generate_uid(entropy_srcs=[name]) for name in studies}
    paths = []
    for place, name in enumerate(studies):
        tags: dict[str, Any] = {
            "SOPClassUID": SecondaryCaptureImageStorage,
            "SOPInstanceUID": generate_uid(entropy_srcs=[name, str(place)]),
            "StudyInstanceUID": uids[name],
            "SeriesInstanceUID": generate_uid(entropy_srcs=["series", str(place)]),
            "PatientID": f"patient of {name}",
            "PatientName": "Name^Given",
            "PatientBirthDate": "19500101",
            "PatientSex": "O",
            "StudyDate": "20260101",
            "StudyTime": "120000",
            "StudyID": "1",
            "AccessionNumber": "7",
            "ReferringPhysicianName": "",
            "Modality": "OT",
        }
        paths.append(folder / f"{place}.dcm")
        write_dicom(paths[-1], np.zeros((8, 8), np.uint8), **tags)
    return paths


def test_a_report_of_each_study_has_grades_ranges_and_model(tmp_path: Path) -> None:
    answers = pd.DataFrame(
        {
            "grade": ["Mayo 0", "Mayo 2", "Mayo 3"],
            "grade_low": ["Mayo 0", "Mayo 1", "Mayo 2"],
            "grade_high": ["Mayo 1", "Mayo 3", "Mayo 3"],
        }
    )
    sources = images(tmp_path, ["first", "second", "first"])
    written = write_reports(
        answers, sources, tmp_path / "reports", grades=GRADES, model="run-7", version="1.2", promise="In 90 %."
    )
    assert len(written) == 2
    found = {}
    for path in written:
        report = highdicom.sr.srread(path)
        assert report.VerificationFlag == "UNVERIFIED"
        assert report.PreliminaryFlag == "PRELIMINARY"
        assert report.PatientName == "Name^Given"
        assert pydicom.dcmread(path).SOPClassUID == report.SOPClassUID
        texts = [item.TextValue for item in report.ContentSequence if item.ValueType == "TEXT"]
        assert texts[-1] == f"{NOT_A_DIAGNOSIS} In 90 %."
        assert "run-7" in texts
        for group in report.content.get_image_measurement_groups():
            said = {item.name.meaning: item.value.meaning for item in group.get_qualitative_evaluations()}
            (image,) = [item for item in group[0].ContentSequence if item.ValueType == "IMAGE"]
            uid = image.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
            found[uid] = (report.PatientID, *said.values())
    expected = {
        pydicom.dcmread(path).SOPInstanceUID: (pydicom.dcmread(path).PatientID, *row)
        for path, row in zip(sources, answers.itertuples(index=False), strict=True)
    }
    assert found == expected


def test_other_images_have_no_report(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"no DICOM")
    with pytest.raises(SrjtError, match="is about DICOM images"):
        write_reports(
            pd.DataFrame({"grade": ["Mayo 0"]}), [path], tmp_path / "out", grades=GRADES, model="m", version="1"
        )
    assert not (tmp_path / "out").exists()


def test_an_unknown_grade_is_an_error(tmp_path: Path) -> None:
    sources = images(tmp_path, ["first"])
    with pytest.raises(SrjtError, match="is not one of"):
        write_reports(pd.DataFrame({"grade": ["4"]}), sources, tmp_path / "out", grades=GRADES, model="m", version="1")
