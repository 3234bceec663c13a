"""The same reader twice, in words and as a table of the page of readers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from srjt.errors import count_of
from srjt.readers.repeats import Repeated
from srjt.reports.page import Section
from srjt.reports.table import between, data_table

MOST = 200  # readers
COLUMNS = {  # of ``Repeated.by_reader`` → heading, how it is written
    "exact": ("same grade", ".0%"),
    "kappa": ("quadratic κ", ".2f"),
    "difference": ("higher", "+.2f"),
    "limit_low": ("lower limit", "+.2f"),
    "limit_high": ("upper limit", "+.2f"),
}
CAPTION = (
    "Two readings of the same {noun} by the same reader, with 95 % intervals. Higher: by how many"
    " grades the second reading is higher. Limits: 95 % of the differences are expected between"
    " these limits of agreement."
)


def repeats_sections(repeats: Repeated | None, noun: str) -> list[Section]:
    """Nothing if no reader has read an item twice."""
    if repeats is None:
        return []
    rows = repeats.by_reader.sort_values("items", ascending=False, kind="stable").head(MOST)
    shown = pd.DataFrame(
        {"reader": [repeats.readers[one] for one in rows["reader"]], f"{noun}s": rows["items"]}
    )
    for place, (name, (heading, pattern)) in enumerate(COLUMNS.items()):
        shown[heading] = rows[name].to_numpy(float)
        ends = rows[[f"{name}_low", f"{name}_high"]].to_numpy(float)
        intervals = [between(low, high, pattern) for low, high in ends]
        shown["95 %" + " " * place] = intervals  # a heading stands once: they differ in spaces
    table = data_table(
        shown,
        title="",
        slug="repeats",
        caption=CAPTION.format(noun=noun),
        formats=dict(COLUMNS.values()),
    )
    return [Section("repeats", "Read twice", text=sentences(repeats), tables=[table])]


def too_soon(soon: int, readings: int) -> str:
    """That readers may remember their first grades. soon: of so many second readings."""
    return (
        f"{soon:,} of {count_of(readings, 'second reading')} were made less than a week after the"
        " first: readers may remember their grades, so that they seem to repeat them too often."
    )


def sentences(repeats: Repeated) -> list[str]:
    """Whether a second reading or a second reader helps more, and how many."""
    again, others = repeats.exact, repeats.exact_between
    same = (
        f"A reader gives the same grade again in {again.value:.0%}"
        f" ({between(again.low, again.high, '.0%')}) of"
        f" {count_of(repeats.items, 'second reading')}, two readers agree in {others.value:.0%}"
        f" ({between(others.low, others.high, '.0%')})."
    )
    if not repeats.clear:
        return [
            same,
            "These intervals do not tell whether a second reader helps more than a second reading"
            " by the same reader.",
        ]
    many = "No number of readings by one reader is as exact as one reading by each of two readers."
    if np.isfinite(repeats.readings_for_a_reader):
        number = int(np.ceil(repeats.readings_for_a_reader - 1e-9))
        many = (
            f"{number} readings by one reader are at least as exact as one reading by each of two"
            " readers."
        )
    error = (
        f"The standard error of one reading is {repeats.error(readers=1):.2f} grades, of two by the"
        f" same reader {repeats.error(readers=1, readings=2):.2f}, of two readers"
        f" {repeats.error(readers=2):.2f} and of three {repeats.error(readers=3):.2f}."
    )
    gain = (
        "A second reader helps more: a second reading by the same reader has"
        f" about {repeats.worth:.0%} of the effect. {many}"
    )
    return [same, gain, error]
