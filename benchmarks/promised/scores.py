"""Simulations of scores: their intervals, differences between runs and between groups, referral,
and plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from promised.population import Floats, Ints, Sample, Setting, draw, many, see
from srjt.errors import SrjtError
from srjt.inference.answers import Answers
from srjt.inference.aspects import Judging
from srjt.inference.aspects.abstention import DoubtRule
from srjt.inference.aspects.referral import ReferralRule
from srjt.inference.compare import Difference, _differences
from srjt.inference.planning import Planning
from srjt.inference.sample_size import (
    SamplePlan,
    _from_pilot,
    exact_half_width,
    patients_for,
    plan,
)
from srjt.inference.subgroups import Subgroups, group_by, judge_subgroups
from srjt.ordinal.baseline import gain_over_one_grade, one_grade
from srjt.ordinal.decisions import (
    areas,
    operating_point,
    referral_probability,
    threshold_for_sensitivity,
)
from srjt.ordinal.intervals import Interval, one_error_more, patients_behind, resampled_metrics
from srjt.ordinal.metrics import METRICS
from srjt.ordinal.ranges import patient_weights
from srjt.reports.pages.analysis import verdict_of_both
from srjt.reports.pages.study import learning_curve_section
from srjt.studies.results import NAIVE_COLUMNS, StudyResults, corrected_t_test

RESAMPLES = 300
NEW_PATIENTS = 400
Held = dict[str, float]  # by quantity: 1 if the promise was kept, 0 if not; nan: nothing was said

# What is simulated, each called in one place.


def score_intervals(sample: Sample, classes: int) -> dict[str, Interval]:
    return answers_of(sample, classes).intervals(resamples=RESAMPLES)


def subgroups_of(answers: Answers, names: Ints) -> Subgroups:
    grouping = group_by(pd.DataFrame({"site": [f"site {name}" for name in names]}), "site")
    return judge_subgroups(answers, [grouping], resamples=RESAMPLES)


def differences(sample: Sample, answers: list[list[Ints]], classes: int) -> list[Difference]:
    """answers: of both methods the grades of each training."""
    how = {"num_classes": classes, "groups": sample.groups, "resamples": RESAMPLES}
    drawn = [
        [resampled_metrics(sample.true, one, **how) for one in trainings] for trainings in answers
    ]
    more = []
    for trainings in answers:
        own = [_tables_by_patient(sample, one, classes) for one in trainings]
        more.append([one_error_more(one) for one in own])
    behind = patients_behind(own[0])
    return _differences(
        ["first", "second"], drawn, patients=behind, level=0.95, errors=more, classes=classes
    )


def _tables_by_patient(sample: Sample, answers: Ints, classes: int) -> Floats:
    tables = np.zeros((int(sample.owner.max()) + 1, classes * classes))
    np.add.at(tables, (sample.owner, sample.true * classes + answers), 1.0)
    return tables.reshape(-1, classes, classes)


def plan_from_pilot(sample: Sample, classes: int, metric: str, wanted: float) -> SamplePlan:
    names = [str(grade) for grade in range(classes)]
    rows = {
        "label": np.array(names)[sample.true],
        "grade": np.array(names)[sample.predicted],
        "patient": sample.groups,
    }
    pilot: Any = SimpleNamespace(answers=pd.DataFrame(rows), grades=names, run="", true_scores=None)
    return _from_pilot(pilot, Planning(metric=metric, half_width=wanted), resamples=RESAMPLES)  # type: ignore[arg-type]


def learning_curve_verdict(scores: pd.DataFrame) -> str:
    none = pd.DataFrame()
    results = StudyResults(
        folder=Path(),
        facts={"study": {"train": {}}},
        runs=none,
        metrics=none,
        scores=scores,
        confusions={},
        noise=none,
        naive=pd.DataFrame(columns=NAIVE_COLUMNS),
    )
    return " ".join(
        text for section in learning_curve_section(results, metric="mae") for text in section.text
    )


# Helpers.


def answers_of(sample: Sample, classes: int, *, labels: Ints | None = None) -> Answers:
    return Answers(
        probabilities=sample.probabilities,
        grades=sample.predicted,
        labels=sample.true if labels is None else labels,
        groups=sample.groups,
    )


def holds(interval: Interval | tuple[float, float, float], truth: float) -> float:
    """1 or 0; nan if there is no interval."""
    _, low, high = interval
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(truth)):
        return math.nan
    return float(low - 1e-9 <= truth <= high + 1e-9)


def all_hold(intervals: Mapping[str, Interval], truths: Mapping[str, float]) -> Held:
    return {
        name: holds(intervals[name], truth) for name, truth in truths.items() if name in intervals
    }


def confusion(true: Ints, predicted: Ints, classes: int) -> Floats:
    return (
        np.bincount(true * classes + predicted, minlength=classes**2)
        .reshape(classes, classes)
        .astype(float)
    )


# Scores and differences.


@lru_cache
def true_metrics(setting: Setting) -> dict[str, float]:
    new = many(setting)
    counts = confusion(new.true, new.predicted, setting.grades)
    return {name: float(metric(counts)) for name, metric in METRICS.items()}


def scores(setting: Setting, rng: np.random.Generator) -> Held:
    sample = draw(setting, rng)
    held = all_hold(score_intervals(sample, setting.grades), true_metrics(setting))
    return {f"{_kind(metric)}: {metric}": kept for metric, kept in held.items()}


def _kind(metric: str) -> str:
    """Means over the grades have a promise of their own: a grade of two patients decides a third of
    them."""
    return (
        "macro-intervals" if metric.startswith(("macro", "qwk", "balanced")) else "score-intervals"
    )


def two_runs(setting: Setting, rng: np.random.Generator) -> Held:
    """Two methods that are equally good, each trained some times: is a difference found?

    What a method gets wrong in a patient is its own, and of a training, its own again.
    """
    sample = draw(setting, rng)
    methods = []
    for _ in range(2):
        own = see(setting, sample.severity, sample.owner, rng)
        trainings = []
        for _ in range(setting.trainings):
            mixed = (
                own
                if setting.trainings == 1
                else own * see(setting, sample.severity, sample.owner, rng)
            )
            trainings.append(mixed.argmax(axis=1))
        methods.append(trainings)
    found = differences(sample, methods, setting.grades)
    held = {}
    for row in found:
        held[f"difference-interval: {row.metric}"] = holds(row.difference, 0.0)
        said_nothing = not math.isfinite(row.adjusted)
        held[f"difference-level: {row.metric}"] = (
            math.nan if said_nothing else float(row.adjusted <= 0.05)
        )
    return held


def equal_groups(setting: Setting, rng: np.random.Generator) -> Held:
    """Groups that differ by chance alone: does one "differ"? Do the intervals of the groups hold
    the truth?"""
    sample = draw(setting, rng, patients=sum(setting.groups))
    name = np.repeat(np.arange(len(setting.groups)), setting.groups)
    found = subgroups_of(answers_of(sample, setting.grades), name[sample.owner])
    smallest = min(found.groups, key=lambda group: group.patients)
    held = {"subgroup-differs: mae": float(any(group.differs for group in found.groups))}
    for metric, truth in true_metrics(setting).items():
        if metric in smallest.gaps:
            held[f"subgroup-gap: {metric}"] = holds(smallest.gaps[metric].difference, 0.0)
        if metric in smallest.scores:
            held[f"subgroup-score: {metric}"] = holds(smallest.scores[metric], truth)
    return held


# Referral: the operating point, the areas, and the threshold for a sensitivity.


def _position(setting: Setting) -> int:
    return max(1, setting.grades // 2)


def _rule(setting: Setting) -> ReferralRule:
    return ReferralRule(position=_position(setting), threshold=0.5, origin="")


@lru_cache
def true_referral(setting: Setting) -> dict[str, float]:
    new, position = many(setting), _position(setting)
    positive = new.true >= position
    score = referral_probability(new.probabilities, refer_from=position)
    sent = score >= 0.5
    found = {
        "sensitivity": float(sent[positive].mean()),
        "specificity": float((~sent)[~positive].mean()),
        "positive_predictive_value": float(positive[sent].mean()),
        "negative_predictive_value": float((~positive)[~sent].mean()),
    }
    return found | {name: one.value for name, one in areas(positive, score, resamples=0).items()}


def referral(setting: Setting, rng: np.random.Generator) -> Held:
    sample, position = draw(setting, rng), _position(setting)
    positive = sample.true >= position
    score = referral_probability(sample.probabilities, refer_from=position)
    found = operating_point(positive, score >= 0.5, groups=sample.groups)
    if positive.any() and not positive.all():
        found |= areas(positive, score, groups=sample.groups, resamples=RESAMPLES)
    return all_hold(found, true_referral(setting))


@lru_cache
def true_kept_accuracy(setting: Setting, cut: float) -> float:
    new = many(setting)
    kept = new.probabilities[np.arange(len(new)), new.predicted] >= cut
    return float((new.predicted == new.true)[kept].mean())


def abstention(setting: Setting, rng: np.random.Generator) -> Held:
    """The accuracy of the answers that are kept, at a cut that was settled before."""
    cut = 0.7
    sample = draw(setting, rng)
    answers = answers_of(sample, setting.grades)
    judging = Judging(calibrated=None, answers=answers, images=answers, samples=None, resamples=0)  # type: ignore[arg-type]
    judged = DoubtRule(refer=None, share=0.2, cut=cut).judge(judging)
    return all_hold(judged.kept, {"accuracy": true_kept_accuracy(setting, cut)})


def threshold(setting: Setting, rng: np.random.Generator) -> Held:
    """The sensitivity among new patients with an image to refer; each counts once."""
    position = _position(setting)
    side = draw(setting, rng)
    if not (side.labels >= position).any():
        return {}
    score = referral_probability(side.probabilities, refer_from=position)
    chosen = threshold_for_sensitivity(
        side.labels >= position, score, sensitivity=0.9, groups=side.groups
    )
    if not chosen.reached:
        return {}
    new = draw(setting, rng, patients=NEW_PATIENTS)
    rows = np.flatnonzero(new.true >= position)
    if not len(rows):
        return {}
    sent = referral_probability(new.probabilities[rows], refer_from=position) >= chosen.threshold
    weights = patient_weights(new.owner[rows].tolist(), len(rows))
    return {"sensitivity": float(weights @ sent / weights.sum())}


# Plans: half-widths that were planned and that came out.


def planned(setting: Setting, rng: np.random.Generator) -> Held:
    """The half-width of an interval with as many patients as were planned, over the one that was
    wanted."""
    wanted, truth, held = 0.05, true_metrics(setting), {}
    shares = ",".join(f"{share:.4f}" for share in setting.shares)
    known: dict[str, dict[str, Any]] = {
        "accuracy": {"metric": "accuracy"},
        "mae": {"metric": "mae"},
        "mae with its spread": {"metric": "mae", "spread": _deviation(setting, "mae")},
        "qwk": {"metric": "qwk", "grade_shares": shares},
    }
    for name, options in known.items():
        metric = str(options["metric"])
        if metric == "mae" and truth["mae"] >= 1.0 and "spread" not in options:
            continue
        found = plan(value=truth[metric], half_width=wanted, **options)
        sample = draw(setting, rng, patients=found.patients)
        _, low, high = score_intervals(sample, setting.grades)[metric]
        held[name] = (high - low) / 2.0 / wanted
    return held


def pilots(setting: Setting, rng: np.random.Generator) -> Held:
    """Whether the plausible numbers of patients hold the number that is needed."""
    sample, held, wanted = draw(setting, rng), {}, 0.05
    for metric in ("accuracy", "mae"):
        try:
            found = plan_from_pilot(sample, setting.grades, metric, wanted)
        except SrjtError:  # too small, or without an error
            continue
        held[metric] = holds((0.0, *found.plausible), _needed(setting, metric, wanted))
    return held


@lru_cache
def _needed(setting: Setting, metric: str, wanted: float) -> int:
    """So many patients have an interval of this half-width."""
    new = many(setting)
    off = np.abs(new.true - new.predicted)
    deviation = _deviation(setting, metric)
    size = 1.0 if metric == "accuracy" else float((off**2).sum() / off.sum())
    share = true_metrics(setting)[metric] / size
    return patients_for(
        lambda patients: size * exact_half_width(patients, deviation / size, share=share), wanted
    )


@lru_cache
def _deviation(setting: Setting, metric: str) -> float:
    """What one patient contributes to the standard deviation of a mean over images."""
    new = many(setting)
    off = np.abs(new.true - new.predicted)
    value = (off > 0).astype(float) if metric == "accuracy" else off
    images = np.bincount(new.owner)
    rest = np.bincount(new.owner, value - value.mean())
    return float(np.sqrt((rest**2).mean()) / images.mean())


# Verdicts by chance: better than one grade for all, and sides that are apart.


def by_chance(setting: Setting, rng: np.random.Generator) -> Held:
    """Answers that are as good as one grade for all; and two sides of the same kind."""
    sample, other = draw(setting, rng), draw(setting, rng)
    true, answers, counts = _no_better(setting, sample, rng)
    gain = gain_over_one_grade(
        true,
        answers,
        training_counts=counts,
        metric="mae" if setting.far else "accuracy",
        groups=sample.groups,
        resamples=RESAMPLES,
    )
    if setting.one_grade:  # of no concern to sides
        return {"beats-one-grade": float(gain.verdict == "better")}
    one, two = (score_intervals(side, setting.grades)["mae"] for side in (sample, other))
    apart = math.nan
    if math.isfinite(one.low) and math.isfinite(two.low):
        apart = float(one.high < two.low or two.high < one.low)
    return {"beats-one-grade": float(gain.verdict == "better"), "sides-apart": apart}


def _no_better(
    setting: Setting, sample: Sample, rng: np.random.Generator
) -> tuple[Ints, Ints, Floats]:
    """True grades, answers and the counts of training labels.

    Answers at random; or right image by image as often as the lowest grade, which few patients have
    and then in most of their images, so that many gain a little and few lose much; or all right,
    but for rare errors by as many grades as there are, which cost what the rest gains over always
    the lowest grade.
    """
    if setting.one_grade:
        other = (sample.true + rng.integers(1, setting.grades, size=len(sample))) % setting.grades
        right = rng.random(len(sample)) < setting.shares[0]
        return sample.true, np.where(right, sample.true, other), np.eye(setting.grades)[0]
    if not setting.far:
        return (
            sample.true,
            rng.integers(setting.grades, size=setting.patients)[sample.owner],
            np.ones(setting.grades),
        )
    last = setting.grades - 1
    second = setting.far * last  # the share of the second grade: the MAE of always the lowest
    true = (rng.random(len(sample)) < second).astype(np.int64)
    wrong = (true == 0) & (rng.random(len(sample)) < setting.far / (1.0 - second))
    return true, np.where(wrong, last, true), np.eye(setting.grades)[0]


def by_test_side_or_all(setting: Setting, rng: np.random.Generator) -> Held:
    """Two networks that are as good as one grade for all: one is judged on a fifth of the patients,
    the other on all of them. Is the gain said to be there?"""
    sample = draw(setting, rng)
    verdicts = []
    for rows in (sample.owner % 5 == 0, sample.owner >= 0):
        true, answers, counts = _no_gain(setting, sample, rng)
        gain = gain_over_one_grade(
            true[rows],
            answers[rows],
            training_counts=counts,
            metric="mae",
            groups=sample.owner[rows].astype(str).tolist(),
            resamples=RESAMPLES,
        )
        verdicts.append(gain.verdict)
    return {"mae": float(verdict_of_both(*verdicts) == "better")}


def _no_gain(
    setting: Setting, sample: Sample, rng: np.random.Generator
) -> tuple[Ints, Ints, Floats]:
    """As ``_no_better``, by the absolute error: answers are the median grade, but for some patients
    one grade nearer to the true one, and for as many, whose grade is the median, one grade off."""
    if setting.far:
        return _no_better(setting, sample, rng)
    middle = one_grade(setting.shares, "mae")
    at_median = float(setting.shares[middle])
    odds = (1.0 - at_median) / at_median
    off = np.where(sample.true == middle, min(1.0, odds), min(1.0, 1.0 / odds))
    moved = rng.random(setting.patients)[sample.owner] < 0.5 * off
    aside = 1 if middle == 0 else -1
    step = np.where(sample.true == middle, aside, np.sign(sample.true - middle))
    return sample.true, middle + moved * step, setting.shares


# Studies: folds that share training data.


def folds(setting: Setting, rng: np.random.Generator) -> Held:
    """Two methods that are equally good on average, by five folds (60/20/20) of real trainings.

    A training is a regression of the severity on ten features of the method's own; a seed changes
    the training samples that are used.
    """
    number, features, parts = setting.patients, 10, 5
    severity = rng.normal(size=number)
    both = severity[None, :, None] + 2.0 * rng.normal(size=(2, number, features))
    thresholds = setting.thresholds
    true = np.searchsorted(thresholds, severity)
    part = rng.permutation(number) % parts
    found = np.zeros((parts, setting.trainings))
    for fold in range(parts):
        test = part == fold
        train = np.flatnonzero((part != fold) & (part != (fold + 1) % parts))
        for seed in range(setting.trainings):
            rows = (
                train if setting.trainings == 1 else rng.permutation(train)[: int(0.8 * len(train))]
            )
            errors = []
            for own in both:
                weights = np.linalg.lstsq(
                    np.c_[own[rows], np.ones(len(rows))], severity[rows], rcond=None
                )[0]
                answer = np.c_[own[test], np.ones(test.sum())] @ weights
                errors.append(np.abs(np.searchsorted(thresholds, answer) - true[test]).mean())
            found[fold, seed] = errors[0] - errors[1]
    tested = corrected_t_test(found, test_train_ratio=1 / 3)
    if tested.low is None or tested.high is None or tested.p_value is None:
        return {}
    return {
        "study-interval: mae": float(tested.low <= 0.0 <= tested.high),
        "study-level: mae": float(tested.p_value <= 0.05),
    }


def learning_curve(setting: Setting, rng: np.random.Generator) -> Held:
    """More images and better labels gain equally: does the page say that one of them helps more?"""
    rows = []
    for fold in range(setting.trainings):
        half, more, better = 1.0, *(-0.1 + 0.02 * rng.normal(size=2))
        arms = {
            "quasi:0.4@0.5": half,
            "quasi:0.4": half + more,
            "quasi:rate=0.2": half + more + better,
        }
        for noise, value in arms.items():
            rows.append(("standard", "", noise, fold, 0, "test", "mae", value))
    names = ["method", "variant", "noise", "fold", "seed", "split", "metric", "value"]
    return {
        "verdict": float(
            "help more than" in learning_curve_verdict(pd.DataFrame(rows, columns=names))
        )
    }
