"""``srjt.predict``: grades for new samples, whether they are what the run was trained for, in which
precision, and how they were answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from srjt.data.duplicates import image_hashes
from srjt.data.images.decode import OnBadImage, is_image
from srjt.data.manifest import GRADED, Manifest, drop_unusable
from srjt.data.problems import Problem
from srjt.data.sources import UnlabelledData, unlabelled_samples
from srjt.data.sources.features import FEATURE_SUFFIXES
from srjt.errors import Option, SrjtError, unknown_name
from srjt.inference.answers import Answers, units_of
from srjt.inference.aspects import registered_aspects
from srjt.inference.calibrated_run import CalibratedRun, RunLike, calibrate_run
from srjt.inference.options import Answering, as_columns, with_installed_aspects
from srjt.json_values import json_values
from srjt.progress import ProgressOption, progress_bar
from srjt.settings import from_names
from srjt.training.devices import amp_dtype
from srjt.training.held_out import HeldOut
from srjt.training.image_identity import same_samples
from srjt.training.trained import Trained

ALL_COMPARED = 1000  # files, of which each is compared with the training images

# A run takes images, or rows of features: the other kind gets one sentence that says how to make
# what it takes.

Kind = Literal["images", "features"]


def refuse_other_kind(run: Trained, sources: Sequence[str | os.PathLike[str]]) -> None:
    """An error for files of features where the run takes images, and the reverse. What is neither
    is not judged."""
    for path in map(Path, sources):
        arrays = path.suffix.lower() in FEATURE_SUFFIXES
        if _takes(run) == "images" and arrays:
            raise SrjtError(
                f"This run takes images, and {path} is a file of arrays: give image files, a folder"
                " or a table of images, or a run that was trained on such features.",
                code="wrong_file",
            )
        if _takes(run) != "images" and not arrays and (os.path.isdir(path) or is_image(path)):
            command = _features_command(path, run.feature_settings)
            raise SrjtError(
                f"This run takes {_takes(run)}, and {path} has images. Compute their features"
                f" first, with the settings of the training: {command}",
                code="wrong_file",
            )


def refuse_other_options(
    run: Trained, given: Mapping[str, Any], *, about: Mapping[Kind, Sequence[str]]
) -> None:
    """An error for an option of ``srjt.data.read`` about the kind of samples that the run does not
    take.

    given: the options. about: those that are about one kind only.
    """
    for kind, names in about.items():
        without_effect = [name for name in names if given.get(name) is not None]
        if without_effect and not _takes(run).endswith(kind):
            raise SrjtError(
                Option(without_effect[0]),
                f" is about {kind}, and this run takes {_takes(run)}: leave it out.",
                code="option_without_effect",
            )


def _takes(run: Trained) -> str:
    if len(run.in_shape) == 1:
        return f"rows of {run.in_shape[0]:,} features"
    return "images"


def _features_command(path: Path, settings: str) -> str:
    """The command that computes the features of ``path`` with the settings of the run's, as far as
    they are known."""
    words = ["srjt", "features", str(path), "--ungraded"]
    with contextlib.suppress(ValueError, KeyError, TypeError):  # computed by another program
        made = json.loads(settings)
        for name in ("backbone", "image_size", "crop", "resize"):
            words += [f"--{name.replace('_', '-')}", str(made[name])]
        if made["flip"]:
            words.append("--flip")
    return shlex.join([*words, "--out", "features.npz"])


# How answers came about: what every option that was given, or not given, amounts to.


def how_answered(calibrated: CalibratedRun) -> dict[str, Any]:
    """What was done → how, as plain values; ``srjt.reports.aspects.how_in_words`` writes them."""
    run = calibrated.applied
    options = calibrated.options
    precision = "fp32"
    if amp_dtype(run.config, run.device) is not None:
        precision = "bf16"
    elif run.config.precision == "tf32" and run.device.type == "cuda":  # a CPU has none
        precision = "tf32"
    facts: dict[str, Any] = {
        "networks": {"number": run.method.networks, "used": options.network},
        "views": calibrated.views,
        "precision": precision,
        "recalibration": json_values(calibrated.recalibration),
    }
    if "calibration" in calibrated.fitted().values():
        side: Manifest | HeldOut | None = calibrated.calibrate_on
        if side is None:
            side = run.held_out["validation"]
        facts["calibrated on"] = {
            "samples": len(side),
            "patients": None if side.patients is None else len(set(side.patients)),
            "validation": calibrated.calibrate_on is None,
        }
    facts["grade"] = json_values(calibrated.grade_rule)
    if options.per:
        facts["one answer per"] = {
            "columns": list(options.per),
            "pool": options.pool,
            "learned": json_values(calibrated.learned),
        }
    for rule in calibrated.rules.values():
        facts |= rule.settled(run)
    return facts


class Predictions(pd.DataFrame):
    """What ``srjt.predict`` returns: a DataFrame that ``srjt.report`` makes a page of, too. What is
    made from it is a plain DataFrame."""

    _metadata: ClassVar = ["run", "answering"]  # attributes, and no columns
    run: Trained
    answering: Answering

    def __getstate__(self) -> dict[str, Any]:
        """A pickle has the table, without the run."""
        state = cast(dict[str, Any], super().__getstate__())
        return {name: value for name, value in state.items() if name not in self._metadata}


# ``srjt.predict``: the grade, probabilities and uncertainty of every image.


def predict(
    run: RunLike,
    data: UnlabelledData,
    *,
    keep: Sequence[str] = (),
    progress: ProgressOption = True,
    **options: Any,
) -> Predictions:
    """Predict the grades of images, or of rows of features.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    data : Manifest, path or list of paths, DataFrame, array, or torch dataset
        The samples; grades in it are not used. A path is an image, a folder of images, a table with
        a column of images, or a file of features. A DataFrame has a column of images, or columns of
        features (``f0``, ``f1``, …); an array is (N, H, W, 3) uint8 or (N, F).
    keep : sequence of str
        Columns of the data to keep in the result. The patient is always kept.
    progress : bool or callable
        Show a bar while images are decoded, in a terminal or a notebook; or a function that is
        called with (images decoded, images in total).
    **options
        The fields of ``srjt.inference.options.Answering``: ``coverage=0.9``, ``per="patient"``,
        ``refer_from=2``, …. What ``on_bad_image="skip"`` leaves out is listed in
        ``attrs["skipped"]`` of the result, also repeated rows and files of a folder that are not
        images.

    Returns
    -------
    DataFrame
        One row per sample: ``image``, ``patient`` if it is known,
        ``grade``, ``grade_name`` if the grades have names, ``p_<grade>`` for every grade,
        ``expected_grade``, ``entropy`` and, for two networks, ``disagreement``, their total
        variation distance from 0 to 1; with ``coverage`` also ``grade_low`` and ``grade_high``.
        With ``per``: one row per patient, with the number of ``images`` and the ``highest_image``,
        that with the highest grade (of several, with the highest expected grade). ``attrs["how"]``
        says how the answers came about, and ``attrs["seen_in_training"]`` how many of the samples
        are on the run's training side (of more than 1,000 files, those with the name or the id of a
        training sample); None if that is not known. If there are any, the column ``in_training``
        says which they are (of a patient: whether one of the images is). Further entries of
        ``attrs`` belong to the options that were given, such as ``attrs["threshold"]`` of the
        referral, None without it.

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
    keep = as_columns(keep)
    known_options = with_installed_aspects(Answering)
    calibrated = calibrate_run(run, from_names(known_options, options, kind="option"))
    run = calibrated.run
    answering = calibrated.options
    for rule in calibrated.rules.values():
        if rule.problem is not None:
            raise rule.problem
    manifest, problems = usable_samples(
        run, data, columns=(*answering.columns, *keep), on_bad_image=answering.on_bad_image
    )
    _check_columns(manifest.table, answering.per, keep)
    with progress_bar("Decoding", progress) as decoded:
        store = calibrated.open_store(manifest, progress=decoded)
    images = calibrated.answer_store(store)
    samples = store.manifest.table
    seen = _seen_in_training(run, store.manifest, progress=progress)
    if answering.per:
        table = _pooled_table(calibrated, images, samples, seen)
    else:
        table = calibrated.table(images)
        if seen is not None and seen.any():
            table["in_training"] = seen
        _identify(run, table, samples, keep)
    table.attrs |= {
        "per": answering.per,
        "how": how_answered(calibrated),
        # (image, row or file, reason)
        "skipped": [*((one.where, one.detail) for one in problems), *store.skipped],
        "seen_in_training": None if seen is None else int(seen.sum()),
    }
    for aspect in registered_aspects():
        table.attrs.update(aspect.absent)
    for rule in calibrated.rules.values():
        table.attrs.update(rule.attributes())
    answers = Predictions(table)
    answers.attrs = table.attrs
    answers.run = run
    answers.answering = answering
    return answers


def usable_samples(
    run: Trained,
    source: UnlabelledData,
    *,
    columns: Sequence[str] = (),
    on_bad_image: OnBadImage,
    listed_in: Path | None = None,
    **reading: Any,
) -> tuple[Manifest, list[Problem]]:
    """Samples without grades, of the kind that the run was trained on; and the problems of those
    that were left out.

    listed_in: a file that these are also written to. reading: options of reading; a column of
    images, or columns of features, say themselves what a table has.
    """
    given = source if isinstance(source, (list, tuple)) else [source]
    paths = [path for path in given if isinstance(path, (str, os.PathLike))]
    says_itself = reading.keys() & {"feature_columns", "image_column"}
    if len(paths) == len(given) and not says_itself:
        refuse_other_kind(run, paths)
    samples = unlabelled_samples(
        source,
        features=len(run.in_shape) == 1,
        wanted=run.feature_names,
        columns=columns,
        grades=run.grades,
        **reading,
    )
    usable = drop_unusable(samples, on_bad_image=on_bad_image, listed_in=listed_in)
    return usable, list(samples.report.problems)


def _seen_in_training(
    run: Trained, samples: Manifest, *, progress: ProgressOption
) -> NDArray[np.bool_] | None:
    """(N,) which of the samples are on the run's training side; None if that is not known. Files
    are decoded once more; of many, only those with the name or the id of a training sample."""
    if not run.training_ids or run.hashes is None:
        return None
    rows = np.arange(len(samples))
    known = samples
    if samples.arrays is None and len(samples) > ALL_COMPARED:
        learnt = {name for sample in run.training_ids for name in _names(sample)}
        named = [
            not learnt.isdisjoint(_names(name) | _names(path))
            for name, path in zip(samples.ids, samples.paths, strict=True)
        ]
        rows = np.flatnonzero(named)
        if not len(rows):
            return None
        known = samples.select(rows)
    if samples.arrays is None:
        # a function given as progress counts the images to predict
        with progress_bar("Comparing with the training images", progress is True) as compared:
            known = replace(known, hashes=image_hashes(known, progress=compared).pixels)
    seen = np.zeros(len(samples), dtype=bool)
    seen[rows[same_samples(known, ids=run.training_ids, hashes=run.hashes)]] = True
    return seen


def _names(sample: str | Path) -> set[str]:
    """The names of a file or an id, with and without its suffix."""
    return {PurePath(sample).name, PurePath(sample).stem}


def _check_columns(samples: pd.DataFrame, per: Sequence[str], keep: Sequence[str]) -> None:
    """Raise an error for a column that the data do not have, or that cannot be pooled by."""
    if per and keep:
        raise SrjtError(
            Option("keep"),
            " and ",
            Option("per"),
            " cannot be combined: columns are kept for single images only.",
            code="conflict",
        )
    for name in (*per, *keep):
        if name not in samples and f"{name}_source" not in samples:
            known = [name for name in map(str, samples.columns) if name not in ("id", "grade")]
            raise unknown_name("column (of the data to predict)", name, known)
    if per and samples.empty:
        raise SrjtError(
            f"There are no samples to predict, and so no answer per {' and '.join(per)}.",
            code="too_few",
        )
    if per:
        units_of(samples, per)


def _identify(
    run: Trained, table: pd.DataFrame, samples: pd.DataFrame, keep: Sequence[str]
) -> None:
    """Insert the columns that identify an image, and those to keep, with grades as they are
    written."""
    ours = {*table.columns, "image"}  # a column of the data may have the name of one of ours
    names = ["patient", *keep] if "patient" in samples else keep
    for name in reversed(dict.fromkeys(names)):
        if f"{name}_source" in samples:
            values: Any = samples[f"{name}_source"]
        elif name in GRADED:
            grades = [*run.grades, ""]  # −1, not known, is the last
            values = [grades[grade] for grade in samples[name]]
        else:
            values = samples[name]
        heading = f"{name}_source" if name in ours else name
        table.insert(0, heading, np.asarray(values, dtype=object))
    table.insert(0, "image", samples["image"].to_numpy(object))


def _pooled_table(
    calibrated: CalibratedRun,
    images: Answers,
    samples: pd.DataFrame,
    seen: NDArray[np.bool_] | None,
) -> pd.DataFrame:
    """One row per patient, or per other unit. seen: (N,) images of the training side."""
    units = units_of(samples, calibrated.options.per)
    table = calibrated.table(calibrated.pool(images, units.codes))
    # the image of each unit with the highest grade; of several, that with the highest expected
    # grade
    severity = calibrated.table(images)["expected_grade"].to_numpy()
    order = np.lexsort((severity, images.grades, units.codes))  # the last of each unit
    last = order[np.flatnonzero(np.diff(units.codes[order], append=-1))]
    table["highest_image"] = samples["image"].iloc[last].astype(str).to_numpy(object)
    if seen is not None and seen.any():
        table["in_training"] = np.bincount(units.codes, weights=seen) > 0
    table.insert(0, "images", np.bincount(units.codes))
    for name in reversed(calibrated.options.per):
        table.insert(0, name, units.keys[name].to_numpy(object))
    return table
