"""Shared by all tests: property tests draw the same examples in every run, and processes start at
once."""

import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
from hypothesis import settings

from processes import Launcher

FIXTURES = ("small_images", "noisy_features", "audit_folders", "notebooks")

# Test processes share the cores. Idle threads of a linear algebra library wait actively, and slow
# the others down.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # read when NumPy is imported

os.environ["SRJT_OFFLINE"] = "1"  # no test downloads weights, wherever it runs
os.environ["TORCH_HOME"] = os.path.join(os.path.dirname(__file__), "no-weights")  # nor finds any
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests open sessions of onnxruntime themselves

# Whatever the environment says: without bytecode every process compiles all tests again, which
# takes as long as to import torch and everything else.
sys.dont_write_bytecode = False

settings.register_profile("srjt", derandomize=True, deadline=None, max_examples=15)
settings.load_profile("srjt")


def pytest_configure(config: pytest.Config) -> None:
    """The process that only hands out tests to others need not import torch."""
    if config.getoption("dist", "no") == "no" or hasattr(config, "workerinput"):
        gc.disable()  # what is imported and collected is no garbage
        draw_images_once()
        for name in FIXTURES:
            config.pluginmanager.import_plugin(f"fixtures.{name}")


def draw_images_once() -> None:
    """Many tests generate the same synthetic images, which takes as long as to train on them."""
    from srjt.data import synthetic

    real = synthetic.generate
    drawn: dict[Any, Any] = {}

    @wraps(real)
    def generate(**options: Any) -> Any:
        key = tuple(sorted(options.items()))
        if "progress" in options:
            return real(**options)
        if key not in drawn:
            drawn[key] = real(**options)
        made = drawn[key]
        return replace(made, table=made.table.copy(), arrays=made.arrays.copy())

    synthetic.generate = generate


def pytest_collection_finish() -> None:
    """What exists now stays until the end: the garbage collector need not look at it again and
    again."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # tests make many objects, and few circles
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Two test processes share two cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """What survives a power cut is not tested, and waiting for the disk takes a tenth of the
    time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages of which only the text is tested: figures are empty, because drawing takes most of
    the time."""
    from fixtures.blank import Blank

    canvas = "srjt.reports.figures.canvas"
    monkeypatch.setattr(f"{canvas}.new_figure", lambda width, height: Blank())
    monkeypatch.setattr(f"{canvas}.figure_bytes", lambda *_, **options: b"<svg></svg>")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from browser import Browser  # not on Windows

    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp("cache"))
    yield launcher
    launcher.close()
