"""Errors by what is wrong and the option that it is about, whatever the sentence says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srjt import cli
from srjt.errors import SrjtError


@contextmanager
def refuses(
    code: str, option: str = "", says: str | tuple[str, ...] = ()
) -> Iterator[pytest.ExceptionInfo[SrjtError]]:
    """The block raises a ``SrjtError`` with this code, about this option, in one line that ends with
    a stop or with a command to copy.

    says: values that tell the error from others of its code, such as the name of a file. Wordings
    are tested in sentences.txt.
    """
    with pytest.raises(SrjtError) as raised:
        yield raised
    error = raised.value
    text = str(error)
    assert (error.code, error.option) == (code, option), text
    assert text.endswith((".", ".)", '"')), text
    assert "\n" not in text
    for value in (says,) if isinstance(says, str) else says:
        assert value in text


@contextmanager
def explained() -> Iterator[list[SrjtError]]:
    """The errors that commands in the block end with."""
    errors: list[SrjtError] = []
    explain = cli._explained

    def keep(problem: Exception) -> str | None:
        if isinstance(problem, SrjtError):
            errors.append(problem)
        return explain(problem)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_explained", keep)
        yield errors


def about(error: SrjtError) -> str:
    """Its code and option, such as "conflict html"."""
    return f"{error.code} {error.option}".rstrip()
