"""Batches: the plan of an epoch, augmented batches for training, and crops for evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from srjt.data.images import augment as image_augment, feed as image_feed
from srjt.data.images.augment import Augmentation
from srjt.data.images.feed import Crops, Feed
from srjt.methods.base import Method

# The plan of an epoch: which samples make each batch, and how each sample is cropped and flipped.
#
# All randomness is a function of (seed, purpose, epoch): the batches of epoch 80 can be drawn
# without drawing those before it, so that a resumed run needs no history.


def subseed(seed: int, *purpose: object) -> int:
    """A different 63-bit seed for each purpose."""
    text = "\0".join(["srjt", str(int(seed)), *map(str, purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator: the draws do not depend on the device that trains."""
    return torch.Generator().manual_seed(subseed(seed, *purpose))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One epoch: which samples make each batch, and how each is cropped and flipped.

    On the CPU; a copy at fixed addresses on the device is what a captured graph reads at its step
    counter.
    """

    rows: Tensor  # (steps, B) int64 positions in the training set
    offsets: Tensor  # (steps, B, 2) int64
    flips: Tensor  # (steps, B) bool
    changes: Tensor  # (steps, B, D) what else is done to each image; D is 0 where nothing is

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device) -> Plan:
        return Plan(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def fill(self, other: Plan) -> None:
        for name, tensor in vars(self).items():
            tensor.copy_(getattr(other, name), non_blocking=True)

    def batch(
        self, data: TrainingSet, store_rows: Tensor, step: Tensor, preprocess: Preprocess
    ) -> Batch:
        """Batch number ``step`` (a 0-d tensor), gathered from a store on the GPU."""
        number = step.view(1) % len(self.rows)  # a warm-up may be longer than a short epoch
        rows, offsets, flips, changes = (
            tensor.index_select(0, number)[0] for tensor in vars(self).values()
        )
        pixels = data.feed.pixels
        places = store_rows[rows]
        assert pixels is not None
        if pixels.ndim == 2:
            return Batch(pixels.index_select(0, places), data.targets[rows], rows)
        if preprocess.augmentation is not None:
            x = preprocess.train(pixels.index_select(0, places), offsets, flips, changes)
            return Batch(x, data.targets[rows], rows)
        images = image_feed.gather_crops(pixels, places, offsets, flips, size=preprocess.crop)
        return Batch(image_feed.normalise(images, dtype=preprocess.dtype), data.targets[rows], rows)


def draw_plan(
    samples: int,
    *,
    batch_size: int,
    epoch: int,
    seed: int,
    margin: int,
    augment: bool = True,
    flip: bool = True,
    weights: Tensor | None = None,
    augmentation: Augmentation | None = None,
) -> Plan:
    """Shuffle, cut into whole batches (a smaller last one is dropped), draw a crop and a flip for
    each sample.

    weights: (samples,) relative frequency of each sample; None: each sample once. augmentation:
    draw what it does to each sample, too.
    """
    draws = generator(seed, "plan", epoch)
    steps = samples // batch_size
    rows = torch.randperm(samples, generator=draws)
    if weights is not None:
        rows = rows[_resample(weights[rows], generator=draws)]
        rows = rows[torch.randperm(samples, generator=draws)]
    rows = rows[: steps * batch_size].reshape(steps, batch_size)
    if augment:
        crops = image_feed.draw_crops((steps, batch_size), margin=margin, generator=draws)
    else:
        crops = image_feed.centre_crops(steps * batch_size, margin=margin)
    flips = crops.flips if flip else torch.zeros_like(crops.flips)
    changes = torch.zeros(*rows.shape, 0)
    if augmentation is not None:
        changes = image_augment.draw_changes(
            (steps, batch_size), limits=augmentation, generator=draws
        )
    return Plan(
        rows=rows,
        offsets=crops.offsets.view(*rows.shape, 2),
        flips=flips.view(rows.shape),
        changes=changes,
    )


def balancing_weights(
    labels: Tensor, *, balance: float, certainty: Tensor | None = None
) -> Tensor | None:
    """(N,) grades → (N,) weights n_c^(−balance), on the CPU, that raise the frequency of rare
    grades.

    certainty: (N,) factors of the weights. None if all samples weigh the same.
    """
    if balance == 0.0:
        return certainty
    grades = labels.cpu()
    weights = torch.bincount(grades).double().clamp(min=1).pow(-balance)[grades]
    return weights if certainty is None else weights * certainty


def draw_grades(probabilities: Tensor, *, epoch: int, seed: int) -> Tensor:
    """(N, C) probabilities → (N,) a grade of each sample, drawn for this epoch, on the CPU."""
    draws = generator(seed, "readers", epoch)
    points = torch.rand(len(probabilities), 1, generator=draws, dtype=torch.float64)
    return (probabilities.cumsum(1)[:, :-1] <= points).sum(1)


def _resample(weights: Tensor, *, generator: torch.Generator) -> Tensor:
    """Systematic resampling: N positions in proportion to ``weights`` (N,), each as often as
    expected, rounded up or down.

    With N independent draws an epoch would miss a third of the samples even where all weights are
    equal.
    """
    edges = weights.cumsum(0) / weights.sum() * len(weights)
    points = torch.arange(len(weights)) + torch.rand((), generator=generator, dtype=torch.float64)
    return torch.searchsorted(edges, points, right=True).clamp(max=len(weights) - 1)


# Batches: augmented ones for one epoch of training, crops for evaluation.

Transform = Callable[[Tensor], Tensor]
Views: TypeAlias = Sequence[
    Crops | None
]  # of each image, from view_crops; None: the usual evaluation crop
CENTRE: Views = (None,)
CPU_PIXELS = (
    32 * 224**2
)  # of an evaluation batch on a CPU: larger ones are slower, and take gigabytes
BATCH_MULTIPLE = 64  # of evaluation batches, so that data sets of similar size share a batch shape


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """uint8 pixels (B, H, W, 3) → the input of a network.

    Features (B, F) are not changed and stay in float32 even with bf16: rounding them before they
    are standardised could remove their differences.
    """

    crop: int
    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # memory layout of the images
    train_transform: Transform | None = (
        None  # yours: uint8 (B, 3, H, W) → float, instead of crop and flip
    )
    eval_transform: Transform | None = None
    augmentation: Augmentation | None = None  # None: crop and mirror alone

    def train(self, pixels: Tensor, offsets: Tensor, flips: Tensor, changes: Tensor) -> Tensor:
        """offsets: (B, 2); flips: (B,); changes: (B, D) of ``augment.draw_changes``."""
        if pixels.ndim == 2:
            return pixels
        if self.train_transform is not None:
            return self.train_transform(pixels.permute(0, 3, 1, 2))
        if self.augmentation is None:
            images = image_feed.crop_and_flip(pixels, offsets, flips, size=self.crop)
            return self._normalised(images)
        images = image_augment.change(
            pixels, offsets, flips, changes, size=self.crop, cutout=self.augmentation.cutout
        )
        return self._normalised(images)

    def evaluate(self, pixels: Tensor, view: Crops | None = None) -> Tensor:
        """view: one of ``view_crops``, the same for all images; None: the centre crop, or
        ``eval_transform``."""
        if pixels.ndim == 2:
            return pixels
        if view is None and self.eval_transform is not None:
            return self.eval_transform(pixels.permute(0, 3, 1, 2))
        crop = view or image_feed.centre_crops(1, margin=pixels.shape[1] - self.crop)
        return self._normalised(image_feed.crop_alike(pixels, crop, size=self.crop))

    def _normalised(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) in channels-last order, as they are stored."""
        return image_feed.normalise(
            images if self.channels_last else images.contiguous(), dtype=self.dtype
        )


@dataclass(frozen=True, kw_only=True)
class ReaderTargets:
    """How the N training samples differ from samples with one certain label each; on the CPU, in
    float64."""

    targets: Tensor | None = None  # (N, C) or (N, R, C) what is learnt from in place of the labels
    draw_from: Tensor | None = (
        None  # (N, C) from which the grades to learn from are drawn each epoch
    )
    certainty: Tensor | None = None  # (N,) relative frequency of the samples


NO_READERS = ReaderTargets()


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """The N training samples: their pixels, given labels and, where known, true grades."""

    feed: Feed
    rows: Tensor  # (N,) int64 on the CPU: their rows in the store
    labels: Tensor  # (N,) int64 on the device
    true: Tensor | None  # (N,) true grades where they are known, on the device
    readers: ReaderTargets = NO_READERS

    @cached_property
    def targets(self) -> Tensor:
        """(N,), (N, C) or (N, R, C) what is learnt from; at a fixed address, which a captured graph
        reads."""
        if self.readers.targets is not None:
            return self.readers.targets.float().to(self.labels.device)
        if self.readers.draw_from is None:
            return self.labels
        return self.labels.clone()

    def start_epoch(self, epoch: int, *, seed: int) -> None:
        """Draw the grades to learn from, if they are drawn anew each epoch."""
        if self.readers.draw_from is not None:
            self.targets.copy_(draw_grades(self.readers.draw_from, epoch=epoch, seed=seed))


class Batch(NamedTuple):
    x: Tensor  # (B, …) float
    targets: Tensor  # (B,), (B, C) or (B, R, C)
    rows: Tensor  # (B,) positions in the training set, on the device


def train_batches(
    data: TrainingSet,
    plan: Plan,
    *,
    method: Method,
    preprocess: Preprocess,
    generator: torch.Generator,
    first: int = 0,
    part: slice = slice(None),
) -> Generator[Batch, None, None]:
    """The batches of an epoch from step ``first`` on, augmented and prepared by the method.

    part: the columns of each batch that this process works on, when several processes share it.
    ``Batch.rows`` always has the rows of the whole batch.
    """
    device = data.labels.device
    plan_rows = plan.rows[first:].to(device, non_blocking=True)
    offsets = plan.offsets[first:, part].to(device, non_blocking=True)
    flips = plan.flips[first:, part].to(device, non_blocking=True)
    changes = plan.changes[first:, part].to(device, non_blocking=True)
    for step, pixels in enumerate(data.feed.batches(data.rows[plan.rows[first:, part]])):
        x = preprocess.train(pixels, offsets[step], flips[step], changes[step])
        x, targets = method.prepare(x, data.targets[plan_rows[step][part]], generator=generator)
        yield Batch(x, targets, plan_rows[step])


def evaluation_batch_size(feed: Feed, *, crop: int, largest: int) -> int:
    """Samples of an evaluation step: ``largest``, but of images on a CPU what its caches and memory
    bear."""
    pixels = feed.pixels
    images_on_cpu = pixels is not None and pixels.ndim == 4 and pixels.device.type == "cpu"
    if images_on_cpu:
        return min(largest, max(1, CPU_PIXELS // crop**2))
    return largest


def even_batch_size(samples: int, *, largest: int) -> int:
    """A size of at most ``largest`` whose last batch is nearly full, too."""
    if samples < BATCH_MULTIPLE:
        return min(samples, largest)
    even = -(-samples // -(-samples // largest))
    return min(largest, -(-even // BATCH_MULTIPLE) * BATCH_MULTIPLE)


def view_batches(
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    exact: bool = False,
    views: Views = CENTRE,
    done: int = 0,
) -> Iterator[tuple[Iterator[Tensor], slice]]:
    """Evaluation batches over store rows (N,): an iterator over the views of the images, and the
    slice of ``rows`` that they belong to. Views are computed one at a time, so that ten need no
    more memory than one.

    The batches of the first ``done`` rows are skipped; the others are the same as without it. All
    batches have the same size. The last one is padded with copies of the last row, which the caller
    cuts off; the size is chosen to need few of them, unless it has to be ``exact``.
    """
    samples = len(rows)
    if samples == 0:  # a process's part of a small side
        return
    size = batch_size if exact else even_batch_size(samples, largest=batch_size)
    steps = -(-samples // size)
    padded = torch.cat([rows, rows[-1:].expand(max(steps * size - samples, 0))])
    first = done // size
    for step, pixels in enumerate(feed.batches(padded.view(steps, size)[first:]), start=first):
        images = map(partial(preprocess.evaluate, pixels), views)
        yield images, slice(step * size, min((step + 1) * size, samples))
