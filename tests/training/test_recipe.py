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
from srjt.training.config import TrainConfig
from srjt.training.record.run_folder import read_facts
from srjt.training.resolve_noise import needs_estimate, usable_matrix

SPELT_OUT = dict(methods.lookup("srjt").defaults)  # so that run.json says what was trained


@pytest.mark.parametrize("features", [False, True])
def test_unset_settings_follow_the_recipe(features: bool) -> None:
    config = TrainConfig(epochs=20).for_data(features=features)
    assert config.method == "srjt"  # what is trained if nothing is asked for
    assert (config.noise_rate, config.transition) == (None, None)
    assert config.balance == methods.lookup("srjt").recipe.balance
    assert config.method_options == SPELT_OUT
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
        TrainConfig(soft_labels="estimated")
    with pytest.raises(SrjtError, match="srjt does not learn from soft labels"):
        needs_estimate(TrainConfig(soft_labels="estimated", noise_rate="auto"))


def test_nothing_is_estimated_unless_grades_are_verified(
    data: Any, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del settings["noise_rate"]
    for number, requested in enumerate((None, "auto")):
        run = srjt.train(data.manifest, out=tmp_path / str(number), noise_rate=requested, **settings)
        assert (run.config.noise_rate, run.config.transition, run.noise_estimate) == (None, None, None)
        assert run.method.transition is None
        recorded = read_facts(tmp_path / str(number)).noise
        assert recorded is not None
        assert recorded["why"].startswith("No grade is verified and no matrix is given")
    verified = np.where(np.arange(len(data.manifest)) % 3 == 0, data.manifest.true_labels, -1)
    checked = replace(data.manifest, table=data.manifest.table.assign(verified_grade=verified))
    run = srjt.train(checked, out=tmp_path / "checked", **settings)
    assert run.noise_estimate is not None
    np.testing.assert_allclose(run.method.transition, run.noise_estimate.transition)
    recorded = read_facts(tmp_path / "checked").noise
    assert recorded is not None
    assert recorded["used"] == run.noise_estimate.rate
    known = srjt.train(checked, transition=data.matrix.tolist(), **settings)
    assert known.noise_estimate is None
    np.testing.assert_array_equal(known.method.transition, data.matrix)


def test_a_run_of_the_former_recipe_is_opened_as_what_it_was(
    data: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    options = {"update": "soft", "agree": "all", "co_lambda": 1.0, "ramp_epochs": 1}
    run = srjt.train(
        data.manifest, out=tmp_path, method="jocor+ours", balance=0.5, method_options=options,
        **{**settings, "epochs": 1},
    )  # fmt: skip
    facts = json.loads((tmp_path / "run.json").read_text())
    facts["config"]["method"] = "srjt"  # as it was written
    (tmp_path / "run.json").write_text(json.dumps(facts))
    opened = srjt.load_run(tmp_path, device="cpu")
    assert isinstance(opened.method, methods.JoCor)
    assert opened.config == run.config


def test_an_estimate_of_a_grade_that_never_occurs_leaves_its_label() -> None:
    transition = np.array([[0.8, 0.2, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.9]])
    estimate: Any = SimpleNamespace(transition=transition)
    np.testing.assert_allclose(usable_matrix(estimate), [[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]])


def test_a_run_without_the_balance_setting_can_be_resumed(
    data: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = {**settings, "method": "standard", "epochs": 1}
    srjt.train(data.manifest, out=tmp_path, **run)
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["config"].pop("balance") == 0.0
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert read_facts(tmp_path).config.balance == 0.0
    srjt.train(data.manifest, out=tmp_path, **run)
