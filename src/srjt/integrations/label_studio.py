"""Label Studio: read its JSON exports (``JSON`` and ``JSON-MIN``), and write doubtful labels as
tasks for it.

The format is that of Label Studio's own documentation ("Export annotations", "Import
pre-annotations"). A task that we wrote carries the name of our sample in ``data.srjt_id``, so that
its annotations come back to the same sample.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import quoteattr

import pandas as pd

from srjt.errors import SrjtError, count_of
from srjt.files import read_limited
from srjt.integrations import MOST_BYTES, ForeignTable

COLUMNS = ("image", "reader", "grade", "date")
# Label Studio adds eight characters and a hyphen to the name of an uploaded file.
UPLOADED = re.compile(r"^/?(?:.*/)?data/upload/\d+/[0-9a-f]{8}-")
MODEL = "srjt"


def recognise(path: Path) -> bool:
    """Whether this is an export of Label Studio: a list of tasks, judged by the first of them."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(200_000).decode("utf-8", errors="ignore")
    return start.lstrip().startswith("[") and (
        '"annotations"' in start or '"annotation_id"' in start
    )


def read(path: Path) -> ForeignTable:
    """One row per annotation: image, reader, grade and date, and the other fields of the task's
    data."""
    try:
        tasks = json.loads(read_limited(path, limit=MOST_BYTES))
    except (ValueError, RecursionError) as problem:
        raise SrjtError(
            f"{path} is not a complete JSON file: {problem}.", code="wrong_file"
        ) from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise SrjtError(
            f"{path} is not a list of tasks: export it from Label Studio as JSON.",
            code="wrong_file",
        )
    rows: list[dict[str, str]] = []
    cancelled = 0
    without_grade = 0
    for task in tasks:
        for annotation in _annotations(task):
            if annotation.get("was_cancelled"):
                cancelled += 1
                continue
            grade = _grade_of(annotation, path)
            if grade is None:
                without_grade += 1
                continue
            rows.append(_row(task, annotation, grade))
    if not rows:
        raise SrjtError(
            f"{path} has no annotation with a grade: a grade is a single choice, a rating or a"
            " number.",
            code="too_few",
        )
    notes = [
        f"{path.name}: Label Studio, {count_of(len(rows), 'annotation')} of"
        f" {count_of(len(tasks), 'task')}"
    ]
    if cancelled:
        notes.append(f"skipped or cancelled annotations, left out: {cancelled:,}")
    if without_grade:
        notes.append(f"annotations without a grade, left out: {without_grade:,}")
    frame = pd.DataFrame(rows, dtype=str).fillna("")
    return ForeignTable(frame=frame, notes=tuple(notes))


def _annotations(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The annotations of a task. A task of ``JSON-MIN`` is one annotation, with its grade among the
    data."""
    if "annotations" in task:
        for annotation in task["annotations"] or ():
            if isinstance(annotation, dict):
                yield annotation
    elif "annotation_id" in task:
        yield task


def _row(task: dict[str, Any], annotation: dict[str, Any], grade: str) -> dict[str, str]:
    known = (
        "id",
        "annotator",
        "annotation_id",
        "created_at",
        "updated_at",
        "lead_time",
        "agreement",
    )
    data = task.get("data")
    if not isinstance(data, dict):
        data = {name: task[name] for name in task if name not in known}
    reader = annotation.get("completed_by", annotation.get("annotator", ""))
    if isinstance(reader, dict):
        reader = reader.get("email") or reader.get("id", "")
    scalars = {}
    for name, value in data.items():
        if isinstance(value, (str, int, float)):
            scalars[name] = str(value)
    image = scalars.pop("srjt_id", "") or _image_name(scalars, task)
    others = {name: scalars[name] for name in scalars if name not in (*COLUMNS, "label")}
    date = annotation.get("updated_at") or annotation.get("created_at") or ""
    return {"image": image, "reader": str(reader), "grade": grade, "date": str(date), **others}


def _image_name(data: dict[str, str], task: dict[str, Any]) -> str:
    """The image file of a task: of an upload and of local storage the name that the user's file
    had."""
    value = data.get("image", "")
    for text in data.values():
        if not value and ("/" in text or "." in text):
            value = text
    address = urlsplit(value)
    local = parse_qs(address.query).get("d", [""])[0]
    if local:
        return local
    if UPLOADED.match(address.path):
        return UPLOADED.sub("", address.path)
    if address.scheme:
        return posixpath.join(address.netloc, address.path.lstrip("/"))
    return value or f"task {task.get('id', '')}"


def _grade_of(annotation: dict[str, Any], path: Path) -> str | None:
    """The one choice, rating or number of an annotation; None if it has none."""
    by_name: dict[str, str] = {}
    for result in annotation.get("result") or ():
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, dict):
            continue
        name = str(result.get("from_name", ""))
        if result.get("type") == "choices":
            choices = value.get("choices") or []
            if len(choices) > 1:
                raise SrjtError(
                    f"{path}: an annotation has {len(choices)} choices of {name!r}: a grade is a"
                    " single choice.",
                    code="too_many",
                )
            if choices:
                by_name[name] = str(choices[0])
        elif result.get("type") in ("rating", "number") and result["type"] in value:
            by_name[name] = str(value[result["type"]])
    if "annotation_id" in annotation and "result" not in annotation:  # JSON-MIN
        for name in ("grade", "choice", "rating", "label"):
            if annotation.get(name) not in (None, ""):
                by_name[name] = str(annotation[name])
    if len(by_name) > 1 and "grade" in by_name:
        return by_name["grade"]
    if len(by_name) > 1:
        raise SrjtError(
            f"{path} has several answers for each task ({', '.join(by_name)}): name the grade's"
            " field “grade”.",
            code="ambiguous",
        )
    return next(iter(by_name.values()), None)


def labelling_config(grades: Sequence[str]) -> str:
    """The labelling interface for these grades: one image and one choice named ``grade``."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in grades)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n  <Choices name="grade" toName="image"'
        f' choice="single-radio" showInline="true">\n{choices}\n  </Choices>\n</View>\n'
    )


LOCAL_FILES = "/data/local-files/?d="


def tasks(
    table: pd.DataFrame, *, grades: Sequence[str], prefix: str = LOCAL_FILES, blind: bool = False
) -> list[dict[str, Any]]:
    """Doubtful labels as tasks to import into Label Studio.

    Parameters
    ----------
    table : DataFrame
        The labels to look at: ``id``, ``image``, ``given``, ``suggested`` and ``doubt``, as
        ``srjt.auditing.exchange.doubtful_labels`` returns them.
    grades : sequence of str
        The grades, mildest first.
    prefix : str
        What stands before the name of each image: Label Studio's local storage, or the address of a
        web server.
    blind : bool
        Leave out the present grade and the likelier one, for an independent reading.

    Returns
    -------
    list of dict
        One task per row, with the likelier grade as a pre-annotation where there is one.
    """
    made = []
    for row in table.to_dict("records"):
        task: dict[str, Any] = {
            "data": {"image": f"{prefix}{row['image']}", "srjt_id": str(row["id"])}
        }
        if not blind:
            task["data"]["present_grade"] = str(row["given"])
            if row["suggested"]:  # else no other grade is likelier than the present one
                task["predictions"] = [_prediction(str(row["suggested"]), float(row["doubt"]))]
        made.append(task)
    unknown = {str(row["given"]) for row in table.to_dict("records")} - set(grades)
    if unknown:
        raise SrjtError(
            "The table has grades that are not in the list of grades:"
            f" {', '.join(sorted(unknown))}.",
            code="unknown_grade",
        )
    return made


def _prediction(grade: str, doubt: float) -> dict[str, Any]:
    result = {
        "from_name": "grade",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [grade]},
    }
    prediction: dict[str, Any] = {"model_version": MODEL, "result": [result]}
    # where the audit does not know a probability, the tasks have their order alone
    if not math.isnan(doubt):
        prediction["score"] = round(doubt, 6)
    return prediction
