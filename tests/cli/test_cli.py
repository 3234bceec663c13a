"""The command line: verbs, help pages, messages."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.main import get_command

import srjt
from srjt import cli, methods
from srjt.cli import SUMMARIES, OptionsReporter, say, warnings_as_sentences
from srjt.errors import Message, Option, SrjtError, warn
from srjt.reports.flags import as_typed
from srjt.training.checkpoint import MetricRow
from srjt.training.config import TrainConfig
from srjt.training.rarely_kept import rarely_kept_advice, rarely_kept_warning
from srjt.training.reporters import BarReporter, reporter_for

from .conftest import Srjt

# The command line: quick to answer, clear when it cannot.

RUN = """
import sys
from srjt.cli import main
try:
    main()
finally:
    print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


HEAVY = {"torch", "numpy", "pandas", "sklearn", "matplotlib", "monai", "yaml", "rich"}


@pytest.mark.parametrize("words", ["--help", "--version", "study run --help", "methods"])
def test_help_and_methods_load_only_what_they_need(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split("loaded:")[1].split())
    assert not HEAVY & loaded
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
    assert not HEAVY & set(done.stderr.split("loaded:")[1].split())


def test_the_help_says_of_each_verb_what_the_verb_says_itself() -> None:
    group = get_command(cli.app)
    for name, summary in SUMMARIES.items():
        group.load(name)
        verb = group.commands[name]
        assert (verb.name, (verb.help or "").split("\n\n")[0].replace("\n", " ")) == (name, summary)


@pytest.mark.parametrize("verb", ["train", "audit"])
def test_every_option_of_a_setting_takes_effect(verb: str, command: Srjt) -> None:
    """A value that cannot be is refused by name, so it has reached the settings."""
    group = get_command(cli.app)
    group.load(verb)
    options = {param.name for param in group.commands[verb].params}
    settings = [
        f for f in dataclasses.fields(TrainConfig) if f.metadata["help"] and f.name in options
    ]
    assert len(settings) >= 12
    if verb == "train":
        assert {f.name for f in dataclasses.fields(TrainConfig) if f.metadata["help"]} <= options
    for field in settings:
        if field.name in ("epochs", "batch_size", "learning_rate", "image_size", "crop"):
            option = f"--{field.name.replace('_', '-')}"
            _, _, err = command(verb, "none.csv", "--out", "x", option, "0")
            assert f"--{field.name.replace('_', '-')} must be positive; got 0" in err


@pytest.mark.parametrize("verb", ["plan", "train", "study"])
def test_no_line_of_a_help_text_ends_within_an_option(
    command: Srjt, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = command.prints(verb, "--help")
    assert not re.findall(r"(?<!\S)--[\w-]*-$", out, re.MULTILINE)
    assert "\N{NON-BREAKING HYPHEN}" not in out  # what is copied can be run
    assert verb != "plan" or "--images-per-patient 2" in out


def test_methods_lists_all_of_them_by_family(command: Srjt, monkeypatch) -> None:
    """In 80 columns: a blank line and a heading before each family, and nothing of a method left
    out."""
    monkeypatch.setenv("COLUMNS", "80")
    out = command.prints("methods")
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


def test_a_misspelt_command_exits_2_and_is_suggested(command: Srjt) -> None:
    status, out, err = command("methds")
    assert status == 2
    assert out == ""
    assert "methods" in err


def test_a_misspelt_option_exits_2(command: Srjt) -> None:
    code, _, err = command("methods", "--improt")
    assert (code, "--import" in err) == (2, True)


def test_a_problem_with_the_input_is_one_sentence_and_status_2(command: Srjt, monkeypatch) -> None:
    def fail(**settings: object) -> None:
        raise SrjtError("The grade column is missing.")

    monkeypatch.setattr(cli, "app", fail)
    status, out, err = command("methods")
    assert (status, out, err) == (2, "", "srjt: The grade column is missing.\n")


@pytest.mark.parametrize(
    "words", [["data", "inspect"], ["data", "synthetic"], ["export"], ["review"]]
)
def test_a_name_that_no_file_can_have_is_one_sentence(command: Srjt, words: list[str]) -> None:
    name = "a" * 300
    status, out, err = command(*words, name)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"srjt: {name}")
    assert "Errno" not in err


def test_a_traceback_can_be_asked_for(monkeypatch) -> None:
    def fail(**settings: object) -> None:
        raise SrjtError("The grade column is missing.")

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setenv("SRJT_TRACEBACK", "1")
    with pytest.raises(SrjtError, match="grade column"):
        cli.main()


def test_python_m_srjt_is_srjt() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "srjt", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"srjt {srjt.__version__}\n"


# The help pages: complete, in the width of the terminal, with and without Unicode.


def every_command() -> Iterator[tuple[list[str], Any]]:
    group = get_command(cli.app)
    yield [], group
    for name in SUMMARIES:
        group.load(name)
        yield [name], group.commands[name]
        for verb, one in getattr(group.commands[name], "commands", {}).items():
            yield [name, verb], one


@pytest.mark.slow
def test_every_page_has_every_option_and_its_group_in_80_columns(command: Srjt) -> None:
    for verb, made in every_command():
        page = command.prints(*verb, "--help")
        assert max(map(len, page.splitlines())) <= 80
        shown = [one for one in made.params if not one.hidden]
        for one in shown:
            assert one.help
            for option in (name for name in (*one.opts, *one.secondary_opts) if name[0] == "-"):
                assert re.search(rf"{option}(?![\w-])", page), option
            assert f"\n{getattr(one, 'rich_help_panel', None) or 'Options'}:\n" in page


def test_without_words_the_help_is_printed_as_an_error(command: Srjt) -> None:
    for words in ([], ["review"]):
        code, out, err = command(*words)
        assert code == 2
        assert (out + err).strip() == command(*words, "--help")[1].strip()


# What errors and warnings look like: options as they are typed, and the width of the terminal.

# only the command line, or another program's, comes here
COMMAND_LINE = (
    "cli",
    "reports/flags.py",
    "auditing/review",
    "auditing/corrected_table.py",  # the command that trains on the table
    "studies/ray",
    "methods/__init__.py",
    "files.py",
    "hub.py",
)
KNOWN = (
    "inference/predict.py",  # words of a command
    "notebook.py",  # variables of CSS
)


@pytest.mark.parametrize(
    ("option", "typed"),
    [
        (Option("out"), "--out"),
        (Option("on_bad_image", "skip"), "--on-bad-image skip"),
        (Option("grade_column", ["dr a", "b"]), "--grade-column 'dr a' --grade-column b"),
        (Option("pretrained", False), "--no-pretrained"),
        (Option("flip", True), "--flip"),
        (Option("method_options", {"per_class": True}), "--set method_options.per_class=true"),
        (Option("split"), "--fold"),
        (Option("imports"), "--import"),
    ],
)
def test_settings_become_options(option: Option, typed: str) -> None:
    assert as_typed(Message("Choose ", option, ".")) == f"Choose {typed}."


def test_other_text_is_left_alone() -> None:
    """A column may have a backtick in its name."""
    assert as_typed("The column `out` has level`s") == "The column `out` has level`s"


@pytest.mark.slow
def test_every_option_that_a_message_names_is_one() -> None:
    """Of some command: else the command line would name one that does not exist."""
    options = {name for _, one in every_command() for param in one.params for name in param.opts}
    named = {
        call.args[0].value
        for file in Path(srjt.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Option"
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(named) > 30
    assert {name for name in named if as_typed(Message(Option(name))) not in options} == {
        "method_options"
    }  # by --set


@pytest.mark.slow
def test_errors_of_the_library_name_no_options() -> None:
    found = []
    package = Path(srjt.__file__).parent
    for file in package.rglob("*.py"):
        if file.relative_to(package).as_posix().startswith((*COMMAND_LINE, *KNOWN)):
            continue
        for text in texts_in(ast.parse(file.read_text(encoding="utf-8"))):
            if re.search(
                r"(?<![\w-])--[a-z]", re.sub(r"srjt [a-z](://|[^:;,])*|--set .*", "", text)
            ):
                found.append(f"{file.relative_to(package)}: {text}")
    assert "\n".join(found) == ""


def texts_in(node: ast.AST) -> Iterator[str]:
    """The strings of a program, formatted ones in one piece; without docstrings and the help of
    options."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setting":
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from texts_in(child)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_wraps_sentences_but_neither_paths_nor_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path, command = (
        "a-long/" * 9 + "name.csv",
        "srjt features new images --ungraded --out features.npz",
    )
    say(f"This sentence is longer than forty columns, and so is {path}. Next: {command}")
    lines = capsys.readouterr().out.splitlines()
    assert path + "." in " ".join(lines).split()
    assert lines[-1] == f"  {command}"
    assert all(len(line) <= 40 or path in line for line in lines[:-1])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_warning_is_written_above_a_progress_bar_or_into_the_file_it_goes_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for error in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", output := Terminal())
        monkeypatch.setattr("sys.stderr", error)
        with reporter_for() as bar:
            bar.begin("training", epochs=2)
            say("Mind this.", err=True)
        line = next(
            line
            for line in (output if error.isatty() else error).getvalue().splitlines()
            if "Mind" in line
        )
        assert re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", line).strip() == "Mind this."
    assert "Mind" not in output.getvalue()


@pytest.mark.usefixtures("terminal")
def test_a_sentence_that_begins_with_the_program_is_no_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("srjt review needs an audit", before="srjt: ")
    assert capsys.readouterr().out == "srjt: srjt review needs an audit\n"


def test_the_notes_of_a_training_name_options() -> None:
    heard = BarReporter()
    shares = (("", "kept", 0.5), ("1", "kept[0]", 0.0), ("1", "kept[1]", 0.9))
    rows = [
        MetricRow(epoch, "train", network, name, value)
        for epoch in (1, 2, 3)
        for network, name, value in shares
    ]
    advice = rarely_kept_advice(methods.CoTeaching)
    warning = rarely_kept_warning(rows, ["0", "1"], advice=advice)
    assert warning is not None
    OptionsReporter(heard).note(warning)
    assert (
        "(--set method_options.ramp_epochs=10), --set method_options.per_class=true or"
        in heard.notes[0]
    )


def test_a_control_character_in_a_setting_does_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings_as_sentences():
        warnings.simplefilter("always", DeprecationWarning)  # as some libraries do for theirs
        warnings.warn("'parseString' deprecated", DeprecationWarning, stacklevel=1)
        warn(Message("Read ", Option("grade_column", "a\x07b"), "."))
    assert capsys.readouterr().err == "Warning: Read --grade-column 'a\\x07b'.\n"


def test_a_pipe_gets_one_line_per_message(command: Srjt, labelled: Path) -> None:
    err = command.refuses("train", labelled, "--out", "run", "--image-column", "picture")
    assert len(err) > 80


def test_an_option_with_underscores_is_named_with_dashes(command: Srjt) -> None:
    for verb in (
        "train",
        "audit",
        "study",
    ):  # the same settings, also those that the help of audit does not list
        for option in ("learning_rate", "weight_decay"):
            code, _, err = command(verb, "labels.csv", f"--{option}", "3")
            assert (code, f"--{option.replace('_', '-')}" in err) == (2, True)


@pytest.mark.parametrize("verb", ["inspect", "corrupt"])
def test_control_characters_of_a_table_do_not_reach_the_terminal(command: Srjt, verb: str) -> None:
    """Names of grades and samples, in sentences and in tables: one could rewrite what was printed
    before."""
    lines = [f"{i}.png,mild \x1b]0;title\x07\x1b[2J {i % 2}" for i in range(20)] + [
        "x\x1b[31m.png,"
    ]
    Path("labels.csv").write_text("\n".join(["image,grade", *lines]), encoding="utf-8")
    for name in range(20):
        Image.new("RGB", (8, 8), (name, 0, 0)).save(f"{name}.png")
    skip = [] if verb == "inspect" else ["--on-bad-image", "skip"]
    _, out, err = command(
        "data", verb, "labels.csv", *skip, *(["--rate", "0.2"] if verb == "corrupt" else [])
    )
    said = out + err
    assert "mild \\x1b]0" in said
    assert "missing-grade" in said or verb != "inspect"
    assert not set(said) & {"\x1b", "\x07"}
