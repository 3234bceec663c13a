"""The tables that a review exports: the corrected labels, the verified grades, and what reviewers
decided differently.
"""

from __future__ import annotations

import itertools
import operator
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.auditing.review_log import Answer, CurrentDecisions, LogEntry
from srjt.data.grades import grade_values, positions
from srjt.data.manifest import neutralise_formula, warn_about_formulas
from srjt.data.options import picked, without_none
from srjt.data.sources.table import load_table, relative_name
from srjt.errors import SrjtError, count_of
from srjt.files import as_csv, exists_already, unused_name, write_output
from srjt.ordinal.metrics import METRICS

VERIFY = "verify"  # what the column decision says of a verified grade


def corrected_table(
    audit: AuditFolder, current: CurrentDecisions, verified: Mapping[str, Answer]
) -> tuple[pd.DataFrame, list[str], str]:
    """The audited table, or the audit's samples in the order of their ids if there is no table;
    notes; and how many are reviewed.

    verified: the grades that were given without seeing the label, by id. The grade column holds the
    decided and the verified grades; the last one of a sample counts. Four columns are added:
    original_grade and, for these samples, reviewed_by, reviewed_at (UTC) and decision ("verify" for
    a verified grade).
    """
    table, lines, column, notes = _audited_table(audit)
    decisions: dict[str, LogEntry | Answer] = {entry.id: entry for entry in current.all()}
    if unknown := decisions.keys() - audit.line_of.keys():
        notes.append(
            f"Decisions left out: {len(unknown):,}; this audit has no sample {min(unknown)}."
        )
    for name, answer in verified.items():
        before = decisions.get(name)
        skipped = isinstance(before, LogEntry) and before.action == "skip"
        if answer.grade in audit.grades and (before is None or skipped or before.at < answer.at):
            decisions[name] = answer
    original = table[column].tolist()
    spellings = _grade_spellings(audit, original, lines)
    grades = list(original)
    blank = [""] * len(lines)
    added = {
        "original_grade": original,
        "reviewed_by": list(blank),
        "reviewed_at": list(blank),
        "decision": list(blank),
    }
    for row, line in enumerate(lines):
        if line is None or audit.ids[line] not in decisions:
            continue
        decision = decisions[audit.ids[line]]
        grade = decision.to_grade if isinstance(decision, LogEntry) else decision.grade
        if grade is None or grade not in audit.grades:
            raise SrjtError(
                f"The decision about {decision.id} has the grade {grade!r}, which is"
                " not a grade of this audit: decide it again in srjt review.",
                code="unknown_grade",
            )
        if grade != audit.grades[audit.labels[line]]:
            grades[row] = spellings[grade]
        added["reviewed_by"][row] = decision.reviewer
        added["reviewed_at"][row] = decision.at
        added["decision"][row] = decision.action if isinstance(decision, LogEntry) else VERIFY
    corrected = table.assign(**{column: grades})
    for name, values in added.items():
        # a second review of an exported table keeps the columns of the first
        unused = name
        for number in itertools.count(2):
            if unused not in corrected:
                break
            unused = f"{name}_{number}"
        corrected[unused] = list(map(neutralise_formula, values))
    wrong = np.flatnonzero((audit.verified >= 0) & (audit.verified != audit.labels))
    if left := sum(audit.ids[line] not in decisions for line in wrong):
        notes.append(
            f"Not applied: {count_of(left, 'verified grade')} of the table that differ from the"
            " label. Estimating the noise rate needs these labels as they are."
        )
    return corrected, notes, _counted(added["decision"], list(map(operator.ne, grades, original)))


def _counted(decisions: Sequence[str], changed: Sequence[bool]) -> str:
    """How many labels are reviewed and verified, and how many of them are changed."""
    corrected = Counter(itertools.compress(decisions, changed))
    counts = Counter(filter(None, decisions))
    checked = counts.pop(VERIFY, 0)
    corrected_by_sample = corrected.pop(VERIFY, 0)
    text = (
        f"{counts.total() - counts['skip']:,} reviewed, {corrected.total():,} changed,"
        f" {counts['skip']:,} skipped"
    )
    if checked:
        text += f"; {corrected_by_sample:,} of {count_of(checked, 'verified label')} changed"
    return text


def verified_table(
    audit: AuditFolder, verified: Mapping[str, str], probability: Mapping[str, float] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The audited table with a column ``verified_grade``, and notes. No label is corrected.

    In a corrected table a verified label would be right more often than others, and no longer tell
    of them. probability: with which each verified label was drawn, for a column
    ``verified_probability``.
    """
    table, lines, column, notes = _audited_table(audit)
    spellings = _grade_spellings(audit, table[column].tolist(), lines)
    grades = [""] * len(lines)
    chances = [""] * len(lines)
    for row, line in enumerate(lines):
        name = "" if line is None else audit.ids[line]
        grades[row] = spellings.get(verified.get(name, ""), "")
        if grades[row] and probability and name in probability:
            chances[row] = repr(probability[name])
    checked = table.assign(verified_grade=grades)
    if probability is not None:
        checked["verified_probability"] = chances
    return checked, notes


def write_table(table: pd.DataFrame, out: Path, *, original: Path | None, overwrite: bool) -> None:
    """Write atomically; never replaces the original, and an existing file only with
    ``overwrite``."""
    if (
        original is not None
        and out.exists()
        and original.exists()
        and os.path.samefile(out, original)
    ):
        raise SrjtError(
            f"{out} is the original table, which is never overwritten: choose another file.",
            code="file_exists",
            option="out",
        )
    if out.exists() and not overwrite:
        raise exists_already(out)
    warn_about_formulas(table, out)
    write_output(out, as_csv(table))


def training_command(audit: AuditFolder, out: Path, *, columns: Iterable[str] = ()) -> str:
    """The command that trains on the corrected table, with the options that the audited one was
    read with.

    columns: of the table. Without a split of its own it is trained with a fold: the same patients
    as before, because folds do not depend on labels, if all images were audited.
    """
    audited = audit.facts.source
    options = _read_options(audit)
    if options.get("--images") == str(out.parent.absolute()):
        del options["--images"]
    source = [str(out)]
    # features and labels in two files
    if audit.facts.features and audit.table != Path(audited).absolute():
        source = [audited, "--labels", str(out)]
    elif audit.table is None:  # the exported table has its own columns, and absolute paths
        options = picked(options, ["--grades"])
    words = ["srjt", "train", *source, *itertools.chain(*options.items())]
    words += ["--out", unused_name("run")]
    if "split" not in map(str.casefold, columns):
        words += ["--fold", "0"]
    return shlex.join([*words, "--noise-rate", "auto"])


def reviewers_decisions(audit: AuditFolder, log: Sequence[LogEntry]) -> pd.DataFrame:
    """Each reviewer's own last decision per sample, independent of the others, oldest first; a skip
    is none.

    Columns: id, reviewer, grade, decision, reviewed_at.
    """
    entries: list[LogEntry] = []
    for reviewer in {entry.reviewer for entry in log}:
        entries += CurrentDecisions(log, only_reviewer=reviewer).all()
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.revision):
        if entry.action != "skip" and entry.id in audit.line_of:
            rows.append((entry.id, entry.reviewer, entry.to_grade, entry.action, entry.at))
    return pd.DataFrame(
        rows, columns=["id", "reviewer", "grade", "decision", "reviewed_at"], dtype=object
    )


def agreements(audit: AuditFolder, decisions: pd.DataFrame) -> Iterator[str]:
    """A sentence for every two reviewers who have graded some of the same samples. decisions: of
    the reviewers.

    Decisions for grades that this audit does not have, as after a change of the grades, do not
    count.
    """
    codes = decisions["grade"].map(positions(audit.grades))
    graded = decisions.assign(grade=codes).pivot(index="id", columns="reviewer", values="grade")
    for one, other in itertools.combinations(graded, 2):
        if not len(both := graded[[one, other]].dropna().to_numpy(dtype=np.int64)):
            continue
        confusion = np.zeros((len(audit.grades), len(audit.grades)))
        np.add.at(confusion, tuple(both.T), 1)
        yield (
            f"{one} and {other} both graded {len(both):,}: they agree on"
            f" {100 * METRICS['accuracy'](confusion):.1f} %, quadratically weighted κ"
            f" {METRICS['qwk'](confusion):.2f}."
        )


def disagreements(decisions: pd.DataFrame) -> pd.DataFrame:
    """The decisions about samples that reviewers have graded differently; the last one of a sample
    counts."""
    differing = decisions[decisions.groupby("id")["grade"].transform("nunique") > 1]
    return differing.sort_values("id", kind="stable").reset_index(drop=True).map(neutralise_formula)


def _audited_table(audit: AuditFolder) -> tuple[pd.DataFrame, Sequence[int | None], str, list[str]]:
    """What was audited, for each row its line in the audit (None: not audited), the column of
    labels, and notes."""
    if audit.table is not None:
        return _read_original(audit, audit.table)
    columns = {
        "id": audit.ids,
        "image": [str((audit.folder / name).absolute()) if name else "" for name in audit.images],
        "grade": [audit.grades[grade] for grade in audit.labels],
        "patient": audit.patients,
        "reader": audit.readers,
    }
    table = pd.DataFrame(without_none(columns), dtype=str)
    lines = sorted(range(len(audit)), key=audit.ids.__getitem__)
    note = (
        "The table has the audited images alone, with one grade each. If images were left out,"
        " --fold 0 has other test patients than before: --splits RUN keeps those of an earlier run."
    )
    return table.iloc[lines], lines, "grade", [note]


def _read_original(
    audit: AuditFolder, path: Path
) -> tuple[pd.DataFrame, list[int | None], str, list[str]]:
    if not path.exists():
        raise SrjtError(
            f"The audited table {path} does not exist any more: restore it.", code="missing_file"
        )
    loaded = load_table(path)
    frame = loaded.frame
    column = audit.facts.label_column
    if column not in frame:
        raise SrjtError(
            f"{path} has no column {column!r} any more: restore the audited table.",
            code="missing_column",
        )
    lines = _match_rows(audit, frame, path)
    notes = []
    if loaded.problems:
        notes.append(f"Left out: {count_of(len(loaded.problems), 'malformed row')} of {path.name}.")
    if not_audited := lines.count(None):
        notes.append(
            f"Not audited and copied unchanged: {count_of(not_audited, 'row')} of {path.name}."
        )
    codes = grade_values(frame[column].tolist(), names=audit.grades).codes
    edited = []
    for row, line in enumerate(lines):
        if line is not None and codes[row] != audit.labels[line]:
            edited.append(row)
    if edited:
        raise SrjtError(
            f"{path} has changed since the audit: {loaded.lines[edited[0]]} now has the grade"
            f" {frame[column].iloc[edited[0]]!r} (changed rows: {len(edited):,}). Restore the"
            " audited table, or audit the new one.",
            code="data_changed",
        )
    return frame, lines, column, notes


def _match_rows(audit: AuditFolder, frame: pd.DataFrame, path: Path) -> list[int | None]:
    """The line of each row, by the column that holds the audit's ids: an id column, or the names of
    the images, relative to the folder that they were read from."""
    folders = [path.parent]
    if (images := _read_options(audit).get("--images")) is not None:
        folders.insert(0, Path(images))
    conversions: list[Callable[[str], str]] = [str]
    conversions += [partial(relative_name, root=folder) for folder in folders]
    most: set[int | None] = set()
    for column, to_id in itertools.product(frame.columns, conversions):
        lines = [audit.line_of.get(to_id(cell)) for cell in frame[column]]
        found = set(lines) - {None}
        if len(found) == len(audit):
            return lines
        most = max(most, found, key=len)
    missing = next(name for line, name in enumerate(audit.ids) if line not in most)
    raise SrjtError(
        f"No column of {path} contains the ids of all audited samples: {missing!r} is missing."
        " Restore the audited table.",
        code="data_changed",
    )


def _read_options(audit: AuditFolder) -> dict[str, str]:
    """The options that the audited table was read with."""
    words = audit.facts.read_with
    return dict(zip(words[::2], words[1::2], strict=False))


def _grade_spellings(
    audit: AuditFolder, original: Sequence[str], lines: Sequence[int | None]
) -> dict[str, str]:
    """How the table writes each grade ("2.0" for 2); the grade's name if the table does not contain
    it."""
    spelling = dict(zip(audit.grades, audit.grades, strict=True))
    for text, line in zip(original, lines, strict=True):
        if line is not None:
            spelling[audit.grades[audit.labels[line]]] = text
    return spelling
