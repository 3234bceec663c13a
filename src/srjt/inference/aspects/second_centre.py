"""The second centre: samples from elsewhere beside the run's own test side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srjt.inference.aspects import Aspect, Judging, register_aspect

if TYPE_CHECKING:
    from srjt.inference.subgroups import External


@register_aspect("external", order=40)
@dataclass(frozen=True, kw_only=True)
class SecondCentre(Aspect):
    """Judged wherever most samples are new to the run."""

    def judge(self, judging: Judging) -> External | None:
        from srjt.inference.subgroups import beside_own_test_side

        if judging.store is None or not judging.new_to_run:
            return None
        return beside_own_test_side(
            judging.calibrated, judging.store, judging.images, resamples=judging.resamples
        )
