"""A frozen backbone: the features of all images are computed once, kept in the cache, and a head is
trained on them.

The run that comes out is one of images: its networks are the backbone, which all of them share, and
the heads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from srjt import files
from srjt._version import __version__
from srjt.data.images.feed import open_feed
from srjt.data.images.store import FREE_SPACE, ImageStore
from srjt.data.manifest import Features, Manifest
from srjt.errors import Message, Option, SrjtError, warn
from srjt.networks import network as building, registry, weights as published
from srjt.text import count_of, duration
from srjt.training.batches import Preprocess, view_batches
from srjt.training.config import AUTO, CHOOSE_HEAD, TrainConfig
from srjt.training.devices import channels_last, torch_flags, uses_channels_last

Progress = Callable[[int, int], None]
SAVE_SECONDS = 10  # between two saves; a command that is killed repeats at most so much
BATCHES = {"cpu": 16, "cuda": 128}  # images whose features are computed at a time

# What ``preset="cpu"`` trains without pretrained weights; fields that were given are not changed.
SMALL = {"network": "tiny", "epochs": 15, "learning_rate": 1e-3}
SMALL_IMAGES = {"image_size": 64, "crop": 56}

NO_WEIGHTS = (
    "No pretrained weights: this is a small network that started from random weights, and it"
    " usually grades worse than one with pretrained weights."
)


# Which backbone: "auto" is replaced before anything is trained.


def resolve_backbone(
    config: TrainConfig,
    *,
    features: bool,
    note: Callable[[str], None] | None = None,
    before: TrainConfig | None = None,
) -> TrainConfig:
    """The configuration with the name of a backbone, or None, in place of "auto"; others are
    checked.

    "auto" is the first backbone whose weights are in the cache, else the first whose weights can be
    downloaded. If there is none, a warning says how to get them, and the settings are those of a
    small network. Rows of features need no backbone, and a network for images that was chosen
    beside "auto" is trained itself.

    features: whether the data are rows of features. note: receives what is downloaded from where.
    before: of the run that is continued, which keeps its backbone.
    """
    if config.backbone is None:
        return config
    reads_rows = config.network in (None, CHOOSE_HEAD) or registry.takes_rows(str(config.network))
    if config.backbone != AUTO:
        _check_backbone(config, features=features, reads_rows=reads_rows)
        return config
    if features:
        return config.replace(backbone=None)
    if not reads_rows:
        if registry.find(str(config.network)).small:
            return _small(config)
        return config.replace(backbone=None)
    if config.weights is not None:
        return config.replace(backbone=registry.FROZEN[0])
    if not config.pretrained:
        return _small(config.replace(network=None))
    if before is not None:
        kept = config.replace(backbone=before.backbone)
        if before.backbone is not None:
            return kept
        return _small(config.replace(network=None))
    candidates = registry.frozen_candidates()
    for name in candidates:
        row = registry.find(name)
        if row.weights is not None and published.cached_file(row.weights).is_file():
            return config.replace(backbone=name)
    problems = []
    for name in candidates:
        try:
            _download(name, crop=config.crop, note=note)
        except SrjtError as problem:
            problems.append(str(problem).partition("): ")[0] + ")")
        else:
            return config.replace(backbone=name)
    warn(
        Message(
            f"{NO_WEIGHTS} Weights could not be downloaded: {problems[0]}. On a machine with a"
            f" connection, `srjt weights fetch {candidates[0]}` says where the file is: copy it"
            " here and give it with ",
            Option("weights"),
            ".",
        )
    )
    return _small(config.replace(network=None))


def _check_backbone(config: TrainConfig, *, features: bool, reads_rows: bool) -> None:
    if features:
        raise SrjtError(
            f"These data are features already: the backbone {config.backbone!r} cannot be applied"
            " to them.",
            code="unsupported",
            option="backbone",
        )
    if registry.find(str(config.backbone)).reads != "images":
        raise SrjtError(
            f"The network {config.backbone!r} reads features: it cannot be the backbone.",
            code="unsupported",
            option="backbone",
        )
    if not reads_rows:
        raise SrjtError(
            f"The backbone {config.backbone!r} is frozen, and ",
            Option("network"),
            " is trained on its features: choose 'odds', 'mlp' or 'linear' instead of"
            f" {config.network!r}, or leave it out.",
            code="conflict",
        )


def _small(config: TrainConfig) -> TrainConfig:
    """The small network in place of a frozen one, with the settings that were given."""
    changes: dict[str, Any] = {
        name: value for name, value in SMALL.items() if getattr(config, name) is None
    }
    preset = TrainConfig().replace(preset="cpu")
    if all(getattr(config, name) == getattr(preset, name) for name in SMALL_IMAGES):
        changes |= SMALL_IMAGES
    return config.replace(backbone=None, **changes)


def _download(name: str, *, crop: int, note: Callable[[str], None] | None) -> None:
    row = registry.find(name)
    if row.weights is None:  # timm downloads its own when it builds the network
        building.fetch_weights(name, True, in_shape=(3, crop, crop))
        return
    if note is not None and not os.environ.get(published.OFFLINE):
        note(
            f"Downloading the weights of {name} ({row.weights.megabytes} MB,"
            f" {row.weights.licence})."
        )
    published.fetch_published(row.weights)


def lacks_weights(requested: TrainConfig, resolved: TrainConfig, *, features: bool) -> bool:
    """Whether "auto" has found no weights, so that the small network is trained in place of a
    frozen backbone."""
    left_to_srjt = requested.backbone == AUTO and requested.network is None and not features
    return left_to_srjt and resolved.backbone is None


# What a run says about its features.

SIZES_READ = 200  # images whose size is read from their headers, evenly chosen
SQUARE = 1.01  # the ratio of the sides up to which an image counts as square


def image_sizes(data: Manifest) -> list[tuple[int, int]]:
    """(width, height) of some of the images as they are given; none where that is not easily
    known."""
    if data.arrays is not None:
        return [(int(data.arrays.shape[2]), int(data.arrays.shape[1]))]
    step = max(1, len(data) // SIZES_READ)
    sizes = []
    for path in data.paths[::step]:
        with contextlib.suppress(Exception), Image.open(path) as image:  # DICOM, or a damaged file
            sizes.append(image.size)
    return sizes


def frozen_facts(data: Manifest, config: TrainConfig, *, seconds: float) -> dict[str, Any]:
    """For ``run.json``: how the images became features. seconds: that this took; 0 if they were in
    the cache."""
    sizes = image_sizes(data)
    not_square = [size for size in sizes if max(size) > SQUARE * min(size)]
    facts: dict[str, Any] = {"images": len(data), "seconds": math.ceil(10 * seconds) / 10}
    if sizes:
        facts["median_size"] = [int(side) for side in np.median(np.array(sizes), axis=0)]
        facts["not_square"] = len(not_square) / len(sizes)
    return facts


def frozen_sentences(config: TrainConfig, facts: Mapping[str, Any]) -> list[str]:
    """For a log and the run's page: network, size and how long it took; what was resized; and what
    is better."""
    weights = "ImageNet weights" if config.pretrained else "random weights"
    if config.weights is not None:
        weights = f"the weights in {Path(config.weights).name}"
    origin = "read from the cache"
    if facts["seconds"]:
        origin = f"computed in {duration(facts['seconds'])}"
    sentences = [
        f"{config.backbone} with {weights} stayed frozen: its features of"
        f" {count_of(facts['images'], 'image')} at {config.crop} × {config.crop} pixels were"
        f" {origin}, and only {config.network} was trained on them."
    ]
    shapes = "The shapes of the images are not known."
    if size := facts.get("median_size"):
        made_square = {
            "pad": "scaled by the long side and padded to a square",
            "crop": "scaled by the short side and cut to a square",
            "squash": "squashed to a square",
        }[config.resize]
        changed = "; all are square"
        if share := facts["not_square"]:
            changed = f"; {share:.0%} are not square and were {made_square}"
        shapes = f"The images have {size[0]} × {size[1]} pixels (median){changed}."
    sentences.append(shapes)
    sentences.append(
        "With a GPU and 300 images or more, training a whole network is usually better: leave out"
        " the preset cpu."
    )
    return sentences


# The features of a store of images.


def build_trunk(config: TrainConfig, *, with_weights: bool = True) -> nn.Module:
    """The frozen backbone of a configuration, (B, 3, crop, crop) → (B, F)."""
    assert config.backbone is not None
    pretrained: Any = config.weights if config.weights is not None else config.pretrained
    built = building.build(
        config.backbone,
        head=lambda features: nn.Identity(),
        in_shape=(3, config.crop, config.crop),
        pretrained=pretrained if with_weights else None,
    )
    return built.eval()


def features_and_seconds(config: TrainConfig, *, device: torch.device) -> tuple[int, float]:
    """The number of features, and about how long those of one image take. Nothing is read or
    downloaded."""
    name = registry.FROZEN[0] if config.backbone == AUTO else config.backbone
    trunk = channels_last(build_trunk(config.replace(backbone=name), with_weights=False).to(device))
    images = torch.zeros(BATCHES[device.type], 3, config.crop, config.crop, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        columns = trunk(images).shape[1]  # the first pass takes longer
        begin = time.perf_counter()
        trunk(images).sum().item()  # waits for a GPU
        return columns, (time.perf_counter() - begin) / len(images)


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """How features are computed: everything that changes a bit of them, beside the images."""

    backbone: str
    image_size: int
    crop: int
    resize: str
    flip: bool = False
    batch_size: int = BATCHES["cpu"]

    def described(self, network: nn.Module) -> dict[str, Any]:
        """For a file of features: the settings and a hash of the weights."""
        return {
            "backbone": self.backbone,
            "weights": digest_of(network),
            "image_size": self.image_size,
            "crop": self.crop,
            "resize": self.resize,
            "flip": self.flip,
            "srjt": __version__,
        }


def compute_features(
    network: nn.Module,
    store: ImageStore,
    settings: FeatureSettings,
    *,
    device: torch.device,
    cache: str | Path | None = None,
    report: Progress | None = None,
) -> Features:
    """(N, F): the network's features of the centre crop of every image, in float32.

    Those of image files are saved in the cache while they are computed: a process that was killed
    continues.

    report: receives (images done, images in total); its first call has the number that was already
    done.
    """
    described = settings.described(network)
    registered = registry.find(settings.backbone).registered
    last = uses_channels_last(network.to(device), device, own_network=registered, frozen=True)
    if last:
        channels_last(network)
    preprocess = Preprocess(crop=settings.crop, channels_last=last)
    feed = open_feed(store.pixels, device=device)

    def batches(done: int) -> Iterator[Features]:
        rows = torch.arange(len(store))
        # a GPU's features are those of a CPU, whatever torch's flags are
        with (
            torch_flags(TrainConfig(precision="fp32"), device, training=False),
            torch.inference_mode(),
        ):
            for (images,), part in view_batches(
                feed, rows, preprocess=preprocess, batch_size=settings.batch_size, done=done
            ):
                computed = network(images)
                if settings.flip:
                    computed = (computed + network(images.flip(-1))) / 2
                yield computed[: part.stop - part.start].float().cpu().numpy()

    folder = None
    if store.path is not None:
        # everything that changes a bit of the features
        facts = [
            store.path.name,
            store.skipped,
            described,
            settings.batch_size,
            device.type,
            "fp32",
        ]
        key = hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        folder = (
            (Path(cache) if cache is not None else files.cache_folder()).expanduser()
            / "features"
            / key
        )
    return _compute(batches, total=len(store), folder=folder, report=report or (lambda *_: None))


class FeatureCache:
    """Keeps the features of one store for the trainings of a process that use the same images."""

    def __init__(self) -> None:
        self._key: object = None
        self._features: Features | None = None
        self.seconds = 0.0  # that the latest computation took; 0: all were in the cache

    def features(
        self,
        store: ImageStore,
        config: TrainConfig,
        *,
        device: torch.device,
        cache: str | Path | None,
        report: Progress | None,
    ) -> Features:
        """As ``compute_features``, with the backbone of the configuration."""
        content = store.path.name if store.path is not None else _content(store)
        named = (config.backbone, config.weights, config.pretrained)
        key = (content, len(store), named, config.image_size, config.crop, config.resize, device)
        if self._key != key or self._features is None:
            settings = FeatureSettings(
                backbone=str(config.backbone),
                image_size=config.image_size,
                crop=config.crop,
                resize=config.resize,
                batch_size=BATCHES[device.type],
            )
            trunk = build_trunk(config)
            counts: list[int] = []

            def count(done: int, total: int) -> None:
                counts.append(done)
                if report is not None:
                    report(done, total)

            begin = time.perf_counter()
            self._features = compute_features(
                trunk, store, settings, device=device, cache=cache, report=count
            )
            read = counts[0] == len(store)
            self.seconds = 0.0 if read else time.perf_counter() - begin
            self._key = key
        return self._features


def _content(store: ImageStore) -> str:
    """A hash of images that are in memory, which are resized anew for every training."""
    return hashlib.blake2b(np.ascontiguousarray(store.pixels).data, digest_size=16).hexdigest()


def digest_of(network: nn.Module) -> str:
    """16 hexadecimal digits that identify the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


# Features on disk while they are computed, so that a command that is killed continues where it was.
#
# Each chunk is one file, <first row>.npz, that is written atomically. It is a ZIP file, whose
# checksum is verified when it is read. The chunks follow each other without gaps.


def load_chunks(folder: Path) -> list[Features]:
    """The chunks from row 0 up to the first that is missing or damaged."""
    chunks: list[Features] = []
    rows = 0
    while (chunk := files.load_arrays(folder / f"{rows}.npz").get("features")) is not None and len(
        chunk
    ):
        chunks.append(chunk)
        rows += len(chunk)
    return chunks


def save_chunk(folder: Path, first: int, batches: Sequence[Features]) -> None:
    """Save the rows from ``first`` on."""
    with files.explain_write_errors(f"Features cannot be kept in {folder}", FREE_SPACE):
        files.save_arrays(folder / f"{first}.npz", {"features": np.concatenate(batches)})


def _compute(
    batches: Callable[[int], Iterator[Features]],
    *,
    total: int,
    folder: Path | None,
    report: Progress,
) -> Features:
    """All batches, (N, F). With ``folder`` they are saved there now and then, and a second call
    continues."""
    with ExitStack() as stack:
        made: list[Features] = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(files.wait_for_lock(folder, waiting=lambda: None))
            files.remove_unfinished(folder)
            made = load_chunks(folder)
        done = saved = sum(map(len, made))  # rows
        pending, last_save = len(made), time.monotonic()  # the first batch that is not saved
        report(done, total)
        for batch in batches(done) if done < total else ():
            made.append(batch)
            done += len(batch)
            if folder is not None and (
                done == total or time.monotonic() - last_save >= SAVE_SECONDS
            ):
                save_chunk(folder, saved, made[pending:])
                saved = done
                pending = len(made)
                last_save = time.monotonic()
            report(done, total)
        return np.concatenate(made)
