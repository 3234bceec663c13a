"""A random sample of the audited labels, and the grades that reviewers give it without seeing the label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from srjt.auditing.folder import AuditFolder
from srjt.data.manifest import Manifest
from srjt.review.decisions import Decisions, log_exists

__all__ = ["draw_sample", "read_verified_grades", "with_verified_grades"]

SEED = 0  # the same sample for every reviewer of an audit


def draw_sample(audit: AuditFolder, size: int) -> list[int]:
    """The lines of a simple random sample, in random order: every set of labels is equally likely.

    Labels are drawn, not patients, so that the share of wrong ones is unbiased. A larger sample begins with the
    smaller one, and the sample depends on the ids alone: a repeated audit has the same.
    """
    names = sorted(audit.ids)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(names))
    return [audit.line_of[names[place]] for place in order[:size]]


def read_verified_grades(folder: Path) -> dict[str, str]:
    """The verified grade of each sample, by id; the last answer counts. Empty if nothing was verified."""
    path = folder / "decisions.sqlite"
    if not folder.is_dir() or not log_exists(path):
        return {}
    decisions = Decisions(path)
    try:
        return {sample: grade for sample, grade in decisions.verified().items() if grade is not None}
    finally:
        decisions.close()


def with_verified_grades(manifest: Manifest, verified: dict[str, str]) -> Manifest:
    """The samples with these verified grades, beside those that the manifest has already."""
    if not verified:
        return manifest
    known = manifest.verified_labels
    grades = np.full(len(manifest), -1, dtype=np.int64) if known is None else known
    code_of = {name: code for code, name in enumerate(manifest.grades)}
    for row, name in enumerate(manifest.ids):
        if verified.get(name) in code_of:
            grades[row] = code_of[verified[name]]
    return replace(manifest, table=manifest.table.assign(verified_grade=grades))
