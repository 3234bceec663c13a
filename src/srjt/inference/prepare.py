"""What is settled before a run answers: what is fitted after training, how probabilities become grades and answers,
when to refer and when to leave an answer to a person. ``predict`` answers by it; ``evaluate`` and ``compare`` judge.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.images.store import ImageStore, open_store
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError
from srjt.inference.answers import (
    Answers,
    answers_from,
    check_units,
    decoded_grades,
    describe_rule,
    grade_rule,
    pool_answers,
    probabilities_of,
    validation_answers,
)
from srjt.inference.calibrate import AfterTraining, fit_after_training
from srjt.inference.decide import ReferralRule, find_cut, referral_rule
from srjt.inference.options import Answering
from srjt.ordinal.decoding import GradeRule, expected_grade
from srjt.training.devices import amp_dtype, refuse_bf16_on_cpu
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained, load_run

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
RunLike: TypeAlias = Trained | str | os.PathLike[str]  # a run, or the path of its folder


def open_run(run: RunLike) -> Trained:
    """The run itself, or the run in a folder."""
    return run if isinstance(run, Trained) else load_run(run)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run that is ready to answer.

    Attributes
    ----------
    run : Trained
    options : Answering
    fitted : AfterTraining
        Recalibration, ranges and pooling.
    grade_rule : GradeRule
        How probabilities become grades.
    views : int
        Views of each sample: a run without mirror images has 5 instead of 10.
    refer : ReferralRule or None
        When to refer.
    """

    run: Trained
    options: Answering
    fitted: AfterTraining
    grade_rule: GradeRule
    views: int
    refer: ReferralRule | None = None

    @property
    def recalibration(self) -> str:
        """How the probabilities are recalibrated, in words; "" if they are not."""
        return "" if self.fitted.recalibration is None else str(self.fitted.recalibration)

    @property
    def grade_in_words(self) -> str:
        """The end of the sentence "A grade is …"."""
        recalibrated = self.fitted.recalibration is not None
        return describe_rule(
            self.run, self.grade_rule, network=self.options.network, recalibrated=recalibrated
        )

    @cached_property
    def applied(self) -> Trained:
        """The run with its forward pass in the precision that was asked for."""
        if self.options.precision is None:
            return self.run
        config = replace(self.run.config, precision=self.options.precision)
        dtype = amp_dtype(config, self.run.device) or torch.float32
        return replace(self.run, config=config, preprocess=replace(self.run.preprocess, dtype=dtype))

    @cached_property
    def cut(self) -> float | None:
        """The confidence below which a person decides, found on the validation side; None without abstention."""
        share = self.options.abstain
        return None if share is None else find_cut(self.refer, share, self.validation)

    def open_store(
        self,
        data: Manifest,
        *,
        progress: Callable[[int, int], None] | None = None,
        find_duplicates: bool = False,
    ) -> ImageStore:
        """The samples as the run takes them."""
        return open_store(
            data,
            size=self.run.config.image_size,
            resize=self.run.config.resize,
            on_bad_image=self.options.on_bad_image,
            progress=progress,
            find_duplicates=find_duplicates,
        )

    def probabilities(self, store: ImageStore) -> tuple[Floats, Ints]:
        """(K, N, C) probabilities and (K, N) grades by the method's own rule."""
        return self.applied.probabilities(store.pixels, views=self.options.views)

    def predictions(
        self, probabilities: Floats, grades: Ints, *, samples: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """(K, N, C) probabilities and (K, N) grades → grade, p_<grade> …, expected_grade, entropy, disagreement.

        The disagreement of two networks is their total variation distance, from 0 (equal probabilities) to 1. samples:
        the table of the samples, for ranges by the values of a column.
        """
        network, recalibration, names = self.options.network, self.fitted.recalibration, self.run.grades
        raw = chosen = probabilities_of(probabilities, network)
        if recalibration is not None:
            chosen = recalibration(raw).astype(np.float32)
        predicted = decoded_grades(
            self.grade_rule, probabilities, grades, network=network, recalibration=recalibration
        )
        columns: dict[str, Any] = {"grade": [names[g] for g in predicted]}
        if self.fitted.ranges is not None and self.fitted.ranges.pooled is None:
            low, high = self.fitted.grade_ranges(raw, predicted, samples=samples)
            columns["grade_low"] = [names[g] for g in low]
            columns["grade_high"] = [names[g] for g in high]
        columns |= {f"p_{name}": chosen[:, c] for c, name in enumerate(names)}
        columns |= uncertainty(torch.from_numpy(chosen))
        if len(probabilities) == 2:
            distance = 0.5 * np.abs(probabilities[0] - probabilities[1]).sum(axis=-1)
            columns["disagreement"] = distance.clip(max=1.0)  # rounding can exceed 1
        table = pd.DataFrame(columns)
        table.attrs["grade_rule"] = self.grade_in_words
        return table

    def predict_side(self, side: HeldOut) -> pd.DataFrame:
        """The predictions for one of the run's own held-out sides, as for new samples, but without ranges."""
        own = self.run.method.grades_of(torch.from_numpy(np.ascontiguousarray(side.probabilities))).numpy()
        without = replace(self, fitted=replace(self.fitted, ranges=None))
        return without.predictions(side.probabilities, own)

    def side_answers(self, side: HeldOut, labels: Ints) -> Answers:
        """The answers for one of the run's own held-out sides, per image, beside these labels (N,)."""
        return answers_from(self.run, self.predict_side(side), labels, groups=side.groups)

    def pool(self, answers: Answers, units: Ints) -> Answers:
        """One answer per unit (N,) of the images."""
        return pool_answers(
            answers, units, how=self.options.pool, learned=self.fitted.learned, grade_rule=self.grade_rule
        )

    def validation(self, *, why: str) -> Answers:
        """The answers for the validation side, judged by the best labels that it has. why: what needs them."""
        return validation_answers(
            self.run, answers=self.side_answers, pool=self.pool, per=self.options.per, why=why
        )


def prepare(run: RunLike, options: Answering | None = None) -> Prepared:
    """Everything that is settled before the first new sample is seen; errors about options come from here."""
    run, options = open_run(run), options or Answering()
    check_units(options.per, run.grades)
    if options.precision is not None and len(run.in_shape) == 1:
        raise SrjtError("A precision is for images; this run was trained on features, which take no time.")
    refuse_bf16_on_cpu(options.precision, run.device)
    views = len(run.views(options.views))
    fitted = fit_after_training(run, options)
    rule = grade_rule(
        run, network=options.network, optimise=options.optimise, decoding=options.decoding,
        recalibration=fitted.recalibration,
    )  # fmt: skip
    prepared = Prepared(run=run, options=options, fitted=fitted, grade_rule=rule, views=views)
    if options.refer_from is None:
        return prepared
    return replace(prepared, refer=referral_rule(run, options, validation=prepared.validation, views=views))


def uncertainty(probabilities: torch.Tensor) -> dict[str, npt.NDArray[Any]]:
    """expected_grade and entropy of probabilities (N, C)."""
    entropy = torch.special.entr(probabilities).sum(dim=-1).clamp(min=0.0)  # rounding: p may exceed 1
    return {"expected_grade": expected_grade(probabilities).numpy(), "entropy": entropy.numpy()}
