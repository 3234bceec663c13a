"""Predictions in bfloat16, the layout for this CPU, and the size of evaluation batches."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srjt
from srjt.data.images.feed import ResidentFeed
from srjt.errors import SrjtError
from srjt.inference import precision
from srjt.inference.explain import network_maps
from srjt.inference.precision import for_this_cpu, with_precision
from srjt.inference.predict import predict
from srjt.training.engine.batches import evaluation_batch_size
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.neighbours import features
from srjt.training.trained import Trained, use_run_settings

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
        r"and no probability differs by more than (\d+(?:\.\d+)?(?:e-\d+)?)",
        rounded.attrs["precision"],
    )
    assert said is not None
    assert 0 < float(said[3]) < 0.02  # of some of the images, in another batch


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


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_on_a_gpu_the_flags_are_those_of_the_run(
    run: Trained, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flags() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    on_gpu = replace(run, config=run.config.replace(precision=precision), device=torch.device("cuda"))
    matmul, strict = torch.get_float32_matmul_precision(), torch.get_deterministic_debug_mode()
    try:
        for theirs in ("highest", "medium"):
            torch.set_float32_matmul_precision(theirs)
            torch.use_deterministic_algorithms(True, warn_only=True)
            before = flags()
            with use_run_settings(on_gpu):
                assert flags() == (precision != "fp32",) * 2
            assert flags() == before
            assert torch.get_float32_matmul_precision() == theirs
            assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.set_deterministic_debug_mode(strict)


def test_everything_is_computed_with_the_flags_of_the_run(data: Any) -> None:
    """deterministic: the flag that a CPU has too."""
    seen: list[bool] = []

    class Recording(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.backends.cudnn.deterministic)
            return super().forward(x)

    def network() -> nn.Module:
        return Recording(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)
        )

    run = srjt.train(
        data.manifest, split=data.split, network=network, method="standard", image_size=32, crop=28, epochs=1,
        batch_size=16, deterministic=True, device="cpu",
    )  # fmt: skip
    assert all(seen[1:])  # also for the held-out sides; the first call only finds the number of features
    pixels = data.manifest.arrays[:4]
    calls = {
        "probabilities": lambda: run.probabilities(pixels),
        "maps": lambda: network_maps(run, pixels),
        "neighbours": lambda: features(run, ResidentFeed(torch.from_numpy(pixels)), np.arange(4)),
    }
    for name, call in calls.items():
        seen.clear()
        call()
        assert seen, name
        assert all(seen), name
        assert not torch.are_deterministic_algorithms_enabled()


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
