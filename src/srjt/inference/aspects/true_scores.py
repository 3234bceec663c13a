"""Scores against the true grades, where labels may be wrong; ``inference/true_scores.py`` has the
statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srjt.inference.aspects import Aspect, Judging, register_aspect
from srjt.inference.aspects.readers import MOST_READERS
from srjt.inference.aspects.referral import ReferralRule

if TYPE_CHECKING:
    from srjt.inference.true_scores import TrueScores


@register_aspect("true_scores", order=70)
@dataclass(frozen=True, kw_only=True)
class AgainstTrueGrades(Aspect):
    """What verified grades, readings or the noise of the run's labels tell, wherever the true
    grades are not known and each image has its answer."""

    def judge(self, judging: Judging) -> TrueScores | NotEnough | None:
        import numpy as np

        from srjt.data.manifest import Manifest
        from srjt.inference.true_scores import ENOUGH, true_scores
        from srjt.ordinal.calibration import SMALLEST

        samples = judging.samples
        if not isinstance(samples, Manifest) or judging.units is not None:
            return None
        if samples.true_labels is not None:
            return None
        readings = judging.readings
        side = judging.run.held_out.get("validation")
        noise = None
        if readings is not None and len(readings.readers) > MOST_READERS:
            readings = None
        elif readings is None and side is not None and len(side) >= SMALLEST[0]:
            noise = judging.calibrated.noise_of(side, promise=True)
        known = true_scores(
            judging.images,
            refer=judging.calibrated.rule(ReferralRule),
            verified=samples.verified_labels,
            verified_probability=samples.verified_probability,
            readings=readings,
            noise=noise,
            label_noise=judging.calibrated.options.label_noise,
            resamples=judging.resamples,
        )
        if known is not None:
            return known
        owners = np.asarray(judging.images.groups or samples.ids)
        verified = samples.verified_labels
        return NotEnough(
            patients=len(set(owners)),
            verified=0 if verified is None else len(set(owners[verified >= 0])),
            verified_needed=ENOUGH,
            validation=0 if side is None else len(side),
            validation_needed=SMALLEST[0],
        )


@dataclass(frozen=True, kw_only=True)
class NotEnough:
    """Why nothing is known about the scores against the true grades.

    Attributes
    ----------
    patients, verified : int
        The patients who are evaluated, and those with a verified grade; without patients, samples.
    verified_needed : int
        As many must have one if not all samples do.
    validation, validation_needed : int
        The labels of the run's validation side, and how many tell how noisy its labels are.
    """

    patients: int
    verified: int
    verified_needed: int
    validation: int
    validation_needed: int

    def to_dict(self) -> dict[str, Any]:
        """Nothing: files have scores only."""
        return {}
