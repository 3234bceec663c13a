"""The command line. Each verb lives in its own file, which is imported when the verb is used."""

from __future__ import annotations

import io
import os
import sys

import typer

from srjt._version import __version__
from srjt.cli.groups import LazyVerbs
from srjt.cli.messages import warnings_as_sentences
from srjt.errors import Interrupted, SrjtError, printable

app = typer.Typer(
    name="srjt",
    cls=LazyVerbs,
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


def main() -> None:
    """Run ``srjt``; a problem with the input is one sentence on stderr and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may be any bytes, and a terminal may be ASCII
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings_as_sentences():
            app()
    except SrjtError as problem:
        if os.environ.get("SRJT_TRACEBACK"):
            raise
        typer.secho(f"srjt: {printable(problem)}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except Interrupted as stopped:
        typer.secho(f"srjt: {stopped} Run the same command again to resume.", err=True)
        sys.exit(stopped.status)
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
