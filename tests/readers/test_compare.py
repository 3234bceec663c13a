"""A network as one more reader."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from srjt.errors import SrjtError
from srjt.readers import Readings, compare_network


def make(seed: int = 0, *, items: int = 200, readers: int = 3, error: float = 0.3):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, size=items)
    wrong = rng.random((readers, items)) < error
    table = (true + wrong * rng.choice([-1, 1], size=(readers, items))).clip(0, 3)
    readings = Readings(
        items=[str(i) for i in range(items)],
        readers=[f"r{r}" for r in range(readers)],
        grades=tuple("0123"),
        item=np.tile(np.arange(items), readers),
        reader=np.repeat(np.arange(readers), items),
        grade=table.ravel(),
    )
    return readings, true, table


def test_a_good_network_is_not_inferior_and_a_bad_one_is_not_shown_to_be() -> None:
    readings, true, table = make()
    good = compare_network(readings, true, resamples=100)
    assert good.not_inferior
    assert good.difference.value > 0
    assert "not inferior" in good.sentence
    bad = compare_network(readings, np.random.default_rng(1).integers(0, 4, size=200), resamples=100)
    assert not bad.not_inferior
    assert "is not shown" in bad.sentence
    assert good.by_reader["network_kappa"].tolist() == pytest.approx(
        [cohen_kappa_score(row, true, weights="quadratic") for row in table]
    )


def test_a_copy_of_a_reader_equals_that_reader() -> None:
    readings, _, table = make()
    row = compare_network(readings, table[1], resamples=50).by_reader.set_index("reader").loc["r1"]
    assert row["difference"] == 0.0
    assert (row["low"], row["high"]) == (0.0, 0.0)
    assert row["network_kappa"] == 1.0


def test_undefined_and_wrong_input_are_sentences() -> None:
    readings, true, _ = make(items=30)
    alone = readings.rows(readings.reader == 0)
    with pytest.raises(SrjtError, match="read by two readers"):
        compare_network(alone, true[:30])
    with pytest.raises(SrjtError, match="whole grade"):
        compare_network(readings, true[:5])
    with pytest.raises(SrjtError, match="margin is positive"):
        compare_network(readings, true, margin=0.0)
    constant = compare_network(readings, np.ones(30, dtype=int), resamples=20)
    assert json.dumps(constant.to_dict(), allow_nan=False)
