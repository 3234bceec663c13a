"""``srjt.plan``: numbers of patients against closed forms and simulations."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, chi2, norm, t as student  # type: ignore[import-untyped]

import srjt
from refusals import refuses
from srjt.data.grades import Grades
from srjt.inference.evaluate import Evaluation
from srjt.inference.sample_size import (
    SamplePlan,
    kappa_deviation,
    patients_for,
    plan,
    student_half_width,
)
from srjt.inference.true_scores import TrueScores
from srjt.noise import estimate_noise
from srjt.noise.verified import labels_to_verify
from srjt.ordinal.decoding import GradeRule
from srjt.ordinal.intervals import Interval, wrong_by
from srjt.ordinal.metrics import METRICS
from srjt.reports.pages import answers as page
from srjt.training.trained import Trained


def exact(patients: int, images: float, share: float) -> float:
    """Half of Clopper and Pearson's interval of a share, with tails for so few patients."""
    tail = norm.cdf(-math.sqrt((patients + 1) / (patients - 1)) * student.ppf(0.975, patients - 1))
    high = beta.ppf(1 - tail, share * images + 1, (1 - share) * images)
    return float(high - beta.ppf(tail, share * images, (1 - share) * images + 1)) / 2


def wilson(patients: int, images: float, share: float) -> float:
    """Half of what solves (p − share)² = t² · p (1 − p) / images."""
    squared = student.ppf(0.975, patients - 1) ** 2 / images
    ends = np.roots([1 + squared, -2 * share - squared, share**2])
    return float(np.ptp(ends)) / 2


@pytest.mark.parametrize(
    ("options", "of_images", "half_width"),
    [
        ({"metric": "accuracy", "value": 0.8}, 1.0, lambda n, m: exact(n, m, 0.8)),
        ({"metric": "accuracy", "value": 0.98}, 1.0, lambda n, m: exact(n, m, 0.98)),
        (
            {"metric": "sensitivity", "value": 0.9, "prevalence": 0.2},
            0.2,
            lambda n, m: wilson(n, m, 0.9),
        ),
        (
            {"metric": "specificity", "value": 0.9, "prevalence": 0.2},
            0.8,
            lambda n, m: wilson(n, m, 0.9),
        ),
        ({"metric": "mae", "value": 0.3}, 1.0, lambda n, m: exact(n, m, 0.3)),
        # errors of 1.3 + 0.81 / 1.3 grades have this mean and this deviation
        (
            {"metric": "mae", "value": 1.3, "spread": 0.9},
            1.0,
            lambda n, m: 1.9231 * exact(n, m, 1.3 / 1.9231),
        ),
        # two equally frequent grades: 1 − κ² = 0.36; an error instead of a right answer changes κ
        # by 2
        (
            {"metric": "qwk", "value": 0.8, "grade_shares": "0.5,0.5"},
            1.0,
            lambda n, m: student.ppf(0.975, n - 1) * 0.6 / math.sqrt(m) + 2 / (2 * m),
        ),
    ],
)
def test_assumed_values_by_closed_forms(
    options: dict[str, Any], of_images: float, half_width: Any
) -> None:
    """The smallest number of patients whose interval is as narrow as wanted; four images may be
    worth 1.6."""
    for clustered, worth in (({}, 1.0), ({"images_per_patient": 4, "correlation": 0.5}, 4 / 2.5)):
        found = plan(**options, **clustered, half_width=0.05)
        number = found.patients
        assert half_width(number, number * worth * of_images) <= 0.05 + 1e-6
        assert half_width(number - 1, (number - 1) * worth * of_images) > 0.05 - 1e-6
        assert found.images == number * clustered.get("images_per_patient", 1)
        assert found.table["patients"].is_monotonic_increasing
        assert found.table.set_index("half_width")["patients"][0.05] == number


@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("added", [0.0, 0.5])
def test_the_number_is_the_smallest_whose_students_interval_is_narrow_enough(
    deviation: float, added: float
) -> None:
    number = patients_for(
        lambda patients: student_half_width(patients, deviation, added=added), 0.1
    )
    half = [
        student.ppf(0.975, n - 1) * deviation / math.sqrt(n) + added / 2 / n
        for n in (number, number - 1)
        if n > 1
    ]
    assert half[0] <= 0.1
    assert all(wider > 0.1 for wider in half[1:])


@pytest.mark.parametrize("shares", [(0.6, 0.25, 0.1, 0.05), (0.8, 0.15, 0.05), (0.2,) * 5])
@pytest.mark.parametrize("kind", [0, 1])
def test_the_variance_of_kappa_is_that_of_samples(shares: tuple[float, ...], kind: int) -> None:
    """With errors by one grade, and with two severities of the same kind that correlate."""
    rng, size, classes = np.random.default_rng(0), 400, len(shares)
    variance, _ = kappa_deviation(0.8, shares)[kind]
    low, high = 0.0, 1.0
    cuts = norm.ppf(np.cumsum(shares)[:-1])
    severity = rng.normal(size=(2, 200_000))
    true = np.searchsorted(cuts, severity[0])
    for _ in range(20):  # the size of the errors with κ = 0.8
        middle = (low + high) / 2
        if kind == 0:
            table = np.array(shares)[:, None] * (
                (1 - middle) * np.eye(classes) + middle * wrong_by(1, classes)
            )
        else:
            seen = (1 - middle) * severity[0] + math.sqrt(1 - (1 - middle) ** 2) * severity[1]
            cells = true * classes + np.searchsorted(cuts, seen)
            table = np.bincount(cells, minlength=classes**2).reshape(classes, classes) / len(true)
        low, high = (middle, high) if METRICS["qwk"](table) > 0.8 else (low, middle)
    drawn = rng.multinomial(size, table.ravel() / table.sum(), size=4000).reshape(
        -1, classes, classes
    )
    found = METRICS["qwk"].function(drawn.astype(float)).var() * size
    assert variance == pytest.approx(found, rel=0.08)


def test_the_plan_of_kappa_is_for_the_errors_that_need_more_patients() -> None:
    shares = "0.7,0.2,0.1"
    both = kappa_deviation(0.7, [0.7, 0.2, 0.1])
    numbers = [
        patients_for(
            lambda n, pair=pair: student_half_width(n, math.sqrt(pair[0]), added=pair[1]), 0.05
        )
        for pair in both
    ]
    assert numbers[0] < numbers[1]
    assert plan(metric="qwk", value=0.7, grade_shares=shares).patients == numbers[1]
    # errors by one grade cannot have so low a κ, those in the severity can
    assert len(kappa_deviation(0.1, [0.2] * 5)) == 1
    assert plan(metric="qwk", value=0.1, grade_shares="0.2,0.2,0.2,0.2,0.2").patients > 500


def test_shares_of_the_grades_are_said_and_checked() -> None:
    found = plan(metric="qwk", value=0.8)
    assert found.assumed["grade_shares"] == "0.6,0.25,0.1,0.05"
    with refuses("wrong_values", "grade_shares", says="'0.6,0.1'"):
        plan(metric="qwk", value=0.8, grade_shares="0.6,0.1")
    with refuses("wrong_values", "grade_shares", says="'nan,nan'"):
        plan(metric="qwk", value=0.8, grade_shares="nan,nan")
    # not a search that takes for ever, nor an overflow
    extreme: list[dict[str, Any]] = [
        {"half_width": 1e-9},
        {"spread": 1e300},
        {"images_per_patient": 1e308},
    ]
    for options in extreme:
        with refuses("out_of_bounds", next(iter(options))):
            plan(metric="mae", value=0.5, **options)
    with refuses("out_of_bounds", "half_width", says="0.002"):
        plan(metric="mae", value=0.5, spread=100.0, half_width=1e-3)


def answers(patients: int, *, seed: int, correlation: float = 0.5) -> pd.DataFrame:
    """Three images of each patient with the same grade; errors of a patient are alike with this
    correlation."""
    rng = np.random.default_rng(seed)
    true = np.repeat(rng.integers(3, size=patients), 3)
    together = np.repeat(rng.random(patients) < correlation, 3)
    wrong = np.where(
        together, np.repeat(rng.random(patients) < 0.2, 3), rng.random(3 * patients) < 0.2
    )
    grade = np.where(wrong, np.where(true == 2, 1, true + 1), true)
    rows = {"patient": np.repeat(np.arange(patients), 3).astype(str), "label": true, "grade": grade}
    return pd.DataFrame(rows).astype(str)


def judged(rows: pd.DataFrame) -> Evaluation:
    return Evaluation(
        samples=len(rows), judged_by="true grades", by_patient=True, views=1, purpose="mae", grade_rule=GradeRule(decoding="median"),
        intervals={}, confusion=[], calibration_error=0.0, ranked_probability_score=0.0, calibration=[],
        grades=Grades(("0", "1", "2")), answers=rows,
    )  # fmt: skip


def test_a_pilot_counts_patients_and_agrees_with_the_design_effect() -> None:
    found = plan(judged(answers(2000, seed=0)), metric="accuracy", half_width=0.03)
    same = plan(
        metric="accuracy", value=found.value, half_width=0.03, images_per_patient=3, correlation=0.5
    )
    assert (found.pilot, found.images_per_patient) == (2000, 3)
    assert found.patients == pytest.approx(same.patients, rel=0.1)
    assert same.assumed == {"images_per_patient": 3, "correlation": 0.5}
    named = replace(judged(answers(40, seed=0)), run="mine")
    found = plan(named, metric="specificity", refer_from="1", prevalence=0.2)
    assert found.assumed == {"refer_from": "1"}
    assert srjt.report(found).key_numbers[0].compared == "from a pilot of 40 patients (mine)"
    with refuses("missing_option", "refer_from"):
        plan(judged(answers(20, seed=0)), metric="sensitivity")
    low, high = found.plausible
    assert low < found.patients < high
    assert f"{low:,} to {high:,} patients are plausible" in srjt.report(found).remarks[0]
    by_cut = plan(judged(answers(2000, seed=0)), metric="specificity", refer_from="1")
    assert by_cut.value == pytest.approx(0.8, abs=0.03)


def test_the_deviation_of_few_patients_is_that_of_a_sample() -> None:
    """All have three images: the accuracy is the mean of the patients' own, up to the draws."""
    rows = answers(8, seed=1)
    own = (rows["label"] == rows["grade"]).groupby(rows["patient"]).mean()
    assert plan(judged(rows), metric="accuracy").deviation == pytest.approx(
        own.std(ddof=1), rel=0.05
    )


def test_plausible_numbers_know_that_the_variance_of_rare_errors_is_known_less_well() -> None:
    """Independent images: the kurtosis of a share p is (1 − 3 p (1 − p)) / (p (1 − p)), 3 of a
    normal distribution."""
    for wrong in (10, 100):
        true = np.arange(200) % 3
        grade = np.where(np.arange(200) < wrong, (true + 1) % 3, true)
        rows = pd.DataFrame({"patient": np.arange(200), "label": true, "grade": grade}).astype(str)
        found = plan(judged(rows), metric="accuracy", half_width=0.02)
        variance = wrong / 200 * (1 - wrong / 200)
        kurtosis = (1 - 3 * variance) / variance
        degrees = min(199, 2 * 200 / max(kurtosis - 1, 1e-9))
        for number, end in zip(
            found.plausible, degrees / chi2.ppf([0.975, 0.025], degrees), strict=True
        ):
            half_width = exact(
                number, number * variance / (found.deviation**2 * end), 1 - wrong / 200
            )
            assert half_width == pytest.approx(0.02, rel=0.01)


@pytest.mark.slow
def test_the_planned_number_reaches_the_half_width() -> None:
    """Of studies of the planned size, 95 % of the values lie within the half-width."""
    wanted = plan(judged(answers(300, seed=1)), metric="mae", half_width=0.04)
    studies = (answers(wanted.patients, seed=seed) for seed in range(100, 300))
    values = [(rows["label"] != rows["grade"]).mean() for rows in studies]
    # an interval allows for an error that has not occurred, so it is a little wider
    reached = 1.96 * float(np.std(values)) + 0.5 / wanted.patients
    assert reached == pytest.approx(0.04, rel=0.12)


def test_labels_to_verify_and_readings() -> None:
    found = plan(metric="noise-rate", value=0.2, half_width=0.05, reader_error=0.2)
    assert found.images == labels_to_verify(0.2, within=0.05)
    assert found.readings.set_index("readings")["wrong"][3] == pytest.approx(
        3 * 0.2**2 * 0.8 + 0.2**3
    )
    assert plan(metric="noise-rate").value == 0.5
    scores = {"mae": Interval(0.3, 0.2, 0.4)}
    verified = TrueScores(basis="verified grades", scores=scores, apart={}, alike={}, verified=80)
    pilot = replace(judged(answers(100, seed=0)), aspects={"true_scores": verified})
    table = plan(pilot, metric="mae", half_width=0.05).table.set_index("half_width")
    assert table["verified"][0.05] == 320  # a quarter of the variance


@pytest.mark.parametrize(
    ("options", "code", "about"),
    [
        ({}, "missing_option", "value"),
        ({"metric": "mae", "value": 1.2}, "missing_option", "spread"),
        ({"metric": "qwk", "value": 1.0}, "out_of_bounds", "value"),
        ({"metrik": "mae"}, "unknown_name", ""),
        ({"value": 0.3, "correlation": 2}, "out_of_bounds", "correlation"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, Any], code: str, about: str) -> None:
    with refuses(code, about):
        plan(**options)
    one = judged(answers(1, seed=0))
    with refuses("too_few"):
        plan(one)


def test_labels_to_verify_are_some_of_those_of_the_run(run: Trained) -> None:
    """Of 600 labels as many as the audit says; without a run, of a large data set."""
    many = labels_to_verify(0.3, within=0.05)
    found = srjt.plan(run, metric="noise-rate", value=0.3)
    assert (found.labels, found.images) == (600, math.ceil(many / (1 + many / 600)))
    assert found.table["images"].max() < 600
    shown = srjt.report(found)
    assert shown.title == f"Verify {found.images} of the 600 labels, drawn at random"
    small = srjt.plan(run, metric="noise-rate", value=0.3, half_width=0.005)
    assert small.images < 600 < labels_to_verify(0.3, within=0.005)
    shown = srjt.report(plan(metric="noise-rate", value=0.3))
    assert shown.title == f"Verify {many} labels of a large data set, drawn at random"


def test_the_rate_of_an_estimate_is_planned_with_where_the_labels_determine_it(
    run: Trained,
) -> None:
    """Else the worst rate of its interval: the one nearest to one half."""
    rng = np.random.default_rng(0)
    chance = estimate_noise(rng.integers(0, 3, 200), np.full((200, 3), 1 / 3))
    assert not chance.identifiable
    for interval, worst in (((0.0, 0.4), 0.4), ((0.0, 0.7), 0.5)):
        unknown = replace(chance, rate=0.3, rate_interval=interval)
        assert srjt.plan(replace(run, noise_estimate=unknown), metric="noise-rate").value == worst
        known = replace(unknown, identifiable=True)
        assert srjt.plan(replace(run, noise_estimate=known), metric="noise-rate").value == 0.3


def test_the_page_of_a_run(run: Trained) -> None:
    found = srjt.plan(run, half_width=0.1, reader_error=0.1)
    assert isinstance(found, SamplePlan)
    assert found.pilot == 30
    shown = srjt.report(found)
    assert shown.sections[0].facts == [("reader error", "0.1")]
    assert shown.remarks == list(page.plan_notes(found))
    assert shown.title == f"{found.patients} patients give the mean absolute error within ± 0.1"
    assert found.to_dict()["table"][2]["patients"] == found.patients
    assert math.isclose(found.to_dict()["readings"][0]["wrong"], 0.1)


@pytest.mark.parametrize(
    ("metric", "each", "columns", "key"),
    [
        ("noise-rate", 1.0, ["labels"], ("labels", "")),
        ("noise-rate", 3.0, ["patients", "labels"], ("labels", "3 of each patient")),
        ("mae", 1.0, ["patients", "images"], ("images", "1 of each patient")),
    ],
)
def test_labels_are_not_called_patients(
    metric: Any, each: float, columns: list[str], key: tuple[str, str]
) -> None:
    planned = plan(metric=metric, value=0.3, images_per_patient=each)
    page = srjt.report(planned)
    [table] = [table for section in page.sections for table in section.tables]
    assert [column.label for column in table.columns] == ["± half-width", *columns]
    _, number = page.key_numbers
    assert (number.label, number.compared) == key
    assert number.value == f"{planned.images:,}"
    assert ("labels" in repr(planned)) == (metric == "noise-rate")
