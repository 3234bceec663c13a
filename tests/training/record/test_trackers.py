"""Trackers receive the numbers of metrics.csv; one that fails does not end a training."""

from __future__ import annotations

import builtins
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from srjt.errors import SrjtError
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import SilentReporter
from srjt.training.record.trackers import TRACKERS, TrackingReporter, track

ROWS = [
    MetricRow(1, "test", "1", "accuracy", 0.75),
    MetricRow(1, "train", "1", "kept[0]", 0.5),
    MetricRow(1, "train", "", "seconds", float("nan")),
]


def test_tensorboard_events_hold_the_finite_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    inner = SilentReporter()
    reporter = track(inner, "tensorboard", tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the run makes its folder
    reporter.note("passed on")
    reporter.finished_epoch(1, ROWS)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["test/accuracy/1", "train/kept[0]/1"]
    assert [(e.step, e.value) for e in events.Scalars("test/accuracy/1")] == [(1, 0.75)]
    assert inner.notes == ["passed on"]


def test_mlflow_writes_below_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "run").mkdir()
    reporter = track(SilentReporter(), "mlflow", tmp_path / "run")
    reporter.begin("srjt", epochs=2)
    reporter.finished_epoch(1, ROWS)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("srjt").experiment_id])
    assert run.data.metrics == {"test/accuracy/1": 0.75, "train/kept.0/1": 0.5}
    assert run.info.run_name == "run"
    assert (tmp_path / "run" / "mlflow.db").exists()


def test_weights_and_biases_are_offline_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in, because the package is large: it records how it is called."""
    started: list[dict[str, Any]] = []
    logged: list[tuple[dict[str, float], int]] = []

    def init(**settings: Any) -> Any:
        started.append(settings)
        return types.SimpleNamespace(log=lambda scalars, step: logged.append((scalars, step)))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    reporter = track(SilentReporter(), "wandb", tmp_path / "run")
    reporter.finished_epoch(1, ROWS)
    reporter.finished_epoch(2, ROWS)
    assert [settings["mode"] for settings in started] == ["offline"]
    assert started[0]["dir"] == str(tmp_path / "run")
    assert [step for _, step in logged] == [1, 2]
    assert logged[0][0] == {"test/accuracy/1": 0.75, "train/kept[0]/1": 0.5}


def test_a_tracker_that_fails_does_not_end_the_training() -> None:
    inner = SilentReporter()
    calls = []

    def start(title: str) -> Any:
        def write(epoch: int, scalars: object) -> None:
            calls.append(epoch)
            raise ConnectionError("no answer\nfrom the server")

        return write

    reporter = TrackingReporter(inner, start, name="mlflow")
    reporter.finished_epoch(1, ROWS)
    reporter.finished_epoch(2, ROWS)
    assert calls == [1]
    assert inner.notes == [
        "Logging to mlflow has stopped (no answer from the server). The training continues; metrics.csv has every "
        "number."
    ]


def test_the_cross_fit_of_the_noise_estimate_is_not_recorded(tmp_path: Path) -> None:
    started = []
    reporter = TrackingReporter(SilentReporter(), started.append, name="x")  # type: ignore[arg-type]
    reporter.begin("estimate", epochs=1, folds=3)
    reporter.finished_epoch(1, ROWS)
    assert started == []


@pytest.mark.parametrize("tracker", list(TRACKERS))
def test_a_missing_package_names_its_extra(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(("torch.utils.tensorboard", "mlflow", "wandb")):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SrjtError, match=rf'pip install "{tracker}[">]'):
        track(SilentReporter(), tracker, tmp_path)


def test_an_unknown_tracker_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="did you mean 'mlflow'"):
        track(SilentReporter(), "mlflo", tmp_path)
