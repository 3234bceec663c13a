"""Some of a sequence's values, in order."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Protocol, TypeVar

Key = TypeVar("Key", contravariant=True)
Value = TypeVar("Value")
Found = TypeVar("Found", covariant=True)


class _Indexed(Protocol[Key, Found]):
    def __getitem__(self, key: Key, /) -> Found: ...


def pick(values: _Indexed[Any, Value], places: Iterable[Any]) -> list[Value]:
    """The values at these places: rows of a sequence, or keys of a mapping."""
    return [values[place] for place in places]


def present(names: Iterable[Value], known: Container[Any]) -> list[Value]:
    """Those of the names that are known, such as columns of a table."""
    return [name for name in names if name in known]


def absent(names: Iterable[Value], known: Container[Any]) -> list[Value]:
    """Those of the names that are not known."""
    return [name for name in names if name not in known]
