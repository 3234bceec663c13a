"""Shared by all tests: property tests draw the same examples in every run, and processes start at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from processes import Launcher

pytest_plugins = [
    "fixtures.small_images",
    "fixtures.noisy_features",
    "fixtures.audit_folders",
    "fixtures.notebooks",
]

settings.register_profile("srjt", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("srjt")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Two test processes share two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """What survives a power cut is not tested, and waiting for the disk takes a tenth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages of which only the text is tested: figures are empty, because drawing takes most of the time."""
    monkeypatch.setattr("srjt.reports.figures.canvas._svg", lambda captioned, *, transparent: "<svg></svg>")


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp("cache"))
    yield launcher
    assert launcher.process.stdin is not None
    launcher.process.stdin.close()
    launcher.process.wait(timeout=20)
    assert launcher.process.stdout is not None
    launcher.process.stdout.close()
