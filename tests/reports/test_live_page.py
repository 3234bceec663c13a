"""The page of a training while it runs, and what it becomes at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import srjt
from fixtures.run_folders import make_run
from reports.test_run_page_truth import check_sentences
from srjt.reports.page import page_figures, render
from srjt.reports.pages.run import read_record, run_page, run_page_facts
from srjt.reports.report import LiveReporter
from srjt.training.reporters import BarReporter

COUNTS = {"validation_counts": [6, 3, 2, 1]}


@pytest.mark.slow
def test_it_shows_validation_beside_one_grade_for_all_and_not_the_test_side(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", finished=False, seconds=90.0, data=COUNTS, network="tiny")
    page = run_page(folder, live="training")
    facts = run_page_facts(read_record(folder, live="training"))
    check_sentences(page, facts)
    assert (facts.reached, facts.planned, facts.side) == (6, 12, "validation")
    assert facts.left == "About 9 min to go."
    assert page.progress == 0.5
    figures = {figure.name: figure for figure in page_figures(page)}
    assert {"mae", "accuracy", "loss"} <= set(figures)
    assert all("test" not in figure.alt for figure in figures.values())
    assert all("test" not in number.label for number in page.key_numbers)
    shown = run_page(folder)
    assert any("test" in figure.alt for figure in page_figures(shown))
    html = render(page)
    assert "one grade for all" in html
    assert '<meta http-equiv="refresh" content="5">' in html
    assert '<progress max="100" value="50.0"' in html


def test_the_verdict_against_one_grade_is_by_the_metric_that_the_grades_are_for(
    tmp_path: Path,
) -> None:
    folder = make_run(
        tmp_path / "run", finished=False, data={**COUNTS, "class_counts": [9, 3, 2, 1]}
    )
    metrics = pd.read_csv(folder / "metrics.csv")
    for mae, accuracy, judged in (
        (1.2, 0.9, "not better"),
        (0.1, 0.4, "unclear"),
    ):  # without its patients
        values = (
            metrics["metric"]
            .map({"accuracy": accuracy, "mae": mae})
            .where(metrics["split"] == "validation")
        )
        metrics.assign(value=values.fillna(metrics["value"])).to_csv(
            folder / "metrics.csv", index=False
        )
        facts = run_page_facts(read_record(folder, live="training"))
        assert (facts.score, facts.verdict) == (pytest.approx(mae), judged)
        assert facts.naive == pytest.approx(10 / 12)


def test_before_the_first_epoch_and_the_ends(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", sides=("train",), finished=False)
    (folder / "metrics.csv").unlink()
    page = run_page(folder, live="training")
    check_sentences(page, run_page_facts(read_record(folder, live="training")))
    assert page.progress == 0.0
    stopped = run_page(folder, live="stopped", problem="Out of <luck>.")
    assert "Out of <luck>. Run the same command" in stopped.lead
    assert stopped.progress is None
    assert "refresh" not in render(stopped).split("<style>")[0]


@pytest.fixture(scope="module")
def settings(data: Any) -> dict[str, Any]:
    return {"split": data.split, "method": "standard", "network": "tiny", "image_size": 32, "crop": 28, "epochs": 2,
            "device": "cpu"}  # fmt: skip


@pytest.mark.slow
def test_a_training_writes_it_and_the_report(
    data: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    seen = []

    class Watcher(LiveReporter):
        def _write(self, **state: Any) -> None:
            super()._write(**state)
            seen.append((state.get("live"), (tmp_path / "run" / "live.html").read_text()))

    inner = BarReporter()
    with Watcher(inner, tmp_path / "run") as reporter:
        srjt.train(data.manifest, out=tmp_path / "run", reporter=reporter, **settings)
    assert [seen[0][0], seen[-1][0]] == ["training", None]
    assert "The first of 2 epochs has begun" in seen[0][1]
    assert "<progress" not in seen[-1][1]
    assert (tmp_path / "run" / "report.html").exists()
    assert not any("live page" in note for note in inner.notes)


def test_it_is_there_while_the_noise_is_estimated(tmp_path: Path) -> None:
    with LiveReporter(BarReporter(), tmp_path / "run") as reporter:
        reporter.begin("warm-up", epochs=4, folds=3)
        page = (tmp_path / "run" / "live.html").read_text()
    assert "The training is being prepared" in page
    assert "refresh" in page


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
    [note] = [note for note in inner.notes if "live page" in note]
    assert note == "The live page has stopped (no space left). The training is not affected."


def fail_after_a_step(folder: Path) -> None:
    with LiveReporter(BarReporter(), folder) as reporter:
        reporter.begin("standard", epochs=12)
        reporter.stepped(1, 1, 2)
        raise ValueError("boom")


@pytest.mark.slow
def test_an_error_is_on_the_page_but_not_in_the_folder_of_another_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", finished=False)
    with pytest.raises(ValueError, match="boom"), LiveReporter(BarReporter(), folder):
        raise ValueError("boom")  # before the first step
    assert not (folder / "live.html").exists()
    with pytest.raises(ValueError, match="boom"):
        fail_after_a_step(folder)
    assert "boom. Run the same command again to resume it." in (folder / "live.html").read_text()
