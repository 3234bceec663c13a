"""``srjt data``: inspect, check, split, corrupt, make and download data. One file per verb."""

from __future__ import annotations

import typer

from srjt.cli.data.corrupt import corrupt
from srjt.cli.data.dr import dr
from srjt.cli.data.inspect import inspect
from srjt.cli.data.limuc import limuc
from srjt.cli.data.split import split
from srjt.cli.data.synthetic import synthetic

app = typer.Typer(
    help="Inspect, check, split and corrupt data; make or download a data set.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for command in (inspect, split, corrupt, synthetic, limuc, dr):
    app.command()(command)
