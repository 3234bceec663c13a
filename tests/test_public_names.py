"""The top level is small and lazy."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import srjt


def test_the_public_names_of_the_core() -> None:
    from srjt import noise
    from srjt.ordinal import losses

    assert {"soft_labels", "keep_rate", "noise", "methods"} <= set(srjt.__all__)
    assert srjt.soft_labels is losses.soft_labels
    assert srjt.keep_rate is losses.keep_rate
    assert srjt.noise is noise
    assert srjt.methods is importlib.import_module("srjt.methods")


def test_every_public_name_exists_and_is_listed() -> None:
    for name in srjt.__all__:
        assert getattr(srjt, name) is not None
    assert set(dir(srjt)) == set(srjt.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'srjt' has no attribute 'sofd_labels'"):
        srjt.sofd_labels  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import srjt", {"torch", "numpy", "pandas", "sklearn"}),
        ("import srjt; srjt.noise.transition_matrix('quasi', num_classes=4, rho=.1)", {"torch", "pandas"}),
        pytest.param(
            "from srjt import soft_labels, methods",
            {"pandas", "monai", "sklearn", "matplotlib"},
            marks=pytest.mark.slow,  # imports torch
        ),
    ],
)
def test_heavy_libraries_are_imported_on_first_use(statement: str, not_loaded: set[str]) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not not_loaded & set(loaded)


@pytest.mark.parametrize(
    "module",
    ["srjt", "srjt.data", "srjt.methods", "srjt.noise", "srjt.ordinal", "srjt.readers"],
)
def test_modules_define_what_they_list(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert hasattr(loaded, name)


ELSEWHERE = """
import builtins, os, sys

POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
plain = builtins.__import__

def without_posix(name, globals=None, *rest, **named):
    importer = (globals or {}).get("__name__", "")
    if name in POSIX and importer.partition(".")[0] == "srjt":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return plain(name, globals, *rest, **named)

builtins.__import__ = without_posix
del os.sched_getaffinity

import srjt

data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
srjt.data.synthetic.write(data, sys.argv[1])
data = srjt.data.read(sys.argv[1]).manifest
small = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "batch_size": 16}
run = srjt.train(data, out=sys.argv[1] + "/run", split=srjt.data.folds(data)[0], noise_rate=0.2, device="cpu", **small)
assert len(srjt.predict(srjt.load_run(sys.argv[1] + "/run"), data)) == 60
srjt.audit(data, out=sys.argv[1] + "/audit", folds=2, device="cpu", **small)
print("done")
"""


@pytest.mark.slow
def test_train_predict_and_audit_need_no_posix_modules(tmp_path: Path) -> None:
    """As on Windows, as far as Linux can imitate it: our own code finds none of these modules."""
    environment = {**os.environ, "SRJT_CACHE": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "set")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ran.stdout.endswith("done\n"), ran.stderr
