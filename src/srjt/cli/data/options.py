"""The options by which every command is told where the data are, and what they share in printing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.errors import SrjtError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from srjt.data import Manifest, Problem

__all__ = [
    "FeatureColumns",
    "GradeColumn",
    "Grades",
    "ImageColumn",
    "Images",
    "Kind",
    "Labels",
    "OnBadImage",
    "PatientColumn",
    "Source",
    "SplitColumn",
    "TrueGradeColumn",
    "decoding_bar",
    "grade_table",
    "listed",
    "passing_bar",
    "print_problems",
    "print_warnings",
    "writing",
]

PANEL = "How the source is read"

Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A CSV, TSV or Parquet file; a folder (one per grade, LIMUC, Kaggle DR); a MedMNIST .npz file; "
        "features (.npz, .npy).",
    ),
]
Images = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the images; else the table's.", rich_help_panel=PANEL),
]
ImageColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Else found by its name.", rich_help_panel=PANEL)
]
GradeColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Else found by its name.", rich_help_panel=PANEL)
]
PatientColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Else found by its name.", rich_help_panel=PANEL)
]
TrueGradeColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where the truth is known.", rich_help_panel=PANEL)
]
SplitColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="train, validation or test.", rich_help_panel=PANEL)
]
Grades = Annotated[
    str | None,
    typer.Option(metavar="LIST", help='From mild to severe: "none,mild,severe".', rich_help_panel=PANEL),
]
Kind = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="table, folders, limuc, dr, medmnist, features; else recognised.",
        rich_help_panel=PANEL,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Table of grades for features: by id, or row by row.", rich_help_panel=PANEL
    ),
]
FeatureColumns = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN", help="Columns of a table that are features: 'f*'.", rich_help_panel=PANEL
    ),
]
OnBadImage = Annotated[
    str,
    typer.Option(
        metavar="error|skip", help="Stop at unusable samples, or leave them out and list them in a CSV."
    ),
]


def listed(grades: str | None) -> list[str] | None:
    """The names in ``--grades "none, mild"``."""
    return None if grades is None else [name.strip() for name in grades.split(",")]


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


def passing_bar() -> Progress:
    """A bar on the terminal that goes away when done; nothing at all, not even an empty line, in a log."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def decoding_bar() -> Iterator[Callable[[int, int], None]]:
    """A passing bar over images being decoded, as a function of (done, total)."""
    with passing_bar() as bar:
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
