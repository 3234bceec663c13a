"""A run that is ready to answer: with what is fitted after training (recalibration, pooling and
ranges of grades), how probabilities become grades and answers, when to refer and when to leave an
answer to a person. ``predict`` answers by it; ``evaluate`` and ``compare`` judge.

Everything follows from the validation predictions and the noise estimate that a run keeps, or from
labelled samples that the user names; nothing here is stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.store import ImageStore, open_store
from srjt.data.manifest import Ints, LeakageWarning, Manifest
from srjt.errors import Option, SrjtError, warn
from srjt.inference.answers import (
    Answers,
    pick_known,
    probabilities_of,
)
from srjt.inference.aspects import FittedTo, Rule, registered_aspects
from srjt.inference.aspects.ranges import Ranges
from srjt.inference.labelled import (
    best_labels,
    judging_labels,
    read_labelled,
    unit_labels,
    units_of_side,
    validation_side,
    warn_of_training_patients,
)
from srjt.inference.options import Answering, WhichNetwork
from srjt.methods import lookup
from srjt.methods.base import Method
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.matrices import largest_rho, transition_matrix, transition_of
from srjt.noise.quality import NoiseBounds, estimated_noise, given_noise
from srjt.ordinal import Purpose, decoding
from srjt.ordinal.calibration import SMALLEST, Recalibration, choose_recalibration
from srjt.training.config import TrainConfig
from srjt.training.devices import amp_dtype, refuse_bf16_on_cpu
from srjt.training.held_out import HeldOut, held_out_side
from srjt.training.trained import Trained, load_run

Outputs = tuple[
    npt.NDArray[np.float32], Ints
]  # of K networks: probabilities (K, N, C), grades (K, N)


@lru_cache(maxsize=8)  # an estimate takes seconds, and every prediction with the same run needs it
def _side_estimate(side: HeldOut, network: WhichNetwork) -> NoiseEstimate:
    """The noise of the labels of a side, estimated from these labels and the predictions."""
    p = probabilities_of(side.probabilities, network)
    return estimate_noise(
        side.labels,
        p,
        groups=side.groups,
        verified=side.verified_labels,
        verified_probability=side.verified_probability,
    )


def is_assumed_matrix(config: TrainConfig) -> bool:
    """Whether the matrix of a run follows from a given rate: all errors by one grade are equally
    likely."""
    if config.transition is None or config.noise_rate is None:
        return False
    matrix = np.asarray(config.transition)
    rho = float(matrix[0, 1])
    classes = len(matrix)
    return (
        lookup(config.method, registered_by=config.imports).is_recipe
        and rho <= largest_rho("truncated", num_classes=classes)
        and np.allclose(matrix, transition_matrix("truncated", num_classes=classes, rho=rho))
    )


def recalibration_of(
    side: HeldOut, options: Answering, *, noise: NoiseBounds | None
) -> Recalibration | None:
    """The recalibration that a side supports; None if it is too small or nothing is gained.

    Verified grades are used alone if there are enough. Else the temperature depends on how many
    labels are wrong: many wrong labels mean that the network is surer of the true grades than the
    labels show. Labels alone often do not tell. The temperature changes only as much as every
    plausible noise demands, so that for none of them the probabilities become worse. noise: of the
    labels; None if they are right.
    """
    p = probabilities_of(side.probabilities, options.network)
    choose = partial(choose_recalibration, p, side.labels, groups=side.groups)
    verified = side.random_verified
    facts: dict[str, Any] = {"basis": "noise"}
    if verified is not None and (rows := np.flatnonzero(verified >= 0)).size >= SMALLEST[0]:
        groups = pick_known(side.groups, rows)
        chosen = choose_recalibration(p[rows], verified[rows], groups=groups)
        facts = {"basis": "verified"}
    elif noise is None:
        chosen = choose()
        facts = {"basis": "labels"}
    elif options.label_noise == "class-conditional" or noise.rates[0] == noise.rates[1]:
        chosen = choose(transition=transition_of(noise.joint), vector=noise.determined)
        share = 1.0 - float(np.trace(noise.joint))
        facts["wrong_labels"] = (share, share)
    else:
        joints = noise.lowest(), noise.highest()
        ends = [choose(transition=matrix, vector=False) for matrix in map(transition_of, joints)]
        # the temperature nearest to 1, if both are on one side of it: for none of the noises it
        # goes too far
        useful = [end for end in ends if end is not None]
        chosen = None
        if len(useful) == 2 and len({end.slope > 1.0 for end in useful}) == 1:
            chosen = min(useful, key=lambda end: abs(np.log(end.slope)))
        facts["wrong_labels"] = noise.rates
    return None if chosen is None else replace(chosen, **facts)


# A run that is ready to answer.

# columns of the answers of srjt predict and srjt evaluate, beside p_<grade> and those of aspects
OWN_COLUMNS = {
    "images",
    "label",
    "grade",
    "grade_name",
    "expected_grade",
    "entropy",
    "disagreement",
    "highest_image",
    "in_training",
}
MOST_LIKELY = decoding.GradeRule(decoding="argmax")
R = TypeVar("R", bound=Rule)
RunLike: TypeAlias = Trained | str | os.PathLike[str]  # a run, or the path of its folder


def open_run(run: RunLike) -> Trained:
    """The run itself, or the run in a folder."""
    if isinstance(run, Trained):
        return run
    return load_run(run)


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibratedRun:
    """A run that is ready to answer.

    Attributes
    ----------
    run : Trained
    options : Answering
    views : int
        Views of each sample: a run without mirror images has 5 instead of 10.
    recalibration : Recalibration or None
    learned : LearnedPooling or None
    calibrate_on : Manifest or None
        The samples that recalibration and ranges are fitted to, if it is not the validation side.
    side : HeldOut or None
        The predictions for these, or the validation side; None if there is none.
    grade_rule : GradeRule
        How probabilities become grades.
    rules : dict of str to Rule
        The aspects that were asked for, by name and in their order.
    """

    run: Trained
    options: Answering
    views: int
    recalibration: Recalibration | None = None
    learned: decoding.LearnedPooling | None = None
    calibrate_on: Manifest | None = None
    side: HeldOut | None = None
    grade_rule: decoding.GradeRule = MOST_LIKELY
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def rule(self, kind: type[R]) -> R | None:
        """The rule of an aspect, by its type; None if nobody asked for it."""
        for rule in self.rules.values():
            if isinstance(rule, kind):
                return rule
        return None

    def fitted(self) -> dict[str, FittedTo]:
        """What was fitted → the samples whose labels were used for it: those for calibration, or
        always the validation side."""
        fitted: dict[str, FittedTo] = {}
        for rule in self.rules.values():
            fitted |= rule.fitted()
        if self.recalibration is not None:
            fitted["recalibration"] = "calibration"
        if self.learned is not None:
            fitted["pooling"] = "validation"
        return dict(sorted(fitted.items(), key=lambda row: row[1]))  # calibration comes first

    def noise_of(self, side: HeldOut, *, promise: bool = False) -> NoiseBounds | None:
        """What is known about the noise of the labels of the validation side, or of other samples;
        None if they are right.

        The run's estimate; else a matrix that was given for training; else an estimate from these
        labels and predictions, with the rate that was given for training. promise: such a rate is a
        guess, and the matrix of errors by one grade that a recipe makes of it a guess, too: labels
        and predictions say which other rates are plausible, and which grades are confused.
        """
        config = self.run.config
        estimate = self.run.noise_estimate
        if self.options.label_noise == "none":
            return None
        # the noise that the run knows is that of its own labels
        if side is not self.run.held_out.get("validation"):
            config = config.replace(noise_rate=None, transition=None)
            estimate = None
        if estimate is not None:
            return estimated_noise(estimate)
        rate = config.known_noise_rate
        matrix = config.transition
        guess = None
        if promise and (matrix is None or is_assumed_matrix(config)):
            guess = rate
        if matrix is not None and guess is None:
            shares = np.bincount(side.labels, minlength=side.probabilities.shape[2]) / len(side)
            return given_noise(np.asarray(matrix), shares)
        of_side = _side_estimate(side, self.options.network)
        if guess is None:
            return estimated_noise(of_side, rate=rate)
        noise = estimated_noise(of_side)
        low, high = noise.rates
        return replace(noise, rates=(min(low, guess), max(high, guess)))

    @cached_property
    def applied(self) -> Trained:
        """The run with its forward pass in the precision that was asked for."""
        if self.options.precision is None:
            return self.run
        config = replace(self.run.config, precision=self.options.precision)
        dtype = amp_dtype(config, self.run.device) or torch.float32
        return replace(
            self.run, config=config, preprocess=replace(self.run.preprocess, dtype=dtype)
        )

    def open_store(self, data: Manifest, **options: Any) -> ImageStore:
        """The samples as the run takes them. options: of ``open_store``."""
        samples = self.run.match_features(data)
        config = self.run.config
        options["on_bad_image"] = self.options.on_bad_image
        return open_store(samples, size=config.image_size, resize=config.resize, **options)

    def calibration_side(self) -> tuple[HeldOut, Manifest]:
        """The samples of ``calibrate_on``, which the run has not seen, with its predictions for
        them."""
        run = self.run
        options = self.options
        manifest = read_labelled(
            run, options.calibrate_on, on_bad_image=options.on_bad_image, progress=False
        )
        store = self.open_store(manifest, find_duplicates=True)
        known = run.known_samples(store.manifest)
        if len(known.copies):
            raise SrjtError(
                f"The run was trained on {len(known.copies):,} of the {len(store.manifest):,}"
                " samples to calibrate on, or on copies of them, such as"
                f" {store.manifest.ids[known.copies[0]]} ({known.share:.0%} are at least near to a"
                " training sample): what is fitted to them does not hold for new samples."
                " Calibrate on others, or leave out ",
                Option("calibrate_on"),
                " for the validation side.",
                code="seen_in_training",
            )
        if len(known.near):
            warn(
                f"{known.share:.0%} of the samples to calibrate on are nearer to a training sample"
                " than samples of different patients are, such as"
                f" {store.manifest.ids[known.near[0]]}: if they are changed copies, or of the same"
                " people, what is fitted to them does not hold for others.",
                LeakageWarning,
            )
        warn_of_training_patients(run, store.manifest)
        scores = run.probabilities(store.pixels, views=options.views)[0]
        return (
            held_out_side(store.manifest, scores, from_files=store.manifest.arrays is None),
            store.manifest,
        )

    def answer_store(self, store: ImageStore) -> Answers:
        """The answers for the images, beside their true grades where these are known, else their
        labels."""
        outputs = self.applied.probabilities(store.pixels, views=self.options.views)
        samples = store.manifest
        return self.answer(outputs, judging_labels(samples)[0], samples.groups, samples.table)

    def side_answers(self, side: HeldOut, labels: Ints) -> Answers:
        """The answers for one of the run's own held-out sides, per image, beside these labels (N,),
        without ranges."""
        by_method = self.run.method.grades_of(
            torch.from_numpy(np.ascontiguousarray(side.probabilities))
        ).numpy()
        return self.answer((side.probabilities, by_method), labels, side.groups)

    def answer(
        self,
        outputs: Outputs,
        labels: Ints,
        groups: list[str] | None,
        samples: pd.DataFrame | None = None,
    ) -> Answers:
        """(K, N, C) probabilities and (K, N) grades by the method's own rule → answers for images.

        samples: the table of the samples; without it there are no ranges.
        """
        probabilities, grades = outputs
        network = self.options.network
        chosen = probabilities_of(probabilities, network, self.recalibration)
        if self.grade_rule.method:
            place = 0 if network == "ensemble" else int(network) - 1
            predicted = np.asarray(grades[place])
        else:
            predicted = self.grade_rule.grades(torch.from_numpy(chosen)).numpy()
        distance = None
        if len(probabilities) == 2:  # rounding can exceed 1
            distance = (0.5 * np.abs(probabilities[0] - probabilities[1]).sum(axis=-1)).clip(
                max=1.0
            )
        answers = Answers(
            probabilities=chosen.astype(np.float64),
            grades=predicted,
            labels=labels,
            groups=groups,
            outputs=outputs,
            samples=samples,
            disagreement=distance,
        )
        return answers if self.options.per else self._extended(answers, answers)

    def pool(self, answers: Answers, units: Ints) -> Answers:
        """One answer per unit (N,) of the images, judged by the highest label.

        The highest grade is that of the images' own grades, whichever way they were decoded; the
        other poolings decode the pooled probabilities.
        """
        p = decoding.pool_probabilities(
            answers.probabilities, units, pooling=self.options.pool, learned=self.learned
        )
        if self.options.pool == "highest":
            grades = decoding.highest_per_unit(answers.grades, units)
        else:
            grades = self.grade_rule.grades(torch.from_numpy(p)).numpy()
        disagreement = answers.disagreement
        if disagreement is not None:
            disagreement = np.bincount(units, weights=disagreement) / np.bincount(units)
        pooled = Answers(
            probabilities=p,
            grades=grades,
            labels=decoding.highest_per_unit(answers.labels, units),
            groups=answers.groups_of(np.unique(units, return_index=True)[1]),
            disagreement=disagreement,
        )
        return self._extended(pooled, answers)

    def _extended(self, answers: Answers, images: Answers) -> Answers:
        """With what aspects know of each. images: what the answers are pooled from, or the answers
        themselves."""
        for rule in self.rules.values():
            answers = rule.extend(answers, images)
        return answers

    def table(self, answers: Answers) -> pd.DataFrame:
        """The columns of the predictions: the grade, what is decided, p_<grade> …, expected_grade,
        entropy …"""
        grades = self.run.grades
        p = answers.probabilities.astype(np.float32)
        columns: dict[str, Any] = {"grade": [grades[grade] for grade in answers.grades]}
        if grades.names:
            columns["grade_name"] = [grades.names[grade] for grade in columns["grade"]]
        for rule in self.rules.values():
            columns |= rule.columns(answers, self.run)
        columns |= {f"p_{name}": p[:, c] for c, name in enumerate(grades)}
        entropy = torch.special.entr(torch.from_numpy(p)).sum(dim=-1)
        columns["expected_grade"] = decoding.expected_grade(torch.from_numpy(p)).numpy()
        columns["entropy"] = entropy.clamp(min=0.0).numpy()  # rounding: p may exceed 1
        if answers.disagreement is not None:
            columns["disagreement"] = answers.disagreement
        return pd.DataFrame(columns)

    def validation(self, why: str, *, option: Option) -> Answers:
        """The answers for the validation side, judged by the best labels that it has.

        why: what needs them. option: by which it was asked for.
        """
        side = validation_side(self.run, why=why)
        images = self.side_answers(side, best_labels(side))
        if not self.options.per:
            return images
        codes = units_of_side(side, self.options.per, why=why, option=option)
        labels = unit_labels(self.run, side, codes).argmax(axis=1)
        return replace(self.pool(images, codes), labels=labels)


def calibrate_run(run: RunLike, options: Answering | None = None) -> CalibratedRun:
    """Everything that is settled before the first new sample is seen; errors about options come
    from here."""
    calibrated = calibrate_grades(run, options)
    for aspect in calibrated.options.aspects():
        rule = aspect.prepare(calibrated)
        if rule is not None:
            calibrated = replace(calibrated, rules={**calibrated.rules, aspect.name: rule})
    return calibrated


def calibrate_grades(run: RunLike, options: Answering | None = None) -> CalibratedRun:
    """What settles the grades: recalibration, pooling and the rule of grades, without aspects."""
    run = open_run(run)
    options = options or Answering()
    taken = OWN_COLUMNS | {f"p_{grade}" for grade in run.grades}
    for aspect in registered_aspects():
        taken |= {*aspect.added_columns}
    for name in options.per:
        if name in taken:
            raise SrjtError(
                Option("per"),
                f" cannot be {name}, because the answers have a column of that name. Rename the"
                " column in the data.",
                code="name_in_use",
            )
    if options.precision is not None and len(run.in_shape) == 1:
        raise SrjtError(
            Option("precision"),
            " has no effect on this run, which was trained on features: leave it out.",
            code="option_without_effect",
        )
    refuse_bf16_on_cpu(options.precision, run.device)
    return _fitted(CalibratedRun(run=run, options=options, views=len(run.views(options.views))))


def grades_with_ranges(calibrated: CalibratedRun) -> tuple[int, ...]:
    """Positions of the grades that ranges can leave out if they hold for each grade; the others,
    of too few calibration patients, are in every range. Of the coverage that was asked for, else
    0.9."""
    options: Any = calibrated.options  # aspects add fields to it
    coverage = options.coverage or 0.9
    options = replace(options, coverage=coverage, coverage_by="grade")
    aspect = Ranges(coverage=coverage, coverage_by="grade")
    try:
        prepared = aspect.prepare(replace(calibrated, options=options))
    except SrjtError:  # no validation side, or one without what it needs
        return ()
    assert prepared is not None  # a coverage is given
    return tuple(np.flatnonzero(np.isfinite(prepared.rule.thresholds)).tolist())


def given_for(purpose: Purpose, calibrated: CalibratedRun, answers: Answers) -> tuple[int, ...]:
    """Positions of the grades that the answers would have if their grades were for this metric."""
    options = replace(calibrated.options, target_metric=purpose)
    rule = _grade_rule(replace(calibrated, options=options))
    return tuple(torch.unique(rule.grades(torch.from_numpy(answers.probabilities))).tolist())


def _fitted(calibrated: CalibratedRun) -> CalibratedRun:
    """With what is fitted to the validation side, or to ``calibrate_on``, and the rule of
    grades."""
    run = calibrated.run
    options = calibrated.options
    elsewhere = options.calibrate_on is not None
    if isinstance(options.calibrate_on, float):
        raise SrjtError(
            Option("calibrate_on"),
            " can be a share of the source only in an evaluation. Give labelled samples.",
            code="unsupported",
        )
    side = run.held_out.get("validation")
    if elsewhere:
        side, other = calibrated.calibration_side()
        calibrated = replace(calibrated, calibrate_on=other)
    calibrated = replace(calibrated, side=side)
    if side is not None and options.recalibrate and (elsewhere or options.views == 1):
        noise = calibrated.noise_of(side) if len(side) >= SMALLEST[0] else None
        calibrated = replace(calibrated, recalibration=recalibration_of(side, options, noise=noise))
    recalibration = calibrated.recalibration
    if options.per and options.pool == "learned":
        why = "The learned pooling"
        fitted_to = validation_side(run, why=why)
        codes = units_of_side(fitted_to, options.per, why=why, option=Option("pool", "learned"))
        p = probabilities_of(fitted_to.probabilities, options.network, recalibration)
        learned = decoding.fit_pooling(p, codes, unit_labels(run, fitted_to, codes))
        calibrated = replace(calibrated, learned=learned)
    return replace(calibrated, grade_rule=_grade_rule(calibrated))


def _grade_rule(calibrated: CalibratedRun) -> decoding.GradeRule:
    """How probabilities become grades: as the user has chosen, else as the metric demands."""
    run = calibrated.run
    options = calibrated.options
    recalibration = calibrated.recalibration
    if options.decoding is not None:
        rule = decoding.GradeRule(decoding=options.decoding)
    else:
        seen: dict[str, Any] = {}
        validation = run.held_out.get("validation")
        if validation is not None:
            p = probabilities_of(validation.probabilities, options.network, recalibration)
            labels = torch.from_numpy(validation.labels)
            seen = {"validation": torch.from_numpy(p), "labels": labels}
        soft = run.method.learnt_soft_labels() if recalibration is None else None
        rule = decoding.grade_rule_for(
            options.target_metric or run.config.target_metric, soft_labels=soft, **seen
        )
    # the most likely grade of one network is what its method decides on, which differs for Garg
    single = options.network != "ensemble" or run.method.networks == 1
    decides = type(run.method).grades is not Method.grades
    if rule.decoding == "argmax" and single and decides and recalibration is None:
        rule = replace(rule, method=run.config.method)
    return rule
