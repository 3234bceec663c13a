"""A frozen backbone: the head is trained on its features, and the run is one of images."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import srjt
from refusals import refuses
from srjt import networks
from srjt.data import read
from srjt.data.images.decode import read_image
from srjt.inference.embed import embed
from srjt.networks import registry
from srjt.reports.pages.run import run_page, trained_page
from srjt.training import frozen
from srjt.training.config import TrainConfig
from srjt.training.reporters import BarReporter

IMAGES = {"image_size": 32, "crop": 32}
FROZEN = {"backbone": "tiny", "pretrained": False, **IMAGES}


@pytest.fixture(scope="module")
def data() -> Any:
    return srjt.data.synthetic.generate(images=80, patients=20, size=32, seed=3)


@pytest.fixture(scope="module")
def computed() -> list[int]:
    """The number of images whose features were computed for ``run``, each time."""
    return []


@pytest.fixture(scope="module")
def run(data: Any, computed: list[int], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With the recipe, which chooses between odds and mlp, and estimates the noise."""
    out = tmp_path_factory.mktemp("frozen") / "run"
    real = frozen.compute_features

    def counting(network: Any, store: Any, *args: Any, **options: Any) -> Any:
        computed.append(len(store.manifest))
        return real(network, store, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen, "compute_features", counting)
        return srjt.train(
            data, out=out, split=srjt.data.folds(data)[0], device="cpu", progress=False, **FROZEN
        )


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No weights are in the cache, and no server answers. The folder in which torch would keep
    them."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(registry, "FROZEN", ("efficientnet-lite0", "resnet18"))
    for name in registry.FROZEN:
        row = registry.find(name)
        assert row.weights is not None
        unreachable = replace(row.weights, address=f"http://127.0.0.1:9/{name}.pth", member="")
        monkeypatch.setitem(registry._ROWS, name, replace(row, weights=unreachable))
    return tmp_path / "torch" / "hub" / "checkpoints"


@pytest.mark.slow
def test_it_is_what_training_on_the_features_gives(data: Any, run: Any) -> None:
    """To the bit: the same head, noise, scores and weights; only the samples of the run are
    images."""
    features, _ = embed(
        data, backbone="tiny", pretrained=False, batch_size=16, device="cpu", **IMAGES
    )
    split = srjt.data.folds(data)[0]
    other = srjt.train(features, split=split, device="cpu", progress=False)
    assert run.config.network == other.config.network
    assert run.config.noise_rate == other.config.noise_rate
    for one, two in zip(run.networks.members, other.networks.members, strict=True):
        for (name, a), (_, b) in zip(
            one.state_dict().items(), two.state_dict().items(), strict=True
        ):
            assert torch.equal(a, b), name
    assert run.scores.equals(other.scores)
    assert (run.in_shape, other.in_shape) == ((3, 32, 32), (1536,))


@pytest.mark.slow
def test_the_run_reads_images(data: Any, run: Any) -> None:
    """Predictions for images are those of the head for the features of the backbone, after loading,
    too."""
    loaded = srjt.load_run(run.folder, device="cpu")
    features, _ = embed(
        data, backbone="tiny", pretrained=False, batch_size=16, device="cpu", **IMAGES
    )
    rows = torch.from_numpy(np.asarray(features.arrays))
    with torch.no_grad():
        expected = run.method.probabilities(run.networks.eval()(rows)).mean(dim=0).numpy()
    columns = [f"p_{grade}" for grade in data.grades]
    for one in (run, loaded):
        predicted = one.predict(data)[columns].to_numpy()
        np.testing.assert_allclose(predicted, expected, atol=1e-4)
    assert not any(parameter.requires_grad for parameter in loaded.networks.trunk.parameters())
    with refuses("unsupported", says="on images"):
        loaded.probabilities(np.asarray(features.arrays))


@pytest.mark.slow
def test_the_backbone_is_stored_once_and_is_not_changed(run: Any) -> None:
    fresh = networks.build(
        "tiny", head=lambda features: nn.Identity(), in_shape=(3, 32, 32), seed=0
    )
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, run.networks.trunk.state_dict()[name]), name
    run.networks.train()
    assert not any(module.training for module in run.networks.trunk.modules())
    run.networks.eval()


@pytest.mark.slow
def test_maps_and_neighbours(data: Any, run: Any) -> None:
    found = srjt.explain(run, data.select([0, 1]), training=data, progress=False)
    assert found.maps.shape[:2] == (run.method.networks, 2)
    assert np.abs(found.maps).sum() > 0
    assert found.neighbours is not None
    assert len(found.neighbours[0]) == 4


@pytest.mark.slow
def test_one_onnx_file_takes_images(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    exported = srjt.export(
        run, tmp_path / "model.onnx"
    )  # an error if it does not predict what the run predicts
    assert exported.input.startswith("images")
    assert exported.metadata["network"] == run.config.network_name


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_features_are_computed_once_for_all_trainings(data: Any, computed: list[int]) -> None:
    assert computed == [len(data)]


@pytest.mark.slow
def test_a_finished_run_is_opened_without_the_weights(data: Any, run: Any, offline: Path) -> None:
    reporter = BarReporter()
    again = srjt.train(
        data,
        out=run.folder,
        split=srjt.data.folds(data)[0],
        device="cpu",
        reporter=reporter,
        **FROZEN,
    )
    assert "already finished" in reporter.notes[-1]
    assert again.config == run.config


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_audit_uses_the_features(data: Any, tmp_path: Path) -> None:
    found = srjt.audit(
        data, out=tmp_path / "audit", folds=2, method="standard", network="odds", device="cpu",
        progress=False, **FROZEN,
    )  # fmt: skip
    about = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert about["network"] == "tiny + odds"
    assert len(found.scores) == len(data)


# "auto"


def config(**settings: Any) -> TrainConfig:
    return TrainConfig().replace(preset="cpu", **settings)


@pytest.mark.parametrize(
    ("present", "chosen"),
    [(["resnet18"], "resnet18"), (["resnet18", "efficientnet-lite0"], "efficientnet-lite0")],
)
def test_auto_takes_weights_that_are_here(offline: Path, present: list[str], chosen: str) -> None:
    offline.mkdir(parents=True)
    for name in present:
        (offline / f"{name}.pth").touch()
    assert frozen.resolve_backbone(config(), features=False).backbone == chosen


def test_without_weights_a_warning_says_what_to_do_and_a_small_network_is_trained(
    offline: Path,
) -> None:
    with pytest.warns(
        UserWarning, match=r"No pretrained weights: .*srjt weights fetch efficientnet-lite0"
    ):
        small = frozen.resolve_backbone(config(), features=False)
    assert (small.backbone, small.network, small.image_size, small.crop) == (None, "tiny", 64, 56)
    assert (small.epochs, small.learning_rate) == (15, 1e-3)


@pytest.mark.slow
def test_the_page_of_such_a_run_begins_with_the_warning(
    data: Any, offline: Path, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="No pretrained weights"):
        run = srjt.train(
            data, out=tmp_path / "run", split=srjt.data.folds(data)[0], device="cpu", progress=False, preset="cpu",
            epochs=1, image_size=32, crop=32, method="standard",
        )  # fmt: skip
    for page in (trained_page(run), run_page(tmp_path / "run")):
        assert page.warnings[0].startswith("No pretrained weights")


@pytest.mark.parametrize(
    ("settings", "features", "expected"),
    [
        ({}, True, (None, None)),  # rows of features need no backbone
        ({"network": "resnet34"}, False, (None, "resnet34")),  # it is trained itself
        ({"network": "tiny"}, False, (None, "tiny")),
        ({"network": "odds", "weights": "file.pth"}, False, ("efficientnet-lite0-stages", "odds")),
        ({"pretrained": False}, False, (None, "tiny")),
    ],
)
def test_what_auto_becomes(
    settings: dict[str, Any], features: bool, expected: tuple[Any, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = frozen.resolve_backbone(config(**settings), features=features)
    assert (chosen.backbone, chosen.network) == expected


def test_a_run_that_is_continued_keeps_its_backbone(offline: Path) -> None:
    before = config().replace(backbone="resnet18")
    assert frozen.resolve_backbone(config(), features=False, before=before).backbone == "resnet18"
    small = frozen.resolve_backbone(
        config(), features=False, before=before.replace(backbone=None, network="tiny")
    )
    assert small.network == "tiny"


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (
            {"backbone": "tiny", "network": "resnet18"},
            ("conflict", "network"),
        ),
        ({"backbone": "odds"}, ("unsupported", "backbone", "'odds'")),
        ({"backbone": "resnet19"}, ("unknown_name",)),
    ],
)
def test_mistakes(data: Any, settings: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        srjt.train(data, device="cpu", progress=False, **{**IMAGES, **settings})


def test_features_have_no_backbone(data: Any) -> None:
    features, _ = embed(
        data, backbone="tiny", pretrained=False, batch_size=16, device="cpu", **IMAGES
    )
    with refuses("unsupported", "backbone", says="features already"):
        srjt.train(features, device="cpu", progress=False, **FROZEN)


# Sizes and shapes


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Images of 40 × 20 pixels, red on the left and blue on the right."""
    table = ["image,grade"]
    for row in range(24):
        image = Image.new("RGB", (40, 20), (255, 0, 0))
        image.paste((0, 0, 200 + row), (20, 0, 40, 20))
        image.save(tmp_path / f"{row}.png")
        table.append(f"{row}.png,{row % 3}")
    (tmp_path / "labels.csv").write_text("\n".join(table))
    return tmp_path / "labels.csv"


def test_a_padded_image_keeps_its_shape(wide: Path) -> None:
    pixels = read_image(wide.parent / "0.png", size=20, resize="pad")
    assert pixels.shape == (20, 20, 3)
    assert np.unique(pixels[:5].reshape(-1, 3), axis=0).tolist() == [[124, 116, 104]]
    assert np.unique(pixels[15:].reshape(-1, 3), axis=0).tolist() == [[124, 116, 104]]
    assert pixels[5:15, 0].tolist() == [[255, 0, 0]] * 10
    assert pixels[5:15, -1].tolist() == [[0, 0, 200]] * 10


def test_the_run_says_what_became_of_the_images(wide: Path, tmp_path: Path) -> None:
    settings = {"method": "standard", "network": "odds", "resize": "pad", **FROZEN}
    settings |= {"device": "cpu", "cache": tmp_path / "cache"}
    reporter = BarReporter()
    run = srjt.train(read(wide), out=tmp_path / "run", reporter=reporter, **settings)
    said = " ".join(reporter.notes)
    frozen = "tiny with random weights stayed frozen: its features of 24 images at 32 × 32 pixels"
    assert f"{frozen} were computed in 1 s" in said
    again = BarReporter()
    srjt.train(read(wide), reporter=again, **settings)
    assert f"{frozen} were read from the cache" in " ".join(again.notes)
    assert (
        "40 × 20 pixels (median); 100% are not square and were scaled by the long side and padded"
        in said
    )
    page = trained_page(run)
    assert "training a whole network is usually better" in " ".join(page.remarks)
    about = next(section for section in page.sections if section.slug == "data")
    assert "stayed frozen" in about.text[0]
    assert "padded to a square" in about.text[1]
    facts = run.facts.data.frozen
    assert (facts["median_size"], facts["not_square"], facts["images"]) == ([40, 20], 1.0, 24)


@pytest.mark.slow
def test_the_head_is_chosen_on_the_images_that_can_be_read(tmp_path: Path) -> None:
    images = srjt.data.synthetic.generate(images=60, patients=15, size=32, seed=5)
    labels = srjt.data.synthetic.write(images, tmp_path / "set")
    samples = read(labels)
    samples.paths[0].write_bytes(b"not an image")
    samples.paths[31].unlink()
    settings = {**FROZEN, "noise_rate": 0.2, "device": "cpu", "progress": False}
    run = srjt.train(samples, split="all", out=tmp_path / "run", on_bad_image="skip", **settings)
    assert [name for name, _ in run.skipped] == [samples.ids[0], samples.ids[31]]
    assert json.loads((tmp_path / "run" / "head.json").read_text())["held_out"]
    assert len(run.history) == 58
