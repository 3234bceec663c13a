"""What the project's own files say of each other: versions, Pythons, requirements, the picture of
the rooms."""

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
    assert re.search(
        rf"^## \[{re.escape(srjt.__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
    )
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == srjt.__version__


def test_the_workflow_tests_every_python_that_is_promised() -> None:
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["linux"]["strategy"]["matrix"]["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in PYPROJECT
    others = workflow["jobs"]["macos-and-windows"]["strategy"]["matrix"]
    assert others["os"] == ["macos-latest", "windows-latest"]
    assert others["python"] == [promised[0], promised[-1]]


def test_constraints_name_the_oldest_versions() -> None:
    requirements = [
        "torch>=2.8",
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


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    found: dict[str, object] = tomllib.loads(PYPROJECT)["project"]
    return found


def test_the_ways_to_install_exist(project: dict) -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    named = {name for group in re.findall(r'"\.\[([\w,]+)\]"', page) for name in group.split(",")}
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    of_developers = {"dev", "docs", "benchmarks"}
    assert listed == set(project["optional-dependencies"]) - of_developers
    assert named <= listed


def test_the_paper_cites_what_its_bibliography_has() -> None:
    paper = (ROOT / "paper/paper.md").read_text(encoding="utf-8")
    cited = set(re.findall(r"@([\w-]+)", paper.partition("\n---\n")[2]))
    bibliography = (ROOT / "paper/paper.bib").read_text(encoding="utf-8")
    assert sorted(cited) == sorted(re.findall(r"^@\w+\{([\w-]+),", bibliography, re.MULTILINE))
    for heading in ("Summary", "Statement of need", "State of the field", "References"):
        assert f"\n# {heading}\n" in paper
    head = yaml.safe_load(paper.split("---\n")[1])
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    ours, cited_as = ([author["name"] for author in one["authors"]] for one in (head, citation))
    assert ours == cited_as
    assert len(paper.split()) < 1000  # what the journal asks for
