"""Where the scores differ: between subgroups such as sites, sexes and ages, and between the run's
own test side and samples from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from srjt.data.grades import MISSING, as_text
from srjt.data.images.store import ImageStore
from srjt.errors import Option, SrjtError, unknown_name
from srjt.inference.answers import Answers, number_of_patients
from srjt.inference.aspects import Calibration
from srjt.inference.calibrated_run import calibrate_grades
from srjt.inference.labelled import judging_labels
from srjt.json_values import DictMixin, json_values
from srjt.ordinal import calibration, patient_codes, ranges as conformal
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import (
    TOO_FEW,
    Interval,
    ScoreDraws,
    holm,
    patient_draws,
    patients_behind,
    percentile_tails,
    score_draws,
    score_interval,
    slopes,
)
from srjt.ordinal.metrics import METRICS, Floats, Ints

MOST_GROUPS = 60  # of a column; one with more is an id, or a number that needs a width
UNKNOWN = "(missing)"
SEVERAL = "(several)"
BINS = 15  # of the confidence, as for the calibration error of all samples


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A metric of a group minus that of all other samples.

    Attributes
    ----------
    difference : Interval
        With its 95 % interval over the bootstrap draws of the patients.
    p_value, adjusted : float
        Of no difference, by permutation of the patients; and after Holm's correction for all groups
        of all columns. Not corrected for metrics. It takes patients of the group and of the rest to
        be alike but for chance, with about as many images each; where numbers of images differ
        much, up to 0.14 of such p-values were below 0.05.
    """

    difference: Interval
    p_value: float
    adjusted: float

    @property
    def differs(self) -> bool:
        """Whether neither the corrected p-value nor the interval allows for no difference."""
        return self.adjusted <= 0.05 and not self.difference.low <= 0.0 <= self.difference.high


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """The answers whose samples have one value of a column.

    Attributes
    ----------
    column, name : str
        ``"site"`` and ``"north"``; ``"age"`` and ``"40 to 50"`` (50 is in the next);
        ``"(missing)"`` without a value, ``"(several)"`` where the images of one answer differ.
    samples, patients : int
        Answers, and the patients who are resampled; without patient ids, both are the samples.
    scores : dict of str to Interval
        Every metric, ``calibration_error`` and, with ranges, ``coverage``; empty if there are too
        few patients. Means over grades and κ are without an interval if a grade has fewer than ten
        patients in the group.
    gaps : dict of str to Gap
        By metric; empty if there are too few patients in the group or outside of it. Of means over
        grades and κ without interval and p-value if a grade has fewer than ten on either side.
    """

    column: str
    name: str
    samples: int
    patients: int
    scores: dict[str, Interval]
    gaps: dict[str, Gap]

    def __str__(self) -> str:
        return f"{self.column} {self.name}"

    @property
    def too_few(self) -> bool:
        """Whether there are fewer than ``TOO_FEW`` patients, of whom nothing can be said."""
        return not self.scores

    @property
    def differs(self) -> bool:
        """Whether its mean absolute error differs from that of all others by more than chance."""
        return bool(self.gaps) and self.gaps["mae"].differs


@dataclass(frozen=True, kw_only=True)
class Subgroups:
    """All groups of all columns, in the order of the columns and of their values."""

    groups: tuple[Subgroup, ...]

    @property
    def worst(self) -> Subgroup | None:
        """The group with the largest mean absolute error; None if all are too small."""
        shown = [group for group in self.groups if not group.too_few]
        return max(shown, key=lambda group: group.scores["mae"].value, default=None)

    @property
    def differing(self) -> str:
        """The groups that differ from all others, as a list of words."""
        return ", ".join(str(group) for group in self.groups if group.differs)

    @property
    def tests(self) -> int:
        """How many gaps Holm's correction is for."""
        return len({_test_of(group, self.groups) for group in self.groups if group.gaps})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        worst = self.worst
        groups = [{**json_values(group), "too_few": group.too_few} for group in self.groups]
        return {"groups": groups, "worst": worst and {"column": worst.column, "name": worst.name}}

    def table(self) -> pd.DataFrame:
        """One row per group and score: value, low, high, gap, gap_low, gap_high, p_value,
        adjusted."""
        none = Gap(
            difference=Interval(math.nan, math.nan, math.nan), p_value=math.nan, adjusted=math.nan
        )
        rows = []
        for group in self.groups:
            for name, score in group.scores.items() or [("", none.difference)]:
                gap = group.gaps.get(name, none)
                of_group = (group.column, group.name, group.samples, group.patients, name)
                rows.append((*of_group, *score, *gap.difference, gap.p_value, gap.adjusted))
        columns = ["column", "group", "samples", "patients", "score", "value", "low", "high"]
        columns += ["gap", "gap_low", "gap_high", "p_value", "adjusted"]
        return pd.DataFrame(rows, columns=columns)


def _test_of(group: Subgroup, groups: Sequence[Subgroup]) -> tuple[str, str]:
    """The test of a group against the rest: of two groups, one against the other is one test."""
    names = [other.name for other in groups if other.column == group.column]
    return group.column, names[0] if len(names) == 2 else group.name


# The group of every answer.


def _known_text(cell: object) -> str:
    text = as_text(cell).strip()
    if text.casefold() in MISSING:
        return UNKNOWN
    return text


def group_by(table: pd.DataFrame, text: str, units: Ints | None = None) -> pd.Series[Any]:
    """(N,) the group of each sample by a column, as categories in their order; ``"age:10"`` has one
    for ten years.

    units: (N,) the unit of each sample, from 0, if units are grouped. An error, in one sentence, if
    the column does not exist, has too many values, or has no numbers where a width is given.
    """
    column = text
    width = ""
    if text not in table and ":" in text:
        column, _, width = text.rpartition(":")
    source = column
    if f"{column}_source" in table:  # srjt has one of that name, too
        source = f"{column}_source"
    if source not in table:
        raise unknown_name("column", column, map(str, table.columns), option="by")
    cells = list(map(_known_text, table[source]))
    numbers = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(np.float64)
    words = []
    for cell, number in zip(cells, numbers.tolist(), strict=True):
        if cell != UNKNOWN and not math.isfinite(number):
            words.append(cell)
    if width:
        step = 0.0
        if width.replace(".", "", 1).isdigit():
            step = float(width)
        if step <= 0:
            raise SrjtError(
                f"{text}: the width of the groups must be a positive number, as in {column}:10.",
                code="wrong_syntax",
                option="by",
            )
        if words:
            raise SrjtError(
                f"{text} needs numbers, and {column} has the value {words[0]!r}.",
                code="wrong_type",
                option="by",
            )
        numbers = np.floor(numbers / step + 1e-9) * step  # 0.3 / 0.1 is a little less than 3
        for row, low in enumerate(numbers.tolist()):
            if not math.isnan(low):
                cells[row] = f"{low:g} to {low + step:g}"
    start = {}
    if not words:
        start = dict(zip(cells, numbers.tolist(), strict=True))
    if units is not None:
        of_unit = pd.Series(cells).groupby(units)
        cells = np.where(of_unit.nunique() == 1, of_unit.first(), SEVERAL).tolist()
    names = sorted(
        set(cells), key=lambda name: (name == UNKNOWN, name == SEVERAL, start.get(name, 0.0), name)
    )
    if len(names) > MOST_GROUPS:
        numbered = Option("by", f"{column}:10")
        hint = [] if words else [" Numbers need a width, or a larger one: ", numbered, "."]
        raise SrjtError(
            f"{text} gives {len(names):,} groups; at most {MOST_GROUPS} can be shown.",
            *hint,
            code="too_many",
            option="by",
        )
    return pd.Series(pd.Categorical(cells, names), name=column)


# Their scores.


def judge_subgroups(
    answers: Answers, groupings: Sequence[pd.Series[Any]], *, resamples: int = 1000
) -> Subgroups:
    """The scores of every group, with intervals over the patients, and its gaps to all other
    samples.

    The same draws of all patients serve every group: where a patient is in two of them (the left
    and the right eye), their gap is paired. Whether a gap is more than chance is found by
    permutation (``_Permuted``).

    Parameters
    ----------
    answers : Answers
        N answers beside their labels; where they have ranges, their coverage is a score, too.
    groupings : sequence of Series
        From ``group_by``.
    resamples : int
        Of the bootstrap, and of the permutations; of these more, where a p-value is small.

    Returns
    -------
    Subgroups
    """
    labels = answers.labels
    num_classes = answers.classes
    owner = patient_codes(answers.groups, len(answers))
    cells = num_classes * num_classes
    inside = None
    if answers.ranges is not None:
        inside = (answers.ranges[0] <= labels) & (labels <= answers.ranges[1])
    sums = _patient_sums(answers, owner)

    def tables(sums_of_cells: Floats) -> Floats:
        return np.asarray(sums_of_cells[:, :cells].reshape(-1, num_classes, num_classes))

    chosen = []
    for grouping in groupings:
        for name in grouping.cat.categories:
            chosen.append((str(grouping.name), name, np.flatnonzero(grouping == name)))
    of_groups = [sums(rows) for _, _, rows in chosen]
    members = [np.unique(owner[rows]) for _, _, rows in chosen]
    whole = sums(np.arange(len(answers)))
    total, drawn = _subgroup_draws(whole, of_groups, members, resamples=max(resamples, 2))
    groups = []
    permuted: dict[int, _Permuted] = {}  # by place, of the groups that are tested
    for place, (column, name, rows) in enumerate(chosen):
        who = members[place]
        of_group = of_groups[place]
        draws = drawn[place]
        of_rest = whole - of_group
        outside = int((tables(of_rest).sum(axis=(1, 2)) > 0).sum())
        scores: dict[str, Interval] = {}
        gaps: dict[str, Gap] = {}
        if len(who) >= TOO_FEW:
            group_draws = score_draws(tables(of_group[who]), tables(draws))
            behind = patients_behind(tables(of_group[who]))
            scores = {
                metric: _if_known(score_interval(group_draws, metric), behind[metric])
                for metric in METRICS
            }
            # without an interval: those of ten patients held the truth in three quarters of the
            # simulations only
            scores["calibration_error"] = Interval(
                _calibration_error(of_group[who], cells), math.nan, math.nan
            )
            if inside is not None:
                owners = answers.groups_of(rows)
                equal = conformal.patient_weights(owners, len(rows))
                scores["coverage"] = proportion_interval(inside[rows], groups=owners, weights=equal)
            if outside >= TOO_FEW:
                rest_draws = score_draws(tables(of_rest), tables(total - draws), seed=1)
                behind_rest = patients_behind(tables(of_rest))
                for metric in METRICS:
                    fewer = min(behind[metric], behind_rest[metric])
                    gap = _if_known(gap_interval(group_draws, rest_draws, metric), fewer)
                    gaps[metric] = Gap(difference=gap, p_value=math.nan, adjusted=math.nan)
                permuted[place] = _Permuted.between(tables(of_group), tables(of_rest))
        counts = {"samples": len(rows), "patients": len(who)}
        groups.append(Subgroup(column=column, name=name, scores=scores, gaps=gaps, **counts))
    _test(groups, permuted, permutations=resamples)
    return Subgroups(groups=tuple(groups))


def _subgroup_draws(
    whole: Floats, of_groups: Sequence[Floats], members: Sequence[Ints], *, resamples: int
) -> tuple[Floats, list[Floats]]:
    """(B, …) the sums of each draw of patients, of all samples and of each group. whole,
    of_groups: (G, …) of each patient. members: the patients with samples in the group."""
    totals = []
    drawn: list[list[Floats]] = [[] for _ in members]
    for weights in patient_draws(len(whole), resamples, seed=0):
        totals.append(weights @ whole)
        for draws, who, of_group in zip(drawn, members, of_groups, strict=True):
            draws.append(weights[:, who] @ of_group[who])
    return np.concatenate(totals), list(map(np.concatenate, drawn))


def _patient_sums(answers: Answers, owner: Ints) -> Callable[[Ints], Floats]:
    """Rows → (G, …) of each patient's answers among them the confusion matrix and, per bin,
    Σ (confidence − right). owner: (N,) the patient of each answer."""
    labels = answers.labels
    patients = int(owner.max()) + 1
    confidence = answers.probabilities.max(axis=1)
    right = answers.probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    cells = answers.classes * answers.classes
    cell = labels * answers.classes + answers.grades

    def sums(rows: Ints) -> Floats:
        of_patient = np.zeros((patients, cells + BINS))
        np.add.at(of_patient, (owner[rows], cell[rows]), 1.0)
        np.add.at(of_patient, (owner[rows], cells + bins[rows]), confidence[rows] - right[rows])
        return of_patient

    return sums


def _if_known(score: Interval, patients: float) -> Interval:
    """Without ends if no number of patients is behind it (``patients_behind``)."""
    return score if patients else Interval(score.value, math.nan, math.nan)


def gap_interval(
    group: ScoreDraws, rest: ScoreDraws, metric: str, *, level: float = 0.95
) -> Interval:
    """A metric of a group minus that of the rest; at each end errors are added to the one and right
    answers to the other. As far out as the fewer patients of the two ask for."""
    value = group.value[metric] - rest.value[metric]
    higher = np.asarray(group.worse[metric] - rest.better[metric])
    lower = np.asarray(group.better[metric] - rest.worse[metric])
    if not METRICS[metric].lower_is_better:
        lower, higher = higher, lower
    if not math.isfinite(value):
        return Interval(value, math.nan, math.nan)
    tail = float(percentile_tails(min(group.patients, rest.patients), level=level)[0])
    low = float(np.nanquantile(lower, tail))
    high = float(np.nanquantile(higher, 1.0 - tail))
    return Interval(value, min(value, low), max(value, high))


# Whether a gap is more than chance. A small group often has no error, and then its own draws do not
# vary: so the null distribution comes from the patients of both sides, who are permuted between the
# group and the rest.

_MOST = 400  # permutations for each test that is corrected for, where a p-value is small
_ADDED = (
    2.0  # patients of average variance in the standard error of each side, so that it is never 0
)


@dataclass(frozen=True, kw_only=True)
class _Permuted:
    """Patients who are permuted between a group and the rest.

    Patients on one side are permuted between the sides. Of a patient on both sides, the two parts
    are swapped or not. The statistic is the gap over its standard error: then the test keeps its
    level where the patients of one side vary more than those of the other, for example because they
    have fewer images (Chung and Romano, The Annals of Statistics 2013, 41(2)). The error is that of
    the metric's linear approximation.
    """

    one_side: Ints  # patients on one side only
    in_group: int  # how many of these are in the group
    both_sides: Ints
    first: Floats  # (G, F) what the group gets of a patient who is drawn into it
    second: Floats  # (G, F) what it gets otherwise: nothing of a patient on one side
    sizes: tuple[int, int]  # patients in the group and in the rest
    observed: Floats  # (1, G) as it is: 1 where the group has the first part
    image: Floats  # (K,) the variance of one image's share in each metric
    classes: int

    @classmethod
    def between(cls, group: Floats, rest: Floats) -> _Permuted:
        """group, rest: (G, C, C) the confusion matrix of each patient on each side."""
        present = np.stack([side.sum(axis=(1, 2)) > 0 for side in (group, rest)])
        both = present[0] & present[1]
        first = np.where(present[0][:, None, None], group, rest)
        second = np.where(both[:, None, None], rest, 0.0)
        total = (group + rest).sum(axis=0)
        by_cell = [
            slopes(metric.function, total / total.sum()).ravel() for metric in METRICS.values()
        ]
        by_metric = np.nan_to_num(np.stack(by_cell, axis=1))
        cells = [side.reshape(len(side), -1) for side in (first, second)]
        samples = [side.sum(axis=1, keepdims=True) for side in cells]
        influence = [side @ by_metric for side in cells]

        def sums(side: int) -> Floats:
            m = samples[side]
            z = influence[side]
            other_m = samples[1 - side]
            other_z = influence[1 - side]
            mixed = [z * z, z * m, z * other_m, z * other_z / 2.0]
            return np.concatenate([cells[side], m, m * m, m * other_m / 2.0, z, *mixed], axis=1)

        one_side = np.flatnonzero(present.sum(axis=0) == 1)
        return cls(
            one_side=one_side,
            in_group=int(present[0, one_side].sum()),
            both_sides=np.flatnonzero(both),
            first=sums(0),
            second=sums(1),
            sizes=(int(present[0].sum()), int(present[1].sum())),
            observed=present[:1].astype(np.float64),
            image=total.ravel() @ by_metric**2 / total.sum(),
            classes=group.shape[-1],
        )

    def permuted(self, keys: Floats) -> Floats:
        """(B, G) 1 where the group gets the first part of a patient. keys: (B, G) uniform random
        numbers."""
        drawn = np.zeros(keys.shape)
        drawn[:, self.both_sides] = keys[:, self.both_sides] < 0.5
        if self.in_group and len(self.one_side):
            keys_of_one_side = keys[:, self.one_side]
            last = np.partition(keys_of_one_side, self.in_group - 1, axis=1)[
                :, self.in_group - 1, None
            ]
            drawn[:, self.one_side] = keys_of_one_side <= last
        return drawn

    def statistics(self, drawn: Floats) -> Floats:
        """(B, K) the gap of each metric over its standard error. drawn: (B, G) as of
        ``permuted``."""
        whole = (self.first + self.second).sum(axis=0)
        of_group = drawn @ (self.first - self.second) + self.second.sum(axis=0)
        group, rest = (_Side.of(side, self.classes) for side in (of_group, whole - of_group))
        # under no difference, a patient with m samples has the variance m · alone + m² · shared
        shared = np.maximum(group.zz + rest.zz - self.image * (group.m + rest.m), 0.0)
        shared = np.minimum(
            shared / np.maximum(group.mm + rest.mm - group.m - rest.m, 1.0), self.image
        )
        alone = self.image - shared
        # of a patient on both sides
        together = group.z_other_z + rest.z_other_z
        together = together - rest.mean * group.z_other_m - group.mean * rest.z_other_m
        together = together + group.mean * rest.mean * (group.m_other_m + rest.m_other_m)
        variance = -2.0 * together / (group.m * rest.m)
        for side, patients in ((group, self.sizes[0]), (rest, self.sizes[1])):
            spread = side.zz - 2.0 * side.mean * side.zm + side.mean**2 * side.mm
            average = (alone * side.m + shared * side.mm) / patients
            variance += (spread + _ADDED * average) / side.m**2
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((group.values - rest.values) / np.sqrt(np.maximum(variance, 1e-300)))


class _Side(NamedTuple):
    """Of a group, or of the rest, in each permutation: metrics (B, K), and sums over its patients
    (B, 1) or (B, K).

    m: a patient's samples. z: by how much these change the linear approximation of a metric. other:
    those of the same patient on the other side; of their products each side has one half.
    """

    values: Floats
    m: Floats
    mm: Floats
    m_other_m: Floats
    mean: Floats  # Σ z / Σ m
    zz: Floats
    zm: Floats
    z_other_m: Floats
    z_other_z: Floats

    @classmethod
    def of(cls, sums: Floats, classes: int) -> _Side:
        """sums: (B, F) in the order of ``_Permuted.between``."""
        cells = classes**2
        tables = np.maximum(sums[:, :cells], 0.0).reshape(-1, classes, classes)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.stack([metric.function(tables) for metric in METRICS.values()], axis=1)
        m, mm, m_other_m = np.split(sums[:, cells : cells + 3], 3, axis=1)
        z, *mixed = np.split(sums[:, cells + 3 :], 5, axis=1)
        return cls(values, m, mm, m_other_m, z / m, *mixed)


def _test(groups: list[Subgroup], permuted: dict[int, _Permuted], *, permutations: int) -> None:
    """Give the gaps their p-values. permuted: by the place of the group.

    Twice the share of permutations that are as far out on the same side. Where few are, more are
    drawn, so that a p-value can be below 0.05 after the correction for all tests.
    """
    tests = {_test_of(groups[place], groups): place for place in permuted}
    rng = np.random.Generator(np.random.PCG64(0))
    observed = {}
    for test, place in tests.items():
        observed[test] = permuted[place].statistics(permuted[place].observed)[0]
    # (3, K) permutations that are as high, as low, and defined
    counts = {test: np.zeros((3, len(METRICS))) for test in tests}
    most = max(permutations, _MOST * len(tests), 1000)
    undecided = list(tests)
    for amount in (permutations, most - permutations):
        for keys in _uniform(rng, amount, permuted):
            for test in undecided:
                of_test = permuted[tests[test]]
                drawn = of_test.statistics(of_test.permuted(keys))
                high = drawn >= observed[test] - 1e-9
                low = drawn <= observed[test] + 1e-9
                counts[test] += np.stack([high, low, np.isfinite(drawn)]).sum(axis=1)
        undecided = [test for test in undecided if counts[test][:2].min() < 10]
    p_values = {}
    for test, (high, low, defined) in counts.items():
        p = np.minimum(1.0, 2.0 * (1.0 + np.minimum(high, low)) / (1.0 + defined))
        p_values[test] = np.where(np.isfinite(observed[test]), p, np.nan)
    for place in permuted:
        group = groups[place]
        for metric, p_value in zip(
            METRICS, p_values[_test_of(group, groups)].tolist(), strict=True
        ):
            gap = group.gaps[metric]
            if math.isfinite(gap.difference.low):  # a grade is too rare: no interval, no test
                group.gaps[metric] = replace(gap, p_value=p_value)
    _correct(groups)


def _uniform(
    rng: np.random.Generator, amount: int, permuted: dict[int, _Permuted]
) -> Iterator[Floats]:
    """(n, G) random numbers, in chunks of bounded size."""
    patients = 1
    if permuted:
        patients = next(iter(permuted.values())).observed.shape[1]
    at_once = max(1, 5_000_000 // patients)
    for start in range(0, amount, at_once):
        yield rng.random((min(at_once, amount - start), patients))


def _calibration_error(sums: Floats, cells: int) -> float:
    """(G, …) the sums of each patient → the error of all of them together."""
    together = sums.sum(axis=0)
    return float(np.abs(together[cells:]).sum() / together[:cells].sum())


def _correct(groups: list[Subgroup]) -> None:
    """Holm's correction, metric by metric, for the tests of all groups."""
    tested = [(_test_of(group, groups), group) for group in groups if group.gaps]
    for metric in METRICS:
        p_values = {test: group.gaps[metric].p_value for test, group in tested}
        adjusted = dict(zip(p_values, holm(list(p_values.values())).tolist(), strict=True))
        for test, group in tested:
            group.gaps[metric] = replace(group.gaps[metric], adjusted=adjusted[test])


# Samples from elsewhere, beside the run's own test side.


@dataclass(frozen=True, kw_only=True)
class Scores(DictMixin):
    """The scores of one set of answers.

    Attributes
    ----------
    intervals : dict of str to Interval
        Every metric.
    calibration_error : float
    calibration : list of CalibrationBin
    confusion : list of list of int
        Rows are the labels.
    """

    intervals: dict[str, Interval]
    calibration_error: float
    calibration: list[CalibrationBin]
    confusion: list[list[int]]

    @property
    def grade_errors(self) -> Floats:
        """(C,) the mean absolute error of the samples of each grade; nan for a grade without
        samples."""
        counts = np.asarray(self.confusion, dtype=np.float64)
        grades = np.arange(len(counts))
        with np.errstate(invalid="ignore"):
            return np.asarray(
                (counts * abs(grades - grades[:, None])).sum(axis=1) / counts.sum(axis=1)
            )

    @property
    def shares(self) -> Floats:
        """(C,) the share of the samples of each grade."""
        counts = np.asarray(self.confusion, dtype=np.float64).sum(axis=1)
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True, kw_only=True)
class External(DictMixin):
    """Samples from elsewhere beside the run's own test side.

    Attributes
    ----------
    home, here : Scores
        Of the own test side and of these samples, both with the run as it was trained, of one view
        of each.
    recalibrated : Scores or None
        Of these samples with what was fitted to ``calibrate_on``; None without it.
    calibrated_on : tuple of (int, int or None)
        The samples and the patients that it was fitted to; (0, None) without it.
    by_mix, by_answers : float
        Parts of the change of the mean absolute error: what it would be if each grade were answered
        as at home, in the mix of grades here; and the rest, answers to the same grades that are
        better or worse. nan if a grade that is here is not among the samples at home.
    """

    home: Scores
    here: Scores
    recalibrated: Scores | None
    calibrated_on: tuple[int, int | None]
    by_mix: float
    by_answers: float


def beside_own_test_side(
    calibrated: Calibration, store: ImageStore, images: Answers, *, resamples: int = 1000
) -> External | None:
    """The comparison of samples that the run does not know; None without a test side, and for
    answers per patient."""
    run = calibrated.run
    options = calibrated.options
    side = run.held_out.get("test")
    fitted = calibrated.calibrate_on
    if side is None or not len(side) or options.per or images.outputs is None:
        return None
    trained = calibrated
    if fitted is not None or options.views > 1:  # the run keeps one view of its test side
        trained = calibrate_grades(run, replace(options, calibrate_on=None, views=1))
    alike = trained.answer(images.outputs, images.labels, images.groups)
    if options.views > 1:
        alike = trained.answer_store(store)
    here = scores_of(alike, resamples=resamples)
    home = scores_of(trained.side_answers(side, judging_labels(side)[0]), resamples=resamples)
    present = here.shares > 0  # grades without samples have no error, and do not count
    mae = home.intervals["mae"].value
    mixed = float((here.shares * home.grade_errors)[present].sum())
    recalibrated = None
    calibrated_on: tuple[int, int | None] = (0, None)
    if fitted is not None:
        recalibrated = scores_of(images, resamples=resamples)
        calibrated_on = (len(fitted), number_of_patients(fitted.patients))
    return External(
        home=home,
        here=here,
        recalibrated=recalibrated,
        calibrated_on=calibrated_on,
        by_mix=mixed - mae,
        by_answers=here.intervals["mae"].value - mixed,
    )


def scores_of(answers: Answers, *, resamples: int) -> Scores:
    labels = answers.labels
    p = answers.probabilities
    return Scores(
        intervals=answers.intervals(resamples=resamples),
        calibration_error=calibration.expected_calibration_error(p, labels),
        calibration=calibration.calibration_bins(p, labels),
        confusion=answers.confusion.tolist(),
    )
