"""Errors and warnings about the user's input, each one sentence that says what is wrong and what to
do.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

# Imported from here by many files.
from srjt.text import (
    count_of as count_of,
    duration as duration,
    few as few,
    printable as printable,
    printable_lines as printable_lines,
    reason_of as reason_of,
)


class SrjtError(ValueError):
    """A problem with the input. The message says what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2.
    """


class UnknownNameError(SrjtError, LookupError):
    """A misspelt method, option or column."""


class Interrupted(BaseException):
    """A signal stopped the work, and its state is saved. ``status`` is the exit code: 128 + signal.

    Like KeyboardInterrupt it is not an Exception: a loop over runs that catches errors must not
    catch it.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.status = 128 + number


_ABOUT: ContextVar[str] = ContextVar("_ABOUT", default="")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever calls srjt: Python shows a line of theirs beside the warning, not one of
    ours."""
    message = f"{_ABOUT.get()}{message}"
    level = 1
    frame = sys._getframe()
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "srjt"
    ):
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def warnings_about(what: str) -> Iterator[None]:
    """Warnings begin with ``what``, such as the run of a study that they are about."""
    token = _ABOUT.set(f"{what}: ")
    try:
        yield
    finally:
        _ABOUT.reset(token)


def unknown_name(kind: str, given: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among ``known``, with the nearest one as a suggestion."""
    import difflib  # slow to import, and rarely needed

    names = sorted(known)
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(given).lower(), lower, n=1, cutoff=0.6)
    hint = f"did you mean {lower[near[0]]!r}?" if near else "there is no similar name."
    return UnknownNameError(
        f"Unknown {kind} {given!r}: {hint} Known: {', '.join(names) or 'none'}."
    )


def missing_extra(package: str, extra: str, purpose: str) -> SrjtError:
    """The error for an optional dependency that is not installed.

    It names the packages of the extra themselves: ``srjt[extra]`` works only where srjt comes from
    a package index.
    """
    wanted = (
        " ".join(f'"{requirement}"' for requirement in requirements_of(extra)) or f'"{package}"'
    )
    return SrjtError(f"{purpose} needs {package}, which is not installed: pip install {wanted}")


def requirements_of(extra: str | None) -> list[str]:
    """The packages of an extra, such as ``["timm>=1.0"]``; None: those that srjt always needs."""
    from importlib import metadata  # slow to import, and rarely needed

    try:
        lines = metadata.requires("srjt") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return []
    listed = []
    for line in lines:
        name, _, marker = line.partition(";")
        of_extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        if (of_extra[1] if of_extra else None) == extra:
            listed.append(name.strip())
    return listed
