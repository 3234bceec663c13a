"""The fork server executes nothing from the current folder, which somebody else may have sent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os
import sys

from srjt.training.workers import start_forkserver


def show(file):
    with open(file, "w") as written:
        written.write(os.getcwd())


if __name__ == "__main__":
    version = sys.version_info
    sys.version_info = {version}
    context = start_forkserver(["pathlib"])
    sys.version_info = version
    worker = context.Process(target=show, args=(sys.argv[1],))
    worker.start()
    worker.join(60)
    print(os.getcwd(), os.environ.get("PYTHONSAFEPATH"))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no fork server")
@pytest.mark.parametrize("version", ["version", "(3, 10)"])
def test_no_module_of_the_current_folder_is_imported(tmp_path: Path, version: str) -> None:
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "train.py"
    script.write_text(SCRIPT.format(version=version))
    sent = tmp_path / "sent"
    sent.mkdir()
    for name in ("random", "socket", "struct", "tempfile", "threading", "pathlib"):
        (sent / f"{name}.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "folder"],
        cwd=sent,
        env=environment,
        text=True,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(sent), "None"]
    assert (tmp_path / "folder").read_text() == str(sent)
    assert not (tmp_path / "trace").exists()
