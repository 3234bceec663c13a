"""An option is declared once: Python's keyword arguments and the command line are the fields of one
dataclass."""

from __future__ import annotations

import dataclasses
import json
import sys
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
from srjt.inference import aspects
from srjt.inference.options import Answering, Evaluating, Grading
from srjt.inference.planning import Planning
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_former_name_of_an_option_works_with_a_warning(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    answered = {}
    for flag in ("--target-metric", "--optimise"):
        code, _, err = command("predict", finished, labelled, flag, "qwk", "--out", f"{flag}.csv")
        assert code == 0, err
        warned = "--optimise will be removed in the next release: use --target-metric instead."
        assert (warned in " ".join(err.split())) == (flag == "--optimise")
        answered[flag] = Path(f"{flag}.csv").read_text()
    assert answered["--target-metric"] == answered["--optimise"]
    assert "--optimise" not in command.prints("predict", "--help")


@pytest.mark.slow
def test_an_aspect_of_ones_own_is_an_option(
    command: Srjt, finished: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What --import names is imported before options are read."""
    guide = (Path(__file__).parents[2] / "docs/add-an-aspect.md").read_text()
    Path("my_aspects.py").write_text(guide.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(aspects, "_ASPECTS", dict(aspects._ASPECTS))
    monkeypatch.syspath_prepend(Path.cwd())
    given = ["--import", "my_aspects", "--skip", "0.05"]
    assert "No such option" in command("predict", finished, labelled, *given[2:])[2]
    try:
        code, out, err = command(
            "evaluate", finished, labelled, *given, "--side", "test", "--out", "found.json"
        )
        assert code == 0, err
        assert "answers skip a grade" in out
        assert {"answers", "wrong"} == json.loads(Path("found.json").read_text())["skipping"].keys()
        code, _, err = command("predict", finished, labelled, "--import=my_aspects", *given[2:])
        assert code == 0, err
        assert "skipped_grade" in Path("predictions.csv").read_text().splitlines()[0]
        assert "--skip" in command.prints("predict", *given[:2], "--help")
    finally:
        sys.modules.pop("my_aspects", None)
