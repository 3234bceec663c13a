"""The command line. Each verb lives in its own file and imports what it needs when it runs."""

from __future__ import annotations

import os
import sys

import typer

from srjt._version import __version__
from srjt.cli import data, review, study
from srjt.cli.audit import audit
from srjt.cli.demo import demo
from srjt.cli.evaluate import evaluate
from srjt.cli.export import export
from srjt.cli.features import features
from srjt.cli.methods import methods
from srjt.cli.predict import predict
from srjt.cli.report import report
from srjt.cli.train import train
from srjt.errors import Interrupted, SrjtError

app = typer.Typer(
    name="srjt",
    help="Learn severity from ordinal labels that are partly wrong.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"srjt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")
app.add_typer(review.app, name="review")
for command in (train, predict, evaluate, features, audit, export, report, methods, demo):
    app.command()(command)


def main() -> None:
    """Run ``srjt``; a problem with the input is one sentence on stderr and exit status 2."""
    try:
        app()
    except SrjtError as problem:
        if os.environ.get("SRJT_TRACEBACK"):
            raise
        typer.secho(f"srjt: {problem}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except Interrupted as stopped:
        typer.secho(f"srjt: {stopped} The same command goes on from there.", err=True)
        sys.exit(stopped.status)
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
