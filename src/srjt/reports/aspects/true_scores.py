"""What pages say of scores against the true grades, where labels may be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from srjt.errors import count_of
from srjt.inference.aspects.true_scores import NotEnough
from srjt.inference.evaluate import Evaluation
from srjt.inference.true_scores import TrueScores
from srjt.ordinal.metrics import MAIN, METRICS
from srjt.reports.aspects import Facts, file_facts, lead_of, sections_of
from srjt.reports.page import Section
from srjt.reports.sections import interval_text
from srjt.reports.table import between, data_table, metric_heading


def basis_of(scores: TrueScores) -> str:
    """What the scores rest on, as sentences."""
    if scores.complete:
        return "All these samples have verified grades: these are plain scores, not estimates."
    if scores.basis == "verified grades":
        return (
            f"From all labels, corrected by {scores.verified:,} verified grades. These must be a"
            " random part, or weighted by how they were drawn; nothing is assumed about the errors"
            " of the others."
        )
    if scores.basis == "readings":
        return (
            "From what the readings tell about the true grades. The bounds include errors that all"
            " readers share, up to the rate of one reader's own; a few verified grades tell much"
            " more."
        )
    assert scores.wrong is not None  # both other ways rest on it
    low, high = scores.wrong
    wrong = f"{low:.0%} to {high:.0%}"
    if scores.basis == "noise matrix":
        return f"From the noise of the run's labels ({wrong} wrong), if these labels are as noisy."
    return (
        f"How many of the labels are wrong is not determined ({wrong} are plausible). These are"
        " bounds, whatever the errors depend on."
    )


def not_known(missing: NotEnough, *, by_patient: bool) -> str:
    """Why the scores against the true grades are not known, and what to do, as sentences."""
    units = "patients" if by_patient else "samples"
    text = "The scores against the true grades are not known."
    if missing.verified:
        have = count_of(missing.verified, f"{units[:-1]} here has", f"{units} here have")
        text += f" {have} verified grades; {missing.verified_needed} are needed, or all."
    todo = f"a random part of the labels, of {missing.verified_needed} {units} or more"
    if missing.patients < missing.verified_needed:
        todo = "all labels here"
    text += f" Verify {todo} (column verified_grade), or have images read twice."
    if missing.validation < missing.validation_needed:
        text += (
            f" Bounds without verified grades need {missing.validation_needed} labels on the run's"
            f" validation side, which has {missing.validation}."
        )
    return text


@lead_of.register
def _lead(judged: TrueScores, evaluation: Evaluation) -> str:
    purpose = evaluation.purpose if evaluation.purpose in judged.scores else "mae"
    value, low, high = judged.scores[purpose]
    if math.isnan(low):
        return ""
    against = f"{METRICS[purpose].long_name.capitalize()} against the true grades:"
    if judged.basis == "verified grades":
        return f"{against} {value:.3f}, {between(low, high)}."
    # bounds that contain the score of one grade for all do not say whether the answers are better:
    # not at the top
    if low <= float(getattr(evaluation.naive, purpose, math.nan)) <= high:
        return ""
    return f"{against} {between(low, high)}."


@sections_of.register
def _sections(judged: TrueScores, evaluation: Evaluation) -> list[Section]:
    """Scores by the labels and against the true grades."""
    by_label = dict(evaluation.intervals)
    if evaluation.decision is not None:
        by_label |= evaluation.decision.operating_point
    scores = {
        name: score
        for name, score in judged.scores.items()
        if name in by_label and math.isfinite(score.low)
    }
    frame = pd.DataFrame(
        {
            "score": [metric_heading(name) if name in METRICS else name for name in scores],
            "by labels": [by_label[name].value for name in scores],
        }
    )
    interval = "bounds"
    if judged.basis == "verified grades":
        frame["by true grades"] = [score.value for score in scores.values()]
        interval = "95 % interval"
    frame[interval] = [between(*score[1:]) for score in scores.values()]
    heading = "Against the true grades"
    table = data_table(frame, title=heading, slug="true-scores")
    text = [basis_of(judged)]
    return [Section("true-scores", heading, text=text, tables=[table], brief=True)]


@file_facts("true_scores")
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    estimated = values["basis"] == "verified grades"
    words = []
    for name in MAIN:
        score = values["scores"].get(name)
        if score is None:
            continue
        metric = METRICS[name].long_name
        if estimated:
            words.append(f"{metric} {interval_text(score)}")
        elif score["low"] is not None:  # no value is an estimate
            words.append(f"{metric} {score['low']:.3f} to {score['high']:.3f}")
    which = "Bounds of the scores"
    if estimated:
        which = "Scores" if values.get("complete") else "Scores, CI by the delta method,"
    against = f"{which} of {answers} against the true grades, by {values['basis']}"
    yield "true_scores", f"{against}: {', '.join(words)}."
