from __future__ import annotations

import random
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixtures.fake_timm import FakeTimm
from srjt import networks
from srjt.data.images import augment
from srjt.errors import SrjtError, UnknownNameError
from srjt.networks import backbones, resnet
from srjt.networks import imagenet_weights as imagenet
from srjt.training.engine.worker_pool import WITH_MONAI

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


def build(network: str, **options) -> nn.Module:
    options = {"in_shape": (3, 64, 64), **options}
    return networks.build(network, head=lambda features: nn.Linear(features, 4), **options)


def official_state(name: str) -> dict[str, Tensor]:
    """Random tensors under the names and shapes of PyTorch's ImageNet files."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, Tensor] = {}

    def convolution(key: str, outputs: int, inputs: int, size: int) -> None:
        weight = torch.randn(outputs, inputs, size, size, generator=generator)
        state[f"{key}.weight"] = weight * (2 / (inputs * size * size)) ** 0.5

    def norm(key: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{key}.{part}"] = torch.rand(channels, generator=generator) + 0.1

    convolution("conv1", 64, 3, 7)
    norm("bn1", 64)
    inputs = 64
    for stage, blocks in enumerate(BLOCKS[name]):
        width = 64 * 2**stage
        outputs = width if name == "resnet18" else 4 * width
        for block in range(blocks):
            key = f"layer{stage + 1}.{block}"
            shapes = [(width, inputs, 3), (width, width, 3)]
            if name == "resnet50":
                shapes = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
            for i, shape in enumerate(shapes):
                convolution(f"{key}.conv{i + 1}", *shape)
                norm(f"{key}.bn{i + 1}", shape[0])
            if block == 0 and (stage > 0 or inputs != outputs):
                convolution(f"{key}.downsample.0", outputs, inputs, 1)
                norm(f"{key}.downsample.1", outputs)
            inputs = outputs
    state["fc.weight"] = torch.randn(1000, inputs, generator=generator)
    state["fc.bias"] = torch.randn(1000, generator=generator)
    return state


def official_features(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """ResNet v1.5 in evaluation, written out: the network those files belong to."""

    def layer(x: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        weight = state[f"{convolution}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var, scale, shift = (
            state[f"{norm}.{p}"] for p in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, var, scale, shift)

    x = F.max_pool2d(layer(x, "conv1", "bn1", 2).relu(), 3, stride=2, padding=1)
    strided = 1 if name == "resnet18" else 2  # the 3×3 convolution that carries the stride
    for stage, blocks in enumerate(BLOCKS[name]):
        for block in range(blocks):
            key = f"layer{stage + 1}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            count = 2 if name == "resnet18" else 3
            y = x
            for i in range(1, count + 1):
                y = layer(y, f"{key}.conv{i}", f"{key}.bn{i}", stride if i == strided else 1)
                y = y.relu() if i < count else y
            if f"{key}.downsample.0.weight" in state:
                x = layer(x, f"{key}.downsample.0", f"{key}.downsample.1", stride)
            x = (x + y).relu()
    return x.mean((2, 3))


@pytest.mark.parametrize(
    ("name", "keys"), [("resnet18", 102), pytest.param("resnet50", 267, marks=pytest.mark.slow)]
)
def test_published_imagenet_files_load_into_the_very_network_they_belong_to(
    name, keys, tmp_path, monkeypatch
):
    state = official_state(name)
    assert len(state) == keys
    torch.save(state, tmp_path / "published.pth")
    fetched = []
    monkeypatch.setattr(imagenet, "fetch", lambda *what: fetched.append(what) or tmp_path / "published.pth")
    before = random.getstate()  # importing MONAI would advance it
    network = build(name, pretrained=True).eval()
    assert random.getstate() == before
    assert fetched == [imagenet.OFFICIAL[name]]
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = official_features(x, state, name)
        torch.testing.assert_close(network.backbone(x), expected, rtol=1e-4, atol=1e-4 * expected.abs().max())
    assert network(x).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "features"), [("resnet18", 512), ("densenet121", 1024), ("efficientnet-b0", 1280)]
)
def test_monai_backbones_end_in_features_and_are_decided_by_the_seed(name, features):
    before = torch.get_rng_state()
    one, again = build(name, seed=1), build(name, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.head.in_features == features
    assert one(torch.randn(2, 3, 64, 64)).shape == (2, 4)
    for (key, a), (_, b) in zip(one.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(a, b), key


# the smallest of each kind of block
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("resnet18", "resnet50") else pytest.param(name, marks=pytest.mark.slow)
        for name in resnet.DEPTHS
    ],
)
def test_a_resnet_is_monais_to_the_bit(name):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(3)
    ours = resnet.resnet(name, channels=1)
    torch.manual_seed(3)
    monais = getattr(nets, name)(
        spatial_dims=2,
        n_input_channels=1,
        conv1_t_stride=2,
        shortcut_type="B",
        bias_downsample=False,
        feed_forward=False,
    )
    for (key, a), (other, b) in zip(ours.state_dict().items(), monais.state_dict().items(), strict=True):
        assert key == other
        assert torch.equal(a, b), key
    x = torch.randn(2, 1, 48, 40)
    torch.testing.assert_close(ours(x), monais(x))


def test_only_the_networks_of_monai_import_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "monai.networks.nets", None)
    for name in networks.names():
        if name.startswith(WITH_MONAI):
            with pytest.raises(ImportError):
                backbones.maker(name, in_shape=(3, 32, 32))
        else:
            backbones.maker(name, in_shape=(8,) if backbones.takes_rows(name) else (3, 32, 32))


def test_names_are_unique_and_hold_what_is_promised():
    assert len(set(networks.names())) == len(networks.names())
    assert {"tiny", "linear", "mlp", "resnet18", "resnet50", "densenet121"} <= set(networks.names())


def test_timm_missing_gives_the_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(SrjtError, match=r"'timm:convnext_tiny' needs timm, .*pip install \"timm>=1"):
        build("timm:convnext_tiny")


def test_timm_networks_are_made_without_their_classifier(monkeypatch):
    timm = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", timm)
    network = build("timm:mobilenetv3_large_100.ra_in1k", pretrained=True)
    assert timm.calls == [("mobilenetv3_large_100.ra_in1k", True, 0, 3, {})]
    assert network.head.in_features == 12
    build("timm:convnext_tiny")
    assert timm.calls[-1] == ("convnext_tiny", False, 0, 3, {})


def test_timm_networks_take_local_weights(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    weight = torch.randn(12, 3, 3, 3)
    torch.save(
        {"0.weight": weight, "0.bias": torch.zeros(12), "head.weight": torch.ones(9)}, tmp_path / "w.pth"
    )
    network = build("timm:convnext_tiny", pretrained=tmp_path / "w.pth")
    assert torch.equal(network.backbone[0].weight, weight)


def test_timm_problems_are_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm(fails=True))
    with pytest.raises(UnknownNameError, match=r"did you mean 'timm:convnext_tiny'\?"):
        build("timm:convnxt_tiny")
    with pytest.raises(
        SrjtError, match=r"couldn't connect to 'https://huggingface.co'\): .*`pretrained=False`"
    ):
        build("timm:convnext_tiny", pretrained=True)


def test_networks_know_how_images_are_normalised():
    assert (augment.IMAGENET_MEAN, augment.IMAGENET_STD) == (backbones.IMAGENET_MEAN, backbones.IMAGENET_STD)


def test_timm_networks_get_the_normalisation_that_they_were_trained_with(monkeypatch):
    timm = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", timm)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    for name in ("clip", "vit_small", "convnext_tiny"):
        network = build(f"timm:{name}", in_shape=(3, 64, 64))
        raw = network.backbone.network if name != "convnext_tiny" else network.backbone
        known = timm.get_pretrained_cfg(name)
        theirs = augment.normalise(images, mean=known.mean, std=known.std)
        torch.testing.assert_close(network.backbone(augment.normalise(images)), raw(theirs))
        assert isinstance(network.head, nn.Linear)  # not timm's, which starts far too large
        assert network.head.weight.abs().max() <= network.head.in_features**-0.5


def test_transformers_of_timm_are_made_for_the_size_of_the_images(monkeypatch):
    timm = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", timm)
    assert build("timm:vit_small", in_shape=(3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    assert timm.calls[-1][-1] == {"img_size": 32}
    build("timm:vit_small", in_shape=(3, 64, 64))
    assert timm.calls[-1][-1] == {}  # the size that it was trained on
    build("timm:clip", in_shape=(3, 32, 32))
    assert timm.calls[-1][-1] == {}  # convolutions take any
    with pytest.raises(
        SrjtError, match=r"for images of 36 pixels \(36 is not a multiple of 8\): .*`crop=64`"
    ):
        build("timm:vit_small", in_shape=(3, 36, 36))


def test_another_size_than_in_training_is_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    with pytest.warns(
        UserWarning, match=r"trained on images of 64 pixels and gets 32: `crop=64`, from a larger"
    ):
        networks.fetch_weights("timm:vit_small", True, in_shape=(3, 32, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        networks.fetch_weights("timm:vit_small", True, in_shape=(3, 64, 64))
        networks.fetch_weights("timm:vit_small", False, in_shape=(3, 32, 32))


def test_weights_of_version_0_2_are_fed_as_they_were(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    network = build("timm:clip")
    older = {
        key.replace("backbone.network.", "backbone."): value for key, value in network.state_dict().items()
    }
    older = {key: value for key, value in older.items() if ".input." not in key}
    x = torch.randn(2, 3, 32, 32)
    wanted = network.head(network.backbone.network(x))
    again = build("timm:clip", seed=1)
    again.load_state_dict(older)
    torch.testing.assert_close(again(x), wanted)
    assert not torch.allclose(network(x), wanted)
