"""Sentences that people meet, word for word: those of sentences.txt, each with its input.

A line behind ``>>>`` is Python that raises the error of the next line; one behind ``$`` is a
command that ends with it.
"""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from fixtures.audit_folders import make_audit
from srjt import methods
from srjt.data import Manifest
from srjt.errors import SrjtError
from srjt.estimator import OrdinalNoiseClassifier
from srjt.networks.weights import read_weights
from srjt.ordinal import selection
from srjt.ordinal.metrics import confusion_matrix
from srjt.ranges import OrdinalRanges
from srjt.settings import load_config, parse_overrides
from srjt.studies.config import Execution, StudyConfig
from srjt.torch import JointLoss, OrdinalLoss
from srjt.training.config import TrainConfig

from .conftest import Srjt

SENTENCES = Path(__file__).parents[1] / "sentences.txt"

GRADED = "image,grade\na.png,0\nb.png,1\n"


def written(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def read(table: str, **options: Any) -> Manifest:
    return srjt.data.read(written("labels.csv", table), **options)


def ungraded() -> Path:
    np.savez("features.npz", features=np.zeros((2, 3)))
    return Path("features.npz")


def data() -> Manifest:
    return srjt.data.from_arrays(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)


def train(**settings: Any) -> srjt.Run:
    return srjt.train(data(), **{"method": "standard", "epochs": 1, "device": "cpu", **settings})


# What the lines of Python may use.
NAMES: dict[str, Any] = {
    "Execution": Execution,
    "GRADED": GRADED,
    "JointLoss": JointLoss,
    "OrdinalLoss": OrdinalLoss,
    "OrdinalNoiseClassifier": OrdinalNoiseClassifier,
    "OrdinalRanges": OrdinalRanges,
    "Path": Path,
    "config": TrainConfig,
    "confusion_matrix": confusion_matrix,
    "data": data,
    "load_config": load_config,
    "methods": methods,
    "np": np,
    "parse_overrides": parse_overrides,
    "read": read,
    "read_weights": read_weights,
    "selection": selection,
    "srjt": srjt,
    "study": StudyConfig,
    "torch": torch,
    "train": train,
    "ungraded": ungraded,
    "written": written,
}


def sentences_behind(sign: str) -> list[tuple[str, str]]:
    """What stands behind the sign, and the sentence below it."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    pairs = pairwise(lines)
    return [(line.removeprefix(sign), below) for line, below in pairs if line.startswith(sign)]


def test_every_line_is_read() -> None:
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    others = [line for line in lines if line and not line.startswith("#")]
    read_ones = [*sentences_behind(">>> "), *sentences_behind("$ srjt ")]
    assert len(others) == 2 * len(read_ones)
    assert len(read_ones) > 150


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "sentence"), sentences_behind(">>> "))
def test_the_sentence_of_a_call(
    code: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SrjtError) as raised:
        eval(code, NAMES)
    assert str(raised.value) == sentence


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audit(tmp_path_factory.mktemp("sentences") / "audit", images=4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("words", "sentence"), sentences_behind("$ srjt "))
def test_the_sentence_of_a_command(
    words: str,
    sentence: str,
    command: Srjt,
    finished: Path,
    labelled: Path,
    audit: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name, folder in (("RUN", finished), ("LABELS", labelled.parent), ("AUDIT", audit)):
        Path(name).symlink_to(folder)
    for name in ("EMPTY", "full"):
        Path(name).mkdir()
    for name in ("there.csv", "full/thesis.tex"):
        Path(name).write_text("mine")
    shutil.copy(labelled, "table.csv")
    words = re.sub(r"\bLABELS\b", "LABELS/labels.csv", words)
    arguments = [" " if word == "_" else word for word in words.split()]
    assert command.refuses(*arguments) == f"srjt: {sentence}\n"
