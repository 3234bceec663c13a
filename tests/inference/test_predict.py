"""Predictions: how they are answered, progress, columns of the user's own."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import srjt
from fixtures.held_out_runs import GRADES, drawn_side, made_run
from refusals import refuses
from srjt.data import Manifest, folds, from_arrays
from srjt.data.images.feed import ResidentFeed
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.evaluate import evaluate, evaluate_sides
from srjt.inference.explain import network_maps
from srjt.inference.options import Answering
from srjt.inference.predict import predict
from srjt.json_values import json_values
from srjt.ordinal.decisions import decision_confidence
from srjt.ordinal.decoding import GradeRule
from srjt.reports.pages.answers import predictions_page
from srjt.training.batches import evaluation_batch_size
from srjt.training.checkpoint import read_metrics
from srjt.training.crossfit import features
from srjt.training.reporters import BarReporter
from srjt.training.trained import Trained, use_run_settings

PS = ["p_0", "p_1", "p_2", "p_3"]


def test_columns_and_their_relations(image_run: Trained, data: Any) -> None:
    table = predict(image_run, data.manifest, decoding="argmax")
    assert list(table) == [
        "image",
        "patient",
        "grade",
        *PS,
        "expected_grade",
        "entropy",
        "disagreement",
        "in_training",
    ]
    assert table["image"].tolist() == data.manifest.table["image"].tolist()
    p = table[PS].to_numpy(np.float64)
    assert p.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert table["grade"].astype(int).to_numpy().tolist() == p.argmax(axis=1).tolist()
    assert table["expected_grade"].to_numpy() == pytest.approx(p @ np.arange(4), abs=1e-5)
    assert table["entropy"].to_numpy() == pytest.approx(-(p * np.log(p)).sum(axis=1), abs=1e-5)
    one, two = (predict(image_run, data.manifest, network=n)[PS].to_numpy() for n in ("1", "2"))
    assert p == pytest.approx((one + two) / 2, abs=1e-6)
    assert not np.allclose(one, two)
    assert table["disagreement"].to_numpy() == pytest.approx(
        np.abs(one - two).sum(axis=1) / 2, abs=1e-6
    )
    assert table["disagreement"].between(0, 1).all()


def test_decoding(image_run: Trained, data: Any) -> None:
    p = predict(image_run, data.manifest)[PS].to_numpy(np.float64)
    median = predict(image_run, data.manifest, decoding="median")["grade"].astype(int)
    below = p.cumsum(axis=1)
    clear = (np.abs(below - 0.5) > 1e-6).all(
        axis=1
    )  # elsewhere rounding decides, which differs by machine
    assert clear.mean() > 0.9
    assert median[clear].tolist() == (below < 0.5).sum(axis=1)[clear].tolist()
    expected = predict(image_run, data.manifest, decoding="expected")["grade"].astype(int)
    assert np.abs(expected.to_numpy() - p @ np.arange(4)).max() <= 0.5 + 1e-6


def test_a_single_network_has_no_second_and_no_disagreement(data: Any, train: Any) -> None:
    single = train(method="standard", epochs=1)
    assert "disagreement" not in predict(single, data.manifest)
    assert predict(single, data.manifest, network="1").equals(predict(single, data.manifest))
    with refuses("out_of_bounds", "network", says="network 2"):
        predict(single, data.manifest, network="2")


def test_an_ordinal_head_decides_by_its_own_rule(data: Any, train: Any) -> None:
    run = train(method="garg", transition=data.matrix)
    grades = run.probabilities(data.manifest.arrays)[1][0]
    table = predict(run, data.manifest, decoding="argmax")
    assert table["grade"].astype(int).tolist() == grades.tolist()
    assert table.attrs["how"]["grade"]["method"] == "garg"


def test_evaluate_agrees_with_the_training(
    image_run: Trained, image_folder: Path, data: Any
) -> None:
    test = data.manifest.select(data.split.test)
    logged = read_metrics(image_folder / "metrics.csv").query("split == 'test' and epoch == 3")
    for network in ("ensemble", "1", "2"):
        found = evaluate(image_run, test, network=network, decoding="argmax", resamples=50)
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


@pytest.mark.slow
def test_runs_and_data_may_be_paths(
    image_folder: Path, image_run: Trained, data: Any, labels: Path
) -> None:
    expected = predict(image_run, data.manifest)[PS].to_numpy()
    by_table = predict(image_folder, labels)  # the table, and with it the order of the manifest
    near = (
        5e-3 if torch.cuda.is_available() else 1e-6
    )  # a GPU, which the path is opened on, rounds otherwise
    assert by_table[PS].to_numpy() == pytest.approx(expected, abs=near)
    by_folder = predict(str(image_folder), str(labels.parent))  # every image below it
    assert sorted(by_folder["image"]) == sorted(by_table["image"])
    found = evaluate(image_folder, labels, resamples=20)
    assert found.confusion == evaluate(image_run, data.manifest, resamples=20).confusion
    assert found.judged_by == "true grades"


def test_further_rows_of_an_image_are_not_left_out(
    image_run: Trained, labels: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(labels, dtype=str)
    table["image"] = [str(labels.parent / name) for name in table["image"]]
    file = tmp_path / "readings.csv"
    pd.concat([table, table.head(7)]).to_csv(file, index=False)
    answers = predict(image_run, file)
    page = predictions_page(answers)
    assert len(answers) == len(table)
    assert "Images in several rows, with one answer each: 7." in page.remarks
    assert not any("left out" in warning for warning in page.warnings)


def test_training_samples_are_noticed(
    run: Trained,
    features: Manifest,
    data: Any,
    train: Any,
    labels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what they are, under any name; of many files, those with the name or the id of a training
    sample."""
    sides = folds(features)[0]
    of_files = train(labels, method="standard", epochs=1)
    both = np.concatenate([sides.train[:5], sides.test])
    seen = {
        "rows": predict(run, features.select(both)),
        "unseen": predict(run, features.select(sides.test)),
        "per patient": predict(run, features.select(sides.train[:40]), per="patient"),
        "files": predict(of_files, labels),
    }
    # another image with the same name
    other = tmp_path / Path(of_files.training_ids[0]).name
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(other)
    seen["other"] = predict(of_files, other)
    # ids that are no names, and names of images without their suffix
    table = pd.read_csv(labels)
    table["image"] = [str(labels.parent / name) for name in table["image"]]
    codes = table.assign(id=[f"case.{row}" for row in range(len(table))])
    stems = table.assign(image=[str(Path(name).with_suffix("")) for name in table["image"]])
    by_table = {}
    for name, changed in {"codes": codes, "stems": stems}.items():
        file = tmp_path / f"{name}.csv"
        changed.to_csv(file, index=False)
        by_table[name] = train(file, method="standard", epochs=1)
        seen[name] = predict(by_table[name], file)
    monkeypatch.setattr("srjt.inference.predict.ALL_COMPARED", 10)
    seen["many files"] = predict(of_files, labels)
    seen["many files, names without suffix"] = predict(by_table["stems"], labels)
    trained = len(data.split.train)
    expected = [5, 0, 40, trained, 0, trained, trained, trained, trained]
    assert [table.attrs["seen_in_training"] for table in seen.values()] == expected
    assert seen["rows"]["in_training"].tolist() == np.isin(both, sides.train).tolist()
    assert "in_training" not in seen["unseen"]
    assert seen["per patient"]["in_training"].all()
    of_all, of_named = seen["stems"], seen["many files, names without suffix"]
    assert of_all["in_training"].sum() == trained
    assert of_named["in_training"].equals(of_all["in_training"])
    assert predict(by_table["codes"], labels).attrs["seen_in_training"] is None
    sentence = f"The run was trained on 5 of these {len(both)} samples"
    assert any(warning.startswith(sentence) for warning in predictions_page(seen["rows"]).warnings)
    assert not any(
        "was trained on" in warning for warning in predictions_page(seen["unseen"]).warnings
    )
    unknown = predict(replace(run, hashes=None), features.select(both))
    assert unknown.attrs["seen_in_training"] is None
    assert not any("was trained on" in one for one in predictions_page(unknown).warnings)


def test_mistaken_runs_and_data_are_one_sentence(
    image_run: Trained, data: Any, tmp_path: Path
) -> None:
    for function in (predict, evaluate):
        with refuses("wrong_type", says="dict"):
            function({}, data.manifest)  # type: ignore[operator]
        with refuses("wrong_type", says="int"):
            function(image_run, 7)  # type: ignore[operator]
    np.savez(tmp_path / "images.npz", images=data.manifest.arrays)
    with refuses("wrong_file", says="images.npz"):
        predict(image_run, tmp_path / "images.npz")


# How answers came about: what is said is what was done.
def test_what_is_said_is_what_was_done(run: Trained, features: Manifest) -> None:
    few = features.select(np.arange(80))
    table = srjt.predict(
        run, few, per="patient", refer_from="2", sensitivity=0.9, abstain=0.2, coverage=0.8
    )
    how, threshold, cut = (table.attrs[name] for name in ("how", "threshold", "cut"))
    json.dumps(table.attrs)  # plain values, as pandas writes them to Parquet
    score = (table["p_2"] + table["p_3"]).to_numpy()
    assert ((score >= threshold) == (table["refer"] == "yes")).all()
    assert (how["refer"]["grade"], how["refer"]["threshold"]) == ("2", threshold)
    assert how["refer"]["origin"]["kind"] == "validation"
    assert (
        (decision_confidence(score, threshold=threshold) < cut) == (table["unsure"] == "yes")
    ).all()
    assert how["unsure"] == {"about": "referral", "cut": cut, "share": 0.2}
    assert how["calibrated on"] == {"samples": 120, "patients": 30, "validation": True}
    assert how["one answer per"] == {"columns": ["patient"], "pool": "highest", "learned": None}
    assert (how["networks"]["number"], how["precision"]) == (1, "fp32")
    assert "patient" in srjt.report(table).title
    assert type(table.head(2)).__name__ == "DataFrame"
    again = pickle.loads(pickle.dumps(table))
    assert not hasattr(again, "run")
    pd.testing.assert_frame_equal(pd.DataFrame(again), pd.DataFrame(table))
    assert how["range"]["coverage"] == 0.8

    images = srjt.predict(run, few).sort_values(["grade", "expected_grade"])
    assert dict(zip(table["patient"], table["highest_image"], strict=True)) == dict(
        zip(images["patient"], images["image"], strict=True)  # the last of each patient
    )


@pytest.mark.slow
def test_what_was_not_asked_for_is_not_said(run: Trained, features: Manifest) -> None:
    few = features.select(np.arange(8))
    run = replace(run, config=run.config.replace(precision="tf32"))  # which a CPU does not have
    table = srjt.predict(run, few, recalibrate=False, decoding="argmax")
    assert table.attrs["how"] == {
        "networks": {"number": 1, "used": "ensemble"},
        "views": 1,
        "precision": "fp32",
        "recalibration": None,
        "grade": json_values(GradeRule(decoding="argmax")),
    }
    assert (table.attrs["threshold"], table.attrs["cut"]) == (None, None)
    other = features.select(folds(features)[0].test)
    given = srjt.predict(
        run, few, calibrate_on=other, coverage=0.8, refer_from="1", threshold="grade"
    )
    how = given.attrs["how"]
    assert how["calibrated on"] == {"samples": 120, "patients": 30, "validation": False}
    assert (how["refer"]["threshold"], how["refer"]["origin"]["kind"]) == (None, "grade")


# The bar over DICOM headers, which the reading of data shows, obeys the ``progress`` of the caller.
class ReadError(Exception):
    """The data would have been read."""


CALLS: dict[str, Callable[..., Any]] = {
    "train": lambda path, **how: srjt.train(path, **how),
    "evaluate": lambda path, **how: srjt.evaluate(made_run(held_out={"validation": drawn_side(40)}), path, **how),
    "study": lambda path, **how: srjt.study(path, methods=["standard"], out=path.parent / "study", **how),
}  # fmt: skip
CASES = [(name, {"progress": shown}, shown) for name in CALLS for shown in (True, False)]
CASES += [
    ("train", {"reporter": BarReporter()}, False),
    ("evaluate", {"progress": lambda *step: None}, False),
]


@pytest.mark.parametrize(("name", "how", "shown"), CASES)
def test_the_bar_obeys_the_caller(
    monkeypatch: Any, tmp_path: Path, name: str, how: Any, shown: bool
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,grade\n" + "".join(f"{grade}.dcm,{grade}\n" for grade in GRADES))
    seen = []

    def read_headers(reading: object, *, progress: object) -> None:
        seen.append(progress)
        raise ReadError

    monkeypatch.setattr("srjt.data.sources.folders.with_patients_of_headers", read_headers)
    with pytest.raises(ReadError):
        CALLS[name](table, **how)
    assert seen == [shown]


# Data whose grades or columns have names that differ from the run's, or are those of its answers.
def test_samples_with_another_scale_are_refused(run: Trained, features: Manifest) -> None:
    """Without the mildest grade, labels are other positions: they would be compared with the wrong
    grades."""
    severe = features.select(np.flatnonzero(features.labels > 0))
    other = from_arrays(severe.arrays, severe.labels)
    assert other.grades == ("1", "2", "3")
    with refuses("no_match", says=("1, 2, 3,", "0, 1, 2, 3")):
        srjt.evaluate(run, other)
    with refuses("no_match", says=("1, 2, 3,", "0, 1, 2, 3")):
        srjt.predict(run, features, coverage=0.9, calibrate_on=other)
    assert srjt.evaluate(run, (severe.arrays, severe.labels), resamples=0).samples == len(severe)


@pytest.mark.parametrize(
    "how",
    [
        {"per": "patient", "pool": "mean"},
        pytest.param({"per": ("patient", "eye"), "pool": "learned"}, marks=pytest.mark.slow),
        pytest.param({"per": ("patient", "eye"), "coverage": 0.9}, marks=pytest.mark.slow),
        pytest.param(
            {"decoding": "expected", "network": "ensemble", "refer_from": 2}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_expected_error_is_that_of_the_same_answers(
    run: Trained, features: Manifest, how: Any
) -> None:
    test = features.select(folds(features)[0].test)
    found = srjt.evaluate(run, test, **how)
    page = srjt.report(srjt.predict(run, test, **how))
    value, low, high = found.intervals["mae"]
    assert (
        f"{value:.2f} grades off on average ({low:.2f} – {high:.2f}), as on the run's" in page.lead
    )
    assert evaluate_sides(run, Answering(per=found.per))["test"].samples == found.samples
    test.table["series"] = "s"
    lead = srjt.report(srjt.predict(run, test, per=("patient", "series"))).lead
    assert lead.endswith(": the run keeps no series of what it held out.")


def test_the_own_validation_side_is_known_to_be_fitted_to(run: Trained, features: Manifest) -> None:
    own = evaluate_sides(run, resamples=0)
    validation = features.select(
        [features.ids.index(name) for name in run.held_out["validation"].ids]
    )
    assert own["validation"].overlaps == srjt.evaluate(run, validation, resamples=0).overlaps != ()
    assert own["test"].overlaps == ()


@pytest.mark.slow
def test_samples_are_known_by_what_they_show(run: Trained, features: Manifest) -> None:
    fresh = np.random.default_rng(7).normal(size=features.arrays.shape).astype(np.float32)
    other = from_arrays(fresh, features.labels.copy())
    assert set(other.ids) & set(run.held_out["validation"].ids)
    assert srjt.evaluate(run, other, resamples=0).overlaps == ()
    assert srjt.compare(run, run, test=other, resamples=10).trained_on == {}
    renamed = from_arrays(features.arrays[::-1].copy(), features.labels[::-1].copy())
    learnt = srjt.compare(run, run, test=renamed, resamples=10).trained_on
    assert set(learnt.values()) == {len(folds(features)[0].train)}
    validation = features.select(
        [features.ids.index(name) for name in run.held_out["validation"].ids]
    )
    (same,) = srjt.evaluate(run, validation, resamples=0).overlaps
    assert (same.samples, same.patients) == (len(validation), len(set(validation.patients or [])))
    test = features.select(folds(features)[0].test)
    how: dict[str, Any] = {"coverage": 0.8, "label_noise": "none", "recalibrate": False}
    (same,) = srjt.evaluate(run, test, calibrate_on=test, resamples=2, **how).overlaps
    assert (same.to, same.fitted, same.samples) == ("calibrate_on", ("ranges",), len(test))


def test_columns_with_the_names_of_ours_are_kept_under_another(
    run: Trained, features: Manifest
) -> None:
    named = features.select(np.arange(40))
    named.table["refer"] = "their word"
    table = srjt.predict(run, named, keep=["refer"], refer_from="2")
    assert set(table["refer"]) <= {"yes", "no"}
    assert set(table["refer_source"]) == {"their word"}
    names = [f"f{column}" for column in range(named.arrays.shape[1])]  # type: ignore[union-attr]
    frame = pd.DataFrame(named.arrays, columns=names).assign(true_grade="one")
    assert set(srjt.predict(run, frame, keep=["true_grade"])["true_grade"]) == {"one"}


def test_nothing_to_pool_is_said_in_one_sentence(run: Trained, features: Manifest) -> None:
    nobody = features.select(np.arange(0))
    assert len(srjt.predict(run, nobody)) == 0
    with refuses("too_few", says="patient"):
        srjt.predict(run, nobody, per="patient", coverage=0.8)


@pytest.mark.parametrize("name", ["grade", "p_2"])
def test_a_column_with_the_name_of_ours_pools_nothing(
    run: Trained, features: Manifest, name: str
) -> None:
    few = features.select(np.arange(40))
    few.table[name] = few.table["patient" if name != "grade" else name]
    for use in (srjt.predict, srjt.evaluate):
        with refuses("name_in_use", "per", says=name):
            use(run, few, per=["patient", name])


# The precision of predictions, and the size of evaluation batches.
def test_another_precision_does_not_change_the_run(image_run: Trained, data: Any) -> None:
    run = replace(image_run, config=image_run.config.replace(precision="tf32"))
    precise = calibrate_run(run, Answering(precision="fp32")).applied
    assert (precise.config.precision, run.config.precision) == ("fp32", "tf32")
    arrays = data.manifest.arrays
    assert np.array_equal(precise.probabilities(arrays)[0], run.probabilities(arrays)[0])


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_on_a_gpu_the_flags_are_the_run_s(
    image_run: Trained, precision: str, monkeypatch: Any
) -> None:
    def flags() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    config = image_run.config.replace(precision=precision)
    on_gpu = replace(image_run, config=config, device=torch.device("cuda"))
    matmul, strict = torch.get_float32_matmul_precision(), torch.get_deterministic_debug_mode()
    try:
        for theirs in ("highest", "medium"):
            torch.set_float32_matmul_precision(theirs)
            torch.use_deterministic_algorithms(True, warn_only=True)
            before = flags()
            with use_run_settings(on_gpu):
                assert flags() == (precision != "fp32",) * 2
            assert flags() == before
            assert torch.get_float32_matmul_precision() == theirs
            assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.set_deterministic_debug_mode(strict)


def test_everything_is_computed_with_the_flags_of_the_run(data: Any, train: Any) -> None:
    """deterministic: the flag that a CPU has too."""
    seen: list[bool] = []

    class Recording(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.backends.cudnn.deterministic)
            return super().forward(x)

    def network() -> nn.Module:
        return Recording(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())

    run = train(network=network, method="standard", epochs=1, deterministic=True)
    assert all(
        seen[1:]
    )  # also for the held-out sides; the first call only finds the number of features
    pixels = data.manifest.arrays[:4]
    calls = {
        "probabilities": lambda: run.probabilities(pixels),
        "maps": lambda: network_maps(run, pixels),
        "neighbours": lambda: features(run, ResidentFeed(torch.from_numpy(pixels)), np.arange(4)),
    }
    for name, call in calls.items():
        seen.clear()
        call()
        assert seen, name
        assert all(seen), name
        assert not torch.are_deterministic_algorithms_enabled()


def test_mistakes(image_run: Trained, data: Any) -> None:
    with refuses("unknown_name", "precision"):
        predict(image_run, data.manifest, precision="bf8")
    with refuses("option_without_effect", "precision"):
        calibrate_run(replace(image_run, in_shape=(5,)), Answering(precision="bf16"))
    with refuses("unsupported", "precision"):
        predict(image_run, data.manifest, precision="bf16")


@pytest.mark.parametrize(
    ("crop", "size"), [(28, 1024), (112, 128), (224, 32), (448, 8), (10_000, 1)]
)
def test_batches_on_a_cpu_do_not_grow_with_the_images(crop: int, size: int) -> None:
    feed = ResidentFeed(torch.zeros(1, 2, 2, 3, dtype=torch.uint8))
    assert evaluation_batch_size(feed, crop=crop, largest=1024) == size
    on_gpu = ResidentFeed(torch.zeros(1, 2, 2, 3, dtype=torch.uint8, device="meta"))
    features = ResidentFeed(torch.zeros(1, 5))
    assert {evaluation_batch_size(f, crop=crop, largest=1024) for f in (on_gpu, features)} == {1024}
