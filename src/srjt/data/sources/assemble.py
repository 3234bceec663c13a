"""The last step of every source: turn rows of text into a manifest, and unusable rows into
problems. And the sources that have no file: arrays and torch datasets in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from srjt.data.grades import (
    MISSING,
    UNKNOWN_PATIENT,
    Grading,
    as_text,
    filled,
    grade_values,
    refuse_too_many,
)
from srjt.data.manifest import GRADED, Manifest, as_features
from srjt.data.names import one_spelling
from srjt.data.problems import Problem, ReadReport
from srjt.errors import SrjtError, count_of

Reasons: TypeAlias = dict[int, tuple[str, str]]  # row → why it is left out: kind, detail

# Common names of the sides of a split.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def assemble(
    rows: pd.DataFrame,
    *,
    kind: str,
    root: Path,
    grades: Sequence[str] | None,
    lines: Sequence[str],
    notes: Sequence[str],
    problems: Sequence[Problem] = (),
    arrays: npt.NDArray[np.generic] | None = None,
) -> Manifest:
    """Check ``rows``: id, image and grade, optionally patient, true_grade, verified_grade, split
    and other columns.

    All cells are text. ``lines`` (N,) are the positions of the rows in the source, for messages.
    """
    if not len(rows):
        raise SrjtError(f"The source ({kind}) has no samples.", code="too_few")
    collected = list(problems)
    why: Reasons = {}
    table = rows.reset_index(drop=True)
    grading = _grade(table, grades, lines, collected, why)
    for row in np.flatnonzero((table["image"] == "").to_numpy()).tolist():
        collected.append(Problem("missing-image", lines[row], "the row has no image"))
        why[row] = ("missing-image", f"{lines[row]}: the row has no image")
    keep = np.ones(len(table), dtype=bool)
    keep[list(why)] = False
    if "patient" in table:
        table["patient"] = one_spelling(table["patient"].tolist())
        unknown = table["patient"].str.casefold().isin(MISSING).to_numpy()
        for row in np.flatnonzero(unknown & keep).tolist():
            detail = f"{lines[row]}: treated as a separate patient"
            collected.append(Problem("missing-patient", table["id"][row], detail))
        table.loc[unknown, "patient"] = UNKNOWN_PATIENT + table.loc[unknown, "id"]
    if "verified_probability" in table:
        table["verified_probability"] = pd.to_numeric(
            table["verified_probability"], errors="coerce"
        )
    if "split" in table:
        table["split"] = table["split"].str.casefold().map(lambda side: SPLIT_NAMES.get(side, ""))
    if arrays is None or arrays.ndim > 2:  # many rows of features may come from one image
        collected += _drop_repeated(table, keep, lines, grading.names, why)
    if not keep.any():
        raise SrjtError(
            f"None of the {len(table):,} rows can be used; the first: {collected[0].detail}.",
            code="unusable_samples",
        )
    notes = (*notes, f"grades: {grading.note}")
    return Manifest(
        table=table[keep].reset_index(drop=True),
        grades=grading.names,
        root=root,
        arrays=arrays if arrays is None or keep.all() else arrays[keep],
        left_out_rows=_left_out(rows, table, why) if why else None,
        report=ReadReport(kind=kind, problems=tuple(collected), notes=notes),
    )


def _grade(
    table: pd.DataFrame,
    grades: Sequence[str] | None,
    lines: Sequence[str],
    problems: list[Problem],
    why: Reasons,
) -> Grading:
    """Turn the columns of grades into numbers, in place; of rows that have none, say why."""
    if "true_grade" in table:
        known = len(filled(table["true_grade"]))
        if known < len(table):
            raise SrjtError(
                f"The true grade is known in {known:,} of {len(table):,} rows: fill it in, or leave"
                " the column out.",
                code="wrong_values",
                option="true_grade_column",
            )
    columns = [name for name in GRADED if name in table]
    # All columns at once: a grade may occur in only one of them.
    cells = itertools.chain.from_iterable(table[name] for name in columns)
    grading = grade_values(list(cells), names=grades)
    if grades is None:
        refuse_too_many(grading.names, samples=len(table))
    for position, (problem, detail) in grading.invalid.items():
        column = columns[position // len(table)]
        row = position % len(table)
        if (column, problem) == ("verified_grade", "missing-grade"):
            continue  # few grades are verified
        if column != "grade":
            detail = f"{column.replace('_', ' ')}: {detail}"
        why[row] = (problem, f"{lines[row]}: {detail}")
        problems.append(Problem(problem, table["id"][row] or lines[row], why[row][1]))
    for column, codes in zip(columns, grading.codes.reshape(len(columns), -1), strict=True):
        table[column] = codes
    return grading


def _left_out(rows: pd.DataFrame, table: pd.DataFrame, why: Reasons) -> pd.DataFrame:
    """The rows that are left out as the source has them, with the reason; patients in their one
    spelling."""
    places = sorted(why)
    unused = rows.reset_index(drop=True).iloc[places].reset_index(drop=True)
    if "patient" in table:
        unused["patient"] = table["patient"].iloc[places].tolist()
    unused["problem"], unused["detail"] = zip(*(why[place] for place in places), strict=True)
    return unused


def _drop_repeated(
    table: pd.DataFrame,
    keep: npt.NDArray[np.bool_],
    lines: Sequence[str],
    names: tuple[str, ...],
    why: Reasons,
) -> list[Problem]:
    """Rows with the same image: keep the first if they agree, none if they contradict each
    other."""
    problems = []
    usable = table[keep]
    for _, group in usable[usable["image"].duplicated(keep=False)].groupby("image", sort=False):
        rows = group.index.tolist()
        detail = ", ".join(lines[row] for row in rows)
        grades = group["grade"].unique()
        patients = group["patient"].unique() if "patient" in group else ()
        kind = "conflicting-rows"
        if len(grades) > 1:
            detail += f": grades {' and '.join(names[grade] for grade in grades)}"
        elif len(patients) > 1:
            detail += f": patients {' and '.join(patients)}"
        else:
            kind = "duplicate-row"
            rows = rows[1:]
        keep[rows] = False
        problems.append(Problem(kind, str(group["id"].iloc[0]), detail))
        why.update(dict.fromkeys(rows, (kind, detail)))
    return problems


# Images or features, and grades, that are in memory.


def from_arrays(
    images: npt.ArrayLike,
    grades: Sequence[object] | npt.NDArray[np.generic],
    *,
    patients: Sequence[object] | npt.NDArray[np.generic] | None = None,
    true_grades: Sequence[object] | npt.NDArray[np.generic] | None = None,
    verified_grades: Sequence[object] | npt.NDArray[np.generic] | None = None,
    split: Sequence[object] | npt.NDArray[np.generic] | None = None,
    ids: Sequence[object] | npt.NDArray[np.generic] | None = None,
    names: Sequence[str] | None = None,
) -> Manifest:
    """Make a dataset of arrays in memory.

    Parameters
    ----------
    images : array_like
        uint8 images of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), or features of shape (N, F);
        of a DataFrame the names of the columns are kept.
    grades : (N,) sequence
        The given grades: numbers or names. ``None`` and ``nan`` are missing grades.
    patients : (N,) sequence, optional
        The patient of each sample.
    true_grades : (N,) sequence, optional
        The true grades, if they are known.
    verified_grades : (N,) sequence, optional
        The true grades of a random sample; ``None`` or ``nan`` for the other samples.
    split : (N,) sequence, optional
        ``"train"``, ``"validation"``, ``"test"`` or ``""`` for each sample.
    ids : (N,) sequence, optional
        Unique names. Default: ``"0"``, ``"1"``, …
    names : sequence of str, optional
        Names of the grades, mildest first. Default: whole numbers, or names that end in numbers, in
        their order.

    Returns
    -------
    Manifest
        The usable samples; ``report.problems`` has the problems of the others.

    Examples
    --------
    >>> import numpy as np
    >>> import srjt
    >>> images = np.zeros((4, 64, 64, 3), np.uint8)
    >>> grades = ["mild", "severe", "mild", "mild"]
    >>> data = srjt.data.from_arrays(images, grades, names=["mild", "severe"])
    >>> data.class_counts
    array([3, 1])
    """
    array = as_array(images)
    if array.ndim == 2:
        pixels: npt.NDArray[np.generic] = as_features(array)
        size = f"{count_of(len(pixels), 'row')} of {count_of(pixels.shape[1], 'feature')} in memory"
    else:
        pixels = as_colour(array)
        size = f"{count_of(len(pixels), 'image')} of {pixels.shape[2]}×{pixels.shape[1]} in memory"
    columns = {
        "grade": grades,
        "patient": patients,
        "true_grade": true_grades,
        "verified_grade": verified_grades,
        "split": split,
        "id": ids,
    }
    given = {}
    for name, cells in columns.items():
        if cells is not None:
            given[name] = _texts(cells, name, len(pixels))
    sample_ids = given.pop("id", list(map(str, range(len(pixels)))))
    if len(set(sample_ids)) < len(pixels):
        raise SrjtError(
            "The ids must be unique, but at least one occurs twice.",
            code="not_unique",
            option="ids",
        )
    for side in sorted(filter(None, given.get("split", ()))):
        if side.casefold() not in SPLIT_NAMES:
            raise SrjtError(
                f"The split must be train, validation or test, not {side!r}.",
                code="wrong_values",
                option="split",
            )
    samples = assemble(
        pd.DataFrame({"id": sample_ids, "image": sample_ids, **given}, dtype=str),
        kind="arrays",
        root=Path(),
        grades=names,
        lines=[f"sample {name}" for name in sample_ids],
        notes=[size],
        arrays=pixels,
    )
    feature_names: tuple[str, ...] = ()
    if isinstance(images, pd.DataFrame) and all(isinstance(name, str) for name in images):
        feature_names = tuple(images.columns)  # as in scikit-learn, numbers are no names
    return replace(samples, feature_names=feature_names)


def is_tensor(values: object) -> bool:
    """Whether this is a tensor of torch, without importing it."""
    return hasattr(values, "detach")


def as_array(values: Any) -> npt.NDArray[np.generic]:
    """An array of anything array-like, also of a tensor on a GPU or with a gradient."""
    if is_tensor(values):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    try:
        return np.asarray(values)
    except ValueError:
        raise SrjtError(
            "The images, or the rows of features, have different sizes: resize them, or read a"
            " table of image files.",
            code="wrong_shape",
            option="images",
        ) from None


def as_colour(images: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8 → (N, H, W, 3)."""
    if images.dtype != np.uint8:
        raise SrjtError(
            f"Images must be uint8, not {images.dtype}: for values from 0 to 1, (255 *"
            " images).round().astype('uint8').",
            code="wrong_type",
            option="images",
        )
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise SrjtError(
            f"Images have the shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), not {images.shape}.",
            code="wrong_shape",
            option="images",
        )
    return images if images.shape[-1] == 3 else np.repeat(images, 3, axis=-1)


def _texts(values: Sequence[object] | npt.NDArray[np.generic], name: str, count: int) -> list[str]:
    # A list, not an array: NumPy would turn the numbers of [1, None] into floats.
    try:
        listed = as_array(values).tolist() if hasattr(values, "tolist") else list(values)
    except TypeError:
        raise SrjtError(
            f"{name} must have one entry per sample; got {values!r}.",
            code="wrong_type",
            option=name,
        ) from None
    if len(listed) != count:
        raise SrjtError(
            f"{name} has {count_of(len(listed), 'entry', 'entries')} for {count:,} samples: give"
            " one for each.",
            code="wrong_shape",
            option=name,
        )
    texts = []
    for cell in listed:
        entries = as_array(cell).reshape(-1).tolist() if hasattr(cell, "tolist") else [cell]
        if len(entries) != 1 or isinstance(entries[0], list):
            raise SrjtError(
                f"{name} must have one entry per sample, not a row of several.",
                code="wrong_shape",
                option=name,
            )
        texts.append(as_text(entries[0]))
    return texts


# A torch dataset: its samples are images, or (image, label).

Array = npt.NDArray[np.generic]


@runtime_checkable
class MapDataset(Protocol):
    """What a torch dataset has; any object with these two methods will do."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class StreamedDataset(Protocol):
    """What a torch ``IterableDataset`` has. It is read once, to its end."""

    def __iter__(self) -> Iterator[Any]: ...


TorchDataset: TypeAlias = MapDataset | StreamedDataset


def is_dataset(data: object) -> TypeGuard[TorchDataset]:
    """Whether this is a dataset of either style; containers have the same methods, but are not
    meant as datasets."""
    from torch.utils.data import IterableDataset

    by_index = isinstance(data, MapDataset) and not isinstance(
        data, (np.ndarray, list, tuple, dict)
    )
    return by_index or isinstance(data, IterableDataset)


def dataset_arrays(dataset: TorchDataset, *, labelled: bool = False) -> tuple[Array, list[object]]:
    """The images, or rows of features, and the labels of a dataset, in memory. Random transforms
    are drawn once."""
    images: list[Array] = []
    labels = []
    samples = (
        map(dataset.__getitem__, range(len(dataset)))
        if isinstance(dataset, MapDataset)
        else dataset
    )
    for row, sample in enumerate(samples):
        pair = sample if isinstance(sample, (tuple, list)) else (sample,)
        if labelled:
            if len(pair) < 2:
                raise SrjtError(
                    "A dataset to learn from must return (image, label) for each sample.",
                    code="wrong_type",
                )
            labels.append(pair[1])
        images.append(_pixels(pair[0], row=row))
        if images[row].shape != images[0].shape:
            raise SrjtError(
                f"The images of the dataset differ in size, at index {row}: resize them.",
                code="wrong_shape",
            )
    if not images:
        raise SrjtError("The dataset has no samples.", code="too_few")
    return np.stack(images), labels


def _pixels(image: object, *, row: int) -> Array:
    """(H, W) or (H, W, C) uint8, or (F,) features. Tensors are (C, H, W), with values from 0 to 1
    or from 0 to 255."""
    array = np.asarray(image.convert("RGB")) if isinstance(image, Image.Image) else as_array(image)
    if array.ndim == 1:
        return array
    if array.ndim == 3 and array.shape[0] in (1, 3) and is_tensor(image):
        array = np.moveaxis(array, 0, -1)  # a tensor has its channels first
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise SrjtError(
                f"The image at index {row} has values outside 0 … 1: leave out Normalize, which"
                " srjt does itself.",
                code="wrong_values",
            )
        array = np.rint(array * 255).astype(np.uint8)
    if array.ndim not in (2, 3) or array.dtype != np.uint8:
        raise SrjtError(
            f"The sample at index {row} is neither an image nor a row of features: shape"
            f" {array.shape}, {array.dtype}.",
            code="wrong_shape",
        )
    return array
