"""Pretrained weights that are not available are known before any image is decoded."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import srjt
from refusals import refuses
from srjt.data import read
from srjt.networks import registry
from srjt.studies.study import study
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.reporters import BarReporter
from srjt.training.trained import Setup

ADVICE = ("`weights`", "`pretrained=False`", "network tiny", "srjt features")


class Decoding(BarReporter):
    """Fails the test when an image is decoded."""

    def decoded(self, done: int, total: int) -> None:
        raise AssertionError("images were decoded first")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    for name in ("resnet18", "efficientnet-lite0"):
        row = registry.find(name)
        assert row.weights is not None
        unreachable = replace(row.weights, address="http://127.0.0.1:9/weights.pth")
        monkeypatch.setitem(registry._ROWS, name, replace(row, weights=unreachable))


@pytest.mark.parametrize("method", ["srjt", "standard"])
def test_training_stops_first(labels: Path, tmp_path: Path, method: str) -> None:
    """srjt is the README's method; it estimates the noise first."""
    given = {"out": tmp_path / "run", "device": "cpu", "reporter": Decoding()}
    with refuses("unreachable", "weights", says=ADVICE):
        srjt.train(read(labels), method=method, **given)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_a_missing_file_a_cross_fit_and_a_study_stop_first(labels: Path, tmp_path: Path) -> None:
    data, setup = read(labels), Setup(device="cpu", reporter=Decoding())
    with refuses("missing_file", "weights", says="nowhere.pth"):
        srjt.train(
            data, method="standard", weights="nowhere.pth", device="cpu", reporter=Decoding()
        )
    with refuses("unreachable", "weights", says=ADVICE):
        cross_fit(data, config=TrainConfig(method="sord"), setup=setup)
    with refuses("unreachable", "weights", says=ADVICE):
        study(
            labels,
            out=tmp_path / "study",
            methods=["standard", "sord"],
            folds=3,
            device="cpu",
            jobs=1,
        )
    assert not list(tmp_path.glob("study/runs/*"))


@pytest.mark.slow
def test_a_finished_run_opens_without_them(data: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from srjt.training import trained

    calls: list[Any] = []
    real: Callable[..., None] = trained.networks.fetch_weights
    monkeypatch.setattr(
        trained.networks, "fetch_weights", lambda *a, **k: calls.append(a) or real(*a, **k)
    )
    given: dict[str, Any] = {
        "out": tmp_path / "run", "split": data.split, "method": "standard", "network": "resnet18", "image_size": 32,
        "crop": 32, "epochs": 1, "batch_size": 64, "device": "cpu",
    }  # fmt: skip
    torch.manual_seed(0)
    file = tmp_path / "weights.pth"
    identity = lambda features: torch.nn.Identity()  # noqa: E731
    backbone = trained.networks.build("resnet18", head=identity, in_shape=(3, 32, 32))[0]
    torch.save(backbone.state_dict(), file)
    srjt.train(data.manifest, **given, weights=str(file))
    assert len(calls) == 1
    file.unlink()
    assert srjt.train(data.manifest, **given, weights=str(file)).metrics["epoch"].max() == 1
    assert len(calls) == 1
    shutil.rmtree(tmp_path / "run")
