"""The corrected labels as a table, with who changed what and when. The original table is only read."""

from __future__ import annotations

import itertools
import operator
import os
import posixpath
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.auditing.review_log import CurrentDecisions, LogEntry
from srjt.data.grades import grade_values
from srjt.data.manifest import neutralise_formula, warn_about_formulas
from srjt.data.sources.table import load_table
from srjt.errors import SrjtError, count_of
from srjt.files import as_csv, exists_already, write_output
from srjt.ordinal.metrics import METRICS


def corrected_table(audit: AuditFolder, current: CurrentDecisions) -> tuple[pd.DataFrame, list[str], str]:
    """The audited table, or the audit's samples in the order of their ids if there is no table; notes; and how many
    are reviewed.

    The grade column holds the decided grades; the last decision about a sample counts. Four columns are added:
    original_grade and, for reviewed samples, reviewed_by, reviewed_at (UTC) and decision.
    """
    table, lines, column, notes = _audited_table(audit)
    decisions = {entry.id: entry for entry in current.all()}
    if unknown := decisions.keys() - audit.line_of.keys():
        notes.append(f"Decisions left out: {len(unknown):,}; this audit has no sample {min(unknown)}.")
    original = table[column].tolist()
    spellings = _grade_spellings(audit, original, lines)
    grades, decided = list(original), [None if n is None else decisions.get(audit.ids[n]) for n in lines]
    for row, (line, decision) in enumerate(zip(lines, decided, strict=True)):
        if line is None or decision is None:
            continue
        if decision.to_grade not in audit.grades:
            raise SrjtError(
                f"The decision about {decision.id} has the grade {decision.to_grade!r}, which is not a grade of this "
                "audit: decide it again in srjt review."
            )
        if decision.to_grade != audit.grades[audit.labels[line]]:
            grades[row] = spellings[decision.to_grade]
    corrected, added = table.assign(**{column: grades}), {"original_grade": original}
    for name, field in (("reviewed_by", "reviewer"), ("reviewed_at", "at"), ("decision", "action")):
        added[name] = ["" if decision is None else getattr(decision, field) for decision in decided]
    for name, values in added.items():
        # a second review of an exported table keeps the columns of the first
        candidates = (name if n == 1 else f"{name}_{n}" for n in itertools.count(1))
        unused = next(candidate for candidate in candidates if candidate not in corrected)
        corrected[unused] = [neutralise_formula(value) for value in values]
    actions = [decision.action for decision in decided if decision is not None]
    changed, skipped = sum(map(operator.ne, grades, original)), actions.count("skip")
    return corrected, notes, f"{len(actions) - skipped:,} reviewed, {changed:,} changed, {skipped:,} skipped"


def verified_table(audit: AuditFolder, verified: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The audited table with a column ``verified_grade``, and notes. No label is corrected.

    In a corrected table a verified label would be right more often than others, and no longer tell of them.
    """
    table, lines, column, notes = _audited_table(audit)
    spellings = _grade_spellings(audit, table[column].tolist(), lines)
    grades = ["" if line is None else spellings.get(verified.get(audit.ids[line], ""), "") for line in lines]
    return table.assign(verified_grade=grades), notes


def write_table(table: pd.DataFrame, out: Path, *, original: Path | None, overwrite: bool) -> None:
    """Write atomically; never replaces the original, and an existing file only with ``overwrite``."""
    if original is not None and out.exists() and original.exists() and os.path.samefile(out, original):
        raise SrjtError(f"{out} is the original table, which is never overwritten: choose another file.")
    if out.exists() and not overwrite:
        raise exists_already(out)
    warn_about_formulas(table, out)
    write_output(out, as_csv(table))


def training_command(audit: AuditFolder, out: Path, *, columns: Iterable[str] = ()) -> str:
    """The command that trains on the corrected table, with the options that the audited one was read with.

    columns: of the table. Without a split of its own it is trained with a fold: the same patients as before, because
    folds do not depend on labels.
    """
    read_with, audited = audit.facts["read_with"], audit.facts["source"]
    options = dict(zip(read_with[::2], read_with[1::2], strict=False))
    if options.get("--images") == str(out.parent.absolute()):
        del options["--images"]
    source = [str(out)]
    if (
        audit.facts["features"] and audit.table != Path(audited).absolute()
    ):  # features and labels in two files
        source = [audited, "--labels", str(out)]
    elif audit.table is None:  # the exported table has its own columns, and absolute paths
        options = {name: value for name, value in options.items() if name == "--grades"}
    fold = [] if "split" in map(str.casefold, columns) else ["--fold", "0"]
    words = [*source, *itertools.chain(*options.items()), "--out", "run", *fold, "--noise-rate", "auto"]
    return shlex.join(["srjt", "train", *words])


def reviewers_decisions(audit: AuditFolder, log: Sequence[LogEntry]) -> pd.DataFrame:
    """Each reviewer's own last decision per sample, independent of the others, oldest first; a skip is none.

    Columns: id, reviewer, grade, decision, reviewed_at.
    """
    own = [e for name in {e.reviewer for e in log} for e in CurrentDecisions(log, only_reviewer=name).all()]
    rows = [
        (entry.id, entry.reviewer, entry.to_grade, entry.action, entry.at)
        for entry in sorted(own, key=lambda entry: entry.revision)
        if entry.action != "skip" and entry.id in audit.line_of
    ]
    return pd.DataFrame(rows, columns=["id", "reviewer", "grade", "decision", "reviewed_at"], dtype=object)


def agreements(audit: AuditFolder, decisions: pd.DataFrame) -> Iterator[str]:
    """A sentence for every two reviewers who have graded some of the same samples. decisions: of the reviewers.

    Decisions for grades that this audit does not have, as after a change of the grades, do not count.
    """
    codes = decisions["grade"].map({name: code for code, name in enumerate(audit.grades)})
    graded = decisions.assign(grade=codes).pivot(index="id", columns="reviewer", values="grade")
    for one, other in itertools.combinations(graded, 2):
        both = graded[[one, other]].dropna().to_numpy(dtype=np.int64)
        if not len(both):
            continue
        confusion = np.zeros((len(audit.grades), len(audit.grades)))
        np.add.at(confusion, tuple(both.T), 1)
        yield (
            f"{one} and {other} both graded {len(both):,}: they agree on "
            f"{100 * METRICS['accuracy'](confusion):.1f} %, quadratically weighted κ {METRICS['qwk'](confusion):.2f}."
        )


def disagreements(decisions: pd.DataFrame) -> pd.DataFrame:
    """The decisions about samples that reviewers have graded differently; the last one of a sample counts."""
    differing = decisions[decisions.groupby("id")["grade"].transform("nunique") > 1]
    return differing.sort_values("id", kind="stable").reset_index(drop=True)


def _audited_table(audit: AuditFolder) -> tuple[pd.DataFrame, Sequence[int | None], str, list[str]]:
    """What was audited, for each row its line in the audit (None: not audited), the column of labels, and notes."""
    if audit.table is not None:
        return _read_original(audit, audit.table)
    columns = {
        "id": audit.ids,
        "image": [str((audit.folder / name).absolute()) if name else "" for name in audit.images],
        "grade": [audit.grades[label] for label in audit.labels],
        "patient": audit.patients,
        "reader": audit.readers,
    }
    table = pd.DataFrame({name: values for name, values in columns.items() if values is not None}, dtype=str)
    lines = sorted(range(len(audit)), key=audit.ids.__getitem__)
    return table.iloc[lines], lines, "grade", []


def _read_original(audit: AuditFolder, path: Path) -> tuple[pd.DataFrame, list[int | None], str, list[str]]:
    if not path.exists():
        raise SrjtError(f"The audited table {path} does not exist any more: restore it.")
    loaded = load_table(path)
    frame, column = loaded.frame, audit.facts["label_column"]
    if column not in frame:
        raise SrjtError(f"{path} has no column {column!r} any more: restore the audited table.")
    lines = _match_rows(audit, frame, path)
    notes = []
    if loaded.problems:
        notes.append(f"Left out: {count_of(len(loaded.problems), 'malformed row')} of {path.name}.")
    if not_audited := lines.count(None):
        notes.append(f"Not audited and copied unchanged: {count_of(not_audited, 'row')} of {path.name}.")
    codes = grade_values(frame[column].tolist(), names=audit.grades).codes
    edited = [row for row, line in enumerate(lines) if line is not None and codes[row] != audit.labels[line]]
    if edited:
        raise SrjtError(
            f"{path} has changed since the audit: {loaded.lines[edited[0]]} now has the grade "
            f"{frame[column].iloc[edited[0]]!r} (changed rows: {len(edited):,}). Restore the audited table, or audit "
            "the new one."
        )
    return frame, lines, column, notes


def _match_rows(audit: AuditFolder, frame: pd.DataFrame, path: Path) -> list[int | None]:
    """The line of each row, by the column that holds the audit's ids: an id column, or the names of the images."""

    def relative_path(cell: str) -> str:
        name = posixpath.normpath(cell.replace("\\", "/"))
        inside = Path(name).is_absolute() and Path(name).is_relative_to(path.parent)
        return Path(name).relative_to(path.parent).as_posix() if inside else name

    conversions: list[Callable[[str], str]] = [str, relative_path]
    for column, to_id in itertools.product(frame.columns, conversions):
        lines = [audit.line_of.get(to_id(cell)) for cell in frame[column]]
        if len({line for line in lines if line is not None}) == len(audit):
            return lines
    raise SrjtError(
        f"No column of {path} contains the ids of all audited samples: it has changed since the audit. Restore the "
        "audited table."
    )


def _grade_spellings(
    audit: AuditFolder, original: Sequence[str], lines: Sequence[int | None]
) -> dict[str, str]:
    """How the table writes each grade ("2.0" for 2); the grade's name if the table does not contain it."""
    spelling = {audit.grades[audit.labels[line]]: text for text, line in zip(original, lines, strict=True)
             if line is not None}  # fmt: skip
    return {name: spelling.get(name, name) for name in audit.grades}
