"""The option ``--import``, apart from all others: ``srjt methods`` needs no other, and the others take a while."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Import"]


def _import(modules: list[str] | None) -> list[str] | None:
    from srjt.methods.plugins import import_modules

    import_modules(modules or ())
    return modules


Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=_import,
        is_eager=True,
        help="Import a module that registers methods of your own. Repeatable.",
    ),
]
