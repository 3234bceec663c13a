"""TensorBoard events have the numbers of metrics.csv; without the package, the error names the pip command."""

from __future__ import annotations

import builtins

import pytest

from srjt.errors import SrjtError
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import SilentReporter
from srjt.training.record.tensorboard import TensorBoardReporter

ROWS = [MetricRow(1, "test", "1", "accuracy", 0.75), MetricRow(1, "train", "", "seconds", float("nan"))]


def test_events_hold_the_finite_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    inner = SilentReporter()
    reporter = TensorBoardReporter(inner, tmp_path / "events")
    assert not (tmp_path / "events").exists()  # the run's folder is the run's to make
    reporter.note("passed on")
    reporter.finished_epoch(1, ROWS)
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert events.Tags()["scalars"] == ["test/accuracy/1"]
    assert [(e.step, e.value) for e in events.Scalars("test/accuracy/1")] == [(1, 0.75)]
    assert inner.notes == ["passed on"]


def test_missing_package_names_its_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SrjtError, match=r'pip install "srjt\[tensorboard\]"'):
        TensorBoardReporter(SilentReporter(), tmp_path)
