"""Results that know how to show themselves: ``result.report()``, and what a notebook shows.

Pages stand on a higher floor than results, so the front door (``srjt/__init__.py``) says who makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_makers: list[Callable[[Any], Any]] = []


def pages_come_from(make: Callable[[Any], Any]) -> None:
    """make: from a result to its ``srjt.reports.page.Page``."""
    _makers[:] = [make]


def page_of(result: Any) -> Any:
    """The page of a result."""
    return _makers[0](result)


def plain(value: Any, *, whole: bool = False) -> Any:
    """Results as JSON keeps them: dataclasses and named tuples are dicts, without fields that no ``repr`` shows.

    A part with a ``to_dict`` of its own decides itself. whole: it is the one that is asked.
    """
    if is_dataclass(value):
        own = None if whole else getattr(value, "to_dict", None)
        return (
            own()
            if own is not None
            else {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
        )
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


class Plain:
    """A result that is plain values, too."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values: dict[str, Any] = plain(self, whole=True)
        return values


class Reported:
    """A result that has a page."""

    def report(self) -> Any:
        """The result as a page: print it, let a notebook show it, or ``save`` it as an HTML file.

        Returns
        -------
        srjt.reports.page.Page
            Verdict, key numbers, tables, figures and notes.
        """
        return page_of(self)

    def _repr_html_(self) -> str:
        return str(self.report()._repr_html_())
