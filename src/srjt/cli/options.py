"""Options that several commands share, each declared once, alone or in groups."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import typer

from srjt.settings import required_type
from srjt.training.config import TrainConfig

# The option ``--import``, apart from all others: ``srjt methods`` needs no other, and the others take a
# while.


def _import(modules: list[str] | None) -> list[str] | None:
    from srjt.methods.registry import import_modules

    import_modules(modules or ())
    return modules


Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=_import,
        is_eager=True,
        help="Import a module that registers methods of your own. Repeatable.",
    ),
]


# Options that a command gets as a group, by a decorator: how a source is read, and the settings of a
# training.

Command = TypeVar("Command", bound=Callable[..., None])


def _reading(kind: type, metavar: str, help: str) -> Any:
    return Annotated[
        kind | None, typer.Option(metavar=metavar, help=help, rich_help_panel="How the source is read")
    ]


# options of srjt.data.read, by its names
READING: dict[str, Any] = {
    "images": _reading(Path, "DIR", "Folder of the images. [default: the table's, or images/ in it]"),
    "image_column": _reading(str, "NAME", "Column of image files. [default: found by its name]"),
    "grade_column": _reading(
        list[str],
        "NAME",
        "Column of grades; repeat it, or give a pattern such as 'grade_*', for the columns of several readers. "
        "[default: found by its name]",
    ),
    "patient_column": _reading(str, "NAME", "Column of patient ids. [default: found by its name]"),
    "true_grade_column": _reading(str, "NAME", "Column of true grades, if they are known."),
    "verified_grade_column": _reading(
        str, "NAME", "Column of true grades of a random sample. [default: found by its name]"
    ),
    "split_column": _reading(str, "NAME", "Column with train, validation or test."),
    "grades": _reading(str, "LIST", 'Grades from mild to severe: "none,mild,severe".'),
    "labels": _reading(Path, "FILE", "Table of grades for features: by id, or row by row."),
    "feature_columns": _reading(str, "PATTERN", "Columns of a table that are features: 'f*'."),
    "several_readings": _reading(
        str,
        "error|consensus",
        "Several grades of one image: report them, or combine them. [default: error]",
    ),
    "reader_column": _reading(
        str, "NAME", "Column of readers, for several readings. [default: found by its name]"
    ),
    "reference_column": _reading(
        str, "NAME", "Column of trusted grades, for several readings. [default: found by its name]"
    ),
    "kind": _reading(str, "KIND", "table, folders, limuc, dr, medmnist or features. [default: recognised]"),
}


def reads_a_source(
    *, only: Collection[str] = tuple(READING), without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the options in READING; it receives them as ``how``, for ``srjt.data.read(source, **how)``."""
    shared = {name: kind for name, kind in READING.items() if name in only and name not in without}

    def collect(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("grades") is not None:
            given["grades"] = [name.strip() for name in given["grades"].split(",")]
        if given.get("grade_column") is not None:  # one is not a list: most sources have one column
            columns = list(given["grade_column"])
            given["grade_column"] = columns[0] if len(columns) == 1 else columns or None
        return given

    return _expands("how", shared, collect)


def as_words(how: Mapping[str, Any]) -> list[str]:
    """The options of ``reads_a_source`` that were given, as words of a command line."""
    given = {name: value for name, value in how.items() if value is not None}
    if isinstance(given.get("grades"), list):
        given["grades"] = ",".join(given["grades"])
    return [
        word
        for name, value in given.items()
        for one in (value if isinstance(value, list) else [value])
        for word in (f"--{name.replace('_', '-')}", str(one))
    ]


Preset = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|paper|limuc|dr|demo",
        help="Start from these settings, which other options override. cpu: a small network, for a machine without a "
        "GPU.",
        show_default=False,
    ),
]


def takes_settings(
    *,
    shown: Collection[str] = (),
    without: Collection[str] = (),
    panel: str | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command an option for each field of TrainConfig; it receives those that were given as ``settings``.

    shown: those that the help lists; all by default. panel: where it lists them, instead of the fields' own panels.
    defaults: those that differ from TrainConfig's, as the help shows them.
    """
    hints = get_type_hints(TrainConfig)
    shared = {
        field.name: _setting_option(
            field,
            hints[field.name],
            panel=panel,
            default=(defaults or {}).get(field.name),
            hidden=bool(shown) and field.name not in shown,
        )
        for field in dataclasses.fields(TrainConfig)
        if field.metadata["help"] and field.name not in without
    }
    shared = {"preset": Preset, **shared}
    lists = {name for name in hints if get_origin(required_type(hints[name])) is tuple} - {"transition"}

    def collect(given: dict[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in given.items() if value is not None}
        return {name: value.split(",") if name in lists else value for name, value in values.items()}

    return _expands("settings", shared, collect)


def _setting_option(
    field: dataclasses.Field[Any], hint: Any, *, panel: str | None, default: str | None, hidden: bool
) -> Any:
    about = field.metadata
    kind = hint if hint in (bool, int, float) else str
    metavar = about.get("metavar")
    flag = f"--{field.name.replace('_', '-')}"
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    elif metavar is None and get_origin(hint) is Literal and "auto" not in get_args(hint):
        metavar = "|".join(get_args(hint))
    elif metavar == "FILE":
        kind = Path
    elif metavar is None and {float, int} & {*get_args(hint)} and str not in get_args(hint):
        kind = next(part for part in get_args(hint) if part in (int, float))
    default = default or about.get("shown") or ("" if field.default is None else f"{field.default}")
    help = f"{about['help']} [default: {default}]" if default else about["help"]
    return Annotated[
        kind | None,
        typer.Option(
            flag, help=help, metavar=metavar, rich_help_panel=panel or about["panel"], show_default=False,
            hidden=hidden,
        ),
    ]  # fmt: skip


def _expands(
    name: str, shared: Mapping[str, Any], collect: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[Command], Command]:
    """A decorator that replaces the parameter ``name`` of a command by options, and passes them as one dictionary.

    A command line is made from a function's signature, so each command would otherwise repeat all of them.
    """

    def expand(command: Command) -> Command:
        kinds = get_type_hints(command, include_extras=True)
        options = {
            option: kind for option, kind in shared.items() if option not in kinds
        }  # its own take precedence
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            if own.name == name:
                parameters += [
                    inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
                    for option, kind in options.items()
                ]
            else:  # by keyword, so that options without a default may follow those with one
                kind = kinds[own.name]
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))

        @functools.wraps(command)
        def expanded(**given: Any) -> Any:
            values = collect({option: given.pop(option) for option in options})
            return command(**given, **{name: values})

        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {p.name: p.annotation for p in parameters}
        return cast(Command, expanded)

    return expand


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

EVALUATION, COMPUTING, DECISIONS = "Evaluation", "How it is computed", "Decisions"

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
    typer.Option(
        metavar="error|skip", help="Stop at unusable samples, or leave them out and list them in a CSV file."
    ),
]
Skipped = Annotated[Path, typer.Option(metavar="FILE", help="CSV list of the unusable samples.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="YAML file of settings; options override it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting by its name, e.g. method_options.weight=0.5. Repeatable.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:1. [default: a GPU if there is one]",
        show_default=False,
        rich_help_panel=COMPUTING,
    ),
]
Network = Annotated[
    str, typer.Option(metavar="ensemble|1|2", help="Average the networks, or use one of them.")
]
Optimise = Annotated[
    str | None,
    typer.Option(
        metavar="mae|accuracy|qwk|macro_f1",
        help="Metric that the grades are for: it decides how they follow from the probabilities. "
        "[default: the run's; mae if it was trained with none]",
        show_default=False,
    ),
]
Decode = Annotated[
    str | None,
    typer.Option(
        metavar="argmax|median|expected",
        help="Most likely grade, median or rounded mean, whatever --optimise says.",
        show_default=False,
    ),
]
Views = Annotated[
    int,
    typer.Option(
        metavar="1|2|10",
        help="Views of each image to average: 1 is the centre crop, 2 adds its mirror image, 10 adds the four "
        "corners and their mirror images. For a run with flip=false there are no mirror images: 10 means 5.",
    ),
]
CALIBRATION = "Ranges of grades and recalibration"
Coverage = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Give each sample a range of grades that contains the true grade with at least this probability: 0.9.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CoverageBy = Annotated[
    str | None,
    typer.Option(
        metavar="grade|COLUMN",
        help="The promise holds for each true grade, or for each value of a column.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CalibrateOn = Annotated[
    Path | None,
    typer.Option(
        metavar="SOURCE",
        help="Labelled samples that the run was not trained on. [default: its validation side]",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CalibrateSet = Annotated[
    list[str] | None,
    typer.Option(
        "--calibrate-set",
        metavar="NAME=VALUE",
        help="How --calibrate-on is read where it differs from the source: grade_column=severity. Repeatable.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
LabelNoise = Annotated[
    str,
    typer.Option(
        metavar="unknown|class-conditional|none",
        help="What wrong labels among them depend on: not known; on the true grade alone, not on the image; none is "
        "wrong.",
        rich_help_panel=CALIBRATION,
    ),
]
Recalibrate = Annotated[
    bool,
    typer.Option(
        "--recalibrate/--no-recalibrate",
        help="Recalibrate the probabilities on at least 100 of these samples, if it is worth it.",
        rich_help_panel=CALIBRATION,
    ),
]
Fold = Annotated[
    int | None,
    typer.Option(
        metavar="K", help="Fold to use, 0 to FOLDS − 1.", show_default=False, rich_help_panel=EVALUATION
    ),
]
Folds = Annotated[int, typer.Option(help="Number of folds.", rich_help_panel=EVALUATION)]
SplitSeed = Annotated[int, typer.Option(help="Seed of the folds.", rich_help_panel=EVALUATION)]
Splits = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|RUN",
        help="Folds from a file of srjt data split, or the sides of a run.",
        show_default=False,
        rich_help_panel=EVALUATION,
    ),
]
GroupNearDuplicates = Annotated[
    bool,
    typer.Option(
        "--group-near-duplicates",
        help="Keep nearly identical images on one side of a split, as identical ones always are.",
        rich_help_panel=EVALUATION,
    ),
]
ReferFrom = Annotated[
    str | None,
    typer.Option(
        metavar="GRADE", help="Decide whether to refer: from this grade on.", rich_help_panel=DECISIONS
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="P|grade",
        help="Refer if the probability of --refer-from or more is at least P, or by the predicted grade. "
        "[default: 0.5]",
        show_default=False,
        rich_help_panel=DECISIONS,
    ),
]
Sensitivity = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Find the threshold for this sensitivity on the run's validation side.",
        rich_help_panel=DECISIONS,
    ),
]
Abstain = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Leave about this share of the answers, the least confident, to a person.",
        rich_help_panel=DECISIONS,
    ),
]
Per = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="One answer per value of this column: patient. Repeat it for a key: --per patient --per eye.",
        rich_help_panel=DECISIONS,
    ),
]
Pool = Annotated[
    str,
    typer.Option(
        metavar="highest|mean|learned",
        help="How the answers of several images become one: the highest grade, the mean, or fitted on the "
        "validation side.",
        rich_help_panel=DECISIONS,
    ),
]


def html_file(path: Path | None) -> Path | None:
    """A page whose name has no suffix gets one, so that a browser opens it."""
    from srjt.files import is_stream

    return path if path is None or path.suffix or is_stream(path) else path.with_suffix(".html")


Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page to read and send too.",
        show_default=False,
        callback=html_file,
    ),
]
HtmlOut = Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.", callback=html_file)]
GradeNames = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help='Names of all grades to show: "0=none,1=mild".',
        show_default=False,
    ),
]
