"""Progress bars, and results as HTML for notebooks."""

import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import srjt
from fixtures.notebooks import Output
from fixtures.small_images import Data
from refusals import refuses
from srjt import progress
from srjt.auditing.audit import Audit
from srjt.errors import SrjtError
from srjt.noise.basis import Basis, Undetermined
from srjt.noise.estimate import NoiseEstimate
from srjt.reports.page import render
from srjt.studies.results import StudyResults
from srjt.training.crossfit import CrossFit
from srjt.training.reporters import BarReporter, reporter_in_python


def pretend_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_a_terminal_gets_a_bar_a_file_nothing(
    data: Data, train: Any, capfd: Any, monkeypatch: Any
) -> None:
    train(epochs=1).predict(data.manifest)
    assert "".join(capfd.readouterr()) == ""
    pretend_terminal(monkeypatch)
    train(epochs=1)
    said = capfd.readouterr()
    assert said.out == ""
    assert "1/1" in said.err
    train(epochs=1, progress=False)
    assert capfd.readouterr().err == ""


def test_a_notebook_gets_one_output_that_is_rewritten(train: Any, notebook: list[Output]) -> None:
    train()
    (output,) = notebook
    assert output.updates >= 3  # at least once per epoch
    for kind in ("text/html", "text/plain"):
        assert "epoch 3/3" in output.shown[kind]
        assert "val.acc" in output.shown[kind]
    assert 'value="3" max="3"' in output.shown["text/html"]
    assert "training images" in output.shown["text/html"]  # the first note


def test_the_output_of_a_notebook_is_escaped(notebook: list[Output]) -> None:
    bar = progress.NotebookBar("<b>")
    bar.update(1, 2, "<i>")
    bar.note("<script>")
    assert "&lt;b&gt;" in notebook[0].shown["text/html"]
    assert not any(tag in notebook[0].shown["text/html"] for tag in ("<b>", "<i>", "<script>"))


def test_a_given_reporter_receives_the_progress_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_terminal(monkeypatch)
    mine = BarReporter()
    with reporter_in_python(mine, progress=True) as found:
        assert found is mine
    for shown, kind in ((True, progress.TerminalBar), (False, progress.Bar)):
        with reporter_in_python(None, progress=shown) as found:
            assert isinstance(found, BarReporter)
            assert type(found.bar) is kind


def test_of_several_processes_one_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_terminal(monkeypatch)
    first = progress.show_bar("training")
    first.close()
    assert type(first) is progress.TerminalBar
    monkeypatch.setenv("RANK", "1")
    assert type(progress.show_bar("training")) is progress.Bar


def test_a_short_bar_leaves_no_trace(
    notebook: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.progress_bar("Decoding", True) as decoded:
        decoded(1, 2)
    assert notebook == []  # it was done at once
    monkeypatch.setattr(progress, "SOON", -1.0)
    with progress.progress_bar("Decoding", True) as decoded:
        decoded(1, 2)
        assert "1/2" in notebook[0].shown["text/html"]
    assert notebook[0].shown["text/html"] == ""
    calls: list[tuple[int, int]] = []
    with progress.progress_bar(
        "Decoding", lambda done, total: calls.append((done, total))
    ) as decoded:
        decoded(1, 2)
    assert calls == [(1, 2)]  # a function is called instead
    assert len(notebook) == 1


# What a notebook shows of results: short lines, tables, pictures; text from files is escaped.
HOSTILE = "<script>alert(1)</script>"


class Balanced(HTMLParser):
    """Fails if a tag is not closed, or if text became a tag of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag != "script"
        if tag not in ("img",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(thing: Any) -> str:
    """The text of what a notebook shows."""
    parser = Balanced()
    parser.feed(thing if isinstance(thing, str) else srjt.report(thing)._repr_html_())
    assert parser.open == []
    return " ".join(parser.text)


def estimate() -> NoiseEstimate:
    matrix = np.array([[0.9, 0.1], [0.2, 0.8]])
    return NoiseEstimate(
        rate=0.15, rate_interval=(0.1, 0.2), transition=matrix, transition_interval=np.stack([matrix, matrix]),
        prior=np.array([0.5, 0.5]), prior_interval=np.full((2, 2), 0.5), form="free", held_out={}, samples=80,
        identifiable=False, undetermined=Undetermined(kind="stored", text=HOSTILE),
        basis=Basis(kind="stored", text="It assumes much."),
    )  # fmt: skip


def test_the_noise_estimate() -> None:
    said = "<NoiseEstimate: rate between 0.100 and 0.200, free noise, 80 labels, not determined>"
    assert repr(estimate()) == said
    text = shown(estimate())
    assert all(number in text for number in ("0.900", "0.100", "0.800", "It assumes much."))
    assert HOSTILE in text


def test_data_describe_themselves(data: Data) -> None:
    assert repr(data.manifest) == "<Manifest: 130 images of 20 patients, grades 0, 1, 2, 3>"
    sides = {side: len(rows) for side, rows in data.split.sides().items()}
    assert (
        repr(data.split) == "<Split: " + ", ".join(f"{n} {side}" for side, n in sides.items()) + ">"
    )
    reading = srjt.data.from_arrays(np.zeros((3, 2)), [0, 1, HOSTILE], names=["0", "1"])
    assert repr(reading) == "<Manifest (arrays): 2 rows of features, grades 0, 1; 1 problem>"
    text = shown(reading)
    assert "invalid-grade" in text
    assert "alert(1)" in text


def test_a_cross_fit_is_printed_without_its_arrays() -> None:
    empty = np.empty(0)
    fitted = CrossFit(
        manifest=cast(Any, None),
        probabilities=empty,
        by_network=empty,
        grades=np.empty(0, np.int64),
        fold=np.array([0, 0, 1]),
        selected=empty,
    )
    assert repr(fitted) == "<CrossFit: 3 samples, 2 folds>"


def test_the_most_doubtful_labels_come_with_their_pictures(data: Data) -> None:
    scores = pd.DataFrame({"id": data.manifest.ids[:6], "grade": "1", "suggested": "2"})
    scores["quality"] = np.linspace(0.1, 0.9, 6)
    fitted = cast(Any, SimpleNamespace(manifest=data.manifest))
    share = {"rate": 0.15, "rate_interval": (0.1, 0.2), "identifiable": False}
    guessed = Audit(scores=scores, estimate=estimate(), summary=share, fitted=fitted)
    assert repr(guessed) == "<Audit: 6 labels, wrong: between 10.0% and 20.0%>"
    audit = replace(guessed, summary={**share, "identifiable": True})
    assert repr(audit) == "<Audit: 6 labels, wrong: 15.0% (10.0% to 20.0%)>"
    worst = audit.worst(3)
    assert list(worst.table["id"]) == data.manifest.ids[:3]
    assert repr(worst).splitlines()[1].split() == [data.manifest.ids[0], "1", "2", "0.10"]
    assert srjt.report(worst)._repr_html_().count('<img src="data:image/jpeg;base64,') == 3
    assert "label 1 → 2" in shown(worst)
    assert "0.100" in shown(worst)
    with pytest.raises(SrjtError, match="at least 1"):
        audit.worst(0)


def test_doubtful_rows_of_features_are_a_table(data: Data) -> None:
    rows = srjt.data.from_arrays(np.zeros((2, 3)), [0, 1], ids=["a", HOSTILE])
    scores = pd.DataFrame({"id": rows.ids, "grade": "0", "suggested": "1", "quality": [0.25, 0.5]})
    fitted = cast(Any, SimpleNamespace(manifest=rows))
    unknown = {"rate": 0.15, "rate_interval": (0.1, 0.2), "identifiable": False}
    audit = Audit(scores=scores, estimate=estimate(), summary=unknown, fitted=fitted)
    assert HOSTILE in shown(audit.worst())
    assert "0.250" not in shown(audit.worst())  # no probability where the rate is not determined
    known = replace(audit, summary={**unknown, "identifiable": True})
    assert "0.250" in shown(known.worst())
    one = replace(known, scores=scores.assign(caveat=["no probability", ""])).worst()
    assert "0.250" not in shown(one)
    assert "0.25" not in repr(one)
    assert "0.5" in repr(one)


def study() -> StudyResults:
    cells = [("co-teaching+ours", "quasi:0.4"), ("standard", "quasi:0.4"), ("standard", "none")]
    runs = pd.DataFrame(
        [(m, "", noise, fold, "done" if fold else "left") for m, noise in cells for fold in (0, 1)],
        columns=["method", "variant", "noise", "fold", "status"],
    )
    scores = runs.assign(split="test", metric="mae", value=[0.2, 0.4, 0.5, 0.5, 0.1, 0.1])
    return StudyResults(
        folder=Path("study"), facts={}, runs=runs, metrics=pd.DataFrame(), scores=scores.iloc[:-1], confusions={},
        noise=pd.DataFrame(),
    )  # fmt: skip


def test_the_table_of_a_study_has_the_paper_s_order_and_says_what_is_missing() -> None:
    table = study().table(["mae"])
    assert list(table.index) == ["Standard", "Co-teaching + Ours"]
    assert table.loc["Co-teaching + Ours", ("quasi:0.4", "mae")] == "0.300 ± 0.100"
    assert table.loc["Standard", ("none", "mae")] == "0.100"  # one run has no deviation
    assert table.loc["Co-teaching + Ours", ("none", "mae")] == "–"
    with refuses("unknown_name", says="qwk"):
        study().table(["qwk"])
    assert repr(study()) == "<StudyResults: study, 6 runs (3 left, 3 done)>"


@pytest.mark.slow
def test_readers_describe_themselves() -> None:
    graded = pd.DataFrame(
        {
            "image": [f"i{k}" for k in range(30) for _ in "ab"],
            "reader": ["Ann", HOSTILE] * 30,
            "grade": [grade for k in range(30) for grade in (k % 3, (k % 3 + (k % 5 == 0)) % 3)],
        }
    )
    readings = srjt.data.read_readings(graded).readings
    assert repr(readings) == "<Readings: 60 readings of 30 items by 2 readers, grades 0, 1, 2>"
    agreed = srjt.readers.agreement(readings, resamples=20)
    assert repr(agreed).startswith("<Agreement: 2 readers, 30 shared items, quadratic κ ")
    found = srjt.readers.consensus(readings)
    assert repr(found).startswith("<Consensus: 30 items, 60 readings by 2 readers, wrong: ")
    for thing in (agreed, found):
        page = srjt.report(thing)
        assert len(page.figure_table.rows) == 2
        assert HOSTILE in " ".join(
            cell.text for row in page.figure_table.rows for cell in row.cells
        )
        assert HOSTILE not in render(page)
        assert HOSTILE not in srjt.report(thing)._repr_html_()
