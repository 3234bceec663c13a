"""Several readers in training: their noise needs no estimate, and their posterior can be learnt from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from srjt.data import Manifest
from srjt.errors import SrjtError
from srjt.methods import create
from srjt.noise import noise_from_posterior
from srjt.training.config import TrainConfig
from srjt.training.resolve_noise import resolve_noise_rate
from srjt.training.single_run import fingerprint, resolve_split

SETTINGS: dict[str, Any] = {
    "network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "batch_size": 16, "device": "cpu", "tune_cpu": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Manifest:
    """60 images with probabilities of the true grades; the label is the most probable grade."""
    images = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    posterior = np.random.default_rng(0).dirichlet(np.full(4, 0.4), size=60)
    columns = {f"p_true_{grade}": posterior[:, grade] for grade in range(4)}
    return replace(images, table=images.table.assign(grade=posterior.argmax(axis=1), **columns))


def test_the_noise_of_known_probabilities_is_a_sum() -> None:
    posterior = np.array([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0], [0.0, 1.0, 0.0]])
    found = noise_from_posterior([0, 1, 1], posterior)
    assert found.rate == pytest.approx((0.2 + 0.6 + 0.0) / 3)
    assert found.transition[0] == pytest.approx([0.8 / 1.4, 0.6 / 1.4, 0])
    assert found.transition[2] == pytest.approx([0, 0, 1])  # a grade that never occurs
    assert found.posterior[0] == pytest.approx([0.8, 0.2, 0])
    assert found.posterior[1] == pytest.approx([0.3, 0.7, 0])


@pytest.mark.parametrize(("method", "matrix"), [("co-teaching", False), ("f-correction", True)])
def test_the_rate_comes_from_the_readers_of_the_training_side(
    data: Manifest, method: str, matrix: bool
) -> None:
    split = srjt.data.folds(data)[0]
    config, estimate = resolve_noise_rate(
        data, config=TrainConfig(method=method, noise_rate="auto", **_settings()), split=split
    )
    assert estimate is None
    assert data.posterior is not None
    wrong = 1 - data.posterior[split.train, data.labels[split.train]]
    assert config.noise_rate == pytest.approx(float(wrong.mean()))
    assert (config.transition is not None) == matrix


def test_a_run_says_where_its_rate_comes_from(data: Manifest, tmp_path: Path) -> None:
    srjt.train(data, out=tmp_path / "run", method="co-teaching+ours", noise_rate="auto", **SETTINGS)
    noise = json.loads((tmp_path / "run" / "run.json").read_text())["noise"]
    assert noise["requested"] == "auto"
    assert "from the probabilities that the readers' grades give" in noise["why"]
    assert not (tmp_path / "run" / "noise.json").exists()  # nothing was estimated
    given = srjt.train(data, method="co-teaching+ours", noise_rate=0.1, **SETTINGS)
    assert given.config.noise_rate == 0.1


@pytest.mark.parametrize("name", ["standard", "sord", "co-teaching+ours", "jocor+ours", "codis+ours"])
def test_certain_probabilities_are_learnt_as_grades(name: str) -> None:
    """The loss of one-hot targets is the cross-entropy with the grade, on the samples that the grades select."""
    method = create(name, num_classes=4, noise_rate=0.4)
    assert method.takes_probabilities
    logits = torch.randn(method.networks, 10, 4, generator=torch.Generator().manual_seed(1))
    grades = torch.arange(10) % 4
    soft = method.loss(logits, torch.nn.functional.one_hot(grades, 4).float(), keep=6)
    hard = method.loss(logits, grades, keep=6)
    assert torch.equal(soft.selected, hard.selected)
    if name in ("standard", "sord"):
        expected = torch.nn.functional.cross_entropy(logits[0], grades)
        torch.testing.assert_close(soft.total, expected)


def test_methods_that_learn_from_grades_alone_say_so(data: Manifest) -> None:
    for name in ("f-correction", "co-teaching", "label-smooth"):
        with pytest.raises(SrjtError, match="learns from grades, not from probabilities"):
            srjt.train(data, method=name, noise_rate="auto", reader_targets="posterior", **SETTINGS)


def test_the_posterior_is_learnt_from(data: Manifest) -> None:
    """A posterior that contradicts the labels changes the weights; without one the setting is an error."""
    runs = [
        srjt.train(data, method="standard", reader_targets=targets, **SETTINGS)
        for targets in ("consensus", "posterior")
    ]
    first, second = (next(iter(run.networks.parameters())) for run in runs)
    assert not torch.equal(first, second)
    one_reader = replace(data, table=data.table[["id", "image", "grade", "patient"]])
    with pytest.raises(SrjtError, match="needs the grades of several readers"):
        srjt.train(one_reader, method="standard", reader_targets="posterior", **SETTINGS)


def test_other_readings_are_other_data(data: Manifest) -> None:
    parts = resolve_split(None, data, skipped=False)
    other = replace(data, table=data.table.assign(p_true_0=0.25, p_true_1=0.25, p_true_2=0.25, p_true_3=0.25))
    assert fingerprint(data, parts) != fingerprint(other, parts)


def test_probabilities_that_are_none_are_an_error(data: Manifest) -> None:
    with pytest.raises(SrjtError, match="must hold probabilities of the true grades"):
        _ = replace(data, table=data.table.assign(p_true_0="?")).posterior
    with pytest.raises(SrjtError, match="must hold probabilities of the true grades"):
        _ = replace(data, table=data.table.assign(p_true_0=-1.0)).posterior


def _settings() -> dict[str, Any]:
    return {name: value for name, value in SETTINGS.items() if name != "device"}
