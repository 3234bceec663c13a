"""The log of decisions: no acknowledged decision is lost, and none is overwritten unseen."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings, strategies as st

from refusals import refuses
from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import (
    ConflictError,
    CurrentDecisions,
    Decisions,
    LogEntry,
    review_progress,
)

WHAT, ACTIONS = ("decide", "undo", "stale"), ("set", "keep", "skip", "accept")
STEP = st.tuples(*map(st.sampled_from, (WHAT, ("anna", "ben"), "xyz", ACTIONS, "012")))


def by_definition(log: list[LogEntry], only: str | None) -> dict[str, LogEntry]:
    """The last decision about each sample that no entry undoes."""
    seen = [entry for entry in log if only in (None, entry.reviewer)]
    undone = {entry.undoes for entry in seen}
    return {e.id: e for e in seen if e.action != "undo" and e.revision not in undone}


def decided(current: CurrentDecisions) -> dict[str, LogEntry]:
    return {entry.id: entry for entry in current.all()}


@pytest.mark.slow
@settings(max_examples=15)  # every step waits for the disk
@given(st.lists(STEP, min_size=5, max_size=15))
def test_current_decisions_follow_from_the_log(steps: list[tuple[str, ...]]) -> None:
    """Two servers on one log: after any steps both, a third and a replay agree with the
    definition."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.sqlite"
        logs = {"anna": Decisions(path), "ben": Decisions(path)}
        for what, who, sample, action, grade in steps:
            store = logs[who]
            store.refresh()
            before = store.log()
            seen = store.current.last_revision.get(sample, 0)
            try:
                if what == "undo":
                    mine = store.current.by_reviewer(who)
                    if not mine:
                        continue
                    last = mine[-1]
                    held = store.current.get(last.id) == last
                    store.undo(last.revision, reviewer=who, label="1")
                    assert held
                else:
                    stale = seen + 1 if what == "stale" else seen
                    store.decide(
                        sample, reviewer=who, action=action, grade=grade, label="1", seen=stale
                    )  # type: ignore[arg-type]
                    assert what != "stale"
            except ConflictError:
                assert store.log() == before  # refused means nothing written
        log = logs["anna"].log()
        assert [entry.revision for entry in log] == list(range(1, len(log) + 1))
        for store in logs.values():
            store.refresh()
            assert decided(store.current) == by_definition(log, None)
            store.close()
        for only in (None, "anna", "ben"):
            fresh = Decisions(path, only_reviewer=only)
            assert vars(fresh.current) == vars(CurrentDecisions(log, only_reviewer=only))
            assert decided(fresh.current) == by_definition(log, only)
            fresh.close()


def test_an_entry_has_reviewer_time_and_grades(tmp_path: Path) -> None:
    store = Decisions(tmp_path / "d.sqlite")
    first = store.decide("x", reviewer="anna", action="accept", grade="2", label="1", seen=0)
    second = store.decide(
        "x", reviewer="ben", action="set", grade="3", label="1", seen=first.revision
    )
    third = store.undo(second.revision, reviewer="ben", label="1")
    assert [(e.action, e.from_grade, e.to_grade, e.undoes) for e in store.log()] == [
        ("accept", "1", "2", None),
        ("set", "2", "3", None),
        ("undo", "3", "2", second.revision),
    ]
    assert third.at.endswith("Z")
    assert first.at <= second.at <= third.at
    assert store.current.get("x") == first
    fourth = store.undo(first.revision, reviewer="anna", label="1")
    assert (fourth.from_grade, fourth.to_grade) == ("2", "1")
    assert store.current.get("x") is None


def test_a_decision_that_the_page_has_not_seen_is_not_overwritten(tmp_path: Path) -> None:
    here, there = Decisions(tmp_path / "d.sqlite"), Decisions(tmp_path / "d.sqlite")
    theirs = there.decide("x", reviewer="ben", action="set", grade="3", label="1", seen=0)
    with pytest.raises(ConflictError) as refused:
        here.decide("x", reviewer="anna", action="keep", grade="1", label="1", seen=0)
    assert refused.value.current == theirs
    # an undo is a change too: this page has seen the decision, but not its undo
    there.undo(theirs.revision, reviewer="ben", label="1")
    with pytest.raises(ConflictError):
        here.decide("x", reviewer="anna", action="keep", grade="1", label="1", seen=theirs.revision)


def test_undo_is_limited_to_own_decisions_in_force(tmp_path: Path) -> None:
    store = Decisions(tmp_path / "d.sqlite")
    mine = store.decide("x", reviewer="anna", action="keep", grade="1", label="1", seen=0)
    with pytest.raises(ConflictError):
        store.undo(mine.revision, reviewer="ben", label="1")
    theirs = store.decide(
        "x", reviewer="ben", action="set", grade="2", label="1", seen=mine.revision
    )
    with pytest.raises(ConflictError) as refused:
        store.undo(mine.revision, reviewer="anna", label="1")
    assert refused.value.current == theirs


def test_the_log_only_grows(tmp_path: Path) -> None:
    store = Decisions(tmp_path / "d.sqlite")
    store.decide("x", reviewer="anna", action="keep", grade="1", label="1", seen=0)
    with sqlite3.connect(tmp_path / "d.sqlite") as other:
        for statement in ("UPDATE log SET to_grade = '9'", "DELETE FROM log"):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                other.execute(statement)
    other.close()


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    store = Decisions(tmp_path / "d.sqlite")
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


WRITER = """
import sys
from pathlib import Path
from srjt.auditing.review_log import Decisions
store = Decisions(Path(sys.argv[1]))
n = 0
while True:
    store.decide(f"s{n}", reviewer="anna", action="keep", grade="1", label="1", seen=0)
    print(f"s{n}", flush=True)
    n += 1
"""


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    for round_ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER.replace('f"s{n}"', f'f"{round_}-{{n}}"'), str(path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        store = Decisions(path)
        assert {entry.id for entry in store.current.all()} >= set(acknowledged)
        store.close()


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"this is not a database, not at all" * 100)
    with refuses("damaged_file", says=("bad.sqlite", "(file is not a database)")):
        Decisions(tmp_path / "bad.sqlite")
    with refuses("unreadable_file"):
        Decisions(tmp_path / "no such folder" / "d.sqlite")


def test_a_truncated_log_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    store = Decisions(path)
    for n in range(40):
        store.decide(f"s{n}" * 20, reviewer="anna", action="keep", grade="1", label="1", seen=0)
    store.close()
    whole = path.read_bytes()
    for length in (0, 1, 99, 100, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:length])
        with refuses("damaged_file", says="d.sqlite"):
            Decisions(path)
        assert path.read_bytes() == whole[:length]
        assert [file.name for file in tmp_path.iterdir()] == ["d.sqlite"]
    path.write_bytes(whole)
    assert len(Decisions(path).log()) == 40


def test_a_journal_without_its_log_is_refused_and_not_deleted(tmp_path: Path) -> None:
    path, log = tmp_path / "d.sqlite", tmp_path / "d.sqlite-wal"
    store = Decisions(path)
    store.decide("x", reviewer="anna", action="keep", grade="1", label="1", seen=0)
    main, waiting = path.read_bytes(), log.read_bytes()  # as a kill would leave them
    store.close()
    log.write_bytes(waiting)
    path.unlink()
    with refuses("damaged_file", says="d.sqlite-wal"):
        Decisions(path)
    path.touch()
    with refuses("damaged_file", says="empty"):
        Decisions(path)
    assert log.read_bytes() == waiting
    path.write_bytes(main)
    assert [entry.id for entry in Decisions(path).log()] == ["x"]


# kill -9 before the n-th operation on the folder, as reported by Python's audit hooks
OPERATIONS = ("open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir")
OPERATIONS += ("sqlite3.connect",)


def create_and_be_killed(folder: Path, left: int) -> NoReturn:
    """In a process of its own."""

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in OPERATIONS and any(str(folder) in str(argument) for argument in arguments):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    Decisions(folder / "d.sqlite").close()
    os._exit(0)


@pytest.mark.slow
def test_kill_9_while_the_log_is_created(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    killed = 0
    for step in range(20):
        path.unlink(missing_ok=True)
        if (pid := os.fork()) == 0:  # with all modules, which take seconds to import
            try:
                create_and_be_killed(tmp_path, step)
            finally:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert not path.exists() or path.stat().st_size > 0
        Decisions(path).close()
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        killed += 1
    assert killed >= 4  # folder, file, link, opened


def test_two_servers_create_the_log_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.sqlite"
    link, quicker = os.link, []

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        quicker.append(Decisions(path))
        quicker[0].decide("x", reviewer="ben", action="keep", grade="1", label="1", seen=0)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert [entry.reviewer for entry in Decisions(path).log()] == ["ben"]
    quicker[0].decide("y", reviewer="ben", action="keep", grade="1", label="1", seen=0)
    assert len(Decisions(path).log()) == 2


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    Decisions(tmp_path / "d.sqlite").close()
    assert [file.name for file in tmp_path.iterdir()] == ["d.sqlite"]


def test_progress(audit_folder: Path) -> None:
    audit = read_audit(audit_folder)
    store = Decisions(audit_folder / "decisions.sqlite")

    def decide(line: int, action: str, grade: int) -> None:
        store.decide(audit.ids[line], reviewer="anna", action=action, grade=audit.grades[grade],  # type: ignore[arg-type]
                     label=audit.grades[audit.labels[line]], seen=0)  # fmt: skip

    label = audit.labels
    decide(0, "set", int(label[0]) ^ 1)  # changed
    decide(1, "keep", int(label[1]))
    decide(2, "skip", int(label[2]))
    decide(9, "set", int(label[9]) ^ 1)  # beyond a queue of five
    store.decide("of another audit", reviewer="anna", action="set", grade="?", label="!", seen=0)
    progress = review_progress(audit, store.current, queue=5)
    assert (progress.reviewed, progress.changed, progress.skipped, progress.beyond) == (2, 2, 1, 1)
    left = [1 - q for line, q in enumerate(audit.quality) if line not in (0, 1, 9)]
    assert progress.remaining_noise == pytest.approx(sum(left) / 16)
    verified = [audit.ids[line] for line in (0, 2, 5)] + ["of another audit"]
    mended = review_progress(audit, store.current, queue=5, verified=verified)
    left = [1 - q for line, q in enumerate(audit.quality) if line not in (0, 1, 2, 5, 9)]
    assert mended.remaining_noise == pytest.approx(sum(left) / 16)
    assert str(progress).startswith(
        "2 of 5 reviewed and 1 beyond, 2 changed, 1 skipped, estimated rem"
    )


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decisions.sqlite"
    Decisions(path).close()
    own = tmp_path / "own.sqlite"
    path.rename(own)
    path.symlink_to(own)
    with refuses("unsafe_file"):
        Decisions(path)
    path.unlink()
    for statement in (
        "CREATE VIEW more AS SELECT * FROM log, log AS a, log AS b",
        "CREATE TRIGGER t AFTER INSERT ON log BEGIN SELECT 1; END",
        "DROP TRIGGER log_delete; CREATE TRIGGER log_delete BEFORE DELETE ON log BEGIN SELECT 1; END",
        "DROP TABLE log; CREATE VIEW log AS SELECT 1 AS revision",
    ):
        path.write_bytes(own.read_bytes())
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(statement)
        with refuses("damaged_file", says="version"):
            Decisions(path)
    path.write_bytes(own.read_bytes())
    log = Decisions(path)
    log.add_answer("a", purpose="verify", reviewer="kim", grade="1")
    log.close()
    assert [answer.grade for answer in Decisions(path).answers("verify")] == ["1"]
