"""A run on its own held-out sides: an ``Evaluation`` of each, from the predictions that the run keeps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from srjt.errors import SrjtError
from srjt.inference.answers import answers_from, pool_answers, probabilities_of
from srjt.inference.calibrate import fit_after_training
from srjt.inference.evaluate import Evaluation, judge
from srjt.inference.predict import predict_held_out
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import calibration_bins
from srjt.ordinal.decoding import Decoding
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained


def evaluate_sides(
    run: Trained,
    *,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
    per_patient: bool = False,
    resamples: int = 1000,
) -> dict[str, Evaluation]:
    """Each held-out side of a run, test first, answered as ``srjt predict`` answers with these options.

    The test side is compared with its true grades where they are known, the validation side with its labels as given.
    per_patient: one answer per patient, the highest grade of the images; without patients there is no such side.
    resamples: 0 for no intervals.
    """
    fitted = fit_after_training(run, recalibrate=recalibrate)
    evaluations = {}
    for name in sorted(run.held_out):
        side = run.held_out[name]
        if per_patient and side.patients is None:
            continue
        truth = side.true_labels if name == "test" else None
        table = predict_held_out(run, side, optimise=optimise, decoding=decoding, fitted=fitted)
        answers = answers_from(run, table, side.labels if truth is None else truth, groups=side.groups)
        rows = _rows(side, run.grades, answers.labels, table)
        raw = probabilities_of(side.probabilities, "ensemble").astype(np.float64)
        bins = [] if fitted.recalibration is None else calibration_bins(raw, answers.labels)
        if per_patient:
            answers = pool_answers(answers, pd.factorize(np.asarray(side.patients))[0], how="highest")
            rows, bins = pd.DataFrame(), []
        evaluations[name] = judge(
            run,
            answers,
            judged_by="given grades" if truth is None else "true grades",
            by_patient=side.patients is not None,
            patients=None if side.patients is None else len(set(side.patients)),
            purpose=optimise or run.config.optimise,
            grade_rule=table.attrs["grade_rule"],
            recalibration="" if fitted.recalibration is None else str(fitted.recalibration),
            uncalibrated=bins,
            resamples=resamples,
            side=name,
            images=len(side),
            per=("patient",) if per_patient else (),
            pool="highest" if per_patient else "",
            answers_table=rows,
        )
    return dict(sorted(evaluations.items(), key=lambda item: item[0] != "test"))


def _rows(side: HeldOut, grades: tuple[str, ...], labels: object, table: pd.DataFrame) -> pd.DataFrame:
    """One row per answer: the sample, its file where it has one, the label and the grade."""
    rows = side.table.rename(columns={"id": "image"})
    rows["label"] = [grades[label] for label in np.asarray(labels).tolist()]
    rows["grade"] = table["grade"].to_numpy()
    if side.images is not None:
        rows["file"] = side.images
    return rows


def best_side(run: Trained, *, per_patient: bool = False, resamples: int = 1000) -> Evaluation | None:
    """The test side, else the validation side; None if the run keeps neither, or cannot answer."""
    try:
        sides = evaluate_sides(run, per_patient=per_patient, resamples=resamples) if run.held_out else {}
    except SrjtError:  # a method that is not installed
        return None
    return next(iter(sides.values()), None)
