"""The wheel holds everything that the package reads at run time, not only its code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_holds_the_data_files(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("srjt-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    needed = {
        path.relative_to(package).as_posix()
        for path in (package / "srjt").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"srjt/py.typed", "srjt/study/presets/limuc.yaml", "srjt/study/paper_results.csv"} <= needed
    assert needed <= held
    assert not [name for name in held if name.startswith("tests")]
