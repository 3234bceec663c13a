"""Early stopping: the networks of the epoch that was best on the validation side."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import srjt
from refusals import refuses
from srjt.data.splits import Split
from srjt.errors import Interrupted
from srjt.ordinal.metrics import METRICS, confusion_matrix
from srjt.reports.study_tables import StudyTables
from srjt.training.checkpoint import MetricRow, best_epoch, kept_epoch, last_epochs
from srjt.training.reporters import BarReporter
from srjt.training.trained import Trained

from .test_resume import StopAt

SETTINGS: dict[str, Any] = {
    "noise_rate": 0.4, "network": "tiny", "image_size": 32, "crop": 28, "epochs": 6, "batch_size": 16,
    "learning_rate": 3e-3, "device": "cpu", "checkpoint_seconds": 0.0, "keep": "best", "method": "co-teaching+ours",
}  # fmt: skip


@pytest.fixture(scope="module")
def contrary(data: Any) -> Any:
    """The more the networks learn, the worse they are on the validation side: its grades are
    reversed."""
    table = data.manifest.table.copy()
    table.loc[data.split.validation, "grade"] = 3 - table.loc[data.split.validation, "grade"]
    return replace(data, manifest=replace(data.manifest, table=table))


@pytest.fixture(scope="module")
def whole(contrary: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = trained(contrary, out=folder)
    assert kept_epoch(run.metrics) in (1, 2, 3)
    return folder


def trained(data: Any, **changes: Any) -> Trained:
    return srjt.train(data.manifest, split=data.split, **{**SETTINGS, **changes})


def validation(run: Trained, metric: str) -> pd.Series:
    rows = run.metrics.query("split == 'validation' and metric == @metric")
    network = "ensemble" if run.method.networks == 2 else "1"
    return rows[rows["network"] == network].set_index("epoch")["value"]


def test_the_networks_are_those_of_the_best_epoch(contrary: Any, whole: Path) -> None:
    run, metric = trained(contrary, out=whole), "mae"
    values = validation(run, metric)
    sign = -1.0 if METRICS[metric].lower_is_better else 1.0
    best = int((sign * values).idxmax())  # the first of equal ones
    assert best < len(values) == 6  # else this shows nothing
    assert kept_epoch(run.metrics) == best
    summary = json.loads((whole / "summary.json").read_text())
    assert (summary["epochs"], summary["kept_epoch"]) == (6, best)
    # what the networks predict now has the value of that epoch
    side = run.held_out["validation"]
    predicted = torch.from_numpy(side.probabilities).mean(dim=0).argmax(dim=1)
    counts = confusion_matrix(torch.from_numpy(side.labels), predicted, num_classes=4)
    assert METRICS[metric](counts.numpy()) == pytest.approx(values[best])
    assert summary["confusion"]["validation"][-1] == counts.tolist()
    # the reported numbers are those of that epoch
    averages = last_epochs(run.metrics).set_index(["split", "metric"])["value"]
    single = run.metrics.query("split == 'test' and epoch == @best and metric == 'accuracy'")
    single = single[single["network"].isin(["1", "2"])]
    assert averages["test", "accuracy"] == pytest.approx(single["value"].mean())


@pytest.mark.slow
def test_the_training_itself_is_that_of_keep_last(contrary: Any, whole: Path) -> None:
    best, last = trained(contrary, out=whole), trained(contrary, keep="last")
    timed = ["seconds", "images_per_second", "peak_memory_mb", "best_epoch"]
    tables = [
        run.metrics[~run.metrics["metric"].isin(timed)].reset_index(drop=True)
        for run in (best, last)
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    assert kept_epoch(last.metrics) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [
        (2, 1),
        pytest.param((1, 2), marks=pytest.mark.slow),
        pytest.param((6, 2), marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_keeps_them(
    contrary: Any, whole: Path, tmp_path: Path, at: tuple[int, int]
) -> None:
    with pytest.raises(Interrupted):
        trained(contrary, out=tmp_path / "run", reporter=StopAt(*at))
    trained(contrary, out=tmp_path / "run")
    for name in ("weights.safetensors", "summary.json", "held_out.csv", "history.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
    metrics = (
        (folder / "metrics.csv").read_text().splitlines() for folder in (tmp_path / "run", whole)
    )
    ours, theirs = ([line for line in lines if "best_epoch" in line] for lines in metrics)
    assert ours == theirs


@pytest.mark.slow
def test_patience_stops_early_and_finished_is_finished(contrary: Any, tmp_path: Path) -> None:
    reporter = BarReporter()
    run = trained(contrary, patience=2, epochs=40, out=tmp_path, reporter=reporter)
    values = validation(run, "mae")
    best, reached = int(values.idxmin()), int(values.index.max())
    assert reached - best == 2
    assert reached < 40
    assert any(f"Epoch {best} of {reached} is kept" in note for note in reporter.notes)
    assert json.loads((tmp_path / "summary.json").read_text())["epochs"] == reached
    reporter = BarReporter()
    again = trained(contrary, patience=2, epochs=40, out=tmp_path, reporter=reporter)
    assert "nothing to do" in reporter.notes[-1]
    assert again.metrics.equals(run.metrics)
    (tmp_path / "summary.json").unlink()  # killed before the results: no more epochs are trained
    assert (
        validation(trained(contrary, patience=2, epochs=40, out=tmp_path), "mae").index.max()
        == reached
    )


def test_one_sentence_without_a_validation_side(contrary: Any) -> None:
    with refuses("no_split", "keep", says="`split`"):
        srjt.train(contrary.manifest, **SETTINGS)
    none = np.empty(0, dtype=np.int64)
    sides = Split(train=contrary.split.train, validation=none, test=contrary.split.test)
    with refuses("no_split", "keep", says="`split`"):
        srjt.train(contrary.manifest, split=sides, **SETTINGS)
    with refuses("conflict", "patience", says="'best'"):
        trained(contrary, keep="last", patience=3)


def rows(values: list[float], *, network: str = "1", metric: str = "mae") -> list[MetricRow]:
    return [
        MetricRow(k + 1, "validation", network, metric, value) for k, value in enumerate(values)
    ]


def test_the_best_epoch() -> None:
    assert best_epoch([], "mae") is None
    assert best_epoch(rows([0.5, 0.3, 0.3, 0.4]), "mae") == 2  # the first of equal ones
    assert best_epoch(rows([0.5, 0.3, 0.6], metric="qwk"), "qwk") == 3
    assert best_epoch(rows([float("nan"), 0.3, float("nan")]), "mae") == 2
    assert best_epoch(rows([float("nan")]), "mae") is None
    both = rows([0.1, 0.5]) + rows([0.9, 0.9], network="2") + rows([0.6, 0.4], network="ensemble")
    assert best_epoch(both, "mae") == 2  # two networks are judged by their ensemble
    test_side = [MetricRow(1, "test", "1", "mae", 0.0)]
    assert best_epoch(rows([0.5, 0.4]) + test_side, "mae") == 2


@pytest.mark.slow
def test_early_stopping_is_a_row_of_its_own_in_a_study(tmp_path: Path) -> None:
    results = srjt.study(
        "synthetic", reading={"images": 90, "patients": 18, "size": 32}, methods=["standard", "standard:keep=best"],
        noise="quasi:0.4", folds=3, only_folds=0, out=tmp_path, device="cpu", network="tiny", image_size=32, crop=28,
        epochs=4, learning_rate=1e-2, batch_size=16,
    )  # fmt: skip
    (table,) = StudyTables(results).comparison()
    assert [row.cells[0].text for row in table.rows] == [
        "Standard",
        "Standard (early stopping)",
        "One grade for all",
    ]
    assert (
        "; with early stopping of the epoch that was best on the validation side;" in table.caption
    )
    metrics = results.metrics[results.metrics["variant"] == "keep=best"]
    kept = kept_epoch(metrics)
    scores = results.scores.query("variant == 'keep=best' and split == 'test' and metric == 'mae'")[
        "value"
    ]
    at_kept = metrics.query("split == 'test' and metric == 'mae' and epoch == @kept")["value"]
    assert scores.tolist() == pytest.approx(at_kept.tolist())
    srjt.write_report(tmp_path)
    assert "Standard (early stopping)" in (tmp_path / "report.html").read_text()
    folder = tmp_path / "runs" / metrics["key"].iloc[0]
    srjt.write_report(folder)
    run_page = (folder / "report.html").read_text()
    assert f"epoch {kept}, the best on the validation side" in run_page
    assert "last 4 epochs" not in run_page
