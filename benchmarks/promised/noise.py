"""Simulations of what labels that may be wrong allow: ranges, the noise rate, the audit, scores
against the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from promised.population import (
    Floats,
    Ints,
    Sample,
    Setting,
    draw,
    many,
    random_rows,
    read,
    see,
    severities,
)
from promised.scores import Held, answers_of, confusion, holds
from srjt.auditing.scores import error_rates, network_scores
from srjt.inference.options import Answering
from srjt.inference.ranges import RangeRule, calibrate_ranges, evaluate_ranges
from srjt.inference.true_scores import TrueScores, true_scores
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.quality import (
    NoiseBounds,
    estimated_noise,
    given_noise,
    suggestion_shares,
    true_grade_posterior,
)
from srjt.noise.verified import exact_interval, labels_to_verify
from srjt.ordinal.decoding import highest_per_unit
from srjt.ordinal.metrics import METRICS
from srjt.ordinal.ranges import patient_weights
from srjt.training.held_out import HeldOut

PROMISED = 0.9  # of ranges
NEW_PATIENTS = 1000
DRAWS = 60  # for the intervals of a noise estimate

# What is simulated, each called in one place.


def noise_of(
    sample: Sample, verified: Ints | None = None, *, second: Ints | None = None
) -> NoiseEstimate:
    return estimate_noise(
        sample.labels,
        sample.probabilities,
        groups=sample.groups,
        verified=verified,
        second=second,
        bootstrap=DRAWS,
    )


def rule_of(
    sample: Sample, noise: NoiseBounds | None, *, verified: Ints | None = None, **options: Any
) -> RangeRule:
    side = HeldOut(
        ids=[str(row) for row in range(len(sample))],
        probabilities=sample.probabilities[None].astype(np.float32),
        labels=sample.labels,
        verified_labels=verified,
        patients=sample.groups,
        groups=sample.groups,
    )
    return calibrate_ranges(side, Answering(coverage=PROMISED, **options), noise=noise)


def audited_rates(
    sample: Sample,
    quality: Floats,
    column: str,
    values: Ints,
    estimate: NoiseEstimate,
    verified: Ints,
) -> list[dict[str, Any]]:
    """The rows that the audit shows for each value, some with an ``interval``."""
    scores = pd.DataFrame({"patient": sample.groups, "quality": quality}).assign(
        **{column: values.astype(str)}
    )
    if (verified >= 0).any():
        scores["verified_grade"] = np.where(verified >= 0, verified.astype(str), "")
    low, high = estimate.rate_interval
    determined = estimate.identifiable and estimate.learnt
    return error_rates(scores, column, rates=(low, estimate.rate, high) if determined else None)


def posterior_of(sample: Sample, estimate: NoiseEstimate, verified: Ints | None = None) -> Floats:
    by_label = None
    if estimate.verified_shares:
        by_label = [rate for rate, _, _ in estimate.verified_shares]
    return true_grade_posterior(
        sample.labels,
        sample.probabilities,
        groups=sample.groups,
        verified=verified,
        rate=estimate.rate,
        label_rates=by_label,
    )


def known_scores(sample: Sample, classes: int, **known: Any) -> TrueScores | None:
    answers = answers_of(sample, classes, labels=sample.labels)
    return true_scores(answers, resamples=300, **known)


# Ranges.


def from_labels(setting: Setting, rng: np.random.Generator) -> Held:
    """What one estimate of the noise gives: the rate, the matrix, the shares, and all kinds of
    ranges."""
    sample = draw(setting, rng)
    estimate = noise_of(sample)
    return noise_intervals(sample, estimate, setting) | ranges(sample, estimate, setting, rng)


def ranges(
    side: Sample, estimate: NoiseEstimate, setting: Setting, rng: np.random.Generator
) -> Held:
    """The share of new patients' images whose true grade is in the range; each patient counts
    once."""
    new = draw(setting, rng, patients=NEW_PATIENTS)
    noise = estimated_noise(estimate)
    checked = _verified(side, max(50, setting.patients // 3), rng)
    found = {
        "ranges-default": covered(rule_of(side, noise), new),
        "ranges-class-conditional": covered(
            rule_of(side, noise, label_noise="class-conditional"), new
        ),
        "ranges-none": covered(rule_of(side, None, label_noise="none"), new),
        "ranges-verified": covered(rule_of(side, noise, verified=checked), new),
    }
    by_grade = rule_of(side, noise, coverage_by="grade")
    for grade in range(setting.grades):
        rows = np.flatnonzero(new.true == grade)
        if len(rows):
            found[f"ranges-by-grade: {_kind_of_grade(grade, setting)}"] = covered(
                by_grade, new, rows
            )
    if setting.images != 1:
        found["ranges-per-patient"] = covered_patients(rule_of(side, noise, per=("patient",)), new)
    return found


def _kind_of_grade(grade: int, setting: Setting) -> str:
    if grade == 0:
        return "mildest grade"
    return "severest grade" if grade == setting.grades - 1 else "a grade between"


def covered(rule: RangeRule, new: Sample, rows: Ints | None = None) -> float:
    low, high = rule.ranges(new.probabilities, pd.DataFrame({"patient": new.groups}))
    chosen = np.arange(len(new)) if rows is None else rows
    inside = (low <= new.true) & (new.true <= high)
    weights = patient_weights(new.owner[chosen].tolist(), len(chosen))
    return float(weights @ inside[chosen] / weights.sum())


def covered_patients(rule: RangeRule, new: Sample) -> float:
    low, high = rule.ranges(new.probabilities, pd.DataFrame({"patient": new.groups}))
    highest = highest_per_unit(new.true, new.owner)
    return float(((low <= highest) & (highest <= high)).mean())


def judged_ranges(setting: Setting, rng: np.random.Generator) -> Held:
    """Whether the intervals of a coverage and of a width hold those of many patients."""
    rule = _settled_rule(setting)
    sample = draw(setting, rng)
    low, high = rule.ranges(sample.probabilities, pd.DataFrame({"patient": sample.groups}))
    answers = replace(answers_of(sample, setting.grades), ranges=(low, high))
    found = evaluate_ranges(answers, rule, resamples=300)
    assert found is not None
    coverage, width = _true_coverage(setting)
    return {"coverage": holds(found.coverage, coverage), "width": holds(found.width, width)}


@lru_cache
def _settled_rule(setting: Setting) -> RangeRule:
    side = draw(replace(setting, patients=300), np.random.default_rng(0))
    return rule_of(side, None, label_noise="none")


@lru_cache
def _true_coverage(setting: Setting) -> tuple[float, float]:
    rule, new = _settled_rule(setting), many(setting)
    low, high = rule.ranges(new.probabilities, pd.DataFrame({"patient": new.groups}))
    weights = patient_weights(new.owner.tolist(), len(new))
    return covered(rule, new), float(weights @ (high - low + 1) / weights.sum())


# The noise rate, and the audit.


def noise_intervals(sample: Sample, found: NoiseEstimate, setting: Setting) -> Held:
    """The interval of the share of wrong labels, and the matrix and the shares of the true
    grades."""
    truth = float((sample.labels != sample.true).mean())
    joint = confusion(sample.true, sample.labels, setting.grades)
    shares = joint.sum(axis=1) / joint.sum()
    low, high = found.prior_interval
    held = {
        "noise-rate": holds((found.rate, *found.rate_interval), truth),
        "noise-lower-bound": float(found.lower_bound <= truth + 1e-9),
        "noise-shares": float(((low - 1e-9 <= shares) & (shares <= high + 1e-9)).mean()),
    }
    present = joint.sum(axis=1) > 0
    matrix = joint[present] / joint[present].sum(axis=1, keepdims=True)
    least, most = found.transition_interval[:, present]
    held["noise-matrix"] = float(((least - 1e-9 <= matrix) & (matrix <= most + 1e-9)).mean())
    return held


def audited(setting: Setting, rng: np.random.Generator) -> Held:
    """The share of wrong labels by grade, patient and reader, and the suggestions."""
    sample = draw(setting, rng)
    verified = _verified(sample, setting.verified, rng)
    found = noise_of(sample, verified)
    posterior = posterior_of(sample, found, verified)
    held = {}
    rows = np.arange(len(sample))
    quality = posterior[rows, sample.labels]
    wrong = sample.labels != sample.true
    for column, values in (
        ("grade", sample.labels),
        ("patient", sample.owner),
        ("reader", sample.owner % 3),
    ):
        shown = audited_rates(sample, quality, column, values, found, verified)
        held[f"audit-rates: {column}"] = _rates_hold(shown, wrong, column, values)
    return held | _suggestions(sample, posterior, found, verified)


def _rates_hold(rows: list[dict[str, Any]], wrong: Ints, column: str, values: Ints) -> float:
    """The share of the rows with an interval that holds the share of wrong labels; nan without
    any."""
    held = []
    for row in rows:
        if row.get("interval") is not None:
            low, high = row["interval"]
            own = values == int(row[column])
            held.append(holds((math.nan, low, high), round(float(wrong[own].mean()), 4)))
    return float(np.mean(held)) if held else math.nan


def _suggestions(
    sample: Sample, posterior: Floats, estimate: NoiseEstimate, verified: Ints
) -> Held:
    """The share of right ones among the suggestions that contradict a label and are shown. A
    verified label has none."""
    best = posterior.argmax(axis=1)
    right = suggestion_shares(
        sample.labels, sample.probabilities, best, estimate=estimate, groups=sample.groups
    )
    shown = (best != sample.labels) & (right >= 0.5) & (verified < 0)
    return {"suggestions": float((best == sample.true)[shown].mean())} if shown.any() else {}


def verified_rate(setting: Setting, rng: np.random.Generator) -> Held:
    """The share of wrong labels with a random sample of verified ones: combined with the model, and
    alone."""
    sample = draw(setting, rng)
    checked = _verified(sample, setting.verified, rng)
    wrong = sample.labels != sample.true
    known = checked >= 0
    found = noise_of(sample, checked)
    alone = float(wrong[known].mean())
    low, high = exact_interval(alone, int(known.sum()))
    return {
        "noise-rate-verified": holds((found.rate, *found.rate_interval), float(wrong.mean())),
        "noise-rate-sample": holds((alone, low, high), float(wrong.mean())),
    }


def read_twice(setting: Setting, rng: np.random.Generator) -> Held:
    """The share of wrong labels where another reader, who errs alike, has graded every image."""
    sample = draw(setting, rng)
    second = read(setting, sample.severity, sample.true, sample.owner, rng)
    found = noise_of(sample, second=second)
    truth = float((sample.labels != sample.true).mean())
    return {"share": holds((found.rate, *found.rate_interval), truth)}


def labels_needed(setting: Setting, rng: np.random.Generator) -> Held:
    """The half-width after as many verified labels as were planned, over the one that was
    wanted."""
    wanted = 0.05
    number = labels_to_verify(setting.rate, within=wanted)
    wrong = rng.random(number) < setting.rate
    low, high = exact_interval(float(wrong.mean()), number)
    return {"half-width": (high - low) / 2.0 / wanted}


def chance(setting: Setting, rng: np.random.Generator) -> Held:
    """A network that sees other patients, and so knows nothing: is it said to have learnt, or to
    recognise a grade?"""
    sample = draw(setting, rng)
    elsewhere = severities(sample.owner, rng)
    probabilities = see(setting, elsewhere, sample.owner, rng)
    sample = replace(sample, probabilities=probabilities, predicted=probabilities.argmax(axis=1))
    grades = [str(grade) for grade in range(setting.grades)]
    seen = network_scores(sample.labels, [sample.predicted], grades=grades, owner=sample.owner)[
        "grades"
    ]
    recognised = [row["recognised"] for row in seen if row["labels"]]
    return {"learnt": float(noise_of(sample).learnt), "recognised": float(np.mean(recognised))}


def _verified(sample: Sample, number: int, rng: np.random.Generator) -> Ints:
    rows = random_rows(len(sample), number, rng)
    checked = np.full(len(sample), -1)
    checked[rows] = sample.true[rows]
    return checked


# Scores against the true grades.


def against_truth(setting: Setting, rng: np.random.Generator) -> Held:
    sample = draw(setting, rng)
    truth = true_score_values(setting)
    matrix = _true_matrix(setting)
    shares = np.bincount(sample.labels, minlength=setting.grades) / len(sample)
    estimated = estimated_noise(noise_of(sample))
    known = {
        "true-scores-verified": known_scores(
            sample, setting.grades, verified=_verified(sample, setting.verified or 100, rng)
        ),
        "true-scores-matrix": known_scores(
            sample, setting.grades, noise=given_noise(matrix, shares)
        ),
        "true-scores-bounds": known_scores(
            sample, setting.grades, noise=replace(estimated, determined=False)
        ),
    }
    held = {}
    for name, found in known.items():
        if found is not None and (name != "true-scores-verified" or found.verified):
            for metric, value in truth.items():
                held[f"{name}: {metric}"] = holds(found.scores[metric], value)
    return held


@lru_cache
def true_score_values(setting: Setting) -> dict[str, float]:
    new = many(setting)
    counts = confusion(new.true, new.predicted, setting.grades)
    return {name: float(METRICS[name](counts)) for name in ("accuracy", "mae", "qwk")}


@lru_cache
def _true_matrix(setting: Setting) -> Floats:
    new = many(setting)
    counts = confusion(new.true, new.labels, setting.grades)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
