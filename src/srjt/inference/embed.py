"""Compute features of images with a frozen backbone, resumably: any method then trains a small head
on them in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from srjt import networks
from srjt.data.images.decode import OnBadImage, Resize
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.errors import Option, SrjtError
from srjt.training.devices import choose_device
from srjt.training.frozen import FeatureSettings, compute_features

Progress = Callable[[int, int], None]


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

    Features of image files are saved in the cache while they are computed: if the process is
    killed, the next call with the same settings continues.

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
    resize : {"squash", "crop", "pad"}
        Resize to a square; or resize the short side and cut out the centre; or resize the long side
        and pad.
    flip : bool
        Average the features of the crop and of its mirror image.
    batch_size : int
        Images per batch.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    cache : path, optional
        Folder for decoded images and unfinished features. Default: ``$SRJT_CACHE``, or the user's
        cache folder.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out.
    decoded, embedded : callable, optional
        Called with (images done, images in total). The first call of ``embedded`` has the number of
        images that were already done.

    Returns
    -------
    manifest : Manifest
        ``data`` with features (N, F) in place of its images. It records these settings and a hash
        of the weights.
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
        raise SrjtError(
            "The source has features already, and features are computed from images.",
            code="unsupported",
        )
    if networks.takes_rows(backbone):
        raise SrjtError(
            f"The network {backbone!r} reads features, so it cannot compute them from images.",
            code="unsupported",
            option="backbone",
        )
    if not 0 < crop <= image_size:
        raise SrjtError(
            Option("crop"),
            f" ({crop}) must lie between 1 and ",
            Option("image_size"),
            f" ({image_size}).",
            code="out_of_bounds",
        )
    if batch_size < 1:
        raise SrjtError(
            Option("batch_size"), f" must be positive; got {batch_size}.", code="out_of_bounds"
        )
    target = choose_device(device)
    # before any image is decoded, so that missing weights are reported at once
    network = networks.build(
        backbone,
        head=lambda features: nn.Identity(),
        in_shape=(3, crop, crop),
        pretrained=pretrained if weights is None else weights,
    ).eval()
    settings = FeatureSettings(
        backbone=backbone,
        image_size=image_size,
        crop=crop,
        resize=resize,
        flip=flip,
        batch_size=batch_size,
    )
    made = json.dumps(settings.described(network))
    store = open_store(
        data,
        size=image_size,
        resize=resize,
        cache=cache,
        on_bad_image=on_bad_image,
        progress=decoded,
    )
    features = compute_features(
        network, store, settings, device=target, cache=cache, report=embedded
    )
    return replace(store.manifest, arrays=features, made=made), store.skipped
