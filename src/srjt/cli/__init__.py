"""The command line: the verbs, each imported when it is used, their help pages, and what ends a command."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from srjt._version import __version__
from srjt.cli.output import (
    as_typed,
    colours_wanted,
    discard_output,
    exit_status,
    prepare_streams,
    say,
    training_settings,
    use_options_of,
    warnings_as_sentences,
)
from srjt.errors import STOPPED, Interrupted, SrjtError, printable

# Keep ``srjt --help`` and ``srjt methods`` fast: typer imports a package that these commands do not use.


def skip_missing_values(parameters: Iterable[Any]) -> None:
    """Do not convert the value of an option that was not given: typer would import pydantic for it."""
    for parameter in parameters:
        parameter.process_value = _converting_given_values(parameter)


def _converting_given_values(parameter: Any) -> Any:
    convert = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if value is not None or parameter.required:
            return convert(context, value)
        value = () if parameter.multiple or parameter.nargs == -1 else None
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return process_value


# The help pages, in panels as rich draws them. rich takes longer for them than all else that ``--help`` does.

NAME = re.compile(
    r"(?P<required>\*)|(?<=/ )(?P<negative>--\S+)|(?P<option>--[\w-]+|^[a-z]+)|(?P<switch>-\w)|(?P<type>[^\s/,]+)"
)
TEXT = re.compile(r"(?<![\w-])(?P<option>--[a-z][\w-]+)|(?P<required>\[required\])|(?P<note>\[[^]]+\])")
STYLES: dict[str, dict[str, Any]] = {
    "required": {"fg": "red"},
    "option": {"fg": "cyan", "bold": True},
    "negative": {"fg": "magenta", "bold": True},
    "switch": {"fg": "green", "bold": True},
    "type": {"fg": "yellow", "bold": True},
    "note": {"dim": True},
}
ASCII = str.maketrans("╭╮╰╯─│−×′ετρ…", "++++-|-x'etp.")


def print_help(command: Any, context: Any) -> None:
    """Print the help of a command in the width of the terminal: usage, description, a panel per group of options."""
    width = max(40, shutil.get_terminal_size().columns)
    description = [
        f" {line}".rstrip()
        for paragraph in (command.help or "").split("\n\n")
        for line in [*_column(paragraph, width - 2), ""]
    ]
    panels = [_panel(title, rows, width) for title, rows in _rows(command, context).items() if rows]
    # a group with a verb that may be left out is used as this verb is
    usage = textwrap.indent(getattr(command, "default_command", command).get_usage(context), " ").replace(
        "Usage:", _style("Usage:", "type")
    )
    page = "\n".join(["", usage, "", *description, *(line for panel in panels for line in panel)])
    if not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        page = page.translate(ASCII).encode("ascii", "replace").decode("ascii")
    typer.echo(page, color=context.color)


def _rows(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """What each panel lists: names, and what they do."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in getattr(command, "default_command", command).get_params(context):
        if record := parameter.get_help_record(context):  # None if the option is hidden
            name, text = record
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            rows = panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, [])
            rows.append((f"* {name}" if parameter.required else name, text))
    verbs = getattr(command, "commands", {}).items()
    panels["Commands"] = [(name, verb.help.split("\n\n")[0]) for name, verb in verbs if not verb.hidden]
    return panels


def _panel(title: str, rows: list[tuple[str, str]], width: int) -> list[str]:
    """Two columns in a box. A name that is longer than two fifths of the width gets lines of its own."""
    inner = width - 4
    if any(name[:2] == "* " for name, _ in rows):
        rows = [(name if name[:2] == "* " else f"  {name}", text) for name, text in rows]
    left = max((len(name) for name, _ in rows if len(name) <= inner * 2 // 5), default=8)
    lines = []
    for name, text in rows:
        right = _column(text, inner - left - 2)
        if len(name) <= left:
            lines.append(f"{_highlight(NAME, name.ljust(left))}  {right.pop(0)}")
        else:
            parts = textwrap.wrap(name, inner, break_on_hyphens=False)
            lines += [_highlight(NAME, part.ljust(inner)) for part in parts]
        lines += [f"{'':{left}}  {part}" for part in right]
    side = _style("│", "note")
    return [
        _style(f"╭─ {title} {'─' * (width - len(title) - 5)}╮", "note"),
        *(f"{side} {line} {side}" for line in lines),
        _style(f"╰{'─' * (width - 2)}╯", "note"),
    ]


def _column(text: str, width: int) -> list[str]:
    """The text in lines of ``width`` characters; a default in rich's markup is shown like any other."""
    text = re.sub(r"\[dim\](.*?)\[/\]", r"[\1]", " ".join(text.split()))
    text = re.sub(
        r"\[default: (\S+)",
        lambda found: found[0].replace(": ", ":\xa0" if len(found[0]) <= width else ": "),
        text,
    )  # no line ends between the two, if both fit in one
    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    return _highlight(TEXT, "\n".join(line.ljust(width).replace("\xa0", " ") for line in lines)).split("\n")


def _highlight(pattern: re.Pattern[str], text: str) -> str:
    """The text with the groups of a pattern in their colours; a group may span lines."""
    return pattern.sub(
        lambda found: "\n".join(_style(line, found.lastgroup or "") for line in found[0].split("\n")), text
    )


def _style(text: str, name: str) -> str:
    return typer.style(text, **STYLES[name])


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
    "explain": "export",
    "readers": "audit",
    "report": "study",
    "demo": "study",
    "features": "train",
    "methods": "doctor",
}


class LazyVerbs(TyperGroup):
    """The verbs of SUMMARIES. The module of a verb is imported when the verb is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command(TyperCommand(name, help=summary), name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _format_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        skip_missing_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in SUMMARIES:
            self.load(args[0])
            skip_missing_values(self.commands[args[0]].get_params(ctx))
            use_options_of(self.commands[args[0]])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Replace the placeholder of a verb by the verb itself."""
        module = importlib.import_module(f"srjt.cli.{MODULES.get(name, name)}")
        app = getattr(module, f"{name}_app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(getattr(module, name))
        command = typer.main.get_command(app)
        command.name = name
        for each in (command, *getattr(command, "commands", {}).values()):
            each.format_help = functools.partial(_format_help, each)
            each.parse_args = functools.partial(_parse_args, each, each.parse_args)
        self.commands[name] = command


class RunByDefault(TyperGroup):
    """``srjt study labels.csv …`` is ``srjt study run labels.csv …``, in messages and in the help, too."""

    @property
    def default_command(self) -> Any:
        return self.commands["run"]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            return self.default_command.make_context(info_name, args, parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


def _parse_args(command: Any, parse: Any, context: Any, args: list[str]) -> Any:
    """``parse``, with a hint for a setting of the training that is an option of ``srjt train`` only."""
    given = list(args)
    try:
        left = parse(context, args)
        _check_numbers(command, context.params)
        return left
    except Exception as problem:  # NoSuchOption, whose module depends on typer's version
        option = str(getattr(problem, "option_name", ""))
        name = option.removeprefix("--").replace("-", "_")
        options = {one.name for one in command.params}
        # srjt study has --methods in place of --method
        dashed = {text for one in command.params for text in one.opts}
        known = option.replace("_", "-") in dashed or f"{name}s" in options  # which the parser suggests
        if "set_" not in options or known or name not in training_settings():
            raise
        place = next(n for n, text in enumerate(given) if text.partition("=")[0] == option)
        value = given[place].partition("=")[2] or next(iter(given[place + 1 :]), "")
        value = "…" if not value or value.startswith("-") else value
        raise SrjtError(
            f"{context.command_path} has no option {option}: write --set {shlex.quote(f'{name}={value}')}."
        ) from None


def _check_numbers(command: Any, values: dict[str, Any]) -> None:
    """An error for a number that no option can mean: arrays and other libraries would fail later, and less clearly."""
    for option in command.params:
        found = values.get(option.name)
        for value in found if isinstance(found, (list, tuple)) else [found]:
            if type(value) is int and abs(value) >= 2**63:
                raise SrjtError(f"{max(option.opts, key=len)} takes a whole number of at most 63 bits.")


def _format_help(command: Any, ctx: Any, formatter: Any) -> None:

    print_help(command, ctx)


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
