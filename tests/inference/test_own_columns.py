"""Data whose grades or columns have names that differ from the run's, or are those of its answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import srjt
from srjt.data import Manifest, from_arrays
from srjt.errors import SrjtError
from srjt.reports.evaluation_words import trained_on_words
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


def test_row_numbers_of_other_arrays_are_no_overlap(run: Trained, features: Manifest) -> None:
    assert features.arrays is not None
    other = from_arrays(features.arrays[::-1].copy(), features.labels[::-1].copy()).manifest
    assert set(other.ids) & set(run.held_out["validation"].ids)
    assert srjt.evaluate(run, other, resamples=0).overlaps == ()
    assert set(other.ids) >= set(run.training_ids)
    assert trained_on_words(run, other) == ""
    assert srjt.compare(run, run, test=other, resamples=10).trained_on == {}
    run = replace(run, hashes=None)  # as those of an older version: ids are all that is known
    for few, have in ((1, "1 of them has the id of a sample"), (7, "7 of them have the ids of samples")):
        learnt = features.select([int(name) for name in run.training_ids[-few:]])
        assert trained_on_words(run, learnt).startswith(f"{have} that this run was trained on: ")
    corrected = features.labels
    corrected[::10] = (corrected[::10] + 1) % features.num_classes
    for labels, grades in ((features.labels, "grades"), (corrected, "many of the grades")):
        said = trained_on_words(run, from_arrays(features.arrays, labels).manifest)
        assert said.startswith(
            f"{len(run.training_ids)} of them have the row numbers and {grades} of samples "
        )
    validation = features.select([features.ids.index(name) for name in run.held_out["validation"].ids])
    (same,) = srjt.evaluate(run, validation, resamples=0).overlaps
    assert (same.samples, same.patients) == (len(validation), len(set(validation.patients or [])))
    assert str(replace(same, fitted=("ranges",), samples=1, patients=None)) == (
        "1 of the samples has the id of a sample that was used to fit the ranges: if they are the same, the scores "
        "look too good. Evaluate samples of other patients, such as the test side."
    )


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
