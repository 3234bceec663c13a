"""Options that a command gets as a group, by a decorator: how a source is read, and the settings of a training."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import typer

from srjt.training.config import TrainConfig

__all__ = ["READING", "as_words", "reads_a_source", "takes_settings"]

Command = TypeVar("Command", bound=Callable[..., None])


def _reading(kind: type, metavar: str, help: str) -> Any:
    return Annotated[
        kind | None, typer.Option(metavar=metavar, help=help, rich_help_panel="How the source is read")
    ]


# options of srjt.data.read, by its names
READING: dict[str, Any] = {
    "images": _reading(Path, "DIR", "Folder of the images. [dim]default: the table's, or images/ in it[/]"),
    "image_column": _reading(str, "NAME", "Column of image files. [dim]default: found by its name[/]"),
    "grade_column": _reading(
        list[str],
        "NAME",
        "Column of grades; repeat it, or give a pattern such as 'grade_*', for the columns of several readers. "
        "[dim]default: found by its name[/]",
    ),
    "patient_column": _reading(str, "NAME", "Column of patient ids. [dim]default: found by its name[/]"),
    "true_grade_column": _reading(str, "NAME", "Column of true grades, if they are known."),
    "verified_grade_column": _reading(
        str, "NAME", "Column of true grades of a random sample. [dim]default: found by its name[/]"
    ),
    "split_column": _reading(str, "NAME", "Column with train, validation or test."),
    "grades": _reading(str, "LIST", 'Grades from mild to severe: "none,mild,severe".'),
    "labels": _reading(Path, "FILE", "Table of grades for features: by id, or row by row."),
    "feature_columns": _reading(str, "PATTERN", "Columns of a table that are features: 'f*'."),
    "several_readings": _reading(
        str,
        "error|consensus",
        "Several grades of one image: report them, or combine them. [dim]default: error[/]",
    ),
    "reader_column": _reading(
        str, "NAME", "Column of readers, for several readings. [dim]default: found by its name[/]"
    ),
    "reference_column": _reading(
        str, "NAME", "Column of trusted grades, for several readings. [dim]default: found by its name[/]"
    ),
    "kind": _reading(
        str, "KIND", "table, folders, limuc, dr, medmnist or features. [dim]default: recognised[/]"
    ),
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


def takes_settings(
    *,
    only: Collection[str] = (),
    panel: str | None = None,
    shown: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command an option for each field of TrainConfig with a help text, or for those in ``only``.

    The command receives those that were given as ``settings``. panel: where the help lists them, instead of the
    fields' own panels. shown: defaults that differ from TrainConfig's, as the help shows them.
    """
    hints = get_type_hints(TrainConfig)
    shared = {
        field.name: _setting_option(
            field, hints[field.name], panel=panel, shown=(shown or {}).get(field.name)
        )
        for field in dataclasses.fields(TrainConfig)
        if (field.name in only if only else field.metadata["help"])
    }
    return _expands("settings", shared, lambda given: {k: v for k, v in given.items() if v is not None})


def _setting_option(field: dataclasses.Field[Any], hint: Any, *, panel: str | None, shown: str | None) -> Any:
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
    elif float in get_args(hint) and str not in get_args(hint) and metavar is None:
        kind = float
    default = shown or about.get("shown") or ("" if field.default is None else f"{field.default}")
    help = f"{about['help']} [dim]default: {default}[/]" if default else about["help"]
    return Annotated[
        kind | None,
        typer.Option(
            flag, help=help, metavar=metavar, rich_help_panel=panel or about["panel"], show_default=False
        ),
    ]


def _expands(
    name: str, shared: Mapping[str, Any], collect: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[Command], Command]:
    """A decorator that replaces the parameter ``name`` of a command by options, and passes them as one dictionary.

    A command line is made from a function's signature, so each command would otherwise repeat all of them.
    """

    def expand(command: Command) -> Command:
        kinds = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            if own.name == name:
                parameters += [
                    inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
                    for option, kind in shared.items()
                ]
            else:  # by keyword, so that options without a default may follow those with one
                kind = kinds[own.name]
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))

        @functools.wraps(command)
        def expanded(**given: Any) -> Any:
            values = collect({option: given.pop(option) for option in shared})
            return command(**given, **{name: values})

        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {p.name: p.annotation for p in parameters}
        return cast(Command, expanded)

    return expand
