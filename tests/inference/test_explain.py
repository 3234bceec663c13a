"""Where the networks look."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import srjt
from refusals import refuses
from srjt import networks
from srjt.data.manifest import Manifest
from srjt.inference.explain import Explanation, contributions, overlay, rank_correlation
from srjt.reports.page import render
from srjt.reports.pages.answers import explain_page
from srjt.training.trained import Trained

SETTINGS = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 2, "noise_rate": 0.2}


@pytest.fixture(scope="module")
def data() -> Manifest:
    return srjt.data.synthetic.generate(images=80, patients=20, size=32)


@pytest.fixture(scope="module")
def run(data: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("explain") / "run"
    return srjt.train(data, out=folder, split=srjt.data.folds(data)[0], **SETTINGS)


@pytest.mark.slow
def test_every_image_gets_a_map_of_each_network(run: Trained, data: Manifest) -> None:
    found = srjt.explain(run, data.select(np.arange(18)))  # more than a batch
    assert found.maps.shape[:2] == (2, 18)
    assert np.isfinite(found.maps).all()
    assert found.images.shape == (18, 28, 28, 3)
    np.testing.assert_array_equal(found.images, data.arrays[:18, 2:30, 2:30])
    expected = srjt.predict(run, data.select(np.arange(18)))
    np.testing.assert_allclose(
        found.predictions["expected_grade"], expected["expected_grade"], rtol=1e-5
    )
    assert found.neighbours is None
    assert repr(found) == "<Explanation: 18 images, 2 networks>"
    assert (
        srjt.report(found)._repr_html_().count("<img") == 12 * 3
    )  # a notebook shows the first ones
    assert "6 more" in srjt.report(found)._repr_html_()


def test_neighbours_are_other_training_images(run: Trained, data: Manifest) -> None:
    """The image itself is left out, however often the data have it."""
    learnt = set(run.training_ids)
    rows = [row for row, sample in enumerate(data.ids) if sample in learnt]
    arrays = np.array(data.arrays)
    arrays[rows[1:6]] = arrays[rows[0]]
    copied = replace(data, arrays=arrays)
    found = srjt.explain(run, copied.select(rows[:7]), training=copied, neighbours=3)
    assert set(found.training.ids) == learnt
    copies = {data.ids[row] for row in rows[:6]}
    for row, places in zip(rows[:6], found.neighbours, strict=False):
        assert len(places) == 3, row
        assert not copies & {found.training.ids[place] for place in places}
    assert data.ids[rows[6]] not in {found.training.ids[place] for place in found.neighbours[6]}


@pytest.mark.slow
def test_rows_of_features_have_no_places() -> None:
    features = srjt.data.from_arrays(np.random.default_rng(0).normal(size=(40, 5)), [0, 1] * 20)
    run = srjt.train(features, epochs=1, noise_rate=0.1)
    with refuses("unsupported", says="trained on features"):
        srjt.explain(run, features)


def test_training_data_of_another_run_are_an_error(run: Trained, data: Manifest) -> None:
    black = np.zeros((4, 32, 32, 3), np.uint8)
    other = srjt.data.from_arrays(black, [0, 1, 2, 3], ids=["w", "x", "y", "z"])
    with refuses("no_match", "training"):
        srjt.explain(run, data.select([0]), training=other)
    rows = srjt.data.from_arrays(
        np.eye(4, dtype=np.float32), [0, 1, 2, 3], ids=list(run.training_ids[:4])
    )
    with refuses("wrong_file", "training"):
        srjt.explain(run, data.select([0]), training=rows)


def test_the_overlay_is_orange_where_the_map_is_positive_and_blue_where_negative() -> None:
    heat = np.zeros((4, 4), np.float32)
    heat[:, 0], heat[:, 3] = 1.0, -1.0
    picture = np.asarray(overlay(np.full((28, 28, 3), 128, np.uint8), heat)).astype(int)
    left, right = picture[160, 5], picture[160, -5]
    assert left[0] > left[2] + 50
    assert right[2] > right[0] + 50
    plain = np.asarray(overlay(np.full((28, 28, 3), 128, np.uint8), np.zeros((4, 4), np.float32)))
    assert (plain == 128).all()


@pytest.mark.parametrize(("networks", "similar"), [(1, False), (2, True)])
def test_the_page_says_what_was_found(
    run: Trained, data: Manifest, networks: int, similar: bool
) -> None:
    found = srjt.explain(run, data.select([0, 1]), training=data if similar else None)
    changed: dict[str, object] = {"maps": found.maps[:networks]}
    if networks == 1:
        changed["network_correlation"] = None
    page = render(explain_page(Explanation(**{**vars(found), **changed}), title="<b>"))
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL).split())
    assert ("two networks look" in text) == (networks == 2)
    assert ("correlation" in text) == (networks == 2)
    assert ('alt="network 2' in page) == (networks == 2)
    assert ("labelled" in text) == similar
    assert "<b> <" not in page.split("<h1>")[1][:20]
    assert page.count("data:image/jpeg") == 2 * (1 + networks + (4 if similar else 0))


# Maps of what raises the expected grade: closed forms and layouts.
def pooled_linear(weights: Tensor) -> nn.Module:
    """One convolution (the identity), mean over the places, a linear layer with these weights (C,
    3)."""
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

    network = nn.Sequential(nn.Conv2d(3, 3, 1), Corner())
    maps = contributions(network, torch.rand(1, 3, 4, 4), lambda logits: logits.sum(dim=1))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "tiny-gn", "resnet18"])
def test_our_networks_have_a_feature_map(name: str) -> None:
    network = networks.build(name, head=lambda n: nn.Linear(n, 4), in_shape=(3, 64, 64)).eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    maps = contributions(
        network, torch.rand(2, 3, 64, 64), lambda logits: logits.softmax(dim=1)[:, 3]
    )
    assert maps.ndim == 3
    assert min(maps.shape[1:]) > 1
    assert bool(maps.isfinite().all())
    assert not any(module._forward_hooks for module in network.modules())
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_a_network_without_places_is_an_error() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with refuses("unsupported", says="feature map"):
        contributions(flat, torch.rand(1, 3, 4, 4), lambda logits: logits[:, 0])


def test_rank_correlation_is_scipys() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    b[0, 0] = b[0, 1]  # ties
    expected = [spearmanr(x.ravel(), y.ravel()).statistic for x, y in zip(a, b, strict=True)]
    assert rank_correlation(a, b) == pytest.approx(np.mean(expected), rel=1e-5)
    assert rank_correlation(np.zeros((1, 2, 2), np.float32), a[:1, :2, :2]) is None
