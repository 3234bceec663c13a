"""The log of a review: decisions are only ever added, and the current ones follow from the log; how
much is reviewed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal

from srjt.auditing.folder import AuditFolder
from srjt.errors import SrjtError

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

    @property
    def second(self) -> str:
        """When, as ``readings.csv`` has it."""
        return self.at[: len("2024-05-31T12:00:00")]


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

    def verified(self) -> dict[str, Answer]:
        """The last answer about each sample that was verified, by id; none that has no grade."""
        last = {answer.id: answer for answer in self.answers("verify")}
        return {name: answer for name, answer in last.items() if answer.grade is not None}

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
                f"The decisions in {self.path} cannot be {verb}: {reason}.", code="unreadable_file"
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
            f"{path} is a link: replace it by the file that it points to, or delete it.",
            code="unsafe_file",
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


def _damaged(path: Path, problem: str) -> SrjtError:
    return SrjtError(
        f"{path} {problem}, so decisions may have been lost: restore a copy of it, or delete"
        f" {path.name}* in that folder to start again.",
        code="damaged_file",
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
    # expected proportion of wrong labels: Σ (1 − quality) over those neither reviewed nor verified
    # here, / N; None: it is not known
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


def review_progress(
    audit: AuditFolder, current: CurrentDecisions, *, queue: int, verified: Iterable[str] = ()
) -> Progress:
    """A reviewed label counts as right, a skipped one as before. verified: ids of the labels that
    are verified here; the corrected table has their true grades."""
    counts = {"reviewed": 0, "skipped": 0, "beyond": 0, "changed": 0}
    mended = {audit.line_of[name] for name in verified if name in audit.line_of}
    for decision in current.all():
        line = audit.line_of.get(decision.id)
        if line is None:  # from an earlier audit of other samples
            continue
        if decision.action == "skip":
            counts["skipped"] += line < queue
            continue
        counts["reviewed" if line < queue else "beyond"] += 1
        counts["changed"] += decision.to_grade != audit.grades[audit.labels[line]]
        mended.add(line)
    remaining = None
    if audit.facts.judged and audit.determined:
        doubt = 1 - audit.quality
        doubt[list(mended)] = 0.0
        remaining = float(doubt.mean())
    return Progress(queue=queue, remaining_noise=remaining, **counts)
