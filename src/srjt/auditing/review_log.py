"""The log of a review: decisions are only ever added, and the current ones follow from the log; how much is
reviewed, the random sample that is graded blindly, and the worklist of further readings.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from srjt.auditing.folder import AuditFolder
from srjt.data.manifest import Manifest, neutralise_formula
from srjt.data.sources.readers_folder import ReadersFolder
from srjt.data.sources.table import load_table
from srjt.errors import SrjtError
from srjt.readers.consensus import NEW_READER

# The log of decisions: entries are only ever added, and the current decisions follow from the log.
#
# SQLite in WAL mode with synchronous=FULL: an acknowledged decision survives kill -9 and a power cut.
# Several servers may write to one log; each reads the entries of the others before it adds its own.

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
    undoes     INTEGER REFERENCES log (revision)
);
-- no decisions: no label follows from a grade that was given without seeing it
CREATE TABLE answers (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    purpose  TEXT NOT NULL CHECK (purpose IN ('verify', 'read')),
    id       TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    at       TEXT NOT NULL,
    grade    TEXT
);
CREATE TRIGGER log_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER log_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER answers_update BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER answers_delete BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
COMMIT;
"""
_LAST_ANSWERS = """
SELECT id, reviewer, at, grade FROM answers
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
    """The sample was decided since the reviewer's page loaded it. ``current``: the decision about it, if any."""

    def __init__(self, current: LogEntry | None) -> None:
        super().__init__("decided in the meantime")
        self.current = current


class CurrentDecisions:
    """The decisions in force after the entries applied so far. ``only_reviewer`` ignores all other reviewers."""

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
        return decisions[-1] if decisions else None

    def all(self) -> Iterator[LogEntry]:
        """One decision per decided sample."""
        return (decisions[-1] for decisions in self.active.values() if decisions)

    def by_reviewer(self, reviewer: str) -> list[LogEntry]:
        """The decisions of one reviewer that are not undone, oldest first."""
        own = (entry for entries in self.active.values() for entry in entries if entry.reviewer == reviewer)
        return sorted(own, key=lambda entry: entry.revision)


class Decisions:
    """The log of one audit folder. ``only_reviewer``: an independent second reading, without the others' decisions."""

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
            rows = self._connection.execute(
                "SELECT * FROM log WHERE revision > ? ORDER BY revision", (after,)
            )
            return [LogEntry(*row) for row in rows]

    def decide(
        self, sample: str, *, reviewer: str, action: Action, grade: str, label: str, seen: int
    ) -> LogEntry:
        """Record ``grade`` for ``sample``; the entry is on disk when this returns.

        label: the grade as given. seen: the last revision of the sample that the reviewer's page knows (0:
        undecided). Raises ``ConflictError`` if there is a newer one.
        """
        with self._transaction():
            if self.current.last_revision.get(sample, 0) != seen:
                raise ConflictError(self.current.get(sample))
            return self._append(sample, reviewer, action, grade, label)

    def undo(self, revision: int, *, reviewer: str, label: str) -> LogEntry:
        """Undo a decision of ``reviewer``; the decision before it is in force again.

        Raises ``ConflictError`` if it is not in force: undone already, or replaced by a later decision.
        """
        with self._transaction():
            entry = next((e for e in self.current.by_reviewer(reviewer) if e.revision == revision), None)
            if entry is None or self.current.get(entry.id) != entry:
                raise ConflictError(None if entry is None else self.current.get(entry.id))
            earlier = self.current.active[entry.id][:-1]
            grade = earlier[-1].to_grade if earlier else label
            return self._append(entry.id, reviewer, "undo", grade, label, undoes=revision)

    def add_answer(self, sample: str, *, purpose: Purpose, reviewer: str, grade: str | None) -> None:
        """Record the grade of a sample, given without seeing its label; None: it cannot be graded."""
        values = (purpose, sample, reviewer, _now(), grade)
        with self._transaction():
            self._insert("answers (purpose, id, reviewer, at, grade)", values)

    def answers(self, purpose: Purpose, *, reviewer: str | None = None) -> list[Answer]:
        """The last answer about each sample by each reviewer, or by this one, oldest first."""
        with self.lock, self._readable_errors("read"):
            answers = [Answer(*row) for row in self._connection.execute(_LAST_ANSWERS, (purpose,))]
        return [answer for answer in answers if reviewer in (None, answer.reviewer)]

    def close(self) -> None:
        with self.lock:
            self._connection.close()

    def _append(
        self, sample: str, reviewer: str, action: Action, grade: str, label: str, undoes: int | None = None
    ) -> LogEntry:
        before = self.current.get(sample)
        from_grade = label if before is None else before.to_grade
        values = (sample, reviewer, _now(), action, from_grade, grade, undoes)
        columns = "log (id, reviewer, at, action, from_grade, to_grade, undoes)"
        return LogEntry(self._insert(columns, values), *values)

    def _insert(self, columns: str, values: tuple[str | int | None, ...]) -> int:
        marks = ",".join("?" * len(values))
        return self._connection.execute(f"INSERT INTO {columns} VALUES ({marks})", values).lastrowid or 0

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
        # SQLite reads zeros where the last page is incomplete. Pages may be missing in the file while they are in
        # the -wal: ask for that file after the number of pages, because other servers write to it.
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
            if type(problem) is sqlite3.DatabaseError:  # none of its subclasses: the file itself is bad
                raise _damaged(self.path, f"is damaged ({problem})") from problem
            reason = getattr(problem, "strerror", None) or problem
            raise SrjtError(f"The decisions in {self.path} cannot be {verb}: {reason}.") from problem


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@cache
def _own_schema() -> set[tuple[str, ...]]:
    """What a log contains: tables and triggers, word by word."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema(connection)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_exists(path: Path) -> bool:
    """Whether there is a log. Raises ``SrjtError`` if it is empty, or missing while its journal is there.

    SQLite does not report either: it takes an empty file for a new database and deletes its -wal.
    """
    if os.path.islink(path):  # a folder from somebody else must not write to another log
        raise SrjtError(f"{path} is a link: replace it by the file that it points to, or delete it.")
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
        f"{path} {how}, so decisions may have been lost: restore a copy of it, or delete {path.name}* in that "
        "folder to start again."
    )


def _create_log(path: Path) -> None:
    """Create an empty log under its name in one step, so that a kill in between does not look like a loss."""
    with tempfile.TemporaryDirectory(prefix=".decisions-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript(_SCHEMA)
        try:
            os.link(draft, path)  # unlike a rename, never replaces a log that another server has just created
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
    # expected proportion of wrong labels: Σ (1 − quality) over those not reviewed, / N; None: the networks know nothing
    remaining_noise: float | None = None

    def __str__(self) -> str:
        beyond = f" and {self.beyond:,} beyond" if self.beyond else ""
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        noise = self.remaining_noise
        remaining = "" if noise is None else f", estimated remaining noise {100 * noise:.1f} %"
        return f"{self.reviewed:,} of {self.queue:,} reviewed{beyond}, {self.changed:,} changed{skipped}{remaining}"


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
    remaining = max(0.0, doubt / len(audit)) if audit.facts["judged"] else None
    return Progress(queue=queue, remaining_noise=remaining, **counts)


# A random sample of the audited labels, and the grades that reviewers give it without seeing the label.

SEED = 0  # the same sample for every reviewer of an audit


def draw_sample(audit: AuditFolder, size: int) -> list[int]:
    """The lines of a simple random sample, in random order: every set of labels is equally likely.

    Labels are drawn, not patients, so that the share of wrong ones is unbiased. A larger sample begins with the
    smaller one, and the sample depends on the ids alone: a repeated audit has the same.
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
    """The verified grade of each sample, by id; the last answer counts. Empty if nothing was verified."""
    grades = {answer.id: answer.grade for answer in read_answers(folder, "verify")}
    return {sample: grade for sample, grade in grades.items() if grade is not None}


def with_verified_grades(manifest: Manifest, verified: dict[str, str]) -> Manifest:
    """The samples with these verified grades, beside those that the manifest has already."""
    if not verified:
        return manifest
    earlier = manifest.verified_labels
    grades = np.full(len(manifest), -1, dtype=np.int64) if earlier is None else earlier
    code_of = {name: code for code, name in enumerate(manifest.grades)}
    for row, name in enumerate(manifest.ids):
        grades[row] = code_of.get(verified.get(name, ""), grades[row])
    return replace(manifest, table=manifest.table.assign(verified_grade=grades))


# A worklist of ``srjt readers``: the images that each reviewer reads once more, and their readings as a
# table.


def worklist_lines(path: Path, source: AuditFolder | ReadersFolder, *, reviewer: str) -> list[int]:
    """The lines of the images that this reviewer is to read, in the order of the list, and nobody else's.

    What is for a new reader is for any reviewer who is not among the earlier readers.
    """
    frame = load_table(path).frame
    item = next((name for name in ("item", "image", "id") if name in frame), None)
    if item is None or "reader" not in frame:
        raise SrjtError(
            f"{path} has no columns image and reader, so it is no worklist: srjt readers TABLE --next 50 --worklist "
            "FILE writes one."
        )
    own = frame[frame["reader"].isin([reviewer, neutralise_formula(reviewer)])]
    if not len(own) and reviewer not in (source.readers or ()):
        own = frame[frame["reader"] == NEW_READER]
    if not len(own):
        names = ", ".join(sorted(set(frame["reader"]))[:8])
        raise SrjtError(
            f"{path} has nothing for the reviewer {reviewer!r}; it is for {names}. Give the name with --reviewer."
        )
    lines = [source.line_of[name] for name in dict.fromkeys(own[item]) if name in source.line_of]
    if not lines:
        raise SrjtError(f"No image of {path} is in {source.folder}: the worklist belongs to other images.")
    if not any(source.images[line] for line in lines):
        raise SrjtError(
            f"{source.folder} has no image files to show: run srjt readers again with --images DIR, the folder of the "
            "images."
        )
    return lines


def new_readings(
    source: AuditFolder | ReadersFolder, answers: list[Answer]
) -> tuple[pd.DataFrame, list[str]]:
    """The earlier readings, if the folder has them, followed by the new ones: a long table; and notes.

    An answer without a grade ("cannot tell") is no reading.
    """
    graded = [(a.id, a.reviewer, a.grade, a.at) for a in answers if a.grade is not None]
    rows = [row for row in graded if row[0] in source.line_of and row[2] in source.grades]
    notes = []
    if left_out := len(graded) - len(rows):
        notes.append(f"Readings left out: {left_out:,}; an image or a grade is not known here.")
    earlier = source.folder / "readings.csv"
    table = load_table(earlier).frame if isinstance(source, ReadersFolder) and earlier.exists() else None
    item = "item" if table is not None and "item" in table else "image"
    new = pd.DataFrame(rows, columns=[item, "reader", "grade", "date"], dtype=str)
    for column in ("reader", "grade"):
        new[column] = [neutralise_formula(cell) for cell in new[column]]
    if table is None:
        return new, notes
    about_item = [name for name in ("image", "patient", "reference") if name in table and name != item]
    by_item = table.drop_duplicates(item).set_index(item)[about_item]
    kept = table.drop(columns=["consensus", "probability"], errors="ignore")  # they are computed again
    return pd.concat([kept, new.join(by_item, on=item)], ignore_index=True).fillna(""), notes
