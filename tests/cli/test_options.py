"""An option is declared once: Python's keyword arguments and the command line are the fields of one
dataclass."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import srjt
from srjt import cli
from srjt.data.options import ReadOptions
from srjt.errors import UnknownNameError
from srjt.inference.options import Answering, Evaluating, Grading, Planning
from srjt.training.config import TrainConfig

from .conftest import Srjt


def names_of(verb: str) -> set[str]:
    """The parameters of a verb, ``srjt study`` by its default ``run``."""
    group: Any = get_command(cli.app)
    group.load(verb)
    command = group.commands[verb]
    return {one.name for one in getattr(command, "default_command", command).params}


@pytest.mark.parametrize(
    ("verb", "group", "others"),
    [
        ("predict", Answering, set()),
        ("evaluate", Evaluating, set()),
        ("compare", Grading, set()),
        ("plan", Planning, set()),
        ("train", TrainConfig, {"method_options"}),
        ("audit", TrainConfig, {"method_options"}),
        (
            "study",
            TrainConfig,
            {"method_options", "method", "soft_labels", "seed"},
        ),  # set by --methods, --seed
        ("train", ReadOptions, set()),
        ("evaluate", ReadOptions, {"grades"}),  # those of the run
    ],
)
def test_every_field_is_an_option(verb: str, group: type, others: set[str]) -> None:
    fields = {field.name for field in dataclasses.fields(group)}
    assert fields - names_of(verb) == others


@pytest.mark.parametrize("function", [srjt.predict, srjt.evaluate, srjt.compare])
def test_an_unknown_keyword_suggests_the_nearest(
    function: Any, finished: Path, labelled: Path
) -> None:
    with pytest.raises(UnknownNameError, match="Unknown option 'decodng': did you mean 'decoding'"):
        function(finished, labelled, decodng="median")


def test_python_and_the_command_line_give_the_same_answers(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    options = {
        "decoding": "median",
        "views": 2,
        "per": ("patient",),
        "refer_from": "2",
        "threshold": 0.3,
    }
    words = [
        "--decode",
        "median",
        "--views",
        2,
        "--per",
        "patient",
        "--refer-from",
        2,
        "--threshold",
        0.3,
    ]
    code, _, err = command("predict", finished, labelled, *words, "--out", "answers.csv")
    assert code == 0, err
    typed = pd.read_csv("answers.csv", dtype={"grade": str})
    called = srjt.predict(finished, labelled, progress=False, **options)
    assert list(typed.columns) == list(called.columns)
    assert typed["grade"].tolist() == called["grade"].tolist()
    assert typed["refer"].tolist() == called["refer"].tolist()
    assert np.allclose(typed["p_0"], called["p_0"].astype(float), atol=1e-5)
