"""``srjt analyse``: one command from a table to a page; what it does again, and what it refuses."""

import json
import re
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions
from srjt.cli import SUMMARIES

from .conftest import Srjt

TINY = [
    "--device",
    "cpu",
    "--network",
    "tiny",
    "--image-size",
    "32",
    "--crop",
    "28",
    "--epochs",
    "2",
    "--batch-size",
    "16",
]


@pytest.mark.slow
def test_one_command_makes_the_page(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.read_csv(labelled).drop(columns="true_grade")
    own = labelled.with_name("own.csv")
    table.to_csv(own, index=False)
    code, out, err = command("analyse", own, *TINY, "--method", "sord")
    assert code == 0, err
    for part in (
        "1 of 6: ",
        "2 of 6: ",
        "3 of 6: training sord",
        "4 of 6: plain training",
        "5 of 6: ",
        "6 of 6: ",
    ):
        assert part in out
    for page in ("index", "inspection", "evaluation", "comparison", "model/report", "audit/audit"):
        assert Path(f"analysis/{page}.html").is_file(), page
    index = Path("analysis/index.html").read_text()
    for heading in ("The data", "The model, and what it confuses", "What would help most", "Next"):
        assert f">{heading}</h2>" in index
    assert 'href="audit/audit.html"' in index
    assert "--without-ids" not in index  # analyse has no such option
    assert "needs no other files" not in index
    assert "plain training of the same network" in index
    used = []
    for run in ("model", "plain"):
        facts = json.loads(Path(f"analysis/{run}/run.json").read_text())
        used.append(facts["config"]["network"])
    assert used == ["tiny", "tiny"]
    # the command of the learning curve works, too
    shown = re.sub("</?span>", "", index)
    curve = re.findall(r"srjt study [^<]+ --learning-curve[^<]*", shown)
    assert len(curve) == 1
    code, planned, err = command(*shlex.split(curve[0])[1:], "--dry-run")
    assert code == 0, err
    assert "15 runs" in planned
    # three commands, each of which works
    served: list[Any] = []
    monkeypatch.setattr(
        "srjt.auditing.review_app.serve", lambda session, server, started: served.append(session)
    )
    commands = [
        shlex.split(line.removeprefix("Next: srjt "))
        for line in out.splitlines()
        if line.startswith("Next: ")
    ]
    assert len(commands) == 3
    for words in commands:
        code, _, err = command(*words)
        assert code == 0, (words, err)
    assert served

    # sides of other rows do not belong to the model
    sides = Path("analysis/splits.csv").read_bytes()
    table.iloc[:-3].to_csv(own, index=False)
    assert "other rows or patients" in command.refuses("analyse", own, *TINY, "--quiet")
    assert Path("analysis/splits.csv").read_bytes() == sides
    table.to_csv(own, index=False)

    # again: nothing is trained twice, and what was verified since is used
    weights = Path("analysis/model/weights.safetensors").stat().st_mtime_ns
    facts = json.loads(Path("analysis/audit/audit.json").read_text())
    assert facts["command"].startswith("srjt analyse ")
    audited = read_audit(Path("analysis/audit"))
    with closing(Decisions(Path("analysis/audit/decisions.sqlite"))) as decisions:
        grade = audited.grades[audited.labels[3]]
        decisions.add_answer(audited.ids[3], purpose="verify", reviewer="anna", grade=grade)
    code, out, _ = command("analyse", own, *TINY, "--method", "sord")
    assert code == 0
    assert "is already finished" in out
    assert Path("analysis/model/weights.safetensors").stat().st_mtime_ns == weights
    summary = json.loads(Path("analysis/audit/summary.json").read_text())
    assert summary["verified"]["labels"] == 1


@pytest.mark.slow
def test_the_numbers_are_those_of_the_commands(command: Srjt, labelled: Path) -> None:
    table = pd.read_csv(labelled).drop(columns=["true_grade", "split"])
    own = labelled.with_name("alone.csv")
    table.to_csv(own, index=False)
    same = [own, "--preset", "cpu", *TINY, "--method", "standard"]
    assert command("analyse", *same)[0] == 0
    assert command("train", *same, "--fold", "0", "--out", "run")[0] == 0
    held_out = [pd.read_csv(f"{folder}/held_out.csv") for folder in ("analysis/model", "run")]
    pd.testing.assert_frame_equal(*held_out)
    sides = pd.read_csv("analysis/splits.csv").set_index("id")["split"]
    assert sides[held_out[0]["id"]].tolist() == held_out[0]["side"].tolist()
    assert not Path("analysis/plain").exists()
    assert "The model is plain training" in Path("analysis/index.html").read_text()


@pytest.mark.slow
def test_what_cannot_be_used_ends_it_with_the_page_of_the_inspection(
    command: Srjt, labelled: Path
) -> None:
    table = pd.read_csv(labelled)
    table.loc[3, "image"] = "gone.png"
    bad = labelled.with_name("bad.csv")
    table.to_csv(bad, index=False)
    sentence = command.refuses("analyse", bad, *TINY, "--quiet")
    assert "1 row or image cannot be used (the first: gone.png" in sentence
    assert "--on-bad-image skip" in sentence
    assert Path("analysis/inspection.html").is_file()


def test_a_folder_with_other_files_is_refused(command: Srjt, labelled: Path) -> None:
    Path("analysis").mkdir()
    Path("analysis/thesis.tex").write_text("")
    assert "contains other files" in command.refuses("analyse", labelled, *TINY, "--quiet")
    Path("other").mkdir()
    Path("other/analysis.json").write_text(json.dumps({"source": "/another/labels.csv"}))
    assert "another source" in command.refuses(
        "analyse", labelled, *TINY, "--out", "other", "--quiet"
    )


def test_the_first_command_of_the_help_is_the_one_for_everything() -> None:
    assert next(iter(SUMMARIES)) == "analyse"
