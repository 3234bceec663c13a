"""Apply networks to samples: probabilities for prediction, confusion counts for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from srjt.data.images.feed import Feed
from srjt.methods import Method
from srjt.ordinal.decoding import most_likely_grade
from srjt.ordinal.metrics import confusion_matrix
from srjt.training.engine.batches import (
    CENTRE,
    Preprocess,
    Views,
    evaluation_batch_size,
    even_batch_size,
    view_batches,
)
from srjt.training.engine.stacked_networks import StackedNetworks

__all__ = ["confusion_counts", "one_batch_size", "predict_probabilities"]


def one_batch_size(networks: StackedNetworks, sides: Iterable[Tensor], *, largest: int) -> int:
    """``largest``; for compiled networks one size for the rows of all sides, because each size would be compiled."""
    longest = max((len(rows) for rows in sides), default=0)
    return even_batch_size(longest, largest=largest) if networks.compiled and longest else largest


@torch.no_grad()
def _logits(
    networks: StackedNetworks,
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
    views: Views = CENTRE,
) -> Iterator[tuple[list[Tensor], slice]]:
    """For each batch of rows the logits (K, B, C) of each view, and the slice of ``rows`` that they belong to."""
    training = networks.training
    device_type = next((weights.device.type for weights in networks.parameters()), "cpu")
    batch_size = evaluation_batch_size(feed, crop=preprocess.crop, largest=batch_size)
    batches = view_batches(
        feed, rows, preprocess=preprocess, batch_size=batch_size, exact=bool(networks.compiled), views=views
    )
    networks.eval()
    try:
        # torch forgets the rounded weights at the end of the outermost autocast: inside of this one they are kept
        with torch.autocast(device_type, enabled=False):
            for images, part in batches:
                by_view = []
                for x in images:
                    with torch.autocast(x.device.type, amp or torch.bfloat16, enabled=amp is not None):
                        logits = networks(x)[:, : part.stop - part.start]
                    by_view.append(logits if logits.dtype == torch.float64 else logits.float())
                yield by_view, part
    finally:
        networks.train(training)


def confusion_counts(
    networks: StackedNetworks,
    method: Method,
    feed: Feed,
    rows: Tensor,
    labels: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
) -> Tensor:
    """Store rows (N,) on the CPU, labels (N,) on the device → (K + 1, C, C) counts on the device.

    Each network, then their ensemble (the mean of their probabilities). Does not wait for the device.
    """
    shape = (method.networks + 1, method.num_classes, method.num_classes)
    total = torch.zeros(shape, dtype=torch.int64, device=labels.device)
    for (logits,), part in _logits(
        networks, feed, rows, preprocess=preprocess, batch_size=batch_size, amp=amp
    ):
        ensemble = most_likely_grade(method.probabilities(logits).mean(dim=0))
        predicted = torch.cat([method.grades(logits), ensemble[None]])
        total += torch.stack(
            [confusion_matrix(labels[part], p, num_classes=method.num_classes) for p in predicted]
        )
    return total


def predict_probabilities(
    networks: StackedNetworks,
    method: Method,
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
    views: Views = CENTRE,
) -> tuple[Tensor, Tensor]:
    """(K, N, C) probabilities and (K, N) grades of each network, on the CPU.

    Probabilities are averaged over the views; with several views the grades follow from the averages.
    """
    probabilities, grades = [], []
    for by_view, _ in _logits(
        networks, feed, rows, preprocess=preprocess, batch_size=batch_size, amp=amp, views=views
    ):
        mean = torch.stack([method.probabilities(logits) for logits in by_view]).mean(dim=0)
        predicted = method.grades(by_view[0]) if len(by_view) == 1 else method.grades_of(mean)
        probabilities.append(mean)  # they stay on the device: to fetch them would wait for it in every batch
        grades.append(predicted)
    return torch.cat(probabilities, dim=1).cpu(), torch.cat(grades, dim=1).cpu()
