"""A trained model: its networks and everything that is needed to apply them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from srjt import methods, networks
from srjt.data.duplicates import warn_of_duplicates
from srjt.data.grades import UNKNOWN_PATIENT, Grades
from srjt.data.images.augment import AUGMENTATIONS
from srjt.data.images.decode import OnBadImage
from srjt.data.images.feed import Feed, FeedCache, Samples, open_feed, view_crops
from srjt.data.images.store import ImageStore, open_store
from srjt.data.leakage import Known, Traces, find_copies, read_traces
from srjt.data.manifest import Manifest, as_features, match_names
from srjt.data.splits import Split
from srjt.errors import SrjtError
from srjt.files import as_path
from srjt.hub import fetch_run, is_hub_address
from srjt.methods.base import Method
from srjt.methods.single import ProportionalOdds
from srjt.networks import registry
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal.metrics import confusion_matrix
from srjt.progress import Reporter
from srjt.text import count_of
from srjt.training import batches, checkpoint, devices, folder as run_folder, step
from srjt.training.batches import CENTRE, Preprocess, Transform, Views, subseed
from srjt.training.config import FITTED_BY_ODDS, ODDS, ResolvedConfig, TrainConfig
from srjt.training.frozen import FeatureCache, build_trunk
from srjt.training.held_out import HeldOut, read_held_out
from srjt.training.image_identity import HASHES_FILE, read_hashes, same_samples
from srjt.training.reporters import BarReporter

NetworkMaker = Callable[[], nn.Module]
SplitChoice = Split | Callable[[Manifest], Split] | Literal["all"] | None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a training has beside its data and settings: the split, code of your own, and where it
    is computed.

    Most fields are arguments of ``srjt.train``. features: computed by a frozen backbone. feeds:
    keep the images on the GPU for the next training with the same images.
    """

    split: SplitChoice = "all"  # for training; None: the data's own
    network: NetworkMaker | None = None
    transform: Transform | None = None
    eval_transform: Transform | None = None
    device: str | None = None
    cache: str | Path | None = None
    on_bad_image: OnBadImage = "error"
    feeds: FeedCache = field(default_factory=FeedCache)
    features: FeatureCache = field(default_factory=FeatureCache)
    reporter: Reporter = field(default_factory=BarReporter)

    def open_store(self, data: Manifest, config: TrainConfig) -> ImageStore:
        """The samples as the networks need them, identical images found."""
        store = open_store(
            data,
            size=config.image_size,
            resize=config.resize,
            cache=self.cache,
            on_bad_image=self.on_bad_image,
            progress=self.reporter.decoded,
            find_duplicates=True,
        )
        if data.duplicates is None:
            warn_of_duplicates(store.manifest)
        return store

    def inputs(self, store: ImageStore, config: TrainConfig) -> Samples:
        """What is trained on: the pixels or rows of the store, or the features of its images by a
        frozen backbone."""
        if config.backbone is None:
            return store.pixels
        device = devices.choose_device(self.device)
        report = getattr(
            self.reporter, "embedded", None
        )  # a reporter of the user's own may not have it
        return self.features.features(store, config, device=device, cache=self.cache, report=report)


@dataclass(frozen=True, kw_only=True, repr=False)
class Trained:
    """A trained run: the networks after the last epoch, or the best one, and the record of their
    training.

    ``srjt.predict``, ``srjt.evaluate`` and ``srjt.export`` take it. ``srjt.train`` and
    ``srjt.load_run`` return it as a ``Run``, which has these verbs as methods.

    Attributes
    ----------
    networks : StackedNetworks
        The K = 1 or 2 networks as one module, (B, …) → (K, B, C).
    method : Method
        The method, which turns logits into probabilities and grades.
    config : ResolvedConfig
        The settings, with every default and "auto" resolved.
    grades : Grades
        The C grades, from mild to severe, with their names for people.
    preprocess : Preprocess
        Crop, normalisation, and your own transforms.
    in_shape : tuple of int
        Shape of one sample as the networks take it: (3, H, W) or (F,).
    feature_names : tuple of str
        The names of the F features, in the order of the networks' inputs; empty if they have none.
    feature_settings : str
        How the features were computed, as JSON, where it is known; empty for images.
    device : torch.device
        Where the networks are.
    folder : Path or None
        The folder of the run, if it has one.
    metrics : DataFrame
        epoch, split, network, metric, value; empty if the run was sent without them.
    history : DataFrame
        One row per training sample: how often it was seen and selected, its running loss; empty
        if the run was sent without it.
    held_out : mapping of str to HeldOut
        Predictions for the "validation" and "test" sides, as far as the run has them.
    noise_estimate : NoiseEstimate or None
        None where the noise rate was given, or not needed.
    skipped : tuple of (str, str)
        (id, reason) of unreadable images.
    facts : RunFacts
        What ``run.json`` says: the data, where the noise rate comes from, command, machine and
        versions.
    hashes : ndarray of uint64, shape (N, 2), or None
        A hash of each image, or row of features: those of the training side first.
    traces : Traces
        What the run keeps of its training samples to know copies of them again.
    """

    networks: devices.StackedNetworks
    method: Method
    config: ResolvedConfig
    grades: Grades
    preprocess: Preprocess
    in_shape: tuple[int, ...]
    feature_names: tuple[str, ...] = ()
    feature_settings: str = ""
    device: torch.device
    folder: Path | None = None
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)
    noise_estimate: NoiseEstimate | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    facts: run_folder.RunFacts
    hashes: npt.NDArray[np.uint64] | None = None
    traces: Traces = field(default_factory=Traces)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    def describe(self) -> str:
        """Method, network, number of epochs and folder, in one line."""
        epochs = int(self.metrics["epoch"].max()) if len(self.metrics) else self.config.epochs
        network = "your own network" if self.facts.own_network else self.config.network_name
        folder = "" if self.folder is None else f", {self.folder}"
        length = "fitted at once" if self.config.network == ODDS else count_of(epochs, "epoch")
        return f"{self.config.method}, {network}, {length}{folder}"

    def probabilities(
        self, pixels: Samples, *, views: int = 1
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Probabilities and grades of each network.

        Parameters
        ----------
        pixels : ndarray
            uint8 images (N, H, W, 3) of ``config.image_size``, or features (N, F).
        views : {1, 2, 10}
            Number of views of an image over which each network's probabilities are averaged: the
            centre crop; with its mirror image; with the four corners too, each plain and mirrored.

        Returns
        -------
        probabilities : ndarray, shape (K, N, C)
        grades : ndarray, shape (K, N)
        """
        trained = "images"
        if len(self.in_shape) == 1:
            trained = f"rows of {count_of(self.in_shape[0], 'feature')}"
        given = f"rows of {count_of(pixels.shape[1], 'feature')}" if pixels.ndim == 2 else "images"
        if trained != given:
            raise SrjtError(
                f"This run was trained on {trained}: it cannot be applied to {given}.",
                code="unsupported",
            )
        crops = self.views(views, size=pixels.shape[1])
        if len(pixels) == 0:
            shape = (self.method.networks, 0, self.method.num_classes)
            return np.empty(shape, np.float32), np.empty(shape[:2], np.int64)
        if pixels.ndim == 2:
            pixels = as_features(pixels)
        # Each sample is used once, so a GPU need not have all of them: it gets the next batches
        # while it computes.
        feed = open_feed(pixels, device=self.device, share=0)
        with use_run_settings(self):
            probabilities, grades = self.forward(feed).probabilities(
                torch.arange(len(pixels)), views=crops
            )
        return probabilities.numpy(), grades.numpy()

    def forward(self, feed: Feed, *, sides: Sequence[Tensor] = ()) -> Forward:
        """The networks, to be applied to samples of a feed as in the run's own evaluation. sides:
        as of ``Forward``."""
        return Forward(run=self, feed=feed, sides=sides)

    def views(self, count: int = 1, *, size: int | None = None) -> Views:
        """The crops of an image that ``probabilities`` averages over.

        Parameters
        ----------
        count : {1, 2, 10}
            Number of views. A run that was trained without mirror images has 5 instead of 10.
        size : int, optional
            Side of the images in pixels. Default: ``config.image_size``.

        Returns
        -------
        sequence of Crops or None
            One entry per view; None is the usual evaluation crop.
        """
        if count == 1:
            return CENTRE
        if len(self.in_shape) == 1:
            raise SrjtError(
                f"This run was trained on features, which have no views: use 1, not {count}.",
                code="unsupported",
                option="views",
            )
        if self.preprocess.eval_transform is not None:
            raise SrjtError(
                f"Your own eval_transform gives one view of an image: use 1, not {count}.",
                code="unsupported",
                option="views",
            )
        margin = (size or self.config.image_size) - self.config.crop
        return view_crops(count, margin=margin, mirror=self.config.flip)

    @property
    def training_ids(self) -> list[str]:
        """Ids of the samples that the run learnt from; empty where its history is not known."""
        return list(self.training_labels)

    @property
    def training_labels(self) -> dict[str, int]:
        """Id → label of the samples that the run learnt from; empty where its history is not
        known."""
        if self.history.empty:
            return {}
        return dict(zip(self.history["id"], self.history["grade"], strict=True))

    def training_patients(self, data: Manifest) -> list[str]:
        """Patients of the samples with the name of one that the run learnt from.

        Parameters
        ----------
        data : Manifest
            Images or rows of features.

        Returns
        -------
        list of str
            Sorted; empty where patients are not known. Another hospital may have given the same
            names to others.
        """
        both = {*self.history.get("patient", ())} & {*(data.patients or ())}
        return sorted(name for name in both if not name.startswith(UNKNOWN_PATIENT))

    def trained_on(self, data: Manifest) -> npt.NDArray[np.int64]:
        """Which of the samples the run learnt from, by what they show and not by their names.

        Parameters
        ----------
        data : Manifest
            Images or rows of features. Copies count: rounded, re-encoded, rescaled, mirrored or
            slightly cropped ones.

        Returns
        -------
        ndarray of int64, shape (M,)
            Their rows.
        """
        return self.known_samples(data).copies

    def known_samples(self, data: Manifest) -> Known:
        """Which of the samples are copies of training samples, and which are near to one.

        Parameters
        ----------
        data : Manifest
            Images or rows of features.

        Returns
        -------
        Known
            Rows that are copies, rows that are near, and the share of these.
        """
        data = self.match_features(data)
        same = same_samples(data, ids=self.training_ids, hashes=self.hashes)
        patients = self.history["patient"].tolist() if "patient" in self.history else None
        known = find_copies(self.traces, data, patients=patients)
        near = np.union1d(known.near, same)
        share = max(known.share, len(near) / max(1, len(data)))
        return Known(copies=np.union1d(known.copies, same), near=near, share=share)

    def match_features(self, data: Manifest) -> Manifest:
        """The samples with their features in the order of the training; images are returned
        unchanged.

        Parameters
        ----------
        data : Manifest
            Features with names are matched by name, and one that is missing is an error; without
            names, in the run or in the data, by their position. Features that were computed with
            other settings are an error.

        Returns
        -------
        Manifest
        """
        trained_with = self.feature_settings
        settings = data.made
        if (
            trained_with
            and settings
            and _without_version(trained_with) != _without_version(settings)
        ):
            raise SrjtError(
                f"This run was trained on features with other settings ({trained_with}) than these"
                f" ({settings}): compute them with the same settings of srjt features.",
                code="no_match",
            )
        if (
            data.arrays is None
            or not self.feature_names
            or data.feature_names in ((), self.feature_names)
        ):
            return data
        positions = match_names(data.feature_names, self.feature_names, source="the data")
        ordered = replace(data, arrays=data.arrays[:, positions], feature_names=self.feature_names)
        return replace(ordered, hashes=None, duplicates=None)  # those of another order


@dataclass(frozen=True, kw_only=True)
class Forward:
    """The networks of a run, applied to samples of a feed as in evaluation."""

    run: Trained
    feed: Feed
    sides: Sequence[Tensor] = ()  # rows of all sides that will be evaluated

    @property
    def amp(self) -> torch.dtype | None:
        return devices.amp_dtype(self.run.config, self.run.device)

    def confusion_counts(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Store rows (N,) on the CPU, labels (N,) on the device → (K + 1, C, C) counts on the
        device.

        Each network, then their ensemble (the mean of their probabilities). Does not wait for the
        device.
        """
        method = self.run.method
        classes = self.run.method.num_classes
        total = torch.zeros(
            (method.networks + 1, classes, classes), dtype=torch.int64, device=labels.device
        )
        for (logits,), part in self._logits(rows):
            ensemble = method.probabilities(logits).mean(dim=0).argmax(dim=-1)
            predicted = torch.cat([method.grades(logits), ensemble[None]])
            total += torch.stack(
                [confusion_matrix(labels[part], p, num_classes=classes) for p in predicted]
            )
        return total

    def probabilities(self, rows: Tensor, *, views: Views = CENTRE) -> tuple[Tensor, Tensor]:
        """Store rows (N,) → (K, N, C) probabilities and (K, N) grades of each network, on the CPU.

        Probabilities are averaged over the views; with several views the grades follow from the
        averages.
        """
        method = self.run.method
        probabilities = []
        grades = []
        for by_view, _ in self._logits(rows, views=views):
            mean = torch.stack([method.probabilities(logits) for logits in by_view]).mean(dim=0)
            probabilities.append(
                mean
            )  # it stays on the device: to fetch it would wait in every batch
            grades.append(
                method.grades(by_view[0]) if len(by_view) == 1 else method.grades_of(mean)
            )
        return torch.cat(probabilities, dim=1).cpu(), torch.cat(grades, dim=1).cpu()

    @torch.no_grad()
    def _logits(
        self, rows: Tensor, *, views: Views = CENTRE
    ) -> Iterator[tuple[list[Tensor], slice]]:
        """For each batch of rows the logits (K, B, C) of each view, and the slice of ``rows`` that
        they belong to."""
        networks = self.run.networks
        preprocess = self.run.preprocess
        amp = self.amp
        training = networks.training
        largest = self.run.config.eval_batch_size
        device_type = next((weights.device.type for weights in networks.parameters()), "cpu")
        if (
            networks.compiled and self.sides
        ):  # one size for all sides, because each size would be compiled
            largest = batches.even_batch_size(max(map(len, self.sides)), largest=largest)
        size = batches.evaluation_batch_size(self.feed, crop=preprocess.crop, largest=largest)
        exact = bool(networks.compiled)
        loaded = batches.view_batches(
            self.feed, rows, preprocess=preprocess, batch_size=size, exact=exact, views=views
        )
        networks.eval()
        try:
            # torch forgets the rounded weights at the end of the outermost autocast: inside of this
            # one they are kept
            with torch.autocast(device_type, enabled=False):
                for images, part in loaded:
                    by_view = []
                    for x in images:
                        with torch.autocast(
                            x.device.type, amp or torch.bfloat16, enabled=amp is not None
                        ):
                            logits = networks(x)[:, : part.stop - part.start]
                        by_view.append(logits if logits.dtype == torch.float64 else logits.float())
                    yield by_view, part
        finally:
            networks.train(training)


def use_run_settings(run: Trained) -> AbstractContextManager[None]:
    """Compute with the precision flags of the run's own evaluation; restore them afterwards."""
    return devices.torch_flags(run.config, run.device, training=False)


def _without_version(settings: str) -> object:
    try:
        return {name: value for name, value in json.loads(settings).items() if name != "srjt"}
    except (ValueError, AttributeError):
        return settings


def build_method(config: TrainConfig, *, num_classes: int) -> Method:
    """The method of a complete configuration."""
    methods.lookup(config.method, registered_by=config.imports)
    if config.network == ODDS:
        return _odds_method(config, num_classes=num_classes)
    try:
        return methods.create(
            config.method,
            num_classes=num_classes,
            noise_rate=config.known_noise_rate,
            transition=config.transition,
            convention=config.convention,
            **config.method_options,
        )
    except TypeError as problem:  # the methods compute with an option of the wrong type
        raise SrjtError(
            f"An option of {config.method} has the wrong type ({dict(config.method_options)}):"
            f" {problem}.",
            code="wrong_type",
            option="method_options",
        ) from None


def _odds_method(config: TrainConfig, *, num_classes: int) -> Method:
    """What the run's method becomes with the network ``odds``: the likelihood that it maximises."""
    if config.method not in FITTED_BY_ODDS:
        raise SrjtError(
            "The network 'odds' is fitted at once by the likelihood of the labels, and"
            f" {config.method} learns in another way: use the method"
            f" {', '.join(FITTED_BY_ODDS[:-1])} or {FITTED_BY_ODDS[-1]}, or the network 'mlp'.",
            code="unsupported",
            option="network",
        )
    corrected = config.method != "standard"
    return ProportionalOdds(
        num_classes=num_classes, transition=config.transition if corrected else None
    )


def build_networks(
    config: ResolvedConfig,
    method: Method,
    *,
    in_shape: tuple[int, ...],
    network: NetworkMaker | None = None,
    with_weights: bool = True,
) -> devices.StackedNetworks:
    """The method's networks, each with a different seed: pretrained ones differ in their heads
    only."""
    name = network or config.network
    trunk = None
    if config.backbone is not None:
        trunk = build_trunk(config, with_weights=with_weights)
        in_shape = (networks.count_features(trunk, shape=in_shape, name=config.backbone),)
    pretrained = _pretrained(config, network) if with_weights and trunk is None else None
    members = []
    parameters: list[int] = []
    for k in range(method.networks):
        member = networks.build(
            name,
            head=lambda features: method.head(features, method.num_classes),
            in_shape=in_shape,
            pretrained=pretrained,
            seed=subseed(config.seed, "weights", k),
        )
        members.append(member)
        parameters += map(id, member.parameters())
    if len(set(parameters)) < len(parameters):
        raise SrjtError(
            "The network function returned the same module twice: it must return a new one at each"
            " call, because two networks need separate weights.",
            code="wrong_type",
            option="network",
        )
    return devices.StackedNetworks(members, trunk=trunk)


def fetch_weights(config: TrainConfig, setup: Setup, *, features: bool = False) -> None:
    """Find or download the pretrained weights, so that their absence is known before images are
    decoded; a note says what of a local file fitted."""
    if features:  # networks for rows have none
        return
    used = config.for_data(features=False, samples=1)
    name = setup.network or used.backbone or used.network
    pretrained = _pretrained(used, setup.network)
    shape = (3, used.crop, used.crop)
    if pretrained is not None and (
        note := networks.fetch_weights(name, pretrained, in_shape=shape)
    ):
        setup.reporter.note(note)


def _pretrained(config: TrainConfig, network: NetworkMaker | None) -> bool | str | None:
    if config.weights is not None:
        return config.weights
    row = networks.known(config.backbone or config.network)
    small = row is not None and not row.may_be_pretrained
    if network is not None or small:
        return None
    return config.pretrained


def load_run(
    folder: str | os.PathLike[str],
    *,
    device: str | None = None,
    network: NetworkMaker | None = None,
    eval_transform: Transform | None = None,
) -> Trained:
    """Open a finished run.

    Parameters
    ----------
    folder : path
        Folder of the run, or ``hf://owner/name`` on the Hugging Face Hub. Opening it executes no
        code from it.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    network : callable, optional
        The function that made the network, if the run was trained with one of your own.
    eval_transform : callable, optional
        The evaluation transform, if the run was trained with one of your own.

    Returns
    -------
    Run
        The networks (``Trained``), with ``summary()``, ``scores``, ``plot()``, ``predict(data)``
        and more.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, out="runs/example", **settings)
    >>> srjt.load_run("runs/example").grades
    ('0', '1', '2', '3')
    """
    path = as_path(folder, "A run is what srjt.train returns, or the path of its folder")
    if is_hub_address(path):
        path = fetch_run(path)
    facts = run_folder.read_facts(path)
    if facts.own_network and network is None:
        raise SrjtError(
            f"{path} was trained with a network of your own, which only Python can build: "
            f'srjt.load_run("{path}", network=…).',
            code="missing_option",
            option="network",
        )
    weights_file = path / "weights.safetensors"
    if not weights_file.exists():
        again = "run the same srjt train command again"
        if run_folder.has_summary(path):
            raise SrjtError(
                f"{weights_file} is missing, but the run has finished: copy it back, or {again}.",
                code="missing_file",
            )
        raise SrjtError(
            f"{path} has not finished training: {again} to resume.", code="not_finished"
        )
    setup = Setup(device=device, network=network, eval_transform=eval_transform)
    method = build_method(facts.config, num_classes=len(facts.grades))
    shape = tuple(facts.data.in_shape)
    tensors, _ = checkpoint.read(
        weights_file
    )  # a damaged file is noticed before networks are built
    stacked = build_networks(
        facts.config, method, in_shape=shape, network=network, with_weights=False
    )
    try:
        step.restore(step.weights(stacked), tensors)
    except SrjtError as problem:
        raise SrjtError(
            f"The weights in {path} do not fit the network {facts.config.network}: {problem}",
            code="no_match",
        ) from None
    run_folder.check_files(path)
    metrics = pd.DataFrame()
    with suppress(SrjtError):  # a run may have been sent without this file
        metrics = checkpoint.read_metrics(path / "metrics.csv")
    return replace(
        ready_to_compute(stacked, method, facts, setup, folder=path),
        networks=stacked.eval(),
        held_out=read_held_out(path, networks=method.networks, classes=len(facts.grades)),
        metrics=metrics,
        history=run_folder.read_history(path),
        noise_estimate=run_folder.read_noise_estimate(path),
        hashes=read_hashes(path / HASHES_FILE),
        traces=read_traces(path),
    )


def ready_to_compute(
    networks: devices.StackedNetworks,
    method: Method,
    facts: run_folder.RunFacts,
    setup: Setup,
    *,
    folder: Path | None = None,
) -> Trained:
    """A run, before or after its training: its networks on the device, laid out as they compute
    fastest there."""
    config = facts.config
    device = devices.choose_device(setup.device)
    row = registry.known(config.backbone or config.network)
    own_network = facts.own_network or (row is not None and row.registered)
    frozen = config.backbone is not None
    last = devices.uses_channels_last(networks, device, own_network=own_network, frozen=frozen)
    networks.to(device)
    if last:
        devices.channels_last(networks)
    return Trained(
        networks=networks,
        method=method.to(device),
        config=config,
        grades=facts.grades,
        preprocess=Preprocess(
            crop=config.crop,
            dtype=devices.amp_dtype(config, device) or torch.float32,
            channels_last=last,
            train_transform=setup.transform,
            eval_transform=setup.eval_transform,
            augmentation=AUGMENTATIONS.get(config.augment),
        ),
        in_shape=tuple(facts.data.in_shape),
        feature_names=tuple(facts.data.feature_names),
        feature_settings=facts.data.made,
        device=device,
        folder=folder,
        facts=facts,
    )
