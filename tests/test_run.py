"""What ``srjt.train`` returns: scores, a summary, a plot and the verbs of the package as
methods."""

import inspect
import pickle
from typing import Any

import pytest

import srjt
from fixtures.held_out_runs import drawn_side, made_run
from fixtures.small_images import Data
from srjt.data.grades import Grades
from srjt.errors import SrjtError
from srjt.inference.evaluate import evaluate_sides
from srjt.run import Run
from srjt.training import train as training


@pytest.fixture(scope="module")
def run(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(out=tmp_path_factory.mktemp("run") / "run")


def as_run(**fields: Any) -> Run:
    return Run(**vars(made_run(**fields)))


def test_the_public_functions_are_those_of_training_with_another_result() -> None:
    public, below = inspect.signature(srjt.train), inspect.signature(training.train)
    assert public.parameters == below.parameters
    assert public.return_annotation is Run
    assert srjt.train.__doc__ == training.train.__doc__


def test_scores_are_those_of_predict_with_intervals_and_naive_ones(run: Run, data: Data) -> None:
    values = evaluate_sides(run)
    for (side, metric), row in run.scores.iterrows():  # type: ignore[misc]
        assert row["value"] == pytest.approx(values[side].intervals[metric].value)
        assert row["low"] <= row["value"] <= row["high"]
    assert set(run.scores.index.get_level_values("side")) == {"test", "validation"}
    true, given = data.manifest.true_labels[data.split.test], data.manifest.labels[data.split.train]
    commonest = max(set(given.tolist()), key=given.tolist().count)
    assert run.scores.loc[("test", "accuracy"), "naive"] == pytest.approx(
        (true == commonest).mean()
    )


def test_repr_is_one_short_line(run: Run) -> None:
    accuracy = run.scores.loc[("test", "accuracy"), "value"]
    assert repr(run) == (
        f"<Run: srjt, tiny, 3 epochs, {run.folder}; test accuracy {accuracy:.3f}, "
        f"MAE {run.scores.loc[('test', 'mae'), 'value']:.3f}>"
    )


@pytest.mark.slow
def test_summary_is_the_page_of_the_run(run: Run, data: Data) -> None:
    lines = str(run.summary()).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    numbers = {number.label: number for number in srjt.report(run).key_numbers}
    assert numbers["training samples"].value == str(len(data.split.train))
    mae = run.scores.loc[("test", "mae")]
    assert numbers["mean absolute error ↓"].value == f"{mae['value']:.3f}"
    assert numbers["mean absolute error ↓"].compared == f"one grade: {mae['naive']:.3f}"
    assert f"{len(data.split.test)} test images of" in " ".join(lines[:2])


@pytest.mark.slow
def test_a_loaded_run_has_the_same_summary_and_plot(run: Run) -> None:
    opened = srjt.load_run(run.folder, device="cpu")
    assert str(opened.summary()) == str(run.summary())
    assert opened.metrics.equals(run.metrics)
    assert len(opened.plot().axes) == 3  # accuracy, MAE, confusion matrix


def test_verbs_are_those_of_the_package(run: Run, data: Data) -> None:
    some = data.manifest.select([0, 1, 2, 3])
    assert run.predict(some, target_metric="accuracy").equals(
        srjt.predict(run, some, target_metric="accuracy")
    )
    assert (
        run.evaluate(some, resamples=20).confusion
        == srjt.evaluate(run, some, resamples=20).confusion
    )
    assert run.predict(data.manifest, per="patient")["patient"].is_unique


def test_a_run_without_metrics_or_sides_says_so() -> None:
    nothing = as_run()
    assert repr(nothing) == "<Run: standard, resnet18, 150 epochs>"
    assert nothing.summary().key_numbers == []
    assert nothing.scores.empty
    assert "<svg" not in srjt.report(nothing)._repr_html_()
    with pytest.raises(SrjtError, match="nothing to plot"):
        nothing.plot()


def test_without_patients_the_intervals_are_said_to_be_too_narrow() -> None:
    page = as_run(held_out={"validation": drawn_side(40, patients=None)}).summary()
    assert any("No patient ids" in warning for warning in page.warnings)
    assert all(
        not number.compared for number in page.key_numbers
    )  # the training labels are not known


@pytest.mark.slow
def test_a_notebook_shows_numbers_and_matrix_and_escapes_names(run: Run) -> None:
    shown = srjt.report(run)._repr_html_()
    assert "mean absolute error" in shown
    assert shown.count("<svg") == 1
    names = dict(zip("0123", ("<script>alert(1)</script>", "b", "c", "d"), strict=True))
    named = as_run(held_out={"validation": drawn_side(40)}, grades=Grades("0123", names))
    hostile = srjt.report(named)._repr_html_()
    assert "<script" not in hostile
    assert "&lt;script&gt;" in hostile


def test_a_run_can_be_pickled_after_its_scores_were_computed(run: Run) -> None:
    assert len(run.scores)
    again = pickle.loads(pickle.dumps(run))
    assert again.scores.equals(run.scores)
