"""What the documentation says can be typed, exists; what it points to is there; what it lists is
complete."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import re
import runpy
import shlex
import types
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from srjt.cli import app
from srjt.training.config import TrainConfig

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = {"", "sh", "bash", "shell", "console"}
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OPTION = re.compile(r"--?[a-z][a-z-]*")


@functools.cache
def whole() -> Any:
    """The command line as click sees it, with all verbs loaded; making it takes a while."""
    group: Any = get_command(app)
    for name in group.commands:
        group.load(name)
    return group


def options_of(command: Any) -> set[str]:
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return own | {"--help", "-h"}


def all_options(command: Any) -> set[str]:
    below = getattr(command, "commands", {})
    return options_of(command).union(*(all_options(part) for part in below.values()))


def mistakes(words: list[str]) -> list[str]:
    """What is wrong with a command line that begins behind ``srjt``."""
    command: Any = whole()
    words = list(words)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    below = getattr(command, "commands", {})
    if below and words and not words[0].startswith("-"):
        if "run" not in below:
            return [f"there is no command {words[0]}"]
        command = below["run"]  # what a group does when no verb is given
    given = [word.partition("=")[0] for word in words if OPTION.fullmatch(word.partition("=")[0])]
    return [
        f"{command.name} has no option {name}" for name in given if name not in options_of(command)
    ]


def command_lines(text: str) -> list[list[str]]:
    """The words behind ``srjt`` of every command in shell blocks and in running text."""
    found = []
    blocks = [body for language, body in BLOCK.findall(text) if language in SHELL]
    lines = [line for body in blocks for line in body.replace("\\\n", " ").splitlines()]
    lines += re.findall(
        r"^ {4,}(\S.*)$", BLOCK.sub("", text), re.MULTILINE
    )  # a block by indentation
    for line in [*lines, *INLINE.findall(BLOCK.sub("", text))]:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # an apostrophe: a sentence, not a command
            continue
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # SRJT_CACHE=… srjt …
            words.pop(0)
        if words and words[0] == "torchrun" and "-m" in words:
            words = words[words.index("-m") + 1 :]
        if len(words) > 1 and Path(words[0]).name == "srjt":
            found.append(words[1:])
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_and_option_exists(page: Path) -> None:
    text = page.read_text()
    wrong = [
        f"srjt {shlex.join(words)}: {said}"
        for words in command_lines(text)
        for said in mistakes(words)
    ]
    known = all_options(whole())
    for code in INLINE.findall(BLOCK.sub("", text)):
        if code.startswith("-"):  # options in running text, of whichever command
            wrong += [name for name in re.findall(r"(?<!\S)--[a-z-]+", code) if name not in known]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(BLOCK.sub("", page.read_text()))]
    relative = [
        link for link in links if link and "://" not in link and not link.startswith("mailto:")
    ]
    assert [link for link in relative if not (page.parent / link).exists()] == []


def test_these_tests_see_the_commands_and_their_mistakes() -> None:
    text = """Run `srjt methods --plan`, or
```
SRJT_CACHE=x srjt train a.csv --epoch=3 --out r  # --not-an-option in a comment
torchrun --nproc-per-node 2 -m srjt data splitt a.csv
srjt data corrupt a.csv --rate 0.4 --no-such
```
```python
print("srjt train --python")
```
    srjt predict run images --fast
"""
    assert [said for words in command_lines(text) for said in mistakes(words)] == [
        "train has no option --epoch",
        "there is no command splitt",
        "corrupt has no option --no-such",
        "predict has no option --fast",
        "methods has no option --plan",
    ]
    assert sum(len(command_lines(page.read_text())) for page in PAGES) > 30


@functools.cache
def reference() -> Any:
    """docs/reference.py, which writes what the code says into the pages."""
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs/reference.py")))


def test_the_pages_say_what_the_code_says() -> None:
    for page, text in reference().contents().items():
        assert page.read_text(encoding="utf-8") == text, "run python docs/reference.py"


def test_every_setting_has_a_row_with_its_default_and_its_meaning() -> None:
    rows = reference().settings(TrainConfig).splitlines()[2:]
    assert len(rows) == len(dataclasses.fields(TrainConfig))
    assert [row for row in rows if row.endswith("|  |")] == []


def exists(entry: str) -> bool:
    """Whether it is a module, or a name in one; a package may have a function with the name of its
    module."""
    module, _, name = entry.rpartition(".")
    if importlib.util.find_spec(module) is not None and hasattr(
        importlib.import_module(module), name
    ):
        return True
    return importlib.util.find_spec(entry) is not None


def test_every_entry_of_the_reference_exists() -> None:
    entries = re.findall(r"^::: (\S+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert [entry for entry in entries if not exists(entry)] == []


ROOMS = ("data", "methods", "networks", "noise", "ordinal", "readers")


def test_the_reference_documents_every_public_name() -> None:
    """By its own entry, or with its module or namespace; functions with their parameters and an
    example."""
    entries = set(re.findall(r"^::: (\S+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE))
    missing = []
    for namespace in ("srjt", *(f"srjt.{room}" for room in ROOMS)):
        module = importlib.import_module(namespace)
        for name in module.__all__:
            public = getattr(module, name)
            if not inspect.isclass(public) and not inspect.isfunction(public):
                continue  # a module, a number
            paths = {
                f"{namespace}.{name}", f"{public.__module__}.{public.__name__}", public.__module__, namespace
            }  # fmt: skip
            text = inspect.getdoc(public) or ""
            if not paths & entries:
                missing.append(f"{namespace}.{name}: no entry")
            wanted = ["Examples"] if inspect.isfunction(public) else []
            if wanted and inspect.signature(public).parameters:
                wanted.append("Parameters")
            missing += [
                f"{namespace}.{name}: no {part}" for part in wanted if f"{part}\n" not in text
            ]
    assert missing == []


def test_the_documentation_stays_short() -> None:
    """As CONTRIBUTING.md says; tables are not counted."""
    lines = [
        line
        for page in (ROOT / "docs").glob("*.md")
        for line in page.read_text(encoding="utf-8").splitlines()
    ]
    assert sum(len(line.split()) for line in lines if not line.startswith("|")) <= 18_000
