"""``srjt doctor``: facts about the installation, and what to do about what is missing."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srjt.cli import app, doctor
from srjt.errors import requirements_of

ROOT = Path(__file__).parents[2]


def ran(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == status, result.output
    return result.stdout


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """As if these packages were not installed."""
    real = metadata.version

    def version(name: str) -> str:
        if name in packages:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_it_names_versions_devices_and_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "not" / "yet"))
    found = json.loads(ran("--json"))
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert found["cache"]["folder"] == str(tmp_path / "not" / "yet")
    assert found["cache"]["writable"]
    assert not (tmp_path / "not").exists()
    assert any(device.startswith("cpu: ") for device in found["devices"])
    assert found["problems"] == []
    assert "Everything that srjt needs is here." in " ".join(ran().split())


def test_every_extra_for_users_is_listed() -> None:
    listed = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    provided = set(re.findall(r"^(\w+) = \[", listed.partition("\n[")[0], re.MULTILINE))
    assert set(doctor.EXTRAS) == provided - {"dev", "docs", "benchmarks"}
    known = {name for name in doctor.EXTRAS if requirements_of(name)}  # of the installed version
    assert set(json.loads(ran("--json"))["extras"]) == known


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "openpyxl")
    found = json.loads(ran("--json"))
    assert not found["extras"]["excel"]["installed"]
    assert found["extras"]["excel"]["install"] == 'pip install "openpyxl>=3.1"'
    assert found["problems"] == []


@pytest.mark.slow
def test_a_missing_or_old_requirement_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "scipy")
    text = " ".join(ran(status=1).split())
    assert 'scipy>=1.11.1 is needed, which is not installed: pip install "scipy>=1.11.1"' in text
    monkeypatch.setattr(metadata, "version", lambda name: "0.1")
    assert "numpy>=1.26 is needed, 0.1 is installed" in " ".join(ran(status=1).split())


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    assert "set SRJT_CACHE to another" in " ".join(ran(status=1).split())


def test_a_broken_torchvision_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    text = " ".join(ran().split())
    assert "torchvision is installed but cannot be imported (RuntimeError: operator torchvision::nms" in text
