"""A page without ids, patients and paths, for those who may not see them."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.cli import main
from srjt.reports.page import LEFT_OUT, Page, Section, Tile, leave_out_ids
from srjt.reports.table import Column, Row, Table, TableCell


def test_sentences_tables_and_tiles_name_nobody() -> None:
    columns = (Column(name="patient", label="Patient"), Column(name="grade", label="Grade"))
    rows = (Row(cells=(TableCell(text="mrs-smith"), TableCell(text="2"))),)
    table = Table(slug="t", title="t", caption="of mrs-smith", columns=columns, rows=rows)
    tile = Tile(
        picture="data:image/jpeg;base64,/9j/4AAQ",
        title="1 → 2",
        text="mrs-smith",
        similar=[("", "mr-jones")],
    )
    section = Section(
        "a",
        "A",
        text=["See mrs-smith."],
        code="srjt train /home/eva/x.csv",
        tiles=[tile],
        tables=[table],
    )
    page = Page(
        kind="Run", title="Good", lead="0.5 / 0.7 of mr-jones, in ../data/eva/x.csv", sections=[section],
        warnings=["hf://eva/private is used"],
    )  # fmt: skip
    cleaned = leave_out_ids(page, {"mrs-smith", "mr-jones", "1"})
    shown = repr(cleaned.sections) + cleaned.lead + repr(cleaned.warnings)
    for name in ("smith", "jones", "eva"):
        assert name not in shown
    assert cleaned.lead == f"0.5 / 0.7 of {LEFT_OUT}, in {LEFT_OUT}"
    assert cleaned.sections[0].tiles[0].picture == tile.picture
    assert cleaned.sections[0].tables[0].rows[0].cells[0].text == "patient 1"
    assert cleaned.sections[0].tables[0].rows[0].cells[1].text == "2"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_pages_of_commands_name_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "clinic-of-doctor-eva"
    where.mkdir()
    monkeypatch.chdir(where)
    x = np.random.default_rng(0).standard_normal((80, 3))
    names = [f"smith-{row:03d}" for row in range(80)]
    table = pd.DataFrame(
        {
            "id": [f"sample-{name}" for name in names],
            "patient": names,
            "grade": np.digitize(x[:, 0], [0]),
        }
    )
    table.assign(f0=x[:, 0], f1=x[:, 1], f2=x[:, 2]).to_csv("a.csv", index=False)
    data = srjt.data.read(where / "a.csv", feature_columns="f*")
    srjt.train(
        data,
        split=srjt.data.folds(data)[0],
        out="run",
        epochs=1,
        method="standard",
        network="linear",
    )
    commands = {
        "e.html": [
            "evaluate",
            "run",
            "a.csv",
            "--feature-columns",
            "f*",
            "--splits",
            "run",
            "--html",
            "e.html",
        ],
        "p.html": [
            "predict",
            "run",
            "a.csv",
            "--feature-columns",
            "f*",
            "--out",
            "p.csv",
            "--html",
            "p.html",
        ],
        "r.html": ["report", "run", "--out", "r.html"],
    }
    for file, words in commands.items():
        monkeypatch.setattr(sys, "argv", ["srjt", *words, "--without-ids", "--force"])
        with pytest.raises(SystemExit, match="0"):
            main()
        page = Path(file).read_text(encoding="utf-8")
        assert "Ids, patients and paths were left out." in page
        for name in ("smith-", "clinic-of-doctor"):
            assert name not in page, (file, page[page.index(name) - 200 : page.index(name) + 50])
    assert json.loads(Path("run/run.json").read_text())["data"]["source"]["path"].startswith(
        str(where)
    )
