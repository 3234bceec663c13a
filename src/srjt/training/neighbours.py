"""The most similar samples of each grade, for an expert to compare with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.images.feed import Feed
from srjt.training.engine.batches import centre_batches, evaluation_batch_size
from srjt.training.engine.devices import amp_dtype
from srjt.training.trained import Trained, use_run_settings

__all__ = ["features", "nearest"]

Ints = npt.NDArray[np.int64]
BLOCK = 1024  # samples compared with all others at a time


@torch.no_grad()
def features(run: Trained, feed: Feed, rows: Ints) -> npt.NDArray[np.float32]:
    """Store rows (N,) → (N, F): the input of the last layer of the run's first network."""
    backbone = run.networks.members[0].backbone
    assert isinstance(backbone, torch.nn.Module)
    amp = amp_dtype(run.config, run.device)
    vectors = []
    size = evaluation_batch_size(feed, crop=run.config.crop, largest=run.config.eval_batch_size)
    with use_run_settings(run):
        for x, part in centre_batches(
            feed, torch.from_numpy(rows), preprocess=run.preprocess, batch_size=size
        ):
            with torch.autocast(x.device.type, amp or torch.bfloat16, enabled=amp is not None):
                vectors.append(backbone(x)[: part.stop - part.start].float().cpu())
    return torch.cat(vectors).numpy()


def nearest(
    vectors: npt.ArrayLike, queries: Ints, labels: npt.ArrayLike, *, num_classes: int, count: int = 4
) -> npt.NDArray[np.int32]:
    """(N, F) features, (M,) positions of the queries, (N,) grades → (M, C, count) positions, the most similar first.

    By cosine similarity; ties go to the earlier sample. A sample is not its own neighbour; −1: a grade has too few.
    """
    array = np.asarray(vectors, dtype=np.float32)
    length = np.linalg.norm(array, axis=1, keepdims=True)
    unit = array / np.maximum(length, np.finfo(np.float32).tiny)
    grades = np.asarray(labels)
    found = np.full((len(queries), num_classes, count), -1, dtype=np.int32)
    for grade in range(num_classes):
        members = np.flatnonzero(grades == grade)
        for start in range(0, len(queries), BLOCK):
            block = queries[start : start + BLOCK]
            distance = -(unit[block] @ unit[members].T)
            distance[block[:, None] == members[None, :]] = np.inf
            order = np.argsort(distance, axis=1, kind="stable")[:, :count]
            close = np.where(np.take_along_axis(distance, order, axis=1) < np.inf, members[order], -1)
            found[start : start + BLOCK, grade, : close.shape[1]] = close
    return found
