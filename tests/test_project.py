"""What the project's own files say of each other: versions, Pythons, requirements, the picture of the rooms."""

import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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


# The container file, the conda recipe and the paper say what pyproject.toml and CITATION.cff say.
IN_CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    found: dict[str, object] = tomllib.loads(PYPROJECT)["project"]
    return found


def test_the_conda_recipe_has_the_requirements_of_the_project(project: dict) -> None:
    text = (ROOT / "recipe/meta.yaml").read_text(encoding="utf-8")
    assert f'{{% set version = "{srjt.__version__}" %}}' in text
    recipe = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", re.sub(r"\{%.*?%\}", "", text)))
    told = {}
    for line in recipe["requirements"]["run"]:
        name, _, bounds = line.partition(" ")
        told[name] = SpecifierSet(bounds)
    wanted = {"python": SpecifierSet(project["requires-python"])}
    for line in project["dependencies"]:
        one = Requirement(line)
        wanted[IN_CONDA.get(one.name, one.name)] = one.specifier
    assert told == wanted
    (command,) = recipe["build"]["entry_points"]
    assert command == f"srjt = {project['scripts']['srjt']}"


def test_the_container_installs_what_the_project_names(project: dict) -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (torch,) = (line for line in project["dependencies"] if line.startswith("torch"))
    assert f'pip install "{torch}"' in text
    extras = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    python = re.search(r"^FROM python:(3\.\d+)-slim$", text, re.MULTILINE)
    assert f"Programming Language :: Python :: {python[1]}" in project["classifiers"]
    sent = set((ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines())
    copied = [name for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert [name for name in copied if f"!{name}" not in sent or not (ROOT / name).exists()] == []


def test_the_ways_to_install_exist(project: dict) -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    named = {name for group in re.findall(r'"\.\[([\w,]+)\]"', page) for name in group.split(",")}
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    of_developers = {"dev", "docs", "benchmarks"}
    assert listed == set(project["optional-dependencies"]) - of_developers
    assert named <= listed
    arguments = set(re.findall(r"--build-arg (\w+)=", page))
    assert arguments <= set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))


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
