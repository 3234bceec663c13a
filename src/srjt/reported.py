"""Results that know how to show themselves: ``result.report()``, and what a notebook shows.

Pages stand on a higher floor than results, so the front door (``srjt/__init__.py``) says who makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_makers: list[Callable[[Any], Any]] = []


def pages_come_from(make: Callable[[Any], Any]) -> None:
    """make: from a result to its ``srjt.reports.page.Page``."""
    _makers[:] = [make]


def page_of(result: Any) -> Any:
    """The page of a result."""
    return _makers[0](result)


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
