"""The log of decisions: entries are only ever added, and the current decisions follow from the log.

SQLite in WAL mode with synchronous=FULL: an acknowledged decision survives kill -9 and a power cut. Several servers
may write to one log; each reads the entries of the others before it adds its own.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from srjt.errors import SrjtError

__all__ = [
    "ACTIONS",
    "Action",
    "Answer",
    "ConflictError",
    "CurrentDecisions",
    "Decisions",
    "LogEntry",
    "log_exists",
    "replay",
]

Action = Literal["set", "accept", "keep", "skip", "undo"]
ACTIONS = get_args(Action)

_VERSION = 1
_SCHEMA = f"""
BEGIN;
CREATE TABLE log (
    revision   INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    reviewer   TEXT NOT NULL,
    at         TEXT NOT NULL,
    action     TEXT NOT NULL CHECK (action IN ({", ".join(repr(a) for a in ACTIONS)})),
    from_grade TEXT NOT NULL,
    to_grade   TEXT NOT NULL,
    undoes     INTEGER REFERENCES log (revision)
);
CREATE TRIGGER log_is_not_changed BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER log_is_not_cut BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
PRAGMA user_version = {_VERSION};
COMMIT;
"""
# Grades that are given without seeing the label. They are no decisions: no label follows from them. verified: of a
# random sample; readings: of a worklist. A log lacks them until the first answer.
Answers = Literal["verified", "readings"]
_ANSWERS = (
    """CREATE TABLE IF NOT EXISTS {table} (
        revision INTEGER PRIMARY KEY AUTOINCREMENT,
        id       TEXT NOT NULL,
        reviewer TEXT NOT NULL,
        at       TEXT NOT NULL,
        grade    TEXT
    )""",
    """CREATE TRIGGER IF NOT EXISTS {table}_is_not_changed BEFORE UPDATE ON {table}
        BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
    """CREATE TRIGGER IF NOT EXISTS {table}_is_not_cut BEFORE DELETE ON {table}
        BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
)
_COLUMNS = "revision, id, reviewer, at, action, from_grade, to_grade, undoes"


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

    def __init__(self, current: LogEntry | None, revision: int) -> None:
        super().__init__("decided in the meantime")
        self.current = current
        self.revision = revision


@dataclass
class CurrentDecisions:
    """The decisions in force after the entries applied so far.

    ``only_reviewer`` ignores all other reviewers.
    """

    only_reviewer: str | None = None
    revision: int = 0  # of the last entry applied
    active: dict[str, list[LogEntry]] = field(default_factory=dict)  # per id, not undone, oldest first
    last_revision: dict[str, int] = field(default_factory=dict)  # per id, of the last entry about it

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


def replay(log: Iterable[LogEntry], *, only_reviewer: str | None = None) -> CurrentDecisions:
    """The current decisions after the whole log."""
    current = CurrentDecisions(only_reviewer=only_reviewer)
    for entry in log:
        current.apply(entry)
    return current


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
                self._connection.execute("PRAGMA foreign_keys = ON")
            except BaseException:
                self._connection.close()
                raise
        self.refresh()

    def refresh(self) -> list[LogEntry]:
        """Apply and return the entries that were added since, here or by another process."""
        with self.lock, self._readable_errors("read"):
            return self._apply_new_entries()

    def log(self) -> list[LogEntry]:
        with self.lock, self._readable_errors("read"):
            return self._entries(after=0)

    def decide(
        self, sample: str, *, reviewer: str, action: Action, grade: str, label: str, seen: int
    ) -> LogEntry:
        """Record ``grade`` for ``sample``; the entry is on disk when this returns.

        label: the grade as given. seen: the last revision of the sample that the reviewer's page knows (0:
        undecided). Raises ``ConflictError`` if there is a newer one.
        """
        with self._transaction():
            last = self.current.last_revision.get(sample, 0)
            if last != seen:
                raise ConflictError(self.current.get(sample), last)
            return self._append(sample, reviewer, action, grade, label)

    def undo(self, revision: int, *, reviewer: str, label: str) -> LogEntry:
        """Undo a decision of ``reviewer``; the decision before it is in force again.

        Raises ``ConflictError`` if it is not in force: undone already, or replaced by a later decision.
        """
        with self._transaction():
            entry = next((e for e in self.current.by_reviewer(reviewer) if e.revision == revision), None)
            if entry is None or self.current.get(entry.id) != entry:
                raise ConflictError(None if entry is None else self.current.get(entry.id), revision)
            earlier = self.current.active[entry.id][:-1]
            grade = earlier[-1].to_grade if earlier else label
            return self._append(entry.id, reviewer, "undo", grade, label, undoes=revision)

    def verify(self, sample: str, *, reviewer: str, grade: str | None) -> None:
        """Record the true grade of a sample, given without seeing its label; None: it cannot be graded."""
        self._add_answer("verified", sample, reviewer, grade)

    def verified(self, *, reviewer: str | None = None) -> dict[str, str | None]:
        """The last verified grade of each sample, of this reviewer or of any; None: it cannot be graded."""
        return {a.id: a.grade for a in self._answers("verified") if reviewer in (None, a.reviewer)}

    def add_reading(self, sample: str, *, reviewer: str, grade: str | None) -> None:
        """Record one more reading of a sample on a worklist; None: it cannot be graded."""
        self._add_answer("readings", sample, reviewer, grade)

    def readings(self, *, reviewer: str | None = None) -> list[Answer]:
        """The last reading of each sample by each reviewer, or by this one, oldest first."""
        last = {(a.id, a.reviewer): a for a in self._answers("readings") if reviewer in (None, a.reviewer)}
        return sorted(last.values(), key=lambda answer: answer.at)

    def _add_answer(self, table: Answers, sample: str, reviewer: str, grade: str | None) -> None:
        at = _now()
        with self._transaction():
            for statement in _ANSWERS:
                self._connection.execute(statement.format(table=table))
            self._connection.execute(
                f"INSERT INTO {table} (id, reviewer, at, grade) VALUES (?,?,?,?)",
                (sample, reviewer, at, grade),
            )

    def _answers(self, table: Answers) -> list[Answer]:
        with self.lock, self._readable_errors("read"):
            tables = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if (table,) not in tables.fetchall():
                return []
            rows = self._connection.execute(f"SELECT id, reviewer, at, grade FROM {table} ORDER BY revision")
            return [Answer(*row) for row in rows]

    def close(self) -> None:
        with self.lock:
            self._connection.close()

    def _append(
        self, sample: str, reviewer: str, action: Action, grade: str, label: str, undoes: int | None = None
    ) -> LogEntry:
        before = self.current.get(sample)
        values = (
            sample,
            reviewer,
            _now(),
            action,
            label if before is None else before.to_grade,
            grade,
            undoes,
        )
        added = self._connection.execute(
            "INSERT INTO log (id, reviewer, at, action, from_grade, to_grade, undoes) VALUES (?,?,?,?,?,?,?)",
            values,
        )
        return LogEntry(int(added.lastrowid or 0), *values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Lock the log, read all entries so far, and commit to disk at the end."""
        with self.lock, self._readable_errors("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._apply_new_entries()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._apply_new_entries()  # our own entry counts only now that it is on disk

    def _apply_new_entries(self) -> list[LogEntry]:
        new = self._entries(after=self.current.revision)
        for entry in new:
            self.current.apply(entry)
        return new

    def _entries(self, *, after: int) -> list[LogEntry]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM log WHERE revision > ? ORDER BY revision", (after,)
        )
        return [LogEntry(*row) for row in rows]

    def _check_file(self) -> None:
        """Refuse a file that is damaged, incomplete or not ours."""
        version = self._pragma("user_version")
        if version > _VERSION:
            raise SrjtError(f"{self.path} was written by a newer srjt (format {version}): use that version.")
        if version < _VERSION:
            raise _damaged(self.path, "contains no log of decisions")
        if not _schema(self._connection) <= _own_schema():  # a view or a trigger could do anything
            raise _damaged(self.path, "is no log of decisions of this version")
        if (found := self._pragma("quick_check")) != "ok":
            raise _damaged(self.path, f"is damaged ({found})")
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
        except sqlite3.Error as problem:
            if type(problem) is sqlite3.DatabaseError:  # none of its subclasses: the file itself is bad
                raise _damaged(self.path, f"is damaged ({problem})") from problem
            raise SrjtError(f"The decisions in {self.path} cannot be {verb}: {problem}.") from problem
        except OSError as problem:
            raise SrjtError(
                f"The decisions in {self.path} cannot be {verb}: {problem.strerror or problem}."
            ) from problem


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@cache
def _own_schema() -> set[tuple[str, ...]]:
    """What a log may contain: tables and triggers, word by word."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        for table in get_args(Answers):
            for statement in _ANSWERS:
                connection.execute(statement.format(table=table))
        return _schema(connection)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_exists(path: Path) -> bool:
    """Whether there is a log. Raises ``SrjtError`` if it is empty, or missing while its journal is there.

    SQLite does not report either: it takes an empty file for a new database and deletes its -wal.
    """
    if path.is_symlink():  # a folder from somebody else must not write to another log
        raise SrjtError(f"{path} is a link: replace it by the file that it points to, or delete it.")
    pending = _pending_files(path)  # first: another server creates the log before its -wal
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if pending:
            raise _damaged(path, f"is missing, but {pending[0].name} is there") from None
        return False
    except OSError as problem:
        raise SrjtError(f"The decisions in {path} cannot be opened: {problem.strerror}.") from None
    if not size:
        raise _damaged(path, "is empty")
    return True


def _pending_files(path: Path) -> list[Path]:
    """The non-empty files from which SQLite completes the log."""
    found = []
    for suffix in ("-wal", "-journal"):
        other = path.with_name(path.name + suffix)
        try:
            if other.stat().st_size:
                found.append(other)
        except OSError:
            pass
    return found


def _damaged(path: Path, how: str) -> SrjtError:
    return SrjtError(
        f"{path} {how}, so decisions may have been lost: restore a copy of it, or delete {path.name}* in that "
        "folder to start again."
    )


def _create_log(path: Path) -> None:
    """Create an empty log under its name in one step, so that a kill in between does not look like a loss."""
    with tempfile.TemporaryDirectory(prefix=".decisions-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        connection = sqlite3.connect(draft)
        connection.executescript(_SCHEMA)
        connection.close()
        try:
            os.link(draft, path)  # unlike a rename, never replaces a log that another server has just created
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            draft.rename(path)
