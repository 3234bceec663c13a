"""Results as plain values, for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def json_values(value: Any, *, whole: bool = False) -> Any:
    """As JSON keeps it: dataclasses and named tuples as dicts, arrays as lists, a DataFrame as a
    list of its rows, None where a number is not finite.

    Fields of a dataclass that no ``repr`` shows are left out, and one with a ``to_dict`` of its own
    decides itself, unless it is the ``whole``.
    """
    if is_dataclass(value):
        if not whole and hasattr(value, "to_dict"):
            return json_values(value.to_dict())
        value = {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "columns"):
        value = value.to_dict("records")
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class DictMixin:
    """A result that is plain values, too; None where something is undefined."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dict(json_values(self, whole=True))
