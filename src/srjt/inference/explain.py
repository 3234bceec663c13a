"""``srjt.explain``: where the networks look, drawn over the image, and which training images are
alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn

from srjt.data.grades import Grades
from srjt.data.images.decode import OnBadImage
from srjt.data.images.feed import Samples, open_feed
from srjt.data.manifest import Ints, Manifest
from srjt.data.sources import LabelledData, UnlabelledData
from srjt.errors import Option, SrjtError, count_of
from srjt.inference.calibrated_run import RunLike, calibrate_run, open_run
from srjt.inference.labelled import read_labelled
from srjt.inference.options import Answering
from srjt.inference.predict import usable_samples
from srjt.notebook import HasPage
from srjt.ordinal.decoding import expected_grade
from srjt.progress import ProgressOption, progress_bar
from srjt.training.crossfit import features, nearest
from srjt.training.trained import Trained, use_run_settings

# Where a network looks: which places of an image raise or lower its expected grade.
#
# The expected grade s = Σ_c c · p^c is the ordinal output: a map of one grade's probability would
# not tell whether a place speaks for a milder or for a severer grade. With A the last feature map
# of the network, the value at a place is Σ_channels A · ∂s/∂A: the part of the expected grade that
# the place contributes, to first order. The product is taken before any average over places, so
# that a place at which the network's output does not depend on A gets 0.

Floats = npt.NDArray[np.float32]


def contributions(network: nn.Module, x: Tensor, severity: Callable[[Tensor], Tensor]) -> Tensor:
    """(B, 3, H, W) inputs → (B, h, w): how much each place of the last feature map raises (> 0) the
    severity.

    network : module from (B, 3, H, W) to logits (B, C). Its weights and mode are not changed.
    severity : logits (B, C) → (B,), differentiable.

    The last feature map is the last output of a part of the network that has places and on which
    the severity depends. In a network with a class token the patches of the last block do not
    count: nothing reads them.
    """
    outputs: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = []  # that have places

    def record(module: nn.Module, _: Any, output: Any) -> None:
        if (
            isinstance(output, Tensor)
            and output.requires_grad
            and (layout := _layout(network, output))
        ):
            outputs.append((output, layout))

    hooks = [module.register_forward_hook(record) for module in network.modules()]
    try:
        with torch.enable_grad():
            total = severity(network(x.detach().requires_grad_())).sum()
    finally:
        for hook in hooks:
            hook.remove()
    for output, layout in reversed(outputs):
        (gradient,) = torch.autograd.grad(total, output, retain_graph=True, allow_unused=True)
        if gradient is not None and bool((places := layout(output * gradient)).any()):
            return places.detach().float()
    raise SrjtError(
        "This network has no spatial feature map, so parts of an image cannot be explained.",
        code="unsupported",
    )


def _layout(network: nn.Module, output: Tensor) -> Callable[[Tensor], Tensor] | None:
    """How to sum an output over its channels to (B, h, w); None if it has no places."""
    if output.ndim == 4:
        axis = 1  # of the channels
        places = output.shape[2:]
        if output.shape[1] == output.shape[2] != output.shape[3]:
            axis = 3
            places = output.shape[1:3]
        if min(places) == 1:
            return None
        return lambda product: product.sum(dim=axis)
    if output.ndim != 3:
        return None
    # tokens before the patches: the class token and registers of a vision transformer
    prefix = 0
    for module in network.modules():
        if isinstance(count := getattr(module, "num_prefix_tokens", None), int):
            prefix = count
            break
    side = math.isqrt(max(output.shape[1] - prefix, 0))
    if side < 2 or side * side != output.shape[1] - prefix:
        return None
    return lambda product: product[:, prefix:].sum(dim=2).view(-1, side, side)


def rank_correlation(a: Floats, b: Floats) -> float | None:
    """(N, h, w) maps twice → the mean of Spearman's correlation of each pair; None if all maps are
    constant."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    first = rankdata(a.reshape(len(a), -1), axis=1)
    second = rankdata(b.reshape(len(b), -1), axis=1)
    with np.errstate(invalid="ignore"):
        each = np.array([np.corrcoef(*pair)[0, 1] for pair in zip(first, second, strict=True)])
    if not np.isfinite(each).any():
        return None
    return float(np.nanmean(each))


# Maps drawn over their images: orange raises the expected grade, blue lowers it.

RAISES = np.array([255, 96, 0])
LOWERS = np.array([40, 120, 255])
STRONGEST = 0.6  # opacity of the map where it is largest: the image stays visible


def overlay(
    image: npt.NDArray[np.uint8], heat: npt.NDArray[np.float32], *, side: int = 320
) -> Image.Image:
    """uint8 (H, W, 3) and a map (h, w) → the grey image with the map over it, at least ``side``
    pixels wide."""
    side = max(side, image.shape[0])
    grey = np.asarray(resized_square(image, side).convert("L"), dtype=np.float64)[..., None]
    scale = float(np.abs(heat).max()) or 1.0
    smooth = Image.fromarray((heat / scale).astype(np.float32)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    value = np.clip(np.asarray(smooth, dtype=np.float64), -1.0, 1.0)[..., None]
    strength = STRONGEST * np.abs(value)
    mixed = (1 - strength) * grey + strength * np.where(value > 0, RAISES, LOWERS)
    return Image.fromarray(mixed.astype(np.uint8))


def resized_square(image: npt.NDArray[np.uint8], side: int) -> Image.Image:
    return Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)


# ``srjt.explain``: where the networks look, and which training images are alike.

BATCH = 16  # gradients need the memory of a training step


@dataclass(frozen=True, kw_only=True)
class Explanation(HasPage):
    """The result of ``srjt.explain`` for N images and K networks.

    Attributes
    ----------
    predictions : DataFrame
        One row per image, as ``srjt.predict`` gives it.
    images : ndarray of uint8, shape (N, H, W, 3)
        What the networks saw: the centre crop.
    maps : ndarray of float32, shape (K, N, h, w)
        How much each place raises (> 0) or lowers (< 0) each network's expected grade, in grades.
    network_correlation : float or None
        Mean rank correlation of the two networks' maps; None for one network.
    neighbours : list of list of int, or None
        Per image the most similar training samples, as rows of ``training``; None without training
        data.
    training : Manifest or None
        The training samples that the neighbours are taken from.
    skipped : list of (str, str)
        Images that were left out, with the reason.
    grades : Grades
        The grades of the run, with their names for people.
    """

    predictions: pd.DataFrame
    images: npt.NDArray[np.uint8]
    maps: Floats
    network_correlation: float | None
    neighbours: list[list[int]] | None = None
    training: Manifest | None = None
    skipped: list[tuple[str, str]]
    grades: Grades

    def __repr__(self) -> str:
        return (
            f"<Explanation: {count_of(len(self.images), 'image')},"
            f" {count_of(len(self.maps), 'network')}>"
        )


def explain(
    run: RunLike,
    data: UnlabelledData,
    *,
    training: LabelledData | None = None,
    neighbours: int = 4,
    on_bad_image: OnBadImage = "error",
    progress: ProgressOption = True,
) -> Explanation:
    """Explain the predictions of a run: where its networks look, and which training images are
    alike.

    Parameters
    ----------
    run : Trained or path
        A trained run on images, or the path of its folder.
    data : Manifest, path, DataFrame, array or torch dataset
        The images, as for ``srjt.predict``.
    training : Manifest, path, DataFrame, pair of arrays or torch dataset, optional
        The data that the run was trained on, for the most similar training images and their labels.
        Samples that the run did not learn from are left out where its history tells them, and so is
        an image that is explained.
    neighbours : int
        Number of similar training images per image, the image itself not counted.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out.
    progress : bool or callable
        Show a bar while images are explained, in a terminal or a notebook; or a function that is
        called with (images explained, images in total).

    Returns
    -------
    Explanation
        Maps, predictions and neighbours. ``srjt explain`` shows them on a page.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, **settings)
    >>> explanation = srjt.explain(run, data.select([0, 1, 2]), training=data)
    >>> explanation.maps.shape[:2], len(explanation.neighbours[0])
    ((2, 3), 4)
    """
    run = open_run(run)
    if len(run.in_shape) == 1:
        raise SrjtError(
            "This run was trained on features, and only runs on images can be explained.",
            code="unsupported",
        )
    data, problems = usable_samples(run, data, on_bad_image=on_bad_image)
    calibrated = calibrate_run(run, Answering(on_bad_image=on_bad_image))
    store = calibrated.open_store(data)
    if not len(store.pixels):
        raise SrjtError("There are no images to explain.", code="too_few")
    table = calibrated.table(calibrated.answer_store(store))  # as srjt.predict
    table.insert(0, "image", store.manifest.table["image"].to_numpy())
    with progress_bar("Explaining", progress) as explained:
        maps = network_maps(run, store.pixels, progress=explained)
    learnt = None
    similar = None
    if training is not None:
        samples = read_labelled(run, training, on_bad_image=on_bad_image, progress=progress is True)
        if run.training_ids:  # those that the run learnt from, as far as its history tells them
            samples = samples.select(np.isin(samples.ids, run.training_ids))
        if not len(samples):
            raise SrjtError(
                "None of these samples has the id of a sample that the run was trained on.",
                code="no_match",
                option="training",
            )
        learnt = calibrated.open_store(samples)
        if learnt.pixels.ndim == 2:
            raise SrjtError(
                "This run was trained on images: ",
                Option("training"),
                " has rows of features.",
                code="wrong_file",
            )
        similar = _most_similar(run, learnt.pixels, store.pixels, count=neighbours)
    return Explanation(
        predictions=table,
        images=shown_crop(run, store.pixels),
        maps=maps,
        network_correlation=rank_correlation(maps[0], maps[1]) if len(maps) == 2 else None,
        neighbours=similar,
        training=None if learnt is None else learnt.manifest,
        skipped=[*((one.where, one.detail) for one in problems), *store.skipped],
        grades=run.grades,
    )


def network_maps(
    run: Trained, pixels: Samples, *, progress: Callable[[int, int], None] | None = None
) -> Floats:
    """uint8 images (N, H, W, 3) → maps (K, N, h, w) of the run's networks."""

    def severity(logits: Tensor) -> Tensor:
        return expected_grade(run.method.probabilities(logits[None])[0])

    parts: list[list[Tensor]] = []
    for start in range(0, len(pixels), BATCH):
        batch = torch.from_numpy(np.asarray(pixels[start : start + BATCH])).to(run.device)
        x = run.preprocess.evaluate(batch).float()
        with use_run_settings(run):
            parts.append(
                [contributions(network.eval(), x, severity).cpu() for network in run.networks.whole]
            )
        if progress is not None:
            progress(min(start + BATCH, len(pixels)), len(pixels))
    return torch.stack([torch.cat(maps) for maps in zip(*parts, strict=True)]).numpy()


def _most_similar(
    run: Trained, training: Samples, queries: Samples, *, count: int
) -> list[list[int]]:
    """(M, …) training images, (N, …) queries → the positions of the most similar training images
    per query, without the query itself."""
    share = run.config.memory_share
    vectors = [
        features(run, open_feed(pixels, device=run.device, share=share), np.arange(len(pixels)))
        for pixels in (training, queries)
    ]
    # one group with the training images: the queries are compared with them, not with each other
    group = np.repeat([0, -1], [len(training), len(queries)])
    places = len(training) + np.arange(len(queries))
    wanted = count + 1
    while True:
        near = nearest(np.concatenate(vectors), places, group, num_classes=1, count=wanted)[:, 0]
        others = [_others(rows, training, query) for rows, query in zip(near, queries, strict=True)]
        if wanted >= len(training) or min(map(len, others)) >= count:
            return [rows[:count] for rows in others]
        wanted *= 2  # the data hold several copies of an image


def _others(rows: Ints, training: Samples, query: Samples) -> list[int]:
    """The positions of training images other than the query; −1 is none."""
    others = []
    for row in rows.tolist():
        if row >= 0 and not np.array_equal(training[row], query):
            others.append(row)
    return others


def shown_crop(run: Trained, pixels: Samples) -> npt.NDArray[np.uint8]:
    """The centre crop of each image, which the networks saw; with an eval_transform of your own the
    whole image."""
    if run.preprocess.eval_transform is not None:
        return np.ascontiguousarray(pixels, dtype=np.uint8)
    start = (pixels.shape[1] - run.config.crop) // 2
    stop = start + run.config.crop
    return np.ascontiguousarray(pixels[:, start:stop, start:stop], dtype=np.uint8)
