"""The example scripts run as they are and reach the expected accuracy."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_own_loop_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_loop.py"))
    printed = capsys.readouterr().out.splitlines()
    accuracies = [float(line.rsplit(" ", 1)[1]) for line in printed]
    assert len(accuracies) == 12
    assert accuracies[-1] > 0.85  # two of five labels were wrong


@pytest.mark.slow
def test_embeddings_and_audit(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "embeddings_and_audit.py"))
    standard, ours, noise, precision = capsys.readouterr().out.splitlines()
    assert float(re.findall(r"0\.\d+", ours)[0]) > 0.6  # the most frequent grade has half of the images
    assert standard.startswith("standard: accuracy 0.")
    estimated, truly = map(float, re.findall(r"0\.\d+", noise))
    assert abs(estimated - truly) < 0.15
    assert float(re.findall(r"\d\.\d+", precision)[0]) > 0.8  # three of ten would be by chance
