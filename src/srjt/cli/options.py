"""Options that several commands share, each declared once, alone or in groups."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import typer

from srjt.data.options import ReadOptions
from srjt.inference.options import CALIBRATION, COMPUTING, EVALUATION
from srjt.training.config import TrainConfig


def about(help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """An option that several commands share, as an annotation."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def option(default: Any, help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """An option of one command, as the default of its parameter; ``...`` if it must be given."""
    return typer.Option(default, *flags, help=help, rich_help_panel=panel, **more)


def argument(default: Any, help: str, *, metavar: str) -> Any:
    """An argument of one command."""
    return typer.Argument(default, help=help, metavar=metavar)


# The option ``--import``, apart from all others: ``srjt methods`` needs no other, and the others take a
# while.


def _import(modules: list[str] | None) -> list[str] | None:
    from srjt.methods import import_modules

    import_modules(modules or ())
    return modules


Import = Annotated[
    list[str] | None,
    about(
        "Import a module that registers methods of your own. Repeatable.",
        "--import",
        metavar="MODULE",
        callback=_import,
        is_eager=True,
    ),
]


# Options that a command gets as a group, from the fields of a dataclass.

Command = TypeVar("Command", bound=Callable[..., None])

Preset = Annotated[
    str | None,
    about(
        "Start from these settings, which other options override. cpu: a small network, for a machine without a GPU.",
        metavar="cpu|paper|limuc|dr|demo",
    ),
]


def takes(
    group: type,
    *,
    as_: str,
    only: Collection[str] = (),
    without: Collection[str] = (),
    shown: Collection[str] = (),
    panel: str | None = None,
    defaults: Mapping[str, str] | None = None,
    **more: Any,
) -> Callable[[Command], Command]:
    """Replace the parameter ``as_`` of a command by an option for each field of a dataclass that has a help text.

    The command receives those that were given, by name. only, without: which fields; an option of the command itself
    takes precedence. shown: those that the help lists; all by default. panel: where it lists them, instead of the
    fields' own panels. defaults: those that differ, as the help shows them. more: further options of the group.
    """
    hints = get_type_hints(group)
    fields = [
        field
        for field in dataclasses.fields(group)
        if field.metadata.get("help") and field.name not in without and (not only or field.name in only)
    ]
    options = more | {
        field.name: _option(
            field,
            hints[field.name],
            panel=panel,
            default=(defaults or {}).get(field.name),
            hidden=bool(shown) and field.name not in shown,
        )
        for field in fields
    }
    one_or_more = {field.name for field in fields if {str, tuple[str, ...]} <= {*get_args(hints[field.name])}}
    lists = {field.name for field in fields if field.metadata.get("metavar") == "LIST"}

    def expand(command: Command) -> Command:
        kinds = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            mine = {name: kind for name, kind in options.items() if name not in kinds}
            kind = (
                inspect.Parameter.KEYWORD_ONLY
            )  # so that options without a default may follow those with one
            if own.name == as_:
                parameters += [
                    inspect.Parameter(name, kind, default=None, annotation=mine[name]) for name in mine
                ]
            else:
                parameters.append(own.replace(kind=kind, annotation=kinds[own.name]))

        @functools.wraps(command)
        def expanded(**typed: Any) -> Any:
            values = {name: typed.pop(name) for name in options if name not in kinds}
            given = {name: value for name, value in values.items() if value not in (None, [], ())}
            given |= {
                name: [part.strip() for part in given[name].split(",")] for name in lists & given.keys()
            }
            for name in given.keys() & one_or_more:  # one is not a list: most sources have one column
                given[name] = given[name][0] if len(given[name]) == 1 else list(given[name])
            return command(**typed, **{as_: given})

        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {p.name: p.annotation for p in parameters}
        return cast(Command, expanded)

    return expand


reads_a_source = functools.partial(takes, ReadOptions, as_="how")
takes_settings = functools.partial(takes, TrainConfig, as_="settings", preset=Preset)


def _option(
    field: dataclasses.Field[Any], hint: Any, *, panel: str | None, default: str | None, hidden: bool
) -> Any:
    """The option of the command line for a field: its kind, flag, metavar, help and default."""
    about_field, kinds = field.metadata, {hint, *get_args(hint)}
    metavar, flag = about_field.get("metavar"), about_field.get("flag") or f"--{field.name.replace('_', '-')}"
    kind: Any = str
    if hint is bool:
        kind, flag = bool, f"{flag}/--no-{flag[2:]}"
    elif metavar is None and get_origin(hint) is Literal and "auto" not in kinds:
        metavar = "|".join(get_args(hint))
    elif metavar in ("DIR", "FILE", "SOURCE"):
        kind = Path
    elif metavar != "LIST" and any(get_origin(one) is tuple for one in kinds):
        kind = list[str]
    elif str not in kinds and not any(get_origin(one) is Literal for one in kinds):
        kind = next((one for one in (int, float) if one in kinds), str)
    default = (
        default or about_field.get("shown") or ("" if field.default in (None, ()) else f"{field.default}")
    )
    help = f"{about_field['help']} [default: {default}]" if default else about_field["help"]
    panel = panel or about_field.get("panel")
    return Annotated[
        kind | None, about(help, flag, metavar=metavar, panel=panel, show_default=False, hidden=hidden)
    ]


def as_words(how: Mapping[str, Any]) -> list[str]:
    """The options of ``reads_a_source`` that were given, as words of a command line."""
    given = {name: value for name, value in how.items() if value is not None}
    for name in {"grades", "map_grades"} & given.keys():
        given[name] = given[name] if isinstance(given[name], str) else ",".join(given[name])
    return [
        word
        for name, value in given.items()
        for one in (value if isinstance(value, (list, tuple)) else [value])
        for word in (f"--{name.replace('_', '-')}", str(one))
    ]


# Options for the commands that we suggest: a training that the machine can do, by a method that the data suffice for.

FEW_IMAGES = (
    500  # with fewer, a network without pretrained weights is better off without the estimate of the noise
)


def machine_options(samples: int, *, features: bool = False) -> list[str]:
    """What to add to ``srjt train`` on this machine: a small network if there is no GPU. Features need none."""
    from srjt.training.devices import choose_device

    if features or choose_device().type == "cuda":
        return []
    return ["--preset", "cpu", *(["--method", "standard"] if samples < FEW_IMAGES else [])]


# Options that several commands share, each declared once.

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A CSV, TSV, Excel or Parquet file; a folder (one per grade, LIMUC, Kaggle DR); a MedMNIST .npz file; "
        "features (.npz, .npy).",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
OnBadImage = Annotated[
    str,
    about("Stop at unusable samples, or leave them out and list them in a CSV file.", metavar="error|skip"),
]
Skipped = Annotated[Path, about("CSV list of the unusable samples.", metavar="FILE")]
Force = Annotated[bool, about("Overwrite the file if it exists.", "--force")]
Quiet = Annotated[bool, about("Print problems only.", "--quiet", "-q")]
Config = Annotated[Path | None, about("YAML file of settings; options override it.", metavar="FILE")]
A_SETTING = "A setting by its name, e.g. method_options.weight=0.5. Repeatable."
Set = Annotated[list[str] | None, about(A_SETTING, "--set", metavar="NAME=VALUE")]
Device = Annotated[str | None, about("cpu, cuda, cuda:1. [default: a GPU if there is one]", panel=COMPUTING)]
CalibrateSet = Annotated[
    list[str] | None,
    about(
        "How --calibrate-on is read where it differs from the source: grade_column=severity. Repeatable.",
        "--calibrate-set",
        metavar="NAME=VALUE",
        panel=CALIBRATION,
    ),
]
Fold = Annotated[int | None, about("Fold to use, 0 to FOLDS − 1.", metavar="K", panel=EVALUATION)]
Folds = Annotated[int, about("Number of folds.", panel=EVALUATION)]
SplitSeed = Annotated[int, about("Seed of the folds.", panel=EVALUATION)]
Splits = Annotated[
    Path | None,
    about(
        "Folds from a file of srjt data split, or the sides of a run.", metavar="FILE|RUN", panel=EVALUATION
    ),
]
HoldOut = Annotated[
    str | None,
    about(
        "Test on one value of this column, such as a site, and train on the others: site=north. With a fold, or for "
        "all folds, the column alone.",
        metavar="COLUMN[=VALUE]",
        panel=EVALUATION,
    ),
]
GroupNearDuplicates = Annotated[
    bool,
    about(
        "Keep nearly identical images on one side of a split, as identical ones always are.",
        "--group-near-duplicates",
        panel=EVALUATION,
    ),
]


def html_file(path: Path | None) -> Path | None:
    """A page whose name has no suffix gets one, so that a browser opens it."""
    from srjt.files import is_stream

    return path if path is None or path.suffix or is_stream(path) else path.with_suffix(".html")


Html = Annotated[
    Path | None, about("Write a page to read and send too.", "--html", metavar="FILE", callback=html_file)
]
HtmlOut = Annotated[Path, about("HTML file to write.", metavar="FILE", callback=html_file)]
GradeNames = Annotated[str | None, about('Names of all grades to show: "0=none,1=mild".', metavar="LIST")]
