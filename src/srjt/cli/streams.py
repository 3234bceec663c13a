"""Standard output that is closed, full, ASCII-only, or read by a program that has exited."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from srjt.errors import SrjtError

__all__ = ["colours_wanted", "discard_output", "exit_status", "prepare_streams"]


class _Output(io.TextIOWrapper):
    """Standard output; an error is one sentence, except for a reader that has exited."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as problem:
            raise _explained(problem) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as problem:
            raise _explained(problem) from None


def _explained(problem: OSError) -> Exception:
    if isinstance(problem, BrokenPipeError):
        return problem
    return SrjtError(f"Standard output cannot be written: {problem.strerror}.")


def prepare_streams() -> None:
    """Make both streams writable with any text: file names may be any bytes, and a terminal may be ASCII-only.

    Without standard output (``>&-``) the first file that is opened would take its number, and prints would end there.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if sys.stdout is sys.__stdout__ and type(sys.stdout) is io.TextIOWrapper:
        before = sys.stdout
        line_buffering, write_through, encoding = before.line_buffering, before.write_through, before.encoding
        sys.__stdout__ = sys.stdout = _Output(  # type: ignore[misc]  # __stdout__ is asked for the terminal's width
            before.detach(),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=line_buffering,
            write_through=write_through,
        )


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
