"""Values of settings and files, checked by pydantic, which only this file asks.

What does not fit is a ``MismatchError``. Who asked writes the sentence: about a setting, or a file.
pydantic is imported at the first check, so that ``srjt train --help`` does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from srjt.text import printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Model = TypeVar("Model")


class MismatchError(ValueError):
    """The first problem of a value: where it is ("" if it is the whole), and the reason.

    A wrong number of the format comes first, because it explains the others. expected: the format
    that is known, and ``given`` the one that was read; None if the format is not the problem.
    """

    def __init__(self, problem: ValidationError) -> None:
        errors = problem.errors(include_url=False)
        first = next((error for error in errors if error["loc"] == ("format",)), errors[0])
        self.where = printable(".".join(str(part) for part in first["loc"]))[:80]
        self.reason = printable(first["msg"]).removeprefix("Value error, ").rstrip(".")
        self.given = printable(first["input"])[:60]
        self.expected: str | None = None
        if first["type"] == "literal_error" and first["loc"] == ("format",):
            self.expected = first["ctx"]["expected"]
        super().__init__(f"{self.where}: {self.reason}" if self.where else self.reason)


def check_of(kind: Any, *, strict: bool) -> Callable[[Any], Any]:
    """From a value of Python to a value of the type ``kind``, converted unless ``strict``."""
    from pydantic import ConfigDict, TypeAdapter

    rules = ConfigDict(arbitrary_types_allowed=True, strict=strict)
    return partial(_checked, TypeAdapter(kind, config=rules).validate_python)


def check_json(content: bytes, model: type[Model]) -> Model:
    """The value of a JSON text, as a pydantic model or any type that pydantic can check."""
    validate = _model_adapter(cast("Hashable", model)).validate_json
    return cast("Model", _checked(partial(validate, strict=True), content))


def _checked(validate: Callable[[Any], Any], value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return validate(value)
    except ValidationError as problem:
        raise MismatchError(problem) from None


@cache
def _model_adapter(model: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def made_by(function: Callable[[Any], Any]) -> Any:
    """For ``Annotated``: a field that ``function`` makes; any error of it is a mismatch."""
    from pydantic import PlainValidator

    def make(value: Any) -> Any:
        try:
            return function(value)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None

    return PlainValidator(make)
