"""Commands with verbs, one of which need not be said."""

from __future__ import annotations

import typer
from typer.core import TyperGroup

__all__ = ["RunByDefault"]


class RunByDefault(TyperGroup):
    """``srjt study labels.csv …`` is ``srjt study run labels.csv …``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        helped = {"-h", "--help"} & set(args[:1])
        if args and not helped and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)
