"""Networks of timm with a normalisation of their own: in training, after loading, exported, and
explained."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from fixtures.fake_timm import FakeTimm
from srjt.data.images.feed import normalise


def trained(network: str, data: Any, folder: Path) -> tuple[Any, Any, Any]:
    """A run that was saved and loaded, images, and what the bare network of timm says of them."""
    srjt.train(
        data.manifest, method="standard", network=f"timm:{network}", out=folder, split=data.split,
        pretrained=False, device="cpu", image_size=32, crop=24, epochs=1, batch_size=16,
    )  # fmt: skip
    run = srjt.load_run(folder, device="cpu")
    images = data.manifest.arrays[:8]
    member: Any = run.networks.members[0]
    known = sys.modules["timm"].get_pretrained_cfg(network)
    crops = torch.from_numpy(images)[:, 4:28, 4:28].permute(0, 3, 1, 2)
    with torch.no_grad():
        logits = member.head(
            member.backbone.network(normalise(crops, mean=known.mean, std=known.std))
        )
    return run, images, logits.softmax(dim=1).numpy()


@pytest.mark.parametrize("network", ["vit_small", "clip"])
def test_a_run_feeds_the_network_alike(
    network: str, data: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    run, images, expected = trained(network, data, tmp_path / "run")
    assert run.probabilities(images)[0][0] == pytest.approx(expected, abs=1e-5)
    explained = srjt.explain(run, data.manifest.select(np.arange(3)), progress=False)
    assert np.isfinite(explained.maps).all()


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit_small", "clip"])
def test_an_exported_run_does_too(
    network: str, data: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "timm", FakeTimm())
    run, images, expected = trained(network, data, tmp_path / "run")
    srjt.export(run, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (answered,) = session.run(["probabilities"], {session.get_inputs()[0].name: images})
    assert answered == pytest.approx(expected, abs=1e-5)
