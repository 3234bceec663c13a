"""A method's recipe fills in settings that are not given, and changes nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import srjt
from srjt import methods
from srjt.errors import SrjtError
from srjt.training.config import TrainConfig
from srjt.training.record.run_folder import read_facts

RECIPE = methods.lookup("srjt").recipe
SPELT_OUT = {"update": "soft", "agree": "all", "co_lambda": 1.0}  # so that run.json says what was trained


@pytest.mark.parametrize("features", [False, True])
def test_unset_settings_follow_the_recipe(features: bool) -> None:
    config = TrainConfig(method="srjt", epochs=20).for_data(features=features)
    assert (config.noise_rate, config.balance) == ("auto", RECIPE.balance)
    assert config.method_options == {**SPELT_OUT, "ramp_epochs": RECIPE.ramp_epochs(20)}
    assert config.for_data(features=features) == config  # once decided, it stays
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("method", methods.plain_names())
def test_the_papers_methods_are_trained_as_before(method: str) -> None:
    config = TrainConfig(method=method).for_data(features=False)
    assert (config.noise_rate, config.balance, config.method_options) == (None, 0.0, {})


def test_what_is_given_stays() -> None:
    given = {"noise_rate": 0.3, "balance": 0.0, "method_options": {"ramp_epochs": 7, "temperature": 0.5}}
    config = TrainConfig(method="srjt", **given).for_data(features=False)
    assert (config.noise_rate, config.balance) == (0.3, 0.0)
    assert config.method_options == {**SPELT_OUT, "ramp_epochs": 7, "temperature": 0.5}
    mine = TrainConfig(method="srjt", method_options={"agree": "selected"}).for_data(features=False)
    assert mine.method_options["agree"] == "selected"
    none = TrainConfig(method="srjt", noise_rate=0.0).for_data(features=False)
    assert none.noise_rate == 0.0  # a number like any other


def test_soft_labels_may_follow_the_estimate_that_the_recipe_asks_for() -> None:
    TrainConfig(method="srjt", soft_labels="estimated")
    for no_estimate in ({"method": "jocor+ours"}, {"method": "srjt", "noise_rate": 0.2}):
        with pytest.raises(SrjtError, match="soft_labels 'estimated' needs noise_rate 'auto'"):
            TrainConfig(**no_estimate, soft_labels="estimated")  # type: ignore[arg-type]


def test_the_recipe_spelt_out_is_the_same_training(data: Any, settings: dict[str, Any]) -> None:
    recipe = srjt.train(data.manifest, method="srjt", **settings)
    spelt: dict[str, Any] = {
        "balance": RECIPE.balance,
        "method_options": {**SPELT_OUT, "ramp_epochs": RECIPE.ramp_epochs(settings["epochs"])},
    }
    plain = srjt.train(data.manifest, method="jocor+ours", **settings, **spelt)
    without = srjt.train(data.manifest, method="jocor+ours", **settings)

    def same(one: Any, other: Any) -> bool:
        weights = zip(one.networks.state_dict().values(), other.networks.state_dict().values(), strict=True)
        return all(torch.equal(a, b) for a, b in weights)

    assert same(recipe, plain)
    assert not same(recipe, without)
    assert recipe.history.equals(plain.history)


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
