"""Label Studio: the fixtures are exports that Label Studio 1.23.2 wrote of tasks that srjt had
made."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import srjt
from fixtures.audit_folders import make_audit
from refusals import refuses
from srjt.auditing.exchange import doubtful_labels, import_decisions
from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions
from srjt.cli import main
from srjt.data.sources.readings import read_readings
from srjt.integrations import label_studio

EXPORTS = Path(__file__).parents[1] / "fixtures" / "label_studio"


@pytest.mark.parametrize("name", ["export.json", "export_min.json"])
def test_an_export_is_a_table_of_readings(name: str) -> None:
    table = read_readings(EXPORTS / name)
    assert len(table.readings) == 8
    assert table.readings.readers == ["1"]
    assert table.readings.grades == ("0", "1", "2", "3")
    assert table.readings.items[0] == "p011/0000.png"
    assert table.readings.grade.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert table.readings.times is not None
    assert "annotations without a grade, left out" in " ".join(table.notes)


def test_skipped_tasks_are_left_out_and_counted() -> None:
    assert (
        "skipped or cancelled annotations, left out: 1"
        in read_readings(EXPORTS / "export.json").notes
    )


def annotated(image: str, *answers: tuple[Any, str], cancelled: bool = False) -> dict[str, Any]:
    """A task of Label Studio with these annotators and choices."""
    annotations = [
        {
            "completed_by": who,
            "was_cancelled": cancelled,
            "result": [
                {
                    "type": "choices",
                    "from_name": "grade",
                    "to_name": "image",
                    "value": {"choices": [grade]},
                }
            ],
        }
        for who, grade in answers
    ]
    return {"id": 1, "data": {"image": image}, "annotations": annotations}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/data/upload/3/0a1b2c3d-left_eye.png", "left_eye.png"),
        ("/data/local-files/?d=set/p1/a.png", "set/p1/a.png"),
        ("https://example.org/images/a.png", "example.org/images/a.png"),
        ("s3://bucket/p1/a.png", "bucket/p1/a.png"),
        ("a.png", "a.png"),
    ],
)
def test_images_have_the_names_of_their_files(tmp_path: Path, address: str, name: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps([annotated(address, (1, "0"), ({"id": 2, "email": "bo@example.org"}, "1"))])
    )
    readings = read_readings(path).readings
    assert readings.items == [name]
    assert readings.readers == ["1", "bo@example.org"]


def test_ratings_and_numbers_are_grades(tmp_path: Path) -> None:
    task = annotated("a.png", (1, "0"))
    task["annotations"][0]["result"] = [
        {"type": "rating", "from_name": "mayo", "value": {"rating": 3}}
    ]
    other = annotated("b.png", (1, "0"))
    other["annotations"][0]["result"] = [
        {"type": "number", "from_name": "mayo", "value": {"number": 2}}
    ]
    (tmp_path / "export.json").write_text(json.dumps([task, other]))
    assert label_studio.read(tmp_path / "export.json").frame["grade"].tolist() == ["3", "2"]


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ([annotated("a.png", (1, "0"), cancelled=True)], "too_few"),
        (["text"], "wrong_file"),
        (
            [
                {
                    "data": {},
                    "annotations": [
                        {"result": [{"type": "choices", "value": {"choices": ["0", "1"]}}]}
                    ],
                }
            ],
            "too_many",
        ),
    ],
)
def test_what_cannot_be_a_grade_is_an_error(tmp_path: Path, tasks: Any, code: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    with refuses(code):
        label_studio.read(path)


def test_a_truncated_export_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_bytes((EXPORTS / "export.json").read_bytes()[:2000])
    with refuses("wrong_file", says="JSON"):
        srjt.data.read_readings(path)


def test_other_json_files_are_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"annotations": 1}')
    with refuses("wrong_file"):
        srjt.data.read(path)


@pytest.mark.slow
def test_tasks_show_the_most_doubtful_labels_first(tmp_path: Path) -> None:
    audit = read_audit(make_audit(tmp_path / "audit"))
    table, folder = doubtful_labels(audit, limit=10)
    tasks = label_studio.tasks(table, grades=list(audit.grades))
    assert [task["data"]["srjt_id"] for task in tasks] == audit.ids[:10]
    assert all(
        (folder / task["data"]["image"].removeprefix(label_studio.LOCAL_FILES)).is_file()
        for task in tasks
    )
    for line, task in enumerate(tasks):
        likelier = audit.grades[audit.suggested[line]]
        label = audit.grades[audit.labels[line]]
        assert task["data"]["present_grade"] == label
        if likelier == label:
            assert "predictions" not in task
        else:
            (prediction,) = task["predictions"]
            assert prediction["result"][0]["value"]["choices"] == [likelier]
            assert prediction["score"] == pytest.approx(1 - audit.quality[line], abs=1e-6)
    blind = label_studio.tasks(table, grades=list(audit.grades), blind=True)
    assert all(task.keys() == {"data"} and "present_grade" not in task["data"] for task in blind)


def test_no_probability_is_sent_where_none_is_known(tmp_path: Path) -> None:
    folder = make_audit(tmp_path / "audit")
    facts = json.loads((folder / "audit.json").read_text())
    (folder / "audit.json").write_text(json.dumps(facts | {"determined": False}))
    table, _ = doubtful_labels(read_audit(folder), limit=10)
    tasks = label_studio.tasks(table, grades=list(read_audit(folder).grades))
    predictions = [prediction for task in tasks for prediction in task.get("predictions", ())]
    assert predictions
    assert not any("score" in prediction for prediction in predictions)


def test_the_interface_offers_the_grades_in_their_order() -> None:
    root = ElementTree.fromstring(label_studio.labelling_config(["none", 'a "b" & <c>', "severe"]))
    assert [choice.get("value") for choice in root.iter("Choice")] == [
        "none",
        'a "b" & <c>',
        "severe",
    ]


def test_grades_come_back_as_decisions_once(tmp_path: Path) -> None:
    folder = make_audit(tmp_path / "audit")
    audit = read_audit(folder)
    label = audit.grades[audit.labels[0]]
    other = next(
        name for name in audit.grades if name not in (label, audit.grades[audit.suggested[0]])
    )
    tasks = [
        annotated(f"/data/local-files/?d=audit-data/{audit.ids[0]}", ("ann", other)),
        annotated(
            f"/data/local-files/?d=audit-data/{audit.ids[1]}",
            ("ann", audit.grades[audit.labels[1]]),
        ),
        annotated("elsewhere.png", ("ann", label)),
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    table = read_readings(tmp_path / "export.json", grades=list(audit.grades))
    decisions = Decisions(folder / "decisions.sqlite")
    first = import_decisions(audit, decisions, table)
    again = import_decisions(audit, decisions, table)
    assert (first.added, first.known_before, first.elsewhere) == (2, 0, ("elsewhere.png",))
    assert (again.added, again.known_before) == (0, 2)
    assert [(entry.id, entry.action, entry.to_grade) for entry in decisions.log()] == [
        (audit.ids[0], "set", other),
        (audit.ids[1], "keep", audit.grades[audit.labels[1]]),
    ]
    decisions.close()


def test_the_round_trip_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_audit(tmp_path / "audit")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["srjt", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    status, said = run(
        "review", "export", "audit", "--to", "label-studio", "--out", "tasks.json", "--limit", "3"
    )
    assert status == 0, said
    assert "tasks.json has 3 tasks" in said
    assert (
        run("review", "export", "audit", "--to", "label-studio", "--out", "tasks.json")[0] == 2
    )  # it exists
    assert (
        "--out tasks.json"
        in run("review", "export", "audit", "--to", "label-studio", "--out", "t.csv")[1]
    )
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    for task in tasks:
        task["annotations"] = annotated("", ("bo", "Mayo 0"))["annotations"]
    (tmp_path / "done.json").write_text(json.dumps(tasks))
    status, said = run("review", "import", "audit", "done.json")
    assert status == 0, said
    assert "3 decisions added" in said
    assert run("review", "export", "audit", "--out", "clean.csv")[0] == 0
    clean = pd.read_csv(tmp_path / "clean.csv", dtype=str).set_index("image")
    assert clean.loc[read_audit(folder).ids[:3], "grade"].tolist() == ["Mayo 0"] * 3
    assert set(clean["reviewed_by"].dropna()) == {"bo"}
