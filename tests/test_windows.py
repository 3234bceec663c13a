"""The package runs where POSIX-only modules do not exist, as on Windows, as far as Linux can
imitate it."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from srjt import files
from srjt.auditing.review_log import Decisions
from srjt.data.sources import folders
from srjt.files import write_atomically
from srjt.training.workers import Ended

POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "syslog", "termios")
PROGRAM = f"""
import os, sys
for name in {POSIX_ONLY}:
    sys.modules[name] = None  # importing it raises ImportError
del os.sched_getaffinity

import multiprocessing.context, signal

multiprocessing.context._concrete_contexts.pop("forkserver")
multiprocessing.get_all_start_methods = lambda: ["spawn"]
del signal.pthread_sigmask

import importlib, pkgutil
import srjt

for module in pkgutil.walk_packages(srjt.__path__, "srjt."):
    if module.name != "srjt.__main__":  # it runs the command line
        importlib.import_module(module.name)

srjt.data.synthetic.write(srjt.data.synthetic.generate(images=60, patients=12, size=32), "set")
data = srjt.data.read("set").manifest
settings = dict(network="tiny", image_size=32, crop=28, epochs=1, batch_size=16, device="cpu")
srjt.train(data, out="run", noise_rate=0.2, **settings)
assert len(srjt.predict("run", data)) == 60
srjt.audit(data, out="audit", folds=2, **settings)
settings.pop("device")
results = srjt.study(
    "set/labels.csv", out="study", methods=["standard", "sord"], only_folds=[0], jobs=2,
    device="cpu", **settings,
)
assert (results.runs["status"] == "done").all() and len(results.runs) == 2
"""


@pytest.mark.slow
def test_import_train_predict_audit_and_study_without_what_is_posix_only(tmp_path: Path) -> None:
    """Workers are started by ``spawn``, without a fork server."""
    environment = {**os.environ, "SRJT_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_somebody_reads_is_replaced_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace
    refusals = [PermissionError(13, "in use")] * 3

    def busy(draft: Path, path: Path) -> None:
        if refusals:
            raise refusals.pop()
        replace(draft, path)

    monkeypatch.setattr(files.os, "replace", busy)
    monkeypatch.setattr(files.os, "name", "nt")
    monkeypatch.setattr(files, "REPLACE_SECONDS", 0.0)
    (tmp_path / "live.html").write_text("old")
    write_atomically(tmp_path / "live.html", b"new")
    assert (tmp_path / "live.html").read_text() == "new"
    refusals += [PermissionError(13, "in use")] * files.REPLACE_TRIES  # for ever
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "live.html", b"newer")
    assert [file.name for file in tmp_path.iterdir()] == ["live.html"]


def test_elsewhere_a_file_is_replaced_at_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(draft: Path, path: Path) -> None:
        tried.append(path)
        raise PermissionError

    tried: list[Path] = []
    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "file", b"")
    assert len(tried) == 1


def test_keys_and_logs_are_made_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folders._make_key(tmp_path)
    key = (tmp_path / folders.KEY).read_bytes()
    folders._make_key(tmp_path)  # a second command
    assert (tmp_path / folders.KEY).read_bytes() == key
    with closing(Decisions(tmp_path / "decisions.sqlite")) as decisions:
        assert decisions.log() == []
    left = {file.name for file in tmp_path.iterdir()}
    assert {name for name in left if not name.startswith("decisions.sqlite")} == {folders.KEY}


def test_how_a_worker_died_is_said_without_the_signals_of_posix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Ended(exitcode=-9).death == "by SIGKILL; the machine may be out of memory"
    monkeypatch.delattr(signal, "SIGKILL")
    assert Ended(exitcode=-15).death == "by SIGTERM"
    assert Ended(exitcode=3221225477).death == "with status 3221225477"  # an access violation
