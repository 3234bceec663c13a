"""Scores against the true grades, where labels may be wrong; ``inference/true_scores.py`` has the
statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def judge(self, judging: Judging) -> TrueScores | None:
        from srjt.data.manifest import Manifest
        from srjt.inference.true_scores import true_scores
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
        return true_scores(
            judging.images,
            refer=judging.calibrated.rule(ReferralRule),
            verified=samples.verified_labels,
            verified_probability=samples.verified_probability,
            readings=readings,
            noise=noise,
            label_noise=judging.calibrated.options.label_noise,
            resamples=judging.resamples,
        )
