"""Options as they are typed in a shell: messages name them as Python does."""

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
    return text.written(typed_option) if isinstance(text, Message) else text


def typed_option(option: Option) -> str:
    """``grade_column='severity'`` as ``--grade-column severity``."""
    flag = FLAGS.get(option.name, f"--{option.name.replace('_', '-')}")
    value = option.value
    if value is ...:
        return flag
    if isinstance(value, dict):  # options of a method
        return " ".join(f"--set {option.name}.{key}={one}".lower() for key, one in value.items())
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{flag} {shlex.quote(str(one))}" for one in values)
