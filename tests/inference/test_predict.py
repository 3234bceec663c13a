"""Predictions: what each column means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from srjt.errors import SrjtError
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.training.trained import Trained


@pytest.fixture(scope="module")
def folder(data: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    srjt.train(
        data.manifest, out=out, split=data.split, noise_rate=0.2, network="tiny", image_size=32, crop=28, epochs=3,
        batch_size=16, learning_rate=1e-3, tune_cpu=False, device="cpu",
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> Trained:
    return srjt.load_run(folder, device="cpu")


PS = ["p_0", "p_1", "p_2", "p_3"]


def test_columns_and_their_relations(run: Trained, data: Any) -> None:
    table = predict(run, data.manifest, decoding="argmax")
    assert list(table.columns) == [
        "image",
        "patient",
        "grade",
        *PS,
        "expected_grade",
        "entropy",
        "disagreement",
    ]
    assert table["image"].tolist() == data.manifest.table["image"].tolist()
    p = table[PS].to_numpy(np.float64)
    assert p.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert table["grade"].astype(int).to_numpy().tolist() == p.argmax(axis=1).tolist()
    assert table["expected_grade"].to_numpy() == pytest.approx(p @ np.arange(4), abs=1e-5)
    assert table["entropy"].to_numpy() == pytest.approx(-(p * np.log(p)).sum(axis=1), abs=1e-5)
    one, two = (predict(run, data.manifest, network=n)[PS].to_numpy() for n in ("1", "2"))
    assert p == pytest.approx((one + two) / 2, abs=1e-6)
    assert not np.allclose(one, two)
    assert table["disagreement"].to_numpy() == pytest.approx(np.abs(one - two).sum(axis=1) / 2, abs=1e-6)
    assert table["disagreement"].between(0, 1).all()


def test_decoding(run: Trained, data: Any) -> None:
    p = predict(run, data.manifest)[PS].to_numpy(np.float64)
    median = predict(run, data.manifest, decoding="median")["grade"].astype(int)
    below = p.cumsum(axis=1)
    clear = (np.abs(below - 0.5) > 1e-6).all(
        axis=1
    )  # elsewhere float32 rounding decides, which differs by machine
    assert clear.mean() > 0.9
    assert median[clear].tolist() == (below < 0.5).sum(axis=1)[clear].tolist()
    expected = predict(run, data.manifest, decoding="expected")["grade"].astype(int)
    assert np.abs(expected.to_numpy() - p @ np.arange(4)).max() <= 0.5 + 1e-6


def test_opened_from_its_folder_it_predicts_the_same(
    data: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    trained = srjt.train(data.manifest, out=tmp_path / "run", **settings)
    opened = srjt.load_run(tmp_path / "run", device="cpu")
    for a, b in zip(
        trained.probabilities(data.manifest.arrays), opened.probabilities(data.manifest.arrays), strict=True
    ):
        assert np.array_equal(a, b)


def test_the_size_of_a_batch_does_not_matter(run: Trained, data: Any) -> None:
    whole = run.probabilities(data.manifest.arrays)[0]
    few = run.probabilities(data.manifest.arrays[:7])[0]
    assert few == pytest.approx(whole[:, :7], abs=1e-6)


def test_a_single_network_has_no_second_and_no_disagreement(data: Any, settings: dict[str, Any]) -> None:
    single = srjt.train(data.manifest, **{**settings, "method": "standard", "epochs": 1})
    assert "disagreement" not in predict(single, data.manifest)
    assert predict(single, data.manifest, network="1").equals(predict(single, data.manifest))
    with pytest.raises(SrjtError, match=r"has 1 network\(s\): there is no network 2"):
        predict(single, data.manifest, network="2")


def test_an_ordinal_head_decides_by_its_own_rule(data: Any, settings: dict[str, Any]) -> None:
    run = srjt.train(data.manifest, **{**settings, "method": "garg"}, transition=data.matrix)
    grades = run.probabilities(data.manifest.arrays)[1][0]
    table = predict(run, data.manifest, decoding="argmax")
    assert table["grade"].astype(int).tolist() == grades.tolist()
    assert table.attrs["grade_rule"] == "what garg itself decides on"


def test_misspelt_choices(run: Trained, data: Any) -> None:
    with pytest.raises(SrjtError, match="Unknown network 'ensembel': did you mean 'ensemble'"):
        evaluate(run, data.manifest, network="ensembel")
    with pytest.raises(SrjtError, match="Unknown decoding 'medain': did you mean 'median'"):
        evaluate(run, data.manifest, decoding="medain")


def test_evaluate_agrees_with_the_metrics_of_the_training(run: Trained, folder: Path, data: Any) -> None:
    from srjt.training.record.metrics_log import read_metrics

    test = data.manifest.select(data.split.test)
    logged = read_metrics(folder / "metrics.csv").query("split == 'test' and epoch == 3")
    for network in ("ensemble", "1", "2"):
        found = evaluate(run, test, network=network, decoding="argmax", resamples=50)
        assert found.judged_by == "true grades"
        assert found.by_patient
        assert found.samples == len(test) == np.sum(found.confusion)
        mine = logged[logged["network"] == network].set_index("metric")["value"]
        for name, interval in found.intervals.items():
            assert interval.value == pytest.approx(mine[name], nan_ok=True)
            assert interval.low - 1e-12 <= interval.value <= interval.high + 1e-12
    as_dict = found.to_dict()
    assert set(as_dict["intervals"]["accuracy"]) == {"value", "low", "high"}
    assert sum(b["samples"] for b in as_dict["calibration"]) == len(test)


def test_runs_and_data_may_be_paths(folder: Path, run: Trained, data: Any, labels: Path) -> None:
    expected = predict(run, data.manifest)[PS].to_numpy()
    by_table = predict(folder, labels)  # the table, and with it the order of the manifest
    assert by_table[PS].to_numpy() == pytest.approx(expected, abs=1e-6)
    by_folder = predict(str(folder), str(labels.parent))  # every image below it
    assert sorted(by_folder["image"]) == sorted(by_table["image"])
    found = evaluate(folder, labels, resamples=20)
    assert found.confusion == evaluate(run, data.manifest, resamples=20).confusion
    assert found.judged_by == "true grades"


def test_mistaken_runs_and_data_are_one_sentence(run: Trained, data: Any, tmp_path: Path) -> None:
    for function in (predict, evaluate):
        with pytest.raises(SrjtError, match="is not the folder of a run"):
            function(tmp_path, data.manifest)
        with pytest.raises(SrjtError, match=r"A run is what srjt\.train returns, .*; got dict"):
            function({}, data.manifest)  # type: ignore[operator]
        with pytest.raises(SrjtError, match=r"Data are a manifest, a path, .*; got int"):
            function(run, 7)  # type: ignore[operator]
        with pytest.raises(SrjtError, match="nowhere does not exist"):
            function(run, tmp_path / "nowhere")
    with pytest.raises(SrjtError, match=r"pair \(images, grades\)"):
        evaluate(run, data.manifest.arrays)
    np.savez(tmp_path / "images.npz", images=data.manifest.arrays)
    with pytest.raises(SrjtError, match=r"takes images, and .*images\.npz is a file of arrays"):
        predict(run, tmp_path / "images.npz")
