"""Networks: the registry of backbones, their pretrained weights, and how a backbone gets a method's
last layer.

``names()`` lists the backbones and ``register_backbone`` adds one. Names are imported on first use,
because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srjt.lazy import lazy_names

if TYPE_CHECKING:
    from srjt.networks.backbone import (
        IMAGENET_MEAN as IMAGENET_MEAN,
        IMAGENET_STD as IMAGENET_STD,
        Backbone as Backbone,
        PublishedWeights as PublishedWeights,
    )
    from srjt.networks.layers import (
        DEPTHS as DEPTHS,
        ResNet as ResNet,
        Standardise as Standardise,
        standardise as standardise,
        tiny as tiny,
    )
    from srjt.networks.network import (
        build as build,
        count_features as count_features,
        fetch_weights as fetch_weights,
    )
    from srjt.networks.registry import (
        find as find,
        known as known,
        names as names,
        register_backbone as register_backbone,
        takes_rows as takes_rows,
    )
    from srjt.networks.weights import load_weights as load_weights, read_weights as read_weights

_, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "srjt.networks.backbone": (
            "IMAGENET_MEAN",
            "IMAGENET_STD",
            "Backbone",
            "PublishedWeights",
        ),
        "srjt.networks.layers": ("DEPTHS", "ResNet", "Standardise", "standardise", "tiny"),
        "srjt.networks.network": ("build", "count_features", "fetch_weights"),
        "srjt.networks.registry": ("find", "known", "names", "register_backbone", "takes_rows"),
        "srjt.networks.weights": ("load_weights", "read_weights"),
    },
)
__all__ = ["PublishedWeights", "build", "fetch_weights", "names", "register_backbone"]
