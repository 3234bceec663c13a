"""The dates of readings. Day and month are never guessed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError

__all__ = ["parse_dates"]

Times = npt.NDArray[np.datetime64]

# besides ISO 8601; a column has one of them
FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")


def parse_dates(cells: Sequence[str], *, column: str) -> Times:
    """(M,) times in seconds, UTC where a zone is given; NaT for an empty cell, or one that is no date."""
    found = _parse(cells, "ISO8601")
    filled = np.array([bool(cell) for cell in cells])
    if filled.any() and not (~np.isnat(found)).any():
        read = {pattern: _parse(cells, pattern) for pattern in FORMATS}
        best = max(int((~np.isnat(times)).sum()) for times in read.values())
        good = [pattern for pattern, times in read.items() if (~np.isnat(times)).sum() == best]
        first = next(cell for cell in cells if cell)
        if not best:
            raise SrjtError(
                f"The column {column!r} holds no date that can be read; the first is {first[:40]!r}: write them as "
                "2024-05-31, or choose another column with `date_column`."
            )
        found = read[good[0]]
        if any((read[other] != found)[~np.isnat(found)].any() for other in good[1:]):
            raise SrjtError(
                f"The dates in the column {column!r}, such as {first[:40]!r}, may be day/month or month/day: write "
                "them as 2024-05-31."
            )
    return found


def _parse(cells: Sequence[str], pattern: str) -> Times:
    times = pd.to_datetime(pd.Series(list(cells), dtype=object), format=pattern, errors="coerce", utc=True)
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[s]")
