"""A trained model: networks with all that is needed to apply them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import nn

from srjt import methods, networks
from srjt.data.features import as_features
from srjt.data.images.augment import view_crops
from srjt.data.images.feed import Samples, open_feed
from srjt.errors import SrjtError
from srjt.methods import Method
from srjt.noise.estimate import NoiseEstimate
from srjt.training.config import TrainConfig
from srjt.training.engine.batches import CENTRE, Preprocess, Transform, Views
from srjt.training.engine.cpu_tuning import CpuSetting, applied, channels_last
from srjt.training.engine.devices import amp_dtype, choose_device
from srjt.training.engine.plan import subseed
from srjt.training.engine.scoring import predict_probabilities
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.record import checkpoint
from srjt.training.record.run_folder import RunFacts, read_facts, read_noise_estimate

__all__ = ["Trained", "build_method", "build_networks", "load_run"]

NetworkMaker = Callable[[], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The networks of a run after its last epoch, and how they learnt."""

    networks: StackedNetworks
    method: Method
    config: TrainConfig
    grades: tuple[str, ...]
    preprocess: Preprocess
    in_shape: tuple[int, ...]  # one sample as the networks take it: (3, H, W) or (F,)
    made: str = ""  # how the features were made, where that is known
    device: torch.device
    cpu: CpuSetting | None = None
    folder: Path | None = None
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)  # one row per training sample
    noise_estimate: NoiseEstimate | None = None  # None where the noise rate was given, or not needed
    skipped: tuple[tuple[str, str], ...] = ()  # (id, reason) of images that could not be read

    def probabilities(
        self, pixels: Samples, *, views: int = 1
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """uint8 images (N, H, W, 3) of the store's size, or features (N, F) → (K, N, C) probabilities and (K, N)
        grades, by network.

        views: 1, the centre crop; 2 or 10, the mean of each network's probabilities over as many views of an image,
        as ``view_crops`` describes them.
        """
        self._check(pixels)
        shown = self.views(views, size=pixels.shape[1])
        if len(pixels) == 0:
            shape = (self.method.networks, 0, self.method.num_classes)
            return np.empty(shape, np.float32), np.empty(shape[:2], np.int64)
        if pixels.ndim == 2:
            pixels = as_features(pixels)
        feed = open_feed(pixels, device=self.device, share=self.config.memory_share)
        with applied(self.cpu, self.networks):
            probabilities, grades = predict_probabilities(
                self.networks,
                self.method,
                feed,
                torch.arange(len(pixels)),
                preprocess=self.preprocess,
                batch_size=self.config.eval_batch_size,
                amp=amp_dtype(self.config, self.device),
                views=shown,
            )
        return probabilities.numpy(), grades.numpy()

    def views(self, count: int = 1, *, size: int | None = None) -> Views:
        """What is shown of each image of this size (None: the run's): five views instead of ten if it was trained
        without mirror images. An error if there are no such views."""
        if count == 1:
            return CENTRE
        if len(self.in_shape) == 1:
            raise SrjtError(f"This run was trained on features, which have no views: use 1, not {count}.")
        if self.preprocess.eval_transform is not None:
            raise SrjtError(f"An eval_transform of one's own shows one view of an image: use 1, not {count}.")
        margin = (size or self.config.image_size) - self.config.crop
        return view_crops(count, margin=margin, mirror=self.config.flip)

    def check_made(self, made: str) -> None:
        """Refuse features made in another way, where both ways are known: numbers alone would not tell."""
        if self.made and made and _way(self.made) != _way(made):
            raise SrjtError(
                f"This run was trained on features made otherwise ({self.made}) than these ({made}): make them in the "
                "same way with srjt features."
            )

    def _check(self, pixels: Samples) -> None:
        learnt = f"rows of {self.in_shape[0]} features" if len(self.in_shape) == 1 else "images"
        given = f"rows of {pixels.shape[1]} features" if pixels.ndim == 2 else "images"
        if learnt != given:
            raise SrjtError(f"This run was trained on {learnt}: it cannot be applied to {given}.")


def _way(made: str) -> object:
    """How features were made, whichever version of srjt did it."""
    try:
        facts = json.loads(made)
        return {name: value for name, value in facts.items() if name != "srjt"}
    except (ValueError, AttributeError):
        return made


def build_method(config: TrainConfig, *, num_classes: int) -> Method:
    methods.lookup(config.method, registered_by=config.imports)
    try:
        return methods.create(
            config.method,
            num_classes=num_classes,
            noise_rate=config.known_noise_rate,
            transition=config.transition,
            convention=config.convention,
            **config.method_options,
        )
    except TypeError as problem:  # an option of the wrong kind: the methods compare and compute with it
        raise SrjtError(
            f"An option of {config.method} does not fit {dict(config.method_options)}: {problem}."
        ) from None


def build_networks(
    config: TrainConfig,
    method: Method,
    *,
    in_shape: tuple[int, ...],
    network: NetworkMaker | None = None,
    with_weights: bool = True,
) -> StackedNetworks:
    """The method's networks, each from a seed of its own: pretrained ones differ in their heads only."""
    name = network or config.network
    assert name is not None, "decided by for_data before networks are built"
    pretrained: bool | str | None = None
    if with_weights and network is None and config.network not in ("tiny", "tiny-gn", "linear", "mlp"):
        pretrained = config.weights if config.weights is not None else config.pretrained
    elif with_weights and config.weights is not None:
        pretrained = config.weights
    members = [
        networks.build(
            name,
            head=lambda features: method.head(features, method.num_classes),
            in_shape=in_shape,
            pretrained=pretrained,
            seed=subseed(config.seed, "weights", k),
        )
        for k in range(method.networks)
    ]
    if len({id(p) for member in members for p in member.parameters()}) < sum(
        len(list(member.parameters())) for member in members
    ):
        raise SrjtError(
            "The network function returned the same module twice: it must make a new one at each call, because "
            "each of two networks needs weights of its own."
        )
    return StackedNetworks(members)


def load_run(
    folder: str | Path,
    *,
    device: str | None = None,
    network: NetworkMaker | None = None,
    eval_transform: Transform | None = None,
) -> Trained:
    """Open a finished run. The folder alone suffices, unless the network was one's own function."""
    path = Path(folder)
    facts: RunFacts = read_facts(path)
    weights_file = path / "weights.safetensors"
    if not weights_file.exists():
        raise SrjtError(f"{path} has not finished training: run the same srjt train command again to go on.")
    if facts.own_network and network is None:
        raise SrjtError(f"{path} was trained with a network of your own: pass it again as network=….")
    chosen = choose_device(device)
    method = build_method(facts.config, num_classes=len(facts.grades))
    shape = tuple(facts.data["in_shape"])
    committee = build_networks(facts.config, method, in_shape=shape, network=network, with_weights=False)
    tensors, _ = checkpoint.read(weights_file)
    for k, member in enumerate(committee.members):
        own = {name[len(f"{k}.") :]: tensor for name, tensor in tensors.items() if name.startswith(f"{k}.")}
        try:
            member.load_state_dict(own)
        except RuntimeError as problem:
            reason = " ".join(str(problem).split())[:200]
            raise SrjtError(
                f"The weights in {path} do not fit the network {facts.config.network}: {reason}"
            ) from None
    committee.to(chosen)
    if chosen.type == "cuda":
        channels_last(committee)
    return Trained(
        networks=committee.eval(),
        method=method.to(chosen),
        config=facts.config,
        grades=facts.grades,
        preprocess=Preprocess(
            crop=facts.config.crop,
            dtype=amp_dtype(facts.config, chosen) or torch.float32,
            channels_last=chosen.type == "cuda" or (facts.cpu is not None and facts.cpu.channels_last),
            eval_transform=eval_transform,
        ),
        in_shape=shape,
        made=str(facts.data.get("made", "")),
        device=chosen,
        cpu=facts.cpu,
        folder=path,
        noise_estimate=read_noise_estimate(path),
    )
