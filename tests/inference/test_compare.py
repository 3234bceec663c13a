"""Runs on the same images."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student  # type: ignore[import-untyped]

import srjt
from fixtures.held_out_runs import drawn_side, made_run
from refusals import refuses
from srjt.inference.compare import _differences, compare
from srjt.ordinal.intervals import TOO_FEW, holm, resampled_metrics
from srjt.ordinal.metrics import METRICS
from srjt.training.config import TrainConfig
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained


def with_skill(skill: float, *, seed: int = 0, labels: int = 0, **facts: Any) -> Trained:
    """Runs with the same images and labels, and other predictions."""
    same = drawn_side(seed=labels, **facts)
    rng = np.random.default_rng(seed)
    logits = skill * (np.arange(4) == same.labels[:, None]) + rng.normal(
        0, 1, same.probabilities.shape
    )
    p = np.exp(logits)
    p /= p.sum(axis=-1, keepdims=True)
    return made_run(held_out={"test": replace(same, probabilities=p.astype(np.float32))})


@pytest.mark.slow
def test_a_better_run_is_found_and_the_intervals_contain_the_differences() -> None:
    found = compare(with_skill(1.0, seed=1), with_skill(3.0, seed=2), resamples=400)
    assert repr(found).startswith("<Comparison: ")
    shown = srjt.report(found)
    assert shown.title == "run 2 is better than run 1"
    judged = next(row for row in found.differences if row.metric == found.purpose)
    assert shown.key_numbers[0].value == f"{judged.difference.value:+.3f}".replace("-", "−")
    assert shown.key_numbers[0].value in srjt.report(found)._repr_html_()
    assert (found.runs, found.samples, found.patients) == (("run 1", "run 2"), 200, 40)
    assert {row.metric for row in found.differences} == set(METRICS)
    for row in found.differences:
        value, low, high = row.difference
        assert value == pytest.approx(row.value - row.first)
        assert low <= value <= high
        better = high < 0 if METRICS[row.metric].lower_is_better else low > 0
        assert better
        assert row.p_value < 0.05
        assert row.adjusted == row.p_value  # two runs: nothing to correct
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_small_p_value_is_not_shown_as_0() -> None:
    found = compare(with_skill(1.0, seed=1), with_skill(1.5, seed=2), resamples=100)
    for p, said, cell in ((1e-5, "p < 0.001", "< 0.001"), (0.0421, "p = 0.042", "0.042")):
        rows = [replace(row, adjusted=p) for row in found.differences]
        shown = srjt.report(replace(found, differences=rows))
        assert shown.key_numbers[0].compared.endswith(f", {said}")
        table = shown.sections[0].tables[0]
        place = [column.name for column in table.columns].index("p")
        assert table.rows[0].cells[place].text == cell


@pytest.mark.parametrize("patients", [1, 2, TOO_FEW - 1])
def test_few_patients_show_no_difference(patients: int) -> None:
    """As certain as two hundred images look, they may all be of one patient."""
    found = compare(
        *(with_skill(skill, seed=1, patients=patients) for skill in (0.1, 9.0)), resamples=100
    )
    assert (
        np.isnan(found.differences[0].difference.low)
        == np.isnan(found.differences[0].p_value)
        == (patients == 1)
    )
    shown = srjt.report(found)
    assert shown.title == "No difference is shown between run 2 and run 1"
    assert any(note.endswith("are too few to show a difference.") for note in shown.remarks)


def test_a_grade_of_fewer_than_ten_patients_leaves_means_over_grades_without_an_interval() -> None:
    """Nine patients have grade 3: macro-averages and κ have no test, and the page says why."""

    def with_rare_grade(skill: float, patients: int) -> Trained:
        run = with_skill(skill, seed=1)
        side = run.held_out["test"]
        rare = np.isin(side.patients, [f"p{k}" for k in range(patients)])
        labels = np.where((side.labels == 3) & ~rare, 2, side.labels)
        labels[:patients] = 3  # one image each of the first patients
        return replace(run, held_out={"test": replace(side, labels=labels)})

    for patients in (TOO_FEW - 1, TOO_FEW):
        found = compare(*(with_rare_grade(skill, patients) for skill in (1.0, 4.0)), resamples=100)
        too_rare = patients < TOO_FEW
        assert found.rare_grades == (("3",) if too_rare else ())
        for row in found.differences:
            silent = METRICS[row.metric].per_grade and too_rare
            values = [row.difference.low, row.difference.high, row.p_value, row.adjusted]
            assert np.isnan(values).all() == np.isnan(values).any() == silent
            assert np.isfinite(row.difference.value)
        said = [note for note in srjt.report(found).remarks if note.startswith("Of fewer than ten")]
        assert len(said) == too_rare


@pytest.mark.slow
def test_runs_that_do_not_differ_are_seldom_found_to() -> None:
    """Five patients whose images stand and fall together: percentiles of so few draws are far too
    short."""
    found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        wrong = np.repeat(rng.random((2, 5)) < 0.5, 20, axis=1)
        drawn = [[resampled_metrics(np.zeros(100), said, num_classes=2, groups=np.repeat(range(5), 20), resamples=200,
                                    metrics=METRICS)] for said in wrong]  # fmt: skip
        found += (
            _differences(
                ["a", "b"], drawn, patients=dict.fromkeys(METRICS, 5.0), level=0.95, classes=4
            )[0].p_value
            < 0.05
        )
    assert found < 0.1 * 200


def test_a_run_does_not_differ_from_itself() -> None:
    run = with_skill(1.0)
    for row in compare(run, run, resamples=50).differences:
        assert row.difference.value == 0.0
        assert (
            row.difference.low < 0.0 < row.difference.high
        )  # two runs that agree on these samples may differ
        assert row.p_value == 1.0


def test_patients_with_most_images_count_for_few() -> None:
    """200 images of 40 patients, of whom one has 161: the degrees of freedom are those of 1.5
    patients, at least 1."""
    owners = [f"p{max(k - 160, 0)}" for k in range(200)]
    runs = [with_skill(skill, seed=seed) for skill, seed in ((1.0, 1), (1.2, 2))]
    skewed = [
        made_run(held_out={"test": replace(run.held_out["test"], groups=owners, patients=owners)})
        for run in runs
    ]
    row, wide = (compare(*pair, resamples=200).differences[0] for pair in (runs, skewed))
    assert wide.difference.high - wide.difference.low > 5 * (
        row.difference.high - row.difference.low
    )


def test_one_more_error_of_each_run_is_in_the_interval() -> None:
    """Draws that do not vary: the variance is that of one error of each, and Student's quantile
    that of 20 patients."""
    still = [{name: np.zeros(50) for name in METRICS}]
    errors = [[dict.fromkeys(METRICS, 0.03)], [dict.fromkeys(METRICS, 0.04)]]
    patients = dict.fromkeys(METRICS, 20.0)
    given = {"patients": patients, "level": 0.95, "errors": errors, "classes": 4}
    found = _differences(["a", "b"], [still, still], **given)[0]
    assert found.difference.high == pytest.approx(student.ppf(0.975, 19) * 0.05)


def test_no_interval_is_longer_than_scores_can_differ() -> None:
    """With two patients Student's t allows for an error of six grades among four."""
    draws = np.random.default_rng(0).random((2, 1, 200))
    drawn = [[dict.fromkeys(METRICS, 3.0 * values)] for values in draws[:, 0]]
    patients = dict.fromkeys(METRICS, 2.0)
    found = _differences(["a", "b"], drawn, patients=patients, level=0.95, classes=4)
    ends = {row.metric: row.difference[1:] for row in found}
    assert ends["mae"] == (-3.0, 3.0)
    assert ends["accuracy"] == (-1.0, 1.0)
    assert ends["qwk"] == (-2.0, 2.0)


def test_the_order_of_the_images_does_not_matter() -> None:
    first, other = with_skill(1.0, seed=1), with_skill(2.0, seed=2)
    turned = other.held_out["test"]
    turned = HeldOut(
        ids=turned.ids[::-1], probabilities=turned.probabilities[:, ::-1], labels=turned.labels[::-1],
        patients=turned.patients[::-1], groups=turned.patients[::-1],
    )  # fmt: skip
    straight = compare(first, other, resamples=50)
    assert compare(first, made_run(held_out={"test": turned}), resamples=50) == straight


def test_intervals_are_by_patient() -> None:
    """Forty copies of five images each: as if there were five patients, not two hundred images."""

    def copied(run: Trained, groups: bool) -> Trained:
        side, rows = run.held_out["test"], np.arange(200) % 5
        owners = [f"p{k}" for k in rows] if groups else None
        same = replace(side, probabilities=side.probabilities[:, rows], labels=side.labels[rows])
        return made_run(held_out={"test": replace(same, groups=owners, patients=owners)})

    def width(groups: bool) -> float:
        runs = [copied(with_skill(1.0, seed=seed, labels=7), groups) for seed in (1, 3)]
        _, low, high = compare(*runs, resamples=300).differences[0].difference
        return high - low

    assert width(groups=True) > 2 * width(groups=False) > 0


def test_several_runs_are_corrected_by_holm() -> None:
    runs = [with_skill(skill, seed=seed) for seed, skill in enumerate((1.0, 1.2, 1.5, 3.0))]
    found = compare(*runs, resamples=200)
    assert [row.run for row in found.differences] == [
        f"run {k}" for k in (2, 3, 4) for _ in METRICS
    ]
    for metric in METRICS:
        rows = [row for row in found.differences if row.metric == metric]
        assert [row.adjusted for row in rows] == pytest.approx(
            holm([row.p_value for row in rows]).tolist()
        )


def test_other_images_or_grades_are_refused_and_named() -> None:
    first = with_skill(1.0)
    side = first.held_out["test"]
    renamed = replace(side, ids=["new.png", *side.ids[1:]])
    with refuses("no_match", "test") as raised:
        compare(first, made_run(held_out={"test": renamed}))
    assert "1 only in run 1 (0.png); 1 only in run 2 (new.png). Give labelled images" in str(
        raised.value
    )
    labels = np.where(np.arange(200) < 5, (side.labels + 1) % 4, side.labels)
    true, other = (replace(side, true_labels=known) for known in (side.labels, labels))
    with refuses("no_match", "test", says=("5 ", "(0.png, 1.png, 2.png, …)")):
        compare(made_run(held_out={"test": true}), made_run(held_out={"test": other}))


def test_labels_that_were_corrected_in_between_judge_both_runs() -> None:
    first = with_skill(1.0)
    side = first.held_out["test"]
    corrected = replace(
        side, labels=np.where(np.arange(200) < 5, (side.labels + 1) % 4, side.labels)
    )
    found = compare(first, made_run(held_out={"test": corrected}), resamples=10)
    assert (found.judged_by, found.labels_of, found.corrected) == ("given grades", "run 2", 5)
    assert "given grades of run 2, 5 of which others have not" in srjt.report(found).lead
    same = compare(*(made_run(held_out={"test": corrected}) for _ in range(2)), resamples=10)
    assert [row.first for row in found.differences] == [row.first for row in same.differences]


def test_bad_input() -> None:
    run = with_skill(1.0)
    with refuses("too_few"):
        compare(run)
    with refuses("no_split", "test", says="run 2"):
        compare(run, made_run())
    with refuses("no_match", says=("a, b", "0, 1, 2, 3")):
        compare(run, made_run(grades=("a", "b")))


def trained(
    skill: float, method_seed: int, *, method: str = "standard", truth: bool = False
) -> Trained:
    """A training with this seed: its predictions and its scores are others."""
    run = with_skill(skill, seed=method_seed, truth=truth)
    history = pd.DataFrame({"id": ["a", "b"], "grade": [0, method_seed % 2 if truth else 1]})
    config = TrainConfig(method=method, target_metric="accuracy", seed=method_seed)
    return replace(run, config=config, history=history)


@pytest.mark.parametrize("truth", [False, True])
def test_runs_that_differ_in_their_seed_are_trainings_of_one_method(truth: bool) -> None:
    first = [trained(1.0, seed, truth=truth) for seed in (1, 2, 3)]
    other = [trained(1.4, seed, method="sord", truth=truth) for seed in (4, 5)]
    mixed = [first[0], other[0], first[1], other[1], first[2]]
    found = compare(*mixed, resamples=200)
    assert found.runs == ("run 1 (3 seeds)", "run 2 (2 seeds)")
    assert found.trainings == (3, 2)
    alone = [compare(first[0], run, resamples=2).differences for run in (*first[1:], *other)]
    for place, row in enumerate(found.differences):
        one, *scores = alone[0][place].first, *(rows[place].value for rows in alone)
        assert row.first == pytest.approx(np.mean([one, *scores[:2]]))
        assert row.value == pytest.approx(np.mean(scores[2:]))
        assert row.difference.low < row.difference.value < row.difference.high
    assert any(
        "contain the variation between trainings" in note for note in srjt.report(found).remarks
    )


def test_one_training_per_method_says_so() -> None:
    found = compare(trained(1.0, 1), trained(1.4, 1, method="sord"), resamples=50)
    assert found.trainings == (1, 1)
    note = "One training per method: the interval does not contain the variation between trainings."
    assert note in srjt.report(found).remarks
    # seeds of one method are compared, and other labels are another method
    assert compare(trained(1.0, 1), trained(1.0, 2), resamples=20).trainings == (1, 1)
    corrected = replace(trained(1.0, 2), history=pd.DataFrame({"id": ["a", "b"], "grade": [0, 2]}))
    assert compare(trained(1.0, 1), corrected, trained(1.0, 3), resamples=20).trainings == (2, 1)
