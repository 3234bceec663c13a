"""Every promise that srjt prints is in the register of promises, and a small version of the
register keeps them."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt.ordinal.baseline import one_grade

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
promises = importlib.import_module("promises")
register = importlib.import_module("promised.register")
simulations = importlib.import_module("promised.simulations")
scores = importlib.import_module("promised.scores")
population = importlib.import_module("promised.population")
Setting = population.Setting

# A field, a text or the result of a function that promises something.
FIELD = re.compile(r"(^|_)interval$|^p_value$|^adjusted$|^lower_bound$")
TEXT = re.compile(r"95\s?%|\bHolm\b|\bpromise[ds]?\b")
TYPE = re.compile(r"\bInterval\b|\bReaderIntervals\b")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def promising(tree: ast.Module) -> Iterator[str]:
    """The names in a module that make or show an interval, a p-value or a level."""
    for node in tree.body:
        texts = [
            one.value
            for one in ast.walk(node)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        if any(map(TEXT.search, texts)) or (isinstance(node, Function) and _returns_one(node)):
            yield from _own_names(node)
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in _members(node))


def _own_names(node: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _members(node: ast.ClassDef) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            name = member.target.id
            if FIELD.search(name) or TYPE.search(ast.unparse(member.annotation)):
                yield name
        elif isinstance(member, Function) and _returns_one(member):
            yield member.name


def _returns_one(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return node.returns is not None and bool(TYPE.search(ast.unparse(node.returns)))


def test_what_promises_something_is_found() -> None:
    source = '''
CAPTION = "With 95 % intervals."
WIDTH = 95

def share(values) -> Interval: ...

def plain(values):
    # a comment about 95 % is no promise
    return values

class Found:
    """What was found."""
    rate: float
    rate_interval: tuple[float, float]
    scores: dict[str, Interval]
    def intervals(self) -> dict[str, Interval]: ...
'''
    names = ["CAPTION", "share", "Found.rate_interval", "Found.scores", "Found.intervals"]
    assert list(promising(ast.parse(source))) == names


def test_every_promise_in_the_source_has_an_entry() -> None:
    found, existing = set(), set()
    source = ROOT / "src" / "srjt"
    for path in source.rglob("*.py"):
        tree, file = (
            ast.parse(path.read_text(encoding="utf-8")),
            path.relative_to(source).as_posix(),
        )
        found |= {f"{file}: {name}" for name in promising(tree)}
        existing |= {f"{file}: {name}" for name in _defined(tree)}
    entries = {name for promise in register.PROMISES for name in promise.printed_by}
    known = entries | set(register.SHOWN_BY)
    assert not (new := sorted(found - known)), (
        f"{new} print an interval, a level or a p-value: name each in printed_by of an entry of "
        "benchmarks/promised/register.py, with a simulation if the promise is new (CONTRIBUTING.md, House rules)."
    )
    assert not (gone := sorted(known - existing)), (
        f"{gone} are in the register, but not in the source."
    )


def _defined(tree: ast.Module) -> Iterator[str]:
    """All names of a module and the members of its classes."""
    for node in tree.body:
        for name in _own_names(node):
            yield name
            members = node.body if isinstance(node, ast.ClassDef) else []
            yield from (f"{name}.{inner}" for member in members for inner in _own_names(member))


def test_every_entry_is_complete_and_simulated() -> None:
    names = [promise.name for promise in register.PROMISES]
    assert len(set(names)) == len(names)
    assert all(
        promise.says and promise.where and 0.0 < promise.promised <= 1.0
        for promise in register.PROMISES
    )
    simulated = [name for simulation in simulations.SIMULATIONS for name in simulation.promises]
    assert sorted(simulated) == sorted(names)
    for simulation in simulations.SIMULATIONS:
        texts = [str(setting) for setting in simulation.settings]
        assert len(set(texts)) == len(texts) >= 2  # the text is the seed
    # a condition that every setting fulfils would never be seen to matter, one that none fulfils
    # never to be kept
    for simulation in simulations.SIMULATIONS:
        for name in simulation.promises:
            assert any(promises.BY_NAME[name].meets(setting) for setting in simulation.settings), (
                name
            )


def test_every_promise_was_put_to_the_test() -> None:
    """A promise that no setting makes would be kept by silence."""
    stored = promises.read(promises.STORED)
    said = stored[stored["got"].notna() & stored["meets"]]
    assert set(said["promise"]) == {promise.name for promise in register.PROMISES}
    grid = set()
    for simulation in simulations.SIMULATIONS:
        grid |= {(simulation.name, str(setting)) for setting in simulation.settings}
    assert set(zip(stored["simulation"], stored["setting"], strict=True)) == grid


# A small version: enough to see a promise that is far from kept, in seconds. The seeds are fixed.

SMALL = {  # simulation: settings, trials
    "scores": (3, 30),
    "runs": (1, 30),
    "groups": (1, 15),
    "referral": (2, 20),
    "abstention": (1, 40),
    "threshold": (2, 30),
    "plans": (1, 8),
    "pilots": (1, 20),
    "equal": (2, 20),
    "union": (2, 20),
    "folds": (1, 60),
    "curves": (2, 5),
    "judged": (1, 30),
    "needed": (2, 40),
    "agreement": (1, 20),
    "reader-plans": (1, 10),
    "needed-by-doubt": (1, 10),
    "repeats": (1, 20),
    "by-doubt": (2, 40),
    "looks": (2, 40),
}
# How many trials of which settings. Those with 10 grades take three times as long as others, and
# what readers are beside is computed once for each setting.
LARGER = {
    "labels": {0: 6, 1: 6},
    "audits": {0: 6, 5: 6},
    "verified": {0: 6, 1: 6},
    "twice": {0: 6, 1: 6},
    "chance": {0: 6, 1: 6},
    "truth": {0: 6, 1: 6},
    "consensus": {0: 6, 1: 6},
    "consensus-twice": {0: 6, 1: 6},
    "beside": {1: 12},
}
# Of the small ones, those that take a third of a second or longer.
LONG = {"scores", "groups", "referral", "plans", "equal", "judged", "agreement", "by-doubt"}
LONG |= {"repeats", "reader-plans", "pilots", "looks", "runs", "curves", "union"}
# Simulations that show a promise that is not kept yet: whoever mends it takes the name away.
NOT_YET: set[str] = set()


def not_yet(names: Iterable[str]) -> list[Any]:
    """The names as parameters of a test; those that are not kept yet must fail."""
    fails = pytest.mark.xfail(
        reason="a promise is not kept yet", raises=AssertionError, strict=True
    )
    marks = {name: [fails] if name in NOT_YET else [] for name in names}
    for name in LONG & set(marks):
        marks[name].append(pytest.mark.slow)
    return [pytest.param(name, marks=own) for name, own in marks.items()]


def missed(name: str, trials: dict[int, int]) -> pd.DataFrame:
    """The rows that are more than three standard errors from the promise, under its condition, with
    so many trials of each setting."""
    simulation = next(one for one in simulations.SIMULATIONS if one.name == name)
    rows = pd.concat(
        [
            promises.judged(simulation, simulation.settings[setting], trials=number)
            for setting, number in trials.items()
        ]
    )
    assert set(rows["promise"]) <= set(simulation.promises)
    share = rows["promised"].clip(upper=1.0)
    error = rows["error"].clip(lower=(share * (1.0 - share) / rows["trials"]) ** 0.5)
    return rows[rows["meets"] & (promises.shortfall(rows) > 3.0 * error + 1e-9)]


@pytest.mark.parametrize("name", not_yet(SMALL))
def test_promises_are_kept(name: str) -> None:
    settings, trials = SMALL[name]
    rows = missed(name, dict.fromkeys(range(settings), trials))
    assert rows.empty, rows[
        ["promise", "quantity", "setting", "promised", "got", "error"]
    ].to_string()


@pytest.mark.slow
@pytest.mark.parametrize("name", not_yet(LARGER))
def test_promises_about_labels_and_readers_are_kept(name: str) -> None:
    rows = missed(name, LARGER[name])
    assert rows.empty, rows[
        ["promise", "quantity", "setting", "promised", "got", "error"]
    ].to_string()


def test_every_simulation_is_in_a_test() -> None:
    assert {*SMALL, *LARGER} == {simulation.name for simulation in simulations.SIMULATIONS}


@pytest.mark.parametrize("setting", simulations.UNION, ids=str)
def test_answers_without_a_gain_have_none(setting: Any) -> None:
    """Simulated levels are those of answers that are exactly as good as one grade for all."""
    many = replace(setting, patients=40_000, images=1)
    rng = np.random.default_rng(0)
    true, answers, counts = scores._no_gain(many, population.draw(many, rng), rng)
    gain = np.abs(true - one_grade(counts, "mae")) - np.abs(true - answers)
    assert gain.std() > 0.1
    assert abs(gain.mean()) < 3 * gain.std() / len(gain) ** 0.5


# The runner, with a register of three promises whose simulations are coins.


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    def coin(setting: Any, rng: Any) -> dict[str, float]:
        right = setting.noise == "none"
        return {
            "kept: heads": float(rng.random() < 0.95),
            "right-labels": float(rng.random() < (0.95 if right else 0.5)),
            "level: mae": float(rng.random() < 0.3),
        }

    said = {"says": "what is said", "where": "evaluate"}
    entries = (
        register.Promise(name="kept", promised=0.95, **said),
        register.Promise(
            name="right-labels",
            promised=0.95,
            condition="labels are right",
            meets=register._right,
            **said,
        ),
        register.Promise(name="level", promised=0.05, at_most=True, **said),
    )
    settings = (Setting(patients=10), Setting(patients=20, noise="class", rate=0.2))
    names = tuple(entry.name for entry in entries)
    simulation = simulations.Simulation(
        name="coins", promises=names, trial=coin, trials=400, settings=settings
    )
    monkeypatch.setattr(promises, "PROMISES", entries)
    monkeypatch.setattr(promises, "SIMULATIONS", (simulation,))
    monkeypatch.setattr(promises, "BY_NAME", {entry.name: entry for entry in entries})


@pytest.mark.usefixtures("toy")
def test_verdicts_and_the_worst_setting_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.csv"
    assert promises.main(["--jobs", "1", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines if line[0] != " "] == [
        "KEPT: kept",
        "KEPT UNDER ITS CONDITION: right-labels",
        "BROKEN: level",
    ]
    worst = lines[4]  # of right-labels
    assert worst.startswith(("    0.5", "    0.4"))
    assert "20 patients × 1 image" in worst
    assert worst.endswith("[not its condition: labels are right]")
    rows = promises.read(out)
    assert (
        rows.query("promise == 'level'")["trials"].eq(800).all()
    )  # seemed broken, so it was tried again
    table = promises.table(rows)
    assert [row[-1].split(";")[0] for row in table] == [
        "**broken**",
        "kept if labels are right",
        "kept",
    ]
    assert table[0][2] == "≤ 0.05"
    assert table[1][4] == "10 patients × 1 image, 4 grades, strong network"


@pytest.mark.usefixtures("toy")
def test_a_second_run_gives_the_same_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    for out in (first, second):
        promises.main(["--jobs", "1", "--trials", "20", "--out", str(out)])
    assert first.read_text() == second.read_text()
    rows = promises.read(first)
    rows[rows["setting"].str.startswith("10 patients")].to_csv(second, index=False)
    tried = []
    judged = promises.judged
    monkeypatch.setattr(
        promises, "judged", lambda *one, **how: tried.append(one[1].patients) or judged(*one, **how)
    )
    promises.main(["--jobs", "1", "--trials", "20", "--out", str(second), "--resume"])
    assert tried == [20]
    assert first.read_text() == second.read_text()
    with pytest.raises(
        SystemExit, match=r"There is no promise or simulation heads\. Known: coins, kept, level"
    ):
        promises.main(["--only", "heads"])


@pytest.mark.usefixtures("toy")
def test_parts_of_the_register_are_computed_apart_and_added(tmp_path: Path) -> None:
    """As on several machines: each part replaces the rows of its settings, and no others."""
    stored, parts = tmp_path / "stored.csv", []
    promises.main(["--jobs", "1", "--trials", "30", "--out", str(stored)])
    before = promises.read(stored)
    for words in ("10 patients", "20 patients"):
        parts.append(tmp_path / f"{words}.csv")
        asked = ["--settings", words, "--trials", "20", "--out", str(parts[-1])]
        promises.main(["--jobs", "1", *asked])
        assert promises.read(parts[-1])["setting"].str.startswith(words).all()
    promises.main(["--out", str(stored), "--add", str(parts[0])])
    after = promises.read(stored)
    new = after["setting"].str.startswith("10 patients")
    assert len(after) == len(before)
    assert after[new]["trials"].isin([20, 40]).all()
    same = after[~new].reset_index(drop=True)
    old = before[~before["setting"].str.startswith("10 patients")].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, old)
    promises.main(["--out", str(stored), "--add", *map(str, parts)])
    assert promises.read(stored)["trials"].isin([20, 40]).all()
