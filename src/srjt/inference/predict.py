"""``srjt.predict``: grades for new samples, whether they are what the run was trained for, in which precision,
and how they were answered.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.decode import is_image
from srjt.data.images.store import OnBadImage, open_store
from srjt.data.manifest import Manifest
from srjt.data.problems import drop_unusable
from srjt.data.sources.assemble import LoadedData
from srjt.data.sources.columns import NUMBERED, TABLE_SUFFIXES, choose_columns, load_table
from srjt.data.sources.inputs import UnlabelledData, unlabelled_samples
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.inference.answers import (
    WhichNetwork,
    as_columns,
    check_units,
    decoded_grades,
    describe_rule,
    grade_rule,
    probabilities_of,
)
from srjt.inference.calibrate import AfterTraining, Labelled, fit_after_training
from srjt.inference.decide import (
    AnswerRule,
    Threshold,
    answer_rule,
    answer_table,
    check_columns,
    check_options,
    refer_if,
)
from srjt.inference.ranges import RangeRule
from srjt.noise.quality import LabelNoise
from srjt.ordinal import Purpose, check_purpose
from srjt.ordinal.decoding import Decoding, Pooling, expected_grade
from srjt.progress import ProgressOption, progress_bar
from srjt.training.devices import amp_dtype, refuse_bf16_on_cpu
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained, load_run

# A run takes images, or rows of features: the other kind gets one sentence that says how to make what it
# takes.

Kind = Literal["images", "features"]


def refuse_other_kind(run: Trained, sources: Sequence[str | os.PathLike[str]]) -> None:
    """An error for files of features where the run takes images, and the reverse. What is neither is not judged."""
    takes = _taken_by(run)
    for path in map(Path, sources):
        if (found := _kind(path, run.feature_names)) is None or found == takes:
            continue
        if takes == "images":
            holds = "is a file of arrays" if path.suffix.lower() == ".npz" else "has features"
            raise SrjtError(
                f"This run takes images, and {path} {holds}: give image files, a folder or a table of images, or a run "
                "that was trained on such features."
            )
        raise SrjtError(
            f"This run takes rows of {count_of(run.in_shape[0], 'feature')}, and {path} has images. Compute their "
            f"features first, as those of the training: {_features_command(path, run.feature_settings)}"
        )


def refuse_other_options(
    run: Trained, how: Mapping[str, Any], *, about: Mapping[Kind, Sequence[str]]
) -> None:
    """An error for an option of ``srjt.data.read`` about the kind of samples that the run does not take.

    how: the options; None if not given. about: those that are about one kind only.
    """
    takes = _taken_by(run)
    taken = "images" if takes == "images" else f"rows of {count_of(run.in_shape[0], 'feature')}"
    for kind, names in about.items():
        given = next((name for name in names if how[name] is not None), None)
        if kind != takes and given is not None:
            raise SrjtError(f"`{given}` is about {kind}, and this run takes {taken}: leave it out.")


def _taken_by(run: Trained) -> Kind:
    return "features" if len(run.in_shape) == 1 else "images"


def _kind(path: Path, feature_names: Sequence[str]) -> Kind | None:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return "features"
    if os.path.isdir(path) or (suffix != ".npy" and is_image(path)):  # an array may be an image or features
        return "images"
    if suffix not in TABLE_SUFFIXES or not os.path.isfile(path):
        return None
    columns, known = list(load_table(path).frame.columns), set(feature_names)
    features = sum(name in known or bool(NUMBERED.match(name)) for name in columns) > 1
    images = {
        "image": ("image", "imagepath", "path", "filepath", "file", "filename", "imagename", "imagefile")
    }
    named = bool(choose_columns(columns, {}, source="", required=(), synonyms=images)[0])
    return None if features == named else "features" if features else "images"  # a table may have both


def _features_command(path: Path, settings: str) -> str:
    """The command that computes the features of ``path`` with the settings of the run's, as far as they are known."""
    words = ["srjt", "features", str(path), "--ungraded"]
    try:
        made = json.loads(settings)
        words += [
            word
            for name in ("backbone", "image_size", "crop", "resize")
            for word in _option(name, made[name])
        ]
        words += ["--flip"] if made["flip"] else []
    except (ValueError, KeyError, TypeError):  # computed by another program
        pass
    return shlex.join([*words, "--out", "features.npz"])


def _option(name: str, value: object) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", str(value)


# Apply a run in another precision.

Precision = Literal["fp32", "bf16"]


def check_precision(run: Trained, precision: str | None) -> None:
    """Raise an error for an unknown precision, or one that changes nothing."""
    if precision is not None and precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))
    if precision is not None and len(run.in_shape) == 1:
        raise SrjtError("A precision is for images; this run was trained on features, which take no time.")
    refuse_bf16_on_cpu(precision, run.device)


def with_precision(run: Trained, precision: Precision) -> Trained:
    """The run with its forward pass in this precision."""
    config = replace(run.config, precision=precision)
    dtype = amp_dtype(config, run.device) or torch.float32
    return replace(run, config=config, preprocess=replace(run.preprocess, dtype=dtype))


# How answers came about, in words: what every option that was given, or not given, amounts to.


def how_answered(
    run: Trained,
    rule: AnswerRule,
    fitted: AfterTraining,
    *,
    grade_rule: str,
    network: WhichNetwork,
    views: int,
    abstain: float | None,
) -> dict[str, str]:
    """What was done → how, for a person who reads the answers.

    grade_rule: the end of the sentence "A grade is …".
    """
    how = {"networks": _networks(run, network)}
    if views > 1:
        how["views"] = f"the mean of {views} views of each image"
    how["precision"] = _precision(run)
    how["recalibration"] = "none" if fitted.recalibration is None else str(fitted.recalibration)
    if fitted.recalibration is not None or fitted.ranges is not None:
        how["calibrated on"] = _calibrated_on(run, fitted)
    how["grade"] = grade_rule
    if rule.per:
        how["one answer per"] = f"{' and '.join(rule.per)}: {_pooling(rule)}"
    if fitted.ranges is not None:
        how["range"] = _range(fitted.ranges)
    if rule.refer is not None:
        grade = run.grades.show(rule.refer.position)
        how["refer"] = f"{refer_if(grade, rule.refer.threshold)}. {rule.refer.found}"
    if rule.cut is not None and abstain is not None:
        how["unsure"] = (
            f"{_unsure(rule)} {rule.cut:.3g}, as it is for at most {abstain:.3g} of the validation side"
        )
    return how


def _networks(run: Trained, network: WhichNetwork) -> str:
    if run.method.networks == 1:
        return "one"
    return "the mean of two networks' probabilities" if network == "ensemble" else f"network {network} of two"


def _precision(run: Trained) -> str:
    if amp_dtype(run.config, run.device) is not None:
        return "bf16"
    return (
        "tf32" if run.config.precision == "tf32" and run.device.type == "cuda" else "fp32"
    )  # a CPU has no tf32


def _calibrated_on(run: Trained, fitted: AfterTraining) -> str:
    side = fitted.calibrate_on
    where = "other labelled samples"
    if side is None:
        side, where = run.held_out["validation"], "the validation side of the run"
    of = "" if side.patients is None else f" of {count_of(len(set(side.patients)), 'patient')}"
    return f"{where}: {count_of(len(side), 'sample')}{of}"


def _range(rule: RangeRule) -> str:
    each = {"": "", "grade": ", for each true grade"}.get(rule.by, f", for each value of {rule.by}")
    return f"contains the true grade with a probability of at least {rule.coverage:g}{each}"


def _pooling(rule: AnswerRule) -> str:
    if rule.learned is not None:
        exponent, weight = rule.learned
        return (
            f"a pooling that is fitted on the validation side, exponent {exponent:.2g}, weight {weight:.2g}"
        )
    return {
        "highest": "the highest grade of the images",
        "mean": "the mean of the images' probabilities",
    }[rule.pool]


def _unsure(rule: AnswerRule) -> str:
    if rule.refer is None:
        return "if the probability of the grade is below"
    return "if the distance from the threshold, from 0 to 1 on its side, is below"


# ``srjt.predict``: the grade, probabilities and uncertainty of every image.

RunLike: TypeAlias = Trained | str | os.PathLike[str]  # a run, or the path of its folder


def open_run(run: RunLike) -> Trained:
    """The run itself, or the run in a folder."""
    return run if isinstance(run, Trained) else load_run(run)


def check_choices(network: str, decoding: str | None, optimise: str | None = None) -> None:
    """Raise an error for an unknown network, decoding or metric to optimise."""
    if network not in get_args(WhichNetwork):
        raise unknown_name("network", network, get_args(WhichNetwork))
    if decoding is not None and decoding not in get_args(Decoding):
        raise unknown_name("decoding", decoding, get_args(Decoding))
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
    data : Manifest, LoadedData, path or list of paths, DataFrame, array, or torch dataset
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
        ``"bf16"`` computes with 8 significant bits, and needs a GPU. Default: the precision of the run.
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
    applied = run if precision is None else with_precision(run, precision)
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
    table.attrs["how"] = how_answered(
        applied, answer, fitted, grade_rule=table.attrs["grade_rule"], network=network, views=len(crops),
        abstain=abstain,
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
    fitted: AfterTraining = AfterTraining(),
) -> pd.DataFrame:
    """The predictions of a run for one of its own held-out sides, as for new samples, but without ranges."""
    grades = run.method.grades_of(torch.from_numpy(np.ascontiguousarray(side.probabilities))).numpy()
    return predictions(
        run, side.probabilities, grades, network=network, optimise=optimise, decoding=decoding,
        fitted=replace(fitted, ranges=None),
    )  # fmt: skip


def read_samples(run: Trained, source: UnlabelledData, *, columns: Sequence[str] = ()) -> LoadedData:
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
    fitted: AfterTraining = AfterTraining(),
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
