"""Errors carry what is wrong as a code and an option; surfaces write options in their own words."""

from __future__ import annotations

import ast
import pickle
from functools import cache
from pathlib import Path

import pytest

import srjt.errors
from srjt.errors import CODES, Message, Option, SrjtError, unknown_name, warn, warnings_about


def flag(option: Option) -> str:
    return f"<{option.name}>" if option.value is ... else f"<{option.name} {option.value}>"


def test_a_message_is_text_for_python_and_parts_for_other_surfaces() -> None:
    message = Message("Choose ", Option("out"), " or ", Option("precision", "fp32"), ".")
    assert message == "Choose `out` or `precision='fp32'`."
    assert message.written(flag) == "Choose <out> or <precision fp32>."


def test_messages_and_errors_keep_their_options_as_parts_of_others() -> None:
    inner = SrjtError("Choose another ", Option("out"), ".", code="folder_in_use")
    whole = Message("Fold 1: ", inner, Message(" Or pass ", Option("overwrite", True), "."))
    assert whole == "Fold 1: Choose another `out`. Or pass `overwrite=True`."
    assert whole.written(flag) == "Fold 1: Choose another <out>. Or pass <overwrite True>."


def test_the_option_of_an_error_is_the_first_that_it_names() -> None:
    assert SrjtError("x").option == ""
    assert SrjtError("x ", Option("a"), Option("b")).option == "a"
    assert SrjtError("x ", Option("a"), option="b").option == "b"


def test_errors_keep_code_option_and_parts_on_the_way_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(SrjtError("Give ", Option("jobs", 1), code="no_space")))
    assert (error.code, error.option, str(error)) == ("no_space", "jobs", "Give `jobs=1`")
    assert error.message.written(flag) == "Give <jobs 1>"


def test_an_unknown_name_says_which_option_it_was_given_with() -> None:
    error = unknown_name("column", "lvl", ["level"], option="by")
    assert (error.code, error.option) == ("unknown_name", "by")
    assert str(error).startswith("Unknown column (for `by`) 'lvl': did you mean 'level'?")


def test_warnings_keep_the_options_of_their_message() -> None:
    with pytest.warns(UserWarning, match="jobs=1") as caught, warnings_about("fold 1"):
        warn(Message("Use ", Option("jobs", 1), "."))
    assert caught[0].message.args[0].written(flag) == "fold 1: Use <jobs 1>."  # type: ignore[union-attr]


# Every error of the package has a code.

ERRORS = {"SrjtError", "UnknownNameError", "NoValidationError"}
SOURCE = Path(srjt.errors.__file__).parent


@cache
def errors_made() -> list[tuple[str, ast.expr | None]]:
    """Where the package makes an error, and the expression that is its code."""
    made = []
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not any(f"{name}(" in text for name in ERRORS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                place = f"{file.relative_to(SOURCE).as_posix()}:{node.lineno}"
                made.append((place, given.get("code")))
    return made


def test_every_error_has_a_code_of_the_list() -> None:
    without = []
    for place, code in errors_made():
        if code is None:
            without.append(place)
        if isinstance(code, ast.Constant):
            assert code.value in CODES, place
    assert without == []


def test_every_code_of_the_list_is_used() -> None:
    used = {code.value for _, code in errors_made() if isinstance(code, ast.Constant)}
    assert set(CODES) - used == set()
