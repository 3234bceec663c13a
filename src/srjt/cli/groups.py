"""Groups of verbs: one that imports a verb when it is used, one in which the verb ``run`` may be left out."""

from __future__ import annotations

import functools
import importlib
import shlex
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from srjt.cli.option_names import training_settings, use_options_of
from srjt.cli.startup import skip_missing_values
from srjt.errors import SrjtError

__all__ = ["LazyVerbs", "RunByDefault"]

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
    "demo": "Train four methods on labels that err as readers do, and show who learns the mistakes, on a page.",
}


class LazyVerbs(TyperGroup):
    """The verbs of SUMMARIES. Each lives in its own module, which is imported when the verb is used."""

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
        module = importlib.import_module(f"srjt.cli.{name}")
        app = getattr(module, "app", None)
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
    from srjt.cli.help_page import print_help

    print_help(command, ctx)
