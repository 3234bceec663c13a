"""Networks on samples: logits for prediction, confusion matrices for metrics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from srjt.data.feed import Feed
from srjt.methods import Method
from srjt.ordinal.decoding import most_likely_grade
from srjt.ordinal.metrics import confusion_matrix, summary
from srjt.training.committee import Committee
from srjt.training.inputs import Preprocess, centre_batches
from srjt.training.metrics_log import MetricRow

__all__ = ["confusions", "metric_rows", "predict_probabilities"]


@torch.no_grad()
def _logits(
    networks: Committee,
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
) -> Iterator[tuple[Tensor, slice]]:
    training = networks.training
    networks.eval()
    try:
        for x, part in centre_batches(feed, rows, preprocess=preprocess, batch_size=batch_size):
            with torch.autocast(x.device.type, amp or torch.bfloat16, enabled=amp is not None):
                logits = networks(x)[:, : part.stop - part.start]
            yield logits if logits.dtype == torch.float64 else logits.float(), part
    finally:
        networks.train(training)


def confusions(
    networks: Committee,
    method: Method,
    feed: Feed,
    rows: Tensor,
    labels: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
) -> Tensor:
    """Store rows (N,) on the CPU, labels (N,) on the device → (K + 1, C, C) counts on the device: each
    network, then their ensemble (the mean of their probabilities). Nothing waits for the device."""
    shape = (method.networks + 1, method.num_classes, method.num_classes)
    total = torch.zeros(shape, dtype=torch.int64, device=labels.device)
    for logits, part in _logits(networks, feed, rows, preprocess=preprocess, batch_size=batch_size, amp=amp):
        ensemble = most_likely_grade(method.probabilities(logits).mean(dim=0))
        predicted = torch.cat([method.grades(logits), ensemble[None]])
        total += torch.stack(
            [confusion_matrix(labels[part], p, num_classes=method.num_classes) for p in predicted]
        )
    return total


def metric_rows(epoch: int, split: str, counts: np.ndarray) -> list[MetricRow]:
    """(K + 1, C, C) counts → the rows of one split: each network, and for two the ensemble and the pool."""
    *single, ensemble = counts
    named = {str(k + 1): confusion for k, confusion in enumerate(single)}
    if len(single) > 1:
        named["ensemble"] = ensemble
        named["pooled"] = np.sum(single, axis=0)
    return [
        MetricRow(epoch, split, network, metric, value)
        for network, confusion in named.items()
        for metric, value in summary(confusion).items()
    ]


def predict_probabilities(
    networks: Committee,
    method: Method,
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    amp: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """(K, N, C) probabilities and (K, N) grades of each network, on the CPU."""
    probabilities, grades = [], []
    for logits, _ in _logits(networks, feed, rows, preprocess=preprocess, batch_size=batch_size, amp=amp):
        probabilities.append(method.probabilities(logits).cpu())
        grades.append(method.grades(logits).cpu())
    return torch.cat(probabilities, dim=1), torch.cat(grades, dim=1)
