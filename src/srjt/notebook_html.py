"""HTML for notebooks: tables, facts and pictures in the colours of the page, light or dark. All text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["html_block", "html_facts", "html_pictures", "html_table", "html_text"]

_LINE = "rgba(128,128,128,.4)"  # visible on white and on black
_CELL = f"padding:.2em .8em .2em 0;border:0;border-bottom:1px solid {_LINE};background:transparent;vertical-align:top"

_TEXT, _NUMBER = "text-align:left", "text-align:right;white-space:nowrap"


def html_block(title: str, *parts: str) -> str:
    """A heading and what stands below it. parts: HTML from the functions of this file, or text from ``html_text``."""
    # figures take their colours from variables; the text has the colour of the page
    style = (
        "font-family:system-ui,sans-serif;line-height:1.4;overflow-x:auto;--ink:currentColor;--grey:#8a8a8a"
    )
    return (
        f'<div style="{style}"><div style="font-weight:600">{html.escape(title)}</div>{"".join(parts)}</div>'
    )


def html_text(text: str) -> str:
    """A paragraph."""
    return f'<p style="margin:.4em 0;max-width:48em">{html.escape(text)}</p>' if text else ""


def html_facts(facts: Iterable[tuple[str, str]]) -> str:
    """(term, value): one line each."""
    return html_table((), facts, text_columns=2)


def html_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, text_columns: int = 1, caption: str = ""
) -> str:
    """A table. The first ``text_columns`` are left-aligned, the others are numbers."""

    def line(cells: Sequence[object], tag: str) -> str:
        weight = 600 if tag == "th" else 400
        return "".join(
            f'<{tag} style="{_CELL};font-weight:{weight};{_TEXT if place < text_columns else _NUMBER}">'
            f"{html.escape(str(cell))}</{tag}>"
            for place, cell in enumerate(cells)
        )

    head = f"<thead><tr>{line(header, 'th')}</tr></thead>" if header else ""
    body = "".join(f'<tr style="background:transparent">{line(row, "td")}</tr>' for row in rows)
    style = "border-collapse:collapse;margin:.4em 0;color:inherit;font:inherit"
    table = f'<table style="{style}">{head}<tbody>{body}</tbody></table>'
    return table + html_text(caption)


def html_pictures(pictures: Iterable[tuple[str, str]], *, size: int = 112) -> str:
    """(data URI, text): small pictures side by side, each with its text below."""
    cells = "".join(
        f'<figure style="margin:0;width:{size}px;overflow-wrap:anywhere;font-size:.85em">'
        + (f'<img src="{html.escape(uri)}" style="width:{size}px;height:auto" alt="">' if uri else "")
        + f"<figcaption>{html.escape(text)}</figcaption></figure>"
        for uri, text in pictures
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:.8em;margin:.6em 0">{cells}</div>'
