"""``srjt doctor``: facts about the installation, and what to do about what is missing."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srjt.cli import app, doctor
from srjt.errors import requirements_of

ROOT = Path(__file__).parents[2]


def ran(*, status: int = 0) -> str:
    """What is printed, in a wide terminal."""
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "400"})
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


def test_it_names_versions_devices_and_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "not" / "yet"))
    out = ran()
    assert f"numpy {metadata.version('numpy')}" in out
    assert f"cache: {tmp_path / 'not' / 'yet'}, 0 MiB used" in out
    assert not (tmp_path / "not").exists()
    assert "\ncpu: " in out
    assert out.endswith("Everything that srjt needs is installed.\n")


@pytest.mark.slow
def test_every_extra_for_users_is_listed() -> None:
    listed = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    provided = set(re.findall(r"^(\w+) = \[", listed.partition("\n[")[0], re.MULTILINE))
    assert set(doctor.EXTRAS) == provided - {"dev", "docs", "benchmarks"}
    known = {name for name in doctor.EXTRAS if requirements_of(name)}  # of the installed version
    listed = ran().partition("\nextra ")[2].partition("\n\n")[0]
    assert {line.split()[0] for line in listed.splitlines()[1:]} == known


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "openpyxl")
    assert re.search(r'^excel +Excel tables +pip install "openpyxl>=3\.1"', ran(), re.MULTILINE)


@pytest.mark.slow
def test_a_missing_or_old_requirement_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "scipy")
    text = ran(status=1)
    assert 'scipy>=1.11.1 is needed, which is not installed: pip install "scipy>=1.11.1"' in text
    monkeypatch.setattr(metadata, "version", lambda name: "0.1")
    assert "numpy>=1.26 is needed, 0.1 is installed" in ran(status=1)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    assert "Set SRJT_CACHE to another" in ran(status=1)


def test_a_newer_torch_than_was_tested_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No problem, but what to try if something fails."""
    capped = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    major, minor = map(int, doctor.TESTED["torch"].split("."))
    assert f"torch<{major}.{minor + 1}\n" in capped
    assert "was tested with" not in ran()
    real = metadata.version
    newer = f"{major}.{minor + 1}.0+cpu"
    monkeypatch.setattr(metadata, "version", lambda name: newer if name == "torch" else real(name))
    monkeypatch.setattr(doctor, "requirements_of", lambda extra: ["torch>=2.8"])
    out = ran()
    assert f"torch {newer} is newer than {major}.{minor}" in out
    assert out.endswith("Everything that srjt needs is installed.\n")


@pytest.mark.parametrize(
    ("installed", "fits"),
    [("2.8.0", True), ("2.10", True), ("2.7.9", False), ("2.14.1+cu130", True), ("3.0", False)],
)
def test_versions_are_compared_as_numbers(
    installed: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    assert doctor._installed("torch>=2.8,<3").fits is fits
