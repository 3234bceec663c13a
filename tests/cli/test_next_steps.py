"""Every command that is printed as the next step works as it is printed; and every command reads a
table by the file beside it.
"""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from srjt.auditing.review_app import BlindSession, ReviewSession
from srjt.cli import study
from srjt.data.synthetic import generate

from .conftest import Srjt

TINY = [
    "--device", "cpu", "--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "1", "--batch-size", "16",
]  # fmt: skip


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A table as people have them: columns of other names, a missing file, a typing error, a row
    without a grade."""
    data = generate(images=60, patients=20, size=32)
    assert data.arrays is not None
    folder = tmp_path / "here" / "photographs"
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{row:03d}.png" for row in range(60)]
    for name, pixels in zip(names, data.arrays, strict=True):
        Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(folder / name)
    grades = [str(grade) for grade in data.labels]
    grades[10], grades[11] = "22", ""
    (folder / names[30]).unlink()
    table = pd.DataFrame(
        {"nr": range(60), "photo of": names, "Severity (0-3)": grades, "person_no": data.patients}
    )
    path = tmp_path / "here" / "my labels.csv"
    table.to_csv(path, index=False)
    return path


def next_steps(printed: str) -> list[list[str]]:
    """The words of every command after "Next:", without "srjt"."""
    commands = [
        shlex.split(line) for line in re.findall(r"^Next: srjt (.*)$", printed, flags=re.MULTILINE)
    ]
    assert commands, printed
    return commands


@pytest.mark.slow
def test_a_table_is_read_once(command: Srjt, awkward: Path) -> None:
    code, out, _ = command("data", "inspect", awkward.name)
    assert code == 1  # some samples cannot be used
    assert "line 12 has '22'" in out
    kept = awkward.with_suffix(".srjt.yaml").read_text()
    for line in (
        "image_column: photo of",
        "grade_column: Severity (0-3)",
        "patient_column: person_no",
    ):
        assert line in kept
    (words,) = next_steps(out)
    code, out, err = command(*words, *TINY, "--quiet")
    assert code == 0, err
    assert "Options from my labels.srjt.yaml are used: --image-column 'photo of'" in err
    assert "Left out: 1 missing-grade (011.png); 1 invalid-grade (010.png)" in err


@pytest.fixture
def kept(command: Srjt, awkward: Path) -> Path:
    """The same table with its reading file, which leaves out what cannot be used."""
    command("data", "inspect", awkward.name, "--on-bad-image", "skip")
    return awkward


@pytest.mark.slow
def test_every_command_uses_the_reading_file(command: Srjt, kept: Path, tmp_path: Path) -> None:
    name = kept.name
    assert (
        command("train", name, "--fold", "0", "--out", "run", "--method", "standard", *TINY)[0] == 0
    )
    for words in (
        ["evaluate", "run", name, "--fold", "0"],
        ["evaluate", "run", name, "--splits", "run"],
        ["predict", "run", name],
        ["explain", "run", name, "--limit", "2", "--training", name],
        ["compare", "run", "run"],
        ["data", "split", name],
        ["data", "corrupt", name, "--rate", "0.2"],
        ["audit", name, "--out", "audit", "--folds", "3", *TINY],
        [
            "study",
            name,
            "--methods",
            "standard",
            "--fold",
            "0",
            "--out",
            "study",
            *TINY[2:],
            "--device",
            "cpu",
        ],
    ):
        code, _, err = command(*words)
        assert code == 0, (words, err)
    test = pd.read_csv("predictions.csv")
    assert len(test) == 59  # without the missing file; a row without a grade is an image, too


@pytest.mark.slow
def test_a_missing_file_moves_no_fold(command: Srjt, kept: Path) -> None:
    """The sides of a training that leaves images out are those of the dry run, and of an
    evaluation."""
    words = ["train", kept.name, "--fold", "0", "--out", "run", "--method", "standard", *TINY]
    code, planned, _ = command(*words, "--dry-run")
    assert code == 0
    counts = dict(re.findall(r"^ (train|validation|test) +│ +(\d+) ", planned, flags=re.MULTILINE))
    assert command(*words)[0] == 0
    held_out = pd.read_csv("run/held_out.csv")["side"].value_counts()
    assert {side: int(count) for side, count in counts.items()} == {
        "train": len(pd.read_csv("run/history.csv")), **held_out.to_dict(),
    }  # fmt: skip
    assert pd.read_csv("run/skipped.csv")["id"].tolist() == ["030.png"]
    _, by_fold, _ = command("evaluate", "run", kept.name, "--fold", "0")
    _, by_run, _ = command("evaluate", "run", kept.name, "--splits", "run")
    assert by_fold == by_run
    assert f"on {counts['test']} images" in by_fold


@pytest.mark.slow
def test_next_steps_of_a_training_and_an_audit(
    command,
    labelled: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = []

    def serve(session: ReviewSession | BlindSession, server: object, started: object) -> None:
        served.append(type(session))
        if isinstance(session, BlindSession) and served.count(BlindSession) > 1:
            for position, line in enumerate(session.lines):
                session.answer(position, int(session.audit.labels[line]))

    monkeypatch.setattr("srjt.auditing.review_app.serve", serve)
    monkeypatch.setattr("srjt.auditing.review_app.open_browser", lambda server: None)
    code, out, _ = command(
        "train", labelled, "--fold", "0", "--out", "first", "--method", "standard", *TINY
    )
    for words in next_steps(out):
        assert command(*words)[0] == 0, words
    code, out, err = command("audit", labelled, "--out", "audit", "--folds", "3", *TINY)
    assert code == 0, err
    steps = []
    while (words := next_steps(out)[0])[:2] != ["review", "export"]:
        steps.append(words[0])
        code, out, err = command(*words)
        assert code == 0, (words, err)
    # the first time nobody verifies a label; then the rate is known
    assert steps == ["review", "review", "audit", "review"]
    assert served == [BlindSession, BlindSession, ReviewSession]
    assert words == ["review", "export", "audit", "--out", "labels_clean.csv"]
    code, out, err = command(*words)  # although nobody has decided anything
    assert code == 0, err
    (words,) = next_steps(out)
    code, _, err = command(*words, *TINY)
    assert code == 0, (words, err)


@pytest.mark.slow
def test_next_steps_of_readers(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From readings to a worklist, to its answers, and to readings again."""
    table = pd.read_csv(labelled)
    parts = [table.assign(reader=name).iloc[place::2] for place, name in enumerate(("anna", "bo"))]
    parts.append(table.assign(reader="carl"))
    readings = labelled.with_name("readings.csv")
    pd.concat(parts)[["image", "reader", "grade"]].to_csv(readings, index=False)
    monkeypatch.setattr("srjt.auditing.review_app.open_browser", lambda server: None)
    monkeypatch.setattr("srjt.auditing.review_app.serve", lambda session, server, started: None)
    _, out, _ = command("readers", readings, "--out", "agreed", "--next", "4")
    (words,) = next_steps(out)
    code, out, err = command(*words)
    assert code == 0, err
    assert "Next: " not in out  # there is nothing to export

    def read_all(session: BlindSession, server: object, started: object) -> None:
        for place in range(len(session.lines)):
            session.answer(place, 1)

    monkeypatch.setattr("srjt.auditing.review_app.serve", read_all)
    _, out, _ = command(*words)
    assert command("review", "export", "agreed", "--readings", "--out", "more.csv")[0] == 0
    left = 4
    while (words := next_steps(out)[0]) != ["plan", "agreed"]:  # readings, and who still has to
        code, out, err = command(*words)
        assert code == 0, (words, err)
        left -= words[0] == "review"
        assert left >= 0, words
    assert command(*words)[0] == 0


@pytest.mark.slow
def test_a_study_of_readers_is_begun_read_planned_and_read_again_in_one_folder(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder of images to a plan, and to second readings, which do not show the first."""
    monkeypatch.setattr("srjt.auditing.review_app.open_browser", lambda server: None)
    shown = []

    def read(session: BlindSession, server: object, started: object) -> None:
        shown.append(session.answers())
        for place in range(len(session.lines)):
            session.answer(place, (place + len(shown)) % 3 // 2)

    monkeypatch.setattr("srjt.auditing.review_app.serve", read)
    images = labelled.parent
    asked = ("--ask", "anna,bo", "--grades", "0,1", "--out", "study")
    assert "A study begins with --next" in command.refuses("readers", images, *asked)
    code, out, err = command("readers", images, *asked, "--next", "24")
    assert code == 0, err
    assert "Nobody has read an image of study yet" in command.refuses("readers", "study")
    assert "has begun" in command.refuses("readers", images, *asked, "--next", "24")
    for reader in ("anna", "bo"):
        assert next_steps(out)[0] == ["review", "study", "--reviewer", reader]
        _, out, _ = command(*next_steps(out)[0])
        code, out, err = command(*next_steps(out)[0])  # srjt readers study
        assert code == 0, err
    assert shown == [[None] * 24] * 2
    assert len(pd.read_csv("study/readings.csv")) == 48
    unread = set(pd.read_csv("study/unread.csv")["id"])
    assert len(unread) == 120 - 24
    assert command(*next_steps(out)[0])[0] == 0  # srjt plan study
    # nobody has read the other images, and of those that both have read little is to be known
    _, out, _ = command("readers", "study", "--next", "6")
    assert set(pd.read_csv("study/worklist.csv")["image"]) <= unread
    _, out, _ = command("readers", "study", "--again", "5")
    assert "(10 readings: anna 5, bo 5)" in out
    for _ in range(2):
        _, out, _ = command(*next_steps(out)[0])
        _, out, _ = command(*next_steps(out)[0])
    assert shown[2:] == [[None] * 5] * 2
    table = pd.read_csv("study/readings.csv")
    assert len(table) == 58
    assert (table.groupby(["image", "reader"]).size() == 2).sum() == 10
    assert "srjt readers study" in command.refuses("report", "study")


@pytest.mark.slow
def test_next_step_of_features(command: Srjt, labelled: Path) -> None:
    code, out, err = command(
        "features", labelled, "--backbone", "tiny", "--no-pretrained", "--image-size", "32",
        "--crop", "28", "--out", "features.npz",
    )  # fmt: skip
    assert code == 0, err
    (words,) = next_steps(out)
    code, _, err = command(*words, "--epochs", "1", "--device", "cpu")
    assert code == 0, (words, err)


@pytest.mark.slow
def test_next_steps_of_synthetic_data(command: Srjt) -> None:
    _, out, _ = command(
        "data", "synthetic", "drawn", "--images", "60", "--patients", "20", "--size", "32"
    )
    (words,) = next_steps(out)
    code, out, _ = command(*words)
    assert code == 0
    (words,) = next_steps(out)
    code, _, err = command(*words, *TINY)
    assert code == 0, err


@pytest.mark.slow
def test_next_step_of_the_demo(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the demo does is tested in tests/reports/test_demo.py; this is its last line, for a
    table of that name."""
    monkeypatch.setattr("srjt.reports.demo.run_demo", lambda out, **_: [])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    _, out, _ = command("demo")
    program, *words = shlex.split(out.splitlines()[-1])
    assert (program, words) == ("srjt", ["analyse", "labels.csv"])
    assert labelled.name == "labels.csv"
    code, _, err = command(words[0], labelled, *TINY, "--method", "standard")
    assert code == 0, err


@pytest.mark.parametrize(
    ("found", "called", "printed"),
    [
        ("/usr/bin/srjt", "/usr/bin/srjt", "srjt"),
        (None, ".venv/bin/srjt", ".venv/bin/srjt"),
        (None, "/somewhere/srjt/__main__.py", f"{shlex.quote(sys.executable)} -m srjt"),
    ],
)
def test_a_program_that_is_not_on_the_path_is_named_as_it_was_called(
    found: str | None, called: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr("sys.argv", [called, "demo"])
    assert study._program() == printed


@pytest.mark.slow
def test_next_step_of_a_study(command: Srjt, labelled: Path) -> None:
    words = ["study", labelled, "--methods", "standard", "--fold", "0", "--out", "study", *TINY]
    code, out, err = command(*words)
    assert code == 0, err
    for following in next_steps(out):
        assert command(*following)[0] == 0
    assert Path("study/report.html").exists()


def test_grades_in_a_gap_are_listed_in_the_next_step(command: Srjt, tmp_path: Path) -> None:
    folder = tmp_path / "here" / "images"
    folder.mkdir()
    for row in range(30):
        Image.new("RGB", (8, 8), (row, 0, 0)).save(folder / f"{row}.png")
    rows = {
        "image": [f"{row}.png" for row in range(30)],
        "grade": [(0, 1, 4)[row % 3] for row in range(30)],
    }
    pd.DataFrame(rows).to_csv("labels.csv", index=False)
    code, out, _ = command("data", "inspect", "labels.csv")
    assert code == 1
    (words,) = next_steps(out)
    assert words == ["data", "inspect", "labels.csv", "--grades", "0,1,2,3,4"]
    assert command(*words)[0] == 0
