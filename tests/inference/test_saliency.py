"""Maps of what raises the expected grade: closed forms, layouts, and the check with random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srjt import networks
from srjt.errors import SrjtError
from srjt.inference.saliency import contributions, rank_correlation


def pooled_linear(weights: Tensor) -> nn.Module:
    """One convolution (the identity), mean over the places, a linear layer with these weights (C, 3)."""
    identity = nn.Conv2d(3, 3, 1, bias=False)
    head = nn.Linear(3, len(weights), bias=False)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(3)[..., None, None])
        head.weight.copy_(weights)
    return nn.Sequential(identity, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def test_for_a_linear_severity_the_places_sum_to_the_severity() -> None:
    """s = w · mean(A): a place contributes w · A / (number of places), exactly."""
    weights = torch.tensor([[1.0, -2.0, 0.5]])
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    maps = contributions(pooled_linear(weights), x, lambda logits: logits[:, 0])
    torch.testing.assert_close(maps, torch.einsum("c,bchw->bhw", weights[0], x) / 16)
    torch.testing.assert_close(maps.sum(dim=(1, 2)), (weights[0] * x.mean(dim=(2, 3))).sum(dim=1))


def test_a_place_that_is_not_used_gets_nothing() -> None:
    class Corner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, 0, 0]

    conv = nn.Conv2d(3, 3, 1)
    maps = contributions(
        nn.Sequential(conv, Corner()), torch.rand(1, 3, 4, 4), lambda logits: logits.sum(dim=1)
    )
    assert maps[0, 0, 0] != 0
    assert int((maps != 0).sum()) == 1


class Tokens(nn.Module):
    """A vision transformer in small: patches, a class token, one block; reads the class token."""

    num_prefix_tokens = 1

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.last = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1)
        return self.last(self.block(tokens))[:, 0]


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 4, stride=4), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x).permute(0, 2, 3, 1)).mean(dim=(1, 2))


@pytest.mark.parametrize("make", [Tokens, ChannelsLast])
def test_tokens_and_channels_last_have_places_too(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    maps = contributions(make().eval(), torch.rand(2, 3, 16, 16), lambda features: features[:, 0])
    assert maps.shape == (2, 4, 4)
    assert bool(maps.any())


@pytest.mark.parametrize("name", ["tiny", "tiny-gn", "resnet18"])
def test_our_networks_have_a_feature_map(name: str) -> None:
    network = networks.build(name, head=lambda n: nn.Linear(n, 4), in_shape=(3, 64, 64)).eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    maps = contributions(network, torch.rand(2, 3, 64, 64), lambda logits: logits.softmax(dim=1)[:, 3])
    assert maps.ndim == 3
    assert min(maps.shape[1:]) > 1
    assert bool(maps.isfinite().all())
    assert not any(module._forward_hooks for module in network.modules())
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_a_network_without_places_is_an_error() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with pytest.raises(SrjtError, match="no feature map with places"):
        contributions(flat, torch.rand(1, 3, 4, 4), lambda logits: logits[:, 0])


def test_rank_correlation_is_scipys() -> None:
    from scipy.stats import spearmanr

    a, b = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    b[0, 0] = b[0, 1]  # ties
    expected = [spearmanr(x.ravel(), y.ravel()).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(rank_correlation(a, b), expected, rtol=1e-5)
    assert np.isnan(rank_correlation(np.zeros((1, 2, 2), np.float32), a[:1, :2, :2])).all()
