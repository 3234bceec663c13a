"""Progress on a terminal and in trackers."""

import io
import itertools
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from refusals import refuses
from srjt.progress import Bar, Lines, TerminalBar
from srjt.training.checkpoint import MetricRow
from srjt.training.reporters import (
    TRACKERS,
    BarReporter,
    TrackingReporter,
    headline,
    reporter_for,
    track,
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


def test_the_headline_averages_the_networks_and_test_scores_are_not_shown(capsys: Any) -> None:
    assert headline(ROWS) == pytest.approx({"loss": 1.5, "val.acc": 0.4, "samples/s": 1234.5})
    with reporter_for() as plain:
        plain.begin("", epochs=30)
        plain.finished_epoch(2, ROWS)
    assert "test" not in capsys.readouterr().out
    bar = TerminalBar("")
    with BarReporter(bar) as reporter:
        reporter.begin("", epochs=30)
        reporter.finished_epoch(2, ROWS)
        assert bar.progress.tasks[0].fields["text"].startswith("val.acc")


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with BarReporter(Lines()) as reporter:
        reporter.begin("co-teaching", epochs=30)
        reporter.decoded(1, 2)
        reporter.decoded(2, 2)
        reporter.decoded(2, 2)  # once more, to find identical images: not said again
        reporter.stepped(1, 1, 5)
        for epoch in range(1, 8):
            reporter.finished_epoch(epoch, ROWS)  # every tenth of the training has a line
        reporter.note("Something [happened].")
        reporter.note("Something [happened].")
    assert capsys.readouterr().out.splitlines() == [
        "co-teaching: 2 image files processed.",
        "co-teaching: epoch 3/30  loss 1.500  val.acc 0.400  samples/s 1234",
        "co-teaching: epoch 6/30  loss 1.500  val.acc 0.400  samples/s 1234",
        "co-teaching: Something [happened].",
    ]
    assert reporter.notes[-2:] == ["2 image files processed.", "Something [happened]."]


def test_slow_epochs_all_have_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a log of a training of days does not look dead."""
    clock = itertools.count(0, 61)
    monkeypatch.setattr("srjt.training.reporters.time.monotonic", lambda: next(clock))
    with BarReporter(Lines()) as reporter:
        reporter.begin("", epochs=100)
        for epoch in (1, 2, 3):
            reporter.finished_epoch(epoch, ROWS)
    said = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["epoch 1/100", "epoch 2/100", "epoch 3/100"]


def test_trainings_that_belong_together_say_a_sentence_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes: list[str] = []
    for _ in range(2):
        with reporter_for(notes=notes) as reporter:
            reporter.note("The weights fit.")
    assert capsys.readouterr().out.splitlines() == ["The weights fit."]


@pytest.mark.parametrize(
    ("title", "folds", "epoch", "rows", "position", "score"),
    [("co-teaching+ours", 1, 2, ROWS, "epoch 2/30", r"val\.acc 0\.400"),
     ("warm-up", 3, 70, [row for row in ROWS if row.split == "train"], "fold 3/3, epoch 10/30", r"loss 1\.500")],
)  # fmt: skip
def test_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
    title: str,
    folds: int,
    epoch: int,
    rows: Any,
    position: str,
    score: str,
) -> None:
    """The bar and the latest numbers on one line; notes as they are, brackets included."""
    from srjt.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(
        "srjt.console.Console", lambda: Console(file=screen, width=80, force_terminal=True)
    )
    bar = TerminalBar("training", lasting=True, stderr=False)
    with BarReporter(bar) as reporter:
        reporter.begin(title, epochs=30, folds=folds)
        reporter.decoded(2, 2)
        reporter.stepped(epoch - 1, 1, 5)
        reporter.finished_epoch(epoch, rows)
        reporter.note("A [note].")
        bar.progress.refresh()
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "A [note]." in said
    last = said.rstrip().splitlines()[-1].split("\r")[-1].rstrip()
    assert re.fullmatch(
        rf"{re.escape(title)} [━╸╺ ]{{10}} {position} [0-9:-]+ {score}  samples/s 1234", last
    )
    assert len(last) <= 80


def test_the_epochs_of_a_cross_fit_are_named_by_fold(capsys: pytest.CaptureFixture[str]) -> None:
    with BarReporter(Lines()) as plain:
        plain.begin("", epochs=30, folds=5)
        plain.finished_epoch(45, ROWS)
    assert (
        capsys.readouterr().out
        == "fold 2/5, epoch 15/30  loss 1.500  val.acc 0.400  samples/s 1234\n"
    )


def test_which_reporter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(reporter_for(quiet=True).bar) is Bar
    assert type(reporter_for().bar) is Lines  # pytest captures: no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert type(reporter_for().bar) is TerminalBar


# Trackers receive the numbers of metrics.csv; one that fails does not end a training.
TRACKED_ROWS = [
    MetricRow(1, "test", "1", "accuracy", 0.75),
    MetricRow(1, "train", "1", "kept[0]", 0.5),
    MetricRow(1, "train", "", "seconds", float("nan")),
]


def test_tensorboard_events_hold_the_finite_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    inner = BarReporter()
    reporter = track(inner, "tensorboard", tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the run makes its folder
    reporter.note("passed on")
    reporter.finished_epoch(1, TRACKED_ROWS)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["test/accuracy/1", "train/kept[0]/1"]
    assert [(e.step, e.value) for e in events.Scalars("test/accuracy/1")] == [(1, 0.75)]
    assert inner.notes == ["passed on"]


def test_mlflow_writes_below_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "run").mkdir()
    reporter = track(BarReporter(), "mlflow", tmp_path / "run")
    reporter.begin("srjt", epochs=2)
    reporter.finished_epoch(1, TRACKED_ROWS)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("srjt").experiment_id])
    assert run.data.metrics == {"test/accuracy/1": 0.75, "train/kept.0/1": 0.5}
    assert run.info.run_name == "run"
    assert (tmp_path / "run" / "mlflow.db").exists()


def test_weights_and_biases_are_offline_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in, because the package is large: it records how it is called."""
    started: list[dict[str, Any]] = []
    logged: list[tuple[dict[str, float], int]] = []

    def init(**settings: Any) -> Any:
        started.append(settings)
        return types.SimpleNamespace(log=lambda scalars, step: logged.append((scalars, step)))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    reporter = track(BarReporter(), "wandb", tmp_path / "run")
    reporter.finished_epoch(1, TRACKED_ROWS)
    reporter.finished_epoch(2, TRACKED_ROWS)
    assert [settings["mode"] for settings in started] == ["offline"]
    assert started[0]["dir"] == str(tmp_path / "run")
    assert [step for _, step in logged] == [1, 2]
    assert logged[0][0] == {"test/accuracy/1": 0.75, "train/kept[0]/1": 0.5}


def test_a_tracker_that_fails_does_not_end_the_training() -> None:
    inner = BarReporter()
    calls = []

    def start(title: str) -> Any:
        def write(epoch: int, scalars: object) -> None:
            calls.append(epoch)
            raise ConnectionError("no answer\nfrom the server")

        return write

    reporter = TrackingReporter(inner, start, name="mlflow")
    reporter.finished_epoch(1, TRACKED_ROWS)
    reporter.finished_epoch(2, TRACKED_ROWS)
    assert calls == [1]
    said = (
        "Logging to mlflow has stopped (no answer from the server); metrics.csv has every number."
    )
    assert inner.notes == [said]


def test_the_cross_fit_of_the_noise_estimate_is_not_recorded(tmp_path: Path) -> None:
    started = []
    reporter = TrackingReporter(BarReporter(), started.append, name="x")  # type: ignore[arg-type]
    reporter.begin("estimate", epochs=1, folds=3)
    reporter.finished_epoch(1, TRACKED_ROWS)
    assert started == []


def test_a_tracker_that_is_missing_or_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tracker, (module, *_) in TRACKERS.items():
        monkeypatch.setitem(sys.modules, module, None)
        with refuses("missing_extra", says=f'pip install "{tracker}'):
            track(BarReporter(), tracker, tmp_path)
    with refuses("unknown_name", says="'mlflow'"):
        track(BarReporter(), "mlflo", tmp_path)
