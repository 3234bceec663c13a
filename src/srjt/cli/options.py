"""Options of commands: those that several share, and those that are fields of a dataclass elsewhere.

``--abstain`` and all others about answers are fields in inference/options.py, about reading in data/options.py, about
training in training/config.py, about studies in studies/config.py; ``Fields`` makes the options of a command of them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from srjt.inference.options import CALIBRATION, COMPUTING
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


# Options that a command gets as a group, from the fields of a dataclass.

Command = TypeVar("Command", bound=Callable[..., None])


class Fields:
    """Annotates a parameter of a command that stands for options: one for each field that has a help text.

    The command receives those that were given, by name; or an object of the dataclass, if it is the parameter's type.

    only, without: which fields; an option of the command itself takes precedence. shown: those that the help lists; all
    by default. panel: where it lists them, instead of the fields' own panels. defaults: those that differ, as the help
    shows them. more: further options of the group.
    """

    def __init__(
        self, group: type, *, only: Collection[str] = (), without: Collection[str] = (),
        shown: Collection[str] = (), panel: str | None = None, defaults: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        hints = get_type_hints(group)
        self.group, self.options, self.kinds = group, more, hints
        self.lists, current = set(), None
        for field in dataclasses.fields(group):
            name, metadata = field.name, field.metadata
            current = metadata.get("panel", current)
            if metadata.get("help") and name not in without and name in (only or hints):
                default = metadata.get("shown") or ("" if field.default in (None, ()) else f"{field.default}")
                default = (defaults or {}).get(name, default)
                shows_default = default and "argument" not in metadata
                help = f"{metadata['help']} [default: {default}]" if shows_default else metadata["help"]
                hidden = bool(shown) and name not in shown
                self.options[name] = _option(field, hints[name], help, panel=panel or current, hidden=hidden)
                if metadata.get("metavar") == "LIST":
                    self.lists.add(name)

    def value(self, typed: Mapping[str, Any], hint: Any) -> Any:
        """What the command receives for the parameter of this type."""
        values = {name: typed[name] for name in self.options if typed.get(name) not in (None, [], ())}
        for name in values:
            if name in self.lists:
                values[name] = [part.strip() for part in values[name].split(",")]
            elif {str, tuple[str, ...]} <= {*get_args(self.kinds.get(name))} and len(values[name]) == 1:
                values[name] = values[name][0]  # one is not a list: most sources have one column
        return self.group(**values) if get_args(hint)[0] is self.group else values


def expand(command: Command) -> Command:
    """The command with an option for each field instead of the parameters that ``Fields`` annotates."""
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: fields
        for name, hint in hints.items()
        for fields in getattr(hint, "__metadata__", ())
        if isinstance(fields, Fields)
    }
    parameters: dict[str, inspect.Parameter] = {}
    for own in inspect.signature(command).parameters.values():
        group = groups.get(own.name)
        for name, kind in {own.name: hints[own.name]}.items() if group is None else group.options.items():
            default = own.default
            if group is not None:
                default = own.empty if isinstance(kind.__metadata__[0], ArgumentInfo) else None
            if group is None or name not in hints:
                # by keyword, so that options without a default may follow those with one
                new = inspect.Parameter(name, own.KEYWORD_ONLY, default=default, annotation=kind)
                parameters.setdefault(name, new)

    @functools.wraps(command)
    def expanded(**typed: Any) -> Any:
        own = {name: value for name, value in typed.items() if name in hints}
        theirs = {name: value for name, value in typed.items() if name not in hints}
        return command(**own, **{name: fields.value(theirs, hints[name]) for name, fields in groups.items()})

    expanded.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in parameters.values()}
    return cast(Command, expanded)


def _option(field: dataclasses.Field[Any], hint: Any, help: str, *, panel: str | None, hidden: bool) -> Any:
    """The option of the command line for a field: its kind, flag and metavar."""
    metadata, kinds = field.metadata, {hint, *get_args(hint)}
    metavar, flag = metadata.get("metavar"), metadata.get("flag") or f"--{field.name.replace('_', '-')}"
    if metavar == "SOURCE" and "argument" in metadata:
        return Annotated[Path, typer.Argument(metavar=metavar, help=help)]
    kind: Any = str
    if bool in kinds:
        kind, flag = bool, flag if "flag" in metadata else f"{flag}/--no-{flag[2:]}"
    elif metavar is None and get_origin(hint) is Literal and "auto" not in kinds:
        metavar = "|".join(get_args(hint))
    elif metavar in ("DIR", "FILE", "SOURCE", "FILE|RUN"):
        kind = Path
    elif metavar != "LIST" and any(get_origin(one) is tuple for one in kinds):
        kind = list[str]
    elif str not in kinds and not any(get_origin(one) is Literal for one in kinds):
        kind = next((one for one in (int, float) if one in kinds), str)
    return Annotated[
        kind | None, about(help, flag, metavar=metavar, panel=panel, show_default=False, hidden=hidden)
    ]


# Options for the commands that we suggest: a training that the machine can do, by a method that the data suffice for.

FEW_IMAGES = 500  # with fewer, a network without pretrained weights is better off without the noise estimate


def machine_options(samples: int, *, features: bool = False) -> list[str]:
    """What to add to ``srjt train`` on this machine: a small network if there is no GPU. Features need none."""
    from srjt.training.devices import choose_device

    if features or choose_device().type == "cuda":
        return []
    return ["--preset", "cpu", *(["--method", "standard"] if samples < FEW_IMAGES else [])]


# Options that several commands share, each declared once.


def _import(modules: list[str] | None) -> list[str] | None:
    from srjt.methods import import_modules

    import_modules(modules or ())
    return modules


def _grade_names(text: str | None) -> Mapping[str, str] | None:
    if text is None:
        return None
    from srjt.data.grades import parse_grade_names

    return parse_grade_names(text)


def html_file(path: Path | None) -> Path | None:
    """A page whose name has no suffix gets one, so that a browser opens it."""
    from srjt.files import is_stream

    return path if path is None or path.suffix or is_stream(path) else path.with_suffix(".html")


Import = Annotated[
    list[str] | None,
    about(
        "Import a module that registers methods of your own. Repeatable.",
        "--import", metavar="MODULE", callback=_import, is_eager=True,
    ),
]  # fmt: skip
Preset = Annotated[
    str | None,
    about(
        "Start from these settings, which other options override. cpu: a small network, for a machine without a GPU.",
        metavar="cpu|paper|limuc|dr|demo",
    ),
]
Config = Annotated[Path | None, about("YAML file of settings; options override it.", metavar="FILE")]
A_SETTING = "A setting by its name, e.g. method_options.weight=0.5. Repeatable."
Set = Annotated[list[str] | None, about(A_SETTING, "--set", metavar="NAME=VALUE")]
# the settings of a training
settings_of_a_run = functools.partial(
    Fields, TrainConfig, preset=Preset, import_=Import, config=Config, set_=Set
)
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Force = Annotated[bool, about("Overwrite the file if it exists.", "--force")]
Quiet = Annotated[bool, about("Print problems only.", "--quiet", "-q")]
Device = Annotated[str | None, about("cpu, cuda, cuda:1. [default: a GPU if there is one]", panel=COMPUTING)]
CalibrateSet = Annotated[
    list[str] | None,
    about(
        "How --calibrate-on is read where it differs from the source: grade_column=severity. Repeatable.",
        "--calibrate-set", metavar="NAME=VALUE", panel=CALIBRATION,
    ),
]  # fmt: skip
Html = Annotated[
    Path | None, about("Write a page to read and send too.", "--html", metavar="FILE", callback=html_file)
]
if TYPE_CHECKING:
    GradeNames = Mapping[str, str] | None  # what the callback returns
else:
    GradeNames = Annotated[
        str | None,
        about('Names of all grades to show: "0=none,1=mild".', metavar="LIST", callback=_grade_names),
    ]
