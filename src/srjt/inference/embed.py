"""Images through a frozen backbone, once: any method then trains a small head on the features in seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from srjt import networks
from srjt._version import __version__
from srjt.data.features import Features
from srjt.data.images.decode import Resize
from srjt.data.images.feed import open_feed
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError
from srjt.networks.backbones import takes_rows
from srjt.training.engine import cpu_tuning
from srjt.training.engine.batches import Preprocess, centre_batches
from srjt.training.engine.cpu_tuning import CpuSetting, applied, channels_last
from srjt.training.engine.devices import choose_device

__all__ = ["Progress", "embed"]

Progress = Callable[[int, int], None]
TRIED_ON, PAYS = 8, 500  # images: a batch for the trial of CPU settings, and how many must follow to repay it


def embed(
    data: Manifest,
    *,
    backbone: str = "resnet18",
    pretrained: bool = True,
    weights: str | Path | None = None,
    image_size: int = 256,
    crop: int = 224,
    resize: Resize = "squash",
    flip: bool = False,
    batch_size: int = 64,
    device: str | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    decoded: Progress | None = None,
    embedded: Progress | None = None,
) -> tuple[Manifest, list[tuple[str, str]]]:
    """``data`` with features (N, F) in place of its images, and (id, reason) of those that could not be read.

    The backbone sees the centre crop, as in evaluation; flip: the mean over the crop and its mirror image. Its
    weights are the published ones, those of the file ``weights``, or random (pretrained=False, from seed 0).
    ``made`` of the result says all this, and which weights they were.
    """
    if data.are_features:
        raise SrjtError("These data are features already.")
    if takes_rows(backbone):
        raise SrjtError(f"The network {backbone!r} reads features, so it cannot make them from images.")
    if not 0 < crop <= image_size:
        raise SrjtError(f"crop ({crop}) must lie between 1 and image_size ({image_size}).")
    if batch_size < 1:
        raise SrjtError(f"batch_size must be positive; got {batch_size}.")
    chosen = choose_device(device)
    # before any image is decoded: weights that cannot be had are known at once
    network = networks.build(
        backbone,
        head=lambda features: nn.Identity(),
        in_shape=(3, crop, crop),
        pretrained=pretrained if weights is None else weights,
    ).eval()
    facts = {
        "backbone": backbone,
        "weights": _digest(network),
        "image_size": image_size,
        "crop": crop,
        "resize": resize,
        "flip": flip,
        "srjt": __version__,
    }
    store = open_store(
        data, size=image_size, resize=resize, cache=cache, on_bad_image=on_bad_image, progress=decoded
    )
    setting = CpuSetting()
    if chosen.type == "cuda":
        channels_last(network.to(chosen))
    elif len(store) >= PAYS:
        setting = cpu_tuning.find(network, torch.zeros(TRIED_ON, 3, crop, crop), name=f"embed {backbone}")
    preprocess = Preprocess(crop=crop, channels_last=chosen.type == "cuda" or setting.channels_last)
    feed = open_feed(store.pixels, device=chosen)
    features: list[Features] = []
    with applied(setting, network), torch.inference_mode():
        for images, part in centre_batches(
            feed, torch.arange(len(store)), preprocess=preprocess, batch_size=batch_size
        ):
            answer = _answer(network, images, flip=flip)[: part.stop - part.start]
            features.append(answer.float().cpu().numpy())
            if embedded is not None:
                embedded(part.stop, len(store))
    made = replace(store.manifest, arrays=np.concatenate(features), made=json.dumps(facts))
    return made, store.skipped


def _answer(network: nn.Module, images: Tensor, *, flip: bool) -> Tensor:
    once: Tensor = network(images)
    return (once + network(images.flip(-1))) / 2 if flip else once


def _digest(network: nn.Module) -> str:
    """Which weights these are, wherever they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
