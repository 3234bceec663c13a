"""Keep ``srjt --help`` and ``srjt methods`` fast: typer imports a package that these commands do not use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["skip_missing_values"]


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
