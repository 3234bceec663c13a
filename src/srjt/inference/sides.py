"""A run on its own held-out sides: an ``Evaluation`` of each, from the predictions that the run keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from srjt.errors import SrjtError
from srjt.inference.answers import Answers, probabilities_of
from srjt.inference.evaluate import Evaluation, judge
from srjt.inference.options import Answering
from srjt.inference.prepare import prepare
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained


def evaluate_sides(
    run: Trained, options: Answering | None = None, *, resamples: int = 1000
) -> dict[str, Evaluation]:
    """Each held-out side of a run, test first, answered as ``srjt predict`` answers with these options.

    The test side is compared with its true grades where they are known, the validation side with its labels as given.
    With ``per="patient"`` a side without patients is left out. resamples: 0 for no intervals.
    """
    prepared = prepare(run, options)
    per = prepared.options.per
    evaluations = {}
    for name in sorted(run.held_out):  # test before validation
        side = run.held_out[name]
        if per and side.patients is None:
            continue
        truth = side.true_labels if name == "test" else None
        answers = prepared.side_answers(side, side.labels if truth is None else truth)
        rows = pd.DataFrame() if per else _rows(side, run.grades, answers)
        if per:
            answers = prepared.pool(answers, pd.factorize(np.asarray(side.patients))[0])
        found = judge(
            prepared,
            answers,
            judged_by="given grades" if truth is None else "true grades",
            patients=side.patients,
            images=len(side),
            raw=probabilities_of(side.probabilities, prepared.options.network),
            resamples=resamples,
            side=name,
        )
        evaluations[name] = replace(found, answers=rows)
    return evaluations


def _rows(side: HeldOut, grades: tuple[str, ...], answers: Answers) -> pd.DataFrame:
    """One row per answer: the sample, its file where it has one, the label and the grade."""
    rows = side.table.rename(columns={"id": "image"})
    for name, values in (("label", answers.labels), ("grade", answers.grades)):
        rows[name] = [grades[place] for place in values.tolist()]
    return rows if side.images is None else rows.assign(file=side.images)


def best_side(run: Trained, options: Answering | None = None, *, resamples: int = 1000) -> Evaluation | None:
    """The test side, else the validation side; None if the run keeps neither, or cannot answer."""
    try:
        sides = evaluate_sides(run, options, resamples=resamples) if run.held_out else {}
    except SrjtError:  # a method that is not installed
        return None
    return next(iter(sides.values()), None)
