"""Which samples ``srjt.train`` uses: those of the split that it is given, or of the split column of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import srjt
from srjt.errors import SrjtError


def test_the_split_column_is_used_unless_all_samples_are_asked_for() -> None:
    features = np.random.default_rng(0).normal(size=(30, 4))
    sides = ["train"] * 20 + ["validation"] * 4 + ["test"] * 6
    data = srjt.data.from_arrays(features, np.arange(30) % 3, split=sides).manifest
    settings: dict[str, Any] = {"method": "standard", "epochs": 1, "device": "cpu"}
    trained_on = [len(srjt.train(data, split=split, **settings).history) for split in (None, "all")]  # type: ignore[arg-type]
    assert trained_on == [20, 30]
    with pytest.raises(SrjtError, match=r"split takes a Split, .* not 0: .*=srjt\.data\.folds\(data\)\[0\]"):
        srjt.train(data, split=0, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"train": 12, "test": 18}, "12 samples are on no side of the split, and not used"),
        (
            {"train": 40, "test": 50},
            "The split has the row 30, and there are 30 samples: it is of other data",
        ),
        ({"train": 20, "test": 15}, "The split has a row twice"),
    ],
)
def test_a_split_of_other_data_is_noticed(rows: dict[str, int], said: str) -> None:
    """train: rows 0 … ; test: up to this row, from the end of the training side or, if that is later, from row 10."""
    data = srjt.data.from_arrays(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3).manifest
    start = min(rows["train"], rows["test"] - 6)
    split = srjt.data.Split(
        train=np.arange(rows["train"]), validation=np.empty(0, int), test=np.arange(start, rows["test"])
    )
    settings: dict[str, Any] = {"method": "standard", "epochs": 1, "device": "cpu"}
    if "no side" in said:
        with pytest.warns(UserWarning, match=said):
            srjt.train(data, split=split, **settings)
    else:
        with pytest.raises(SrjtError, match=said):
            srjt.train(data, split=split, **settings)


def test_a_split_is_made_once() -> None:
    """A function that counts, or looks at true grades, cannot give the noise estimate other samples than the run."""
    data = srjt.data.from_arrays(np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3).manifest
    made: list[int] = []

    def another(manifest: srjt.data.Manifest) -> srjt.data.Split:
        made.append(len(manifest))
        return srjt.data.folds(manifest, seed=len(made))[0]

    settings: dict[str, Any] = {"epochs": 3, "device": "cpu", "noise_rate": "auto"}
    run = srjt.train(data, split=another, method="co-teaching", **settings)
    assert made == [60]
    assert set(run.history["id"]) == {data.ids[row] for row in srjt.data.folds(data, seed=1)[0].train}
