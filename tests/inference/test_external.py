"""A second centre: what changed from the run's own test side, and why."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import srjt
from refusals import refuses
from srjt.data import Manifest, folds
from srjt.data.grades import UNKNOWN_PATIENT
from srjt.data.splits import share_of_patients
from srjt.inference.evaluate import Leakage
from srjt.reports.aspects.second_centre import sentences_of
from srjt.training.trained import Trained


def elsewhere(features: Manifest, rows: np.ndarray) -> Manifest:
    """Samples of the test side under other names."""
    table = (
        features.table.iloc[rows]
        .reset_index(drop=True)
        .assign(id=[f"new{k}" for k in range(len(rows))])
    )
    table["patient"] = [f"other {patient}" for patient in table["patient"]]
    return replace(
        features, table=table, arrays=features.arrays[rows], duplicates=None, hashes=None
    )


@pytest.mark.slow
def test_another_mix_of_grades_is_told_from_worse_answers(run: Trained, features: Manifest) -> None:
    test = folds(features)[0].test
    true = features.true_labels
    severe = np.concatenate(
        [test, *[test[true[test] == 3]] * 3]
    )  # the same answers, and more of one grade
    found = srjt.evaluate(run, elsewhere(features, severe), resamples=20)
    external = found.external
    home, here = (scores.intervals["mae"].value for scores in (external.home, external.here))
    assert external.by_answers == pytest.approx(0, abs=1e-9)
    assert external.by_mix == pytest.approx(here - home)
    assert external.here.shares[3] > external.home.shares[3]
    assert external.here.confusion == found.confusion
    assert external.recalibrated is None

    lower = elsewhere(features, test)
    lower = replace(lower, arrays=(lower.arrays - 0.8).astype(np.float32))  # another device
    shifted = srjt.evaluate(run, lower, resamples=20)
    assert shifted.external.by_mix == pytest.approx(0, abs=1e-9)
    assert shifted.external.by_answers > 0.2
    section = next(part for part in srjt.report(shifted).sections if part.slug == "external")
    assert section.text == list(sentences_of(shifted.external))
    json.dumps(shifted.to_dict())


def test_a_part_of_it_recalibrates_the_rest(run: Trained, features: Manifest) -> None:
    rows = np.flatnonzero(np.isin(np.arange(600), folds(features)[0].train, invert=True))
    other = elsewhere(features, rows)
    other = replace(other, arrays=(other.arrays + 1.2).astype(np.float32))
    found = srjt.evaluate(run, other, calibrate_on=0.5, label_noise="none", resamples=20)
    external = found.external
    part = share_of_patients(other, 0.5)
    assert external.calibrated_on == (part.sum(), len(set(np.array(other.patients)[part])))
    assert found.samples == (~part).sum()
    assert not found.overlaps
    assert external.recalibrated.calibration_error < external.here.calibration_error
    assert external.recalibrated.intervals["mae"].value < external.here.intervals["mae"].value
    section = next(part for part in srjt.report(found).sections if part.slug == "external")
    assert section.text[-1].startswith(f"Recalibrated on {part.sum()} samples: ")


@pytest.mark.slow
def test_the_own_test_side_is_not_elsewhere_and_a_share_is_for_evaluate(
    run: Trained, features: Manifest
) -> None:
    assert (
        srjt.evaluate(run, features.select(folds(features)[0].test), resamples=5).external is None
    )
    with refuses("unsupported", "calibrate_on"):
        srjt.predict(run, features.select(np.arange(20)), calibrate_on=0.3)


def test_a_share_of_the_patients(features: Manifest) -> None:
    part = share_of_patients(features, 0.3)
    owners = np.array(features.patients)
    assert not set(owners[part]) & set(owners[~part])
    assert math.isclose(part.mean(), 0.3, abs_tol=0.01)
    turned = features.select(np.arange(600)[::-1])
    assert (share_of_patients(turned, 0.3)[::-1] == part).all()
    with refuses("too_few"):
        share_of_patients(features.select(np.arange(4)), 0.5)


@pytest.mark.slow
def test_other_images_of_training_patients_are_reported(run: Trained, features: Manifest) -> None:
    rows = np.flatnonzero(np.isin(features.ids, run.training_ids))[:40]
    shared = features.table["patient"].iloc[rows[0]]
    others = elsewhere(features, rows)
    noise = np.random.default_rng(0).standard_normal(others.arrays.shape) * others.arrays.std(
        axis=0
    )
    others = replace(
        others, arrays=(others.arrays + 2 * noise).astype(np.float32)
    )  # not the same samples
    assert run.training_patients(others) == []
    assert srjt.evaluate(run, others, resamples=10).trained_on is None
    others.table["patient"] = others.table["patient"].replace(f"other {shared}", shared)
    others.table.loc[39, "patient"] = f"{UNKNOWN_PATIENT}new39"
    assert run.training_patients(others) == [shared]
    with pytest.warns(
        srjt.data.LeakageWarning, match=f"1 patient has the name of one .* such as {shared}:"
    ):
        found = srjt.evaluate(run, others, resamples=10)
    with pytest.warns(srjt.data.LeakageWarning, match="1 patient has the name of one"):
        srjt.compare(run, run, test=others, resamples=10)
    with pytest.warns(srjt.data.LeakageWarning, match="1 patient has the name of one"):
        srjt.predict(run, others, coverage=0.8, calibrate_on=others)
    assert found.trained_on == Leakage(patients=1, example=shared)
    assert "1 patient has the name of one" in srjt.report(found).warnings[0]
    assert srjt.load_run(run.folder).training_patients(others) == [shared]  # from history.csv
