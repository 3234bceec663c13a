"""The network as one more reader, beside the readers who graded the same images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srjt.errors import SrjtError
from srjt.inference.aspects import Aspect, Judging, register_aspect

if TYPE_CHECKING:
    from srjt.readers.network import NetworkComparison

MOST_READERS = 200  # each needs a consensus of the others


@register_aspect("readers", order=60, always_in_files=False)
@dataclass(frozen=True, kw_only=True)
class BesideReaders(Aspect):
    """Asked for by the readings that ``srjt.evaluate`` gets. Readers grade images, not patients."""

    def judge(self, judging: Judging) -> NetworkComparison | NotCompared | None:
        from srjt.readers.network import compare_network

        readings = judging.readings
        if readings is None:
            return None
        try:  # what else is known of the network does not depend on it
            if len(readings.readers) > MOST_READERS:
                raise SrjtError(
                    f"The network is compared with at most {MOST_READERS} readers.", code="too_many"
                )
            return compare_network(
                readings, judging.images.grades, resamples=max(judging.resamples, 1)
            )
        except SrjtError as problem:
            return NotCompared(reason=problem.message)


@dataclass(frozen=True, kw_only=True)
class NotCompared:
    """Why the network could not be compared with the readers."""

    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Nothing: files have comparisons only."""
        return {}
