"""What is printed through rich: cells and names in it may come from a file that somebody was
sent."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

from srjt.text import printable


class Console(console.Console):
    """rich's console, which shows control characters instead of sending them to the terminal."""

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*given, **options):
            text, style, control = segment
            if not control and not text.isprintable():
                text = "\n".join(map(printable, text.split("\n")))
            yield Segment(text, style, control)

    def sentence(self, text: str) -> None:
        """Print a sentence: in a terminal broken at spaces only, so that a path stays whole; else
        on one line."""
        if self.is_terminal:
            text = textwrap.fill(text, self.width, break_long_words=False, break_on_hyphens=False)
        self.print(text, markup=False, highlight=False, soft_wrap=True)
