"""``srjt.explain``: where the networks look, and which training images are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from srjt.data.grade_names import display_grade
from srjt.data.images.feed import Samples, open_feed
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.images.thumbnails import data_uri
from srjt.data.manifest import Manifest
from srjt.data.problems import drop_unusable
from srjt.data.sources.inputs import LabelledData, UnlabelledData, labelled_samples
from srjt.errors import SrjtError, count_of
from srjt.inference.fitted import fit_after_training
from srjt.inference.overlay import overlay, resized_square, side_by_side
from srjt.inference.predict import RunLike, open_run, predictions, read_samples
from srjt.inference.saliency import contributions, rank_correlation
from srjt.notebook_html import html_block, html_pictures, html_text
from srjt.ordinal.decoding import expected_grade
from srjt.progress import ProgressOption, progress_bar
from srjt.training.neighbours import features, nearest
from srjt.training.trained import Trained, build_networks, use_run_settings

__all__ = ["Explanation", "explain", "network_maps", "shown_crop"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
BATCH = 16  # gradients need the memory of a training step
SHOWN, THUMBNAIL = 12, 112  # images that a notebook shows, and their pixels a side
CHECKED = 32  # images of the check with random weights: enough for a mean


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The result of ``srjt.explain`` for N images and K networks.

    Attributes
    ----------
    predictions : DataFrame
        One row per image, as ``srjt.predict`` gives it.
    images : ndarray of uint8, shape (N, H, W, 3)
        What the networks saw: the centre crop.
    maps : ndarray of float32, shape (K, N, h, w)
        How much each place raises (> 0) or lowers (< 0) each network's expected grade, in grades.
    random_correlation : float or None
        Mean rank correlation of the maps with those of networks with random weights. Near 1 the maps would show the
        image, not what was learnt. None for a network of your own, which a folder cannot contain.
    network_correlation : float or None
        Mean rank correlation of the two networks' maps; None for one network.
    neighbours : list of list of int, or None
        Per image the most similar training samples, as rows of ``training``; None without training data.
    training : Manifest or None
        The training samples that the neighbours are taken from.
    skipped : list of (str, str)
        Images that were left out, with the reason.
    grade_names : mapping of str to str
        Grade → its name for people; empty if they have none.
    """

    predictions: pd.DataFrame
    images: npt.NDArray[np.uint8]
    maps: Floats
    random_correlation: float | None
    network_correlation: float | None
    neighbours: list[list[int]] | None = None
    training: Manifest | None = None
    skipped: list[tuple[str, str]]
    grade_names: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Explanation: {count_of(len(self.images), 'image')}, {count_of(len(self.maps), 'network')}>"

    def _repr_html_(self) -> str:
        rows = self.predictions.head(SHOWN).to_dict("records")
        pictures = []
        for place, row in enumerate(rows):
            maps = [overlay(self.images[place], network[place], side=THUMBNAIL) for network in self.maps]
            seen = side_by_side([resized_square(self.images[place], maps[0].width), *maps])
            grade = display_grade(str(row["grade"]), self.grade_names)
            pictures.append((data_uri(seen), f"{grade}: {row['image']}"))
        more = len(self.images) - len(rows)
        return html_block(
            f"{count_of(len(self.images), 'image')} and what raises (orange) or lowers (blue) the grade, for each "
            "network",
            html_pictures(pictures, size=THUMBNAIL * (1 + len(self.maps))),
            html_text(f"… and {more:,} more images" if more else ""),
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
    """Explain the predictions of a run: where its networks look, and which training images are alike.

    Parameters
    ----------
    run : Trained or path
        A trained run on images, or the path of its folder.
    data : Manifest, path, DataFrame, array or torch dataset
        The images, as for ``srjt.predict``.
    training : Manifest, path, DataFrame, pair of arrays or torch dataset, optional
        The data that the run was trained on, for the most similar training images and their labels. Samples that the
        run did not learn from are left out where its history tells them, and so is an image that is explained.
    neighbours : int
        Number of similar training images per image, the image itself not counted.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out.
    progress : bool or callable
        Show a bar while images are explained, in a terminal or a notebook; or a function that is called with (images
        explained, images in total).

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
    >>> found = srjt.explain(run, data.select([0, 1, 2]), training=data)
    >>> found.maps.shape[:2], len(found.neighbours[0])
    ((2, 3), 4)
    """
    run = open_run(run)
    if len(run.in_shape) == 1:
        raise SrjtError(
            "This run was trained on rows of features, which have no places: there are no maps to show."
        )
    left_out: list[tuple[str, str]] = []
    if not isinstance(data, Manifest):
        reading = read_samples(run, data)
        data = drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)
        left_out = [(problem.where, problem.detail) for problem in reading.problems]
    size, resize = run.config.image_size, run.config.resize
    store = open_store(data, size=size, resize=resize, on_bad_image=on_bad_image)
    if not len(store.pixels):
        raise SrjtError("There is no image to explain.")
    probabilities, grades = run.probabilities(store.pixels)
    table = predictions(run, probabilities, grades, fitted=fit_after_training(run))  # as srjt.predict
    table.insert(0, "image", store.manifest.table["image"].to_numpy())
    with progress_bar("Explaining", progress) as explained:
        maps = network_maps(run, store.pixels, progress=explained)
    found: list[list[int]] | None = None
    known = (
        None
        if training is None
        else _training_samples(run, training, on_bad_image=on_bad_image, progress=progress is True)
    )
    if known is not None:
        pixels = open_store(known, size=size, resize=resize, on_bad_image=on_bad_image)
        known = pixels.manifest
        found = _most_similar(run, pixels.pixels, store.pixels, count=neighbours)
    return Explanation(
        predictions=table,
        images=shown_crop(run, store.pixels),
        maps=maps,
        random_correlation=_random_correlation(run, store.pixels[:CHECKED], maps[:, :CHECKED]),
        network_correlation=_mean(rank_correlation(maps[0], maps[1])) if len(maps) == 2 else None,
        neighbours=found,
        training=known,
        skipped=[*left_out, *store.skipped],
        grade_names=run.grade_names,
    )


def network_maps(
    run: Trained,
    pixels: Samples,
    *,
    networks: nn.ModuleList | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Floats:
    """uint8 images (N, H, W, 3) → maps (K, N, h, w) of the run's networks, or of others in their place."""

    def severity(logits: Tensor) -> Tensor:
        return expected_grade(run.method.probabilities(logits[None])[0])

    parts: list[list[Tensor]] = []
    members = run.networks.members if networks is None else networks
    for start in range(0, len(pixels), BATCH):
        batch = torch.from_numpy(np.asarray(pixels[start : start + BATCH])).to(run.device)
        x = run.preprocess.evaluate(batch).float()
        with use_run_settings(run):
            parts.append([contributions(member.eval(), x, severity).cpu() for member in members])
        if progress is not None:
            progress(min(start + BATCH, len(pixels)), len(pixels))
    return torch.stack([torch.cat(maps) for maps in zip(*parts, strict=True)]).numpy()


def _random_correlation(run: Trained, pixels: Samples, maps: Floats) -> float | None:
    """The mean rank correlation with maps of networks that have learnt nothing."""
    try:
        config = run.config.replace(seed=run.config.seed + 1, pretrained=False, weights=None)
        random = build_networks(config, run.method, in_shape=run.in_shape, with_weights=False)
    except SrjtError:
        return None
    shapes = [[p.shape for p in made.members[0].parameters()] for made in (random, run.networks)]
    if shapes[0] != shapes[1]:  # a network of your own: the configuration names another
        return None
    others = network_maps(run, pixels, networks=random.to(run.device).members)
    return _mean(np.concatenate([rank_correlation(a, b) for a, b in zip(maps, others, strict=True)]))


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _training_samples(
    run: Trained, data: LabelledData, *, on_bad_image: OnBadImage, progress: bool
) -> Manifest:
    """The samples that the run learnt from, as far as its history tells them; else all."""
    source = labelled_samples(data, grades=run.grades, on_bad_image=on_bad_image, progress=progress)
    learnt = set(run.training_ids)
    if not learnt:
        return source
    chosen = source.select(np.array([sample in learnt for sample in source.ids]))
    if not len(chosen):
        raise SrjtError("None of these samples has the id of a sample that the run was trained on.")
    return chosen


def _most_similar(run: Trained, training: Samples, queries: Samples, *, count: int) -> list[list[int]]:
    """(M, …) training images, (N, …) queries → the positions of the most similar training images per query, without
    the query itself."""
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
        found = [
            [int(row) for row in rows if row >= 0 and not np.array_equal(training[row], query)]
            for rows, query in zip(near, queries, strict=True)
        ]
        if wanted >= len(training) or min(map(len, found)) >= count:
            return [rows[:count] for rows in found]
        wanted *= 2  # the data hold several copies of an image


def shown_crop(run: Trained, pixels: Samples) -> npt.NDArray[np.uint8]:
    """The centre crop of each image, which the networks saw; with an eval_transform of your own the whole image."""
    if run.preprocess.eval_transform is not None:
        return np.ascontiguousarray(pixels, dtype=np.uint8)
    start = (pixels.shape[1] - run.config.crop) // 2
    stop = start + run.config.crop
    return np.ascontiguousarray(pixels[:, start:stop, start:stop], dtype=np.uint8)
