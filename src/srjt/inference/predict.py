"""``srjt.predict``: the grade, probabilities and uncertainty of every image."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.problems import drop_unusable
from srjt.data.sources import Reading
from srjt.data.sources.features import read_ungraded_features
from srjt.data.sources.unlabelled import read_images
from srjt.errors import SrjtError, suggest
from srjt.ordinal.decoding import Decoding, decode, expected_grade
from srjt.training.trained import Trained, load_run

__all__ = ["RunLike", "WhichNetwork", "check_choices", "open_run", "predict", "predictions", "read_samples"]

WhichNetwork = Literal["ensemble", "1", "2"]


RunLike: TypeAlias = Trained | str | os.PathLike[str]  # a run, or the path of its folder


def open_run(run: RunLike) -> Trained:
    """The run itself, or the run in a folder."""
    if isinstance(run, Trained):
        return run
    if isinstance(run, (str, os.PathLike)):
        return load_run(os.fspath(run))
    raise SrjtError(f"A run is what srjt.train returns, or the path of its folder; got {type(run).__name__}.")


def check_choices(network: str, decoding: str) -> None:
    """Raise an error for an unknown network or decoding."""
    if network not in get_args(WhichNetwork):
        raise suggest("network", network, get_args(WhichNetwork))
    if decoding not in get_args(Decoding):
        raise suggest("decoding", decoding, get_args(Decoding))


def predict(
    run: RunLike,
    data: Manifest | str | os.PathLike[str],
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
    views: int = 1,
    on_bad_image: OnBadImage = "error",
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Predict the grades of images, or of rows of features.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest or path
        The samples; grades in it are not used. A path is an image, a folder of images, a table with a column of
        images, or a file of features.
    network : {"ensemble", "1", "2"}
        The mean of the networks' probabilities, or one network.
    decoding : {"argmax", "median", "expected"}
        The most likely grade, the grade of least expected absolute error, or the rounded mean.
    views : {1, 2, 10}
        Number of views of an image over which the probabilities are averaged: the centre crop; with its mirror image;
        with the four corners too, each plain and mirrored.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image or a malformed row, or leave it out. Everything that is left out is listed in
        ``attrs["skipped"]`` of the result, also repeated rows and files of a folder that are not images.
    progress : callable, optional
        Called with (images decoded, images in total).

    Returns
    -------
    DataFrame
        One row per sample: ``image``, ``grade``, ``p_<grade>`` for every grade, ``expected_grade``, ``entropy`` and,
        for two networks, ``disagreement``, their total variation distance from 0 to 1.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, **settings)
    >>> table = srjt.predict(run, data)
    >>> list(table.columns[:3]), len(table)
    (['image', 'grade', 'p_0'], 60)
    """
    check_choices(network, decoding)
    run = open_run(run)
    crops = run.views(views)  # an error before any image is read
    if isinstance(data, Manifest):
        manifest, left_out = data, []
    else:
        reading = read_samples(run, data)
        manifest = drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)
        left_out = [(problem.where, problem.detail) for problem in reading.problems]
    run.check_feature_settings(manifest.made)
    store = open_store(
        manifest,
        size=run.config.image_size,
        resize=run.config.resize,
        on_bad_image=on_bad_image,
        progress=progress,
    )
    probabilities, grades = run.probabilities(store.pixels, views=views)
    table = predictions(run, probabilities, grades, network=network, decoding=decoding)
    table.insert(0, "image", store.manifest.table["image"].to_numpy())
    table.attrs["views"] = len(crops)
    table.attrs["skipped"] = [*left_out, *store.skipped]  # (image, row or file, reason)
    return table


def read_samples(run: Trained, source: str | os.PathLike[str]) -> Reading:
    """Samples without grades from a path, of the kind that the run was trained on."""
    if not isinstance(source, (str, os.PathLike)):
        raise SrjtError(f"Data are a manifest or a path; got {type(source).__name__}.")
    if len(run.in_shape) == 1:
        features = read_ungraded_features(Path(source), grades=run.grades)
        return Reading(manifest=features, problems=(), kind="features", notes=())
    if Path(source).suffix == ".npz":
        raise SrjtError(
            f"This run reads images, but {source} is a file of arrays: pass an image, folder or table."
        )
    return read_images([source], grades=run.grades)


def predictions(
    run: Trained,
    probabilities: npt.NDArray[np.float32],
    grades: npt.NDArray[np.int64],
    *,
    network: WhichNetwork = "ensemble",
    decoding: Decoding = "argmax",
) -> pd.DataFrame:
    """(K, N, C) probabilities and (K, N) grades → grade, p_<grade> …, expected_grade, entropy, disagreement.

    The disagreement of two networks is their total variation distance, from 0 (equal probabilities) to 1.
    """
    if network == "ensemble":
        chosen = probabilities.mean(axis=0)
    elif int(network) <= len(probabilities):
        chosen = probabilities[int(network) - 1]
    else:
        raise SrjtError(f"This run has {len(probabilities)} network(s): there is no network {network}.")
    p = torch.from_numpy(np.ascontiguousarray(chosen))
    if decoding == "argmax" and (network != "ensemble" or len(probabilities) == 1):
        # the method's own rule, which differs for Garg
        predicted = grades[0 if network == "ensemble" else int(network) - 1]
    else:
        predicted = decode(p, decoding).numpy()
    columns: dict[str, object] = {"grade": [run.grades[g] for g in predicted]}
    columns |= {f"p_{name}": chosen[:, c] for c, name in enumerate(run.grades)}
    columns["expected_grade"] = expected_grade(p).numpy()
    columns["entropy"] = torch.special.entr(p).sum(dim=-1).clamp(min=0.0).numpy()  # rounding: p may exceed 1
    if len(probabilities) == 2:
        distance = 0.5 * np.abs(probabilities[0] - probabilities[1]).sum(axis=-1)
        columns["disagreement"] = distance.clip(max=1.0)  # rounding can exceed 1
    return pd.DataFrame(columns)
