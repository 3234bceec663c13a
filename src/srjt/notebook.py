"""The mark of a result that a notebook shows by its page."""

from __future__ import annotations


class HasPage:
    """A result that has a page, ``srjt.report(result)``. A notebook shows it by this page: ``srjt``
    tells IPython so, because pages are made on a higher floor."""
