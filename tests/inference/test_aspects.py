"""An aspect from outside the package: its option, its column, its judgement and its section."""

import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from refusals import refuses
from srjt.errors import SrjtError
from srjt.inference import aspects
from srjt.inference.aspects import Aspect, register_aspect, registered_aspects
from srjt.inference.options import Answering, Evaluating, with_aspects
from srjt.reports.aspects import _FILE_FACTS, facts_of_file, facts_of_item, file_facts
from srjt.settings import setting
from srjt.training.trained import Trained

ROOT = Path(__file__).parents[2]
PRINTED = re.search(
    r"```python\n(.*?)```", (ROOT / "docs/add-an-aspect.md").read_text(), flags=re.DOTALL
)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards."""
    registered_aspects()
    monkeypatch.setattr(aspects, "_ASPECTS", dict(aspects._ASPECTS))


@pytest.fixture
def guide(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The aspect that the guide prints, as a module of its own."""
    module = types.ModuleType("my_aspects")
    monkeypatch.setitem(sys.modules, "my_aspects", module)
    exec(compile(PRINTED[1], "add-an-aspect.md", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def features() -> tuple[Any, Any]:
    """A run on features, and rows that it was not trained on."""
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 4
    rows = (rng.normal(size=(240, 6)) + labels[:, None]).astype(np.float32)
    data = srjt.data.from_arrays(rows, labels, patients=[f"p{k // 3}" for k in range(240)])
    split = srjt.data.folds(data)[0]
    run = srjt.train(data, split=split, method="standard", epochs=2, progress=False)
    return run, data.select(split.test)


def skips(p: np.ndarray, least: float) -> np.ndarray:
    """By loops: whether a grade is less likely than one below and one above it."""
    return np.array(
        [any(min(row[c - 1], row[c + 1]) - row[c] >= least for c in (1, 2)) for row in p.tolist()]
    )


def test_an_aspect_from_outside_has_an_option_a_column_a_judgement_and_a_section(
    guide: types.ModuleType, features: tuple[Trained, Any]
) -> None:
    run, data = features
    table = srjt.predict(run, data, skip=0.02, progress=False)
    p = table[[f"p_{grade}" for grade in run.grades]].to_numpy()
    marked = skips(p, 0.02)
    assert 0 < marked.sum() < len(marked)
    assert table["skipped_grade"].tolist() == marked.tolist()
    assert list(table).index("skipped_grade") < list(table).index("p_0")
    every = srjt.report(table).sections[0].tables[0]
    assert "skipped_grade" in [column.name for column in every.columns]
    assert "skipped_grade" not in srjt.predict(run, data, progress=False)

    found = srjt.evaluate(run, data, skip=0.02, resamples=5, progress=False)
    wrong = int((marked & (found.answers["grade"] != found.answers["label"])).sum())
    assert found.aspects["skipping"] == guide.Skipped(answers=int(marked.sum()), wrong=wrong)
    assert found.skipping is found.aspects["skipping"]
    assert found.to_dict()["skipping"] == {"answers": int(marked.sum()), "wrong": wrong}
    [section] = [one for one in srjt.report(found).sections if one.slug == "skipping"]
    assert section.text == [f"{marked.sum()} answers skip a grade; {wrong} of them are wrong."]
    without = srjt.evaluate(run, data, resamples=5, progress=False)
    assert without.skipping is None
    assert without.to_dict()["skipping"] is None


@pytest.mark.usefixtures("guide")
def test_the_option_is_checked_and_has_a_place_in_the_help(features: tuple[Trained, Any]) -> None:
    run, data = features
    with refuses("out_of_bounds", "skip", says="2.0"):
        srjt.predict(run, data, skip=2.0, progress=False)
    with refuses("unknown_name", says="'skip'"):
        srjt.predict(run, data, skipp=0.1, progress=False)
    with refuses("name_in_use", "per", says="skipped_grade"):
        srjt.predict(run, data, per="skipped_grade", progress=False)
    names = [field.name for field in fields(with_aspects(Answering))]
    assert names.index("abstain") < names.index("skip") < names.index("per")  # in its panel
    assert issubclass(with_aspects(Evaluating), Evaluating)
    assert "skip" not in Answering.__dataclass_fields__  # the class itself is as it was


@pytest.mark.usefixtures("own_registry")
def test_an_aspect_of_evaluations_only_and_one_with_a_taken_name() -> None:
    @register_aspect("strict", evaluation_only=True)
    @dataclass(frozen=True, kw_only=True)
    class Strict(Aspect):
        strictly: bool = setting(False, "Be strict.")

        def check(self, table: pd.DataFrame) -> None:
            if self.strictly:
                raise SrjtError("Too strict.")

    assert "strictly" in with_aspects(Evaluating).__dataclass_fields__
    assert "strictly" not in with_aspects(Answering).__dataclass_fields__
    assert with_aspects(Evaluating) is with_aspects(Evaluating)
    with refuses("name_in_use", says="'strict'"):

        @register_aspect("strict")
        @dataclass(frozen=True, kw_only=True)
        class Other(Aspect):
            pass

    with refuses("name_in_use", says=("'abstention'", "'abstain'")):

        @register_aspect("other")
        @dataclass(frozen=True, kw_only=True)
        class Taken(Aspect):
            abstain: float = setting(0.0, "Not this one.")


@pytest.mark.usefixtures("own_registry")
def test_checks_come_before_anything_is_decoded(features: tuple[Trained, Any]) -> None:
    @register_aspect("never")
    @dataclass(frozen=True, kw_only=True)
    class Never(Aspect):
        def check(self, table: pd.DataFrame) -> None:
            raise SrjtError(f"{len(table)} rows are too many.")

    run, data = features
    with pytest.raises(SrjtError, match=f"{len(data)} rows are too many"):
        srjt.evaluate(run, data, progress=False)


def test_facts_for_checklists(monkeypatch: pytest.MonkeyPatch) -> None:
    facts_of_item("claim", "1")
    monkeypatch.setitem(_FILE_FACTS, "skipping", None)

    @file_facts("skipping", items={"claim": ["37"]})
    def say(values: Any, answers: str) -> Iterator[tuple[str, str]]:
        yield "skipping", f"{values['answers']} of {answers} skip a grade."

    assert facts_of_item("claim", "37") == ["skipping"]
    assert facts_of_item("claim", "38") == []
    said = list(facts_of_file({"skipping": {"answers": 3}, "ranges": None}, "80 images"))
    assert said == [("skipping", "3 of 80 images skip a grade.")]


def test_every_aspect_of_srjt_has_two_files_and_nothing_else_names_its_options() -> None:
    """Removing one of them is removing these two files."""
    source = ROOT / "src" / "srjt"
    named = [
        path.relative_to(source).as_posix()
        for path in sorted(source.rglob("*.py"))
        if re.search(r"\babstain\b|[Aa]bstention\b", path.read_text(encoding="utf-8"))
    ]
    assert named == [
        "inference/aspects/abstention.py",
        "ordinal/decisions.py",  # functions of numbers, which know of no option
        "reports/aspects/abstention.py",
    ]
