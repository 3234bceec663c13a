"""Every method trains from images to predictions through the same loop; so does your own
network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srjt
from refusals import refuses
from srjt.inference.predict import predict
from srjt.networks import tiny
from srjt.training.config import TrainConfig
from srjt.training.devices import amp_dtype


# one of each family; on features every method is trained
@pytest.mark.parametrize(
    "method",
    [
        "mixup",
        "cdr",
        "garg",
        "corn",
        "reweight",
        "jocor",
        "co-teaching+ours",
        "codis+ours",
        "elr",
        "srjt",
    ],
)
def test_trains_and_predicts(data: Any, train: Any, method: str) -> None:
    run = train(method=method, transition=data.matrix, epochs=1)
    networks = srjt.methods.lookup(method).method.networks
    assert len(run.networks.members) == networks
    losses = run.metrics.query("metric == 'loss'")
    assert len(losses) == networks
    assert np.isfinite(losses["value"]).all()
    table = predict(run, data.manifest)
    assert len(table) == len(data.manifest)
    assert table.filter(regex="^p_").to_numpy().sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert set(table["grade"]) <= set(data.manifest.grades)


@pytest.mark.slow
def test_learns_what_can_be_learnt(data: Any, train: Any) -> None:
    """Not only numbers: on clean labels the training accuracy rises far above the largest grade's
    share."""
    clean = data.manifest.with_noisy_labels(data.manifest.true_labels)
    run = train(clean, method="standard", epochs=20, learning_rate=3e-3)
    table = predict(run, clean.select(data.split.train))
    right = np.mean(table["grade"].astype(int).to_numpy() == clean.labels[data.split.train])
    assert right > 0.75


@pytest.mark.slow
def test_one_s_own_network_and_transforms(data: Any, train: Any, tmp_path: Any) -> None:
    def brighter(images: torch.Tensor) -> torch.Tensor:
        assert images.dtype == torch.uint8
        assert images.shape[1:] == (3, 32, 32)
        return images.float() / 255

    chosen = {"network": tiny, "transform": brighter, "eval_transform": brighter, "epochs": 1}
    run = train(out=tmp_path / "run", **chosen)
    with refuses("missing_option", "network"):
        srjt.load_run(tmp_path / "run")
    again = srjt.load_run(tmp_path / "run", network=tiny, eval_transform=brighter, device="cpu")
    one, other = (each.probabilities(data.manifest.arrays)[0] for each in (run, again))
    assert np.array_equal(one, other)


def test_a_network_that_uses_view(train: Any) -> None:
    """``view`` needs images laid out as torch lays them out by default."""

    class Flat(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(len(x), -1)

    run = train(network=Flat, epochs=1)
    assert run.networks.members[0].head.in_features == 3 * 28 * 28  # type: ignore[union-attr]


def test_one_module_for_two_networks_or_a_wrong_option_is_refused(train: Any) -> None:
    shared = tiny()
    with refuses("wrong_type", "network"):
        train(network=lambda: shared)
    with refuses("wrong_type", "temperature", says="temperature"):
        train(method="co-teaching+ours", method_options={"temperature": "hot"})
    with refuses("unknown_name", says="'temperature'"):
        train(method="co-teaching+ours", method_options={"temprature": 1.0})


def test_too_little_to_learn_from(data: Any, train: Any) -> None:
    with refuses("too_few", says="1 sample"):
        train(data.manifest.select([0]), split=None)
    mildest = np.flatnonzero(data.manifest.labels == 0)
    with refuses("too_few", says="same grade"):
        train(data.manifest.select(mildest), split=None)


def test_a_batch_larger_than_the_data_is_all_of_it(data: Any, train: Any) -> None:
    run = train(batch_size=1000, epochs=1)
    assert run.history["seen"].tolist() == [1] * len(data.split.train)


def test_validation_uses_given_labels_and_test_uses_true_ones(data: Any, train: Any) -> None:
    run = train(method="standard", epochs=1)
    grades = run.probabilities(data.manifest.arrays)[1][0]
    rows = data.split
    # labels that no network could agree with on the other kind: given ones right, true ones wrong
    table = data.manifest.table.assign(grade=grades, true_grade=(grades + 1) % 4)
    both = ["grade", "true_grade"]
    table.loc[rows.train, both] = data.manifest.table.loc[rows.train, both]
    judged = replace(data.manifest, table=table)
    again = train(judged, method="standard", epochs=1)
    accuracy = again.metrics.query("metric == 'accuracy'").set_index("split")["value"]
    assert dict(accuracy) == {"validation": 1.0, "test": 0.0}


def test_bf16_on_a_cpu_is_refused(train: Any, tmp_path: Path) -> None:
    with refuses("unsupported", "precision"):
        train(out=tmp_path / "run", precision="bf16")
    assert not (tmp_path / "run").exists()
    # a run of a GPU, opened here
    assert amp_dtype(TrainConfig(precision="bf16"), torch.device("cpu")) is None


def test_unknown_devices(train: Any) -> None:
    for name in ("gpu", "meta", "cpu:x", "", "cuda:99999999999999999999"):
        with refuses("unknown_name", "device", says=repr(name)):
            train(device=name)
