"""Data whose grades or columns have names that differ from the run's, or are those of its answers."""

from __future__ import annotations

import numpy as np
import pytest

import srjt
from srjt.data import Manifest, from_arrays
from srjt.errors import SrjtError
from srjt.training.trained import Trained


def test_samples_with_another_scale_are_refused(run: Trained, features: Manifest) -> None:
    """Without the mildest grade, labels are other positions: they would be compared with the wrong grades."""
    severe = features.select(np.flatnonzero(features.labels > 0))
    assert severe.arrays is not None
    other = from_arrays(severe.arrays, severe.labels).manifest
    assert other.grades == ("1", "2", "3")
    with pytest.raises(SrjtError, match="The samples have the grades 1, 2, 3, the run has 0, 1, 2, 3"):
        srjt.evaluate(run, other)
    with pytest.raises(SrjtError, match="the run has 0, 1, 2, 3"):
        srjt.predict(run, features, coverage=0.9, calibrate_on=other)
    assert srjt.evaluate(run, (severe.arrays, severe.labels), resamples=0).samples == len(severe)


def test_columns_with_the_names_of_ours_are_kept_under_another(run: Trained, features: Manifest) -> None:
    named = features.select(np.arange(40))
    named.table["refer"] = "their word"
    table = srjt.predict(run, named, keep=["refer"], refer_from="2")
    assert set(table["refer"]) <= {"yes", "no"}
    assert set(table["refer_source"]) == {"their word"}


def test_nothing_to_pool_is_said_in_one_sentence(run: Trained, features: Manifest) -> None:
    nobody = features.select(np.arange(0))
    assert len(srjt.predict(run, nobody)) == 0
    with pytest.raises(
        SrjtError, match="There are no samples to predict, so there is nothing to pool per patient"
    ):
        srjt.predict(run, nobody, per="patient", coverage=0.8)


@pytest.mark.parametrize("name", ["grade", "images", "refer", "label", "p_2"])
def test_answers_are_not_pooled_by_a_column_with_the_name_of_ours(
    run: Trained, features: Manifest, name: str
) -> None:
    few = features.select(np.arange(40))
    few.table[name] = few.table["patient" if name != "grade" else name]
    for use in (srjt.predict, srjt.evaluate):
        with pytest.raises(SrjtError, match=f"The answers have a column named {name} themselves: pool by"):
            use(run, few, per=["patient", name])
