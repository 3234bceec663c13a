"""What the project's own files say of each other: versions, supported Pythons, the picture of the rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import srjt
from oldest import constraints
from test_imports import FLOORS

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_has_an_entry_in_the_changelog_and_is_cited() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(srjt.__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == srjt.__version__


def test_the_workflow_tests_every_python_that_is_promised() -> None:
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["linux"]["strategy"]["matrix"]["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in PYPROJECT


def test_constraints_name_the_oldest_versions() -> None:
    requirements = [
        "torch<2.14,>=2.8",
        "numpy>=1.26",
        "monai>=1.5.1",
        "onnx>=1.17; extra == 'onnx'",
        "pytest>=8.2; extra == 'dev'",
        'mkdocstrings[python]>=0.29; extra == "docs"',
    ]
    assert list(constraints(requirements)) == ["numpy==1.26", "monai==1.5.1", "onnx==1.17"]
    with pytest.raises(AssertionError, match="numpy has no lower bound"):
        list(constraints(["numpy"]))


def test_contributing_shows_the_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = text.partition("```text\n")[2].partition("```")[0]
    shown = [line.partition("│")[0].replace("↓", " ").split() for line in picture.splitlines()]
    assert [set(rooms) for rooms in reversed(shown)] == [set(rooms) for rooms in FLOORS]
