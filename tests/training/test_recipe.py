"""A method's recipe fills in settings that are not given, and changes nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import srjt
from srjt import methods
from srjt.errors import SrjtError
from srjt.inference.calibrate import label_noise_of
from srjt.noise import expected_rate
from srjt.training.config import TrainConfig
from srjt.training.record.run_folder import read_facts
from srjt.training.resolve_noise import (
    needs_estimate,
    neighbour_matrix,
    unknown_noise,
    usable_matrix,
)

SPELT_OUT = dict(methods.lookup("srjt").defaults)  # so that run.json says what was trained


@pytest.mark.parametrize("features", [False, True])
def test_unset_settings_follow_the_recipe(features: bool) -> None:
    config = TrainConfig(epochs=20).for_data(features=features)
    assert config.method == "srjt"  # what is trained if nothing is asked for
    assert (config.noise_rate, config.transition) == ("auto", None)
    assert config.balance == methods.lookup("srjt").recipe.balance
    assert config.method_options == {**SPELT_OUT, "grows_with": "fit" if features else "training"}
    assert config.for_data(features=not features) == config  # what is chosen stays
    assert config.for_data(features=features) == config  # once decided, it stays
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("method", methods.plain_names())
def test_the_papers_methods_are_trained_as_before(method: str) -> None:
    config = TrainConfig(method=method).for_data(features=False)
    assert (config.noise_rate, config.balance, config.method_options) == (None, 0.0, {})


def test_what_is_given_stays() -> None:
    given = {"balance": 0.5, "method_options": {"co_lambda": 1.0}}
    config = TrainConfig(method="srjt", **given).for_data(features=False)
    assert config.balance == 0.5
    assert config.method_options == {**SPELT_OUT, "co_lambda": 1.0}


def test_soft_labels_are_not_for_the_recipe() -> None:
    with pytest.raises(SrjtError, match="soft_labels 'estimated' needs noise_rate 'auto'"):
        TrainConfig(soft_labels="estimated", noise_rate=0.2)
    with pytest.raises(SrjtError, match="srjt does not learn from soft labels"):
        needs_estimate(TrainConfig(soft_labels="estimated", noise_rate="auto"))


def test_the_matrix_is_estimated_given_or_follows_from_a_rate(
    data: Any, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = settings.pop("noise_rate")
    told = r"\d+ training labels and 3 short trainings .*: noise unknown, 0% to \d+%; trained as if 0%, .* Verified"
    with pytest.warns(UserWarning, match=told):
        run = srjt.train(data.manifest, out=tmp_path / "told nothing", **settings)
    assert run.noise_estimate is not None
    np.testing.assert_array_equal(run.method.transition, np.eye(4))  # the short trainings were too short
    recorded = read_facts(tmp_path / "told nothing").noise
    assert recorded is not None
    assert recorded["why"].endswith(f"{unknown_noise(run.noise_estimate)}.")
    # the ranges of a prediction reach up to the same rate
    side = run.held_out["validation"]
    assert (
        label_noise_of(side, config=run.config, estimate=run.noise_estimate).rates
        == run.noise_estimate.rate_interval
    )
    assert (recorded["estimated"], recorded["used"]) == (None, 0.0)
    informed = replace(run.noise_estimate, informed=True, reason="too few of grade 3.")
    monkeypatch.setattr("srjt.training.resolve_noise.estimate_noise", lambda *_, **__: informed)
    usual = srjt.train(data.manifest, **settings)
    np.testing.assert_array_equal(usual.method.transition, usable_matrix(informed.rate, informed.transition))
    assert usual.facts is not None
    recorded = usual.facts.noise or {}
    assert (recorded["requested"], recorded["estimated"]) == ("auto", informed.rate)
    assert recorded["why"].startswith("Estimated noise rate")
    known = srjt.train(data.manifest, out=tmp_path / "matrix", transition=data.matrix.tolist(), **settings)
    assert known.noise_estimate is None
    np.testing.assert_array_equal(known.method.transition, data.matrix)
    told = srjt.train(data.manifest, out=tmp_path / "rate", noise_rate=rate, **settings)
    assert told.noise_estimate is None
    counts = data.manifest.class_counts
    assert expected_rate(told.method.transition, class_counts=counts) == pytest.approx(rate)
    whys = [(read_facts(tmp_path / name).noise or {})["why"] for name in ("matrix", "rate")]
    assert whys == ["The matrix was given.", "The rate was given; errors by one grade are assumed."]


def test_a_rate_that_neighbours_cannot_explain_is_as_large_as_possible() -> None:
    matrix = neighbour_matrix(0.9, class_counts=[5, 5, 5])
    np.testing.assert_allclose(matrix, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])
    np.testing.assert_allclose(neighbour_matrix(0.0, class_counts=[5, 5]), np.eye(2))


def test_an_estimate_that_cannot_be_used_as_it_is() -> None:
    transition = np.array([[0.8, 0.2, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.9]])
    estimate: Any = SimpleNamespace(transition=transition, rate=0.15)
    expected = np.array([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]])  # the middle grade never occurs
    np.testing.assert_allclose(usable_matrix(estimate.rate, estimate.transition), expected)
    too_many: Any = SimpleNamespace(transition=np.full((4, 4), 0.25), rate=0.75)
    halved = usable_matrix(too_many.rate, too_many.transition)
    np.testing.assert_allclose(np.diag(halved), 0.5)
    np.testing.assert_allclose(halved.sum(axis=1), 1.0)
