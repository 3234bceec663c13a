"""From the store to what a network sees: batches of one epoch, and crops for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from srjt.data.images.augment import Crops, centre_crops, crop_and_flip, gather_crops, normalise
from srjt.data.images.feed import Feed
from srjt.methods import Method
from srjt.training.engine.plan import Plan

__all__ = [
    "CENTRE",
    "Batch",
    "Preprocess",
    "TrainingSet",
    "Views",
    "centre_batches",
    "plan_buffers",
    "train_batches",
    "view_batches",
]

Transform = Callable[[Tensor], Tensor]
Views: TypeAlias = Sequence[Crops | None]  # of each image, as view_crops gives them; None: as it is evaluated
CENTRE: Views = (None,)
ROUND = 64  # evaluation batches are multiples of it: sides of similar size share a shape


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """uint8 pixels (B, H, W, 3) → what the network takes. Features (B, F) pass through as they are, in float32
    also beside bf16: rounding them before they are standardised could wipe out their differences."""

    crop: int
    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # the layout of the images that are handed to the network
    train_transform: Transform | None = (
        None  # one's own: uint8 (B, 3, H, W) → float, instead of crop and flip
    )
    eval_transform: Transform | None = None

    def train(self, pixels: Tensor, offsets: Tensor, flips: Tensor) -> Tensor:
        if pixels.ndim == 2:
            return pixels
        if self.train_transform is not None:
            return self.train_transform(pixels.permute(0, 3, 1, 2))
        return self._cut(pixels, offsets, flips)

    def evaluate(self, pixels: Tensor, view: Crops | None = None) -> Tensor:
        """view: one of ``view_crops``, the same for all images; None: the centre, or one's own transform."""
        if pixels.ndim == 2:
            return pixels
        if view is None and self.eval_transform is not None:
            return self.eval_transform(pixels.permute(0, 3, 1, 2))
        one = (view or centre_crops(1, margin=pixels.shape[1] - self.crop)).to(pixels.device)
        return self._cut(pixels, one.offsets.expand(len(pixels), 2), one.flips.expand(len(pixels)))

    def _cut(self, pixels: Tensor, offsets: Tensor, flips: Tensor) -> Tensor:
        images = crop_and_flip(pixels, offsets, flips, size=self.crop)  # channels last, as they are stored
        return normalise(images if self.channels_last else images.contiguous(), dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """The N training samples: where their pixels are, and what is said of them."""

    feed: Feed
    rows: Tensor  # (N,) int64 on the CPU: their rows in the store
    labels: Tensor  # (N,) int64 on the device
    true: Tensor | None  # (N,) likewise, where the truth is known


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

    part: the columns of each batch that this process works on, when several share it; ``Batch.rows``
    stays the whole batch's.
    """
    device = data.labels.device
    everyone = plan.rows[first:].to(device, non_blocking=True)
    offsets = plan.offsets[first:, part].to(device, non_blocking=True)
    flips = plan.flips[first:, part].to(device, non_blocking=True)
    for step, pixels in enumerate(data.feed.batches(data.rows[plan.rows[first:, part]])):
        x = preprocess.train(pixels, offsets[step], flips[step])
        x, targets = method.prepare(x, data.labels[everyone[step][part]], generator=generator)
        yield Batch(x, targets, everyone[step])


class PlanBuffers(NamedTuple):
    """A plan at fixed addresses on the device, for a captured graph to read at its own step counter."""

    rows: Tensor  # (steps, B)
    offsets: Tensor  # (steps, B, 2)
    flips: Tensor  # (steps, B)

    def fill(self, plan: Plan) -> None:
        self.rows.copy_(plan.rows, non_blocking=True)
        self.offsets.copy_(plan.offsets, non_blocking=True)
        self.flips.copy_(plan.flips, non_blocking=True)

    def batch(self, data: TrainingSet, store_rows: Tensor, step: Tensor, preprocess: Preprocess) -> Batch:
        """Batch number ``step`` (a 0-d tensor), gathered straight from a resident store."""
        number = step.view(1) % len(self.rows)  # a warm-up may be longer than a short epoch
        rows, offsets, flips = (buffer.index_select(0, number)[0] for buffer in self)
        assert data.feed.pixels is not None
        if data.feed.pixels.ndim == 2:
            return Batch(data.feed.pixels.index_select(0, store_rows[rows]), data.labels[rows], rows)
        images = gather_crops(data.feed.pixels, store_rows[rows], offsets, flips, size=preprocess.crop)
        return Batch(normalise(images, dtype=preprocess.dtype), data.labels[rows], rows)


def plan_buffers(plan: Plan, device: torch.device) -> PlanBuffers:
    return PlanBuffers(plan.rows.to(device), plan.offsets.to(device), plan.flips.to(device))


def centre_batches(
    feed: Feed, rows: Tensor, *, preprocess: Preprocess, batch_size: int
) -> Iterator[tuple[Tensor, slice]]:
    """Evaluation batches over store rows (N,): float images, and the part of ``rows`` they are for."""
    for (images,), part in view_batches(feed, rows, preprocess=preprocess, batch_size=batch_size):
        yield images, part


def view_batches(
    feed: Feed, rows: Tensor, *, preprocess: Preprocess, batch_size: int, views: Views = CENTRE
) -> Iterator[tuple[Iterator[Tensor], slice]]:
    """As ``centre_batches``, but each batch as an iterator over its views, which are made one at a time: ten views
    take no more memory than one.

    All batches have one size, so that a network is compiled (and cuDNN tuned) for it once: the last one is
    filled up with repetitions, which the caller cuts off. The size divides N well, to repeat few.
    """
    samples = len(rows)
    steps = -(-samples // batch_size)
    even = -(-samples // steps)
    size = min(batch_size, -(-even // ROUND) * ROUND) if samples >= ROUND else samples
    padded = torch.cat([rows, rows[-1:].expand(max(steps * size - samples, 0))])
    for step, pixels in enumerate(feed.batches(padded.view(steps, size))):
        images = map(partial(preprocess.evaluate, pixels), views)
        yield images, slice(step * size, min((step + 1) * size, samples))
