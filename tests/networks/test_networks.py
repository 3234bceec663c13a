"""Networks by name, their weights, and how they are built."""

import os
import random
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from fixtures.fake_timm import FakeTimm
from refusals import refuses
from srjt import networks
from srjt.data.images import feed
from srjt.networks import network as building, registry

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


SHAPES = {"tiny": (3, 32, 32), "tiny-gn": (3, 32, 32), "linear": (7,), "mlp": (7,)}


def build(network, **options) -> nn.Module:
    by_name = SHAPES.get(network, (3, 64, 64)) if isinstance(network, str) else (3, 32, 32)
    options = {"in_shape": by_name, **options}
    return networks.build(network, head=lambda features: nn.Linear(features, 4), **options)


def official_state(name: str) -> dict[str, Tensor]:
    """Random tensors as in PyTorch's ImageNet files, which lack batch norm's counters and have a
    classifier."""
    torch.manual_seed(0)
    state = {
        k: v for k, v in networks.ResNet(name).state_dict().items() if not k.endswith("tracked")
    }
    state = {
        key: torch.rand_like(value) + 0.1 if value.ndim == 1 else value
        for key, value in state.items()
    }
    return state | {"fc.weight": torch.randn(1000, 512), "fc.bias": torch.randn(1000)}


def official_features(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """ResNet v1.5 in evaluation, written out: the network those files belong to."""

    def layer(x: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        weight = state[f"{convolution}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        parts = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(state[f"{norm}.{part}"] for part in parts))

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"), [("resnet18", 102), pytest.param("resnet50", 267, marks=pytest.mark.slow)]
)
def test_published_imagenet_files_load_into_the_network_they_belong_to(
    name, keys, tmp_path, monkeypatch
):
    state = official_state(name)
    assert len(state) == keys
    file, fetched = tmp_path / "published.pth", []
    torch.save(state, file)
    monkeypatch.setattr(building, "fetch_published", lambda what: fetched.append(what) or file)
    before = random.getstate()  # importing MONAI would advance it
    network = build(name, pretrained=True).eval()
    assert random.getstate() == before
    assert fetched == [registry.find(name).weights]
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = official_features(x, state, name)
        torch.testing.assert_close(
            network.backbone(x), expected, rtol=1e-4, atol=1e-4 * expected.abs().max()
        )
    assert network(x).shape == (2, 4)


@pytest.mark.slow  # imports MONAI
@pytest.mark.parametrize(
    ("name", "features"), [("resnet18", 512), ("densenet121", 1024), ("efficientnet-b0", 1280)]
)
def test_monai_backbones_end_in_features_and_are_decided_by_the_seed(name, features):
    pytest.importorskip("monai")
    before = torch.get_rng_state()
    one, again = build(name, seed=1), build(name, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.head.in_features == features
    assert one(torch.randn(2, 3, 64, 64)).shape == (2, 4)
    for (key, a), (_, b) in zip(one.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(a, b), key


@pytest.mark.slow  # imports MONAI
@pytest.mark.parametrize("name", networks.DEPTHS)
def test_a_resnet_is_monais_to_the_bit(name):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(3)
    ours = networks.ResNet(name, channels=1)
    torch.manual_seed(3)
    shape = {"spatial_dims": 2, "n_input_channels": 1, "conv1_t_stride": 2, "shortcut_type": "B"}
    monais = getattr(nets, name)(bias_downsample=False, feed_forward=False, **shape)
    for (key, a), (other, b) in zip(
        ours.state_dict().items(), monais.state_dict().items(), strict=True
    ):
        assert key == other
        assert torch.equal(a, b), key
    x = torch.randn(2, 1, 48, 40)
    torch.testing.assert_close(ours(x), monais(x))


def test_only_the_networks_of_monai_import_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "monai.networks.nets", None)
    for name in networks.names():
        if registry.find(name).package:
            with refuses("missing_extra", says='"monai'):
                registry.find(name).make((3, 32, 32), False)
        else:
            registry.find(name).make((8,) if networks.takes_rows(name) else (3, 32, 32), False)


def test_timm_missing_gives_the_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with refuses("missing_extra", says=("'timm:convnext_tiny'", '"timm>=1')):
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
    state = {"0.weight": weight, "0.bias": torch.zeros(12), "head.weight": torch.ones(9)}
    torch.save(state, tmp_path / "w.pth")
    network = build("timm:convnext_tiny", pretrained=tmp_path / "w.pth")
    assert torch.equal(network.backbone[0].weight, weight)


def test_timm_problems_are_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm(fails=True))
    with refuses("unknown_name", says="'timm:convnext_tiny'"):
        build("timm:convnxt_tiny")
    with refuses("unreachable", "weights", says=("'https://huggingface.co'", "`pretrained=False`")):
        build("timm:convnext_tiny", pretrained=True)


def test_timm_networks_get_the_normalisation_that_they_were_trained_with(monkeypatch):
    timm = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", timm)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    for name in ("clip", "vit_small", "convnext_tiny"):
        network = build(f"timm:{name}", in_shape=(3, 64, 64))
        raw = network.backbone.network if name != "convnext_tiny" else network.backbone
        known = timm.get_pretrained_cfg(name)
        theirs = feed.normalise(images, mean=known.mean, std=known.std)
        torch.testing.assert_close(network.backbone(feed.normalise(images)), raw(theirs))
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
    with refuses("unsupported", "crop", says=("36 pixels", "`crop=64`")):
        build("timm:vit_small", in_shape=(3, 36, 36))


def test_another_size_than_in_training_is_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    with pytest.warns(UserWarning, match=r"trained on images of 64 pixels and gets 32: `crop=64`"):
        networks.fetch_weights("timm:vit_small", True, in_shape=(3, 32, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        networks.fetch_weights("timm:vit_small", True, in_shape=(3, 64, 64))
        networks.fetch_weights("timm:vit_small", False, in_shape=(3, 32, 32))


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
    network = build(name, seed=3)
    assert same(network, build(name, seed=3))
    assert not same(network, build(name, seed=4))
    network(torch.randn(6, *SHAPES[name])).square().sum().backward()
    assert network(torch.randn(6, *SHAPES[name])).shape == (6, 4)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("network", ["tiny", "mlp", Pooled])
def test_leaves_the_random_state_alone_and_does_not_depend_on_it(network):
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = build(network, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(one, build(network, seed=5))


@pytest.mark.parametrize("size", [(16, 16), (17, 40)])
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


def test_a_function_makes_the_network_and_counting_its_features_changes_nothing():
    network = build(Pooled)
    backbone = network.backbone
    assert network.head.in_features == 5
    assert backbone.norm.num_batches_tracked == 0
    assert backbone.norm.running_mean.abs().sum() == 0
    assert (backbone.norm.training, backbone.frozen.training) == (True, False)
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 4)


def test_lazy_layers_are_made_under_the_seed():
    def lazy() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(6))

    assert same(build(lazy, seed=1), build(lazy, seed=1))
    assert build(lazy).backbone[1].weight.shape == (6, 3 * 32 * 32)


def test_pretrained_networks_differ_in_their_heads_only(tmp_path: Path):
    save_file(build("tiny", seed=9).backbone.state_dict(), tmp_path / "w.safetensors")
    one, other = (
        build("tiny", seed=seed, pretrained=tmp_path / "w.safetensors") for seed in (1, 2)
    )
    assert same(one.backbone, other.backbone)
    assert same(one.backbone, build("tiny", seed=9).backbone)
    assert not torch.equal(one.head.weight, other.head.weight)


@pytest.mark.parametrize(
    ("network", "options", "refused"),
    [
        ("resnet81", {}, ("unknown_name", "", ("'resnet81'", "'resnet18'"))),
        ("tiny", {"in_shape": (7,)}, ("unsupported", "network", ("'tiny'", "'mlp'"))),
        (
            "mlp",
            {"in_shape": (3, 32, 32)},
            ("unsupported", "network", ("'mlp'", "'tiny'")),
        ),
        (
            "tiny",
            {"pretrained": True},
            ("unsupported", "weights", "'tiny'"),
        ),
        ("tiny", {"pretrained": Path("gone.pth")}, ("missing_file", "weights", "gone.pth")),
        (Pooled(), {}, ("wrong_type", "network", "Pass a function")),
        (lambda: "a string", {}, ("wrong_type", "network", "must return a")),
        (lambda: nn.Conv2d(3, 5, 3), {}, ("wrong_shape", "network", "(1, 5, 30, 30)")),
        (
            lambda: nn.Linear(9, 5),
            {},
            ("wrong_shape", "network", "(3, 32, 32)"),
        ),
    ],
)
def test_mistakes_are_one_sentence(network, options, refused: tuple[str, ...]):
    with refuses(*refused) as caught:
        build(network, **options)
    assert "\n" not in str(caught.value)


class Backbone(nn.Module):
    """Its own ``head`` is no classifier, as in some of timm's networks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.ModuleDict({"norm": nn.LayerNorm(4)})


@pytest.fixture
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    state = Backbone().state_dict()
    return {k: torch.randn(v.shape) if v.is_floating_point() else v + 5 for k, v in state.items()}


def classified(state: dict[str, Tensor], name: str = "head.fc") -> dict[str, Tensor]:
    return state | {f"{name}.weight": torch.ones(1000, 4), f"{name}.bias": torch.ones(1000)}


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + key: value for key, value in state.items()}


def zeros(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: torch.zeros_like(value) for key, value in state.items()}


ONES = torch.ones(3, 4)


def loaded(path: Path) -> dict[str, Tensor]:
    network = Backbone()
    networks.load_weights(network, networks.read_weights(path), source=str(path))
    return network.state_dict()


@pytest.mark.parametrize(
    "arrange",
    [
        classified,
        lambda s: prefixed("module.", classified(s, "classifier")),
        lambda s: prefixed("module.", prefixed("backbone.", s) | {"head.weight": torch.ones(3, 4)}),
        lambda s: {"state_dict": {"model": prefixed("module.", s)}, "optimizer": {"lr": 0.1}},
        lambda s: {**s, "version": "1"},
        # one of two networks of a run, and a self-supervised training with a copy, a projection and
        # a queue
        lambda s: (
            prefixed("0.backbone.", s) | prefixed("1.backbone.", zeros(s)) | {"0.head.weight": ONES}
        ),
        lambda s: {
            **prefixed("module.encoder_q.", classified(s, "fc")),
            **prefixed("module.encoder_k.", zeros(s)),
            "module.projector.0.weight": ONES,
            "module.queue": ONES,
        },
    ],
)
def test_reads_what_torch_saves_however_it_is_wrapped(arrange, state, tmp_path):
    torch.save(arrange(state), tmp_path / "w.pth")
    result = loaded(tmp_path / "w.pth")
    assert all(torch.equal(result[key], state[key]) for key in state)


def test_missing_unexpected_and_misshapen_keys_are_all_reported(state, tmp_path):
    del state["norm.bias"]
    state["head.norm.weight"] = torch.ones(5)
    torch.save(
        state | prefixed("layer", {str(i): torch.ones(1) for i in range(5)}), tmp_path / "w.pth"
    )
    with refuses("no_match", "weights", says="Missing") as caught:
        networks.load_weights(Backbone(), networks.read_weights(tmp_path / "w.pth"), source="w.pth")
    assert all(f'"{name}"' in str(caught.value) for name in ("norm.bias", "layer0", "layer4"))
    assert "head.norm.weight" in str(caught.value)


def test_a_sentence_says_what_fitted(state):
    whole = networks.load_weights(Backbone(), state, source="w.pth")
    assert whole == "The weights in w.pth fit: 9 tensors of the network come from it."
    part = prefixed("encoder.", classified(state, "fc")) | {"queue": ONES}
    assert networks.load_weights(Backbone(), part, source="w.pth") == (
        "The weights in w.pth fit: 9 tensors of the network come from it; 3 of the file's are not used "
        "(encoder.fc.weight, encoder.fc.bias, queue)."
    )


class RunsACommand:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_the_file_is_executed(zipped, state, tmp_path):
    proof = tmp_path / "executed"
    content = {"state_dict": state, "extra": RunsACommand(proof)}
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    with refuses("unsafe_file", "weights", says="torch.save(model.state_dict()"):
        networks.read_weights(tmp_path / "w.pth")
    assert not proof.exists()


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"<html>404</html>"])
def test_damaged_files_are_one_sentence(ending, damage, state, tmp_path):
    path = tmp_path / f"w.{ending}"
    if ending == "pth":
        torch.save(state, path)
    else:
        save_file(state, path)
    path.write_bytes(damage(path.read_bytes()))
    with refuses("wrong_file", "weights", says="another kind") as caught:
        networks.read_weights(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [torch.ones(3), {"epoch": 3}, {"state_dict": {}}])
def test_a_file_without_named_tensors_is_an_error(content, tmp_path):
    torch.save(content, tmp_path / "w.pth")
    with refuses("wrong_file", "weights", says="no named"):
        networks.read_weights(tmp_path / "w.pth")
