"""The corrected labels as a table, with who changed what and when. The original is only read."""

from __future__ import annotations

import itertools
import os
import posixpath
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.grades import grade_values
from srjt.errors import SrjtError
from srjt.files import exists_already
from srjt.review.audit_folder import AuditFolder
from srjt.review.decisions import LogEntry, Present, replay

__all__ = [
    "Agreement",
    "Corrected",
    "agreements",
    "corrected",
    "disagreements",
    "listed",
    "training_command",
    "write",
]

PROVENANCE = ("original_grade", "reviewed_by", "reviewed_at", "decision")


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """The table and what to tell about it."""

    table: pd.DataFrame
    changed: int
    reviewed: int
    skipped: int
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How two reviewers agree on what both have graded."""

    reviewers: tuple[str, str]
    both: int
    share: float
    kappa: float  # quadratically weighted


def corrected(audit: AuditFolder, present: Present) -> Corrected:
    """The original table where there is one, else the audit's samples in the order of their ids.

    The grade column holds the decided grades; the last decision about a sample wins. Four columns are
    added: original_grade, and for what was reviewed reviewed_by, reviewed_at (UTC) and decision.
    """
    notes = []
    strangers = [entry.id for entry in present.decided() if entry.id not in audit.line_of]
    if strangers:
        notes.append(
            f"{len(strangers):,} decisions are left out: their samples, such as {strangers[0]}, "
            "are not in this audit."
        )
    if audit.table is None:
        order = sorted(range(len(audit)), key=audit.ids.__getitem__)
        return _filled(audit, present, _own_table(audit).iloc[order], order, "grade", notes)
    table, lines, more = _original(audit, audit.table)
    return _filled(audit, present, table, lines, audit.label_column, [*notes, *more])


def write(table: pd.DataFrame, out: Path, *, original: Path | None, replace: bool) -> None:
    """Atomically, never over the original, and over an existing file only if told to."""
    from srjt.files import write_atomically

    if original is not None and out.exists() and original.exists() and os.path.samefile(out, original):
        raise SrjtError(f"{out} is the original table, which is never overwritten: give another file.")
    if out.exists() and not replace:
        raise exists_already(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, table.to_csv(index=False).encode("utf-8"))
    except OSError as problem:
        raise SrjtError(f"{out} cannot be written: {problem.strerror or problem}.") from None


def training_command(audit: AuditFolder, out: Path) -> str:
    """How to train on the corrected table: it is read as the audited one was, but may lie elsewhere."""
    given = dict(zip(audit.read_with[::2], audit.read_with[1::2], strict=False))
    if given.get("--images") == str(out.parent.absolute()):
        del given["--images"]
    source = [str(out)]
    if (
        audit.features and audit.table != Path(audit.source).absolute()
    ):  # the features are in a file of their own
        source = [audit.source, "--labels", str(out)]
    elif audit.table is None:  # images without a table: ours has its own columns, and whole paths
        given = {name: value for name, value in given.items() if name == "--grades"}
    words = [
        "srjt",
        "train",
        *source,
        *itertools.chain(*given.items()),
        "--out",
        "run",
        "--noise-rate",
        "auto",
    ]
    return shlex.join(words)


def by_reviewer(audit: AuditFolder, log: Sequence[LogEntry]) -> dict[str, dict[str, LogEntry]]:
    """Each reviewer's own last decision per sample, whatever the others did; skips are no grades."""
    found = {}
    for reviewer in sorted({entry.reviewer for entry in log}):
        own = replay(log, only=reviewer).decided()
        found[reviewer] = {e.id: e for e in own if e.action != "skip" and e.id in audit.line_of}
    return found


def agreements(audit: AuditFolder, log: Sequence[LogEntry]) -> list[Agreement]:
    """For every two reviewers who have graded some of the same images."""
    from srjt.ordinal.metrics import quadratic_weighted_kappa

    found = []
    for (one, first), (other, second) in itertools.combinations(by_reviewer(audit, log).items(), 2):
        both = sorted(first.keys() & second.keys())
        if not both:
            continue
        confusion = np.zeros((len(audit.grades), len(audit.grades)))
        for sample in both:
            row, column = (audit.grades.index(own[sample].to_grade) for own in (first, second))
            confusion[row, column] += 1
        found.append(
            Agreement(
                reviewers=(one, other),
                both=len(both),
                share=float(np.trace(confusion)) / len(both),
                kappa=float(quadratic_weighted_kappa(confusion)),
            )
        )
    return found


def disagreements(audit: AuditFolder, log: Sequence[LogEntry]) -> list[list[LogEntry]]:
    """Samples that reviewers have graded differently, each with their decisions, the winning one last."""
    per_sample: dict[str, list[LogEntry]] = {}
    for own in by_reviewer(audit, log).values():
        for sample, entry in own.items():
            per_sample.setdefault(sample, []).append(entry)
    differing = [said for said in per_sample.values() if len({entry.to_grade for entry in said}) > 1]
    ordered = (sorted(said, key=lambda entry: entry.revision) for said in differing)
    return sorted(ordered, key=lambda said: said[0].id)


def listed(differing: Sequence[Sequence[LogEntry]]) -> pd.DataFrame:
    """Disagreements as a table, one row per decision; the last of a sample is the one that counts."""
    rows = [(e.id, e.reviewer, e.to_grade, e.action, e.at) for said in differing for e in said]
    return pd.DataFrame(rows, columns=["id", "reviewer", "grade", "decision", "reviewed_at"])


def _own_table(audit: AuditFolder) -> pd.DataFrame:
    columns = {
        "id": audit.ids,
        "image": [str((audit.folder / name).absolute()) if name else "" for name in audit.images],
        "grade": [audit.grades[label] for label in audit.labels],
        "patient": audit.patients,
        "reader": audit.readers,
    }
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None}, dtype=str)


def _original(audit: AuditFolder, path: Path) -> tuple[pd.DataFrame, list[int | None], list[str]]:
    """The table as it is, for each row the line of its sample in the audit, and remarks."""
    from srjt.data.sources.table import load

    if not path.exists():
        raise SrjtError(f"The table that was audited, {path}, is not there any more: put it back.")
    loaded = load(path)
    frame, column = loaded.frame, audit.label_column
    if column not in frame:
        raise SrjtError(f"{path} has no column {column!r} any more: it has changed since the audit.")
    lines = _matched(audit, frame, path)
    notes = []
    if loaded.problems:
        notes.append(f"{len(loaded.problems):,} malformed rows of {path.name} are left out.")
    absent = sum(line is None for line in lines)
    if absent:
        notes.append(f"{absent:,} rows of {path.name} were not in the audit and stay as they are.")
    codes = grade_values(frame[column].tolist(), names=audit.grades).codes
    moved = [row for row, line in enumerate(lines) if line is not None and codes[row] != audit.labels[line]]
    if moved:
        raise SrjtError(
            f"{path} has changed since the audit: {loaded.lines[moved[0]]} now says {frame[column].iloc[moved[0]]!r} "
            f"({len(moved):,} such rows). Put the audited table back, or audit the new one."
        )
    return frame, lines, notes


def _matched(audit: AuditFolder, frame: pd.DataFrame, path: Path) -> list[int | None]:
    """By the column whose cells are the audit's ids: the table's own ids, or the names of its images."""

    def relative(cell: str) -> str:
        name = posixpath.normpath(cell.replace("\\", "/"))
        inside = Path(name).is_absolute() and Path(name).is_relative_to(path.parent)
        return Path(name).relative_to(path.parent).as_posix() if inside else name

    spellings: list[Callable[[str], str]] = [str, relative]
    for column, spelling in itertools.product(frame.columns, spellings):
        lines = [audit.line_of.get(spelling(cell)) for cell in frame[column]]
        if len({line for line in lines if line is not None}) == len(audit):
            return lines
    raise SrjtError(
        f"No column of {path} names all samples of the audit: it has changed since. Put the audited table back."
    )


def _filled(
    audit: AuditFolder,
    present: Present,
    table: pd.DataFrame,
    lines: Sequence[int | None],
    column: str,
    notes: Iterable[str],
) -> Corrected:
    original = table[column].tolist()
    spelling = _spelling(audit, original, lines)
    grades, rows = list(original), []
    for row, line in enumerate(lines):
        if line is None or (decision := present.of(audit.ids[line])) is None:
            rows.append(("", "", ""))
            continue
        rows.append((decision.reviewer, decision.at, decision.action))
        if decision.to_grade not in audit.grades:
            raise SrjtError(
                f"{decision.id} was given the grade {decision.to_grade!r}, which this audit does not have."
            )
        if decision.to_grade != audit.grades[audit.labels[line]]:
            grades[row] = spelling[decision.to_grade]
    filled = table.copy()
    filled[column] = grades
    added = [_free(name, list(table.columns)) for name in PROVENANCE]
    for name, values in zip(added, [original, *zip(*rows, strict=True)], strict=True):
        filled[name] = list(values)
    actions = Counter(action for _, _, action in rows)
    return Corrected(
        table=filled,
        changed=sum(new != old for new, old in zip(grades, original, strict=True)),
        reviewed=actions["set"] + actions["accept"] + actions["keep"],
        skipped=actions["skip"],
        notes=tuple(notes),
    )


def _spelling(audit: AuditFolder, original: Sequence[str], lines: Sequence[int | None]) -> dict[str, str]:
    """How the table itself writes each grade ("2.0" for 2); its name where it never does."""
    seen = {audit.grades[audit.labels[line]]: text for text, line in zip(original, lines, strict=True)
            if line is not None}  # fmt: skip
    return {name: seen.get(name, name) for name in audit.grades}


def _free(name: str, taken: Sequence[str]) -> str:
    """A second review of an exported table keeps the columns of the first."""
    numbered = (name if n == 1 else f"{name}_{n}" for n in itertools.count(1))
    return next(candidate for candidate in numbered if candidate not in taken)
