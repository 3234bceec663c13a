"""Ranges and recalibration of a run: what they rest on is said, and the promise is kept despite
wrong labels."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import srjt
from refusals import refuses
from srjt import noise
from srjt.data import Manifest, folds
from srjt.inference import range_evidence, ranges
from srjt.inference.calibrated_run import calibrate_run, recalibration_of
from srjt.inference.options import Answering
from srjt.inference.range_evidence import Assumption, image_evidence, unit_evidence
from srjt.inference.ranges import RangeRule, calibrate_ranges, rows_of
from srjt.json_values import json_values
from srjt.noise.matrices import transition_of
from srjt.noise.quality import (
    LabelNoise,
    NoiseBounds,
    given_noise,
    highest_grade_posterior,
    posterior_weights,
    scaled_joint,
)
from srjt.ordinal.ranges import range_scores, range_threshold
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

CLASSES = 4
NINETY = Answering(coverage=0.9)
MATRIX = noise.transition_matrix("truncated", num_classes=CLASSES, rho=0.2)


@cache
def drawn(patients: int, *, seed: int, images: int = 2) -> tuple[HeldOut, np.ndarray]:
    """Patients with a common severity, networks that know the true grade's probabilities, labels
    wrong by MATRIX."""
    rng = np.random.default_rng(seed)
    severity = np.repeat(rng.uniform(0, CLASSES, patients), images) + 0.3 * rng.normal(
        size=patients * images
    )
    true = severity.clip(0, CLASSES - 1e-9).astype(int)
    seen = severity + 0.5 * rng.normal(size=len(true))
    logits = -((np.arange(CLASSES) + 0.5 - seen[:, None]) ** 2) / 0.6
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = np.repeat([f"p{n}" for n in range(patients)], images).tolist()
    ids = [f"{name}-{n}" for n, name in enumerate(names)]
    labels = noise.corrupt(true, MATRIX, seed=seed, ids=ids)
    known = {"labels": labels, "true_labels": true, "patients": names, "groups": names}
    return HeldOut(ids=ids, probabilities=p[None].astype(np.float32), **known), true


def known(side: HeldOut) -> NoiseBounds:
    return given_noise(MATRIX, np.bincount(side.labels, minlength=CLASSES) / len(side))


def covered(rule: RangeRule, side: HeldOut, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = rule.ranges(side.probabilities[0], side.table)
    return (low <= true) & (true <= high), high - low + 1


@pytest.mark.parametrize(
    ("label_noise", "narrow"),
    [
        pytest.param("unknown", False, marks=pytest.mark.slow),  # the default
        pytest.param("class-conditional", True, marks=pytest.mark.slow),
        pytest.param("none", False, marks=pytest.mark.slow),
    ],
)
def test_the_true_grade_is_covered_despite_wrong_labels(
    label_noise: LabelNoise, narrow: bool
) -> None:
    """Of simulated clinics: a random image of one new patient each."""
    rng, hits, widths = np.random.default_rng(0), 0, []
    clinics = 120 if label_noise == "unknown" else 300
    for seed in range(clinics):
        side, true = drawn(81, seed=seed)
        calibration = rows_of(side, np.arange(160))
        options = Answering(coverage=0.8, label_noise=label_noise)
        rule = calibrate_ranges(calibration, options, noise=known(side))
        inside, width = covered(rule, side, true)
        new = int(rng.integers(160, 162))
        hits += int(inside[new])
        widths.append(float(width[160:].mean()))
    assert hits >= binom.ppf(0.005, clinics, 0.8)
    if narrow:  # no wider than what is promised asks for
        assert hits <= binom.ppf(0.995, 300, 0.87)
        assert np.mean(widths) < 1.7
    else:
        assert np.mean(widths) > 1.7


def test_without_noise_it_is_split_conformal_prediction() -> None:
    side, _ = drawn(60, seed=0, images=1)
    scores = range_scores(side.probabilities[0])[np.arange(60), side.labels]
    expected = np.sort(scores)[int(np.ceil(0.9 * 61)) - 1]
    clean = given_noise(np.eye(CLASSES), np.bincount(side.labels, minlength=CLASSES) / 60)
    for label_noise in ("none", "unknown", "class-conditional"):
        rule = calibrate_ranges(side, Answering(coverage=0.9, label_noise=label_noise), noise=clean)
        assert rule.thresholds.tolist() == [expected] * CLASSES


def test_conservative_ranges_add_the_labels_that_may_be_wrong_by_more_to_the_promise() -> None:
    """3 % of the labels may be wrong at all: half of the 0.1 that is left. The threshold is that of
    0.93 of them."""
    side, _ = drawn(200, seed=4, images=1)
    joint = scaled_joint(known(side).joint, rate=0.03)
    noisy = NoiseBounds(joint=joint, rates=(0.0, 0.03), determined=True)
    scores = range_scores(side.probabilities[0])
    evidence = image_evidence(side, side.probabilities[0], noisy, "unknown")
    found = ranges.conservative_thresholds(scores, evidence, noisy, coverage=0.9)
    own = np.sort(scores[np.arange(200), side.labels])
    expected = own[int(np.ceil(0.93 * 201)) - 1]
    assert expected > own[int(np.ceil(0.9 * 201)) - 1]
    assert found.tolist() == [expected] * CLASSES


def test_the_default_takes_the_middle_of_the_plausible_rates_and_each_direction() -> None:
    p = np.full((2, 2), 0.5)
    side = HeldOut(ids=["a", "b"], probabilities=p[None], labels=np.array([0, 1]))
    noisy = NoiseBounds(joint=np.array([[0.4, 0.1], [0.1, 0.4]]), rates=(0.1, 0.4), determined=True)
    (weights,) = image_evidence(side, p, noisy, "unknown").plausible
    np.testing.assert_allclose(weights, [[0.75, 0.25], [0.25, 0.75]])
    undetermined = replace(noisy, determined=False)
    _, low, high = image_evidence(side, p, undetermined, "unknown").plausible
    np.testing.assert_allclose(
        low, [[0.5, 0.5], [0.0, 1.0]], atol=1e-5
    )  # half of the labels 0 are too low
    np.testing.assert_allclose(high, [[1.0, 0.0], [0.5, 0.5]], atol=1e-5)
    units = np.array([0, 0, 1, 1])
    q = np.full((4, 2), 0.5)
    twins = replace(side, ids=list("abcd"), probabilities=q[None], labels=units)
    one_by_one, together = unit_evidence(twins, units, q, noisy, "unknown").plausible
    matrix = [[0.75, 0.25], [0.25, 0.75]]
    np.testing.assert_allclose(one_by_one, highest_grade_posterior(twins.labels, units, matrix))
    np.testing.assert_allclose(together, matrix)
    assert len(unit_evidence(twins, units, q, undetermined, "unknown").plausible) == 6


@pytest.mark.parametrize("step", [-1, 1])
def test_one_sided_noise_has_its_rate_its_direction_and_the_shares_of_the_labels(step: int) -> None:
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    joint = range_evidence.one_sided_noise(shares, rate=0.15, step=step)
    assert 1 - np.trace(joint) == pytest.approx(0.15, abs=1e-6)
    assert joint.sum(axis=0) == pytest.approx(shares, abs=1e-5)
    np.testing.assert_allclose(
        joint - np.diag(np.diag(joint)), np.diag(np.diag(joint, k=step), k=step)
    )
    each = transition_of(joint)[np.arange(4), np.clip(np.arange(4) + step, 0, 3)]
    inner = each[1:] if step < 0 else each[:-1]
    assert inner == pytest.approx(np.full(3, inner[0]))  # equally often
    most = transition_of(range_evidence.one_sided_noise(shares, rate=0.9, step=step))
    assert (np.diag(most) >= 0.5 - 1e-9).all()
    assert range_evidence.one_sided_noise(shares, rate=0.0, step=step) == pytest.approx(
        np.diag(shares), abs=1e-5
    )


def test_of_the_images_with_one_label_the_unclear_ones_are_wrong_more_often() -> None:
    labels = np.array([0, 0, 1, 1])
    right, posterior = np.eye(2)[labels], np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [0.4, 0.6]])
    p = np.array([[0.9, 0.1], [0.3, 0.7], [0.0, 1.0], [0.5, 0.5]])  # doubts of 0.1, 0.3, 0 and 0.5
    found = range_evidence.unclear_weights(right, posterior, labels, p)
    # the share of the label 0 stays 0.2: 0.1 and 0.3; that of the label 1 is 0.4: 0 and 0.8
    assert found == pytest.approx(np.array([[0.9, 0.1], [0.7, 0.3], [0.0, 1.0], [0.8, 0.2]]))
    certain = range_evidence.unclear_weights(right, posterior, labels, np.eye(2)[labels])
    assert certain == pytest.approx(posterior)  # no doubt anywhere: all alike
    often = range_evidence.unclear_weights(
        right[:2], 1 - posterior[:2], labels[:2], p[:2]
    )  # 0.8, of which at most 1
    assert often[:, 1] == pytest.approx([0.4, 1.0])
    assert range_evidence.unclear_weights(right, right, labels, p) == pytest.approx(right)


GRADES = np.array([-0.97, 0.54, 1.45, 1.9])  # thresholds of the severity: five very uneven grades


def weak(samples: int, *, rng: np.random.Generator, matrix: np.ndarray | None = None) -> HeldOut:
    """A network that sees the severity with an error of two standard deviations and says
    p(label)."""
    severity = rng.normal(size=samples)
    true = np.searchsorted(GRADES, severity)
    below = ndtr((GRADES - ((severity + 2 * rng.normal(size=samples)) / 5)[:, None]) / np.sqrt(0.8))
    p = np.diff(below, axis=1, prepend=0.0, append=1.0)
    labels = true
    if matrix is not None:
        p = p @ matrix
        labels = (rng.random(samples)[:, None] > matrix[true].cumsum(axis=1)[:, :-1]).sum(axis=1)
    ids = [str(row) for row in range(samples)]
    return HeldOut(
        ids=ids, probabilities=p[None].astype(np.float32), labels=labels, true_labels=true
    )


def weak_coverage(
    bounds: NoiseBounds,
    *,
    label_noise: LabelNoise = "unknown",
    matrix: np.ndarray | None = None,
    samples: int = 120,
) -> float:
    """The mean coverage of true grades over 60 calibrations; its standard error is about 0.004."""
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        side, new = weak(samples, rng=rng, matrix=matrix), weak(1000, rng=rng, matrix=matrix)
        rule = calibrate_ranges(side, replace(NINETY, label_noise=label_noise), noise=bounds)
        found.append(covered(rule, new, new.true_labels)[0].mean())
    return float(np.mean(found))


def undetermined(rates: tuple[float, float]) -> NoiseBounds:
    """As an estimate by weak networks is: most true grades are taken for the common one."""
    shares = np.diff(ndtr(GRADES), prepend=0.0, append=1.0)
    prior = shares * [0.5, 1.6, 0.7, 0.1, 0.1]
    joint = prior[:, None] * (0.7 * np.eye(5) + 0.3 * shares)
    return NoiseBounds(joint=joint / joint.sum(), rates=rates, determined=False)


@pytest.mark.slow
def test_clean_labels_and_a_weak_network_keep_the_promise_and_the_ranges_are_not_much_too_wide() -> (
    None
):
    assert 0.90 < weak_coverage(undetermined((0.0, 0.5))) < 0.96


@pytest.mark.slow
def test_labels_that_are_all_too_low_keep_the_promise_although_nothing_shows_it() -> None:
    low = 0.75 * np.eye(5) + 0.25 * np.eye(5, k=-1)
    low[0] = np.eye(5)[0]
    how: dict[str, Any] = {"matrix": low, "samples": 300}
    assert weak_coverage(undetermined((0.0, 0.5)), **how) > 0.9
    # labels taken as right break it, so that the test can fail
    assert weak_coverage(undetermined((0.0, 0.5)), label_noise="none", **how) < 0.885


def test_labels_of_rare_grades_that_may_be_the_common_one_do_not_make_ranges_narrower() -> None:
    """Every range holds the common grade: so no single rate of wrong labels is the worst case."""
    side = weak(300, rng=np.random.default_rng(5))
    bounds = replace(undetermined((0.3, 0.5)), determined=True)
    taken, default = (
        calibrate_ranges(side, replace(NINETY, label_noise=how), noise=bounds)
        for how in ("none", "unknown")
    )
    scores = default.scores(side.probabilities[0], np.arange(300))
    by_one_rate = range_threshold(
        scores, posterior_weights(side.labels, bounds.highest()), coverage=0.9
    )
    assert by_one_rate < taken.thresholds[0] < default.thresholds[0]


@pytest.mark.slow
@pytest.mark.parametrize("per", [(), ("patient",)])
@pytest.mark.parametrize("by", [None, "grade"])
def test_the_default_is_never_narrower_than_labels_taken_as_right(per: Any, by: Any) -> None:
    """Whatever the noise: random joint distributions and rates, determined or not, from many labels
    or few."""
    rng = np.random.default_rng(3)
    for trial in range(12):
        side, _ = drawn(40, seed=trial)
        joint = rng.dirichlet(np.full(CLASSES**2, 0.3)).reshape(CLASSES, CLASSES) + np.eye(CLASSES)
        rates = tuple(np.sort(rng.random(2) * 0.8).tolist())
        bounds = NoiseBounds(
            joint=joint / joint.sum(),
            rates=rates,
            determined=trial % 2 == 0,
            samples=80 if trial % 3 == 0 else 200,
        )
        options = Answering(coverage=0.8, per=per, coverage_by=by)
        default = calibrate_ranges(side, options, noise=bounds)
        taken = calibrate_ranges(side, replace(options, label_noise="none"), noise=bounds)
        assert (default.thresholds >= taken.thresholds).all()


def test_verified_grades_are_used_alone_if_they_suffice() -> None:
    side, true = drawn(100, seed=1)
    some = np.where(
        np.arange(len(side)) % 2 == 0, true, -1
    )  # one of the two images of each patient
    rule = calibrate_ranges(replace(side, verified_labels=some), NINETY, noise=known(side))
    scores = range_scores(rule.temperature(side.probabilities[0]))[np.arange(0, 200, 2), true[::2]]
    assert rule.thresholds[0] == np.sort(scores)[int(np.ceil(0.9 * 101)) - 1]
    assert (rule.basis, rule.samples, rule.patients) == ("verified", 100, 100)
    few = np.where(np.arange(len(side)) < 8, true, -1)  # a promise of 0.9 takes nine patients
    corrected = calibrate_ranges(replace(side, verified_labels=few), NINETY, noise=known(side))
    assert corrected.basis == "corrected"
    # weights do not make a promise for each new patient: samples that were drawn by doubt are left
    # out
    by_doubt = replace(
        side, verified_labels=some, verified_probability=np.linspace(0.2, 0.9, len(side))
    )
    assert calibrate_ranges(by_doubt, NINETY, noise=known(side)).basis == "corrected"
    part = rows_of(by_doubt, np.arange(10))
    np.testing.assert_array_equal(part.verified_probability, by_doubt.verified_probability[:10])


def test_more_noise_and_more_coverage_widen_the_ranges() -> None:
    side, true = drawn(200, seed=2)

    def width(coverage: float, high: float) -> float:
        noisy = NoiseBounds(joint=known(side).joint, rates=(0.0, high), determined=False)
        rule = calibrate_ranges(side, Answering(coverage=coverage), noise=noisy)
        return float(covered(rule, side, true)[1].mean())

    widths = [[width(coverage, high) for high in (0.1, 0.3, 0.5)] for coverage in (0.7, 0.8, 0.9)]
    assert (np.diff(widths, axis=0) >= 0).all()
    assert (np.diff(widths, axis=1) >= 0).all()


@pytest.mark.slow
def test_for_each_grade() -> None:
    new, true = drawn(2000, seed=1000)
    found = []
    for seed in range(20):
        side, _ = drawn(300, seed=seed)
        options = replace(NINETY, label_noise="class-conditional", coverage_by="grade")
        rule = calibrate_ranges(side, options, noise=known(side))
        inside, _ = covered(rule, new, true)
        found.append([inside[true == grade].mean() for grade in range(CLASSES)])
    error = np.std(found, axis=0) / 20**0.5
    assert (np.mean(found, axis=0) > 0.9 - 3 * error).all()
    assert rule.promise.coverage_by == "grade"
    rare = replace(side, labels=np.where(side.labels == 3, 2, side.labels))
    without = calibrate_ranges(rare, replace(options, label_noise="none"), noise=None)
    assert np.isinf(without.thresholds[3])
    assert without.promise.trivial_grades == (3,)


def test_few_labels_give_a_conservative_or_a_trivial_range_and_say_so() -> None:
    side, _ = drawn(40, seed=5)
    uncertain = replace(known(side), samples=80)
    rule = calibrate_ranges(side, Answering(coverage=0.8), noise=uncertain)
    assert rule.basis == "conservative"
    assert rule.assumptions == (Assumption(kind="near", labels=80),)
    corrected = calibrate_ranges(side, Answering(coverage=0.8), noise=known(side))
    assert (rule.thresholds >= corrected.thresholds).all()
    tiny, _ = drawn(4, seed=6)
    nothing = calibrate_ranges(tiny, replace(NINETY, label_noise="none"), noise=None)
    assert nothing.trivial
    assert nothing.promise.trivial
    assert covered(nothing, side, side.labels)[1].tolist() == [CLASSES] * 80


def sharpened(side: HeldOut) -> HeldOut:
    """As networks that are too sure."""
    p = side.probabilities.astype(np.float64) ** 4
    return replace(side, probabilities=(p / p.sum(axis=2, keepdims=True)).astype(np.float32))


def test_recalibration_says_what_its_probabilities_mean() -> None:
    side, true = drawn(400, seed=7)
    confident = sharpened(side)
    aware = recalibration_of(confident, Answering(), noise=known(side))
    checked = recalibration_of(
        replace(confident, verified_labels=true), Answering(), noise=known(side)
    )
    by_label = recalibration_of(confident, Answering(), noise=None)
    assert by_label.slope < aware.slope < 1.0
    assert aware.slope == pytest.approx(checked.slope, rel=0.3)
    share = 1 - np.trace(known(side).joint)
    assert (aware.basis, aware.wrong_labels) == ("noise", (share, share))
    assert (by_label.basis, checked.basis) == ("labels", "verified")
    drawn_by_doubt = replace(
        confident, verified_labels=true, verified_probability=np.linspace(0.2, 0.9, len(side))
    )
    assert recalibration_of(drawn_by_doubt, Answering(), noise=known(side)) == aware


def test_unknown_noise_recalibrates_no_further_than_each_plausible_noise_demands() -> None:
    side, _ = drawn(400, seed=7)
    uncertain = replace(known(side), rates=(0.0, 0.3))
    # without noise too sure, with noise not sure enough
    assert recalibration_of(side, Answering(), noise=uncertain) is None
    confident = sharpened(side)
    found = recalibration_of(confident, Answering(), noise=uncertain)
    bounds = [replace(uncertain, rates=(rate, rate), joint=joint, determined=False)
              for rate, joint in ((0.0, uncertain.lowest()), (0.3, uncertain.highest()))]  # fmt: skip
    ends = [recalibration_of(confident, Answering(), noise=one) for one in bounds]
    slopes = [one.slope for one in ends if one is not None]
    assert len(slopes) == 2
    assert found.slope == max(slopes) < 1.0
    assert (found.basis, found.wrong_labels) == ("noise", (0.0, 0.3))


@pytest.mark.slow
def test_the_noise_of_a_run_is_estimated_once(
    run: Trained, features: Manifest, monkeypatch: Any
) -> None:
    estimated = []

    def estimate(*labels: Any, **how: Any) -> noise.NoiseEstimate:
        estimated.append(how)
        return noise.estimate_noise(*labels, **how)

    monkeypatch.setattr("srjt.inference.calibrated_run.estimate_noise", estimate)
    fresh = replace(run, held_out={"validation": replace(run.held_out["validation"])})
    first, second = (srjt.predict(fresh, features) for _ in range(2))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert len(estimated) == 1


def test_recalibration_is_used_and_can_be_turned_off(run: Trained, features: Manifest) -> None:
    ps = [f"p_{c}" for c in range(4)]
    fitted = calibrate_run(run)
    off, on = (srjt.predict(run, features, recalibrate=how) for how in (False, True))
    assert [table.attrs["how"]["recalibration"] for table in (off, on)] == [
        None,
        json_values(fitted.recalibration),
    ]
    assert on[ps].to_numpy() == pytest.approx(fitted.recalibration(off[ps].to_numpy()), abs=1e-6)
    test = features.select(folds(features)[0].test)
    before, after = (
        srjt.evaluate(run, test, recalibrate=how, resamples=10) for how in (False, True)
    )
    assert after.ranked_probability_score < before.ranked_probability_score
    assert (before.recalibration, after.recalibration) == (None, fitted.recalibration)


@pytest.mark.slow
def test_a_run_without_a_validation_side_says_what_to_do(run: Trained, features: Manifest) -> None:
    bare = replace(run, held_out={})
    assert srjt.predict(bare, features).attrs["how"]["recalibration"] is None
    with refuses("no_split", "calibrate_on"):
        srjt.predict(bare, features, coverage=0.9)
    validation = features.select(folds(features)[0].validation)
    table = srjt.predict(bare, features, coverage=0.9, calibrate_on=validation)
    promise = table.attrs["how"]["range"]
    assert (promise["patients"], promise["samples"]) == (30, 120)
