"""The package runs where POSIX-only modules do not exist, as on Windows, as far as Linux can
imitate it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "syslog", "termios")
PROGRAM = f"""
import os, sys
for name in {POSIX_ONLY}:
    sys.modules[name] = None  # importing it raises ImportError
del os.sched_getaffinity

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
"""


@pytest.mark.slow
def test_import_train_predict_and_audit_without_posix_only_modules(tmp_path: Path) -> None:
    environment = {**os.environ, "SRJT_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
