"""What every other file may use: errors about the user's input, each one sentence that says what is
wrong and what to do; public names that a package imports on first use; the CPU cores of this
process.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# Errors about the user's input: one sentence that says what is wrong and what to do.

STOPPED = "Stopped. Run the same command again."  # by Ctrl-C, where there is no state to save
STOP_SECONDS = 1.5  # after Ctrl-C; what has not ended by then, or begun to save its state, is ended


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

    ``code`` is what is wrong, in one word for programs; ``option`` is the option that it is about,
    by default the first one that the message names; "" where there is none. The command line prints
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


def exit_after(seconds: float, sentence: str, *, status: int) -> threading.Timer:
    """End this process after so many seconds, whatever it is doing, unless the timer is
    cancelled."""

    def leave() -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"srjt: {sentence}\n".encode())
        os._exit(status)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
    return timer


def printable(text: object) -> str:
    """Text for a terminal, on one line: cells and file names in it may contain line breaks and
    control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def printable_lines(text: object) -> str:
    """``printable`` for text whose line breaks are meant."""
    return "\n".join(map(printable, str(text).split("\n")))


def count_of(number: int, one: str, many: str = "") -> str:
    """A number and what it counts: "1 image", "1,200 images". many: a plural that does not end in
    s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def few(names: Iterable[object], most: int = 3) -> str:
    """The first names, and "…" if there are more."""
    listed = list(map(str, names))
    return ", ".join([*listed[:most], "…"] if len(listed) > most else listed)


def reason_of(problem: BaseException) -> str:
    """Why it failed, on one line and without a full stop; other packages write long texts."""
    return " ".join(str(problem).split())[:300].rstrip(".") or type(problem).__name__


def duration(seconds: float) -> str:
    """A time as people read it: "40 s", "12 min", "3.5 h", "15 days"."""
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.0f} days"


_ABOUT: ContextVar[str] = ContextVar("_ABOUT", default="")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever calls srjt: Python shows a line of theirs beside the warning, not one of
    ours."""
    message, level, frame = Message(_ABOUT.get(), message), 1, sys._getframe()
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "srjt"
    ):
        level, frame = level + 1, frame.f_back
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
    parts = [line.partition(";") for line in lines]
    marked = [
        (name.strip(), marker.replace(" ", "").replace('"', "'")) for name, _, marker in parts
    ]
    wanted = f"extra=='{extra}'"
    return [
        name for name, marker in marked if (wanted in marker if extra else "extra" not in marker)
    ]


# Packages that tell their makers about this machine unless they are told not to.

NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": (
        "1"
    ),  # onnxruntime writes an id of the machine and sends the path of Python
    "ORT_TELEMETRY_DISABLED": "1",  # the same, in some versions
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "DO_NOT_TRACK": "true",
}


def import_quietly(package: str) -> Any:
    """Import a package that may send something, after it is told to send nothing by itself."""
    os.environ.update(NO_TELEMETRY)  # read when such a package starts
    module = importlib.import_module(package)
    if package == "onnxruntime" and hasattr(
        module, "disable_telemetry_events"
    ):  # it may have been imported before
        module.disable_telemetry_events()
    return module


# Import the public names of a package on first use.


def lazy_names(
    package: str, others: Iterable[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names and modules are
    imported on first use.

    The names are those that its file imports as themselves (``from module import name as name``)
    for type checkers. others: ``"module:name"``.
    """
    own = sys.modules[package]
    origins = {name: module for module, _, name in (other.partition(":") for other in others)}
    head, _, _ = inspect.getsource(own).partition(
        "\ndef "
    )  # the imports stand above the first function
    for node in ast.walk(ast.parse(head)):
        if isinstance(node, ast.ImportFrom):
            origins |= {
                alias.name: str(node.module) for alias in node.names if alias.asname == alias.name
            }

    def import_name(name: str) -> Any:
        whole = f"{package}.{name}"
        unknown = AttributeError(f"module {package!r} has no attribute {name!r}")
        if name.startswith("__"):  # asked for by Python itself and by tools
            raise unknown
        try:
            origin = origins.get(name, package)
            module = importlib.import_module(whole if origin == package else origin)
        except ModuleNotFoundError as problem:
            if problem.name == whole:
                raise unknown from None
            raise
        value = module if module.__name__ == whole else getattr(module, name)
        setattr(own, name, value)
        return value

    public = sorted(origins)
    return public, import_name, lambda: list(public)


# The CPU cores that this process may use.


def cores() -> int:
    """The CPU cores that this process may use; a scheduler may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
