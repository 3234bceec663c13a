"""The same reader twice, in words and as a table of the page of readers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from srjt.errors import count_of
from srjt.readers.readings import Readings
from srjt.readers.repeats import Repeated, repeats_of
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
    "Two readings of the same item by the same reader, with 95 % intervals. Higher: by how many"
    " grades the second reading is higher. Limits: 95 % of the differences are expected between"
    " these limits of agreement."
)


def repeats_sections(readings: Readings, noun: str) -> list[Section]:
    """Nothing if no reader has read an item twice."""
    repeats = repeats_of(readings)
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
        shown, title="", slug="repeats", caption=CAPTION, formats=dict(COLUMNS.values())
    )
    return [Section("repeats", "Read twice", text=sentences(repeats), tables=[table])]


def sentences(repeats: Repeated) -> list[str]:
    """Whether a second reading or a second reader helps more, and how many."""
    same = (
        f"A reader gives the same grade again in {repeats.exact.value:.0%} of"
        f" {count_of(repeats.items, 'second reading')}, two readers agree in"
        f" {repeats.exact_between.value:.0%}."
    )
    if not np.isfinite(repeats.worth):
        return [same]
    if repeats.worth > 0.99:
        return [
            same,
            "Readers differ from each other only as much as from themselves: a second reading by"
            " the same reader helps as much as a second reader.",
        ]
    many = "No number of readings by one reader is as exact as one reading by each of two readers."
    if np.isfinite(repeats.readings_for_a_reader):
        number = int(np.ceil(repeats.readings_for_a_reader - 1e-9))
        many = (
            f"{number} readings by one reader are as exact as one reading by each of two readers."
        )
    error = (
        f"The standard error of one reading is {repeats.error(readers=1):.2f} grades, of two by the"
        f" same reader {repeats.error(readers=1, readings=2):.2f}, of two readers"
        f" {repeats.error(readers=2):.2f} and of three {repeats.error(readers=3):.2f}."
    )
    gain = (
        "A second reader helps more: a second reading by the same reader has"
        f" {repeats.worth:.0%} of the effect. {many}"
    )
    return [same, gain, error]
