"""Writing files for the user: never over another one by accident, and with one sentence where it is not possible."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srjt.errors import SrjtError

__all__ = ["check_html", "refuse_overwrite", "typed_command", "writing"]


def refuse_overwrite(out: Path | None, *, force: bool) -> None:
    """An error if the file exists; to be called first, before an hour is spent. A pipe is not such a file."""
    from srjt.files import exists_already, is_stream

    if out is not None and out.is_file() and not force and not is_stream(out):
        raise exists_already(out)


def check_html(html: Path | None, out: Path | None, *, force: bool) -> None:
    """An error if the page exists, is a folder, or is the same file as the other output."""
    if html is None:
        return
    if html.is_dir():
        raise SrjtError(f"{html} is a folder: give the name of an HTML file.")
    if out is not None and html.absolute() == out.absolute():
        raise SrjtError(f"--html and --out are the same file, {html}: give two names.")
    refuse_overwrite(html, force=force)


def typed_command(verb: str) -> str | None:
    """The command as it was typed; None if the verb was called otherwise."""
    return shlex.join(["srjt", *sys.argv[1:]]) if sys.argv[1:2] == [verb] else None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of ``path``; if it or the file cannot be written, that is one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise SrjtError(f"{path} cannot be written: {problem.strerror or problem}.") from None
