"""Structured reports, read back by highdicom and pydicom."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pydicom
import pytest
from pydicom.uid import SecondaryCaptureImageStorage, generate_uid

import srjt
from fixtures.dicom_files import write_dicom
from refusals import refuses
from srjt.cli import main
from srjt.integrations.dicom_sr import NOT_A_DIAGNOSIS, write_reports

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("highdicom") is None, reason="highdicom is not installed"
)


def read_report(path: Path) -> Any:
    import highdicom  # takes half a second, which only these tests need

    return highdicom.sr.srread(path)


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
        answers,
        sources,
        tmp_path / "reports",
        grades=GRADES,
        model="run-7",
        version="1.2",
        promise="In 90 %.",
    )
    assert len(written) == 2
    found = {}
    for path in written:
        report = read_report(path)
        assert report.VerificationFlag == "UNVERIFIED"
        assert report.PreliminaryFlag == "PRELIMINARY"
        assert report.PatientName == "Name^Given"
        assert pydicom.dcmread(path).SOPClassUID == report.SOPClassUID
        texts = [item.TextValue for item in report.ContentSequence if item.ValueType == "TEXT"]
        assert texts[-1] == f"{NOT_A_DIAGNOSIS} In 90 %."
        assert "run-7" in texts
        for group in report.content.get_image_measurement_groups():
            said = {
                item.name.meaning: item.value.meaning
                for item in group.get_qualitative_evaluations()
            }
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
    with refuses("wrong_file"):
        write_reports(
            pd.DataFrame({"grade": ["Mayo 0"]}),
            [path],
            tmp_path / "out",
            grades=GRADES,
            model="m",
            version="1",
        )
    assert not (tmp_path / "out").exists()


def test_an_unknown_grade_is_an_error(tmp_path: Path) -> None:
    sources = images(tmp_path, ["first"])
    with refuses("unknown_grade"):
        write_reports(
            pd.DataFrame({"grade": ["4"]}),
            sources,
            tmp_path / "out",
            grades=GRADES,
            model="m",
            version="1",
        )


@pytest.mark.slow
def test_predictions_are_written_as_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = srjt.data.synthetic.generate(images=60, patients=15, size=32)
    small: dict[str, Any] = {
        "network": "tiny",
        "image_size": 32,
        "crop": 28,
        "epochs": 1,
        "method": "standard",
    }
    srjt.train(drawn, split=srjt.data.folds(drawn)[0], out="run", progress=False, **small)
    (tmp_path / "dcm").mkdir()
    images(tmp_path / "dcm", ["first", "second", "first"])

    def predict(*more: str) -> tuple[int, str]:
        monkeypatch.setattr(
            sys, "argv", ["srjt", "predict", "run", "dcm", "--format", "dicom-sr", *more]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    status, said = predict("--out", "reports")
    assert status == 0, said
    graded = [read_report(path).content for path in (tmp_path / "reports").glob("*.dcm")]
    assert sorted(len(content.get_image_measurement_groups()) for content in graded) == [1, 2]
    assert "already exists" in predict("--out", "reports")[1]
    assert predict("--out", "reports", "--force")[0] == 0
    assert "cannot be combined with --per" in predict("--out", "others", "--per", "patient")[1]
    assert "are written to a folder" in predict("--out", "reports.csv")[1]
