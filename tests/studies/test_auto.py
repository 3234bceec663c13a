"""A study whose methods use an estimate of the noise: made once for all methods with the same
labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from refusals import refuses
from srjt.noise import estimate as estimation
from srjt.studies.config import StudyConfig, parse_method
from srjt.studies.folder import run_folder
from srjt.studies.plan import open_data
from srjt.studies.results import collect_results

from .conftest import run, small

METHODS = ("standard", "co-teaching", "f-correction", "co-teaching+ours:label_matrix=estimated")


def plan(config: StudyConfig) -> dict[str, Any]:
    return {planned.method.name: planned for planned in open_data(config).planned_runs()}


@pytest.mark.slow
def test_methods_get_what_they_need_and_nothing_else() -> None:
    auto = plan(small(methods=METHODS, noise_rate="auto", only_folds=(0,)))
    known = plan(small(methods=METHODS[:3], only_folds=(0,)))
    assert auto["standard"].key == known["standard"].key  # it needs nothing: the same run
    assert auto["standard"].config.noise_rate is None
    assert auto["co-teaching"].config.noise_rate == auto["f-correction"].config.noise_rate == "auto"
    assert auto["f-correction"].config.transition is None
    assert auto["co-teaching"].key != known["co-teaching"].key
    ours = auto["co-teaching+ours"].config
    assert (ours.soft_labels, ours.method_options) == ("estimated", {})
    two = {"only_folds": (0, 1), "noises": ("quasi:0.4", "none")}
    data = open_data(small(methods=METHODS, noise_rate="auto", **two))
    names = {data.estimate_name(c) for c in data.planned_runs() if c.config.noise_rate == "auto"}
    assert len(names) == 4  # noise × fold, whatever the method


@pytest.mark.slow
def test_a_matrix_that_is_given_is_not_estimated() -> None:
    matrix = [[0.9 if i == j else 0.1 / 3 for j in range(4)] for i in range(4)]
    known = {"noises": ("none",), "noise_rate": "auto", "transition": matrix}
    planned_runs = plan(small(methods=("f-correction", "co-teaching"), **known))
    assert planned_runs["f-correction"].config.noise_rate is None
    assert planned_runs["co-teaching"].config.noise_rate == "auto"


def test_what_cannot_be_is_one_sentence() -> None:
    with refuses("missing_option", "soft_labels"):
        plan(small(methods=("co-teaching+ours:label_matrix=estimated",)))
    with refuses("option_without_effect", "label_matrix"):
        parse_method("co-teaching:label_matrix=estimated")


@pytest.mark.slow
def test_the_estimate_is_made_once_and_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(methods=METHODS, noise_rate="auto", only_folds=(0,))
    _, planned_runs, outcome = run(tmp_path / "study", config)
    assert set(outcome.values()) == {"done"}
    estimates = list((tmp_path / "study" / "estimates").iterdir())
    assert len(estimates) == 1
    assert [path.name for path in estimates[0].glob("[!.]*")] == [
        "noise.json"
    ]  # the warm-up is gone
    estimate = json.loads((estimates[0] / "noise.json").read_text())["estimate"]
    rate = estimate["rate"]
    for planned in planned_runs:
        folder = run_folder(tmp_path / "study", planned.key)
        settings = json.loads((folder / "run.json").read_text())["config"]
        if planned.method.name == "standard":
            assert settings["noise_rate"] is None
            assert not (folder / "noise.json").exists()
        else:
            assert settings["noise_rate"] == (rate if estimate["informed"] else 0.0)
    results = collect_results(tmp_path / "study")
    assert results.noise["estimated_rate"].tolist() == [rate if estimate["informed"] else None]
    assert results.noise["given_rate"].isna().all()
    monkeypatch.setattr(estimation, "estimate_noise", None)
    assert set(run(tmp_path / "study", config)[2].values()) == {"done"}


def test_a_recipe_uses_an_estimate_even_if_the_study_knows_the_rate() -> None:
    own = tuple(f"co-teaching+ours:noise_rate={rate}" for rate in (0.3, "auto"))
    texts = ("sord", "co-teaching+ours", "srjt", *own)
    data = open_data(
        small(methods=texts, only_folds=(0,), noises=("quasi:0.4", "none"), noise_rate=0.25)
    )
    runs = list(data.planned_runs())
    given = {(c.method.name, c.method.variant, c.noise.label): c.config.noise_rate for c in runs}
    injected = pytest.approx(0.4, abs=0.05)
    assert [given[name, "", "quasi:0.4"] for name in texts[:3]] == [None, injected, "auto"]
    assert [given[name, "", "none"] for name in texts[:3]] == [None, 0.25, "auto"]
    for noise in ("quasi:0.4", "none"):
        assert given["co-teaching+ours", "noise_rate=0.3", noise] == 0.3
        assert given["co-teaching+ours", "noise_rate=auto", noise] == "auto"
    # the study knows its matrix
    (corrected,) = plan(small(methods=("f-correction:noise_rate=auto",))).values()
    assert (corrected.config.noise_rate, corrected.config.transition) == ("auto", None)
    estimates = {
        data.estimate_name(c) for c in data.planned_runs() if c.config.noise_rate == "auto"
    }
    assert len(estimates) == 2  # one for each noise: a recipe's settings are no part of the warm-up
    alone = small(methods=("srjt",), noises=("none",))  # nothing injected, nothing known
    assert plan(alone)["srjt"].config.noise_rate == "auto"
