"""Evaluated samples that something was fitted to after training: scores on them look too good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from srjt.data.manifest import Manifest
from srjt.inference.fitted import Fitted
from srjt.ordinal.metrics import quadratic_weighted_kappa
from srjt.training.record.held_out import HeldOut
from srjt.training.trained import Trained

__all__ = ["Overlap", "are_row_numbers", "find_overlaps", "shared_labels"]

SAME_ROWS = 0.3  # weighted κ of the labels from which equal row numbers are those of the same samples


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Evaluated samples that are also among those that something was fitted to.

    Attributes
    ----------
    fitted : tuple of str
        What was fitted: ``"ranges"``, ``"recalibration"``, ``"threshold"``, ``"pooling"``.
    to : {"validation", "calibrate_on"}
        The samples that it was fitted to: the validation side of the run, or others that were given.
    samples : int
        Evaluated images, or rows of features, with the id of such a sample.
    patients : int or None
        Evaluated patients with the name of such a patient; None if patients are not known.
    """

    fitted: tuple[str, ...]
    to: Literal["validation", "calibrate_on"]
    samples: int
    patients: int | None

    def __str__(self) -> str:
        names = [f"the {name}" for name in self.fitted]
        fitted = f"used to fit {', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]}"
        patients = self.patients or 0
        if self.samples:
            have = (
                "has the id of a sample that was"
                if self.samples == 1
                else "have the ids of samples that were"
            )
            same = f"{self.samples:,} of the samples {have} {fitted}"
            if patients == 1:
                same += ", and 1 of the patients has the name of such a sample's patient"
            elif patients:
                same += f", and {patients:,} of the patients their patients' names"
        else:
            have = "has the name of a patient" if patients == 1 else "have the names of patients"
            same = f"{patients:,} of the patients {have} whose samples were {fitted}"
        advice = {
            "validation": "Evaluate samples of other patients, such as the test side.",
            "calibrate_on": "Calibrate on samples of other patients.",
        }[self.to]
        return f"{same}: if they are the same, the scores look too good. {advice}"


def find_overlaps(run: Trained, fitted: Fitted, data: Manifest, *, threshold: bool) -> tuple[Overlap, ...]:
    """The overlaps of ``data`` with the samples that labels were used of.

    threshold: whether a threshold for a sensitivity was found, which is always done on the validation side.
    """
    calibrated = {"ranges": fitted.ranges, "recalibration": fitted.recalibration}
    parts = [name for name, found in calibrated.items() if found is not None]
    decided = [name for name, used in (("threshold", threshold), ("pooling", fitted.learned)) if used]
    validation = run.held_out.get("validation")
    if fitted.calibrate_on is None:
        found = [_overlap(data, validation, "validation", [*parts, *decided])]
    else:
        found = [
            _overlap(data, fitted.calibrate_on, "calibrate_on", parts),
            _overlap(data, validation, "validation", decided),
        ]
    return tuple(overlap for overlap in found if overlap is not None)


def _overlap(
    data: Manifest, side: HeldOut | None, to: Literal["validation", "calibrate_on"], parts: list[str]
) -> Overlap | None:
    if side is None or not parts:
        return None
    samples = len(shared_labels(dict(zip(side.ids, side.labels.tolist(), strict=True)), data))
    patients = None
    if side.patients is not None and data.patients is not None:
        patients = len(set(side.patients) & set(data.patients))
    return (
        Overlap(fitted=tuple(parts), to=to, samples=samples, patients=patients)
        if samples or patients
        else None
    )


def shared_labels(known: Mapping[str, int], data: Manifest) -> list[tuple[int, int]]:
    """Both labels of each sample with the id of one of those in ``known``, which gives each id its label.

    Row numbers are no ids: other arrays have them too. They count only if the labels agree more often than by chance;
    those of the same samples may differ, because wrong ones have been corrected.
    """
    shared = [
        (known[name], label)
        for name, label in zip(data.ids, data.labels.tolist(), strict=True)
        if name in known
    ]
    if not shared or not are_row_numbers(data):
        return shared
    if all(kept == given for kept, given in shared):
        return shared
    grades = 1 + max(map(max, shared))
    confusion = np.zeros((grades, grades), dtype=np.int64)
    np.add.at(confusion, tuple(np.array(shared).T), 1)
    return shared if quadratic_weighted_kappa(confusion) > SAME_ROWS else []


def are_row_numbers(data: Manifest) -> bool:
    """Whether the ids are mere row numbers of an array or a table, which others have too."""
    return data.arrays is not None and all(name == str(row) for row, name in enumerate(data.ids))
