from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from srjt import networks
from srjt.errors import SrjtError

SHAPES = {"tiny": (3, 32, 32), "tiny-gn": (3, 32, 32), "linear": (7,), "mlp": (7,)}


def build(network, **options) -> nn.Module:
    options.setdefault(
        "in_shape", SHAPES.get(network, (3, 32, 32)) if isinstance(network, str) else (3, 32, 32)
    )
    return networks.build(network, head=lambda features: nn.Linear(features, 4), **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


class Pooled(nn.Module):
    """A user's own network: no num_features, batch norm, dropout, and a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.frozen = nn.BatchNorm2d(5).eval()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.frozen(self.norm(self.conv(x)))).mean((2, 3))


@pytest.mark.parametrize("name", SHAPES)
def test_gives_the_heads_output_and_gradients_everywhere(name):
    network = build(name)
    network(torch.randn(6, *SHAPES[name])).square().sum().backward()
    assert network(torch.randn(6, *SHAPES[name])).shape == (6, 4)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_seed_decides_all_weights(name):
    assert same(build(name, seed=3), build(name, seed=3))
    assert not same(build(name, seed=3), build(name, seed=4))


@pytest.mark.parametrize("network", ["tiny", "mlp", Pooled])
def test_leaves_the_random_state_alone(network):
    torch.manual_seed(11)
    before = torch.get_rng_state()
    build(network, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_state_outside_does_not_reach_the_weights():
    torch.manual_seed(1)
    one = build(Pooled, seed=5)
    torch.manual_seed(2)
    assert same(one, build(Pooled, seed=5))


@pytest.mark.parametrize("size", [(16, 16), (17, 40), (64, 64)])
def test_tiny_takes_any_size_from_16_pixels(size):
    assert build("tiny", in_shape=(3, *size))(torch.randn(2, 3, *size)).shape == (2, 4)


def test_group_norm_variant_treats_samples_one_by_one():
    x = torch.randn(8, 3, 32, 32)
    network = build("tiny-gn").train()
    torch.testing.assert_close(network(x)[:2], network(x[:2]))
    with_statistics = build("tiny").train()
    assert not torch.allclose(with_statistics(x)[:2], with_statistics(x[:2]), atol=1e-3)


def test_linear_is_the_head_alone():
    network = build("linear")
    x = torch.randn(5, 7)
    assert [key for key, _ in network.named_parameters()] == ["head.weight", "head.bias"]
    torch.testing.assert_close(network(x), x @ network.head.weight.T + network.head.bias)


def test_a_function_makes_the_network_and_its_features_are_counted():
    seen = []
    network = networks.build(
        Pooled, head=lambda features: seen.append(features) or nn.Linear(features, 2), in_shape=(3, 20, 20)
    )
    assert seen == [5]
    assert network(torch.randn(2, 3, 20, 20)).shape == (2, 2)


def test_counting_leaves_statistics_and_modes_alone():
    backbone = build(Pooled).backbone
    assert backbone.norm.num_batches_tracked == 0
    assert backbone.norm.running_mean.abs().sum() == 0
    assert backbone.norm.training
    assert not backbone.frozen.training


def test_lazy_layers_are_made_under_the_seed():
    def lazy() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(6))

    assert same(build(lazy, seed=1), build(lazy, seed=1))
    assert build(lazy).backbone[1].weight.shape == (6, 3 * 32 * 32)


def test_pretrained_networks_differ_in_their_heads_only(tmp_path: Path):
    save_file(build("tiny", seed=9).backbone.state_dict(), tmp_path / "w.safetensors")
    one, other = (build("tiny", seed=seed, pretrained=tmp_path / "w.safetensors") for seed in (1, 2))
    assert same(one.backbone, other.backbone)
    assert same(one.backbone, build("tiny", seed=9).backbone)
    assert not torch.equal(one.head.weight, other.head.weight)


def test_a_whole_network_of_ours_serves_as_weights_file(tmp_path: Path):
    whole = build("tiny", seed=9)
    save_file(whole.state_dict(), tmp_path / "run.safetensors")
    again = build("tiny", seed=1, pretrained=str(tmp_path / "run.safetensors"))
    assert same(again.backbone, whole.backbone)
    assert not torch.equal(again.head.weight, whole.head.weight)


@pytest.mark.parametrize(
    ("network", "options", "says"),
    [
        ("resnet81", {}, r"Unknown network 'resnet81': did you mean 'resnet18'\?"),
        ("tiny", {"in_shape": (7,)}, r"'tiny' reads images, not samples of shape \(7,\).*'mlp'"),
        ("mlp", {"in_shape": (3, 32, 32)}, r"'mlp' reads rows of features, not samples of shape .*'tiny'"),
        (
            "tiny",
            {"pretrained": True},
            r"no published ImageNet weights for the network 'tiny', only for resnet18.*`weights`",
        ),
        (
            Pooled,
            {"pretrained": True},
            r"no published ImageNet weights for your own network.*`pretrained=False`",
        ),
        ("tiny", {"pretrained": Path("gone.pth")}, r"There is no weights file at gone\.pth"),
        (Pooled(), {}, r"Pass a function that returns the network"),
        (lambda: "a string", {}, r"must return a torch module, not str"),
        (lambda: nn.Conv2d(3, 5, 3), {}, r"returns \(1, 5, 30, 30\) for one sample: .*nn\.Flatten"),
        (
            lambda: nn.Linear(9, 5),
            {},
            r"Samples of shape \(3, 32, 32\) do not fit your own network: mat1",
        ),
    ],
)
def test_mistakes_are_one_sentence(network, options, says):
    with pytest.raises(SrjtError, match=says) as caught:
        build(network, **options)
    assert "\n" not in str(caught.value)
