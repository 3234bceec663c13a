"""The most doubtful labels of an audit, with their images in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from srjt.data.images.thumbnails import thumbnail
from srjt.data.manifest import Manifest
from srjt.notebook_html import html_block, html_pictures, html_table, html_text

__all__ = ["DoubtfulLabels"]

COLUMNS = ("id", "grade", "suggested", "quality")
UNJUDGED = ("id", "grade")


@dataclass(frozen=True, kw_only=True)
class DoubtfulLabels:
    """Labels that are probably wrong, the most doubtful first; ``audit.worst(20)`` returns them.

    Attributes
    ----------
    table : DataFrame
        Rows of ``Audit.scores``.
    samples : Manifest
        The audited samples, which the pictures are taken from.
    caveat : str
        What to know first about the networks; "" if they have learnt the grades.
    judged : bool
        Whether grades are suggested: not by networks that have learnt nothing.
    """

    table: pd.DataFrame
    samples: Manifest
    caveat: str = ""
    judged: bool = True

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        shown = self.table[list(COLUMNS if self.judged else UNJUDGED)].to_string(index=False)
        return f"{self.caveat}\n{shown}" if self.caveat else shown

    def _repr_html_(self) -> str:
        rows = self.table[list(COLUMNS)].to_dict("records")
        title = "The most doubtful label" if len(rows) == 1 else f"The {len(rows):,} most doubtful labels"
        place = {name: row for row, name in enumerate(self.samples.ids)}
        pictures = [thumbnail(self.samples, place[row["id"]]) for row in rows]
        header: tuple[str, ...] = ("id", "label", "suggested", "p(label is right)")
        cells: list[tuple[object, ...]] = [
            (row["id"], row["grade"], row["suggested"], f"{row['quality']:.3f}") for row in rows
        ]
        arrows = [f" → {row['suggested']}" if row["suggested"] else "" for row in rows]
        texts = [
            f"{row['grade']}{arrow} ({row['quality']:.2f}) {row['id']}"
            for row, arrow in zip(rows, arrows, strict=True)
        ]
        legend = "Label → suggested grade, if one is (probability that the label is right)."
        if not self.judged:
            header, cells = header[:2], [cell[:2] for cell in cells]
            texts, legend = [f"{row['grade']} {row['id']}" for row in rows], ""
        if not any(pictures):
            return html_block(title, html_text(self.caveat), html_table(header, cells))
        return html_block(
            title,
            html_text(self.caveat),
            html_pictures(zip(pictures, texts, strict=True)),
            html_text(legend),
        )
