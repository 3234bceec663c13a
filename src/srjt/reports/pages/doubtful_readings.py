"""The most doubtful readings, as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from srjt.data.grade_names import display_grade
from srjt.errors import SrjtError
from srjt.reports.pages.html import Section
from srjt.reports.tables.table import Column, Row, Table, TableCell

__all__ = ["doubtful_readings"]

SHOWN = 40


def doubtful_readings(folder: Path, *, names: Mapping[str, str] = MappingProxyType({})) -> Section:
    """Of an audit of several readers: who said what, and how likely it is right. names: of the grades."""
    path = folder / "readings.csv"
    try:
        found = pd.read_csv(path, dtype=str, keep_default_na=False)
        found["quality"] = found["quality"].astype(float)
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(f"{path} cannot be read ({problem}): run srjt audit again.") from None
    few = found.head(SHOWN)
    which = (
        "All readings"
        if len(few) == len(found)
        else f"The {len(few)} most doubtful of {len(found):,} readings"
    )
    rows = [
        Row(
            cells=(
                TableCell(text=str(row["id"])),
                TableCell(text=str(row["reader"])),
                TableCell(text=display_grade(str(row["grade"]), names)),
                TableCell(text=display_grade(str(row["suggested"]), names)),
                TableCell(text=f"{row['quality']:.3f}", value=float(row["quality"])),
            )
        )
        for row in few.to_dict("records")
    ]
    table = Table(
        slug="readings",
        title="Most doubtful first",
        caption="Quality is the probability that a reading is right. All readings are in readings.csv.",
        columns=(
            Column(name="id", label="sample"),
            Column(name="reader", label="reader"),
            Column(name="grade", label="read as"),
            Column(name="suggested", label="most probable"),
            Column(name="quality", label="quality", kind="number"),
        ),
        rows=tuple(rows),
    )
    return Section(slug="readings", heading="The most doubtful readings", text=[f"{which}."], tables=[table])
