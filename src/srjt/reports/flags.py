"""Options as flags: messages name them as Python does, the command line as they are typed."""

from __future__ import annotations

import shlex

from srjt.errors import Message, Option

# those whose flag is not the name with dashes
FLAGS = {
    "decoding": "--decode",
    "imports": "--import",
    "noises": "--noise",
    "only_folds": "--fold",
    "overwrite": "--force",
    "seeds": "--seed",
    "split": "--fold",
}


def as_typed(text: str) -> str:
    """A message with its options as they are typed in a shell; other text as it is."""
    if isinstance(text, Message):
        return text.written(typed_option)
    return text


def typed_option(option: Option) -> str:
    """``grade_column='severity'`` as ``--grade-column severity``."""
    flag = FLAGS.get(option.name, f"--{option.name.replace('_', '-')}")
    value = option.value
    if value is ...:
        return flag
    if isinstance(value, dict):  # options of a method
        return " ".join(f"--set {option.name}.{key}={one}".lower() for key, one in value.items())
    if value is True:
        return flag
    if value is False:
        return f"--no-{flag[2:]}"
    if isinstance(value, list):
        return " ".join(f"{flag} {shlex.quote(str(one))}" for one in value)
    return f"{flag} {shlex.quote(str(value))}"
