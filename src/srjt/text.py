"""Numbers, names and reasons as texts for people."""

from __future__ import annotations

from collections.abc import Iterable


def printable(text: object) -> str:
    """Text for a terminal, on one line: cells and file names in it may contain line breaks and
    control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def printable_lines(text: object) -> str:
    """``printable`` for text whose line breaks are meant."""
    return "\n".join(map(printable, str(text).split("\n")))


def count_of(number: int, one: str, many: str = "") -> str:
    """A number and what it counts: "1 image", "1,200 images". many: a plural that does not end in
    s."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,} {many or f'{one}s'}"


def few(names: Iterable[object], most: int = 3) -> str:
    """The first names, and "…" if there are more."""
    listed = list(map(str, names))
    if len(listed) > most:
        listed = [*listed[:most], "…"]
    return ", ".join(listed)


def reason_of(problem: BaseException) -> str:
    """Why it failed, on one line and without a full stop; other packages write long texts."""
    return " ".join(str(problem).split())[:300].rstrip(".") or type(problem).__name__


def duration(seconds: float) -> str:
    """A time as people read it: "40 s", "12 min", "3.5 h", "15 days"."""
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"
