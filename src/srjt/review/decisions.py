"""Every decision as a line of a log that only grows; what holds now is what the log says.

SQLite in WAL mode with synchronous=FULL: a decision that was acknowledged survives kill -9 and a power cut.
Several servers may write to one log; each reads what the others added before it decides anything.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, get_args

from srjt.errors import SrjtError

__all__ = ["ACTIONS", "Action", "ConflictError", "Decisions", "LogEntry", "Present", "begun", "replay"]

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
_COLUMNS = "revision, id, reviewer, at, action, from_grade, to_grade, undoes"


@dataclass(frozen=True)
class LogEntry:
    """One line of the log. ``from_grade`` and ``to_grade`` are the names of what held before and holds after."""

    revision: int
    id: str
    reviewer: str
    at: str  # UTC, ISO 8601
    action: Action
    from_grade: str
    to_grade: str
    undoes: int | None = None


class ConflictError(Exception):
    """Something was decided that the decider had not seen. ``present`` is what holds now, if anything."""

    def __init__(self, present: LogEntry | None, revision: int) -> None:
        super().__init__("decided meanwhile")
        self.present = present
        self.revision = revision


@dataclass
class Present:
    """What holds, as the log tells it line by line. ``only``: as if the others had never decided."""

    only: str | None = None
    revision: int = 0  # of the last line read
    standing: dict[str, list[LogEntry]] = field(default_factory=dict)  # per id, not undone, oldest first
    touched: dict[str, int] = field(default_factory=dict)  # per id, the last line about it

    def apply(self, entry: LogEntry) -> None:
        self.revision = entry.revision
        if self.only not in (None, entry.reviewer):
            return
        self.touched[entry.id] = entry.revision
        decisions = self.standing.setdefault(entry.id, [])
        if entry.action == "undo":
            decisions[:] = [decision for decision in decisions if decision.revision != entry.undoes]
        else:
            decisions.append(entry)

    def of(self, sample: str) -> LogEntry | None:
        """The decision that holds: the last one, by whomever."""
        decisions = self.standing.get(sample)
        return decisions[-1] if decisions else None

    def decided(self) -> Iterator[LogEntry]:
        """Every decision that holds, one per sample."""
        return (decisions[-1] for decisions in self.standing.values() if decisions)

    def by(self, reviewer: str) -> list[LogEntry]:
        """What this reviewer could undo, oldest first."""
        mine = (e for decisions in self.standing.values() for e in decisions if e.reviewer == reviewer)
        return sorted(mine, key=lambda entry: entry.revision)


def replay(log: Iterable[LogEntry], *, only: str | None = None) -> Present:
    """What holds after the whole log."""
    present = Present(only=only)
    for entry in log:
        present.apply(entry)
    return present


class Decisions:
    """The log of one audit folder. ``only``: see and contradict nobody but this reviewer (a second reading)."""

    def __init__(self, path: Path, *, only: str | None = None) -> None:
        self.path = path
        self.present = Present(only=only)
        self.lock = threading.RLock()  # hold it to read several things of one moment
        with self._plainly("opened"):
            if not begun(path):
                _begin(path)
            self._file = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")  # stays a rollback journal where there is no WAL
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.execute("PRAGMA foreign_keys = ON")
            self._check_version()
        self.catch_up()

    def catch_up(self) -> list[LogEntry]:
        """Read what was added, here or by another process; the new lines."""
        with self.lock, self._plainly("read"):
            return self._read_on()

    def log(self) -> list[LogEntry]:
        with self.lock, self._plainly("read"):
            return self._lines(after=0)

    def decide(
        self, sample: str, *, reviewer: str, action: Action, grade: str, label: str, seen: int
    ) -> LogEntry:
        """Note that ``sample`` has ``grade``; on disk when this returns.

        ``label`` is the grade as given, ``seen`` the revision of the sample that the reviewer looked at
        (0: undecided). Raises ``ConflictError`` if it is not the present one.
        """
        with self._writing():
            if self.present.touched.get(sample, 0) != seen:
                raise ConflictError(self.present.of(sample), self.present.touched.get(sample, 0))
            return self._append(sample, reviewer, action, grade, label)

    def undo(self, revision: int, *, reviewer: str, label: str) -> LogEntry:
        """Take one's own decision back; what held before it holds again.

        Raises ``ConflictError`` if it does not hold any more: undone already, or decided anew since.
        """
        with self._writing():
            mine = next((e for e in self.present.by(reviewer) if e.revision == revision), None)
            if mine is None or self.present.of(mine.id) != mine:
                raise ConflictError(None if mine is None else self.present.of(mine.id), revision)
            before = self.present.standing[mine.id][:-1]
            return self._append(
                mine.id, reviewer, "undo", before[-1].to_grade if before else label, label, revision
            )

    def close(self) -> None:
        with self.lock:
            self._file.close()

    def _append(
        self, sample: str, reviewer: str, action: Action, grade: str, label: str, undoes: int | None = None
    ) -> LogEntry:
        held = self.present.of(sample)
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = (sample, reviewer, at, action, label if held is None else held.to_grade, grade, undoes)
        added = self._file.execute(
            "INSERT INTO log (id, reviewer, at, action, from_grade, to_grade, undoes) VALUES (?,?,?,?,?,?,?)",
            values,
        )
        return LogEntry(int(added.lastrowid or 0), *values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Nobody else writes, everything so far is known, and it is all on disk at the end."""
        with self.lock, self._plainly("written"):
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._read_on()
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise
            self._read_on()  # what was just written counts only now that it is safe

    def _read_on(self) -> list[LogEntry]:
        new = self._lines(after=self.present.revision)
        for entry in new:
            self.present.apply(entry)
        return new

    def _lines(self, *, after: int) -> list[LogEntry]:
        rows = self._file.execute(
            f"SELECT {_COLUMNS} FROM log WHERE revision > ? ORDER BY revision", (after,)
        )
        return [LogEntry(*row) for row in rows]

    def _check_version(self) -> None:
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise SrjtError(
                f"{self.path} was written by a newer srjt (format {version}): use that one to go on."
            )
        if version < _VERSION:
            raise _damaged(self.path, "holds no log of decisions")

    @contextmanager
    def _plainly(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            if type(problem) is sqlite3.DatabaseError:  # not one of its kinds: the file itself is bad
                raise _damaged(self.path, f"is damaged ({problem})") from problem
            raise SrjtError(f"The decisions in {self.path} cannot be {verb}: {problem}.") from problem
        except OSError as problem:
            raise SrjtError(
                f"The decisions in {self.path} cannot be {verb}: {problem.strerror or problem}."
            ) from problem


def begun(path: Path) -> bool:
    """Whether there is a log. Raises ``SrjtError`` if there was one and part of it is lost.

    SQLite would not notice: it takes an empty file for a new database and throws its -wal away, and reads
    zeros where a page is cut off.
    """
    beside = [path.with_name(path.name + end) for end in ("-wal", "-journal")]
    waiting = [other for other in beside if _size(other)]  # asked first because it is made last
    try:
        with path.open("rb") as file:
            head, size = file.read(100), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        if waiting:
            raise _damaged(path, f"is missing, but {waiting[0].name} is there") from None
        return False
    except OSError as problem:
        raise SrjtError(f"The decisions in {path} cannot be opened: {problem.strerror}.") from None
    if not size:
        raise _damaged(path, "is empty")
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise _damaged(path, "is not a file of SQLite")
    page = int.from_bytes(head[16:18], "big")
    whole = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
    if size < whole and not waiting:  # else SQLite completes it from there
        raise _damaged(path, f"is cut off after {size:,} of {whole:,} bytes")
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _damaged(path: Path, how: str) -> SrjtError:
    return SrjtError(
        f"{path} {how}, so decisions may have been lost: put a copy of it back, or delete {path.name}* in that "
        "folder to begin anew."
    )


def _begin(path: Path) -> None:
    """A log without a line, under its name in one step: a kill in between must not look like a loss."""
    with tempfile.TemporaryDirectory(prefix=".decisions-", dir=path.parent) as apart:
        made = Path(apart) / path.name
        file = sqlite3.connect(made)
        file.executescript(_SCHEMA)
        file.close()
        try:
            os.link(made, path)  # unlike a rename, never over a log that another server has begun meanwhile
        except FileExistsError:
            pass
        except OSError:  # a disk without links
            made.rename(path)
