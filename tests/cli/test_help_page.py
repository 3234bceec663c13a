"""The help pages: complete, in the width of the terminal, with and without colours and Unicode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from srjt import cli
from srjt.cli.groups import SUMMARIES
from srjt.cli.help_page import ASCII

from .conftest import Srjt

COLOUR = re.compile("\x1b\\[[0-9;]*m")


def every_command() -> Iterator[tuple[list[str], Any]]:
    group = get_command(cli.app)
    yield [], group
    for name in SUMMARIES:
        group.load(name)
        yield [name], group.commands[name]
        for verb, one in getattr(group.commands[name], "commands", {}).items():
            yield [name, verb], one


def words(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]|\[dim\]|\[/\]|[][]", " ", text).split())


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_page_has_every_option_in_full(
    command: Srjt, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for verb, made in every_command():
        code, page, _ = command(*verb, "--help")
        assert code == 0
        lines = page.splitlines()
        assert {len(line) for line in lines if line.startswith(("│", "╭", "╰"))} == {width}
        assert all(len(line) <= width for line in lines if not line.startswith(" Usage"))
        text = words(page)
        shown = [one for one in made.params if not one.hidden]
        for option in (name for one in shown for name in (*one.opts, *one.secondary_opts) if name[0] == "-"):
            assert re.search(rf"{option}(?![\w-])", page), option
        if width > 40:  # there a word is the whole line, and is broken
            assert all(one.help and words(one.help) in text for one in shown), verb
            assert all(words(paragraph) in text for paragraph in (made.help or "").split("\n\n"))
        panels = {one.rich_help_panel for one in shown if getattr(one, "rich_help_panel", None)}
        assert panels <= set(re.findall("╭─ (.*?) ─", page))


def test_a_row_says_whether_it_is_required_its_choices_default_and_range(command: Srjt) -> None:
    _, page, _ = command("train", "--help")
    assert re.search(
        r"│ \* --out DIR +Folder of the run; an unfinished run is +│\n│ +resumed\. \[required\] +│", page
    )
    assert re.search(r"│   --on-bad-image error\|skip +Stop at .+│\n│ +list .+ \[default: error\] +│", page)
    assert "│ --pretrained / --no-pretrained  Start from ImageNet weights. [default: yes]  │" in page
    assert re.search(r"│ --official-split / --no-official-split +│\n│ {26}Use the split column", page)
    _, page, _ = command("review", "run", "--help")
    assert "[default: a free one] [0<=x<=65535]" in page


def test_without_words_the_help_is_printed_as_an_error(command: Srjt) -> None:
    for words in ([], ["review"]):
        assert command(*words)[:2] == (2, command(*words, "--help")[1].removesuffix("\n"))


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({}, False)],
)
def test_colours_change_nothing_else(
    command: Srjt, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    _, plain, _ = command("audit", "--help")
    assert not COLOUR.search(plain)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, page, _ = command("audit", "--help")
    assert bool(COLOUR.search(page)) == coloured
    assert COLOUR.sub("", page) == plain
    if coloured:
        codes = [COLOUR.findall(line) for line in page.splitlines()]
        assert {found[-1] for found in codes if found} == {"\x1b[0m"}  # no colour runs into the next line


def test_ascii_only() -> None:
    environment = {
        **os.environ,
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "LC_ALL": "C",
        "COLUMNS": "80",
    }
    done = subprocess.run(
        [sys.executable, "-m", "srjt", "train", "--help"], env=environment, capture_output=True, check=True
    )
    page = done.stdout.decode("ascii")
    assert "?" not in page
    assert "+- Method -" in page
    assert "| --noise-rate RATE|auto         e, the share of wrong labels" in page


def test_every_letter_of_a_help_page_has_one_in_ascii() -> None:
    for words, one in every_command():
        context = one.make_context("srjt", [], resilient_parsing=True)
        records = [parameter.get_help_record(context) or () for parameter in one.get_params(context)]
        text = " ".join([one.help or "", *(part for record in records for part in record)])
        assert text.translate(ASCII).isascii(), words
