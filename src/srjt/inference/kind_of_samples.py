"""A run takes images, or rows of features: the other kind gets one sentence that says how to make what it takes."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from srjt.data.images.decode import is_image
from srjt.data.sources.columns import choose_columns
from srjt.data.sources.hints import NUMBERED
from srjt.data.sources.text_table import TABLE_SUFFIXES, load
from srjt.errors import SrjtError, count_of
from srjt.training.trained import Trained

__all__ = ["refuse_other_kind", "refuse_other_options"]

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
    columns, known = list(load(path).frame.columns), set(feature_names)
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
