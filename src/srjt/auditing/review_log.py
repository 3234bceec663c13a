"""The log of a review: decisions are only ever added, and the current ones follow from the log; how
much is reviewed, the random sample that is graded blindly, the worklist of further readings, and
the tables that are exported.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import os
import shlex
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.choose import pick, present
from srjt.data.grades import grade_values, positions
from srjt.data.manifest import Manifest, neutralise_formula, warn_about_formulas
from srjt.data.names import join_all_names
from srjt.data.options import picked, without_none
from srjt.data.sources.readers_folder import ReadersFolder
from srjt.data.sources.table import load_table, relative_name
from srjt.errors import SrjtError, count_of
from srjt.files import as_csv, exists_already, write_output
from srjt.ordinal.metrics import METRICS
from srjt.readers.consensus import NEW_READER

# The log of decisions: entries are only ever added, and the current decisions follow from the log.
#
# SQLite in WAL mode with synchronous=FULL: an acknowledged decision survives kill -9 and a power
# cut. Several servers may write to one log; each reads the entries of the others before it adds its
# own. SQLite notices a damaged structure, but no changed text: each entry has the SHA-256 of its
# values.

Action = Literal["set", "accept", "keep", "skip", "undo"]
# of a grade given without seeing the label: a random sample, or a worklist
Purpose = Literal["verify", "read"]

_SCHEMA = """
BEGIN;
CREATE TABLE log (
    revision   INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    reviewer   TEXT NOT NULL,
    at         TEXT NOT NULL,
    action     TEXT NOT NULL CHECK (action IN ('set', 'accept', 'keep', 'skip', 'undo')),
    from_grade TEXT NOT NULL,
    to_grade   TEXT NOT NULL,
    undoes     INTEGER REFERENCES log (revision),
    sha256     TEXT NOT NULL
);
-- no decisions: no label follows from a grade that was given without seeing it
CREATE TABLE answers (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    purpose  TEXT NOT NULL CHECK (purpose IN ('verify', 'read')),
    id       TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    at       TEXT NOT NULL,
    grade    TEXT,
    sha256   TEXT NOT NULL
);
CREATE TRIGGER log_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER log_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER answers_update BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER answers_delete BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
COMMIT;
"""
_LAST_ANSWERS = """
SELECT purpose, id, reviewer, at, grade, sha256 FROM answers
WHERE revision IN (SELECT max(revision) FROM answers WHERE purpose = ? GROUP BY id, reviewer)
ORDER BY revision
"""


@dataclass(frozen=True)
class LogEntry:
    """One entry of the log. ``from_grade`` and ``to_grade`` are names of grades."""

    revision: int
    id: str
    reviewer: str
    at: str  # UTC, ISO 8601
    action: Action
    from_grade: str
    to_grade: str
    undoes: int | None = None


@dataclass(frozen=True)
class Answer:
    """A grade that was given without seeing the label; None: the sample cannot be graded."""

    id: str
    reviewer: str
    at: str  # UTC, ISO 8601
    grade: str | None


class ConflictError(Exception):
    """The sample was decided since the reviewer's page loaded it. ``current``: the decision about
    it, if any."""

    def __init__(self, current: LogEntry | None) -> None:
        super().__init__("decided in the meantime")
        self.current = current


class CurrentDecisions:
    """The decisions in force after the entries applied so far. ``only_reviewer`` ignores all other
    reviewers."""

    def __init__(self, log: Iterable[LogEntry] = (), *, only_reviewer: str | None = None) -> None:
        self.only_reviewer = only_reviewer
        self.revision = 0  # of the last entry applied
        self.active: dict[str, list[LogEntry]] = {}  # per id, not undone, oldest first
        self.last_revision: dict[str, int] = {}  # per id, of the last entry about it
        for entry in log:
            self.apply(entry)

    def apply(self, entry: LogEntry) -> None:
        self.revision = entry.revision
        if self.only_reviewer not in (None, entry.reviewer):
            return
        self.last_revision[entry.id] = entry.revision
        decisions = self.active.setdefault(entry.id, [])
        if entry.action == "undo":
            decisions[:] = [decision for decision in decisions if decision.revision != entry.undoes]
        else:
            decisions.append(entry)

    def get(self, sample: str) -> LogEntry | None:
        """The decision about a sample: the last one, of any reviewer."""
        decisions = self.active.get(sample)
        if not decisions:
            return None
        return decisions[-1]

    def all(self) -> Iterator[LogEntry]:
        """One decision per decided sample."""
        return (decisions[-1] for decisions in self.active.values() if decisions)

    def by_reviewer(self, reviewer: str) -> list[LogEntry]:
        """The decisions of one reviewer that are not undone, oldest first."""
        entries = itertools.chain.from_iterable(self.active.values())
        theirs = filter(lambda entry: entry.reviewer == reviewer, entries)
        return sorted(theirs, key=lambda entry: entry.revision)


class Decisions:
    """The log of one audit folder. ``only_reviewer``: an independent second reading, without the
    others' decisions."""

    def __init__(self, path: Path, *, only_reviewer: str | None = None) -> None:
        self.path = path
        self.current = CurrentDecisions(only_reviewer=only_reviewer)
        self.lock = threading.RLock()  # take it to read several values of one moment
        with self._readable_errors("opened"):
            if not log_exists(path):
                _create_log(path)
            self._connection = sqlite3.connect(
                path, timeout=10, isolation_level=None, check_same_thread=False
            )
            try:
                self._check_file()
                # SQLite keeps a rollback journal where the file system does not support WAL.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                self._connection.close()
                raise
        self.refresh()

    def refresh(self) -> None:
        """Apply the entries that were added since, here or by another process."""
        with self.lock:
            for entry in self.log(after=self.current.revision):
                self.current.apply(entry)

    def log(self, *, after: int = 0) -> list[LogEntry]:
        """The entries after a revision."""
        with self.lock, self._readable_errors("read"):
            query = "SELECT * FROM log WHERE revision > ? ORDER BY revision"
            rows = self._connection.execute(query, (after,)).fetchall()
        return [LogEntry(revision, *self._checked(values)) for revision, *values in rows]

    def decide(
        self, sample: str, *, reviewer: str, action: Action, grade: str, label: str, seen: int
    ) -> LogEntry:
        """Record ``grade`` for ``sample``; the entry is on disk when this returns.

        label: the grade as given. seen: the last revision of the sample that the reviewer's page
        knows (0: undecided). Raises ``ConflictError`` if there is a newer one.
        """
        with self._transaction():
            if self.current.last_revision.get(sample, 0) != seen:
                raise ConflictError(self.current.get(sample))
            return self._append(sample, reviewer, action, grade, label)

    def undo(self, revision: int, *, reviewer: str, label: str) -> LogEntry:
        """Undo a decision of ``reviewer``; the decision before it is in force again.

        Raises ``ConflictError`` if it is not in force: undone already, or replaced by a later
        decision.
        """
        with self._transaction():
            entries = {entry.revision: entry for entry in self.current.by_reviewer(reviewer)}
            if revision not in entries:
                raise ConflictError(None)
            sample = entries[revision].id
            if self.current.get(sample) != entries[revision]:
                raise ConflictError(self.current.get(sample))
            earlier = self.current.active[sample][:-1]
            grade = label
            if earlier:
                grade = earlier[-1].to_grade
            return self._append(sample, reviewer, "undo", grade, label, undoes=revision)

    def add_answer(
        self, sample: str, *, purpose: Purpose, reviewer: str, grade: str | None
    ) -> None:
        """Record the grade of a sample, given without seeing its label; None: it cannot be
        graded."""
        values = (purpose, sample, reviewer, _now(), grade)
        with self._transaction():
            self._insert("answers (purpose, id, reviewer, at, grade, sha256)", values)

    def answers(self, purpose: Purpose, *, reviewer: str | None = None) -> list[Answer]:
        """The last answer about each sample by each reviewer, or by this one, oldest first."""
        with self.lock, self._readable_errors("read"):
            rows = self._connection.execute(_LAST_ANSWERS, (purpose,)).fetchall()
        answers = []
        for row in rows:
            answer = Answer(*self._checked(row)[1:])
            if reviewer in (None, answer.reviewer):
                answers.append(answer)
        return answers

    def close(self) -> None:
        with self.lock:
            self._connection.close()

    def _append(
        self,
        sample: str,
        reviewer: str,
        action: Action,
        grade: str,
        label: str,
        undoes: int | None = None,
    ) -> LogEntry:
        before = self.current.get(sample)
        from_grade = label if before is None else before.to_grade
        values = (sample, reviewer, _now(), action, from_grade, grade, undoes)
        columns = "log (id, reviewer, at, action, from_grade, to_grade, undoes, sha256)"
        return LogEntry(self._insert(columns, values), *values)

    def _insert(self, columns: str, values: tuple[str | int | None, ...]) -> int:
        """Add a row; the last column is the SHA-256 of the others."""
        marks = ",".join("?" * (len(values) + 1))
        row = (*values, _sha256(values))
        return (
            self._connection.execute(f"INSERT INTO {columns} VALUES ({marks})", row).lastrowid or 0
        )

    def _checked(self, row: Sequence[Any]) -> Sequence[Any]:
        """The values of a row, if they are as they were written."""
        *values, written = row
        if _sha256(values) != written:
            raise _damaged(self.path, "is damaged (an entry was changed)")
        return values

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Lock the log, read all entries so far, and commit to disk at the end."""
        with self.lock, self._readable_errors("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self.refresh()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self.refresh()  # our own entry counts only now that it is on disk

    def _check_file(self) -> None:
        """Refuse a file that is damaged, incomplete or not ours."""
        if _schema(self._connection) != _own_schema():  # a view or a trigger could do anything
            raise _damaged(self.path, "is no log of decisions of this version of srjt")
        if (problem := self._pragma("quick_check")) != "ok":
            raise _damaged(self.path, f"is damaged ({problem})")
        # SQLite reads zeros where the last page is incomplete. Pages may be missing in the file
        # while they are in the -wal: ask for that file after the number of pages, because other
        # servers write to it.
        expected = self._pragma("page_count") * self._pragma("page_size")
        if not _pending_files(self.path) and (size := self.path.stat().st_size) < expected:
            raise _damaged(self.path, f"is cut off after {size:,} of {expected:,} bytes")

    def _pragma(self, name: str) -> Any:
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _readable_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            # none of its subclasses: the file itself is bad
            if type(problem) is sqlite3.DatabaseError:
                raise _damaged(self.path, f"is damaged ({problem})") from problem
            reason = getattr(problem, "strerror", None) or problem
            raise SrjtError(
                f"The decisions in {self.path} cannot be {verb}: {reason}."
            ) from problem


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@cache
def _own_schema() -> set[tuple[str, ...]]:
    """What a log contains: tables and triggers, word by word."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema(connection)


def _sha256(values: Sequence[str | int | None]) -> str:
    # default: a file of somebody else may contain bytes
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_exists(path: Path) -> bool:
    """Whether there is a log. Raises ``SrjtError`` if it is empty, or missing while its journal is
    there.

    SQLite does not report either: it takes an empty file for a new database and deletes its -wal.
    """
    if os.path.islink(path):  # a folder from somebody else must not write to another log
        raise SrjtError(
            f"{path} is a link: replace it by the file that it points to, or delete it."
        )
    pending = _pending_files(path)  # first: another server creates the log before its -wal
    if not os.path.exists(path):
        if pending:
            raise _damaged(path, f"is missing, but {pending[0].name} is there")
        return False
    if not path.stat().st_size:
        raise _damaged(path, "is empty")
    return True


def _pending_files(path: Path) -> list[Path]:
    """The non-empty files from which SQLite completes the log."""
    pending = []
    for file in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
        with suppress(OSError):  # another server may remove it at any time
            if file.stat().st_size:
                pending.append(file)
    return pending


def _damaged(path: Path, how: str) -> SrjtError:
    return SrjtError(
        f"{path} {how}, so decisions may have been lost: restore a copy of it, or delete"
        f" {path.name}* in that folder to start again."
    )


def _create_log(path: Path) -> None:
    """Create an empty log under its name in one step, so that a kill in between does not look like
    a loss."""
    with tempfile.TemporaryDirectory(prefix=".decisions-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript(_SCHEMA)
        # it names reviewers and patients; SQLite gives its other files the same mode
        draft.chmod(0o600)
        try:
            # unlike a rename, never replaces a log that another server has just created
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            draft.rename(path)


# How many labels are reviewed, and how much noise is estimated to remain.


@dataclass(frozen=True, kw_only=True)
class Progress:
    queue: int  # number of labels to review, the most doubtful ones
    reviewed: int = 0  # of the queue
    skipped: int = 0  # of the queue
    beyond: int = 0  # reviewed outside the queue
    changed: int = 0  # labels that now differ from the given ones, in the queue or not
    # expected proportion of wrong labels: Σ (1 − quality) over those not reviewed, / N; None: it is
    # not known
    remaining_noise: float | None = None

    def __str__(self) -> str:
        text = f"{self.reviewed:,} of {self.queue:,} reviewed"
        if self.beyond:
            text += f" and {self.beyond:,} beyond"
        text += f", {self.changed:,} changed"
        if self.skipped:
            text += f", {self.skipped:,} skipped"
        if self.remaining_noise is not None:
            text += f", estimated remaining noise {100 * self.remaining_noise:.1f} %"
        return text


def review_progress(audit: AuditFolder, current: CurrentDecisions, *, queue: int) -> Progress:
    """A reviewed label counts as right, a skipped one as before."""
    counts = {"reviewed": 0, "skipped": 0, "beyond": 0, "changed": 0}
    doubt = float((1 - audit.quality).sum())
    for decision in current.all():
        line = audit.line_of.get(decision.id)
        if line is None:  # from an earlier audit of other samples
            continue
        if decision.action == "skip":
            counts["skipped"] += line < queue
            continue
        counts["reviewed" if line < queue else "beyond"] += 1
        counts["changed"] += decision.to_grade != audit.grades[audit.labels[line]]
        doubt -= 1 - float(audit.quality[line])
    known = audit.facts.judged and audit.determined
    remaining = max(0.0, doubt / len(audit)) if known else None
    return Progress(queue=queue, remaining_noise=remaining, **counts)


# A random sample of the audited labels, and the grades that reviewers give it without seeing the
# label.

SEED = 0  # the same sample for every reviewer of an audit


def draw_sample(audit: AuditFolder, size: int) -> list[int]:
    """The lines of a simple random sample, in random order: every set of labels is equally likely.

    Labels are drawn, not patients, so that the share of wrong ones is unbiased. A larger sample
    begins with the smaller one, and the sample depends on the ids alone: a repeated audit has the
    same.
    """
    names = sorted(audit.ids)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(names))
    return [audit.line_of[names[place]] for place in order[:size]]


def read_answers(folder: Path, purpose: Purpose) -> list[Answer]:
    """The answers in the log of a folder; none if there is no log."""
    path = folder / "decisions.sqlite"
    if not log_exists(path):
        return []
    with closing(Decisions(path)) as decisions:
        return decisions.answers(purpose)


def read_verified_grades(folder: Path) -> dict[str, str]:
    """The verified grade of each sample, by id; the last answer counts. Empty if nothing was
    verified."""
    return without_none({answer.id: answer.grade for answer in read_answers(folder, "verify")})


def with_verified_grades(manifest: Manifest, verified: dict[str, str]) -> Manifest:
    """The samples with these verified grades, beside those that the manifest has already."""
    if not verified:
        return manifest
    earlier = manifest.verified_labels
    grades = np.full(len(manifest), -1, dtype=np.int64) if earlier is None else earlier
    code_of = positions(manifest.grades)
    for row, name in enumerate(manifest.ids):
        grades[row] = code_of.get(verified.get(name, ""), grades[row])
    return replace(manifest, table=manifest.table.assign(verified_grade=grades))


# A worklist of ``srjt readers``: the images that each reviewer reads once more, and their readings
# as a table.


def worklist_lines(path: Path, source: AuditFolder | ReadersFolder, *, reviewer: str) -> list[int]:
    """The lines of the images that this reviewer is to read, in the order of the list, and nobody
    else's.

    What is for a new reader is for any reviewer who is not among the earlier readers.
    """
    frame = load_table(path).frame
    named_by = present(("item", "image", "id"), frame)
    if not named_by or "reader" not in frame:
        raise SrjtError(
            f"{path} has no columns image and reader, so it is no worklist: srjt readers TABLE"
            " --next 50 --out DIR writes one."
        )
    rows = frame[frame["reader"].isin([reviewer, neutralise_formula(reviewer)])]
    if not len(rows) and reviewer not in (source.readers or ()):
        rows = frame[frame["reader"] == NEW_READER]
    if not len(rows):
        names = ", ".join(sorted(set(frame["reader"]))[:8])
        raise SrjtError(
            f"{path} has nothing for the reviewer {reviewer!r}; it is for {names}. Give the name"
            " with --reviewer."
        )
    wanted = list(dict.fromkeys(rows[named_by[0]]))
    joined = join_all_names(wanted, source.ids, wanted_in=str(path), known_in=str(source.folder))
    lines: list[int] = joined.tolist()
    if not any(pick(source.images, lines)):
        raise SrjtError(
            f"{source.folder} has no image files to show: run srjt readers again with --images DIR,"
            " the folder of the images."
        )
    return lines


def new_readings(
    source: AuditFolder | ReadersFolder, answers: list[Answer]
) -> tuple[pd.DataFrame, list[str]]:
    """The earlier readings, if the folder has them, followed by the new ones: a long table; and
    notes.

    An answer without a grade ("cannot tell") is no reading.
    """
    rows = []
    left_out = 0
    for answer in answers:
        if answer.grade is None:
            continue
        if answer.id in source.line_of and answer.grade in source.grades:
            reader = neutralise_formula(answer.reviewer)
            rows.append((answer.id, reader, neutralise_formula(answer.grade), answer.at))
        else:
            left_out += 1
    notes = []
    if left_out:
        notes.append(f"Readings left out: {left_out:,}; an image or a grade is not known here.")
    earlier = source.folder / "readings.csv"
    columns = ["image", "reader", "grade", "date"]
    if not isinstance(source, ReadersFolder) or not earlier.exists():
        return pd.DataFrame(rows, columns=columns, dtype=str), notes
    table = load_table(earlier).frame
    if "item" in table:
        columns[0] = "item"
    new = pd.DataFrame(rows, columns=columns, dtype=str)
    item = columns[0]
    by_item = table.drop_duplicates(item).set_index(item)
    about_item = present(("image", "patient", "reference"), by_item)
    new = new.join(by_item[about_item], on=item)
    kept = table.drop(columns=["consensus", "probability"], errors="ignore")  # computed again
    return pd.concat([kept, new], ignore_index=True).fillna(""), notes


def corrected_table(
    audit: AuditFolder, current: CurrentDecisions
) -> tuple[pd.DataFrame, list[str], str]:
    """The audited table, or the audit's samples in the order of their ids if there is no table;
    notes; and how many are reviewed.

    The grade column holds the decided grades; the last decision about a sample counts. Four columns
    are added: original_grade and, for reviewed samples, reviewed_by, reviewed_at (UTC) and
    decision.
    """
    table, lines, column, notes = _audited_table(audit)
    decisions = {entry.id: entry for entry in current.all()}
    if unknown := decisions.keys() - audit.line_of.keys():
        notes.append(
            f"Decisions left out: {len(unknown):,}; this audit has no sample {min(unknown)}."
        )
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
        if decision.to_grade not in audit.grades:
            raise SrjtError(
                f"The decision about {decision.id} has the grade {decision.to_grade!r}, which is"
                " not a grade of this audit: decide it again in srjt review."
            )
        if decision.to_grade != audit.grades[audit.labels[line]]:
            grades[row] = spellings[decision.to_grade]
        added["reviewed_by"][row] = decision.reviewer
        added["reviewed_at"][row] = decision.at
        added["decision"][row] = decision.action
    corrected = table.assign(**{column: grades})
    for name, values in added.items():
        # a second review of an exported table keeps the columns of the first
        unused = name
        for number in itertools.count(2):
            if unused not in corrected:
                break
            unused = f"{name}_{number}"
        corrected[unused] = list(map(neutralise_formula, values))
    changed = sum(map(operator.ne, grades, original))
    decided = len(lines) - added["decision"].count("")
    skipped = added["decision"].count("skip")
    counted = f"{decided - skipped:,} reviewed, {changed:,} changed, {skipped:,} skipped"
    return corrected, notes, counted


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
            f"{out} is the original table, which is never overwritten: choose another file."
        )
    if out.exists() and not overwrite:
        raise exists_already(out)
    warn_about_formulas(table, out)
    write_output(out, as_csv(table))


def training_command(audit: AuditFolder, out: Path, *, columns: Iterable[str] = ()) -> str:
    """The command that trains on the corrected table, with the options that the audited one was
    read with.

    columns: of the table. Without a split of its own it is trained with a fold: the same patients
    as before, because folds do not depend on labels.
    """
    read_with = audit.facts.read_with
    audited = audit.facts.source
    options = dict(zip(read_with[::2], read_with[1::2], strict=False))
    if options.get("--images") == str(out.parent.absolute()):
        del options["--images"]
    source = [str(out)]
    # features and labels in two files
    if audit.facts.features and audit.table != Path(audited).absolute():
        source = [audited, "--labels", str(out)]
    elif audit.table is None:  # the exported table has its own columns, and absolute paths
        options = picked(options, ["--grades"])
    words = ["srjt", "train", *source, *itertools.chain(*options.items()), "--out", "run"]
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
        "grade": pick(audit.grades, audit.labels),
        "patient": audit.patients,
        "reader": audit.readers,
    }
    table = pd.DataFrame(without_none(columns), dtype=str)
    lines = sorted(range(len(audit)), key=audit.ids.__getitem__)
    return table.iloc[lines], lines, "grade", []


def _read_original(
    audit: AuditFolder, path: Path
) -> tuple[pd.DataFrame, list[int | None], str, list[str]]:
    if not path.exists():
        raise SrjtError(f"The audited table {path} does not exist any more: restore it.")
    loaded = load_table(path)
    frame = loaded.frame
    column = audit.facts.label_column
    if column not in frame:
        raise SrjtError(f"{path} has no column {column!r} any more: restore the audited table.")
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
            " audited table, or audit the new one."
        )
    return frame, lines, column, notes


def _match_rows(audit: AuditFolder, frame: pd.DataFrame, path: Path) -> list[int | None]:
    """The line of each row, by the column that holds the audit's ids: an id column, or the names of
    the images."""
    conversions: list[Callable[[str], str]] = [str, partial(relative_name, root=path.parent)]
    for column, to_id in itertools.product(frame.columns, conversions):
        lines = [audit.line_of.get(to_id(cell)) for cell in frame[column]]
        if len(set(lines) - {None}) == len(audit):
            return lines
    raise SrjtError(
        f"No column of {path} contains the ids of all audited samples: it has changed since the"
        " audit. Restore the audited table."
    )


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
