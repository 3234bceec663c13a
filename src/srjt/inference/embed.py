"""Compute features of images with a frozen backbone, resumably: any method then trains a small head on them in
seconds.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from srjt import files, networks
from srjt._version import __version__
from srjt.data.images.decode import OnBadImage, Resize
from srjt.data.images.feed import open_feed
from srjt.data.images.store import FREE_SPACE, open_store
from srjt.data.manifest import Features, Manifest
from srjt.errors import SrjtError
from srjt.training.batches import Preprocess, view_batches
from srjt.training.config import TrainConfig
from srjt.training.devices import channels_last, choose_device, torch_flags, uses_channels_last

# Features on disk while they are computed, so that a command that is killed continues where it was.
#
# Each chunk is one file, <first row>.npz, that is written atomically. It is a ZIP file, whose checksum is
# verified when it is read. The chunks follow each other without gaps.


def load_chunks(folder: Path) -> list[Features]:
    """The chunks from row 0 up to the first that is missing or damaged."""
    chunks: list[Features] = []
    rows = 0
    while (chunk := files.load_arrays(folder / f"{rows}.npz").get("features")) is not None and len(chunk):
        chunks.append(chunk)
        rows += len(chunk)
    return chunks


def save_chunk(folder: Path, first: int, batches: Sequence[Features]) -> None:
    """Save the rows from ``first`` on."""
    with files.explain_write_errors(f"Features cannot be kept in {folder}", FREE_SPACE):
        files.save_arrays(folder / f"{first}.npz", {"features": np.concatenate(batches)})


# Compute features of images with a frozen backbone: any method then trains a small head on them in seconds.

Progress = Callable[[int, int], None]
SAVE_SECONDS = 10  # between two saves; a command that is killed repeats at most so much


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
    """Compute features of the centre crop of every image with a frozen backbone.

    Features of image files are saved in the cache while they are computed: if the process is killed, the next call with
    the same settings continues.

    Parameters
    ----------
    data : Manifest
        Images.
    backbone : str
        A network for images, see ``srjt.networks.names()``.
    pretrained : bool
        Use the published weights; False: random weights from seed 0.
    weights : path, optional
        A weights file instead of the published weights.
    image_size, crop : int
        Images are resized to ``image_size``; the backbone gets the centre crop of side ``crop``.
    resize : {"squash", "crop"}
        Resize to a square, or resize the short side and cut out the centre.
    flip : bool
        Average the features of the crop and of its mirror image.
    batch_size : int
        Images per batch.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    cache : path, optional
        Folder for decoded images and unfinished features. Default: ``$SRJT_CACHE``, or the user's cache folder.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out.
    decoded, embedded : callable, optional
        Called with (images done, images in total). The first call of ``embedded`` has the number of images that were
        already done.

    Returns
    -------
    manifest : Manifest
        ``data`` with features (N, F) in place of its images. It records these settings and a hash of the weights.
    skipped : list of (str, str)
        (id, reason) of unreadable images.

    Examples
    --------
    >>> import srjt
    >>> from srjt.inference.embed import embed
    >>> data = srjt.data.synthetic.generate(images=12, patients=4, size=32)
    >>> features, skipped = embed(data, backbone="tiny", pretrained=False, image_size=32, crop=28)
    >>> features.arrays.shape
    (12, 1536)
    """
    if data.are_features:
        raise SrjtError("These data are already features.")
    if networks.takes_rows(backbone):
        raise SrjtError(f"The network {backbone!r} reads features, so it cannot compute them from images.")
    if not 0 < crop <= image_size:
        raise SrjtError(f"`crop` ({crop}) must lie between 1 and `image_size` ({image_size}).")
    if batch_size < 1:
        raise SrjtError(f"`batch_size` must be positive; got {batch_size}.")
    target = choose_device(device)
    # before any image is decoded, so that missing weights are reported at once
    network = networks.build(
        backbone,
        head=lambda features: torch.nn.Identity(),
        in_shape=(3, crop, crop),
        pretrained=pretrained if weights is None else weights,
    ).eval()
    settings = {
        "backbone": backbone,
        "weights": _digest(network),
        "image_size": image_size,
        "crop": crop,
        "resize": resize,
        "flip": flip,
        "srjt": __version__,
    }
    store = open_store(data, size=image_size, resize=resize, cache=cache, on_bad_image=on_bad_image, progress=decoded)
    last = uses_channels_last(network.to(target), target)
    if last:
        channels_last(network)
    preprocess = Preprocess(crop=crop, channels_last=last)
    feed = open_feed(store.pixels, device=target)

    def batches(done: int) -> Iterator[Features]:
        # a GPU's features are those of a CPU, whatever torch's flags are
        with torch_flags(TrainConfig(precision="fp32"), target, training=False), torch.inference_mode():
            for (images,), part in view_batches(
                feed, torch.arange(len(store)), preprocess=preprocess, batch_size=batch_size, done=done
            ):
                computed = network(images)
                if flip:
                    computed = (computed + network(images.flip(-1))) / 2
                yield computed[: part.stop - part.start].float().cpu().numpy()

    folder = None
    if store.path is not None:
        # everything that changes a bit of the features
        facts = [store.path.name, store.skipped, settings, batch_size, target.type, "fp32"]
        key = hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        folder = (Path(cache) if cache is not None else files.cache_folder()).expanduser() / "features" / key
    features = _compute(batches, total=len(store), folder=folder, report=embedded or (lambda *_: None))
    return replace(store.manifest, arrays=features, made=json.dumps(settings)), store.skipped


def _compute(
    batches: Callable[[int], Iterator[Features]], *, total: int, folder: Path | None, report: Progress
) -> Features:
    """All batches, (N, F). With ``folder`` they are saved there now and then, and a second call continues."""
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
            if folder is not None and (done == total or time.monotonic() - last_save >= SAVE_SECONDS):
                save_chunk(folder, saved, made[pending:])
                saved, pending, last_save = done, len(made), time.monotonic()
            report(done, total)
        return np.concatenate(made)


def _digest(network: torch.nn.Module) -> str:
    """16 hexadecimal digits that identify the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
