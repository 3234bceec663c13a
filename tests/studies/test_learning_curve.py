"""Learning curves: shares of the training patients, and what the page concludes from them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from srjt.data import folds, from_arrays
from srjt.reports.pages.study import learning_curve_section
from srjt.reports.study_tables import noise_label, noise_name
from srjt.studies.config import StudyConfig, learning_curve, parse_noise
from srjt.studies.plan import StudyPlan


def plan_of() -> StudyPlan:
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(40), 3).astype(str).tolist()
    data = from_arrays(rng.normal(size=(120, 2)), rng.integers(3, size=120), patients=patients)
    config = StudyConfig(
        source="synthetic", methods=("standard",), noises=learning_curve(["quasi:0.2"])
    )
    return StudyPlan(config, data, folds(data))


def test_a_share_is_of_the_training_patients_and_part_of_larger_ones() -> None:
    plan = plan_of()
    whole = plan.splits[1]
    rows = {spec.label: set(plan.split(spec, 1).train.tolist()) for spec in plan.noises}
    assert (
        rows["quasi:0.2@0.25"]
        < rows["quasi:0.2@0.5"]
        < rows["quasi:0.2"]
        == set(whole.train.tolist())
    )
    owners = plan.manifest.patients
    kept = {owners[row] for row in rows["quasi:0.2@0.25"]}
    assert len(kept) == 6  # of 24
    assert len(rows["quasi:0.2@0.25"]) == 18  # with all their images
    part = plan.split(parse_noise("quasi:0.2@0.25"), 1)
    assert np.array_equal(part.test, whole.test)
    assert np.array_equal(part.validation, whole.validation)


@pytest.mark.slow
def test_all_shares_have_the_same_wrong_labels_and_their_own_runs() -> None:
    plan = plan_of()
    labels = [plan.labelled(parse_noise(f"quasi:0.2{at}"), 0, 0)[0].labels for at in ("", "@0.5")]
    assert np.array_equal(labels[0], labels[1])
    keys = [run.key for run in plan.planned_runs()]
    assert len(set(keys)) == len(keys) == 5 * 5


def test_the_noises_of_a_curve() -> None:
    assert learning_curve(["none"]) == ("none@0.25", "none@0.5", "none")
    assert learning_curve(["quasi:rho=0.1"])[-2:] == ("quasi:rho=0.05", "none")
    assert parse_noise("none@0.5").kind == "none"
    assert noise_label("quasi:0.2@0.5") == "ε = 0.2, 50% of the patients"
    assert [noise_label("none@0.5"), noise_label("none")] == [
        "50% of the patients",
        "Labels as given",
    ]
    names = ("none", "none@0.5", "corrected", "quasi:0.2", "quasi:0.2@0.5")
    assert len({noise_name(name) for name in names}) == 5
    for wrong in ("quasi:0.2@0", "quasi:0.2@2", "none@", "none@half"):
        with refuses("wrong_syntax", "noise"):
            parse_noise(wrong)


@pytest.mark.parametrize("column", ["true_grade", "verified_grade"])
def test_better_labels_are_the_true_or_verified_grades(column: str) -> None:
    plan = plan_of()
    given = plan.manifest.labels
    known = np.arange(120) % 2 == 0
    better = np.where(known, (given + 1) % 3, given if column == "true_grade" else -1)
    table = plan.manifest.table.assign(**{column: better})
    config = StudyConfig(
        source="synthetic", methods=("co-teaching",), noise_rate=0.3, learning_curve=True,
    )  # fmt: skip
    plan = StudyPlan(config, replace(plan.manifest, table=table), plan.splits)
    arms = {spec.label: spec for spec in plan.noises}
    assert list(arms) == ["none@0.25", "none@0.5", "none", "corrected"]
    split = plan.splits[0]
    corrected, as_given = (
        plan.labelled(arms[name], 0, 0)[0].labels for name in ("corrected", "none")
    )
    assert np.array_equal(corrected, np.where(known, better, given))
    rows = np.concatenate([split.train, split.validation])
    assert np.array_equal(as_given[rows], given[rows])
    assert np.array_equal(as_given[split.test], corrected[split.test])  # one judge for all
    assert plan.given_noise(arms["corrected"])[0] == (0.0 if column == "true_grade" else 0.15)
    assert plan.given_noise(arms["none"])[0] == 0.3


def results_of(
    values: dict[str, list[float]], *, metric: str = "mae", one_grade: float = 0.9
) -> Any:
    rows = [
        ("srjt", "", noise, fold, 0, "test", metric, value)
        for noise, own in values.items()
        for fold, value in enumerate(own)
    ]  # fmt: skip
    columns = ["method", "variant", "noise", "fold", "seed", "split", "metric", "value"]
    naive = [
        (noise, fold, 0, metric, one_grade)
        for noise, own in values.items()
        for fold in range(len(own))
    ]
    always = pd.DataFrame(naive, columns=["noise", "fold", "seed", "metric", "value"])
    folder = Path("no-such-folder")
    return SimpleNamespace(
        scores=pd.DataFrame(rows, columns=columns), naive=always, folder=folder, facts={}
    )


TOO_FEW_FOLDS = (
    "whether more images or better labels help more is not shown: a test needs three folds"
)


@pytest.mark.parametrize(
    ("half", "better", "said"),
    [
        (
            [0.5, 0.52, 0.5, 0.51, 0.53],
            [0.39, 0.4, 0.38, 0.4, 0.4],
            "more images help more than better labels (paired test, p < 0.001)",
        ),  # the images gain 0.1, half the noise 0.01
        (
            [0.41, 0.42, 0.4, 0.41, 0.43],
            [0.2, 0.22, 0.19, 0.21, 0.2],
            "better labels help more than more images (paired test, p < 0.001)",
        ),
        (
            [0.5, 0.41, 0.5, 0.41, 0.5],
            [0.35, 0.3, 0.35, 0.3, 0.35],
            "whether more images or better labels help more is not shown: the gains differ by",
        ),  # in one fold the one, in others the other
        (
            [0.5, 0.52, 0.5, 0.51, 0.53],
            None,
            "whether better labels would help more cannot be told",
        ),
        (
            [0.5, 0.52],
            [0.39, 0.4],
            TOO_FEW_FOLDS,
        ),  # of two runs, the smallest gain exceeds the largest by chance in a third
        ([0.5], [0.39], TOO_FEW_FOLDS),
    ],
)
def test_the_verdict_follows_from_a_paired_test(half: list[float], better: Any, said: str) -> None:
    whole = [0.4, 0.41, 0.39, 0.4, 0.42][: len(half)]
    values = {"quasi:0.2@0.5": half, "quasi:0.2": whole}
    if better is not None:
        values["quasi:rate=0.1"] = better
    (section,) = learning_curve_section(results_of(values), metric="mae")
    assert section.text[0].startswith(f"srjt, Quasi-Gaussian noise, ε = 0.2: {said}")
    doubling, improved = (row.cells for row in section.tables[0].rows)
    gains = np.array(half) - whole
    assert [cell.text for cell in doubling[:3]] == ["srjt", "ε = 0.2", "twice the patients"]
    assert [cell.value for cell in doubling[3:]] == pytest.approx(
        [gains.mean(), gains.min(), gains.max()]
    )
    assert improved[2].text == "half of the noise"
    assert (improved[3].text == "–") == (better is None)
    # better on average, by less than the folds differ; two folds show nothing, so the verdict is
    # theirs
    for one_grade, shown in ((0.3, True), (0.408, len(half) > 2)):
        (poor,) = learning_curve_section(results_of(values, one_grade=one_grade), metric="mae")
        assert ("what would help is not shown" in poor.text[0]) == shown
    assert learning_curve_section(results_of({"quasi:0.2": [0.4]}), metric="mae") == []


def test_a_higher_accuracy_is_a_gain() -> None:
    found = results_of({"none@0.5": [0.6, 0.7], "none": [0.7, 0.75]}, metric="accuracy")
    (section,) = learning_curve_section(found, metric="accuracy")
    doubling, improved = section.tables[0].rows
    assert [cell.value for cell in doubling.cells[3:]] == pytest.approx([0.075, 0.05, 0.1])
    assert improved.cells[2].text == "true or verified grades"
