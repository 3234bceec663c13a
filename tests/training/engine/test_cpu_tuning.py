"""The trial that finds the fastest CPU setting leaves no trace but its answer."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srjt
from srjt.networks.small import tiny
from srjt.training.engine import cpu_tuning
from srjt.training.engine.cpu_tuning import CANDIDATES, CpuSetting, fastest_setting, use_cpu_setting


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(tiny(), nn.Dropout(0.5))


EXAMPLE = torch.zeros(4, 3, 16, 16)


def test_weights_statistics_gradients_and_random_state_stay(network: nn.Module, tmp_path: Path) -> None:
    before = copy.deepcopy(network.state_dict())
    random = torch.get_rng_state()
    network.eval()
    assert fastest_setting(network, EXAMPLE, cache=tmp_path) in CANDIDATES
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    assert not network.training
    assert all(p.is_contiguous() for p in network.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.backends.mkldnn.enabled


def test_asked_once_per_network_and_shape(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = []

    def seconds(network: nn.Module, example: Tensor, setting: CpuSetting, *, backward: bool) -> float:
        trials.append(setting)
        return 1.0 if setting.channels_last and not setting.onednn else 2.0

    monkeypatch.setattr(cpu_tuning, "seconds_per_step", seconds)
    best = CpuSetting(channels_last=True, onednn=False)
    assert fastest_setting(network, EXAMPLE, cache=tmp_path) == best
    assert sorted(trials, key=str) == sorted(CANDIDATES, key=str)
    assert fastest_setting(network, EXAMPLE, cache=tmp_path) == best
    assert len(trials) == 4
    fastest_setting(network, torch.zeros(8, 3, 16, 16), cache=tmp_path)
    fastest_setting(tiny(), EXAMPLE, cache=tmp_path)
    assert len(trials) == 12
    fastest_setting(network, EXAMPLE, backward=False, cache=tmp_path / "applied")
    fastest_setting(network, EXAMPLE, backward=False, cache=tmp_path)  # not what was found for training
    assert len(trials) == 20
    for damaged in ("{", '{"threads": 3}', "[]"):
        for path in (tmp_path / "cpu").iterdir():
            path.write_text(damaged)
        assert fastest_setting(network, EXAMPLE, cache=tmp_path) == best
        assert vars(best) in [json.loads(p.read_text()) for p in readable(tmp_path / "cpu")]


def readable(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if '"channels_last"' in path.read_text()]


def test_a_cache_that_cannot_be_written(network: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fastest_setting(network, EXAMPLE, cache=tmp_path / "file") in CANDIDATES


def test_a_layout_that_the_network_cannot_take_is_not_chosen(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * x.view(len(x), -1)

    assert not fastest_setting(Flat(), EXAMPLE, cache=tmp_path).channels_last


def test_rows_of_features_need_no_trial(tmp_path: Path) -> None:
    assert fastest_setting(nn.Linear(3, 3), torch.zeros(4, 3), cache=tmp_path) == CpuSetting()
    assert not (tmp_path / "cpu").exists()


def test_a_setting_holds_for_the_body_only(network: nn.Module) -> None:
    flags = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic
    with use_cpu_setting(CpuSetting(channels_last=True, onednn=False), network):
        assert not torch.backends.mkldnn.enabled
        assert network[0][1][0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[index]
    assert (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic) == flags
    with contextlib.suppress(ZeroDivisionError), use_cpu_setting(CpuSetting(onednn=False)):
        _ = 1 / 0
    assert (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic) == flags
    with use_cpu_setting(None, network):
        assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("last", [False, True])
def test_a_run_keeps_its_setting_and_lays_its_images_out_by_it(
    data: Any, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    found = CpuSetting(channels_last=last, onednn=False)
    asked = []
    monkeypatch.setattr(cpu_tuning, "fastest_setting", lambda *a, **k: asked.append(1) or found)
    layouts = set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tiny()

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 1:
                layouts.add(x.is_contiguous(memory_format=torch.channels_last))
            features: Tensor = self.body(x)
            return features

    chosen = {**settings, "tune_cpu": True, "epochs": 1, "network": Looks}
    run = srjt.train(data.manifest, out=tmp_path / "run", **chosen)
    assert run.cpu == found
    assert layouts == {last}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["cpu"] == vars(found)
    again = srjt.load_run(tmp_path / "run", network=Looks, device="cpu")
    assert again.cpu == found
    again.probabilities(data.manifest.arrays)
    assert layouts == {last}
    assert asked == [1]
