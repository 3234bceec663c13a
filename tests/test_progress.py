"""Progress in Python: where somebody can see it, and nowhere else."""

from __future__ import annotations

import sys

import pytest

import srjt
from fixtures.notebooks import Output
from fixtures.small_images import SETTINGS, Data
from srjt import progress
from srjt.progress import Bar, NotebookBar, TerminalBar, progress_bar, show_bar
from srjt.training.record.reporters import SilentReporter, TerminalReporter, reporter_in_python


def pretend_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_nothing_is_shown_in_a_script_whose_output_goes_to_a_file(
    data: Data, capfd: pytest.CaptureFixture[str]
) -> None:
    run = srjt.train(data.manifest, split=data.split, **{**SETTINGS, "epochs": 1})
    run.predict(data.manifest)
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_a_terminal_gets_a_bar_on_standard_error(
    data: Data, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch)
    srjt.train(data.manifest, split=data.split, **{**SETTINGS, "epochs": 1})
    said = capfd.readouterr()
    assert said.out == ""
    assert "1/1" in said.err
    srjt.train(data.manifest, split=data.split, progress=False, **{**SETTINGS, "epochs": 1})
    assert capfd.readouterr().err == ""


def test_a_notebook_gets_one_output_that_is_rewritten(data: Data, notebook: list[Output]) -> None:
    srjt.train(data.manifest, split=data.split, **SETTINGS)
    (output,) = notebook
    assert output.updates >= 3  # at least once per epoch
    for kind in ("text/html", "text/plain"):
        assert "epoch 3/3" in output.shown[kind]
        assert "val.acc" in output.shown[kind]
    assert 'value="3" max="3"' in output.shown["text/html"]
    assert "training images" in output.shown["text/html"]  # the first note


def test_the_output_of_a_notebook_is_escaped(notebook: list[Output]) -> None:
    bar = NotebookBar("<b>")
    bar.update(1, 2, "<i>")
    bar.note("<script>")
    assert "&lt;b&gt;" in notebook[0].shown["text/html"]
    assert not any(tag in notebook[0].shown["text/html"] for tag in ("<b>", "<i>", "<script>"))


def test_a_given_reporter_receives_the_progress_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_terminal(monkeypatch)
    mine = SilentReporter()
    with reporter_in_python(mine, progress=True) as found:
        assert found is mine
    with reporter_in_python(None, progress=True) as found:
        assert isinstance(found, TerminalReporter)
    with reporter_in_python(None, progress=False) as found:
        assert type(found) is SilentReporter


def test_of_several_processes_one_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_terminal(monkeypatch)
    first = show_bar("training")
    first.close()
    assert type(first) is TerminalBar
    monkeypatch.setenv("RANK", "1")
    assert type(show_bar("training")) is Bar


def test_a_short_bar_leaves_no_trace(notebook: list[Output], monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_bar("Decoding", True) as decoded:
        decoded(1, 2)
    assert notebook == []  # it was done at once
    monkeypatch.setattr(progress, "SOON", -1.0)
    with progress_bar("Decoding", True) as decoded:
        decoded(1, 2)
        assert "1/2" in notebook[0].shown["text/html"]
    assert notebook[0].shown["text/html"] == ""


def test_a_function_is_called_instead(notebook: list[Output]) -> None:
    calls: list[tuple[int, int]] = []
    with progress_bar("Decoding", lambda done, total: calls.append((done, total))) as decoded:
        decoded(1, 2)
    assert calls == [(1, 2)]
    assert notebook == []
