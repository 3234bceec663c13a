"""The answers of an evaluation as a table, one row per answer."""

from __future__ import annotations

import pandas as pd

from srjt.data.manifest import Manifest
from srjt.inference.answers import Answers, Units
from srjt.training.trained import Trained

__all__ = ["answer_rows"]


def answer_rows(run: Trained, answers: Answers, data: Manifest, units: Units | None) -> pd.DataFrame:
    """Who was answered, the label, the predicted grade and ``p_<grade>`` of every answer.

    Who: the columns ``image`` and ``patient``, or those of the units and the number of their ``images``.
    """
    if units is None:
        rows = data.table[["image", *(["patient"] if "patient" in data.table else [])]].reset_index(drop=True)
    else:
        counts = pd.Series(units.codes).value_counts(sort=False).sort_index()
        rows = units.keys.assign(images=counts.to_numpy())
    p = {f"p_{grade}": answers.probabilities[:, c] for c, grade in enumerate(run.grades)}
    names = {"label": answers.labels, "grade": answers.grades}
    return rows.assign(**{name: [run.grades[g] for g in found] for name, found in names.items()}, **p)
