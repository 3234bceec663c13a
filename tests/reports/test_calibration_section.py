"""The calibration section of a run's page says what is true of its predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.run_folders import make_run
from srjt.ordinal.calibration import expected_calibration_error
from srjt.reports.pages.run import calibration_section, run_page
from srjt.training.folder import HeldOut, read_facts, write_held_out


def side(samples: int, *, slope: float, seed: int, truth: bool) -> HeldOut:
    """Predictions p^slope of labels that are drawn from p; the true grades are the labels."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(samples, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random((samples, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=3)
    q = p**slope / (p**slope).sum(axis=1, keepdims=True)
    return HeldOut(
        ids=[f"{seed}-{n}" for n in range(samples)],
        probabilities=q[None].astype(np.float32),
        labels=labels,
        true_labels=labels if truth else None,
    )


@pytest.mark.parametrize(
    ("slope", "sides", "truth"),
    [
        (1.0, ("validation", "test"), True),
        (4.0, ("validation", "test"), True),
        (4.0, ("validation", "test"), False),
        (1.0, ("validation",), False),
        (4.0, ("validation",), True),
        (4.0, ("test",), True),
        (1.0, ("test",), False),
    ],
)
def test_what_it_says(tmp_path: Path, slope: float, sides: tuple[str, ...], truth: bool) -> None:
    folder = make_run(tmp_path / "run", method="sord", noise_rate=0.0, truth=truth)
    found = {name: side(400, slope=slope, seed=n, truth=truth) for n, name in enumerate(sides)}
    write_held_out(folder, found)
    section = calibration_section(folder, read_facts(folder))
    assert section is not None
    (text,), (figure,), facts = section.text, section.figures, dict(section.facts)
    shown = found["test" if "test" in found else "validation"]
    error = f"{expected_calibration_error(shown.probabilities[0], shown.labels):.3f}"
    recalibrated = slope > 1 and "validation" in sides
    if recalibrated:
        assert "on 400 samples of the validation side: temperature" in text
        assert facts["calibration error before"] == error
        assert float(facts["calibration error after"]) < 0.5 * float(error)
    else:
        assert text == "The probabilities are not recalibrated."
        assert facts == {"calibration error": error}
    on = "test" if "test" in sides else "validation"
    judged = "true grades" if truth and on == "test" else "given labels"
    assert figure.caption.startswith(f"Reliability on the {on} side, compared with the {judged}.")
    assert ("fitted to the same samples" in figure.caption) == (recalibrated and on == "validation")


def test_it_is_on_the_page_of_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", method="sord", noise_rate=0.0)
    write_held_out(folder, {"test": side(40, slope=1.0, seed=0, truth=True)})
    assert "calibration" in [part.slug for part in run_page(folder).sections]


def test_a_run_without_predictions_has_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", method="sord")
    assert calibration_section(folder, read_facts(folder)) is None
