"""What a person sees while it trains."""

from __future__ import annotations

import io
import re

import pytest

from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import (
    PlainReporter,
    SilentReporter,
    TerminalReporter,
    headline,
    reporter_for,
)

ROWS = [
    MetricRow(2, "train", "1", "loss", 1.0),
    MetricRow(2, "train", "2", "loss", 2.0),
    MetricRow(2, "validation", "1", "accuracy", 0.4),
    MetricRow(2, "test", "1", "accuracy", 0.5),
    MetricRow(2, "test", "2", "accuracy", 0.7),
    MetricRow(2, "test", "ensemble", "accuracy", 0.9),
    MetricRow(2, "test", "pooled", "accuracy", 0.1),
    MetricRow(2, "train", "", "images_per_second", 1234.5),
]


def test_the_headline_averages_the_networks() -> None:
    shown = headline(ROWS, show_test=True)
    assert shown == pytest.approx({"loss": 1.5, "val.acc": 0.4, "test.acc": 0.6, "samples/s": 1234.5})


def test_test_scores_are_shown_on_request_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headline(ROWS) == pytest.approx({"loss": 1.5, "val.acc": 0.4, "samples/s": 1234.5})
    for show_test in (False, True):
        with reporter_for(show_test=show_test) as plain:
            plain.begin("", epochs=30)
            plain.finished_epoch(2, ROWS)
        assert ("test.acc" in capsys.readouterr().out) == show_test
        with TerminalReporter(show_test=show_test) as bar:
            bar.begin("", epochs=30)
            bar.finished_epoch(2, ROWS)
            assert bar.progress.tasks[0].fields["latest"].startswith("test.acc" if show_test else "val.acc")


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainReporter() as reporter:
        reporter.begin("co-teaching", epochs=30)
        reporter.decoded(1, 2)
        reporter.decoded(2, 2)
        reporter.decoded(2, 2)  # once more, to find identical images: not said again
        reporter.stepped(1, 1, 5)
        reporter.finished_epoch(2, ROWS)
        reporter.note("Something [happened].")
    assert capsys.readouterr().out.splitlines() == [
        "co-teaching: 2 image files processed.",
        "co-teaching: epoch 2/30  loss 1.500  val.acc 0.400  samples/s 1234",
        "co-teaching: Something [happened].",
    ]


def test_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar and the latest numbers on one line; notes as they are, brackets included."""
    from srjt.console import Console

    screen = io.StringIO()
    monkeypatch.setattr("srjt.console.Console", lambda: Console(file=screen, width=80, force_terminal=True))
    with TerminalReporter() as reporter:
        reporter.begin("co-teaching+ours", epochs=30)
        reporter.decoded(1, 2)
        reporter.decoded(2, 2)
        reporter.stepped(1, 1, 5)
        reporter.finished_epoch(2, ROWS)
        reporter.note("A [note].")
        reporter.progress.refresh()
    said = screen.getvalue()
    assert "A [note]." in said
    assert "2/30" in said
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said).rstrip().splitlines()[-1]
    assert re.search(r"co-teaching\+ours [━╸╺ ]{16} 2/30 .* val\.acc 0\.400  samples/s 1234", last)
    assert len(last.split("\r")[-1].rstrip()) <= 80


def test_the_epochs_of_a_cross_fit_are_named_by_fold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a log and on a terminal of 80 columns, where the longest name of an audit has room."""
    from srjt.console import Console

    with PlainReporter() as plain:
        plain.begin("", epochs=30, folds=5)
        plain.finished_epoch(32, ROWS)
    assert (
        capsys.readouterr().out == "fold 2 of 5, epoch 2 of 30  loss 1.500  val.acc 0.400  samples/s 1234\n"
    )
    screen = io.StringIO()
    monkeypatch.setattr("srjt.console.Console", lambda: Console(file=screen, width=80, force_terminal=True))
    with TerminalReporter() as bar:
        bar.begin("warm-up", epochs=30, folds=3)
        bar.stepped(69, 1, 5)
        bar.finished_epoch(70, [row for row in ROWS if row.split == "train"])
        bar.progress.refresh()
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    last = said.rstrip().splitlines()[-1].split("\r")[-1].rstrip()
    assert re.fullmatch(
        r"warm-up fold 3 of 3, epoch 10 of 30 [━╸╺ ]{8} +[0-9:-]+ loss 1\.500  samples/s 1234", last
    )
    assert len(last) <= 80


def test_which_reporter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(reporter_for(quiet=True)) is SilentReporter
    assert type(reporter_for()) is PlainReporter  # pytest captures: no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert type(reporter_for()) is TerminalReporter
