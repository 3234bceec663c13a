"""The table of mutants fits the source and the tests. ``python tests/mutants.py`` runs them."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mutants
from mutants import MUTANTS, ROOT, Mutant, MutantError, mutated, mutated_tree

SOURCE = '''
"""A module."""

LEVEL = 0.95


def mean(values):
    # the same expression as in the other function
    total = sum(values)
    return total / (
        len(values) - 1  # Bessel
    )


class Rate:
    def share(self, wrong, all_of_them):
        return wrong / (all_of_them - 1)

    def percent(self, wrong, all_of_them):
        print(wrong)
        return 100 * wrong / (all_of_them - 1)
'''


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def parts_of(file: str) -> dict[str, str]:
    """The source of each function, class and assignment at the top of a module."""
    text = (ROOT / "src/srjt" / file).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    parts: dict[str, str] = {}
    for node in ast.parse(text).body:
        decorators = getattr(node, "decorator_list", [])
        first = min(line.lineno for line in (node, *decorators))
        for name in mutants._names(node):
            parts[name] = "".join(lines[first - 1 : node.end_lineno])
    return parts


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_change_applies_and_the_test_exists(mutant: Mutant) -> None:
    # a part is parsed faster than its module
    part = parts_of(mutant.file)[mutant.function.partition(": ")[2].partition(".")[0]]
    # a mutant that cannot be imported would count as killed
    compile(mutated_tree(mutant, part), mutant.file, "exec")
    file, _, name = mutant.test.partition("::")
    assert name in names_in(file)


def test_there_are_at_least_150_with_names_that_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 150


def changed(function: str, old: str, new: str) -> list[str]:
    """The lines that differ after the change."""
    mutant = Mutant("wrong", f"module.py: {function}", old, new, "test_module.py::test")
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    after = mutated(mutant, SOURCE).splitlines()
    assert len(before) == len(after)
    return [line.strip() for line, was in zip(after, before, strict=True) if line != was]


@pytest.mark.parametrize(
    ("function", "old", "new", "line"),
    [
        ("mean", "total/(len(values)-1)", "total / len(values)", "return total / len(values)"),
        ("mean", "total = sum(values)", "total = 0", "total = 0"),
        ("Rate.share", "all_of_them - 1", "all_of_them", "return wrong / all_of_them"),
        ("Rate.percent", "return 100 * wrong / (all_of_them - 1)", "pass", "pass"),
        ("LEVEL", "0.95", "0.9", "LEVEL = 0.9"),
    ],
)
def test_neither_line_breaks_nor_comments_nor_other_functions_matter(
    function: str, old: str, new: str, line: str
) -> None:
    assert changed(function, old, new) == [line]


@pytest.mark.parametrize(
    ("function", "old", "new", "problem"),
    [
        ("median", "total", "0", "wrong: there is no 'median' in module.py"),
        ("Rate.mean", "total", "0", "wrong: there is no 'Rate.mean' in module.py"),
        ("mean", "len(values) - 2", "0", r"'len\(values\) - 2' does not occur in module.py: mean"),
        ("Rate", "all_of_them - 1", "0", "'all_of_them - 1' occurs 2 times in module.py: Rate"),
        ("mean", "len(values) - 1", "len(values)  -  1", "the change changes nothing"),
        ("mean", "sum(values)", "pass", "an expression can only become an expression"),
        ("mean", "sum(values", "0", "no expression and no statement"),
        ("mean", "total; total", "0", "2 statements, not one"),
    ],
)
def test_a_mutant_that_does_not_apply_says_why(
    function: str, old: str, new: str, problem: str
) -> None:
    with pytest.raises(MutantError, match=problem):
        changed(function, old, new)


def test_a_survivor_and_one_that_does_not_apply_are_reported(
    monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "src/srjt").mkdir(parents=True)
    module = tmp_path / "src/srjt/module.py"
    module.write_text(SOURCE, encoding="utf-8")
    good = Mutant(
        "seen", "module.py: mean", "len(values) - 1", "len(values)", "test_module.py::test"
    )
    unseen = good._replace(name="unseen", new="len(values) - 2")
    gone = good._replace(name="gone", old="len(values) + 1")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "MUTANTS", [good, unseen, gone])
    seen = "return total / len(values)\n"
    monkeypatch.setattr(
        mutants, "run", lambda tests, *, src: int(seen in (src / "srjt/module.py").read_text())
    )
    assert mutants.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "killed   seen",
        "SURVIVED unseen",
        "DOES NOT APPLY gone: 'len(values) + 1' does not occur in module.py: mean",
        "1 of 3 killed",
    ]
    assert mutants.main(["nothing like it"]) == 1
    monkeypatch.setattr(mutants, "MUTANTS", [good])
    assert mutants.main(["SEE"]) == 0
    assert module.read_text(encoding="utf-8") == SOURCE
