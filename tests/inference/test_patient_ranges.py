"""One range per patient: the highest true grade is covered as often as promised, although the
labels are wrong."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from fixtures.held_out_runs import drawn_side, made_run
from refusals import refuses
from srjt import noise
from srjt.data import Manifest, folds
from srjt.inference.aspects.ranges import CalibratedRanges
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.options import Answering
from srjt.inference.range_evidence import Assumption, unit_evidence
from srjt.inference.ranges import RangeRule, calibrate_ranges, rows_of
from srjt.noise.quality import (
    LabelNoise,
    NoiseBounds,
    given_noise,
    highest_grade_posterior,
    posterior_weights,
)
from srjt.ordinal.decoding import highest_per_unit
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

CLASSES, CLINICS, PATIENTS, NEW, PROMISED = 4, 16, 50, 200, 0.8
MATRIX = noise.transition_matrix("truncated", num_classes=CLASSES, rho=0.12)
HIGHEST = Answering(per="patient", coverage=0.8)


def ranges_of(run: Trained, **options: Any) -> RangeRule:
    return calibrate_run(run, Answering(**options)).rule(CalibratedRanges).rule


@cache
def clinic(
    patients: int, *, seed: int, images: Any, together: bool = False
) -> tuple[HeldOut, np.ndarray]:
    """Patients with similar images and the patient of each. together: all labels of a patient are
    wrong by the same."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(patients), rng.integers(images[0], images[1] + 1, patients))
    severity = rng.uniform(0, CLASSES, patients)[units] - 0.6 * np.abs(rng.normal(size=len(units)))
    true = severity.clip(0, CLASSES - 1e-9).astype(int)
    if together:
        highest = highest_per_unit(true, units)
        error = noise.corrupt(highest, MATRIX, seed=seed) - highest
        labels = (true + error[units]).clip(0, CLASSES - 1)
    else:
        labels = noise.corrupt(true, MATRIX, seed=seed)
    seen = severity[:, None] + 0.5 * rng.normal(size=(len(units), 1))
    logits = -((np.arange(CLASSES) + 0.5 - seen) ** 2) / 0.6
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = [f"p{unit}" for unit in units]
    side = HeldOut(
        ids=[str(n) for n in range(len(units))], probabilities=p[None].astype(np.float32), labels=labels,
        true_labels=true, patients=names, groups=names,
    )  # fmt: skip
    return side, units


def known(side: HeldOut) -> NoiseBounds:
    return given_noise(MATRIX, np.bincount(side.labels, minlength=CLASSES) / len(side))


def coverages(
    label_noise: LabelNoise, *, images: Any, together: bool = False
) -> tuple[np.ndarray, float]:
    """The coverage of new patients in each of CLINICS clinics, and the mean width."""
    found, widths = [], []
    for seed in range(CLINICS):
        side, units = clinic(PATIENTS + NEW, seed=seed, images=images, together=together)
        old = np.flatnonzero(units < PATIENTS)
        new = np.flatnonzero(units >= PATIENTS)
        options = Answering(per="patient", coverage=PROMISED, label_noise=label_noise)
        rule = calibrate_ranges(rows_of(side, old), options, noise=known(side))
        low, high = rule.ranges(side.probabilities[0, new], side.table.iloc[new])
        truth = highest_per_unit(side.true_labels, units)[PATIENTS:]
        found.append(((low <= truth) & (truth <= high)).mean())
        widths.append((high - low + 1).mean())
    return np.array(found), float(np.mean(widths))


def interval(found: np.ndarray) -> tuple[float, float]:
    """99.7 % interval of the mean over the clinics."""
    error = 3 * float(found.std(ddof=1)) / len(found) ** 0.5
    return float(found.mean()) - error, float(found.mean()) + error


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
def test_the_default_keeps_its_promise_if_labels_are_wrong_one_by_one_or_together(
    together: bool,
) -> None:
    found, _ = coverages("unknown", images=(1, 6), together=together)
    assert interval(found)[0] >= PROMISED


@pytest.mark.slow
def test_products_of_inverse_matrices_keep_the_promise_and_are_narrower() -> None:
    found, width = coverages("class-conditional", images=(2, 2))
    assert interval(found)[1] >= PROMISED
    assert found.mean() < 0.9  # not wider than what is promised asks for
    assert width < coverages("unknown", images=(2, 2))[1]


@pytest.mark.slow
def test_the_highest_of_many_noisy_labels_taken_as_right_breaks_the_promise() -> None:
    """So that the tests above fail if the noise of the highest label is ignored."""
    taken_as_right, _ = coverages("none", images=(16, 16))
    assert interval(taken_as_right)[1] < PROMISED
    corrected, _ = coverages("unknown", images=(16, 16))
    assert interval(corrected)[0] >= PROMISED


@pytest.mark.parametrize("label_noise", ["unknown", "class-conditional", "none"])
@pytest.mark.parametrize("how", ["highest", "mean"])
@pytest.mark.parametrize("by", [None, "grade"])
def test_one_image_per_patient_is_the_range_of_the_image(
    label_noise: LabelNoise, how: Any, by: Any
) -> None:
    side, _ = clinic(150, seed=1, images=(1, 1))
    options = Answering(coverage=0.9, label_noise=label_noise, coverage_by=by, pool=how)
    some = np.where(np.arange(150) % 30 == 0, side.true_labels, -1)
    for one in (side, replace(side, verified_labels=some)):
        images = calibrate_ranges(one, options, noise=known(side))
        patients = calibrate_ranges(one, replace(options, per=("patient",)), noise=known(side))
        assert patients.thresholds == pytest.approx(images.thresholds, abs=1e-6)
        assert (patients.basis, patients.patients, patients.samples) == (
            images.basis,
            images.patients,
            150,
        )
        new, _ = clinic(300, seed=2, images=(1, 1))
        found, expected = (
            rule.ranges(new.probabilities[0], new.table) for rule in (patients, images)
        )
        assert np.array_equal(found, expected)


def test_labels_of_a_patient_may_be_wrong_one_by_one_or_together() -> None:
    """Where all images are equally clear, the weights are p(highest true grade | labels) of either
    kind."""
    side, units = clinic(12, seed=0, images=(2, 2))
    alike = np.full((24, CLASSES), 1 / CLASSES)
    one_by_one, together = unit_evidence(side, units, alike, known(side), "unknown").plausible
    np.testing.assert_allclose(one_by_one, highest_grade_posterior(side.labels, units, MATRIX))
    highest = highest_per_unit(side.labels, units)
    mix = np.bincount(highest, minlength=CLASSES) / 12
    np.testing.assert_allclose(together, posterior_weights(highest, given_noise(MATRIX, mix).joint))
    assert np.abs(one_by_one - together).max() > 0.05


def test_without_noise_the_highest_label_is_the_truth() -> None:
    side, units = clinic(60, seed=3, images=(1, 5))
    clean = given_noise(np.eye(CLASSES), np.bincount(side.labels, minlength=CLASSES) / len(side))
    expected = np.eye(CLASSES)[highest_per_unit(side.labels, units)]
    for label_noise in ("none", "unknown", "class-conditional"):
        found = unit_evidence(side, units, side.probabilities[0], clean, label_noise)  # type: ignore[arg-type]
        for weights in (found.right, *found.plausible, *found.inverse):
            assert weights == pytest.approx(expected, abs=1e-5)


def test_eyes_of_one_patient_share_its_weight() -> None:
    side, eyes = clinic(40, seed=4, images=(2, 4))
    patients = [f"p{eye // 2}" for eye in eyes]
    both = replace(
        side, patients=patients, groups=patients, columns={"eye": [str(eye % 2) for eye in eyes]}
    )
    options = Answering(per=("patient", "eye"), coverage=0.9, label_noise="none")
    rule = calibrate_ranges(both, options, noise=None)
    assert (rule.patients, rule.answers) == (20, 40)
    assert (rule.promise.by_patient, rule.promise.samples) == (True, len(side))


def test_verified_patients_are_used_alone_only_if_they_are_a_random_sample() -> None:
    side, units = clinic(80, seed=5, images=(1, 4))
    whole = np.where(units % 2 == 0, side.true_labels, -1)  # every other patient
    rule = calibrate_ranges(replace(side, verified_labels=whole), HIGHEST, noise=known(side))
    assert (rule.basis, rule.patients, rule.samples) == (
        "verified",
        40,
        int((units % 2 == 0).sum()),
    )
    assert rule.assumptions == (Assumption(kind="random"),)
    by_doubt = replace(
        side, verified_labels=whole, verified_probability=np.linspace(0.2, 0.9, len(side))
    )
    assert calibrate_ranges(by_doubt, HIGHEST, noise=known(side)).basis == "corrected"
    # of images that were verified at random, small patients are complete more often
    rng = np.random.default_rng(0)
    scattered = np.where(rng.random(len(side)) < 0.6, side.true_labels, -1)
    rule = calibrate_ranges(replace(side, verified_labels=scattered), HIGHEST, noise=known(side))
    assert rule.basis == "corrected"


def test_the_conservative_range_allows_for_every_label_of_a_patient() -> None:
    side, units = clinic(50, seed=6, images=(4, 4))
    assert unit_evidence(
        side, units, side.probabilities[0], known(side), "unknown"
    ).labels_each == pytest.approx(4.0)
    few = replace(known(side), samples=80)
    rule = calibrate_ranges(side, HIGHEST, noise=few)
    assert rule.basis == "conservative"
    corrected = calibrate_ranges(side, HIGHEST, noise=known(side))
    assert (rule.thresholds >= corrected.thresholds).all()
    never = np.eye(CLASSES)[[0, 1, 2, 2]]  # label 3 cannot occur
    impossible = NoiseBounds(joint=never / 4, rates=(0.2, 0.2), determined=True)
    rule = calibrate_ranges(side, HIGHEST, noise=impossible)
    assert rule.basis == "conservative"
    assert rule.assumptions == (Assumption(kind="near"),)


@pytest.mark.parametrize(
    "pool", [None, "highest", "mean", pytest.param("learned", marks=pytest.mark.slow)]
)
def test_predict_and_evaluate_per_image_or_patient(
    run: Trained, features: Manifest, pool: Any
) -> None:
    test = features.select(folds(features)[0].test)
    per: dict[str, Any] = {} if pool is None else {"per": "patient", "pool": pool}
    how: dict[str, Any] = {"coverage": 0.8, "label_noise": "none", **per}
    table = srjt.predict(run, test, **how)
    first = ["image", "patient"] if pool is None else ["patient", "images"]
    assert list(table.columns[:5]) == [*first, "grade", "grade_low", "grade_high"]
    low, grade, high = (
        table[name].astype(int).to_numpy() for name in ("grade_low", "grade", "grade_high")
    )
    assert ((low <= grade) & (grade <= high)).all()
    promise = table.attrs["how"]["range"]
    assert promise["coverage"] == 0.8
    assert promise["per"] == ([] if pool is None else ["patient"])
    assert (promise["patients"], promise["samples"]) == (30, 120)
    plain = srjt.predict(run, test, label_noise="none", **per)
    assert "range" not in plain.attrs["how"]
    pd.testing.assert_frame_equal(
        plain, table.drop(columns=["grade_low", "grade_high"]), check_exact=True
    )
    found = srjt.evaluate(run, test, resamples=20, **how)
    truth = test.true_labels
    if pool is not None:
        truth = pd.Series(truth).groupby(test.patients, sort=False).max().to_numpy()
    coverage = found.ranges.coverage
    assert coverage.value == pytest.approx(((low <= truth) & (truth <= high)).mean())
    assert coverage.low <= coverage.value <= coverage.high
    assert found.ranges.width.value == pytest.approx((high - low + 1).mean())
    counts = np.bincount(truth, minlength=4).tolist()
    assert [count for count, _ in found.ranges.grades] == counts
    assert found.to_dict()["ranges"]["grades"][0]["samples"] == counts[0]
    assert found.to_dict()["ranges"]["promise"] == promise


@pytest.mark.slow
def test_per_other_columns_needs_samples_that_have_them(run: Trained, features: Manifest) -> None:
    sides = folds(features)[0]
    validation, test = features.select(sides.validation), features.select(sides.test)
    how: dict[str, Any] = {"coverage": 0.8, "per": ["patient", "eye"], "label_noise": "none"}
    kept = srjt.predict(run.folder, test, **how)  # the run keeps the columns of its validation side
    table = srjt.predict(run, test, calibrate_on=validation, **how)
    pd.testing.assert_frame_equal(
        kept[["grade_low", "grade_high"]], table[["grade_low", "grade_high"]]
    )
    old = {
        name: replace(side, columns={}) for name, side in run.held_out.items()
    }  # as without keep_columns
    with refuses("missing_column", "calibrate_on"):
        srjt.predict(replace(run, held_out=old), test, **how)
    assert list(table.columns[:6]) == [
        "patient",
        "eye",
        "images",
        "grade",
        "grade_low",
        "grade_high",
    ]
    promise = table.attrs["how"]["range"]
    assert promise["per"] == ["patient", "eye"]
    assert (promise["patients"], promise["answers"], promise["samples"]) == (30, 60, 120)
    without = replace(validation, table=validation.table.drop(columns="eye"))
    with refuses("missing_column", "calibrate_on", says="eye"):
        srjt.predict(run, test, calibrate_on=without, **how)


@pytest.mark.slow
@pytest.mark.parametrize("per", [(), ("patient",)])
def test_for_each_value_of_a_column_and_each_grade(
    run: Trained, features: Manifest, per: Any
) -> None:
    validation = features.select(folds(features)[0].validation)
    how: dict[str, Any] = {"coverage": 0.6, "per": per, "label_noise": "none", "recalibrate": False}
    table = srjt.predict(run, features, coverage_by="centre", calibrate_on=validation, **how)
    for centre in ("A", "B"):
        rows = validation.select((validation.table["centre"] == centre).to_numpy())
        of = features.select((features.table["centre"] == centre).to_numpy())
        alone = srjt.predict(run, of, calibrate_on=rows, **how)
        both = table[table["patient"].isin(alone["patient"])]
        assert both["grade_low"].tolist() == alone["grade_low"].tolist()
        assert both["grade_high"].tolist() == alone["grade_high"].tolist()
    own = srjt.predict(
        run, features, coverage_by="centre", **how
    )  # the validation side has the column, too
    assert own["grade_low"].tolist() == table["grade_low"].tolist()
    with refuses("missing_column", "calibrate_on", says="camera"):
        srjt.predict(run, features, coverage_by="camera", **how)
    nowhere = replace(features, table=features.table.drop(columns="centre"))
    with refuses("missing_column", "coverage_by", says="centre"):
        srjt.predict(run, nowhere, coverage_by="centre", **how)
    if per:
        with refuses("ambiguous", "coverage_by", says=("'L'", "'R'")):
            srjt.predict(run, features, coverage_by="eye", calibrate_on=validation, **how)
    each = ranges_of(run, coverage_by="grade", **how)
    assert isinstance(each, RangeRule)
    assert each.promise.coverage_by == "grade"


@pytest.mark.slow
def test_a_given_rate_is_doubted_and_a_given_matrix_is_not() -> None:
    side = drawn_side(240, patients=80, wrong=0.3)
    base = made_run(held_out={"validation": side})
    matrix = tuple(
        map(tuple, noise.transition_matrix("truncated", num_classes=4, rho=0.01).tolist())
    )

    def ranges(**settings: Any) -> RangeRule:
        run = replace(base, config=base.config.replace(**settings))
        return ranges_of(run, coverage=0.9, recalibrate=False)

    assumed = ranges(noise_rate=0.01, transition=matrix, method="srjt")  # what srjt makes of a rate
    given = ranges(transition=matrix, method="srjt")
    assert given.assumptions[0].rates == pytest.approx((0.015, 0.015), abs=0.01)
    low, high = assumed.assumptions[0].rates or (0.0, 0.0)
    assert low < high
    # too low a rate does not make the ranges narrower than the labels allow
    assert (given.thresholds < assumed.thresholds).all()
    assert (ranges(noise_rate=0.9).assumptions[0].rates or (0.0, 0.0))[1] == 0.9
