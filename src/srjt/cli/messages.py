"""Warnings as sentences, and progress bars that leave no trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import typer

from srjt.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["decoding_bar", "progress_bar", "transient_bar", "warnings_as_sentences"]


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show each warning once, when it comes up (a training may take hours), without the line of code it came from."""
    shown: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            typer.secho(f"Warning: {printable(message)}", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def transient_bar() -> Progress:
    """A progress bar that disappears when done; in a log nothing is written, not even an empty line."""
    from rich.console import Console
    from rich.progress import Progress

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
