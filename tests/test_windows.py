"""The package runs where POSIX-only modules do not exist, as on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "termios")
PROGRAM = f"""
import sys
for name in {POSIX_ONLY}:
    sys.modules[name] = None  # importing it raises ImportError

import importlib, pkgutil
import srjt

for module in pkgutil.walk_packages(srjt.__path__, "srjt."):
    if module.name != "srjt.__main__":  # it runs the command line
        importlib.import_module(module.name)

data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
settings = dict(network="tiny", image_size=32, crop=28, epochs=1, batch_size=16, noise_rate=0.2, device="cpu")
srjt.train(data, out="run", **settings)
assert len(srjt.predict("run", data)) == 40
"""


@pytest.mark.slow
def test_import_train_and_predict_without_posix_only_modules(tmp_path: Path) -> None:
    environment = {**os.environ, "SRJT_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
