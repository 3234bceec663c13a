"""Predictions in bfloat16, the layout for this CPU, and the size of evaluation batches."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from srjt.data.images.feed import ResidentFeed
from srjt.errors import SrjtError
from srjt.inference import precision
from srjt.inference.precision import for_this_cpu, with_precision
from srjt.inference.predict import predict
from srjt.training.engine.batches import evaluation_batch_size
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.trained import Trained

PS = ["p_0", "p_1", "p_2", "p_3"]


@pytest.fixture(scope="module")
def run(data: Any) -> Trained:
    return srjt.train(
        data.manifest, split=data.split, noise_rate=0.2, network="tiny", image_size=32, crop=28, epochs=1,
        batch_size=16, tune_cpu=False, device="cpu",
    )  # fmt: skip


def test_bf16_is_close_and_says_how_close(run: Trained, data: Any) -> None:
    exact = predict(run, data.manifest)
    rounded = predict(run, data.manifest, precision="bf16")
    difference = np.abs(exact[PS].to_numpy() - rounded[PS].to_numpy()).max()
    assert 0 < difference < 0.02  # 8 significant bits
    assert exact.attrs["precision"] == ""
    said = re.match(
        r"bf16: of 16 images predicted in fp32 too, (\d+) ha(s|ve) another most likely grade, "
        r"and no probability differs by more than ([\d.e-]+)",
        rounded.attrs["precision"],
    )
    assert said is not None
    assert float(said[3]) <= difference * 1.05 + 1e-6  # of some of the images, before recalibration


def test_the_run_itself_is_not_changed(run: Trained, data: Any) -> None:
    before = run.probabilities(data.manifest.arrays)[0]
    predict(run, data.manifest, precision="bf16")
    assert np.array_equal(run.probabilities(data.manifest.arrays)[0], before)
    assert np.array_equal(with_precision(run, "fp32").probabilities(data.manifest.arrays)[0], before)
    assert all(p.is_contiguous() for p in run.networks.parameters())


def test_a_slower_bf16_is_said(run: Trained, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 1.0, 1.0, 3.0])
    monkeypatch.setattr(precision.time, "perf_counter", lambda: next(seconds))
    cost = precision.compare_precisions(run, with_precision(run, "bf16"), data.manifest.arrays)
    assert cost.endswith(". It is not faster than fp32 on this machine")


def test_mistakes(run: Trained, data: Any) -> None:
    with pytest.raises(SrjtError, match="Unknown precision 'bf8'"):
        predict(run, data.manifest, precision="bf8")
    with pytest.raises(SrjtError, match="trained on features"):
        precision.check_precision(replace(run, in_shape=(5,)), "bf16")


def test_only_a_run_from_a_gpu_gets_another_layout(run: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CpuSetting(channels_last=True)
    monkeypatch.setattr(precision, "fastest_setting", lambda *_, **__: found)
    assert for_this_cpu(run, images=10**6) is run
    from_gpu = replace(run, cpu=None)
    assert for_this_cpu(from_gpu, images=10) is from_gpu
    tuned = for_this_cpu(from_gpu, images=10**6)
    assert (tuned.cpu, tuned.preprocess.channels_last) == (found, True)


@pytest.mark.parametrize(("crop", "size"), [(28, 1024), (112, 128), (224, 32), (448, 8), (10_000, 1)])
def test_batches_on_a_cpu_do_not_grow_with_the_images(crop: int, size: int) -> None:
    feed = ResidentFeed(torch.zeros(1, 2, 2, 3, dtype=torch.uint8))
    assert evaluation_batch_size(feed, crop=crop, largest=1024) == size
    on_gpu = ResidentFeed(torch.zeros(1, 2, 2, 3, dtype=torch.uint8, device="meta"))
    features = ResidentFeed(torch.zeros(1, 5))
    assert {evaluation_batch_size(f, crop=crop, largest=1024) for f in (on_gpu, features)} == {1024}
