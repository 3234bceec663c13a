"""Our own JSON files with other values in every place, as a folder from somebody else may have
them.

Every reader ends with a result or with one sentence.
"""

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import srjt
from fixtures.audit_folders import make_audit
from fixtures.noisy_features import counted
from fixtures.run_folders import make_run, make_study
from hostile.test_inputs import time_limit
from srjt.auditing.folder import read_audit, read_summary
from srjt.auditing.scores import summarise
from srjt.errors import SrjtError
from srjt.studies.results import collect_results, status_lines
from srjt.training.folder import read_facts, read_noise_estimate, read_summary as read_run_summary

pytestmark = pytest.mark.slow

ODD = (None, "", "\x1b[31m", -1, 1.5, True, 10**30, [], [[]], {}, {"a": []}, float("nan"))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value; of a long list only its first."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(content: Any, path: tuple[Any, ...], *value: Any) -> Any:
    """With another value in a place, or without the place."""
    if not path:
        return value[0]
    content = copy.deepcopy(content)
    inner = content
    for part in path[:-1]:
        inner = inner[part]
    if value:
        inner[path[-1]] = value[0]
    else:
        del inner[path[-1]]
    return content


def check(file: Path, read: Callable[[], object], *, odd: tuple[Any, ...] = ODD) -> int:
    """Try every change of a file; returns how many were refused."""
    content = json.loads(file.read_text())
    cases = [changed(content, path, value) for path in places(content) for value in odd]
    cases += [changed(content, path) for path in places(content) if path]
    sentences: list[str] = []
    for case in cases:
        file.write_text(json.dumps(case))
        try:
            with time_limit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read()
        except SrjtError as problem:
            sentences.append(str(problem))
    file.write_text(json.dumps(content))
    read()  # as it was, it can be read
    return len(sentences)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", method="srjt", network="tiny", estimated=0.2, epochs=2)


@pytest.mark.parametrize("name", ["run.json", "summary.json", "noise.json"])
def test_a_run(run: Path, name: str) -> None:
    def read() -> None:
        read_facts(run)
        read_run_summary(run)
        read_noise_estimate(run)

    assert check(run / name, read) > 50


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_run(run: Path) -> None:
    check(run / "summary.json", lambda: srjt.write_report(run), odd=({},))


def test_a_study(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", folds=1)
    check(
        folder / "study.json",
        lambda: list(status_lines(collect_results(folder))),
        odd=(None, "x", {}),
    )


@pytest.mark.parametrize("name", ["audit.json", "summary.json"])
def test_an_audit(tmp_path: Path, name: str) -> None:
    folder = make_audit(tmp_path / "audit", images=8)
    found = read_audit(folder)
    estimate = counted(found.labels, found.probabilities)
    scores = pd.read_csv(folder / "audit.csv", dtype={"grade": str, "suggested": str})
    (folder / "summary.json").write_text(
        json.dumps(summarise(scores, estimate, grades=found.grades))
    )

    def read() -> None:
        read_audit(folder)
        read_summary(folder)

    assert check(folder / name, read) > 50
