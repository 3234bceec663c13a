"""``srjt review`` and its export: the corrected table, its provenance, and the agreement of two
reviewers."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pandas as pd
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

from fixtures.audit_folders import make_audit
from fixtures.run_folders import edit_json
from refusals import about, explained
from srjt.auditing.corrected_table import training_command
from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions, LogEntry

Command = Callable[..., tuple[int, str]]
PROVENANCE = ["original_grade", "reviewed_by", "reviewed_at", "decision"]


class Reviewer:
    def __init__(self, folder: Path, name: str) -> None:
        self.audit = read_audit(folder)
        self.store = Decisions(folder / "decisions.sqlite")
        self.name = name

    def __call__(self, line: int, action: str, grade: int | None = None) -> LogEntry:
        self.store.refresh()
        sample, label = self.audit.ids[line], self.audit.grades[self.audit.labels[line]]
        to = label if grade is None else self.audit.grades[grade]
        seen = self.store.current.last_revision.get(sample, 0)
        return self.store.decide(
            sample, reviewer=self.name, action=action, grade=to, label=label, seen=seen
        )  # type: ignore[arg-type]


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def test_the_original_table_with_its_label_column_replaced(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=16)
    audit = read_audit(folder)
    with audit.table.open("a") as file:  # a row that came later
        file.write("images/new.png,Mayo 1,p9,A,\n")
    before = audit.table.read_bytes()
    anna = Reviewer(folder, "anna")
    other = (int(audit.labels[0]) + 1) % 4
    changed = anna(0, "set", other)
    anna(1, "keep")
    anna(2, "skip")
    undone = anna(3, "set", (int(audit.labels[3]) + 1) % 4)
    anna.store.undo(undone.revision, reviewer="anna", label=audit.grades[audit.labels[3]])

    code, said = srjt("review", "export", folder, "--out", "clean.csv")
    assert code == 0, said
    assert "17 rows, 2 reviewed, 1 changed, 1 skipped" in said
    assert "Not audited and copied unchanged: 1 row of labels.csv." in said
    original, clean = read(audit.table), read(tmp_path / "clean.csv")
    assert list(clean.columns) == [*original.columns, *PROVENANCE]
    kept = [column for column in original.columns if column != "grade"]
    pd.testing.assert_frame_equal(clean[kept], original[kept])  # order and all other cells
    assert clean["original_grade"].tolist() == original["grade"].tolist()
    rows = clean.set_index("image")
    assert rows.loc[audit.ids[0], "grade"] == audit.grades[other]
    assert rows.loc[audit.ids[0], PROVENANCE[1:]].tolist() == ["anna", changed.at, "set"]
    assert rows.loc[audit.ids[1], "decision"] == "keep"
    assert rows.loc[audit.ids[2], "decision"] == "skip"
    same = clean["image"] != audit.ids[0]
    assert (clean["grade"] == clean["original_grade"])[same].all()
    assert (clean["decision"] == "").sum() == 14
    assert audit.table.read_bytes() == before
    assert list(tmp_path.glob(".*")) == []  # nothing half-written is left


@pytest.mark.slow
def test_the_printed_command_reads_the_corrected_table(tmp_path: Path, srjt: Command) -> None:
    """Image names in it are still relative to the folder of the audited table."""
    folder = make_audit(tmp_path / "audit", images=16)
    Reviewer(folder, "anna")(0, "keep")
    audit = read_audit(folder)
    read_with = ["--images", str(audit.table.parent), "--grades", ",".join(audit.grades)]
    edit_json(folder / "audit.json", read_with=read_with)
    code, said = srjt("review", "export", folder, "--out", "clean.csv")
    command = shlex.split(said.split("Next: ")[1])
    assert code == 0
    assert command[:2] == ["srjt", "train"]
    assert ("cpu" in command) == (not torch.cuda.is_available())
    code, said = srjt("data", "inspect", *command[2 : command.index("--out")])
    assert code == 0, said
    Path("run").mkdir()
    Path("run2").touch()
    beside = training_command(read_audit(folder), audit.table.parent / "clean.csv")
    assert "--images" not in beside
    assert "--out run3" in beside  # what exists may be another training


@pytest.mark.slow
def test_images_without_a_table_give_a_new_table(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=16, table=False)
    Reviewer(folder, "anna")(5, "accept", 0)
    said = srjt("review", "export", folder, "--out", "elsewhere/clean.csv")[1]
    clean = read(tmp_path / "elsewhere" / "clean.csv")
    assert list(clean.columns) == ["id", "image", "grade", "patient", "reader", *PROVENANCE]
    assert clean["id"].tolist() == sorted(clean["id"])
    assert clean.set_index("id").loc[read_audit(folder).ids[5], "grade"] == "Mayo 0"
    assert "Next: srjt train elsewhere/clean.csv --out run " in said
    assert "--splits RUN keeps those of an earlier run" in said
    code, said = srjt("data", "inspect", "elsewhere/clean.csv")
    assert code == 0, said
    edit_json(folder / "audit.json", features=True, source="embedded.npz")
    command = training_command(read_audit(folder), Path("clean.csv"))
    assert command.startswith("srjt train embedded.npz --labels clean.csv --out")


def test_the_spelling_of_grades_is_kept_and_any_delimiter_is_read(
    tmp_path: Path, srjt: Command
) -> None:
    """An id column, semicolons, grades as 0 … 3 in a column of another name."""
    folder = make_audit(tmp_path / "audit", images=16, grades=("0", "1", "2", "3"))
    audit = read_audit(folder)
    frame = read(audit.table).rename(columns={"grade": "severity"})
    frame["decision"] = "of an earlier review"
    frame.to_csv(audit.table, index=False, sep=";")
    edit_json(folder / "audit.json", label_column="severity")
    Reviewer(folder, "anna")(0, "set", 3 - int(audit.labels[0]))
    assert srjt("review", "export", folder, "--out", "clean.csv")[0] == 0
    clean = read(tmp_path / "clean.csv").set_index("image")
    assert clean.loc[audit.ids[0], "severity"] == str(3 - audit.labels[0])
    assert clean.loc[audit.ids[0], ["decision", "decision_2"]].tolist() == [
        "of an earlier review",
        "set",
    ]


def test_verified_grades_are_in_the_corrected_table(tmp_path: Path, srjt: Command) -> None:
    """The last grade counts; a skip is none. Those of the table itself are told of, not applied."""
    folder = make_audit(tmp_path / "audit", images=16)
    audit = read_audit(folder)
    labels = [audit.grades[label] for label in audit.labels]
    others = [audit.grades[(int(label) + 1) % 4] for label in audit.labels]
    anna = Reviewer(folder, "anna")
    anna(2, "set", (int(audit.labels[2]) + 2) % 4)  # before it was verified
    anna(3, "skip")
    for line, grade in ((0, others[0]), (1, labels[1]), (2, others[2]), (3, others[3])):
        anna.store.add_answer(audit.ids[line], purpose="verify", reviewer="bo", grade=grade)
    anna.store.add_answer(audit.ids[4], purpose="verify", reviewer="bo", grade=None)
    anna.store.add_answer(audit.ids[5], purpose="verify", reviewer="bo", grade=others[5])
    anna.store.add_answer(audit.ids[6], purpose="read", reviewer="bo", grade=others[6])
    wait = anna.store.verified()[audit.ids[5]].at
    while (decided := anna(5, "keep")).at <= wait:  # after it was verified
        pass
    scores = read(folder / "audit.csv")
    scores["verified_grade"] = [others[0], *[""] * 6, others[7], labels[8], *[""] * 7]
    scores.to_csv(folder / "audit.csv", index=False)

    code, said = srjt("review", "export", folder, "--out", "clean.csv")
    assert code == 0, said
    assert "16 rows, 1 reviewed, 0 changed, 0 skipped; 3 of 4 verified labels changed." in said
    assert "Not applied: 1 verified grade of the table" in said
    rows = read(tmp_path / "clean.csv").set_index("image").loc[audit.ids]
    corrected = [*others[:1], labels[1], *others[2:4], *labels[4:]]
    assert rows["grade"].tolist() == corrected
    assert rows["original_grade"].tolist() == labels
    assert rows["decision"].tolist() == [*["verify"] * 4, "", "keep", *[""] * 10]
    assert rows["reviewed_by"].tolist() == [*["bo"] * 4, "", "anna", *[""] * 10]
    assert rows["reviewed_at"].iloc[5] == decided.at


@pytest.mark.parametrize("written", ["absolute", "absolute in another folder", "backslashes"])
def test_images_are_named_as_the_audit_read_them(
    tmp_path: Path, srjt: Command, written: str
) -> None:
    """Ids are relative to --images, wherever the table is and however it writes the paths."""
    folder = make_audit(tmp_path / "audit", images=16)
    audit = read_audit(folder)
    root = audit.table.parent
    frame = read(audit.table)
    table = tmp_path / "tables" / "labels.csv" if "folder" in written else audit.table
    table.parent.mkdir(exist_ok=True)
    if written == "backslashes":
        frame["image"] = frame["image"].str.replace("/", "\\")
    else:
        frame["image"] = [str(root / name) for name in frame["image"]]
    frame.to_csv(table, index=False)
    edit_json(folder / "audit.json", table=str(table), read_with=["--images", str(root)])
    other = (int(audit.labels[0]) + 1) % 4
    Reviewer(folder, "anna")(0, "set", other)
    code, said = srjt("review", "export", folder, "--out", "clean.csv")
    assert code == 0, said
    clean = read(tmp_path / "clean.csv")
    assert clean["image"].tolist() == frame["image"].tolist()
    changed = clean[clean["grade"] != clean["original_grade"]]
    assert changed["grade"].tolist() == [audit.grades[other]]
    assert changed["image"].item().replace("\\", "/").endswith(audit.ids[0])


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=16)
    table = read_audit(folder).table
    with explained() as errors:
        code, _ = srjt("review", "export", folder)
    assert (code, [*map(about, errors)]) == (2, ["not_finished"])
    Reviewer(folder, "anna")(0, "keep")

    before = table.read_bytes()
    (tmp_path / "link.csv").symlink_to(table)
    os.link(table, tmp_path / "hard.csv")
    for out in (table, "link.csv", "hard.csv"):
        with explained() as errors:
            srjt("review", "export", folder, "--out", out, "--force")
        assert [*map(about, errors)] == ["file_exists out"]
    assert table.read_bytes() == before

    (tmp_path / "there.csv").write_text("mine")
    code, said = srjt("review", "export", folder, "--out", "there.csv")
    assert (code, "--force" in said, (tmp_path / "there.csv").read_text()) == (2, True, "mine")
    assert srjt("review", "export", folder, "--out", "there.csv", "--force")[0] == 0

    labels = read(table)
    labels["grade"] = labels["grade"].iloc[::-1].tolist()
    labels.to_csv(table, index=False)
    with explained() as errors:
        srjt("review", "export", folder, "--out", "new.csv")
        labels.drop(columns="image").to_csv(table, index=False)
        srjt("review", "export", folder, "--out", "new.csv")
        table.unlink()
        srjt("review", "export", folder, "--out", "new.csv")
    assert [*map(about, errors)] == ["data_changed", "data_changed", "missing_file"]
    assert not (tmp_path / "new.csv").exists()


def test_two_reviewers(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=16)
    anna, ben = Reviewer(folder, "anna"), Reviewer(folder, "ben")
    first, second = [0, 1, 2, 3, 0, 1], [0, 1, 1, 3, 2, 1]
    for line, (a, b) in enumerate(zip(first, second, strict=True)):
        anna(line, "set", a)
        ben(line, "set", b)
    anna(7, "keep")
    ben(7, "skip")  # no opinion
    code, said = srjt(
        "review", "export", folder, "--out", "clean.csv", "--conflicts", "conflicts.csv"
    )
    assert code == 0, said
    kappa = cohen_kappa_score(first, second, weights="quadratic")
    assert (
        f"anna and ben both graded 6: they agree on 66.7 %, quadratically weighted κ {kappa:.2f}."
        in said
    )
    audit = anna.audit
    assert (
        "Reviewers differ about 2 samples. The last decision counts; conflicts.csv lists them."
        in said
    )
    clean = read(tmp_path / "clean.csv").set_index("image")
    assert clean.loc[audit.ids[2], ["grade", "reviewed_by"]].tolist() == [
        "Mayo 1",
        "ben",
    ]  # the last counts
    listed = read(tmp_path / "conflicts.csv")
    assert sorted(set(listed["id"])) == sorted([audit.ids[2], audit.ids[4]])
    assert len(listed) == 4
    code, said = srjt(
        "review", "export", folder, "--out", "new.csv", "--conflicts", "conflicts.csv"
    )
    assert (code, "conflicts.csv already exists" in said) == (2, True)
    code, said = srjt(
        "review", "export", folder, "--out", "new.csv", "--conflicts", "new.csv", "--force"
    )
    assert (code, "name the same file" in said) == (2, True)
    assert not (
        tmp_path / "new.csv"
    ).exists()  # a table without its conflicts is not what was asked for


def test_reviewers_who_agree_have_no_conflicts(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=8)
    Reviewer(folder, "anna")(0, "set", 1)
    code, said = srjt(
        "review", "export", folder, "--out", "clean.csv", "--conflicts", "conflicts.csv"
    )
    assert (code, "Reviewers differ about 0 samples" in said) == (0, True)
    assert read(tmp_path / "conflicts.csv").empty


def test_two_reviewers_one_with_an_unknown_grade(
    audit_folder: Path, tmp_path: Path, srjt: Command
) -> None:
    """As after an audit with other grades: the decision stays in the log, and everything else is
    exported."""
    anna, ben = Reviewer(audit_folder, "anna"), Reviewer(audit_folder, "ben")
    sample, label = anna.audit.ids[0], anna.audit.grades[anna.audit.labels[0]]
    anna.store.decide(sample, reviewer="anna", action="set", grade="Mayo 9", label=label, seen=0)
    for line in range(3):
        ben(line, "set", 1)
    anna(1, "set", 1)
    code, said = srjt(
        "review", "export", audit_folder, "--out", "clean.csv", "--conflicts", "conflicts.csv"
    )
    assert code == 0, said
    assert "anna and ben both graded 1: they agree on 100.0 %" in said
    assert read(tmp_path / "clean.csv").set_index("image").loc[sample, "grade"] == "Mayo 1"
    assert read(tmp_path / "conflicts.csv")["grade"].tolist() == ["Mayo 9", "Mayo 1"]
    assert len(ben.store.log()) == 5
    last = ben.store.current.last_revision[sample]
    ben.store.decide(sample, reviewer="ben", action="set", grade="Mayo 9", label=label, seen=last)
    code, said = srjt("review", "export", audit_folder, "--out", "clean.csv", "--force")
    assert code == 2  # its grade would be lost
    assert "'Mayo 9', which is not a grade of this audit: decide it again in srjt review." in said
    assert len(ben.store.log()) == 6


def test_formulas_do_not_run_in_a_spreadsheet(tmp_path: Path, srjt: Command) -> None:
    folder = make_audit(tmp_path / "audit", images=16)
    Reviewer(folder, '=HYPERLINK("http://evil")')(0, "keep")
    table = read_audit(folder).table
    table.write_text(table.read_text().replace(",A,", ",@SUM(A1),", 1))
    code, out = srjt("review", "export", folder, "--out", "corrected.csv")
    assert code == 0
    assert '\'=HYPERLINK("http://evil")' in read(tmp_path / "corrected.csv")["reviewed_by"].tolist()
    assert (
        "corrected.csv has cells that a spreadsheet may run as formulas (1; the first is '@SUM(A1)'"
        in out
    )


# ``srjt review`` itself: its output, its end, its errors.
@pytest.mark.slow
def test_it_prints_the_address_serves_and_prints_a_summary(audit_folder: Path, serve: Any) -> None:
    served = serve(audit_folder, "--reviewer", "anna", "--limit", 5)
    browser = build_opener(HTTPCookieProcessor())
    browser.open(served.address).read()
    home = f"http://127.0.0.1:{served.port}"
    assert b"review.js" in browser.open(home).read()
    assert b'"queue":5' in browser.open(f"{home}/api/samples").read()
    sample = read_audit(audit_folder).ids[0].encode()
    body = b'{"line": 0, "id": "%s", "action": "keep", "seen": 0, "since": 0}' % sample
    browser.open(Request(f"{home}/api/decide", body, {"Origin": home})).read()
    said = served.interrupt()
    assert served.status == 0
    assert "1 of 5 reviewed, 0 changed, estimated remaining noise" in said
    assert "1 decided in this session" in said
    assert f"srjt review export {audit_folder} --out labels_clean.csv" in said
    assert "Traceback" not in said
    assert [entry.reviewer for entry in Decisions(audit_folder / "decisions.sqlite").log()] == [
        "anna"
    ]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["FOLDER", "--host", "0.0.0.0"], "missing_option host"),
        (["FOLDER", "--reviewer", " "], "wrong_values reviewer"),
        (["FOLDER", "--sample", "5", "--limit", "5"], "conflict sample"),
        (["FOLDER", "--worklist", "w.csv", "--sample", "3"], "conflict worklist"),
        (["../no/folder"], "wrong_file"),
    ],
)
def test_bad_input(
    options: list[str], wrong: str, shared_audit_folder: Path, srjt: Command
) -> None:
    words = [str(shared_audit_folder) if word == "FOLDER" else word for word in options]
    with explained() as errors:
        code, _ = srjt("review", *words, "--no-open")
    assert (code, [*map(about, errors)]) == (2, [wrong])
