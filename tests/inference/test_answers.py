"""The rule of a run: by its purpose, by another one, and for runs of older versions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.evaluate import evaluate_sides
from srjt.inference.options import Answering
from srjt.inference.predict import predict
from srjt.json_values import json_values
from srjt.ordinal.decoding import GradeRule, median_grade, undo_soft_labels
from srjt.ordinal.losses import soft_label_matrix
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

PS = ["p_0", "p_1", "p_2", "p_3"]
PURPOSES = ("mae", "accuracy", "qwk", "macro_f1")


def grade_rule(run: Trained, **options: Any) -> GradeRule:
    return calibrate_run(run, Answering(**options)).grade_rule


@pytest.fixture(scope="module")
def folder(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("purpose") / "run"
    train(out=out, noise_rate=0.2, epochs=2, target_metric="qwk", method="co-teaching+ours")
    return out


def with_validation(run: Trained, copies: int) -> Trained:
    """The same run with each validation sample several times: enough of them to fit thresholds."""
    side = run.held_out["validation"]
    p, labels = np.tile(side.probabilities, (1, copies, 1)), np.tile(side.labels, copies)
    many = HeldOut(ids=side.ids * copies, probabilities=p, labels=labels)
    return replace(run, held_out={**run.held_out, "validation": many})


@pytest.fixture(scope="module")
def run(folder: Path) -> Trained:
    return with_validation(srjt.load_run(folder, device="cpu"), 4)


def test_the_purpose_of_the_run_is_the_default(run: Trained, data: Any) -> None:
    table = predict(run, data.manifest)
    rule = grade_rule(run)
    assert (rule.decoding, rule.purpose) == ("thresholds", "qwk")
    assert table.attrs["how"]["grade"] == json_values(rule)
    p = table[PS].to_numpy(np.float64)
    grades = np.digitize(p @ np.arange(4), rule.thresholds, right=True)
    assert table["grade"].astype(int).tolist() == grades.tolist()
    assert predict(run, data.manifest, target_metric="qwk")["grade"].equals(table["grade"])


def test_soft_labels_are_undone_for_the_median(run: Trained, data: Any) -> None:
    table = predict(run, data.manifest, target_metric="mae")
    p = torch.from_numpy(table[PS].to_numpy())
    undone = median_grade(undo_soft_labels(p, soft_label_matrix(4)))
    assert table["grade"].astype(int).tolist() == undone.tolist()
    assert table.attrs["how"]["grade"]["undoes_soft_labels"]
    plain = predict(
        run, data.manifest, decoding="median", target_metric="mae"
    )  # the rule itself overrides
    assert plain["grade"].astype(int).tolist() == median_grade(p).tolist()
    assert plain.attrs["how"]["grade"] == json_values(GradeRule(decoding="median"))


def test_each_network_has_thresholds_of_its_own(run: Trained) -> None:
    one, two = (grade_rule(run, network=network).thresholds for network in ("1", "2"))
    assert one != two


def test_no_label_moves_a_threshold(run: Trained) -> None:
    side = run.held_out["validation"]
    for labels in ((side.labels + 1) % 4, side.probabilities.mean(axis=0).argmax(axis=1)):
        other = replace(run, held_out={**run.held_out, "validation": replace(side, labels=labels)})
        assert (
            grade_rule(other, target_metric="qwk").thresholds
            == grade_rule(run, target_metric="qwk").thresholds
        )
        fitted = {grade_rule(one, target_metric="macro_f1").thresholds for one in (run, other)}
        assert len(fitted - {()}) <= 1  # labels tell only whether thresholds are used
    assert (
        grade_rule(other, target_metric="macro_f1").decoding == "argmax"
    )  # which these labels are


def test_without_a_validation_side_no_threshold_is_fitted(run: Trained, data: Any) -> None:
    bare = replace(run, held_out={}, config=run.config.replace(target_metric="mae"))
    rules = {purpose: grade_rule(bare, target_metric=purpose).decoding for purpose in PURPOSES}
    assert rules == {"mae": "median", "accuracy": "argmax", "qwk": "median", "macro_f1": "argmax"}
    assert predict(bare, data.manifest).attrs["how"]["grade"]["purpose"] == "mae"
    argmax = predict(bare, data.manifest, decoding="argmax")
    assert argmax["grade"].astype(int).tolist() == argmax[PS].to_numpy().argmax(axis=1).tolist()
    assert evaluate_sides(bare) == {}


def test_scores_of_the_held_out_sides(run: Trained, data: Any) -> None:
    scores = evaluate_sides(run)["test"].intervals
    found = srjt.evaluate(run, data.manifest.select(data.split.test), resamples=20)
    assert found.grade_rule == grade_rule(run)
    for name, interval in found.intervals.items():
        assert scores[name].value == pytest.approx(interval.value, nan_ok=True)


def test_methods_that_predict_true_grades_have_nothing_undone() -> None:
    for method, options, undone in (
        ("sord", {}, True),
        ("standard", {}, False),
        ("sord", {"label_matrix": np.eye(4).tolist()}, False),
        ("co-teaching", {}, False),
        ("jocor+ours", {}, True),
    ):
        built = srjt.methods.create(method, num_classes=4, noise_rate=0.2, **options)
        assert (built.learnt_soft_labels() is not None) == undone


@pytest.mark.slow
@pytest.mark.parametrize("purpose", PURPOSES)
def test_onnx_decodes_as_predict(run: Trained, data: Any, tmp_path: Path, purpose: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    written = srjt.export(
        run, tmp_path / "model.onnx", samples=data.manifest.arrays, target_metric=purpose
    )
    table = predict(run, data.manifest, target_metric=purpose)
    assert written.metadata["grade_rule"] == table.attrs["how"]["grade"]
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    _, grade, _ = session.run(None, {"images": data.manifest.arrays})
    assert [run.grades[g] for g in grade] == table["grade"].tolist()
    stored = session.get_modelmeta().custom_metadata_map["grade_rule"]
    assert json.loads(stored) == table.attrs["how"]["grade"]
