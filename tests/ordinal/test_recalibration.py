"""Recalibration: it finds the temperature that spoiled the probabilities, also through wrong labels."""

from __future__ import annotations

import numpy as np
import pytest

from srjt import noise
from srjt.errors import SrjtError
from srjt.ordinal.calibration import expected_calibration_error
from srjt.ordinal.recalibration import Recalibration, choose_recalibration, fit_recalibration

Floats = np.ndarray


def drawn(samples: int = 4000, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Probabilities (N, 4) of the true grades, and the true grades."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(samples, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, (rng.random((samples, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=3)


def spoilt(p: Floats, *, slope: float, offsets: Floats | float = 0.0) -> Floats:
    q = p**slope * np.exp(offsets)
    return q / q.sum(axis=1, keepdims=True)


def test_it_undoes_a_temperature() -> None:
    p, y = drawn()
    found = fit_recalibration(spoilt(p, slope=3.0), y)
    assert found.slope == pytest.approx(1 / 3, rel=0.06)
    assert not found.is_vector
    assert np.abs(found(spoilt(p, slope=3.0)) - p).max() < 0.03


def test_through_wrong_labels_it_finds_the_same() -> None:
    p, y = drawn(8000)
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    noisy = noise.corrupt(y, matrix, seed=0)
    confident = spoilt(p, slope=3.0)
    aware = fit_recalibration(confident, noisy, transition=matrix)
    assert aware.slope == pytest.approx(1 / 3, rel=0.1)
    unaware = fit_recalibration(confident, noisy)
    assert (
        unaware.slope < 0.7 * aware.slope
    )  # it describes the labels, which are less certain than the grades
    error = expected_calibration_error(aware(confident), y)
    assert error < 0.02 < 0.1 < expected_calibration_error(unaware(confident), y)


def test_vector_scaling_undoes_offsets() -> None:
    p, y = drawn()
    offsets = np.array([1.0, 0.0, 0.0, -1.0])
    found = fit_recalibration(spoilt(p, slope=2.0, offsets=offsets), y, vector=True)
    assert np.abs(found(spoilt(p, slope=2.0, offsets=offsets)) - p).max() < 0.06
    assert found.offsets.sum() == pytest.approx(0.0, abs=1e-9)


def test_the_form_is_chosen_by_held_out_likelihood() -> None:
    p, y = drawn(1000)
    assert choose_recalibration(p, y) is None  # they already mean what they say
    temperature = choose_recalibration(spoilt(p, slope=3.0), y)
    assert temperature is not None
    assert not temperature.is_vector
    assert temperature.gain > 0
    vector = choose_recalibration(spoilt(p, slope=1.0, offsets=np.array([2.0, 0.0, 0.0, 0.0])), y)
    assert vector is not None
    assert vector.is_vector
    assert "offset" in str(vector)
    kept = choose_recalibration(spoilt(p, slope=3.0, offsets=np.array([2.0, 0, 0, 0])), y, vector=False)
    assert kept is not None
    assert not kept.is_vector


def test_few_labels_or_patients_change_nothing() -> None:
    p, y = drawn(1000)
    confident = spoilt(p, slope=3.0)
    assert choose_recalibration(confident[:99], y[:99]) is None
    assert choose_recalibration(confident[:100], y[:100]) is not None
    assert choose_recalibration(confident[:100], y[:100], groups=[n % 19 for n in range(100)]) is None


def test_a_temperature_keeps_the_order_and_zeros() -> None:
    found = Recalibration(slope=0.5, offsets=np.zeros(3))
    p = np.array([[1.0, 0.0, 0.0], [0.2, 0.5, 0.3]])
    q = found(p)
    assert q.sum(axis=1) == pytest.approx(1.0)
    assert q.argsort(axis=1)[1].tolist() == p.argsort(axis=1)[1].tolist()
    assert q[0, 0] > 0.999


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(SrjtError, match="probabilities \\(N, C\\) and labels \\(N,\\)"):
        fit_recalibration([[0.5, 0.5]], [0, 1])
    with pytest.raises(SrjtError, match="2 × 2"):
        fit_recalibration([[0.5, 0.5]], [0], transition=np.eye(3))
