"""The recipe, on ordinary data and on hard ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from fixtures.noisy_features import counted
from srjt import methods, noise
from srjt.data import Split, from_arrays
from srjt.data.synthetic import generate
from srjt.inference.calibrated_run import calibrate_run
from srjt.noise import expected_rate
from srjt.noise.basis import Undetermined
from srjt.training.config import ResolvedConfig, TrainConfig
from srjt.training.folder import read_facts
from srjt.training.noise_rate import neighbour_matrix, usable_matrix

SPELT_OUT = dict(methods.lookup("srjt").defaults)  # so that run.json says what was trained


@pytest.mark.parametrize("features", [False, True])
def test_unset_settings_follow_the_recipe(features: bool) -> None:
    config = TrainConfig(epochs=20).for_data(features=features, samples=10_000)
    assert config.method == "srjt"  # what is trained if nothing is asked for
    assert (config.noise_rate, config.transition) == ("auto", None)
    assert config.balance == methods.lookup("srjt").recipe.balance
    assert config.method_options == {"grows_with": "fit", "co_lambda": 4.0 if features else 10.0}
    assert config.for_data(features=not features, samples=10_000) == config  # what is chosen stays
    assert config.for_data(features=features, samples=10_000) == config  # once decided, it stays
    assert ResolvedConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_what_is_given_stays() -> None:
    given = {"balance": 0.5, "method_options": {"co_lambda": 1.0}}
    config = TrainConfig(method="srjt", **given).for_data(features=False, samples=10_000)
    assert config.balance == 0.5
    assert config.method_options == {**SPELT_OUT, "co_lambda": 1.0}


@pytest.mark.slow
def test_the_matrix_is_estimated_given_or_of_a_rate(
    data: Any, train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = {"informed": False, "rate_interval": (0.0, 0.6)}  # the short trainings were too short
    estimates = lambda *found, **how: replace(counted(*found, **how), **unknown)  # noqa: E731
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", estimates)
    told = (
        r"\d+ training labels and 3 short trainings: noise unknown, 0% to \d+%; trained .* Verified"
    )
    with pytest.warns(UserWarning, match=told):
        run = train(out=tmp_path / "told nothing", noise_rate=None)
    np.testing.assert_array_equal(run.method.transition, np.eye(4))
    recorded = read_facts(tmp_path / "told nothing").noise
    assert "noise unknown, 0% to 60%; trained as if 0%" in recorded["why"]
    # the ranges of a prediction reach up to the same rate
    side = run.held_out["validation"]
    bounds = calibrate_run(run).noise_of(side)
    assert bounds.rates == run.noise_estimate.rate_interval
    assert (recorded["estimated"], recorded["used"]) == (None, 0.0)
    few = Undetermined(kind="few_labels", grade=3, labels=1)
    informed = replace(run.noise_estimate, informed=True, undetermined=few)
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", lambda *_, **__: informed)
    usual = train(noise_rate=None)
    np.testing.assert_array_equal(
        usual.method.transition, usable_matrix(informed.rate, informed.transition)
    )
    recorded = usual.facts.noise or {}
    assert (recorded["requested"], recorded["estimated"]) == ("auto", informed.rate)
    assert recorded["why"].startswith("Estimated noise rate")
    known = train(out=tmp_path / "matrix", transition=data.matrix.tolist(), noise_rate=None)
    assert known.noise_estimate is None
    np.testing.assert_array_equal(known.method.transition, data.matrix)
    told = train(out=tmp_path / "rate")
    assert told.noise_estimate is None
    counts = data.manifest.class_counts
    assert expected_rate(told.method.transition, class_counts=counts) == pytest.approx(0.4)
    whys = [(read_facts(tmp_path / name).noise or {})["why"] for name in ("matrix", "rate")]
    assert whys == ["The matrix was given.", "The rate was given; errors by one grade are assumed."]


def test_a_rate_that_neighbours_cannot_explain_is_as_large_as_possible() -> None:
    matrix = neighbour_matrix(0.9, class_counts=[5, 5, 5])
    np.testing.assert_allclose(
        matrix, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    )
    np.testing.assert_allclose(neighbour_matrix(0.0, class_counts=[5, 5]), np.eye(2))


def test_an_estimate_that_cannot_be_used_as_it_is() -> None:
    transition = np.array([[0.8, 0.2, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.9]])
    expected = np.array(
        [[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]]
    )  # the middle grade never occurs
    np.testing.assert_allclose(usable_matrix(0.15, transition), expected)
    halved = usable_matrix(0.75, np.full((4, 4), 0.25))
    np.testing.assert_allclose(np.diag(halved), 0.5)
    np.testing.assert_allclose(halved.sum(axis=1), 1.0)


# The recipe, told nothing, does not collapse: a dominant grade, few rows, three or ten grades,
# clean labels.
def rows(shares: list[float], *, samples: int, blur: float = 0.3, seed: int = 0) -> tuple[Any, Any]:
    """Features (N, 12) that show a severity up to a blur, and grades with these shares."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=samples)
    grades = np.digitize(severity, np.quantile(severity, np.cumsum(shares)[:-1]))
    seen = severity[:, None] + blur * rng.normal(size=(samples, 12))
    return seen.astype(np.float32), grades


def trained(shares: list[float], *, samples: int, wrong: float, **settings: Any) -> tuple[Any, Any]:
    """Test grades of a run on noisy labels, and the true ones."""
    x, true = rows(shares, samples=samples + 400)
    matrix = np.eye(len(shares))
    if wrong:
        counts = np.bincount(true, minlength=len(shares))
        rho = noise.rho_for_rate("truncated", rate=wrong, class_counts=counts)
        matrix = noise.transition_matrix("truncated", num_classes=len(shares), rho=rho)
    labels = noise.corrupt(true, matrix, seed=1)
    manifest = from_arrays(x, labels, true_grades=true)
    order = np.arange(len(true))
    split = Split(train=order[400:], validation=order[:0], test=order[:400])
    run = srjt.train(manifest, split=split, epochs=30, device="cpu", learning_rate=1e-3, **settings)
    assert run.config.method == "srjt"
    return run.held_out["test"].probabilities.mean(axis=0).argmax(axis=1), true[:400]


@pytest.mark.filterwarnings("ignore::srjt.data.LeakageWarning")
@pytest.mark.parametrize(
    ("shares", "samples", "wrong"),
    [
        pytest.param(
            [0.73, 0.07, 0.15, 0.03, 0.02], 1200, 0.2, marks=pytest.mark.slow
        ),  # one grade dominates
        pytest.param(
            [0.4, 0.3, 0.3], 180, 0.2, marks=pytest.mark.slow
        ),  # 300 images, three fifths of them to train on
        pytest.param([0.5, 0.3, 0.2], 600, 0.3, marks=pytest.mark.slow),
        pytest.param([0.1] * 10, 1200, 0.3, marks=pytest.mark.slow),
        pytest.param([0.45, 0.1, 0.2, 0.15, 0.1], 600, 0.0, marks=pytest.mark.slow),  # clean labels
    ],
    ids=["dominant", "few", "three grades", "ten grades", "clean"],
)
def test_it_beats_the_naive_answers(shares: list[float], samples: int, wrong: float) -> None:
    predicted, true = trained(shares, samples=samples, wrong=wrong)
    naive = min(
        np.abs(true - grade).mean() for grade in range(len(shares))
    )  # the best constant answer
    assert np.abs(predicted - true).mean() < 0.7 * naive
    assert (predicted == true).mean() > max(np.bincount(true)) / len(true)
    assert len(set(predicted)) >= len(shares) - 2  # rare grades may be missed, not all of them


@pytest.mark.slow
def test_tiny_on_a_cpu_with_nothing_but_data() -> None:
    clean = generate(images=300, patients=60, size=32)
    split = srjt.data.folds(clean, folds=5, by="stratified")[0]
    settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 15}
    run = srjt.train(clean, split=split, device="cpu", **settings)
    predicted = run.held_out["test"].probabilities.mean(axis=0).argmax(axis=1)
    true = clean.labels[split.test]
    assert np.mean(predicted == true) > 1.2 * max(np.bincount(true)) / len(true)
