"""The folder that is reviewed: of ``srjt audit``, or of ``srjt readers``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srjt.auditing.folder import AuditFolder
    from srjt.data.readers_folder import ReadersFolder

__all__ = ["Folder", "open_folder"]

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="AUDIT", help="Folder written by srjt audit; with --worklist also by srjt readers."
    ),
]


def open_folder(folder: Path) -> AuditFolder | ReadersFolder:
    """The folder of an audit, or of srjt readers."""
    from srjt.auditing.folder import read_audit
    from srjt.data.readers_folder import read_readers_folder

    return read_readers_folder(folder) if (folder / "readers.json").exists() else read_audit(folder)
