"""The plan of an epoch: which samples make each batch, and how each sample is cropped and flipped.

All randomness is a function of (seed, purpose, epoch): the batches of epoch 80 can be drawn without drawing those
before it, so that a resumed run needs no history.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from srjt.data.images.augment import centre_crops, draw_crops

__all__ = ["Plan", "balancing_weights", "draw_grades", "draw_plan", "generator", "subseed"]


def subseed(seed: int, *purpose: object) -> int:
    """A different 63-bit seed for each purpose."""
    text = "\0".join(["srjt", str(int(seed)), *map(str, purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator: the draws do not depend on the device that trains."""
    return torch.Generator().manual_seed(subseed(seed, *purpose))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One epoch: which samples make each batch, and how each is cropped and flipped. On the CPU."""

    rows: Tensor  # (steps, B) int64 positions in the training set
    offsets: Tensor  # (steps, B, 2) int64
    flips: Tensor  # (steps, B) bool

    def __len__(self) -> int:
        return len(self.rows)


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
) -> Plan:
    """Shuffle, cut into whole batches (a smaller last one is dropped), draw a crop and a flip for each sample.

    weights: (samples,) relative frequency of each sample; None: each sample once.
    """
    draws = generator(seed, "plan", epoch)
    steps = samples // batch_size
    rows = torch.randperm(samples, generator=draws)
    if weights is not None:
        rows = rows[_resample(weights[rows], generator=draws)]
        rows = rows[torch.randperm(samples, generator=draws)]
    rows = rows[: steps * batch_size].reshape(steps, batch_size)
    if not augment:
        crops = centre_crops(steps * batch_size, margin=margin)
        return Plan(
            rows=rows, offsets=crops.offsets.view(steps, batch_size, 2), flips=crops.flips.view(steps, -1)
        )
    crops = draw_crops((steps, batch_size), margin=margin, generator=draws)
    return Plan(
        rows=rows, offsets=crops.offsets, flips=crops.flips if flip else torch.zeros_like(crops.flips)
    )


def balancing_weights(labels: Tensor, *, balance: float, certainty: Tensor | None = None) -> Tensor | None:
    """(N,) grades → (N,) weights n_c^(−balance), on the CPU, that raise the frequency of rare grades.

    certainty: (N,) factors of the weights. None if all samples weigh the same.
    """
    if balance == 0.0:
        return certainty
    grades = labels.cpu()
    weights = torch.bincount(grades).double().clamp(min=1).pow(-balance)[grades]
    return weights if certainty is None else weights * certainty


def draw_grades(probabilities: Tensor, *, epoch: int, seed: int) -> Tensor:
    """(N, C) probabilities → (N,) a grade of each sample, drawn for this epoch, on the CPU."""
    points = torch.rand(
        len(probabilities), 1, generator=generator(seed, "readers", epoch), dtype=torch.float64
    )
    return (probabilities.cumsum(1)[:, :-1] <= points).sum(1)


def _resample(weights: Tensor, *, generator: torch.Generator) -> Tensor:
    """Systematic resampling: N positions in proportion to ``weights`` (N,), each as often as expected, rounded up or
    down.

    With N independent draws an epoch would miss a third of the samples even where all weights are equal.
    """
    edges = weights.cumsum(0) / weights.sum() * len(weights)
    points = torch.arange(len(weights)) + torch.rand((), generator=generator, dtype=torch.float64)
    return torch.searchsorted(edges, points, right=True).clamp(max=len(weights) - 1)
