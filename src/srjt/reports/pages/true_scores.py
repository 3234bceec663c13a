"""The section of an evaluation about scores against the true grades, where labels may be wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from srjt.inference.evaluate import Evaluation
from srjt.ordinal.metrics import METRICS, Interval
from srjt.reports.page import Rule, Section, first_sentence, sentences
from srjt.reports.table import between, data_table


@dataclass(frozen=True, kw_only=True)
class TruthFacts:
    """What the sentences are about."""

    basis: str
    metric: str  # the one that the grades are for, or the MAE, in words
    value: float
    low: float
    high: float
    verified: int
    least: float  # the plausible shares of wrong labels, from least to most; nan if they are not used
    most: float
    extremes: bool  # whether the network may err independently of the labels, or repeat their errors

    @property
    def first_words(self) -> str:
        """The metric at the beginning of a sentence."""
        return self.metric[0].upper() + self.metric[1:]


LEAD: list[Rule[TruthFacts]] = [
    (lambda f: math.isnan(f.low), ""),
    (
        lambda f: f.basis == "verified grades",
        "{f.first_words} against the true grades: {f.value:.3f} ({f.low:.3f} to {f.high:.3f}).",
    ),
    (lambda f: True, "{f.first_words} against the true grades: {f.low:.3f} to {f.high:.3f}."),
]
WHY: list[Rule[TruthFacts]] = [
    (
        lambda f: f.basis == "verified grades",
        "From all labels, corrected by {f.verified:,} verified grades. These must be a random part; nothing is assumed "
        "about the errors of the others.",
    ),
    (lambda f: f.basis == "readings", "From what the readings tell about the true grades."),
    (
        lambda f: f.basis == "noise matrix",
        "From the noise of the run's labels ({f.least:.0%} to {f.most:.0%} wrong), if these labels are as noisy.",
    ),
    (
        lambda f: f.extremes,
        "Whether the network errs where the labels are wrong is not known: the intervals reach from one extreme to the "
        "other.",
    ),
    (
        lambda f: f.basis == "readings",
        "Errors that all readers and the network share are included up to the rate of one reader's own. A network that "
        "is right where all readers err is better than these intervals.",
    ),
    (
        lambda f: f.basis == "share of wrong labels",
        "How many of the labels are wrong is not determined ({f.least:.0%} to {f.most:.0%} are plausible). These "
        "are bounds, whatever the errors depend on.",
    ),
]


def truth_facts(found: Evaluation) -> TruthFacts:
    """The facts of the scores against the true grades, which must be there."""
    truly = found.true_scores
    assert truly is not None
    purpose = found.purpose if found.purpose in truly.scores else "mae"
    value, low, high = truly.scores[purpose]
    return TruthFacts(
        basis=truly.basis,
        metric=METRICS[purpose].long_name,
        value=value,
        low=low,
        high=high,
        verified=truly.verified,
        least=math.nan if truly.wrong is None else truly.wrong[0],
        most=math.nan if truly.wrong is None else truly.wrong[1],
        extremes=bool(truly.apart and truly.alike),
    )


def true_scores_lead(found: Evaluation) -> str:
    """A second sentence for the top of the page; "" if there is nothing to say."""
    if found.true_scores is None:
        return ""
    sentence = first_sentence(LEAD, truth_facts(found))
    return sentence and f" {sentence}"


def true_scores_section(found: Evaluation) -> Section | None:
    """Each score by the labels and against the true grades."""
    truly = found.true_scores
    if truly is None:
        return None
    names = {"mae": "absolute error ↓", "accuracy": "accuracy ↑", "qwk": "quadratic κ ↑"}
    names |= {f"recall_{place}": f"recall, {grade}" for place, grade in enumerate(found.grades.shown)}
    by_label: dict[str, float] = {name: interval.value for name, interval in found.intervals.items()}
    if found.decision is not None:
        by_label |= {name: interval.value for name, interval in found.decision.operating_point.items()}
    for place, counts in enumerate(found.confusion):
        by_label[f"recall_{place}"] = counts[place] / sum(counts) if sum(counts) else math.nan
    shown = [name for name, interval in truly.scores.items() if math.isfinite(interval.low)]
    frame = pd.DataFrame({
        "score": [names.get(name, name) for name in shown],
        "by labels": [by_label[name] for name in shown],
        "by true grades": [truly.scores[name].value for name in shown],
        "95 % interval": [_ends(truly.scores[name]) for name in shown],
    })  # fmt: skip
    caption = ""
    if truly.apart and truly.alike:
        frame = frame.drop(columns="by true grades")
        frame["apart"] = [_ends(truly.apart[name]) for name in shown]
        frame["alike"] = [_ends(truly.alike[name]) for name in shown]
        caption = "Apart: the network errs independently of the labels. Alike: it repeats their errors."
    return Section(
        slug="true-scores",
        heading="Against the true grades",
        text=sentences(WHY, truth_facts(found)),
        tables=[data_table(frame, title="Against the true grades", caption=caption, slug="true-scores")],
        brief=True,
    )


def _ends(interval: Interval) -> str:
    return between(interval.low, interval.high)
