"""Subgroups: scores of each site, sex or age; ``inference/subgroups.py`` has the statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srjt.inference.aspects import EVALUATION, Aspect, Judging, as_columns, register_aspect
from srjt.settings import setting

if TYPE_CHECKING:
    import pandas as pd

    from srjt.inference.subgroups import Subgroups


@register_aspect("subgroups", order=50, evaluation_only=True)
@dataclass(frozen=True, kw_only=True)
class BySubgroup(Aspect):
    """For whom scores are given apart."""

    by: tuple[str, ...] = setting(
        (),
        "Also give scores for each value of this column, such as site, or for each range of a"
        " number, as in age:10. Repeatable.",
        metavar="COLUMN",
        panel=EVALUATION,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", as_columns(self.by, option="by"))
        super().__post_init__()

    def check(self, table: pd.DataFrame) -> None:
        from srjt.inference.subgroups import group_by

        for text in self.by:
            group_by(table, text)

    def judge(self, judging: Judging) -> Subgroups | None:
        from srjt.inference.subgroups import group_by, judge_subgroups

        if not self.by:
            return None
        table = judging.samples.table
        units = None if judging.units is None else judging.units.codes
        groupings = [group_by(table, text, units) for text in self.by]
        return judge_subgroups(judging.answers, groupings, resamples=judging.resamples)
