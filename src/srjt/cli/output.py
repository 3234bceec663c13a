"""What commands print and write: sentences in the width of the terminal, warnings as sentences, settings by the
names of their options, streams that are closed or full, and files that are never overwritten by accident.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from srjt.errors import SettingError, SrjtError, UnknownNameError, printable
from srjt.progress import Forwarding, progress_bar

if TYPE_CHECKING:
    import pandas as pd

    from srjt.reports.page import Page

# Errors and warnings name an option as it is written in Python, ```grade_column='severity'```; here it
# becomes what is typed in a shell, ``--grade-column severity``.

OPTION = re.compile(r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]+))?`")
# those whose flag is not the name with dashes
FLAGS = {
    "decoding": "--decode", "imports": "--import", "noises": "--noise", "only_folds": "--fold",
    "overwrite": "--force", "seeds": "--seed", "split": "--fold",
}  # fmt: skip


def as_typed(text: str) -> str:
    """A message with its options as they are typed in a shell."""
    return OPTION.sub(_typed_option, text)


def in_options(problem: SrjtError) -> str:
    """The sentence of an error; one about a setting has its option instead of its name."""
    name = problem.setting if isinstance(problem, (SettingError, UnknownNameError)) else ""
    return str(problem).replace(name, f"`{name}`", 1) if name else str(problem)


def _typed_option(option: re.Match[str]) -> str:
    flag = FLAGS.get(option["name"], f"--{option['name'].replace('_', '-')}")
    if option["value"] is None:
        return flag
    try:
        value = ast.literal_eval(option["value"])
    except (ValueError, SyntaxError):  # not written by us: a column may have a backtick in its name
        return option[0]
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    return " ".join(
        f"{flag} {shlex.quote(str(one))}" for one in (value if isinstance(value, list) else [value])
    )


# Standard output that is closed, full, ASCII-only, or read by a program that has exited.


def prepare_streams() -> None:
    """Make both streams writable with any text: file names may be any bytes, and a terminal may be ASCII-only.

    Without standard output (``>&-``) the first file that is opened would take its number, and prints would end there.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def colours_wanted() -> bool | None:
    """Whether to write in colours, by the environment; None: if the output is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def discard_output() -> None:
    """Send what is still to be written to nowhere, so that Python does not try again, and complain, when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_status(left: SystemExit) -> int:
    """The documented exit status. typer and rich exit with 1 where the reader of the output has exited, and older
    versions of typer also at Ctrl-C."""
    status = left.code if isinstance(left.code, int) else int(left.code is not None)
    cause: BaseException | None = left
    while status == 1 and cause is not None:
        if isinstance(cause, BrokenPipeError):
            return 141
        if isinstance(cause, KeyboardInterrupt):
            return 130
        cause = cause.__cause__ or cause.__context__
    return status


# Sentences in the width of the terminal, warnings as sentences, and progress bars that leave no trace.

COMMAND = re.compile(r"(.*?)(?:(?<=:) (srjt .*[^.]))?", re.DOTALL)  # a sentence, and the command at its end


def is_terminal(*, err: bool) -> bool:
    """Whether standard output, or standard error, is a terminal."""
    return _proxied(sys.stderr if err else sys.stdout).isatty()


def _proxied(stream: TextIO) -> TextIO:
    """The stream itself, which rich replaces while it shows a bar; older versions of rich call that no terminal."""
    own: TextIO = getattr(stream, "rich_proxied_file", stream)
    return own


def say(text: str, *, before: str = "", err: bool = False, **style: Any) -> None:
    """Print a sentence: wrapped to the terminal's width, on one line in a file or pipe, where it is searched for.

    A line is broken at spaces only, so that a path stays in one piece, and a command at the end of a sentence gets a
    line of its own: both can be copied. before: what the sentence begins with ("srjt: "), which announces no command.
    style: as for ``typer.style``.
    """
    # names in it may come from a file that was sent
    text = "\n".join(map(printable, as_typed(text).split("\n")))
    if is_terminal(err=err):
        sentence, command = COMMAND.fullmatch(text).groups()  # type: ignore[union-attr]
        width = shutil.get_terminal_size().columns
        lines = [
            textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
            for line in f"{before}{sentence}".split("\n")
        ]
        text = "\n".join([*lines, f"  {command}"] if command else lines)
    else:
        text = f"{before}{text}"
    stream = sys.stderr if err else sys.stdout
    # through rich, so that the text goes above its bar and not into it; but not what is meant for a file
    typer.secho(
        text, file=stream if is_terminal(err=err) else _proxied(stream), color=colours_wanted(), **style
    )


def show(page: Page, *, err: bool = False) -> None:
    """Print a page: verdict, key numbers, tables and the first notes."""
    from rich.text import Text

    from srjt.console import Console
    from srjt.reports.page import terminal

    console = Console(markup=False, highlight=False, stderr=err)
    for part in terminal(page):
        if isinstance(part, Text):
            say(part.plain, err=err, fg="yellow" if part.style == "yellow" else None, dim=part.style == "dim")
        else:
            console.print(part)


def print_table(frame: pd.DataFrame, *, title: str = "", **options: Any) -> None:
    """Print a table. options: as for ``srjt.reports.table.data_table``."""
    from srjt.console import Console
    from srjt.reports.table import data_table

    Console(markup=False, highlight=False).print(data_table(frame, title=title, **options).rich())


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show each warning once, when it comes up (a training may take hours), without the line of code it came from."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, DeprecationWarning):  # of one library to another
            return
        if str(message) not in shown:
            shown.add(str(message))
            say(printable(message), before="Warning: ", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


class OptionsReporter(Forwarding):
    """Shows the settings in the notes of a training as options of the command that runs."""

    def note(self, text: str) -> None:
        self.inner.note(as_typed(text))


def decoding_bar(shown: bool = True) -> AbstractContextManager[Callable[[int, int], None]]:
    """A transient bar over images that are being decoded."""
    return progress_bar("Decoding", shown)


# Writing files for the user: never over another one by accident, and with one sentence where it is not
# possible.


def check_outputs(out: Path | None, html: Path | None = None, *, force: bool = False) -> None:
    """An error if a file exists, or cannot be meant; to be called first, before an hour is spent. A pipe may exist."""
    from srjt.files import exists_already, is_stream

    if html is not None and html.is_dir():
        raise SrjtError(f"{html} is a folder: give the name of an HTML file.")
    if html is not None and out is not None and html.absolute() == out.absolute():
        raise SrjtError(f"--html and --out are the same file, {html}: give two names.")
    for file in (out, html):
        if file is not None and file.is_file() and not force and not is_stream(file):
            raise exists_already(file)


def finish(page: Page, *, out: Path | None, html: Path | None = None, err: bool = False) -> None:
    """Save the page if that is wanted, print it, and say where everything is."""
    if html is not None:  # after the numbers, which are then not lost if the page cannot be written
        page.save(html)
    show(page, err=err)
    for file, words in ((out, "Written to"), (html, "The page is in")):
        if file is not None:
            say(f"{words} {file}.", err=err)


def typed_command(verb: str) -> str | None:
    """The command as it was typed; None if the verb was called otherwise."""
    return shlex.join(["srjt", *sys.argv[1:]]) if sys.argv[1:2] == [verb] else None
