"""``srjt review``: review doubtful labels in the browser, and export the corrected table. One file per verb."""

from __future__ import annotations

import typer

from srjt.cli.groups import RunByDefault
from srjt.cli.review.export import export
from srjt.cli.review.run import run

app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Review doubtful labels in the browser, and export the corrected table.\n\n"
    "Example: srjt review audit/, then srjt review export audit/.",
)
for command in (run, export):
    app.command()(command)
