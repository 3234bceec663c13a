"""What errors and warnings look like: options as they are typed, and the width of the terminal."""

from __future__ import annotations

import ast
import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import srjt
from srjt.cli import app
from srjt.cli.messages import OptionsReporter, say, warnings_as_sentences
from srjt.cli.option_names import as_typed, use_options_of
from srjt.training.engine.starvation import StarvationMonitor
from srjt.training.record.reporters import SilentReporter, TerminalReporter

Srjt = Callable[..., tuple[int, str, str]]

# only the command line, or another program's, comes here
COMMAND_LINE = ("cli", "review", "studies/executors", "methods/plugins.py", "methods/registry.py", "files.py")
KNOWN = (
    "inference/kind_of_samples.py",  # words of a command
    "notebook_html.py",  # variables of CSS
    "reports/pages/demo_page.py",  # the page of a command
)


@pytest.fixture
def train_options() -> None:
    from typer.main import get_command

    group = get_command(app)
    group.load("train")  # type: ignore[attr-defined]
    use_options_of(group.commands["train"])  # type: ignore[attr-defined]


@pytest.mark.usefixtures("train_options")
@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("Choose another `out`, or delete it.", "Choose another --out, or delete it."),
        ("Leave it out with `on_bad_image='skip'`.", "Leave it out with --on-bad-image skip."),
        ("`grade_column=['dr a', 'b']`", "--grade-column 'dr a' --grade-column b"),
        ("Start with `pretrained=False` or `per_class=True`.", "Start with --no-pretrained or --per-class."),
        ("Less with `memory_share=0.2`.", "Less with --set memory_share=0.2."),
        ("name it in `imports`", "name it in --import"),
        ("train it with `split`", "train it with --fold"),
        ("image_size takes a whole number", "--image-size takes a whole number"),
        ("epochs takes a whole number", "--epochs takes a whole number"),
        ("`coverage` is not one of its options", "coverage is not one of its options"),
        ("Choose another `memory_share`.", "Choose another --set memory_share=…."),
        ("Unknown on_bad_image 'x'. Known: image_size", "Unknown --on-bad-image 'x'. Known: image_size"),
        ("Unknown network 'tini': did you mean 'tiny'?",) * 2,
        ("Which is the grade? Columns: image, image_size, out.",) * 2,
        ("image_size does not exist.",) * 2,
        ("The column level`s has `out=3 ills` in it",) * 2,
        ("runs/image_size.csv and 'image_size' stay", "runs/image_size.csv and 'image_size' stay"),
    ],
)
def test_settings_become_options(message: str, typed: str) -> None:
    assert as_typed(message) == typed


def test_errors_of_the_library_name_no_options() -> None:
    found = []
    package = Path(srjt.__file__).parent
    for file in package.rglob("*.py"):
        if file.relative_to(package).as_posix().startswith((*COMMAND_LINE, *KNOWN)):
            continue
        for text in texts_in(ast.parse(file.read_text(encoding="utf-8"))):
            if re.search(r"(?<![\w-])--[a-z]", re.sub(r"srjt [a-z][^:;,]*|--set .*", "", text)):
                found.append(f"{file.relative_to(package)}: {text}")
    assert "\n".join(found) == ""


def texts_in(node: ast.AST) -> Iterator[str]:
    """The strings of a program, formatted ones in one piece; without docstrings and the help of options."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
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
    path, command = "a-long/" * 9 + "name.csv", "srjt features new images --ungraded --out features.npz"
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
        with TerminalReporter() as bar:
            bar.begin("training", epochs=2)
            say("Mind this.", err=True)
        line = next(
            line for line in (output if error.isatty() else error).getvalue().splitlines() if "Mind" in line
        )
        assert re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", line).strip() == "Mind this."
    assert "Mind" not in output.getvalue()


@pytest.mark.usefixtures("terminal")
def test_a_sentence_that_begins_with_the_program_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    say("srjt review needs an audit", before="srjt: ")
    assert capsys.readouterr().out == "srjt: srjt review needs an audit\n"


@pytest.mark.usefixtures("train_options")
def test_the_notes_of_a_training_name_options() -> None:
    heard = SilentReporter()
    monitor = StarvationMonitor(["0", "1"])
    counts = np.array([[[0, 0], [0, 90], [0, 0], [100, 100]]])
    warnings = [monitor.update(counts) for _ in range(3)]
    OptionsReporter(heard).note(str(warnings[-1]))
    assert "Try --per-class, a slower ramp (--ramp-epochs) or a smaller --noise-rate." in heard.notes[0]


@pytest.mark.usefixtures("train_options")
def test_a_control_character_in_a_setting_does_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings_as_sentences():
        warnings.simplefilter("always", DeprecationWarning)  # as some libraries do for theirs
        warnings.warn("'parseString' deprecated", DeprecationWarning, stacklevel=1)
        warnings.warn("Read `grade_column='a\\x07b'`.", stacklevel=1)
    assert capsys.readouterr().err == "Warning: Read --grade-column 'a\\x07b'.\n"


def test_a_pipe_gets_one_line_per_message(command: Srjt, labelled: Path) -> None:
    code, _, err = command("train", labelled, "--out", "run", "--image-column", "picture")
    assert (code, err.count("\n")) == (2, 1)
    assert len(err) > 80


def test_an_option_with_underscores_is_named_with_dashes(command: Srjt) -> None:
    """Every setting can be given by --set, but those that are options are not suggested there."""
    code, _, err = command("train", "labels.csv", "--learning_rate", "3")
    assert (code, "--learning-rate" in err, "--set" in err) == (2, True, False)
    assert "--set weight_decay=3" in command("train", "labels.csv", "--weight_decay", "3")[2]


@pytest.mark.parametrize("verb", ["inspect", "corrupt"])
def test_control_characters_of_a_table_do_not_reach_the_terminal(command: Srjt, verb: str) -> None:
    """Names of grades and samples, in sentences and in tables: one could rewrite what was printed before."""
    lines = [f"{i}.png,mild \x1b]0;title\x07\x1b[2J {i % 2}" for i in range(20)] + ["x\x1b[31m.png,"]
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
