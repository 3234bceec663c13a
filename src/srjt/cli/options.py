"""The options by which every command is told where the data are, and what they share in printing."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

from srjt.errors import SrjtError
from srjt.files import exists_already

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from srjt.data import Manifest, Problem, Reading

__all__ = [
    "READING",
    "Force",
    "OnBadImage",
    "Skipped",
    "SourceArgument",
    "Views",
    "decoding_bar",
    "grade_table",
    "print_problems",
    "print_warnings",
    "reads_a_source",
    "refuse_overwrite",
    "transient_bar",
    "usable",
    "writing",
]

Command = TypeVar("Command", bound=Callable[..., None])

PANEL = "How the source is read"

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A CSV, TSV or Parquet file; a folder (one per grade, LIMUC, Kaggle DR); a MedMNIST .npz file; "
        "features (.npz, .npy).",
    ),
]


def _said(kind: type, metavar: str, help: str) -> Any:
    return Annotated[kind | None, typer.Option(metavar=metavar, help=help, rich_help_panel=PANEL)]


# options of srjt.data.read, by its names
READING: dict[str, Any] = {
    "images": _said(Path, "DIR", "Folder of the images; else the table's."),
    "image_column": _said(str, "NAME", "Else found by its name."),
    "grade_column": _said(str, "NAME", "Else found by its name."),
    "patient_column": _said(str, "NAME", "Else found by its name."),
    "true_grade_column": _said(str, "NAME", "Where the truth is known."),
    "split_column": _said(str, "NAME", "train, validation or test."),
    "grades": _said(str, "LIST", 'From mild to severe: "none,mild,severe".'),
    "labels": _said(Path, "FILE", "Table of grades for features: by id, or row by row."),
    "feature_columns": _said(str, "PATTERN", "Columns of a table that are features: 'f*'."),
    "kind": _said(str, "KIND", "table, folders, limuc, dr, medmnist, features; else recognised."),
}


def reads_a_source(
    *, only: Collection[str] = tuple(READING), without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the options in READING; it gets what was said as ``how``, for ``srjt.data.read(source, **how)``.

    A command line is made from a function's signature, so each would otherwise repeat all of them.
    """
    shared = {name: kind for name, kind in READING.items() if name in only and name not in without}

    def widen(command: Command) -> Command:
        own = inspect.signature(command)
        kinds = {k: v for k, v in get_type_hints(command, include_extras=True).items() if k != "how"}

        @functools.wraps(command)
        def widened(**given: Any) -> Any:
            how = {name: given.pop(name) for name in shared}
            if how.get("grades") is not None:
                how["grades"] = [name.strip() for name in how["grades"].split(",")]
            return command(**given, how=how)

        parameters = [p.replace(annotation=kinds[p.name]) for p in own.parameters.values() if p.name != "how"]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in shared.items()
        ]
        widened.__signature__ = own.replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
        widened.__annotations__ = {**kinds, **shared}
        return cast(Command, widened)

    return widen


OnBadImage = Annotated[
    str,
    typer.Option(
        metavar="error|skip", help="Stop at unusable samples, or leave them out and list them in a CSV."
    ),
]
Views = Annotated[
    int,
    typer.Option(
        metavar="1|2|10",
        help="Views of each image to average: the centre crop; and its mirror image; and the four corners, mirrored "
        "too. Without mirror images (2 is an error, 10 means 5) for a run with flip=false.",
    ),
]
Skipped = Annotated[Path, typer.Option(help="CSV list of the unusable samples.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]


def usable(reading: Reading, *, on_bad_image: str, skipped: Path) -> Manifest:
    """The samples that can be used; the others are an error, or are listed in ``skipped``."""
    from srjt.data import drop_unusable

    with writing(skipped):
        return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image, listed_in=skipped)


def refuse_overwrite(out: Path | None, *, force: bool) -> None:
    """Stop rather than overwrite a file; to be asked first, before an hour is spent. A pipe is no such file."""
    if out is not None and out.is_file() and not force and not is_stream(out):
        raise exists_already(out)


def is_stream(out: Path) -> bool:
    """A pipe or a device, such as /dev/stdout (also where that leads to a file): written to, never replaced."""
    return out.is_relative_to("/dev") or (out.exists() and not out.is_file())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of ``path``; what keeps us from writing there is the person's to mend, in one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise SrjtError(f"{path} cannot be written: {problem.strerror or problem}.") from None


@contextmanager
def print_warnings() -> Iterator[None]:
    """Show each warning about leakage once, as a sentence and not as a line of code."""
    from srjt.data import LeakageWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeakageWarning)
        yield
    for message in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, LeakageWarning)):
        typer.secho(f"Warning: {message}", fg=typer.colors.YELLOW, err=True)
    for other in caught:
        if not issubclass(other.category, LeakageWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)


def transient_bar() -> Progress:
    """A bar on the terminal that goes away when done; nothing at all, not even an empty line, in a log."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def decoding_bar() -> Iterator[Callable[[int, int], None]]:
    """A passing bar over images being decoded, as a function of (done, total)."""
    with transient_bar() as bar:
        task = bar.add_task("Decoding", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def grade_table(manifest: Manifest) -> Table:
    """Images and patients per grade, with a bar."""
    from rich.table import Table

    table = Table(title=None)
    table.add_column("grade", no_wrap=True)
    for column in ("rows" if manifest.are_features else "images", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", width=24, no_wrap=True)
    patients = manifest.patients
    if patients is not None:
        table.add_column("patients", justify="right", no_wrap=True)
    counts = manifest.class_counts.tolist()
    for grade, (name, count) in enumerate(zip(manifest.grades, counts, strict=True)):
        bar = "█" * round(24 * count / max(counts)) or ("▏" if count else "")
        row = [name, f"{count:,}", f"{count / len(manifest):.1%}", bar]
        if patients is not None:
            owners = {patients[i] for i in (manifest.labels == grade).nonzero()[0].tolist()}
            row.append(f"{len(owners):,}")
        table.add_row(*row)
    table.add_section()
    total = ["all", f"{len(manifest):,}", "", ""]
    table.add_row(*total, *([f"{len(set(patients)):,}"] if patients is not None else []))
    return table


def print_problems(problems: list[Problem]) -> None:
    """Every kind with its number, what it means and the first few examples."""
    from rich.console import Console
    from rich.text import Text

    from srjt.data.problems import KINDS, examples

    console = Console()
    for kind, severity, count, first in examples(problems):
        colour = "red" if severity == "error" else "yellow"
        console.print(Text.assemble((f"{severity}: {count:,} {kind}", colour), f": {KINDS[kind][1]}"))
        for problem in first:
            said = f"{problem.where}: {problem.detail}" if problem.detail else problem.where
            console.print(Text(f"    {said}"), soft_wrap=True)
        if count > len(first):
            console.print(f"    … and {count - len(first):,} more")
