"""Errors by what is wrong and the option that it is about, whatever the sentence says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srjt.errors import SrjtError


@contextmanager
def refuses(code: str, option: str = "") -> Iterator[pytest.ExceptionInfo[SrjtError]]:
    """The block raises a ``SrjtError`` with this code, about this option."""
    with pytest.raises(SrjtError) as raised:
        yield raised
    assert (raised.value.code, raised.value.option) == (code, option)
