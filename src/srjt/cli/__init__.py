"""The command line. Each verb lives in its own file, which is imported when the verb is used."""

from __future__ import annotations

import errno
import os
import sys

import typer

from srjt._version import __version__
from srjt.cli.groups import LazyVerbs
from srjt.cli.messages import say, warnings_as_sentences
from srjt.cli.option_names import as_typed
from srjt.cli.streams import colours_wanted, discard_output, exit_status, prepare_streams
from srjt.errors import STOPPED, Interrupted, SrjtError, printable

UNUSABLE = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EACCES)  # what is wrong with a path that was given

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
    prepare_streams()
    try:
        status = _run()
        sys.stdout.flush()
    except SrjtError as problem:
        if os.environ.get("SRJT_TRACEBACK"):
            raise
        say(printable(as_typed(str(problem))), before="srjt: ", fg=typer.colors.RED, err=True)
        status = 2
    except Interrupted as stopped:
        say(f"{stopped} Run the same command again to resume.", before="srjt: ", err=True)
        status = stopped.status
    except KeyboardInterrupt:
        say(STOPPED, before="srjt: ", err=True)
        status = 130
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        discard_output()
        status = 141
    except MemoryError as problem:
        if os.environ.get("SRJT_TRACEBACK"):
            raise
        reason = printable(problem).rstrip(".")
        say(
            f"There is not enough memory{f' ({reason})' * bool(reason)}.",
            before="srjt: ",
            fg=typer.colors.RED,
            err=True,
        )
        status = 2
    except OSError as problem:
        if problem.errno not in UNUSABLE or problem.filename is None or os.environ.get("SRJT_TRACEBACK"):
            raise
        file = printable(os.fsdecode(problem.filename))
        say(f"{file} cannot be used: {problem.strerror}.", before="srjt: ", fg=typer.colors.RED, err=True)
        status = 2
    try:
        sys.stdout.flush()
    except (SrjtError, OSError):
        discard_output()
    sys.exit(status)


def _run() -> int:
    """Run the command and return its exit status."""
    try:
        with warnings_as_sentences():
            app(color=colours_wanted())
    except SystemExit as left:
        if (status := exit_status(left)) == 130:  # typer has caught it
            raise KeyboardInterrupt from None
        return status
    return 0
