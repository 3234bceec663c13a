"""Agreement and consensus of readers as a notebook shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from srjt.notebook_html import html_block, html_table, html_text
from srjt.ordinal.intervals import Interval

__all__ = ["agreement_html", "consensus_html", "with_interval"]

PAIRS = 15  # shown; a crowd has hundreds


def agreement_html(
    title: str,
    overall: Mapping[str, Interval],
    *,
    readers: Sequence[str],
    pairs: pd.DataFrame,
    by_reader: pd.DataFrame,
) -> str:
    """Of all readings, of each pair of readers, of each reader; tables as in ``Agreement``."""
    shown = [
        (readers[row["first"]], readers[row["second"]], f"{row['items']:,}", _number(row["quadratic"]),
         _number(row["exact"]))
        for row in pairs.head(PAIRS).to_dict("records")
    ]  # fmt: skip
    more = len(pairs) - len(shown)
    single = [
        (row["reader"], f"{row['readings']:,}", _number(row["bias"], sign="+"), _number(row["spread"]))
        for row in by_reader.to_dict("records")
    ]
    return html_block(
        title,
        html_table((), [(name, with_interval(value)) for name, value in overall.items()], text_columns=2),
        html_table(("first", "second", "shared items", "quadratic κ", "same grade"), shown, text_columns=2),
        html_text(f"… and {more:,} more pairs" if more else ""),
        html_table(("reader", "readings", "bias", "spread"), single),
        html_text("Bias: by how many grades a reader reads higher than the others."),
    )


def consensus_html(
    title: str, by_reader: Sequence[tuple[str, int, Interval, float, float]], *notes: str
) -> str:
    """by_reader: name, readings, share of wrong readings, bias, spread."""
    rows = [
        (
            name,
            f"{count:,}",
            f"{wrong.value:.1%}",
            f"{wrong.low:.1%} – {wrong.high:.1%}",
            f"{bias:+.2f}",
            f"{spread:.2f}",
        )
        for name, count, wrong, bias, spread in by_reader
    ]  # fmt: skip
    header = ("reader", "readings", "wrong", "interval", "bias", "spread")
    return html_block(title, html_table(header, rows) if rows else "", *map(html_text, notes))


def with_interval(interval: Interval) -> str:
    """ "0.71 (0.65 to 0.77)"; – where it is undefined, and no interval where no draw differs."""
    if interval.high - interval.low < 1e-9:
        return _number(interval.value)
    return f"{_number(interval.value)} ({_number(interval.low)} to {_number(interval.high)})"


def _number(value: float, *, sign: str = "") -> str:
    return f"{value:{sign}.2f}" if math.isfinite(value) else "–"
