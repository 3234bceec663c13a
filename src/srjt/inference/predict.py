"""``srjt.predict``: the grade, probabilities and uncertainty of every image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.problems import drop_unusable
from srjt.data.sources import Reading
from srjt.data.sources.inputs import UnlabelledData, unlabelled_samples
from srjt.errors import suggest
from srjt.inference.answer_table import answer_rule, answer_table, check_columns
from srjt.inference.answers import as_columns, check_units
from srjt.inference.calibrate import Labelled
from srjt.inference.decide import Threshold, check_options
from srjt.inference.fitted import Fitted, fit_after_training
from srjt.inference.grade_rule import (
    WhichNetwork,
    decoded_grades,
    describe_rule,
    grade_rule,
    probabilities_of,
)
from srjt.inference.how_answered import how_answered
from srjt.inference.kind_of_samples import refuse_other_kind
from srjt.inference.precision import (
    Precision,
    check_precision,
    compare_precisions,
    for_this_cpu,
    with_precision,
)
from srjt.noise.true_grades import LabelNoise
from srjt.ordinal.decoding import Decoding, expected_grade
from srjt.ordinal.pooling import Pooling
from srjt.ordinal.purpose import Purpose, check_purpose
from srjt.progress import ProgressOption, progress_bar
from srjt.training.record.held_out import HeldOut
from srjt.training.trained import Trained, load_run

__all__ = [
    "RunLike",
    "WhichNetwork",
    "check_choices",
    "open_run",
    "predict",
    "predict_held_out",
    "predictions",
    "read_samples",
]

RunLike: TypeAlias = Trained | str | os.PathLike[str]  # a run, or the path of its folder


def open_run(run: RunLike) -> Trained:
    """The run itself, or the run in a folder."""
    return run if isinstance(run, Trained) else load_run(run)


def check_choices(network: str, decoding: str | None, optimise: str | None = None) -> None:
    """Raise an error for an unknown network, decoding or metric to optimise."""
    if network not in get_args(WhichNetwork):
        raise suggest("network", network, get_args(WhichNetwork))
    if decoding is not None and decoding not in get_args(Decoding):
        raise suggest("decoding", decoding, get_args(Decoding))
    if optimise is not None:
        check_purpose(optimise)


def predict(
    run: RunLike,
    data: UnlabelledData,
    *,
    network: WhichNetwork = "ensemble",
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    views: int = 1,
    coverage: float | None = None,
    coverage_by: str | None = None,
    calibrate_on: Labelled | None = None,
    label_noise: LabelNoise = "unknown",
    recalibrate: bool = True,
    on_bad_image: OnBadImage = "error",
    refer_from: str | int | None = None,
    threshold: Threshold | None = None,
    sensitivity: float | None = None,
    abstain: float | None = None,
    per: str | Sequence[str] | None = None,
    pool: Pooling = "highest",
    keep: Sequence[str] = (),
    precision: Precision | None = None,
    progress: ProgressOption = True,
) -> pd.DataFrame:
    """Predict the grades of images, or of rows of features.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest, Reading, path or list of paths, DataFrame, array, or torch dataset
        The samples; grades in it are not used. A path is an image, a folder of images, a table with a column of
        images, or a file of features. A DataFrame has a column of images, or columns of features (``f0``, ``f1``, …);
        an array is (N, H, W, 3) uint8 or (N, F).
    network : {"ensemble", "1", "2"}
        The mean of the networks' probabilities, or one network.
    optimise : {"mae", "accuracy", "qwk", "macro_f1"}, optional
        The metric that the grades are for: it decides how they follow from the probabilities. Default: that of the
        run, which is ``"mae"`` unless it was trained with another.
    decoding : {"argmax", "median", "expected"}, optional
        The most likely grade, the median, or the rounded mean, whatever the metric.
    views : {1, 2, 10}
        Number of views of an image over which the probabilities are averaged: the centre crop; with its mirror image;
        with the four corners too, each plain and mirrored.
    coverage : float, optional
        Add a range of grades to each answer that contains the true grade with at least this probability; with ``per``
        the true grade of a patient is the highest of the images. Default: none.
    coverage_by : str, optional
        ``"grade"``: the promise holds for each true grade. A column of the data, and of those calibrated
        on: for each value.
    calibrate_on : Manifest or path, optional
        Labelled samples that the run was not trained on. Default: the validation side of the run.
    label_noise : {"unknown", "class-conditional", "none"}
        What wrong labels among them depend on: not known; on the true grade alone and not on the image; none is wrong.
    recalibrate : bool
        Recalibrate the probabilities on the same samples, if there are at least 100 and it is worth it.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image or a malformed row, or leave it out. Everything that is left out is listed in
        ``attrs["skipped"]`` of the result, also repeated rows and files of a folder that are not images.
    refer_from, threshold, sensitivity : optional
        Decide whether to refer, as for ``srjt.evaluate``: adds the column ``refer``, yes or no.
    abstain : float, optional
        Adds the column ``unsure``, yes or no: yes for the answers that are less confident than this share of the
        run's validation side.
    per, pool : optional
        One answer per patient, or per value of other columns, as for ``srjt.evaluate``.
    keep : sequence of str
        Columns of the data to keep in the result. The patient is always kept.
    precision : {"fp32", "bf16"}, optional
        ``"bf16"`` computes with 8 significant bits, which is several times as fast on a CPU with instructions for it.
        ``attrs["precision"]`` says what it changes. Default: the precision of the run.
    progress : bool or callable
        Show a bar while images are decoded, in a terminal or a notebook; or a function that is called with (images
        decoded, images in total).

    Returns
    -------
    DataFrame
        One row per sample: ``image``, ``patient`` if it is known, ``grade``, ``grade_name`` if the grades have names,
        ``p_<grade>`` for every grade, ``expected_grade``, ``entropy`` and, for two networks, ``disagreement``, their
        total variation distance from 0 to 1; with ``coverage`` also ``grade_low`` and ``grade_high``. With ``per``:
        one row per patient, with the number of ``images`` and the ``highest_image``, that with the highest grade (of
        several, with the highest expected grade). ``attrs["how"]`` says in words how the answers came about;
        ``attrs["threshold"]`` of the referral and ``attrs["cut"]`` of the confidence are numbers, None without them.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, **settings)
    >>> table = srjt.predict(run, data)
    >>> list(table.columns[:3]), len(table)
    (['image', 'patient', 'grade'], 60)
    """
    check_choices(network, decoding, optimise)
    check_options(refer_from, threshold=threshold, sensitivity=sensitivity, abstain=abstain, pool=pool)
    run, per, keep = open_run(run), as_columns(per), as_columns(keep)
    check_units(per, run.grades)
    check_precision(run, precision)
    crops = run.views(views)  # an error before any image is read
    fitted = fit_after_training(
        run, coverage=coverage, coverage_by=coverage_by, calibrate_on=calibrate_on, label_noise=label_noise,
        recalibrate=recalibrate, network=network, views=views, on_bad_image=on_bad_image, per=per, pool=pool,
    )  # fmt: skip
    predict_side = partial(
        predict_held_out, run, network=network, optimise=optimise, decoding=decoding, fitted=fitted
    )
    decoded_by = grade_rule(
        run, network=network, optimise=optimise, decoding=decoding, recalibration=fitted.recalibration
    )
    answer = answer_rule(
        run, predict=predict_side, grade_rule=decoded_by, learned=fitted.learned,
        refer_from=refer_from, threshold=threshold, sensitivity=sensitivity, abstain=abstain, per=per, pool=pool,
        views=len(crops),
    )  # fmt: skip
    if isinstance(data, Manifest):
        manifest, left_out = data, []
    else:
        by = () if coverage_by in (None, "grade") else (coverage_by,)
        reading = read_samples(run, data, columns=(*per, *keep, *by))
        manifest = drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)
        left_out = [(problem.where, problem.detail) for problem in reading.problems]
    manifest = run.match_features(manifest)
    check_columns(manifest.table, per=per, keep=keep)
    with progress_bar("Decoding", progress) as decoded:
        store = open_store(
            manifest,
            size=run.config.image_size,
            resize=run.config.resize,
            on_bad_image=on_bad_image,
            progress=decoded,
        )
    applied = for_this_cpu(run, images=len(store))
    cost = ""
    if precision is not None and len(store):
        applied = with_precision(exact := applied, precision)
        if precision == "bf16":
            cost = compare_precisions(with_precision(exact, "fp32"), applied, store.pixels)
    probabilities, grades = applied.probabilities(store.pixels, views=views)
    table = predictions(
        run, probabilities, grades, network=network, optimise=optimise, decoding=decoding, fitted=fitted,
        samples=store.manifest.table,
    )  # fmt: skip
    ranges = None
    if per and fitted.ranges is not None:
        chosen = probabilities_of(probabilities, network)
        ranges = partial(fitted.grade_ranges, chosen, samples=store.manifest.table)
    table = answer_table(run, table, store.manifest.table, answer, keep=keep, ranges=ranges)
    table.attrs["views"], table.attrs["per"] = len(crops), per
    table.attrs["recalibration"] = "" if fitted.recalibration is None else str(fitted.recalibration)
    table.attrs["ranges"] = "" if fitted.ranges is None else str(fitted.ranges)
    table.attrs["precision"] = cost
    table.attrs["how"] = how_answered(
        applied, answer, fitted, grade_rule=table.attrs["grade_rule"], network=network, views=len(crops),
        abstain=abstain, precision=cost,
    )  # fmt: skip
    table.attrs["threshold"] = None if answer.refer is None else answer.refer.threshold
    table.attrs["cut"] = answer.cut
    table.attrs["skipped"] = [*left_out, *store.skipped]  # (image, row or file, reason)
    return table


def predict_held_out(
    run: Trained,
    side: HeldOut,
    *,
    network: WhichNetwork = "ensemble",
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    fitted: Fitted = Fitted(),
) -> pd.DataFrame:
    """The predictions of a run for one of its own held-out sides, as for new samples, but without ranges."""
    grades = run.method.grades_of(torch.from_numpy(np.ascontiguousarray(side.probabilities))).numpy()
    return predictions(
        run, side.probabilities, grades, network=network, optimise=optimise, decoding=decoding,
        fitted=replace(fitted, ranges=None),
    )  # fmt: skip


def read_samples(run: Trained, source: UnlabelledData, *, columns: Sequence[str] = ()) -> Reading:
    """Samples without grades, of the kind that the run was trained on."""
    features = len(run.in_shape) == 1
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if isinstance(paths, (list, tuple)) and all(isinstance(path, (str, os.PathLike)) for path in paths):
        refuse_other_kind(run, paths)
    return unlabelled_samples(
        source, features=features, wanted=run.feature_names, columns=columns, grades=run.grades
    )


def predictions(
    run: Trained,
    probabilities: npt.NDArray[np.float32],
    grades: npt.NDArray[np.int64],
    *,
    network: WhichNetwork = "ensemble",
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    fitted: Fitted = Fitted(),
    samples: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """(K, N, C) probabilities and (K, N) grades → grade, p_<grade> …, expected_grade, entropy, disagreement.

    The disagreement of two networks is their total variation distance, from 0 (equal probabilities) to 1. fitted: a
    recalibration, ranges of images. samples: the table of the samples, for ranges by the values of a column.
    """
    recalibration = fitted.recalibration
    raw = chosen = probabilities_of(probabilities, network)
    if recalibration is not None:
        chosen = recalibration(raw).astype(np.float32)
    rule = grade_rule(run, optimise=optimise, decoding=decoding, network=network, recalibration=recalibration)
    predicted = decoded_grades(rule, probabilities, grades, network=network, recalibration=recalibration)
    p = torch.from_numpy(chosen)
    columns: dict[str, object] = {"grade": [run.grades[g] for g in predicted]}
    if fitted.ranges is not None and fitted.ranges.pooled is None:
        low, high = fitted.grade_ranges(raw, predicted, samples=samples)
        columns["grade_low"] = [run.grades[g] for g in low]
        columns["grade_high"] = [run.grades[g] for g in high]
    columns |= {f"p_{name}": chosen[:, c] for c, name in enumerate(run.grades)}
    columns["expected_grade"] = expected_grade(p).numpy()
    columns["entropy"] = torch.special.entr(p).sum(dim=-1).clamp(min=0.0).numpy()  # rounding: p may exceed 1
    if len(probabilities) == 2:
        distance = 0.5 * np.abs(probabilities[0] - probabilities[1]).sum(axis=-1)
        columns["disagreement"] = distance.clip(max=1.0)  # rounding can exceed 1
    table = pd.DataFrame(columns)
    table.attrs["grade_rule"] = describe_rule(
        run, rule, network=network, recalibrated=recalibration is not None
    )
    return table
