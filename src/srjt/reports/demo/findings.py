"""What the numbers of the demo say, in sentences. Each one follows from the numbers alone: nobody wins by decree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from srjt.ordinal.intervals import Interval
from srjt.reports.demo.facts import AuditFacts, LabelFacts, RangeFacts
from srjt.reports.tables.statistics import decimals
from srjt.studies.paired_tests import corrected_t_test

__all__ = [
    "Pair",
    "Ranking",
    "audit_sentences",
    "label_sentences",
    "mean_interval",
    "precision_at",
    "range_sentences",
    "rank_methods",
    "ranking_sentences",
    "repeated_sentences",
]

LEVEL = 0.95


class Pair(NamedTuple):
    """How much better one method is than another, on average over the seeds."""

    better: str
    worse: str
    by: Interval  # the interval is corrected for the number of pairs

    @property
    def clear(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.by.low > 0


class Ranking(NamedTuple):
    """Methods from the best to the worst mean, and all pairs of them."""

    order: tuple[str, ...]
    means: dict[str, Interval]
    pairs: list[Pair]
    seeds: int

    def pair(self, better: str, worse: str) -> Pair:
        return next(pair for pair in self.pairs if (pair.better, pair.worse) == (better, worse))


def mean_interval(values: Sequence[float], *, level: float = LEVEL) -> Interval:
    """The mean of independent values with Student's interval; nan for the ends if there are one or two."""
    found = corrected_t_test(values, test_train_ratio=0.0, confidence=level)
    mean = math.nan if found.difference is None else found.difference
    if found.low is None or found.high is None:
        same = found.std == 0.0  # equal values: nothing varies
        return Interval(mean, mean if same else math.nan, mean if same else math.nan)
    return Interval(mean, found.low, found.high)


def rank_methods(scores: Mapping[str, Sequence[float]], *, lower_is_better: bool) -> Ranking:
    """Order methods by their mean over the seeds. scores: method → (S,), the seeds in the same order for all."""
    sign = 1.0 if lower_is_better else -1.0
    order = tuple(sorted(scores, key=lambda name: sign * float(np.mean(scores[name]))))
    compared = list(combinations(order, 2))
    level = 1.0 - (1.0 - LEVEL) / max(1, len(compared))
    pairs = [
        Pair(
            better,
            worse,
            mean_interval(sign * (np.asarray(scores[worse]) - np.asarray(scores[better])), level=level),
        )
        for better, worse in compared
    ]
    means = {name: mean_interval(scores[name]) for name in order}
    return Ranking(order, means, pairs, len(scores[order[0]]))


def ranking_sentences(ranking: Ranking, *, metric: str = "MAE", extreme: str = "lowest") -> list[str]:
    """Who is best, against whom that is clear, and whether the rest is."""
    best, *others = ranking.order
    mean = f"{ranking.means[best].value:.3f}"
    if ranking.seeds == 1:
        return [
            f"{best} has the {extreme} {metric}, {mean}. One seed gives no interval: this may be chance, so run more "
            "seeds."
        ]
    clear = [name for name in others if ranking.pair(best, name).clear]
    unclear = [name for name in others if name not in clear]
    if not clear:
        sentences = [
            f"No method is clearly the best: {best} has the {extreme} mean {metric}, {mean}, but its advantage over "
            f"{_each(ranking, best, others)} may be chance."
        ]
    elif unclear:
        sentences = [
            f"{best} has the {extreme} {metric}, {mean}. It is clearly better than {_each(ranking, best, clear)}; its "
            f"advantage over {_each(ranking, best, unclear)} may be chance."
        ]
    else:
        sentences = [
            f"{best} has the {extreme} {metric}, {mean}: clearly better than {_each(ranking, best, others)}."
        ]
    for first, second in combinations(others, 2):
        pair = ranking.pair(first, second)
        how = "is clearly better than" if pair.clear else "has the better mean, but may not be better than"
        sentences.append(f"{first} {how} {second}: by {_by(pair)}.")
    return sentences


def _each(ranking: Ranking, best: str, others: Sequence[str]) -> str:
    return _names([f"{name} (by {_by(ranking.pair(best, name))})" for name in others])


def _by(pair: Pair) -> str:
    return f"{pair.by.value:.3f}, interval {decimals(pair.by.low)} to {decimals(pair.by.high)}"


def label_sentences(facts: LabelFacts) -> list[str]:
    """What is wrong with the labels."""
    if not facts.wrong:
        return [f"None of {facts.labels:,} training labels is wrong."]
    severe = facts.wrong - facts.too_mild
    sentences = [
        f"A simulated reader graded {facts.labels:,} training images. {facts.wrong:,} of these labels are wrong "
        f"({facts.wrong / facts.labels:.0%}), {facts.by_one / facts.wrong:.0%} of them by one grade: "
        f"{facts.too_mild:,} too mild, {severe:,} too severe."
    ]
    (near, wrong_near), (far, wrong_far) = facts.near, facts.far
    if near and far:
        close, away = wrong_near / near, wrong_far / far
        gather = ": the errors gather where two grades meet" if close > away else ""
        sentences.append(
            f"Of the images within a quarter of a grade of a boundary {close:.0%} have a wrong label, of the others "
            f"{away:.0%}{gather}."
        )
    return sentences


def repeated_sentences(repeated: Mapping[str, Sequence[float]], *, unseen: float | None) -> list[str]:
    """Who learnt the mistakes. repeated: method → (S,) share of the wrong labels at the end; unseen: that share for
    networks that never saw these labels."""
    ranking = rank_methods(repeated, lower_is_better=False)
    shares = ", ".join(f"{name} {ranking.means[name].value:.0%}" for name in ranking.order)
    sentences = [f"At the end the networks repeat, of the wrong labels that they were trained on: {shares}."]
    if unseen is None:
        return sentences
    sentences.append(
        f"Networks that were not trained on these labels repeat {unseen:.0%} of them: an image that misled the reader "
        "can mislead a network, too. More than that is learnt by heart."
    )
    means = ranking.means
    known = {name: "learnt" if _above(means[name], unseen) else "not" for name in ranking.order}
    for name in ranking.order:
        if known[name] == "not" and means[name].value > unseen:
            known[name] = "unclear"
    said = {
        "learnt": "{} learnt mistakes by heart.",
        "unclear": "Whether {} did is not clear: the difference may be chance.",
        "not": "{} did not.",
    }
    for state, sentence in said.items():
        if names := [name for name in ranking.order if known[name] == state]:
            sentences.append(sentence.format(_names(names)))
    return sentences


def _above(share: Interval, level: float) -> bool:
    """Whether a share is clearly above a level; one seed makes nothing clear."""
    return math.isfinite(share.low) and share.low > level


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def precision_at(wrong_by_rank: Sequence[bool], most: int) -> float:
    """The share of wrong labels among the ``most`` most doubtful ones."""
    return float(np.mean(np.asarray(wrong_by_rank[:most], dtype=np.float64)))


def audit_sentences(facts: AuditFacts, *, looked_at: int = 50) -> list[str]:
    """Which labels the audit finds."""
    most = min(looked_at, facts.labels)
    found, expected = sum(facts.wrong_by_rank[:most]), most * facts.wrong / facts.labels
    better = (
        f"as many labels at random would contain {expected:.0f}"
        if found > expected
        else f"no more than the {expected:.0f} that a random choice would find"
    )
    low, high = facts.rate_interval
    rate = f"{facts.rate:.0%} of the labels are wrong (95 % interval {low:.0%} to {high:.0%})"
    truth = f"In truth {facts.wrong / facts.labels:.0%} are."
    estimate = (
        f"The audit estimates that {rate}. {truth}"
        if facts.identifiable
        else f"How many labels are wrong the data do not determine; the audit’s guess is that {rate}. {truth}"
    )
    sentences = [f"Of the {most} most doubtful labels {found} are wrong; {better}.", estimate]
    right = sum(one.suggested == one.true for one in facts.worst if one.label != one.true)
    errors = sum(one.label != one.true for one in facts.worst)
    if errors:
        sentences.append(
            f"Below are the {len(facts.worst)} most doubtful ones: {errors} {'is' if errors == 1 else 'are'} wrong, "
            f"and for {right} of these the suggested grade is the true one."
        )
    return sentences


def range_sentences(facts: RangeFacts) -> list[str]:
    """What a range of grades says about one patient, and whether ranges keep their promise."""
    inside = sum(one.low <= one.true <= one.high for one in facts.images)
    images = len(facts.images)
    number = f"{images} image{'s' if images != 1 else ''}"
    how_many = "all" if inside == images else f"{inside} of {images}"
    patient = f"Patient {facts.patient} has {number}. The range contains the true grade of {how_many}."
    kept = (
        "as promised" if facts.reached >= facts.promised else "less than promised, on this many test patients"
    )
    overall = (
        f"Over all test images {facts.reached:.0%} of the ranges contain the true grade ({kept}: at least "
        f"{facts.promised:.0%}), and a range has {facts.width:.1f} of {facts.grades} grades on average."
    )
    return [patient, overall]
