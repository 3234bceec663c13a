"""Applying a trained run to images: one row per image with grade, probabilities and doubts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, suggest
from srjt.ordinal.decoding import Decoding, decode, expected_grade
from srjt.training.trained import Trained

__all__ = ["WhichNetwork", "check_choices", "predict", "predictions"]

WhichNetwork = Literal["ensemble", "1", "2"]


def check_choices(network: str, decoding: str) -> None:
    if network not in get_args(WhichNetwork):
        raise suggest("network", network, get_args(WhichNetwork))
    if decoding not in get_args(Decoding):
        raise suggest("decoding", decoding, get_args(Decoding))


def predict(
    run: Trained,
    data: Manifest,
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
    views: int = 1,
    on_bad_image: OnBadImage = "error",
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Predictions for every image of ``data`` (its grades are not looked at).

    views: 1, the centre crop; 2, the mean with its mirror image; 10, with the four corners, each plain and mirrored.
    """
    config = run.config
    run.check_made(data.made)
    shown = run.views(views)  # an error before any image is read
    store = open_store(
        data, size=config.image_size, resize=config.resize, on_bad_image=on_bad_image, progress=progress
    )
    probabilities, grades = run.probabilities(store.pixels, views=views)
    table = predictions(run, probabilities, grades, network=network, decoding=decoding)
    table.insert(0, "image", store.manifest.table["image"].to_numpy())
    table.attrs["views"] = len(shown)
    table.attrs["skipped"] = store.skipped  # (image, reason) of what could not be read
    return table


def predictions(
    run: Trained,
    probabilities: npt.NDArray[np.float32],
    grades: npt.NDArray[np.int64],
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
) -> pd.DataFrame:
    """(K, N, C) probabilities and (K, N) grades → grade, p_<grade> …, expected_grade, entropy, disagreement.

    The disagreement of two networks is their total variation distance, from 0 (they say the same) to 1.
    """
    if network == "ensemble":
        chosen = probabilities.mean(axis=0)
    elif int(network) <= len(probabilities):
        chosen = probabilities[int(network) - 1]
    else:
        raise SrjtError(f"This run trained {len(probabilities)} network(s): there is no network {network}.")
    p = torch.from_numpy(np.ascontiguousarray(chosen))
    if decoding == "argmax" and (network != "ensemble" or len(probabilities) == 1):
        answer = grades[
            0 if network == "ensemble" else int(network) - 1
        ]  # the method's own rule (Garg's differs)
    else:
        answer = decode(p, decoding).numpy()
    columns: dict[str, object] = {"grade": [run.grades[g] for g in answer]}
    columns |= {f"p_{name}": chosen[:, c] for c, name in enumerate(run.grades)}
    columns["expected_grade"] = expected_grade(p).numpy()
    columns["entropy"] = -(p * p.clamp(min=1e-30).log()).sum(dim=-1).numpy()
    if len(probabilities) == 2:
        columns["disagreement"] = 0.5 * np.abs(probabilities[0] - probabilities[1]).sum(axis=-1)
    return pd.DataFrame(columns)
