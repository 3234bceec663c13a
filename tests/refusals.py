"""Errors by what is wrong and the option that it is about, whatever the sentence says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srjt.errors import SrjtError


@contextmanager
def refuses(
    code: str, option: str = "", *, says: str | tuple[str, ...] = ()
) -> Iterator[pytest.ExceptionInfo[SrjtError]]:
    """The block raises a ``SrjtError`` with this code, about this option, in a printable line that
    ends with a stop.

    says: values that tell the error from others of its code, such as the name of a file. Wordings
    are tested in test_sentences.py.
    """
    with pytest.raises(SrjtError) as raised:
        yield raised
    error = raised.value
    text = str(error)
    assert (error.code, error.option) == (code, option), text
    assert text.isprintable(), text
    assert text.endswith((".", ".)")), text
    for value in (says,) if isinstance(says, str) else says:
        assert value in text
