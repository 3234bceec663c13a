"""Patient-disjoint folds with train, validation and test; written as CSV so that a split can be shared."""

from __future__ import annotations

import csv
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, suggest

__all__ = ["BY", "LeakageWarning", "Split", "deal", "folds", "official_split", "read_splits", "write_splits"]

Ints = npt.NDArray[np.int64]
BY = ("stratified", "random")
SIDES = ("train", "validation", "test")


class LeakageWarning(UserWarning):
    """The same patient may stand on two sides of a split."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row positions of a manifest, ascending, each in at most one of the three."""

    train: Ints
    validation: Ints
    test: Ints

    def sides(self) -> dict[str, Ints]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def folds(manifest: Manifest, *, folds: int = 5, seed: int = 0, by: str = "stratified") -> list[Split]:
    """Deal the patients into parts; in fold k part k is for test, part k+1 for validation, the rest for training.

    ``by="stratified"`` gives every part its share of patients of each highest grade, as the authors' published
    code does; ``"random"`` only of patients, as the paper says. The true grades count where they are known, so
    that injected noise leaves the folds as they are.
    """
    if by not in BY:
        raise suggest("way to split", by, BY)
    if folds < 3:
        raise SrjtError(f"At least 3 folds are needed for train, validation and test, not {folds}.")
    part = deal(manifest, parts=folds, seed=seed, by=by)
    return [_fold(part, k, folds) for k in range(folds)]


def deal(manifest: Manifest, *, parts: int, seed: int = 0, by: str = "stratified") -> Ints:
    """(N,) the part, 0 … parts − 1, that each sample falls to: all samples of a patient to the same one.

    The result depends on the seed and the patients alone: not on the rows' order, the platform or the version
    of a random generator.
    """
    owners = manifest.patients
    if owners is None:
        warnings.warn(
            "There are no patient ids: samples are split one by one, and leakage (images of one patient on two "
            "sides) cannot be excluded.",
            LeakageWarning,
            stacklevel=3,
        )
        owners = manifest.ids
    part_of = _deal(owners, _graded(manifest), parts=parts, seed=seed, stratified=by == "stratified")
    return np.array([part_of[owner] for owner in owners], dtype=np.int64)


def official_split(manifest: Manifest) -> Split:
    """The split that was published with the data (the manifest's ``split`` column)."""
    if "split" not in manifest.table:
        raise SrjtError("The data come without a published split: there is no split column.")
    column = manifest.table["split"].to_numpy(dtype=object)
    split = Split(**{side: np.flatnonzero(column == side).astype(np.int64) for side in SIDES})
    if not len(split.train):
        raise SrjtError("The published split has no training samples.")
    shared = _shared_patient(manifest, split)
    if shared is not None:
        warnings.warn(
            f"The published split has patients on two sides ({shared} is one): its results will look too good.",
            LeakageWarning,
            stacklevel=2,
        )
    return split


def write_splits(path: Path, manifest: Manifest, splits: Sequence[Split]) -> None:
    """Write the folds as a CSV file with the columns id, fold, split."""
    ids = manifest.ids
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "fold", "split"])
        for fold, split in enumerate(splits):
            side_of = {int(row): side for side, members in split.sides().items() for row in members}
            rows.writerows([ids[row], fold, side_of[row]] for row in sorted(side_of))


def read_splits(path: Path, manifest: Manifest, *, allow_missing: bool = False) -> list[Split]:
    """Read folds back for this manifest, whatever the order of its rows.

    Every sample must be in every fold. Ids of the file that the manifest does not have are an error unless
    ``allow_missing`` (samples left out because their image is bad). So is a patient on two sides.
    """
    path = Path(path)
    side_of = _read_sides(path)
    row_of = {sample: row for row, sample in enumerate(manifest.ids)}
    splits = []
    for fold in range(len(side_of)):
        sides = side_of[fold]
        unknown = [sample for sample in sides if sample not in row_of]
        if unknown and not allow_missing:
            raise SrjtError(
                f"{path} is not a split of these data: {len(unknown):,} of its ids are not among them, "
                f"for example {unknown[0]!r}."
            )
        left_out = [sample for sample in row_of if sample not in sides]
        if left_out:
            raise SrjtError(
                f"{path} is not a split of these data: {len(left_out):,} samples are not in its fold {fold}, "
                f"for example {left_out[0]!r}."
            )
        members: dict[str, list[int]] = {side: [] for side in SIDES}
        for sample, side in sides.items():
            if sample in row_of:
                members[side].append(row_of[sample])
        split = Split(**{side: np.array(sorted(rows), dtype=np.int64) for side, rows in members.items()})
        shared = _shared_patient(manifest, split)
        if shared is not None:
            raise SrjtError(f"{path} puts the patient {shared!r} on two sides of fold {fold}.")
        splits.append(split)
    return splits


def _deal(owners: Sequence[str], grades: Ints, *, parts: int, seed: int, stratified: bool) -> dict[str, int]:
    """The part of each patient: as many patients of each stratum in each part, and about as many images."""
    images: dict[str, int] = {}
    highest: dict[str, int] = {}
    for owner, grade in zip(owners, grades.tolist(), strict=True):
        images[owner] = images.get(owner, 0) + 1
        highest[owner] = max(highest.get(owner, grade), grade)
    if len(images) < parts:
        raise SrjtError(f"{parts} folds need at least as many patients; there are {len(images)}.")
    strata: dict[int, list[str]] = {}
    for owner in sorted(images, key=lambda owner: _lot(owner, seed)):
        strata.setdefault(highest[owner] if stratified else 0, []).append(owner)
    part_of: dict[str, int] = {}
    load = [0] * parts
    # The rarest first: the many mild patients can even out what the few severe ones left uneven.
    for _, members in sorted(strata.items(), key=lambda stratum: (len(stratum[1]), stratum[0])):
        for start in range(0, len(members), parts):
            # One patient for each part, the one with most images to the part that has fewest.
            hand = sorted(members[start : start + parts], key=lambda owner: -images[owner])
            for owner, part in zip(hand, sorted(range(parts), key=lambda part: load[part]), strict=False):
                part_of[owner] = part
                load[part] += images[owner]
    return part_of


def _lot(owner: str, seed: int) -> bytes:
    """A random number that belongs to the patient, so that it is drawn alike everywhere."""
    return hashlib.blake2b(f"{seed}/{owner}".encode("utf-8", "surrogateescape")).digest()


def _fold(part: Ints, k: int, parts: int) -> Split:
    test, validation = part == k, part == (k + 1) % parts
    return Split(
        train=np.flatnonzero(~test & ~validation).astype(np.int64),
        validation=np.flatnonzero(validation).astype(np.int64),
        test=np.flatnonzero(test).astype(np.int64),
    )


def _graded(manifest: Manifest) -> Ints:
    true_labels = manifest.true_labels
    return manifest.labels if true_labels is None else true_labels


def _shared_patient(manifest: Manifest, split: Split) -> str | None:
    """Somebody who stands on two sides, if there is one."""
    patients = manifest.patients
    if patients is None:
        return None
    side_of: dict[str, str] = {}
    for side, rows in split.sides().items():
        for patient in (patients[int(row)] for row in rows):
            if side_of.setdefault(patient, side) != side:
                return patient
    return None


def _read_sides(path: Path) -> list[dict[str, str]]:
    """Per fold the side of each id."""
    if not path.is_file():
        raise SrjtError(f"The split file {path} does not exist.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not {"id", "fold", "split"} <= set(rows.fieldnames or ()):
            raise SrjtError(f"{path} is not a split file: it needs the columns id, fold and split.")
        found: dict[int, dict[str, str]] = {}
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if row["split"] not in SIDES:
                raise SrjtError(
                    f"{where}: the split must be train, validation or test, not {row['split']!r}."
                )
            if not (row["fold"] or "").isdecimal():
                raise SrjtError(f"{where}: the fold must be a number from 0 up, not {row['fold']!r}.")
            if found.setdefault(int(row["fold"]), {}).setdefault(row["id"], row["split"]) != row["split"]:
                raise SrjtError(f"{where}: {row['id']!r} is on two sides of fold {row['fold']}.")
    if sorted(found) != list(range(len(found))) or not found:
        raise SrjtError(f"{path}: the folds must be numbered 0, 1, 2, …; found {sorted(found) or 'none'}.")
    return [found[fold] for fold in sorted(found)]
