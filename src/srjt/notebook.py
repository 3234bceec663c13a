"""How a notebook shows a result: tables, facts and pictures in the colours of the page, light or
dark, and results that have a page. All text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def html_block(title: str, *parts: str) -> str:
    """A heading and what stands below it. parts: HTML from the functions of this file, or text from
    ``html_text``."""
    # figures take their colours from variables; the text has the colour of the page
    style = (
        "font-family:system-ui,sans-serif;line-height:1.4;overflow-x:auto;"
        "--ink:currentColor;--grey:#8a8a8a"
    )
    heading = f'<div style="font-weight:600">{html.escape(title)}</div>'
    return f'<div style="{style}">{heading}{"".join(parts)}</div>'


def html_text(text: str) -> str:
    """A paragraph."""
    if text:
        return f'<p style="margin:.4em 0;max-width:48em">{html.escape(text)}</p>'
    return ""


def html_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, caption: str = ""
) -> str:
    """A table as pandas shows it, which a notebook has colours and lines for."""
    import pandas as pd  # slow to import

    texts = [[str(cell) for cell in row] for row in rows]
    cells = pd.DataFrame(texts, columns=list(header) or None, dtype=object)
    with pd.option_context("display.max_colwidth", None):
        return cells.to_html(index=False, header=bool(header), border=0) + html_text(caption)


def html_pictures(pictures: Iterable[tuple[str, str]], *, size: int = 112) -> str:
    """(data URI, text): small pictures side by side, each with its text below."""
    cells = []
    for uri, text in pictures:
        style = f"margin:0;width:{size}px;overflow-wrap:anywhere;font-size:.85em"
        image = ""
        if uri:
            image = f'<img src="{html.escape(uri)}" style="width:{size}px;height:auto" alt="">'
        caption = f"<figcaption>{html.escape(text)}</figcaption>"
        cells.append(f'<figure style="{style}">{image}{caption}</figure>')
    return f'<div style="display:flex;flex-wrap:wrap;gap:.8em;margin:.6em 0">{"".join(cells)}</div>'


# Results that know how to show themselves. Pages stand on a higher floor, so the front door
# (``srjt/__init__.py``) says who makes them.

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
