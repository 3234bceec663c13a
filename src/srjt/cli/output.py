"""Writing files for the user: never over another one by accident, and with one sentence where it is not possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srjt.errors import SrjtError

__all__ = ["refuse_overwrite", "writing"]


def refuse_overwrite(out: Path | None, *, force: bool) -> None:
    """An error if the file exists; to be called first, before an hour is spent. A pipe is not such a file."""
    from srjt.files import exists_already, is_stream

    if out is not None and out.is_file() and not force and not is_stream(out):
        raise exists_already(out)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of ``path``; if it or the file cannot be written, that is one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise SrjtError(f"{path} cannot be written: {problem.strerror or problem}.") from None
