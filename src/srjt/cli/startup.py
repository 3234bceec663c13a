"""Keep ``srjt --help`` and ``srjt methods`` fast: typer imports some packages that these commands do not use."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any

__all__ = ["import_help", "skip_missing_values"]

# What typer's help imports for Markdown and tracebacks, which the help of srjt has not: half of its time.
_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


def import_help() -> None:
    """Import typer's help without Markdown and tracebacks; they are imported if they are used after all."""
    unused = {module: name for module, name in _UNUSED.items() if module not in sys.modules}
    for module, name in unused.items():
        placeholder = types.ModuleType(module)
        setattr(placeholder, name, _imported_when_used(module, name))
        sys.modules[module] = placeholder
    try:
        importlib.import_module("typer.rich_utils")
    finally:
        for module in unused:
            del sys.modules[module]


def _imported_when_used(module: str, name: str) -> type:
    def use() -> Any:
        return getattr(importlib.import_module(module), name)

    class Used(type):
        def __getattr__(cls, attribute: str) -> Any:
            return getattr(use(), attribute)

        def __call__(cls, *arguments: Any, **more: Any) -> Any:
            return use()(*arguments, **more)

    return Used(name, (), {})


def skip_missing_values(parameters: Iterable[Any]) -> None:
    """Do not convert the value of an option that was not given: typer would import pydantic for it."""
    for parameter in parameters:
        parameter.process_value = _converting_given_values(parameter)


def _converting_given_values(parameter: Any) -> Any:
    convert = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if value is not None or parameter.required:
            return convert(context, value)
        value = () if parameter.multiple or parameter.nargs == -1 else None
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return process_value
