"""The page that compares srjt with other tools says what was checked, and what it says of srjt is
so here."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def compared() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compared", ROOT / "benchmarks/compared.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compared"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_stored_facts(compared: ModuleType) -> None:
    page = compared.PAGE.read_text(encoding="utf-8")
    assert page == compared.page_with(page, compared.read_stored()), (
        "run python benchmarks/compared.py --store"
    )


def test_every_question_was_checked_for_every_tool(compared: ModuleType) -> None:
    stored = {(fact.question, fact.tool): fact.answer for fact in compared.read_stored()}
    for question in compared.QUESTIONS:
        for tool in compared.TOOLS:
            assert stored[question.text, tool] == ("yes" if tool in question.has else "no")
    assert len(stored) == len(compared.QUESTIONS) * len(compared.TOOLS)


@pytest.mark.slow
def test_what_it_says_of_srjt_and_of_coral_pytorch_is_so(compared: ModuleType) -> None:
    tools = [tool for tool in ("srjt", "coral-pytorch") if compared.installed(tool)]
    facts, wrong = compared.checked(tools)
    assert wrong == []
    assert len(facts) == len(tools) * len(compared.QUESTIONS)


@pytest.mark.parametrize(
    ("pattern", "has", "said"),
    [
        ("audit", {}, "these names match: "),  # a "no" that is a yes
        ("audit", {"srjt": "srjt:no_such_name"}, "srjt has no srjt:no_such_name"),
        ("audit", {"srjt": "command:no-such-command"}, "srjt has no command no-such-command"),
        ("no_name_matches_this", {"srjt": "srjt:audit"}, "the pattern matches nothing"),
    ],
)
def test_a_wrong_fact_is_found(
    compared: ModuleType, pattern: str, has: dict[str, str], said: str
) -> None:
    question = compared.Question(table="t", text="a question", pattern=pattern, has=has)
    with pytest.raises(compared.FactError, match=said):
        compared.check(question, "srjt")


def test_tools_that_are_not_installed_keep_their_stored_facts(compared: ModuleType) -> None:
    stored = compared.read_stored()
    new = [
        compared.Fact(**{**compared.asdict(fact), "version": "9"})
        for fact in stored
        if fact.tool == "srjt"
    ]
    merged = compared.merged(stored, new)
    assert [fact.version == "9" for fact in merged] == [fact.tool == "srjt" for fact in stored]
