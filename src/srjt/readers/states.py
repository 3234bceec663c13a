"""What an item may be: its grade, its severity within the grade, and how hard it is to read.

A grade is an interval of the severity of width 1 around its number. An item lies in the middle of its grade, or
anywhere in it (near a boundary readers differ), or it is hard to read wherever it lies. The shares of the three are
fitted. Where all items of a grade are alike (Dawid and Skene's assumption), one state per grade is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["KINDS", "States", "item_states"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KINDS = ("typical", "anywhere", "hard")  # kinds of items
_POSITIONS = (-0.375, -0.125, 0.125, 0.375)  # the middles of four cells of a grade
_HARD = 3.0  # times as much spread


@dataclass(frozen=True, kw_only=True)
class States:
    """S states of an item on C grades."""

    grade: Ints  # (S,)
    severity: Floats  # (S,)
    effort: Floats  # (S,) factor of every reader's spread
    kind: Ints  # (S,) index into KINDS
    share: Floats  # (S,) of a state among the states of its grade and kind
    of_grade: Floats  # (S, C) one-hot: states @ of_grade adds up grades

    def prior(self, grades: Floats, kinds: Floats) -> Floats:
        """(S,) from the shares of the grades (C,) and of the kinds (K,)."""
        return np.asarray(grades[self.grade] * kinds[self.kind] * self.share)


def item_states(classes: int, *, alike: bool) -> States:
    """The states of items on a scale of ``classes`` grades; with ``alike`` every item is typical of its grade."""
    within, effort, kind, share = np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64), np.ones(1)
    if not alike:
        cells = len(_POSITIONS)
        within = np.array([0.0, *_POSITIONS, 0.0])
        effort = np.array([1.0, *[1.0] * cells, _HARD])
        kind = np.array([0, *[1] * cells, 2])
        share = np.array([1.0, *[1.0 / cells] * cells, 1.0])
    grade = np.repeat(np.arange(classes), len(within))
    return States(
        grade=grade,
        severity=grade.astype(np.float64) + np.tile(within, classes),
        effort=np.tile(effort, classes),
        kind=np.tile(kind, classes),
        share=np.tile(share, classes),
        of_grade=np.eye(classes)[grade],
    )
