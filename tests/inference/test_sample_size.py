"""``srjt.plan``: numbers of patients against closed forms and simulations."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, t as student  # type: ignore[import-untyped]

import srjt
from srjt.data.grades import Grades
from srjt.errors import SrjtError
from srjt.inference.evaluate import Evaluation
from srjt.inference.sample_size import SamplePlan, kappa_variance, patients_for, plan
from srjt.inference.true_scores import TrueScores
from srjt.noise.verified import labels_to_verify
from srjt.ordinal.metrics import METRICS, Interval, wrong_by
from srjt.reports.page import sentences
from srjt.reports.pages import answers as page
from srjt.training.trained import Trained


@pytest.mark.parametrize(
    ("options", "images"),
    [
        ({"metric": "accuracy", "value": 0.8}, 1.96**2 * 0.16 / 0.05**2),
        ({"metric": "sensitivity", "value": 0.9, "prevalence": 0.2}, 1.96**2 * 0.09 / 0.05**2 / 0.2),
        ({"metric": "specificity", "value": 0.9, "prevalence": 0.2}, 1.96**2 * 0.09 / 0.05**2 / 0.8),
        ({"metric": "mae", "value": 0.3}, 1.96**2 * 0.21 / 0.05**2),
        ({"metric": "mae", "value": 1.3, "spread": 0.9}, 1.96**2 * 0.81 / 0.05**2),
        ({"metric": "qwk", "value": 0.8, "grade_shares": "0.5,0.5"}, 1.96**2 * 0.36 / 0.05**2),
    ],
)
def test_assumed_values_by_closed_forms(options: dict[str, Any], images: float) -> None:
    """Student's quantile instead of 1.96 takes about two patients more."""
    found = plan(**options, half_width=0.05)
    assert found.patients == found.images == pytest.approx(images + 2.4, abs=1)
    clustered = plan(**options, half_width=0.05, images_per_patient=4, correlation=0.5)
    assert clustered.patients == pytest.approx(images * (1 + 3 * 0.5) / 4 + 2.4, abs=1)
    assert clustered.images == pytest.approx(4 * clustered.patients)
    assert 1.96 * found.deviation / found.patients**0.5 == pytest.approx(0.05, rel=0.02)
    assert found.table["patients"].is_monotonic_increasing
    assert found.table.set_index("half_width")["patients"][0.025] == pytest.approx(4 * images + 2.4, abs=2)


@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.5])
def test_the_number_is_the_smallest_whose_students_interval_is_narrow_enough(deviation: float) -> None:
    number = patients_for(deviation, 0.1)
    half = [student.ppf(0.975, n - 1) * deviation / math.sqrt(n) for n in (number, number - 1) if n > 1]
    assert half[0] <= 0.1
    assert all(wider > 0.1 for wider in half[1:])


@pytest.mark.parametrize("shares", [(0.6, 0.25, 0.1, 0.05), (0.8, 0.15, 0.05), (0.2,) * 5])
def test_the_half_width_of_kappa_is_reached_with_uneven_grades(shares: tuple[float, ...]) -> None:
    """(1 − κ²)², as for a correlation coefficient, gave ± 0.06 and more."""
    text = ",".join(map(str, shares))
    number = plan(metric="qwk", value=0.8, half_width=0.05, grade_shares=text).patients
    classes = len(shares)
    low, high = 0.0, 1.0
    for _ in range(40):  # the share of errors with κ = 0.8
        wrong = (low + high) / 2
        table = np.array(shares)[:, None] * ((1 - wrong) * np.eye(classes) + wrong * wrong_by(1, classes))
        low, high = (wrong, high) if METRICS["qwk"](table) > 0.8 else (low, wrong)
    drawn = np.random.default_rng(0).multinomial(number, table.ravel(), size=4000).reshape(-1, classes, classes)
    reached = 1.96 * float(METRICS["qwk"].function(drawn.astype(float)).std())
    assert reached == pytest.approx(0.05, rel=0.06)


def test_shares_of_the_grades_are_said_and_checked() -> None:
    found = plan(metric="qwk", value=0.8)
    assert found.assumed["grade_shares"] == "0.6,0.25,0.1,0.05"
    assert kappa_variance(0.6, [0.5, 0.5]) == pytest.approx(1 - 0.6**2, rel=1e-4)
    with pytest.raises(SrjtError, match="sum 1"):
        plan(metric="qwk", value=0.8, grade_shares="0.6,0.1")
    with pytest.raises(SrjtError, match="sum 1"):
        plan(metric="qwk", value=0.8, grade_shares="nan,nan")
    # not a search that takes for ever, nor an overflow
    extreme: list[dict[str, Any]] = [{"half_width": 1e-9}, {"spread": 1e300}, {"images_per_patient": 1e308}]
    for options in extreme:
        with pytest.raises(SrjtError, match=next(iter(options))):
            plan(metric="mae", value=0.5, **options)
    with pytest.raises(SrjtError, match="more than 100 million patients"):
        plan(metric="mae", value=0.5, spread=100.0, half_width=1e-3)
    with pytest.raises(SrjtError, match="give a pilot"):
        plan(metric="qwk", value=0.1, grade_shares="0.2,0.2,0.2,0.2,0.2")


def answers(patients: int, *, seed: int, correlation: float = 0.5) -> pd.DataFrame:
    """Three images of each patient with the same grade; errors of a patient are alike with this correlation."""
    rng = np.random.default_rng(seed)
    true = np.repeat(rng.integers(3, size=patients), 3)
    together = np.repeat(rng.random(patients) < correlation, 3)
    wrong = np.where(together, np.repeat(rng.random(patients) < 0.2, 3), rng.random(3 * patients) < 0.2)
    grade = np.where(wrong, np.where(true == 2, 1, true + 1), true)
    rows = {"patient": np.repeat(np.arange(patients), 3).astype(str), "label": true, "grade": grade}
    return pd.DataFrame(rows).astype(str)


def judged(rows: pd.DataFrame) -> Evaluation:
    return Evaluation(
        samples=len(rows), judged_by="true grades", by_patient=True, views=1, purpose="mae", grade_rule="",
        intervals={}, confusion=[], calibration_error=0.0, ranked_probability_score=0.0, calibration=[],
        grades=Grades(("0", "1", "2")), answers=rows,
    )  # fmt: skip


def test_a_pilot_counts_patients_and_agrees_with_the_design_effect() -> None:
    found = plan(judged(answers(2000, seed=0)), metric="accuracy", half_width=0.03)
    same = plan(metric="accuracy", value=found.value, half_width=0.03, images_per_patient=3, correlation=0.5)
    assert (found.pilot, found.images_per_patient) == (2000, 3)
    assert found.patients == pytest.approx(same.patients, rel=0.1)
    assert same.assumed == {"images_per_patient": 3, "correlation": 0.5}
    named = replace(judged(answers(40, seed=0)), run="mine")
    found = plan(named, metric="specificity", refer_from="1", prevalence=0.2)
    assert found.assumed == {"refer_from": "1"}
    assert found.report().key_numbers[0].compared == "from a pilot of 40 patients (mine)"
    with pytest.raises(SrjtError, match="refer_from"):
        plan(judged(answers(20, seed=0)), metric="sensitivity")
    low, high = found.plausible
    factor = np.sqrt(39 / chi2.ppf([0.975, 0.025], 39))
    assert low == patients_for(found.deviation * factor[0], 0.05)
    assert high == patients_for(found.deviation * factor[1], 0.05)
    assert f"{low:,} to {high:,} patients are plausible" in found.report().remarks[0]
    by_cut = plan(judged(answers(2000, seed=0)), metric="specificity", refer_from="1")
    assert by_cut.value == pytest.approx(0.8, abs=0.03)


def test_the_deviation_of_few_patients_is_that_of_a_sample() -> None:
    """All have three images: the accuracy is the mean of the patients' own, up to the draws."""
    rows = answers(8, seed=1)
    own = (rows["label"] == rows["grade"]).groupby(rows["patient"]).mean()
    assert plan(judged(rows), metric="accuracy").deviation == pytest.approx(own.std(ddof=1), rel=0.05)


@pytest.mark.slow
def test_the_planned_number_reaches_the_half_width() -> None:
    """Of studies of the planned size, 95 % of the values lie within the half-width."""
    wanted = plan(judged(answers(300, seed=1)), metric="mae", half_width=0.04)
    studies = (answers(wanted.patients, seed=seed) for seed in range(100, 300))
    values = [(rows["label"] != rows["grade"]).mean() for rows in studies]
    reached = 1.96 * float(np.std(values))
    assert reached == pytest.approx(0.04, rel=0.12)


def test_labels_to_verify_and_readings() -> None:
    found = plan(metric="noise-rate", value=0.2, half_width=0.05, reader_error=0.2)
    assert found.images == labels_to_verify(0.2, within=0.05)
    assert found.readings.set_index("readings")["wrong"][3] == pytest.approx(3 * 0.2**2 * 0.8 + 0.2**3)
    assert plan(metric="noise-rate").value == 0.5
    scores = {"mae": Interval(0.3, 0.2, 0.4)}
    verified = TrueScores(basis="verified grades", scores=scores, apart={}, alike={}, verified=80)
    pilot = replace(judged(answers(100, seed=0)), true_scores=verified)
    table = plan(pilot, metric="mae", half_width=0.05).table.set_index("half_width")
    assert table["verified"][0.05] == 320  # a quarter of the variance


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "`value`"),
        ({"metric": "mae", "value": 1.2}, "`spread`"),
        ({"metric": "qwk", "value": 1.0}, "between 0 and 1"),
        ({"metrik": "mae"}, "metric"),
        ({"value": 0.3, "correlation": 2}, "correlation"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SrjtError, match=words):
        plan(**options)
    one = judged(answers(1, seed=0))
    with pytest.raises(SrjtError, match="too small"):
        plan(one)


def test_the_page_of_a_run(run: Trained) -> None:
    found = srjt.plan(run, half_width=0.1, reader_error=0.1)
    assert isinstance(found, SamplePlan)
    assert found.pilot == 30
    shown = found.report()
    assert shown.sections[0].facts == [("reader error", "0.1")]
    assert shown.remarks == sentences(page.NOTES, found)
    assert shown.title == f"{found.patients} patients give the mean absolute error within ± 0.1"
    assert found.to_dict()["table"][2]["patients"] == found.patients
    assert math.isclose(found.to_dict()["readings"][0]["wrong"], 0.1)
