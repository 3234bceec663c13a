"""DICOM structured reports: one report per study, with the grade of each image, its range and the
model behind it.

The reports follow TID 1500 (measurement report) and are built with ``highdicom`` (extra
``highdicom``). Whatever identifies a patient is copied from the source images by highdicom; nothing
else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from srjt.errors import SrjtError, missing_extra, reason_of

SCHEME = "99SRJT"  # private codes begin with 99
NOT_A_DIAGNOSIS = (
    "Computed by software from the image alone, for research. Not a diagnosis. Not checked by a"
    " person."
)
LONGEST_MEANING = 64  # characters that DICOM allows


def write_reports(
    answers: pd.DataFrame,
    images: Sequence[Path],
    folder: Path,
    *,
    grades: Sequence[str],
    model: str,
    version: str,
    promise: str = "",
) -> list[Path]:
    """Write a structured report for each study.

    Parameters
    ----------
    answers : DataFrame
        One row per image: ``grade``, and ``grade_low`` and ``grade_high`` if there are ranges.
    images : sequence of Path, (N,)
        The DICOM file of each row.
    folder : Path
        Where to write; one file ``<study>.dcm`` per study, named by its UID.
    grades : sequence of str
        The grades, mildest first.
    model, version : str
        The name of the run, and the version of srjt.
    promise : str
        What the ranges promise, in words.

    Returns
    -------
    list of Path
        The files, in the order of their studies.
    """
    try:
        import highdicom  # noqa: F401
        import pydicom
    except ImportError:
        raise missing_extra("highdicom", "highdicom", "Writing DICOM structured reports") from None
    studies: dict[str, list[tuple[Any, dict[Any, Any]]]] = {}
    for path, row in zip(images, answers.to_dict("records"), strict=True):
        try:
            source = pydicom.dcmread(path, stop_before_pixels=True)
            study = str(source.StudyInstanceUID)
        except Exception as problem:  # damaged files make pydicom raise almost any exception
            raise SrjtError(
                f"A structured report is about DICOM images, and {path} is none"
                f" ({reason_of(problem)}): write a table instead.",
                code="wrong_file",
            ) from None
        studies.setdefault(study, []).append((source, row))
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for study, members in studies.items():
        report = _report(
            members, grades=list(grades), model=model, version=version, promise=promise
        )
        path = folder / f"{study}.dcm"
        report.save_as(path)
        written.append(path)
    return written


def _code(value: str, meaning: str) -> Any:
    from highdicom.sr import CodedConcept

    return CodedConcept(
        value=value[:16], scheme_designator=SCHEME, meaning=meaning[:LONGEST_MEANING]
    )


def _report(
    members: list[tuple[Any, dict[Any, Any]]],
    *,
    grades: list[str],
    model: str,
    version: str,
    promise: str,
) -> Any:
    """The report of one study. It is complete, but neither final nor verified: nobody has checked
    it."""
    from highdicom import UID, sr
    from pydicom.sr.codedict import codes

    device = sr.ObserverContext(
        observer_type=codes.DCM.Device,
        observer_identifying_attributes=sr.DeviceObserverIdentifyingAttributes(
            uid=UID(), name="srjt", manufacturer_name="srjt", model_name=model[:LONGEST_MEANING]
        ),
    )
    algorithm = sr.AlgorithmIdentification(name=f"srjt {model}"[:LONGEST_MEANING], version=version)
    groups = []
    for source, row in members:
        evaluations = [_evaluation("GRADE", "Predicted grade", str(row["grade"]), grades)]
        if "grade_low" in row:
            evaluations.append(
                _evaluation("GRADE_LOW", "Lowest grade of the range", str(row["grade_low"]), grades)
            )
            evaluations.append(
                _evaluation(
                    "GRADE_HIGH", "Highest grade of the range", str(row["grade_high"]), grades
                )
            )
        image = sr.SourceImageForMeasurementGroup(source.SOPClassUID, source.SOPInstanceUID)
        groups.append(
            sr.MeasurementsAndQualitativeEvaluations(
                tracking_identifier=sr.TrackingIdentifier(
                    uid=UID(), identifier=str(source.SOPInstanceUID)
                ),
                algorithm_id=algorithm,
                qualitative_evaluations=evaluations,
                source_images=[image],
            )
        )
    content = sr.MeasurementReport(
        observation_context=sr.ObservationContext(observer_device_context=device),
        procedure_reported=_code("GRADING", "Grading of severity"),
        imaging_measurements=groups,
    )
    note = " ".join(part for part in (NOT_A_DIAGNOSIS, promise) if part)
    comment = sr.TextContentItem(
        name=codes.DCM.Comment, value=note, relationship_type=sr.RelationshipTypeValues.CONTAINS
    )
    content[0].ContentSequence.append(comment)
    report = sr.ComprehensiveSR(
        evidence=[source for source, _ in members],
        content=content[0],
        series_instance_uid=UID(),
        series_number=1,
        sop_instance_uid=UID(),
        instance_number=1,
        manufacturer="srjt",
        is_complete=True,
    )
    report.SeriesDescription = "srjt: computed grades, not a diagnosis"
    return report


def _evaluation(code: str, meaning: str, grade: str, grades: list[str]) -> Any:
    from highdicom import sr

    if grade not in grades:
        raise SrjtError(
            f"The grade {grade!r} is not one of {', '.join(grades)}.", code="unknown_grade"
        )
    return sr.QualitativeEvaluation(
        name=_code(code, meaning), value=_code(f"G{grades.index(grade)}", grade)
    )
