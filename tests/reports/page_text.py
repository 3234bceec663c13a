"""What stands on a page."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from srjt.reports.page import Page, Section


def all_sections(page: Page) -> Iterator[Section]:
    for section in page.sections:
        yield section
        yield from section.parts


def facts_of(page: Page) -> dict[str, str]:
    """The terms and values of all sections."""
    return {term: value for section in all_sections(page) for term, value in section.facts}


def idle_sentences(function: Callable[[Any], object], cases: Sequence[Any]) -> list[str]:
    """The sentences of a function of facts that it says in no case, or in every one: those whose
    condition is never true, or never false."""
    lines, first = inspect.getsourcelines(function)
    source = "".join(lines)
    reached = [_lines_run(function, facts) for facts in cases]
    idle = []
    for node in ast.walk(ast.parse(source)):
        says = isinstance(node, ast.Return) or isinstance(getattr(node, "value", None), ast.Yield)
        if isinstance(node, ast.stmt) and says:
            assert node.end_lineno is not None
            own = range(first + node.lineno - 1, first + node.end_lineno)
            if {not case.isdisjoint(own) for case in reached} != {True, False}:
                idle.append(str(ast.get_source_segment(source, node)))
    return idle


def _lines_run(function: Callable[[Any], Any], facts: Any) -> set[int]:
    """The lines of a function that run for these facts."""
    lines = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is function.__code__ and event == "line":
            lines.add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        list(function(facts))
    finally:
        sys.settrace(before)
    return lines
