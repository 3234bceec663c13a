"""Networks of one structure are compiled once, also those of later trainings; code is kept in our cache folder."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import cache_dir

from srjt.data.images.feed import ResidentFeed
from srjt.training.config import TrainConfig
from srjt.training.engine import compiling
from srjt.training.engine.batches import Preprocess
from srjt.training.engine.compiling import (
    LEFT_OUT,
    compile_networks,
    keep_compiled_code,
    pause_garbage_collection,
)
from srjt.training.engine.scoring import one_batch_size, predict_probabilities
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.trained import build_method


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """The graphs that torch has compiled, by a compiler that only counts."""
    found: list[Any] = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], *, options: dict[str, Any]) -> Any:
        assert options == LEFT_OUT
        found.append(len(inputs))
        return graph.forward

    monkeypatch.setenv("SRJT_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=count))
    torch.compiler.reset()
    compiling._compiled.clear()
    yield found
    torch.compiler.reset()
    compiling._compiled.clear()


def train_and_evaluate(networks: StackedNetworks, *, batch: int, evaluated: tuple[int, ...] = (6, 7)) -> None:
    compile_networks(networks, batch_size=batch)
    networks.train()(torch.rand(batch, 3)).sum().backward()
    networks.eval()
    with torch.no_grad():
        for size in evaluated:
            x = torch.rand(size, 3)
            plain = torch.stack([member(x) for member in networks.members])
            torch.testing.assert_close(networks(x), plain)


@pytest.mark.slow
def test_two_networks_and_later_trainings_share_the_compiled_code(graphs: list[Any]) -> None:
    train_and_evaluate(StackedNetworks([network(), network()]), batch=4)
    assert len(graphs) == 3  # for training, and for the two sizes of evaluation batches
    for _ in range(10):  # more than the eight times that torch compiles a function
        train_and_evaluate(StackedNetworks([network(), network()]), batch=4)
    assert len(graphs) == 3
    train_and_evaluate(StackedNetworks([network(5), network(5)]), batch=4)
    assert len(graphs) == 6
    train_and_evaluate(StackedNetworks([network(5)]), batch=9)
    assert len(graphs) == 9


@pytest.mark.slow
def test_networks_are_compiled_for_many_sizes_of_evaluation_batches(graphs: list[Any]) -> None:
    train_and_evaluate(StackedNetworks([network()]), batch=4, evaluated=tuple(range(5, 15)))
    assert len(graphs) == 1 + 10


def test_all_sides_are_evaluated_in_batches_of_one_size(graphs: list[Any]) -> None:
    feed = ResidentFeed(torch.rand(500, 3))
    networks = StackedNetworks([network()])
    compile_networks(networks, batch_size=4)
    sides = [torch.arange(300), torch.arange(300, 370), torch.arange(370, 500)]
    size = one_batch_size(networks, sides, largest=200)
    assert size == 192
    method = build_method(TrainConfig(method="standard", network="mlp"), num_classes=2)
    for rows in sides:
        (probabilities,), _ = predict_probabilities(
            networks, method, feed, rows, preprocess=Preprocess(crop=1), batch_size=size, amp=None
        )
        with torch.no_grad():
            expected = networks.members[0].eval()(feed.pixels[rows]).softmax(dim=-1)
        torch.testing.assert_close(probabilities, expected)
    assert len(graphs) == 1
    networks.compiled = []
    assert one_batch_size(networks, sides, largest=200) == 200


def test_the_compiler_knows_the_steps_that_are_left_out() -> None:
    assert LEFT_OUT.keys() <= set(torch._inductor.list_options())


def test_compiled_code_does_not_keep_the_networks(graphs: list[Any]) -> None:
    networks = StackedNetworks([network(), network()])
    train_and_evaluate(networks, batch=4)
    weights = [weakref.ref(parameter) for parameter in networks.parameters()]
    del networks
    gc.collect()
    assert [reference() for reference in weights] == [None] * len(weights)


def test_the_cache_folder_is_ours_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    keep_compiled_code()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_compiled_code()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "cache" / "compiled"
    assert (tmp_path / "cache" / "compiled").is_dir()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    cache_dir()  # torch sets the variable itself when it needs the folder, and an optimizer needs it
    assert "TORCHINDUCTOR_CACHE_DIR" in os.environ
    keep_compiled_code()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "cache" / "compiled"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "file"))
    keep_compiled_code()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_paused_and_then_as_before(enabled: bool) -> None:
    gc.enable() if enabled else gc.disable()
    try:
        with contextlib.suppress(ZeroDivisionError), pause_garbage_collection():
            assert not gc.isenabled()
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
