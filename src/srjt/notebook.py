"""Results that have a page.

Pages are made on a higher floor. The imports here are the only ones that run up: what a result
can do, and how it is shown, are asked of the same object. ``tests/test_imports.py`` names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srjt.reports.page import Page


def page_of(result: object) -> Page:
    """The page of a result."""
    from srjt.reports import report  # figures take a while to import

    return report.page_of(result)


class Shown:
    """What a notebook shows by its page."""

    def _repr_html_(self) -> str:
        return page_of(self)._repr_html_()


class Reported(Shown):
    """A result that has a page."""

    def report(self) -> Page:
        """The result as a page: print it, let a notebook show it, or ``save`` it as an HTML file.

        Returns
        -------
        srjt.reports.page.Page
            Verdict, key numbers, tables, figures and notes.
        """
        return page_of(self)
