"""Files that somebody sent, and strange options: no code in them is executed, and every command
ends in a sentence."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.corpus import alias_bomb, csv_table
from hostile.test_inputs import time_limit
from refusals import refuses
from srjt.cli import main, say
from srjt.cli.data import print_problems
from srjt.data import Problem
from srjt.files import write_output

Command = Callable[..., tuple[int, str]]
HUGE = 10**20


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run srjt in an empty folder with a table of labels, a pipe, and a module that leaves a trace
    when imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("labels.csv").write_bytes(csv_table())
    Path("evil.py").write_text("open('trace', 'w').close()\n")
    os.mkfifo("pipe")

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["srjt", *map(str, arguments)])
        with time_limit(), pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return int(left.value.code or 0), said.out + said.err

    return call


TRAIN = ("train", "labels.csv", "--out", "run", "--fold", 0, "--dry-run")
AUDIT = ("audit", "labels.csv", "--out", "audit")
STUDY = ("study", "labels.csv", "--out", "study", "--dry-run")


@pytest.mark.parametrize("verb", [TRAIN, AUDIT, STUDY])
def test_a_file_that_one_was_sent_executes_nothing(
    command: Command, verb: tuple[object, ...]
) -> None:
    Path("sent.yaml").write_text(
        "imports: [evil]\n" if verb is not STUDY else "train: {imports: [evil]}\n"
    )
    code, said = command(*verb, "--config", "sent.yaml")
    assert (code, Path("trace").exists()) == (2, False)
    assert (
        "sent.yaml has the setting imports, but a file must not run code: name the modules" in said
    )
    code, said = command(*verb, "--set", "imports=[evil]")
    assert (code, Path("trace").exists()) == (2, False)
    assert (
        "--set imports=… would run code: name the modules on the command line, with --import."
        in said
    )
    command(*verb, "--import", "evil", "--set", "epochs=none")
    assert Path("trace").exists()
    sys.modules.pop("evil")


@pytest.mark.parametrize("verb", [TRAIN, STUDY])
def test_settings_that_would_never_end(command: Command, verb: tuple[object, ...]) -> None:
    Path("bomb.yaml").write_bytes(alias_bomb())
    Path("large.yaml").write_text("x" * 300_000)
    for file, sentence in {
        "bomb.yaml": "is not valid YAML: the alias *a0 is not supported: write its value again",
        "large.yaml": "cannot be read: it has more than 262,144 bytes",
        "pipe": "it is a pipe, a socket or a device, not a regular file",
    }.items():
        code, said = command(*verb, "--config", file)
        assert (code, sentence in said) == (2, True), said


@pytest.mark.parametrize("file", ["pipe", "/dev/zero", "labels.csv", "."])
def test_a_matrix_that_is_none(command: Command, file: str) -> None:
    code, said = command(*TRAIN, "--method", "garg", "--transition", file)
    assert (code, f"{file} cannot be read" in said) == (2, True), said


@pytest.mark.parametrize("content", ["train:\n", "reading:\n", "train: 3\n", "reading: [1]\n"])
def test_a_study_file_with_empty_parts(command: Command, content: str) -> None:
    Path("sent.yaml").write_text(content)
    code, said = command(*STUDY, "--config", "sent.yaml")
    assert code == 2
    assert ("settings" in said) == content.endswith(("3\n", "[1]\n")), said


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", "synthetic", "z", "--images", HUGE),
        ("features", "labels.csv", "--out", "f.npz", "--image-size", HUGE),
        ("features", "labels.csv", "--out", "f.npz", "--batch-size", HUGE),
        ("study", "labels.csv", "--out", "study", "--jobs", HUGE),
        ("study", "labels.csv", "--out", "study", "--jobs", 10**15, "--methods", "standard"),
        ("demo", "--epochs", HUGE, "--out", "d"),
        ("data", "split", "labels.csv", "--seed", HUGE, "--out", "s.csv"),
        (*AUDIT, "--seed", -1),
        (*TRAIN, "--seed", -1),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[-2:])),
)
def test_numbers_that_no_option_means(command: Command, arguments: tuple[object, ...]) -> None:
    code, said = command(*arguments)
    assert code == 2
    limits = "smaller than 2\\*\\*63|--jobs is at most 1000|less than or equal|is not in the range|seed cannot be neg"
    assert re.search(limits, said), said


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_problems([Problem("missing-image", "a\x1b]0;owned\x07.png", "\x1b[2Jgone")])
    say("grade \x1b[31m1")
    shown = capsys.readouterr().out
    assert "a\\x1b]0;owned\\x07.png: \\x1b[2Jgone" in shown
    assert "grade \\x1b[31m1" in shown
    assert "\x1b" not in shown


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        time_limit(),
        refuses("unwritable_file", says="pipe"),
    ):
        write_output(tmp_path / "pipe", b"x")
