"""An audit and the labelling tools of others: its doubtful labels as a table, and the grades that
come back as decisions in its log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.auditing.review_log import Action, Decisions
from srjt.data.names import join_names
from srjt.data.sources.readings import ReadingsTable
from srjt.errors import SrjtError, count_of, few


def doubtful_labels(audit: AuditFolder, *, limit: int | None = None) -> tuple[pd.DataFrame, Path]:
    """The most doubtful labels first, and the folder that all their images are in.

    Parameters
    ----------
    audit : AuditFolder
        A folder of ``srjt audit``.
    limit : int, optional
        Number of labels. Default: as many as are expected to be wrong.

    Returns
    -------
    table : DataFrame
        ``id``, ``image`` (relative to the folder), ``given``, ``suggested`` ("" if no other grade
        is likelier) and ``doubt``, the probability that the label is wrong (NaN where the audit
        does not know it).
    folder : Path
        The folder of the images.
    """
    if limit is None:
        limit = audit.expected_wrong
    chosen = np.flatnonzero(audit.verified < 0)[:limit]
    if not any(audit.images[row] for row in chosen):
        raise SrjtError(
            "This audit has no images to show, because it was made with features.",
            code="unsupported",
        )
    paths = [(audit.folder / audit.images[line]).absolute() for line in chosen]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    known = ~np.isin(audit.labels[chosen], audit.unrecognised) & audit.determined
    table = pd.DataFrame(
        {
            "id": [audit.ids[row] for row in chosen],
            "image": [path.relative_to(folder).as_posix() for path in paths],
            "given": [audit.grades[grade] for grade in audit.labels[chosen]],
            "suggested": [_likelier(audit, line) for line in chosen],
            "doubt": np.where(known, 1 - audit.quality[chosen], np.nan),
        }
    )
    return table, folder


def _likelier(audit: AuditFolder, line: int) -> str:
    """The grade that is likelier than the label, "" if none is."""
    grade = int(audit.suggested[line])
    if grade in (-1, audit.labels[line]):
        return ""
    return audit.grades[grade]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """How many grades of another tool became decisions, and which did not."""

    added: int
    known_before: int  # the same grade of the same reviewer is in the log already
    elsewhere: tuple[str, ...]  # items that the audit does not have

    def __str__(self) -> str:
        parts = [f"{count_of(self.added, 'decision')} added"]
        if self.known_before:
            parts.append(f"{self.known_before:,} in the log already")
        if self.elsewhere:
            parts.append(
                f"{count_of(len(self.elsewhere), 'item is', 'items are')} not in the audit"
                f" ({few(self.elsewhere)})"
            )
        return "; ".join(parts)


def import_decisions(audit: AuditFolder, decisions: Decisions, table: ReadingsTable) -> Imported:
    """Add the grades of a table of readings to the log of an audit, as if each reader had reviewed
    the sample.

    A grade that the same reader has decided already is not added again: the same file may be
    imported twice.
    """
    readings = table.readings
    place = join_names(readings.items, audit.ids, wanted_in="the file", known_in="the audit")
    if not (place >= 0).any():
        raise SrjtError(
            f"None of the {len(readings.items):,} items, such as {few(map(repr, readings.items))},"
            f" is in the audit. Its samples are {few(map(repr, audit.ids))}.",
            code="no_match",
        )
    order = np.arange(len(readings))
    if readings.times is not None:
        order = np.argsort(readings.times, kind="stable")
    added = 0
    known_before = 0
    for row in order[place[readings.item[order]] >= 0].tolist():
        line = int(place[readings.item[row]])
        name = readings.readers[readings.reader[row]]
        grade = readings.grades[readings.grade[row]]
        decided = None
        for entry in decisions.current.by_reviewer(name):
            if entry.id == audit.ids[line]:
                decided = entry.to_grade
        if decided == grade:
            known_before += 1
            continue
        decisions.decide(
            audit.ids[line],
            reviewer=name,
            action=_action(audit, line, grade),
            grade=grade,
            label=audit.grades[audit.labels[line]],
            seen=decisions.current.last_revision.get(audit.ids[line], 0),
        )
        added += 1
    elsewhere = tuple(name for name, line in zip(readings.items, place, strict=True) if line < 0)
    return Imported(added=added, known_before=known_before, elsewhere=elsewhere)


def _action(audit: AuditFolder, line: int, grade: str) -> Action:
    if grade == audit.grades[audit.labels[line]]:
        return "keep"
    if grade == _likelier(audit, line):
        return "accept"
    return "set"
