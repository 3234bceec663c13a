"""Batches: augmented ones for one epoch of training, crops for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from srjt.data.images.augment import (
    Crops,
    centre_crops,
    crop_alike,
    crop_and_flip,
    gather_crops,
    normalise,
)
from srjt.data.images.feed import Feed
from srjt.methods import Method
from srjt.training.engine.plan import Plan, draw_grades

__all__ = [
    "CENTRE",
    "NO_READERS",
    "Batch",
    "Preprocess",
    "ReaderTargets",
    "TrainingSet",
    "Views",
    "centre_batches",
    "evaluation_batch_size",
    "plan_buffers",
    "train_batches",
    "view_batches",
]

Transform = Callable[[Tensor], Tensor]
Views: TypeAlias = Sequence[Crops | None]  # of each image, from view_crops; None: the usual evaluation crop
CENTRE: Views = (None,)
CPU_PIXELS = 32 * 224**2  # of an evaluation batch on a CPU: larger ones are slower, and take gigabytes
BATCH_MULTIPLE = 64  # of evaluation batches, so that data sets of similar size share a batch shape


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """uint8 pixels (B, H, W, 3) → the input of a network.

    Features (B, F) are not changed and stay in float32 even with bf16: rounding them before they are standardised
    could remove their differences.
    """

    crop: int
    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # memory layout of the images
    train_transform: Transform | None = None  # yours: uint8 (B, 3, H, W) → float, instead of crop and flip
    eval_transform: Transform | None = None

    def train(self, pixels: Tensor, offsets: Tensor, flips: Tensor) -> Tensor:
        if pixels.ndim == 2:
            return pixels
        if self.train_transform is not None:
            return self.train_transform(pixels.permute(0, 3, 1, 2))
        return self._normalised(crop_and_flip(pixels, offsets, flips, size=self.crop))

    def evaluate(self, pixels: Tensor, view: Crops | None = None) -> Tensor:
        """view: one of ``view_crops``, the same for all images; None: the centre crop, or ``eval_transform``."""
        if pixels.ndim == 2:
            return pixels
        if view is None and self.eval_transform is not None:
            return self.eval_transform(pixels.permute(0, 3, 1, 2))
        crop = view or centre_crops(1, margin=pixels.shape[1] - self.crop)
        return self._normalised(crop_alike(pixels, crop, size=self.crop))

    def _normalised(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) in channels-last order, as they are stored."""
        return normalise(images if self.channels_last else images.contiguous(), dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class ReaderTargets:
    """How the N training samples differ from samples with one certain label each; on the CPU, in float64."""

    probabilities: Tensor | None = None  # (N, C) of the true grades, to learn from in place of the labels
    draw_from: Tensor | None = None  # (N, C) from which the grades to learn from are drawn each epoch
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
        """(N,) or (N, C) what is learnt from; at a fixed address, which a captured graph reads."""
        if self.readers.probabilities is not None:
            return self.readers.probabilities.float().to(self.labels.device)
        return self.labels if self.readers.draw_from is None else self.labels.clone()

    def start_epoch(self, epoch: int, *, seed: int) -> None:
        """Draw the grades to learn from, if they are drawn anew each epoch."""
        if self.readers.draw_from is not None:
            self.targets.copy_(draw_grades(self.readers.draw_from, epoch=epoch, seed=seed))


class Batch(NamedTuple):
    x: Tensor  # (B, …) float
    targets: Tensor  # (B,) or (B, C)
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

    part: the columns of each batch that this process works on, when several processes share it. ``Batch.rows``
    always has the rows of the whole batch.
    """
    device = data.labels.device
    plan_rows = plan.rows[first:].to(device, non_blocking=True)
    offsets = plan.offsets[first:, part].to(device, non_blocking=True)
    flips = plan.flips[first:, part].to(device, non_blocking=True)
    for step, pixels in enumerate(data.feed.batches(data.rows[plan.rows[first:, part]])):
        x = preprocess.train(pixels, offsets[step], flips[step])
        x, targets = method.prepare(x, data.targets[plan_rows[step][part]], generator=generator)
        yield Batch(x, targets, plan_rows[step])


class PlanBuffers(NamedTuple):
    """A plan at fixed addresses on the device, which a captured graph reads at its step counter."""

    rows: Tensor  # (steps, B)
    offsets: Tensor  # (steps, B, 2)
    flips: Tensor  # (steps, B)

    def fill(self, plan: Plan) -> None:
        self.rows.copy_(plan.rows, non_blocking=True)
        self.offsets.copy_(plan.offsets, non_blocking=True)
        self.flips.copy_(plan.flips, non_blocking=True)

    def batch(self, data: TrainingSet, store_rows: Tensor, step: Tensor, preprocess: Preprocess) -> Batch:
        """Batch number ``step`` (a 0-d tensor), gathered from a store on the GPU."""
        number = step.view(1) % len(self.rows)  # a warm-up may be longer than a short epoch
        rows, offsets, flips = (buffer.index_select(0, number)[0] for buffer in self)
        assert data.feed.pixels is not None
        if data.feed.pixels.ndim == 2:
            return Batch(data.feed.pixels.index_select(0, store_rows[rows]), data.targets[rows], rows)
        images = gather_crops(data.feed.pixels, store_rows[rows], offsets, flips, size=preprocess.crop)
        return Batch(normalise(images, dtype=preprocess.dtype), data.targets[rows], rows)


def plan_buffers(plan: Plan, device: torch.device) -> PlanBuffers:
    return PlanBuffers(plan.rows.to(device), plan.offsets.to(device), plan.flips.to(device))


def evaluation_batch_size(feed: Feed, *, crop: int, largest: int) -> int:
    """Samples of an evaluation step: ``largest``, but of images on a CPU what its caches and memory bear."""
    pixels = feed.pixels
    images_on_cpu = pixels is not None and pixels.ndim == 4 and pixels.device.type == "cpu"
    return min(largest, max(1, CPU_PIXELS // crop**2)) if images_on_cpu else largest


def even_batch_size(samples: int, *, largest: int) -> int:
    """A size of at most ``largest`` whose last batch is nearly full, too."""
    if samples < BATCH_MULTIPLE:
        return min(samples, largest)
    even = -(-samples // -(-samples // largest))
    return min(largest, -(-even // BATCH_MULTIPLE) * BATCH_MULTIPLE)


def centre_batches(
    feed: Feed, rows: Tensor, *, preprocess: Preprocess, batch_size: int, done: int = 0
) -> Iterator[tuple[Tensor, slice]]:
    """Evaluation batches over store rows (N,): float images, and the slice of ``rows`` that they belong to.

    The batches of the first ``done`` rows are skipped; the others are the same as without it.
    """
    for (images,), part in view_batches(feed, rows, preprocess=preprocess, batch_size=batch_size, done=done):
        yield images, part


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
    """Like ``centre_batches``, but each batch is an iterator over its views. They are computed one at a time, so that
    ten views need no more memory than one.

    All batches have the same size. The last one is padded with copies of the last row, which the caller cuts off; the
    size is chosen to need few of them, unless it has to be ``exact``.
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
