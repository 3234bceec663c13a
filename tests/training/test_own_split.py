"""``srjt.train`` without a split uses the split column of the data, as ``srjt train`` does."""

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
    settings: dict[str, Any] = {"method": "standard", "epochs": 1, "device": "cpu", "tune_cpu": False}
    trained_on = [len(srjt.train(data, split=split, **settings).history) for split in (None, "all")]  # type: ignore[arg-type]
    assert trained_on == [20, 30]
    with pytest.raises(SrjtError, match=r"split takes a Split, .* not 0: .*=srjt\.data\.folds\(data\)\[0\]"):
        srjt.train(data, split=0, **settings)  # type: ignore[arg-type]
    with pytest.raises(SrjtError, match=r"A fold is given as a split: .*srjt\.data\.folds\(data\)\[0\]"):
        srjt.train(data, fold=0, **settings)
