"""The sentences of a page, and rules that say when each of them is true.

A test of truth has a rule for every sentence that a page may contain: a pattern and a condition on the facts that the
test knows. A sentence without a rule fails too, so that a new sentence needs a new rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from srjt.reports.page import Page, Section

Facts = Mapping[str, Any]
Rule = Callable[[Facts, "re.Match[str]"], bool]

_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z“±])")


def all_sections(page: Page) -> Iterator[Section]:
    for section in page.sections:
        yield section
        yield from section.parts


def sentences(page: Page) -> list[str]:
    """Every sentence of a page outside its tables' cells: lead, notes, text, titles, captions and hints."""
    texts = [page.lead, *(note.text for note in page.notes)]
    for section in all_sections(page):
        texts += [*section.text, section.hint]
        texts += [text for table in section.tables for text in (table.title, table.caption)]
        texts += [figure.caption for figure in section.figures]
    return [sentence for text in texts for sentence in split_sentences(text)]


def split_sentences(text: str) -> list[str]:
    return [sentence for sentence in _END.split(text.strip()) if sentence]


def facts_of(page: Page) -> dict[str, str]:
    """The terms and values of all sections."""
    return {term: value for section in all_sections(page) for term, value in section.facts}


def check(page: Page, rules: Mapping[str, Rule], facts: Facts) -> set[str]:
    """Fail if a sentence matches no rule, or its rule says that it is untrue; return the rules that were used."""
    used = set()
    for sentence in sentences(page):
        matching = [(rule, found) for rule in rules if (found := re.fullmatch(rule, sentence))]
        assert matching, f"no rule for the sentence {sentence!r}"
        for rule, found in matching:
            assert rules[rule](facts, found), f"untrue: {sentence!r} for {dict(facts)}"
            used.add(rule)
    return used
