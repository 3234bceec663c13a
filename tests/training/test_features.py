"""Rows of features in place of images: the same loop, methods, folders and resumption."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

import srjt
from refusals import refuses
from srjt import noise
from srjt.data import Manifest, Split, folds, from_arrays
from srjt.data.splits import corrupt_sides
from srjt.errors import Interrupted
from srjt.inference.predict import predict
from srjt.networks import Standardise, standardise
from srjt.training.config import TrainConfig
from srjt.training.trained import Trained, load_run

from .test_resume import StopAt

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 16,
    "noise_rate": 0.4,
    "device": "cpu",
    "network": "mlp",
}


@dataclass(frozen=True)
class Rows:
    manifest: Manifest
    split: Split
    matrix: npt.NDArray[np.float64]

    @property
    def x(self) -> npt.NDArray[np.float32]:
        return self.manifest.arrays.astype(np.float32)


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Severity along one direction of ten columns of very different units; one column never
    changes."""
    draws = np.random.default_rng(0)
    grades = draws.integers(0, 4, size=150)
    x = draws.normal(size=(150, 10)) + np.outer(grades - 1.5, np.linspace(2, 0, 10))
    x = x * 10.0 ** np.arange(-4, 6) + 1.0
    x[:, 5] = 0.1
    clean = from_arrays(x, grades, patients=np.arange(150) // 3)
    split = folds(clean, folds=5)[0]
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    return Rows(corrupt_sides(clean, split, matrix, seed=0)[0], split, matrix)


@pytest.fixture(scope="module")
def run(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    out = tmp_path_factory.mktemp("run") / "run"
    return srjt.train(rows.manifest, split=rows.split, out=out, **SETTINGS)


@pytest.mark.parametrize(
    ("method", "network"),
    [*((method, "mlp") for method in srjt.methods.names()), ("standard", "linear")],
)
def test_every_method_trains_and_predicts(rows: Rows, method: str, network: str) -> None:
    settings = {**SETTINGS, "epochs": 2, "network": network}
    run = srjt.train(
        rows.manifest, split=rows.split, method=method, transition=rows.matrix, **settings
    )
    assert np.isfinite(run.metrics.query("metric == 'loss'")["value"]).all()
    table = predict(run, rows.manifest)
    assert len(table) == len(rows.manifest)
    assert table.filter(regex="^p_").to_numpy().sum(axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "network", [pytest.param(None, marks=pytest.mark.slow), "linear"]
)  # None: mlp
def test_learns_what_can_be_learnt(rows: Rows, network: str | None) -> None:
    """Columns that differ by nine orders of magnitude, on clean labels."""
    clean = rows.manifest.with_noisy_labels(rows.manifest.true_labels)
    run = srjt.train(
        clean, split=rows.split, network=network, method="standard", epochs=40, batch_size=16, device="cpu",
        learning_rate=5e-3,
    )  # fmt: skip
    test = clean.select(rows.split.test)
    right = np.mean(predict(run, test)["grade"].astype(int).to_numpy() == test.labels)
    assert right > 0.6
    assert np.bincount(test.labels).max() / len(test) < 0.45


def test_standardisation_uses_the_training_rows_only(rows: Rows) -> None:
    outliers = rows.x.copy()
    others = np.setdiff1d(np.arange(len(outliers)), rows.split.train)
    outliers[others] *= 1e3
    run = srjt.train(replace(rows.manifest, arrays=outliers), split=rows.split, **SETTINGS)
    learnt = rows.x[rows.split.train].astype(np.float64)
    for member in run.networks.members:
        (layer,) = (module for module in member.modules() if isinstance(module, Standardise))
        seen = layer(torch.from_numpy(rows.x[rows.split.train])).numpy()
        np.testing.assert_allclose(layer.mean.numpy(), learnt.mean(axis=0), rtol=1e-6)
        varying = np.ptp(learnt, axis=0) > 0
        assert varying.sum() == 9
        np.testing.assert_allclose(seen[:, varying].mean(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(seen[:, varying].std(axis=0), 1, rtol=0.01)
        assert layer.scale[~varying].tolist() == [1.0]
        np.testing.assert_allclose(seen[:, ~varying], 0, atol=1e-6)


def test_standardise_is_the_identity_until_it_is_set() -> None:
    layer, x = Standardise(3), torch.randn(5, 3)
    assert torch.equal(layer(x), x)
    standardise(torch.nn.Sequential(layer), np.array([[1.0, 2.0, 7.0], [3.0, 2.0, 7.0]]))
    expected = torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert torch.equal(layer(torch.tensor([[1.0, 2.0, 7.0], [3.0, 2.0, 7.0]])), expected)


def test_a_run_knows_the_file_of_its_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
    (tmp_path / "labels.csv").write_text("grade\n" + "0\n1\n" * 20)
    data = srjt.data.read(tmp_path / "rows.npy", labels=tmp_path / "labels.csv")
    srjt.train(data, out=tmp_path / "run", **{**SETTINGS, "epochs": 1})
    recorded = srjt.load_run(tmp_path / "run").facts.data
    assert recorded.source is not None
    assert recorded.labels is not None
    assert Path(recorded.source.path).name == "rows.npy"
    assert Path(recorded.labels.path).name == "labels.csv"
    assert len(recorded.labels.sha256) == 64


def test_defaults_are_saved_and_the_run_can_be_resumed(rows: Rows, run: Trained) -> None:
    written = json.loads((run.folder / "run.json").read_text())
    assert written["config"]["network"] == run.config.network == "mlp"
    assert written["config"]["learning_rate"] == run.config.learning_rate == 3e-4
    assert written["data"]["in_shape"] == [10]
    again = srjt.train(
        rows.manifest, split=rows.split, out=run.folder, **SETTINGS
    )  # the same command
    assert again.folder == run.folder
    with refuses("settings_changed", "out", says=("'mlp'", "'linear'")):
        srjt.train(
            rows.manifest, split=rows.split, out=run.folder, **{**SETTINGS, "network": "linear"}
        )
    other = rows.x.copy()
    other[rows.split.test[0], 0] += 1.0
    with refuses("settings_changed", "out", says="verified grades"):
        srjt.train(
            replace(rows.manifest, arrays=other), split=rows.split, out=run.folder, **SETTINGS
        )
    assert run.history["id"].tolist() == [rows.manifest.ids[i] for i in rows.split.train]
    assert run.history["seen"].max() == SETTINGS["epochs"]


def test_a_loaded_run_predicts_the_same(rows: Rows, run: Trained) -> None:
    loaded = load_run(run.folder, device="cpu")
    for made, read in zip(run.probabilities(rows.x), loaded.probabilities(rows.x), strict=True):
        np.testing.assert_array_equal(made, read)
    alone = np.concatenate([loaded.probabilities(rows.x[i : i + 1])[0] for i in range(5)], axis=1)
    np.testing.assert_allclose(alone, run.probabilities(rows.x)[0][:, :5], atol=1e-6)
    none, nothing = loaded.probabilities(rows.x[:0])  # no rows are no error
    assert none.shape == (len(alone), 0, alone.shape[-1])
    assert nothing.shape == (len(alone), 0)


@pytest.mark.slow
def test_an_interrupted_run_ends_as_an_uninterrupted_one(rows: Rows, tmp_path: Path) -> None:
    given = {**SETTINGS, "method": "mixup", "split": rows.split}
    srjt.train(rows.manifest, out=tmp_path / "whole", **given)
    with pytest.raises(Interrupted):
        srjt.train(rows.manifest, out=tmp_path / "parts", reporter=StopAt(2, 3), **given)
    srjt.train(rows.manifest, out=tmp_path / "parts", **given)
    for name in ("weights.safetensors", "history.csv", "summary.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_one_s_own_network(rows: Rows) -> None:
    own = {"network": lambda: torch.nn.Linear(10, 5), "method": "standard"}
    run = srjt.train(rows.manifest, split=rows.split, **{**SETTINGS, **own})
    assert run.probabilities(rows.x)[0].shape == (1, 150, 4)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (
            {"network": "timm:vit"},
            ("unsupported", "network", ("'timm:vit'", "'odds'")),
        ),
        ({"network": "lineer"}, ("unknown_name", "", ("'lineer'", "'linear'"))),
        ({"transform": lambda x: x}, ("unsupported", "transform")),
    ],
)
def test_what_does_not_fit_features(
    rows: Rows, settings: dict[str, Any], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        srjt.train(rows.manifest, split=rows.split, **{**SETTINGS, **settings})


@pytest.mark.slow
def test_a_run_is_applied_to_what_it_was_trained_on(
    rows: Rows, run: Trained, data: Any, train: Any
) -> None:
    with refuses("unsupported", says=("10 features", "to images")):
        predict(run, data.manifest)
    with refuses("unsupported", says=("10 features", "to rows of 3")):
        run.probabilities(rows.x[:, :3])
    with refuses("unsupported", "network", says="'mlp'"):
        train(network="mlp")
    images = train(epochs=1)
    with refuses("unsupported", says=("on images", "10 features")):
        predict(images, rows.manifest)


@pytest.mark.parametrize(
    ("given", "features", "network", "rate"),
    [
        ({}, False, "resnet18", 1e-3),
        ({"network": "linear"}, True, "linear", 1e-3),
        ({"learning_rate": 0.1, "method": "standard"}, True, "mlp", 0.1),
        ({"learning_rate": 0.1}, True, "auto", 0.1),  # held-out labels choose the head
        ({"learning_rate": 0.1, "network": "odds"}, True, "odds", None),
    ],
)
def test_defaults_depend_on_the_data(
    given: Any, features: bool, network: str, rate: float | None
) -> None:
    config = TrainConfig(**given).for_data(features=features, samples=10_000)
    assert (config.network, config.learning_rate) == (network, rate)
    assert (
        config.for_data(features=not features, samples=10_000) == config
    )  # once decided, it stays


def by_name(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with its columns in another order."""
    return frame[sorted(frame.columns, reverse=True)]


@pytest.mark.slow
def test_features_are_matched_by_name(rows: Rows, tmp_path: Path) -> None:
    """The order of a table's columns says nothing, in a file, in memory, and beside other
    columns."""
    names = [f"f{i}" for i in range(9)] + ["f10"]  # sorted as text, f10 comes second
    x = pd.DataFrame(rows.x, columns=names)
    labelled = x.assign(grade=rows.manifest.labels)
    labelled.to_csv(tmp_path / "a.csv", index=False)
    run = srjt.train(srjt.data.read(tmp_path / "a.csv"), out=tmp_path / "run", **SETTINGS)
    assert run.feature_names == load_run(tmp_path / "run").feature_names == tuple(names)
    expected = run.predict(x)["p_2"].tolist()
    other = by_name(x.assign(f11=1.0, age=40.0))
    other.to_parquet(tmp_path / "other.parquet")
    for data in (other, tmp_path / "other.parquet", rows.x):  # without names: by position
        assert predict(load_run(tmp_path / "run", device="cpu"), data)["p_2"].tolist() == expected
    scored = run.evaluate(by_name(labelled), resamples=10)
    assert scored.confusion == run.evaluate(labelled, resamples=10).confusion
    calibrated = [
        run.predict(x, coverage=0.9, calibrate_on=(frame, labelled["grade"]))["grade_high"].tolist()
        for frame in (x + 0.01, by_name(x + 0.01))  # not those that it was trained on
    ]
    assert calibrated[0] == calibrated[1]
    with refuses("missing_column", says=("the table", "1 of 10", "(f10)")):
        run.predict(x.rename(columns={"f10": "f9"}))
    with refuses("missing_column", says=("the data", "1 of 10")):
        run.evaluate(labelled.rename(columns={"f10": "f9"}))


@pytest.mark.slow
def test_a_run_finds_its_columns_by_their_names(rows: Rows, tmp_path: Path) -> None:
    """Also those whose names do not look like features, and without the pattern that the training
    needed."""
    x = pd.DataFrame(rows.x, columns=[f"area {i}" for i in range(9)] + ["a[0]"]).assign(age=50.0)
    x.assign(grade=rows.manifest.labels).to_csv(tmp_path / "a.csv", index=False)
    data = srjt.data.read(tmp_path / "a.csv", feature_columns=["area *", "a[0]"])
    assert data.feature_names == (*[f"area {i}" for i in range(9)], "a[0]")
    run = srjt.train(data, **SETTINGS)
    expected = run.predict(data)["p_1"].tolist()
    by_name(x).assign(image="a.png").to_csv(tmp_path / "new.csv", index=False)
    assert (
        run.predict(x)["p_1"].tolist()
        == run.predict(tmp_path / "new.csv")["p_1"].tolist()
        == expected
    )
    pair = srjt.train((x.drop(columns="age"), rows.manifest.labels), **SETTINGS)
    assert pair.predict(by_name(x))["p_1"].tolist() == expected
