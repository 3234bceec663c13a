"""Evaluation against several readers: the network as one more of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import srjt
from srjt.data import Manifest
from srjt.readers import Readings
from srjt.training.trained import Trained


@pytest.fixture(scope="module")
def trained() -> tuple[Trained, Manifest]:
    """A network that reads the grade from its features, trained on other samples."""
    draw = np.random.default_rng(0)
    truth = draw.integers(3, size=120)
    features = (truth[:, None] + 0.2 * draw.normal(size=(120, 4))).astype(np.float32)
    data = srjt.data.from_arrays(features, truth.tolist())
    settings: dict[str, Any] = {"epochs": 30, "learning_rate": 1e-2, "device": "cpu"}
    run = srjt.train(data.select(np.arange(60)), method="standard", **settings)
    return run, data.select(np.arange(60, 120))


def readings(data: Manifest, errors: tuple[float, ...]) -> Readings:
    """A reader for each share of errors, all of whom read everything."""
    draw = np.random.default_rng(1)
    item = np.tile(np.arange(len(data)), len(errors))
    reader = np.repeat(np.arange(len(errors)), len(data))
    wrong = draw.random(len(item)) < np.array(errors)[reader]
    grade = np.where(wrong, draw.integers(3, size=len(item)), data.labels[item])
    return Readings(
        items=data.ids, readers=[f"r{k}" for k in range(len(errors))], grades=data.grades, item=item, reader=reader,
        grade=grade,
    )  # fmt: skip


@pytest.mark.slow
def test_a_good_network_is_not_inferior_to_careless_readers(
    trained: tuple[Trained, Manifest],
) -> None:
    run, data = trained
    found = srjt.evaluate(run, data, readings=readings(data, (0.4, 0.4, 0.4)), resamples=200)
    assert found.judged_by == "consensus grades"
    assert found.readers.not_inferior
    assert found.readers.by_reader["reader"].tolist() == ["r0", "r1", "r2"]
    rows = found.readers.by_reader
    assert (rows["network_kappa"] > rows["others_kappa"]).all()
    assert found.to_dict()["readers"]["not_inferior"] is True


def test_without_shared_samples_the_other_metrics_remain(trained: tuple[Trained, Manifest]) -> None:
    run, data = trained
    one = readings(data, (0.3,))
    found = srjt.evaluate(run, data, readings=one, resamples=50)
    assert found.readers is None
    assert "read by two readers" in found.not_compared
    assert found.intervals["accuracy"].value > 0.8
    assert "readers" not in found.to_dict()
    crowd = replace(one, readers=[f"r{k}" for k in range(201)], reader=np.arange(60))
    assert (
        "at most 200 readers" in srjt.evaluate(run, data, readings=crowd, resamples=50).not_compared
    )
    plain = srjt.evaluate(run, data, resamples=50)
    assert (plain.judged_by, plain.readers, plain.not_compared) == ("given grades", None, "")
