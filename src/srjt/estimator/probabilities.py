"""Probabilities of a fitted estimator for arrays: the mean over its networks."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import gen_batches

from srjt.data.features import as_features
from srjt.data.images.store import open_store
from srjt.data.sources.inputs import unlabelled_samples
from srjt.networks import backbones
from srjt.training.trained import Trained

__all__ = ["predict_images", "predict_rows"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


@torch.no_grad()
def predict_rows(trained: Trained, X: Array, *, custom_network: bool) -> Floats:
    """(N, C) for rows of features. In float64, so that the result of a row does not depend on the others."""
    rows = as_features(X, what="X")
    if custom_network or not backbones.takes_rows(str(trained.config.network)):  # it may require float32
        return _ensemble(trained.probabilities(rows)[0])
    networks = copy.deepcopy(trained.networks).double().eval()
    parts = []
    for part in gen_batches(len(rows), trained.config.eval_batch_size):
        x = torch.from_numpy(rows[part].astype(np.float64)).to(trained.device)
        parts.append(trained.method.probabilities(networks(x)).mean(dim=0).cpu().numpy())
    probabilities: Floats = np.concatenate(parts)
    return probabilities


def predict_images(trained: Trained, images: Array) -> Floats:
    """(N, C) for uint8 images (N, H, W, 3), which are resized as in training."""
    config = trained.config
    samples = unlabelled_samples(images, features=False, grades=trained.grades).manifest
    with tempfile.TemporaryDirectory(prefix="srjt-") as cache:
        store = open_store(samples, size=config.image_size, resize=config.resize, cache=cache)
        return _ensemble(trained.probabilities(store.pixels)[0])


def _ensemble(probabilities: Array) -> Floats:
    """(K, N, C) of each network → (N, C)."""
    mean: Floats = probabilities.mean(axis=0, dtype=np.float64)
    return mean
