"""The command line: the verbs, each imported when it is used, and what ends a command."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from srjt._version import __version__
from srjt.cli import output
from srjt.errors import STOPPED, Interrupted, SrjtError, printable

# Groups of verbs: one that imports a verb when it is used, one in which the verb ``run`` may be left out.

# The verbs in the order of the help, with the first paragraph of each one's help: known without importing the verb.
SUMMARIES = {
    "train": "Train a classifier on images with ordinal labels that are partly wrong.",
    "predict": "Predict grades: probability per grade, expected grade, entropy, disagreement of the two networks.",
    "evaluate": "Evaluate a run: metrics with 95 % intervals, confusion matrix, calibration.",
    "compare": "Compare runs on the same images: differences with 95 % intervals by patient.",
    "explain": "Show where the networks look: what raises and what lowers the expected grade of each image.",
    "audit": "Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.",
    "readers": "Compare several readers, and combine their grades into one.",
    "review": "Review doubtful labels in the browser, and export the corrected table.",
    "study": "Compare methods over noises and folds, as the paper does.",
    "plan": "Plan a study: how many patients, readings and verified labels a wanted interval takes.",
    "report": "Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce it.",
    "data": "Inspect, check, split and corrupt data; make or download a data set.",
    "features": "Compute features of images with a frozen network, once.",
    "export": "Write a run as one ONNX file: cropping, normalisation, all networks, probabilities.",
    "methods": "List the methods: how each judges samples, what it learns from, and what it needs to know.",
    "doctor": "Check the installation: versions, devices, cache, extras, and what to do about what is missing.",
    "demo": "Show on synthetic images what wrong labels do, and what srjt does about them: about a minute and a half.",
}


# verb: its module, where that has another name
MODULES = {
    "evaluate": "predict",
    "compare": "predict",
    "plan": "predict",
    "explain": "predict",
    "export": "predict",
    "readers": "audit",
    "review": "audit",
    "report": "study",
    "demo": "study",
    "features": "train",
    "methods": "doctor",
}


class Command(TyperCommand):
    """A verb, whose help lists its options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for one in self.params:
            values = ctx.params.get(one.name)
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if type(value) is int and abs(value) >= 2**63:  # arrays would fail later, and less clearly
                    raise SrjtError(f"{max(one.opts, key=len)} takes a whole number of at most 63 bits.")
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):  # None if the option is hidden
                usual = "Arguments" if one.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(one, "rich_help_panel", None) or usual, []).append(record)
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class App(typer.Typer):
    """Commands whose help is drawn by typer as plain text: rich would take longer than all the rest of it."""

    def __init__(self, *, add_completion: bool = False, **settings: Any) -> None:
        super().__init__(
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            add_completion=add_completion,
            no_args_is_help=True,
            **settings,
        )

    def add(self, *verbs: Any) -> None:
        from srjt.cli.options import expand  # the help of all verbs does without

        for verb in verbs:
            summary = " ".join(verb.__doc__.partition("\n\n")[0].split())
            self.command(verb.__name__, cls=Command, short_help=summary)(expand(verb))


class LazyVerbs(TyperGroup):
    """The verbs of SUMMARIES. The module of a verb is imported when the verb is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command(Command(name, short_help=summary), name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for one in self.get_params(ctx):
            one.default = one.default or False  # of flags: to convert None, typer would import pydantic
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in SUMMARIES:
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Replace the placeholder of a verb by the verb itself."""
        module = importlib.import_module(f"srjt.cli.{MODULES.get(name, name)}")
        verb = getattr(module, f"{name}_app", None)
        if verb is None:
            verb = App()
            verb.add(getattr(module, name))
        self.commands[name] = typer.main.get_command(verb)
        self.commands[name].name = name


class RunByDefault(TyperGroup):
    """``srjt study labels.csv …`` is ``srjt study run labels.csv …``, in messages and in the help, too."""

    @property
    def default_command(self) -> Any:
        return self.commands["run"]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            return self.default_command.make_context(info_name, args, parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        self.default_command.format_usage(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.default_command.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


UNUSABLE = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EACCES)  # what is wrong with a path that was given
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # what is wrong with a file that has no name: standard output

app = App(
    name="srjt",
    cls=LazyVerbs,
    help="Learn severity from ordinal labels that are partly wrong.",
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
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
    output.prepare_streams()
    try:
        status = _run()
        sys.stdout.flush()
    except Interrupted as stopped:
        output.say(f"{stopped} Run the same command again to resume.", before="srjt: ", err=True)
        status = stopped.status
    except KeyboardInterrupt:
        output.say(STOPPED, before="srjt: ", err=True)
        status = 130
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        output.discard_output()
        status = 141
    except (SrjtError, MemoryError, OSError) as problem:
        sentence = _explained(problem)
        if sentence is None or os.environ.get("SRJT_TRACEBACK"):
            raise
        output.say(sentence, before="srjt: ", fg=typer.colors.RED, err=True)
        status = 2
    try:
        sys.stdout.flush()
    except OSError:
        output.discard_output()
    sys.exit(status)


def _explained(problem: Exception) -> str | None:
    """What the user can do something about, as a sentence; None for an error of the program."""
    if isinstance(problem, SrjtError):
        return output.in_options(problem)
    if isinstance(problem, MemoryError):
        reason = str(problem).rstrip(".")
        return f"There is not enough memory{f' ({reason})' if reason else ''}."
    assert isinstance(problem, OSError)
    if problem.filename is None and problem.errno in FULL:
        return f"Standard output cannot be written: {problem.strerror}."
    if problem.filename is not None and problem.errno in UNUSABLE:
        return f"{printable(os.fsdecode(problem.filename))} cannot be used: {problem.strerror}."
    return None


def _run() -> int:
    """Run the command and return its exit status."""
    try:
        with output.warnings_as_sentences():
            app(color=output.colours_wanted())
    except SystemExit as left:
        if (status := output.exit_status(left)) == 130:  # typer has caught it
            raise KeyboardInterrupt from None
        return status
    return 0
