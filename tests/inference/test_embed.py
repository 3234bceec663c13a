"""A frozen backbone over all images: the same numbers as by hand, and everything else kept."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from refusals import refuses
from srjt import networks
from srjt.data import read
from srjt.data.images.feed import normalise
from srjt.inference.embed import embed

SMALL: dict[str, Any] = {
    "backbone": "tiny", "pretrained": False, "image_size": 32, "crop": 24, "batch_size": 50, "device": "cpu",
}  # fmt: skip


def by_hand(pixels: np.ndarray) -> torch.Tensor:
    network = networks.build(
        "tiny", head=lambda f: nn.Identity(), in_shape=(3, 24, 24), seed=0
    ).eval()
    crops = torch.from_numpy(pixels[:, 4:28, 4:28].copy()).permute(0, 3, 1, 2)
    with torch.no_grad():
        return network(normalise(crops, dtype=torch.float32))


def test_features_are_the_backbone_s_of_the_centre_crop(data: Any) -> None:
    seen: list[tuple[int, int]] = []
    made, skipped = embed(
        data.manifest, embedded=lambda done, total: seen.append((done, total)), **SMALL
    )
    assert made.are_features
    with refuses("unsupported"):
        embed(made, **SMALL)
    assert skipped == []
    assert made.arrays.dtype == np.float32
    np.testing.assert_allclose(made.arrays, by_hand(data.manifest.arrays).numpy(), atol=1e-5)
    assert seen[-1] == (130, 130)
    for column in data.manifest.table:
        assert made.table[column].tolist() == data.manifest.table[column].tolist()


def test_flip_averages_with_the_mirror_image(data: Any) -> None:
    made, _ = embed(data.manifest, flip=True, **SMALL)
    both = (by_hand(data.manifest.arrays) + by_hand(data.manifest.arrays[:, :, ::-1])) / 2
    np.testing.assert_allclose(made.arrays, both.numpy(), atol=1e-5)
    mirrored = replace(data.manifest, arrays=np.ascontiguousarray(data.manifest.arrays[:, :, ::-1]))
    np.testing.assert_allclose(
        embed(mirrored, flip=True, **SMALL)[0].arrays, made.arrays, atol=1e-5
    )


def test_the_settings_are_recorded(data: Any, tmp_path: Path) -> None:
    few = data.manifest.select(range(8))
    first = json.loads(embed(few, **SMALL)[0].made)
    assert (first["backbone"], first["crop"], first["flip"]) == ("tiny", 24, False)
    network = networks.build("tiny", head=lambda f: nn.Identity(), in_shape=(3, 24, 24), seed=5)
    torch.save(network.backbone.state_dict(), tmp_path / "w.pt")
    other, _ = embed(few, weights=tmp_path / "w.pt", **SMALL)
    assert json.loads(other.made)["weights"] != first["weights"]
    assert not np.allclose(other.arrays, embed(few, **SMALL)[0].arrays)


def test_bad_images_as_everywhere(labels: Path, tmp_path: Path) -> None:
    manifest = read(labels)
    table = manifest.table.copy()
    (tmp_path / "broken.png").write_bytes(b"no image")
    table.loc[3, "image"] = str(tmp_path / "broken.png")
    broken = replace(manifest, table=table)
    with refuses("unusable_samples", "on_bad_image", says=("1 of 130", "broken.png")):
        embed(broken, cache=tmp_path, **SMALL)
    made, skipped = embed(broken, cache=tmp_path, on_bad_image="skip", **SMALL)
    assert [name for name, _ in skipped] == [manifest.ids[3]]
    assert len(made) == len(made.arrays) == 129
    whole, _ = embed(manifest, cache=tmp_path, **SMALL)
    np.testing.assert_allclose(made.arrays, np.delete(whole.arrays, 3, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "code", "about"),
    [
        ({"backbone": "mlp"}, "unsupported", "backbone"),
        ({"backbone": "resnet"}, "unknown_name", ""),
        ({"backbone": "tiny", "pretrained": True}, "unsupported", "weights"),
        ({"crop": 64}, "out_of_bounds", "crop"),
        ({"batch_size": 0}, "out_of_bounds", "batch_size"),
        ({"weights": "nowhere.pt"}, "missing_file", "weights"),
    ],
)
def test_mistakes(data: Any, settings: dict[str, Any], code: str, about: str) -> None:
    with refuses(code, about):
        embed(data.manifest, **{**SMALL, **settings})


KILLED = """
import os, signal, sys
from srjt.data import read
from srjt.inference import embed
from srjt.training import frozen
frozen.SAVE_SECONDS = 0
def progress(done, total):
    if done >= 0.64 * total:
        os.kill(os.getpid(), signal.SIGKILL)
embed.embed(read(sys.argv[1]).manifest, cache=sys.argv[2], embedded=progress, backbone="tiny", pretrained=False,
            image_size=32, crop=24, batch_size=16, device="cpu")
"""


@pytest.mark.slow
def test_killed_at_two_thirds_it_continues(labels: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "batch_size": 16}
    killed = subprocess.run([sys.executable, "-c", KILLED, labels, tmp_path / "cache"], check=False)
    assert killed.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "cache/features").iterdir()
    (folder / ".96.npz.1.tmp").write_bytes(b"cut")  # of a process that was killed while writing

    manifest = read(labels)
    seen: list[int] = []
    settings["embedded"] = lambda done, _: seen.append(done)
    resumed, _ = embed(manifest, cache=tmp_path / "cache", **settings)
    assert 0.5 * 130 < seen[0] < 130
    assert seen[-1] == 130
    whole, _ = embed(manifest, cache=tmp_path / "other", **settings)
    assert np.array_equal(resumed.arrays, whole.arrays)
    assert list(folder.glob(".*.tmp")) == []

    seen.clear()
    again, _ = embed(manifest, cache=tmp_path / "cache", **settings)
    assert seen == [130]
    assert np.array_equal(again.arrays, whole.arrays)


@pytest.mark.parametrize("damage", ["another file", "one wrong bit"])
def test_a_damaged_chunk_is_computed_again(labels: Path, tmp_path: Path, damage: str) -> None:
    manifest = read(labels)
    whole, _ = embed(manifest, cache=tmp_path, **SMALL)
    (file,) = tmp_path.glob("features/*/0.npz")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content if damage == "one wrong bit" else b"no array")
    assert np.array_equal(embed(manifest, cache=tmp_path, **SMALL)[0].arrays, whole.arrays)


def test_other_settings_are_not_continued(labels: Path, tmp_path: Path) -> None:
    manifest = read(labels)
    plain, _ = embed(manifest, cache=tmp_path, **SMALL)
    flipped, _ = embed(manifest, cache=tmp_path, flip=True, **SMALL)
    assert not np.allclose(plain.arrays, flipped.arrays)
    fewer, _ = embed(manifest.select(range(9)), cache=tmp_path, **SMALL)
    assert len(fewer) == 9
