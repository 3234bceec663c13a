"""The page of a training while it runs, and what it becomes at the end."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import srjt
from fixtures.run_folders import make_run
from reports.page_text import facts_of, sentences
from srjt.reports.page import render
from srjt.reports.pages.run import live_page
from srjt.reports.report import LiveReporter
from srjt.training.reporters import BarReporter

COUNTS = {"validation_counts": [6, 3, 2, 1]}


def test_it_shows_validation_beside_the_naive_baseline_and_not_the_test_side(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", finished=False, seconds=90.0, data=COUNTS, network="tiny")
    page = live_page(folder, state="training", messages=["<b>hello"])
    assert page.lead.endswith("on tiny: epoch 6 of 12 is done.")
    known = facts_of(page)
    assert known["an epoch takes"] == "about 90 s"
    assert known["still to go"] == "about 9 min, if all epochs are trained"
    figures = {figure.name: figure for section in page.sections for figure in section.figures}
    assert set(figures) == {"mae", "accuracy", "loss"}
    assert (
        "The line: the most frequent training label for every validation sample."
        in figures["accuracy"].caption
    )
    assert "most frequent label" in render(page)
    assert all("test" not in figure.alt for figure in figures.values())
    shown = live_page(folder, state="training", show_test=True)
    assert any("test" in figure.alt for section in shown.sections for figure in section.figures)
    html = render(page)
    assert '<meta http-equiv="refresh" content="5">' in html
    assert "<b>hello" not in html


def test_the_verdict_against_the_naive_answer_is_that_of_the_last_epoch(tmp_path: Path) -> None:
    counts = {**COUNTS, "class_counts": [9, 3, 2, 1]}
    folder = make_run(tmp_path / "run", finished=False, data=counts)
    metrics = pd.read_csv(folder / "metrics.csv")
    judged = (metrics["split"] == "validation") & metrics["metric"].isin(["accuracy", "mae"])
    for epoch, (accuracy, mae) in {6: (0.9, 1.2), 5: (0.4, 0.1)}.items():
        metrics = metrics[~judged | (metrics["epoch"] <= epoch)]
        now = judged & (metrics["epoch"] == epoch)
        metrics.loc[now, "value"] = metrics["metric"].map({"accuracy": accuracy, "mae": mae})
        metrics.to_csv(folder / "metrics.csv", index=False)
        said = [note.text for note in live_page(folder, state="training").notes]
        # an accuracy of 0.4 is less than that of the most frequent grade, but the grades are for the MAE
        assert said == ([] if mae < 0.5 else [
            "After epoch 6 the networks' own grades do not beat a naive prediction on the validation side: MAE "
            "1.200, and 0.833 by always predicting the median training label."
        ])  # fmt: skip


def test_what_is_not_known_is_not_said(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", sides=("train",), finished=False)
    page = live_page(folder, state="training")
    assert {figure.name for section in page.sections for figure in section.figures} == {"loss"}
    assert not any("The line" in sentence for sentence in sentences(page))
    assert [note.text for note in page.notes] == [
        "There is no validation side: whether the run beats a naive prediction cannot be seen while it trains."
    ]
    (folder / "metrics.csv").unlink()
    page = live_page(folder, state="training")  # before the first epoch ends
    assert "the first epoch has begun" in page.lead
    assert "still to go" not in facts_of(page)


def test_the_ends(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", data=COUNTS)
    stopped = live_page(folder, state="stopped", problem="Out of <luck>.")
    assert stopped.notes[0].text.startswith("The training has stopped. Out of <luck>. Run the same command")
    assert "refresh" not in render(stopped).split("<style>")[0]
    finished = render(live_page(folder, state="finished", link="report.html"))
    assert '<a href="report.html">' in finished
    assert "12 epochs were trained" in finished
    assert "still to go" not in finished


@pytest.fixture(scope="module")
def settings(data: Any) -> dict[str, Any]:
    return {"split": data.split, "method": "standard", "network": "tiny", "image_size": 32, "crop": 28, "epochs": 2,
            "device": "cpu"}  # fmt: skip


def test_a_training_writes_it_and_the_report(data: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    seen = []

    class Watcher(LiveReporter):
        def _write(self, state: Any, *, problem: str = "") -> None:
            super()._write(state, problem=problem)
            seen.append((state, (tmp_path / "run" / "live.html").read_text()))

    inner = BarReporter()
    with Watcher(inner, tmp_path / "run") as reporter:
        srjt.train(data.manifest, out=tmp_path / "run", reporter=reporter, **settings)
    assert [seen[0][0], seen[-1][0]] == ["training", "finished"]
    assert "the first epoch has begun" in seen[0][1]
    page = seen[-1][1]
    assert 'href="report.html"' in page
    assert (tmp_path / "run" / "report.html").exists()
    assert len(re.findall("<figure", page)) == 3
    assert "most frequent label" in page  # the baseline
    assert inner.notes == reporter.messages  # everything is passed on, nothing has failed


def test_a_page_that_cannot_be_written_does_not_end_a_training(
    data: Any, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no space\nleft")

    monkeypatch.setattr("srjt.reports.report.write_page", fail)
    inner = BarReporter()
    with LiveReporter(inner, tmp_path / "run") as reporter:
        srjt.train(data.manifest, out=tmp_path / "run", reporter=reporter, **settings)
    assert (tmp_path / "run" / "summary.json").exists()
    said = [note for note in inner.notes if "live page" in note]
    assert said == ["The live page has stopped (no space left). The training is not affected."]


def fail_after_a_step(folder: Path) -> None:
    with LiveReporter(BarReporter(), folder) as reporter:
        reporter.begin("standard", epochs=12)
        reporter.stepped(1, 1, 2)
        raise ValueError("boom")


def test_an_error_is_on_the_page_but_not_in_the_folder_of_another_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", finished=False)
    with pytest.raises(ValueError, match="boom"), LiveReporter(BarReporter(), folder):
        raise ValueError("boom")  # before the first step
    assert not (folder / "live.html").exists()
    with pytest.raises(ValueError, match="boom"):
        fail_after_a_step(folder)
    page = (folder / "live.html").read_text()
    assert "The training has stopped. boom. Run the same command again to resume it." in page
    shutil.rmtree(folder)
    with LiveReporter(BarReporter(), folder) as reporter:  # nothing was written: nothing to show
        reporter.begin("standard", epochs=12, folds=5)
        reporter.stepped(1, 1, 2)
    assert not folder.exists()
