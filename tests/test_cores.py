"""How many cores a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srjt import errors as module
from srjt.errors import cores


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(module, "CGROUP", tmp_path)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 8),
        ("250000 100000", 3),
        ("10000 100000", 1),
        ("9900000 100000", 8),
        ("0 0", 8),
        ("", 8),
        (None, 8),
    ],
)
def test_a_container_may_allow_fewer(limit: str | None, expected: int, tmp_path: Path) -> None:
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    assert cores() == expected


@pytest.mark.parametrize(("limit", "expected"), [("-1", 8), ("200000", 2)])
def test_the_first_version_of_control_groups(limit: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{limit}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores() == expected


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1
