"""The table of mutants fits the source and the tests. ``python tests/mutants.py`` runs them."""

import ast
from typing import Any

import pytest

import mutants
from mutants import MUTANTS, ROOT, Mutant, source


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_old_text_occurs_once_and_the_test_exists(mutant: Mutant) -> None:
    text = (ROOT / "src" / source(mutant)).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.new != mutant.old
    ast.parse(text.replace(mutant.old, mutant.new))  # a mutant that cannot be imported would count as killed
    file, _, name = mutant.test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_at_least_49_with_names_that_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 49


def test_a_survivor_and_a_moved_line_are_reported(monkeypatch: Any, capsys: Any) -> None:
    good = MUTANTS[0]
    unseen = good._replace(name="unseen", new=good.old + "  # the same")
    monkeypatch.setattr(mutants, "MUTANTS", (good, unseen, good._replace(name="moved", old="no such line")))
    found = lambda tests, *, src: int(good.new in (src / source(good)).read_text())  # noqa: E731
    monkeypatch.setattr(mutants, "run", found)
    assert mutants.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"killed   {good.name}",
        "SURVIVED unseen",
        f"moved: the old text occurs 0 times in {good.file}",
        "SURVIVED moved",
        "1 of 3 killed",
    ]
    assert mutants.main([good.name]) == 0
    assert mutants.main(["nothing like it"]) == 1
