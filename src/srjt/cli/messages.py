"""Sentences in the width of the terminal, warnings as sentences, and progress bars that leave no trace."""

from __future__ import annotations

import codecs
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer

from srjt.cli.option_names import as_typed
from srjt.cli.streams import colours_wanted
from srjt.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from srjt.training.record.reporters import Reporter

__all__ = [
    "OptionsReporter",
    "decoding_bar",
    "is_terminal",
    "progress_bar",
    "say",
    "transient_bar",
    "warnings_as_sentences",
]

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
    text = "\n".join(map(printable, text.split("\n")))  # names in it may come from a file that was sent
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
    if _knows_ascii_only(_proxied(stream)):
        text = text.encode("ascii", "replace").decode("ascii")
    # through rich, so that the text goes above its bar and not into it; but not what is meant for a file
    typer.secho(
        text, file=stream if is_terminal(err=err) else _proxied(stream), color=colours_wanted(), **style
    )


def _knows_ascii_only(stream: TextIO) -> bool:
    return codecs.lookup(stream.encoding or "utf-8").name == "ascii"


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show each warning once, when it comes up (a training may take hours), without the line of code it came from."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(
            category, DeprecationWarning
        ):  # of one library to another: a user can do nothing about it
            return
        if str(message) not in shown:
            shown.add(str(message))
            say(printable(as_typed(str(message))), before="Warning: ", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


class OptionsReporter:
    """Passes the progress of a training on, with the settings in its notes as options of the command that runs."""

    def __init__(self, inner: Reporter) -> None:
        self.inner = inner
        self.begin, self.decoded = inner.begin, inner.decoded
        self.stepped, self.finished_epoch = inner.stepped, inner.finished_epoch

    def note(self, text: str) -> None:
        self.inner.note(as_typed(text))


def transient_bar() -> Progress:
    """A progress bar that disappears when done; in a log nothing is written, not even an empty line."""
    from rich.progress import Progress

    from srjt.console import Console

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A transient bar, as a function of (done, total)."""
    with transient_bar() as bar:
        task = bar.add_task(label, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def decoding_bar() -> AbstractContextManager[Callable[[int, int], None]]:
    """A transient bar over images that are being decoded."""
    return progress_bar("Decoding")
