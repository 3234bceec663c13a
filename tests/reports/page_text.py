"""What stands on a page."""

from __future__ import annotations

from collections.abc import Iterator

from srjt.reports.page import Page, Section


def all_sections(page: Page) -> Iterator[Section]:
    for section in page.sections:
        yield section
        yield from section.parts


def facts_of(page: Page) -> dict[str, str]:
    """The terms and values of all sections."""
    return {term: value for section in all_sections(page) for term, value in section.facts}
