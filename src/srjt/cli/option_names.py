"""Errors and warnings name a setting as it is written in Python, ```grade_column='severity'```; here it becomes the
option that is typed in a shell, ``--grade-column severity``."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

__all__ = ["as_typed", "training_settings", "use_options_of"]

# a setting in backticks, with or without a value; or a bare name that the message says something about. Other bare
# names may be the user's: columns, files, grades.
SETTING = re.compile(
    r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]+))?`"
    r"|^[a-z_]+(?= (?:takes|must (?:be|lie|list)|lies|says|needs|waits|works|is at most|is 1|cannot be negative)\b)"
    r"|(?<=^Unknown )[a-z]+(?:_[a-z]+)+(?= ')"
    r"|(?<![\w./`'\"-])[a-z]+(?:_[a-z]+)+(?= '[a-z]+')"  # soft_labels 'estimated'
)
# Python's → the command line's
OTHER_NAMES = {"decoding": "decode", "imports": "import_", "overwrite": "force", "split": "fold"}

_options: dict[str, Any] = {}  # of the command that runs, by name


def use_options_of(command: Any) -> None:
    """From now on, ``as_typed`` uses the options of this command and of its subcommands."""
    _options.clear()
    commands = [command, *getattr(command, "commands", {}).values()]
    _options.update(
        (option.name, option) for one in commands for option in one.params if option.opts[0][0] == "-"
    )


def as_typed(text: str) -> str:
    """A message with its settings as options of the command that runs. Other settings lose their backticks."""
    return SETTING.sub(_as_option, text)


def _as_option(found: re.Match[str]) -> str:
    if found["name"] is None:
        return _options[found[0]].opts[-1] if found[0] in _options else found[0]
    name, value = found["name"], found["value"]
    name = name if name in _options else OTHER_NAMES.get(name, name)
    option = _options.get(name)
    if option is None:
        if "set_" in _options and name in training_settings():
            return f"--set {name}={value or '…'}"
        return f"--{name.rstrip('_')}" if name in OTHER_NAMES.values() else found[0].strip("`")
    flag: str = option.opts[-1]
    if value is None:
        return flag
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):  # not written by us: a column may have a backtick in its name
        return found[0]
    if isinstance(given, bool):
        return flag if given else next(iter(option.secondary_opts), f"no {flag}")
    values = given if isinstance(given, list) else [given]
    return " ".join(f"{flag} {shlex.quote(str(one))}" for one in values)


def training_settings() -> set[str]:
    """The names that ``--set`` knows."""
    import dataclasses

    from srjt.training.config import TrainConfig

    return {field.name for field in dataclasses.fields(TrainConfig)}
