"""Writing files for the user: never over another one by accident, and with one sentence where it is not possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srjt.errors import SrjtError

__all__ = ["is_stream", "refuse_overwrite", "writing"]


def refuse_overwrite(out: Path | None, *, force: bool) -> None:
    """An error if the file exists; to be called first, before an hour is spent. A pipe is not such a file."""
    from srjt.files import exists_already

    if out is not None and out.is_file() and not force and not is_stream(out):
        raise exists_already(out)


def is_stream(out: Path) -> bool:
    """A pipe or a device, such as /dev/stdout (even if that is redirected to a file): written to, never replaced."""
    return out.is_relative_to("/dev") or (out.exists() and not out.is_file())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of ``path``; if it or the file cannot be written, that is one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise SrjtError(f"{path} cannot be written: {problem.strerror or problem}.") from None
