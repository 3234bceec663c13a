"""Errors and warnings about the user's input, each one sentence that says what is wrong and what to
do.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# Imported from here by many files.
from srjt.text import (
    count_of as count_of,
    duration as duration,
    few as few,
    printable as printable,
    printable_lines as printable_lines,
    reason_of as reason_of,
)

# What is wrong, in one word for programs: every ``code`` of a ``SrjtError`` is one of these.
CODES = {
    # names, options and values
    "unknown_name": "A name is not among the known ones.",
    "name_in_use": "A name is taken already.",
    "wrong_type": "A value has another type than is needed.",
    "wrong_syntax": "A text is not written as it must be, such as name=value.",
    "out_of_bounds": "A number lies outside its range.",
    "wrong_shape": "An array has the wrong shape, or two lists differ in length.",
    "wrong_values": "Values are impossible, such as probabilities that do not sum to 1.",
    "missing_option": "An option or argument is needed and not given.",
    "option_without_effect": "An option has no effect here.",
    "conflict": "Two options or settings exclude each other.",
    "unsupported": "This method, network, run or kind of data cannot do it.",
    "missing_extra": "An optional package is not installed, or cannot be imported.",
    # files and folders
    "missing_file": "A file or folder does not exist.",
    "unreadable_file": "The system refuses to read a file, or it is not UTF-8 text.",
    "unwritable_file": "The system refuses to write a file, for example to a full disk.",
    "damaged_file": "A file of srjt is incomplete or was changed.",
    "wrong_file": "A file or folder is of another kind than is needed.",
    "unsafe_file": "Reading a file could run code or write outside its folder.",
    "file_exists": "A file would be overwritten.",
    "folder_in_use": "A folder has other files or another result.",
    "folder_busy": "Another process is writing to a folder.",
    # data
    "missing_column": "A table lacks a column.",
    "not_unique": "A name, id or column occurs twice.",
    "ambiguous": "The data can be read in two ways.",
    "too_few": "There are too few samples, patients, grades or others.",
    "too_many": "There are too many grades, groups or others.",
    "unusable_samples": "Samples cannot be read or used.",
    "no_match": "Two files, or names and images, do not belong together.",
    "no_split": "The data or the run have no such side: training, validation or test.",
    "unknown_grade": "A grade is not one of the scale.",
    "grades_without_order": "The order of the grades is not known.",
    "grades_with_gap": "A grade between two others does not occur.",
    "seen_in_training": "A run is to be judged by samples that it was trained on.",
    # runs and machines
    "settings_changed": "A folder has a result of other settings.",
    "data_changed": "The data are not those of the first time.",
    "other_version": "A file is of another version of srjt, or of a package.",
    "not_finished": "A run, or something else that is needed, has not finished.",
    "training_failed": "A training stopped with an error.",
    "no_gpu": "There is no such GPU.",
    "no_space": "The memory or the disk is too small.",
    "unreachable": "A server, cluster or address cannot be used.",
}


@dataclass(frozen=True)
class Option:
    """An option that a message names: ```out```, or ```jobs=1``` where it has a value.

    That is how Python's users read it; the command line writes ``--out`` and ``--jobs 1``.
    """

    name: str
    value: Any = ...  # no value

    def __str__(self) -> str:
        return f"`{self.name}`" if self.value is ... else f"`{self.name}={self.value!r}`"


class Message(str):
    """Text that names options, made of its parts: ``Message("Choose another ", Option("out"))``.

    It is a string in Python's words; ``written`` gives the same text in those of another surface.
    """

    parts: tuple[object, ...]

    def __new__(cls, *parts: object) -> Message:
        flat: list[object] = []
        for part in parts:
            text = part.message if isinstance(part, SrjtError) else part
            flat += text.parts if isinstance(text, Message) else [text]
        self = super().__new__(cls, "".join(map(str, flat)))
        self.parts = tuple(flat)
        return self

    def __getnewargs__(self) -> tuple[object, ...]:  # type: ignore[override]  # str's: (str,)
        return self.parts

    @classmethod
    def joined(cls, texts: Iterable[object], separator: str = " ") -> Message:
        """Several texts, errors or options as one message: ``str.join`` forgets their options."""
        parts = [part for text in texts for part in (separator, text)]
        return cls(*parts[1:])

    def written(self, write: Callable[[Option], str]) -> str:
        """The text with each option as ``write`` writes it."""
        return "".join(write(p) if isinstance(p, Option) else str(p) for p in self.parts)


class SrjtError(ValueError):
    """A problem with the input. The message says what is wrong, where, and what to do.

    ``code`` is what is wrong, one of ``CODES``; ``option`` is the option that it is about, by
    default the first one that the message names; "" where there is none. The command line prints
    the message without a traceback and exits with status 2.
    """

    def __init__(self, *parts: object, code: str = "", option: str = "") -> None:
        self.message = Message(*parts)
        named = [part.name for part in self.message.parts if isinstance(part, Option)]
        self.code = code
        self.option = option or next(iter(named), "")
        super().__init__(self.message)


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
    message = Message(_ABOUT.get(), message)
    level = 1
    frame = sys._getframe()
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "srjt"
    ):
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


def text_of(warning: Warning | str) -> str:
    """The message of a warning, which may name options."""
    if isinstance(warning, Warning) and warning.args and isinstance(warning.args[0], Message):
        return warning.args[0]
    return str(warning)


@contextlib.contextmanager
def warnings_about(what: str) -> Iterator[None]:
    """Warnings begin with ``what``, such as the run of a study that they are about."""
    token = _ABOUT.set(f"{what}: ")
    try:
        yield
    finally:
        _ABOUT.reset(token)


def unknown_name(
    kind: str | Option, given: object, known: Iterable[str], *, option: str = ""
) -> UnknownNameError:
    """The error for a name that is not among ``known``, with the nearest one as a suggestion.

    option: the one that the name was given with, which the message then says.
    """
    import difflib  # slow to import, and rarely needed

    names = sorted(known)
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(given).lower(), lower, n=1, cutoff=0.6)
    hint = f"did you mean {lower[near[0]]!r}?" if near else "there is no similar name."
    place = [" (for ", Option(option), ")"] if option else []
    known_names = ", ".join(names) or "none"
    return UnknownNameError(
        "Unknown ", kind, *place, f" {given!r}: {hint} Known: {known_names}.", code="unknown_name"
    )


def missing_extra(package: str, extra: str, purpose: str) -> SrjtError:
    """The error for an optional dependency that is not installed.

    It names the packages of the extra themselves: ``srjt[extra]`` works only where srjt comes from
    a package index.
    """
    wanted = (
        " ".join(f'"{requirement}"' for requirement in requirements_of(extra)) or f'"{package}"'
    )
    return SrjtError(
        f"{purpose} needs {package}, which is not installed: pip install {wanted}",
        code="missing_extra",
    )


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
