"""The command line: quick to answer, clear when it cannot."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
from typer.main import get_command

import srjt
from srjt import cli, methods
from srjt.cli.groups import SUMMARIES
from srjt.errors import SrjtError
from srjt.training.config import TrainConfig

RUN = """
import sys
from srjt.cli import main
try:
    main()
finally:
    print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def run(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    """``srjt`` with these words, in this process: exit status, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["srjt", *words])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    return left.value.code, out, err


HEAVY = {"torch", "numpy", "pandas", "sklearn", "matplotlib", "monai", "yaml"}
NOT_NEEDED = {"pydantic", "rich"}  # what typer imports for other purposes


@pytest.mark.parametrize("words", ["--help", "--version", "study run --help", "methods"])
def test_help_and_methods_load_only_what_they_need(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words.split()], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split("loaded:")[1].split())
    assert not (HEAVY | NOT_NEEDED) & loaded
    if words == "--version":
        assert done.stdout == f"srjt {srjt.__version__}\n"
    else:
        assert "method" in done.stdout


EVERY_HELP_PAGE = """
import sys
from srjt.cli import main
for verb in sys.argv[1:]:
    sys.argv = ["srjt", verb, "-h"]
    try:
        main()
    except SystemExit as left:
        assert left.code == 0
print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def test_no_help_page_loads_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_HELP_PAGE, *SUMMARIES],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.count("Usage: ") == len(SUMMARIES)
    assert not (HEAVY | NOT_NEEDED) & set(done.stderr.split("loaded:")[1].split())


def test_the_help_says_of_each_verb_what_the_verb_says_itself() -> None:
    group = get_command(cli.app)
    for name, summary in SUMMARIES.items():
        group.load(name)
        verb = group.commands[name]
        assert (verb.name, (verb.help or "").split("\n\n")[0].replace("\n", " ")) == (name, summary)


@pytest.mark.parametrize("verb", ["train", "audit"])
def test_every_option_of_a_setting_takes_effect(verb: str, monkeypatch, capsys) -> None:
    """A value that cannot be is refused by name, so it has reached the settings."""
    group = get_command(cli.app)
    group.load(verb)
    options = {param.name for param in group.commands[verb].params}
    settings = [f for f in dataclasses.fields(TrainConfig) if f.metadata["help"] and f.name in options]
    assert len(settings) >= 12
    if verb == "train":
        assert {f.name for f in dataclasses.fields(TrainConfig) if f.metadata["help"]} <= options
    for field in settings:
        if field.name in ("epochs", "batch_size", "learning_rate", "image_size", "crop"):
            option = f"--{field.name.replace('_', '-')}"
            _, _, err = run(monkeypatch, capsys, verb, "none.csv", "--out", "x", option, "0")
            assert f"--{field.name.replace('_', '-')} must be positive; got 0" in err


def test_methods_lists_all_of_them_by_family(monkeypatch, capsys) -> None:
    """In 80 columns: a blank line and a heading before each family, and nothing of a method left out."""
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(monkeypatch, capsys, "methods")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    listed, _, papers = out.partition("needs ε  ")
    lines = [line.rstrip() for line in listed.splitlines()]
    assert lines[0].split() == ["name", "needs", "learns", "from"]
    for heading, first in (("One network", "standard"), ("Two networks", "co-teaching")):
        at = lines.index(heading)
        assert lines[at + 1].split()[0] == first
    assert lines[lines.index("Two networks") - 1] == ""
    begun = [re.match(r" (\S+)  ", line) for line in lines]
    assert sorted(found[1] for found in begun if found) == sorted(methods.names())
    words = " ".join(listed.split())
    for name in methods.names():
        assert methods.lookup(name).paper in papers
        assert re.search(rf"^(.*, )?{re.escape(name)}(, .*)?: ", papers, re.MULTILINE)
        assert methods.lookup(name).scores.split()[0] in words
    assert re.search(r"^ garg +P  ", "\n".join(lines), re.MULTILINE)
    assert "host" in papers


def test_methods_plain_is_for_scripts(monkeypatch, capsys) -> None:
    status, out, _ = run(monkeypatch, capsys, "methods", "--plain")
    assert status == 0
    assert out.splitlines() == list(methods.names())


def test_a_misspelt_command_exits_2_and_is_suggested(monkeypatch, capsys) -> None:
    status, out, err = run(monkeypatch, capsys, "methds")
    assert status == 2
    assert out == ""
    assert "methods" in err


def test_a_misspelt_option_exits_2(monkeypatch, capsys) -> None:
    status, _, err = run(monkeypatch, capsys, "methods", "--plane")
    assert status == 2
    assert "--plain" in err


def test_a_problem_with_the_input_is_one_sentence_and_status_2(monkeypatch, capsys) -> None:
    def fail(**settings: object) -> None:
        raise SrjtError("The grade column is missing.")

    monkeypatch.setattr(cli, "app", fail)
    status, out, err = run(monkeypatch, capsys, "methods")
    assert (status, out, err) == (2, "", "srjt: The grade column is missing.\n")


def test_a_traceback_can_be_asked_for(monkeypatch) -> None:
    def fail(**settings: object) -> None:
        raise SrjtError("The grade column is missing.")

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setenv("SRJT_TRACEBACK", "1")
    with pytest.raises(SrjtError, match="grade column"):
        cli.main()


def test_python_m_srjt_is_srjt() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "srjt", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"srjt {srjt.__version__}\n"
