"""What commands show and do about samples: the table of grades, problems, images that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from srjt.cli.messages import say
from srjt.cli.option_names import as_typed
from srjt.cli.options import READING
from srjt.cli.output import writing
from srjt.errors import SrjtError, printable, suggest

if TYPE_CHECKING:
    from rich.table import Table

    from srjt.data import Manifest, Problem, Reading

__all__ = ["calibration_samples", "grade_table", "grouped", "list_unreadable", "print_problems", "usable"]


def grouped(manifest: Manifest, *, near: bool) -> Manifest:
    """The samples with groups of identical or, if wanted, nearly identical images; a warning counts them."""
    from srjt.cli.messages import decoding_bar
    from srjt.data import group_duplicates

    with decoding_bar() as progress:
        return group_duplicates(manifest, near=near, progress=progress)


def usable(reading: Reading, *, on_bad_image: str, skipped: Path) -> Manifest:
    """The samples that can be used; the others are an error, or are listed in ``skipped``."""
    from srjt.data import drop_unusable

    with writing(skipped):
        return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image, listed_in=skipped)


# options about columns that a source and --calibrate-on have in common; the other options are about one of them
SHARED = (
    "image_column",
    "grade_column",
    "patient_column",
    "verified_grade_column",
    "feature_columns",
    "several_readings",
    "reader_column",
    "reference_column",
)


def calibration_samples(
    source: Path | None,
    assignments: Sequence[str] | None,
    *,
    how: Mapping[str, Any],
    grades: Sequence[str],
    on_bad_image: str,
) -> Manifest | None:
    """The samples of ``--calibrate-on``: its columns are named as those of the source, or by ``--calibrate-set``."""
    from srjt.data import drop_unusable, read

    if source is None:
        if assignments:
            raise SrjtError("--calibrate-set says how --calibrate-on is read: give --calibrate-on, too.")
        return None
    options = {name: how[name] for name in SHARED if how.get(name) is not None}
    own = {}
    for assignment in assignments or ():
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise SrjtError(
                f"--calibrate-set takes name=value, for example grade_column=severity; got {assignment!r}."
            )
        if name not in READING or name == "grades":  # the grades are those of the run
            raise suggest("option of --calibrate-set", name, [key for key in READING if key != "grades"])
        own[name] = value or None  # nothing: found by its name
    try:
        reading = read(source, grades=list(grades), **{**options, **own})
    except SrjtError as problem:
        common = ", ".join(f"`{name}`" for name in options if name not in own)
        hint = f" --calibrate-on is read with the same {common}: --calibrate-set NAME=VALUE gives it others."
        raise SrjtError(f"{problem}{hint if common else ''}") from None
    return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)


def list_unreadable(
    unreadable: Sequence[tuple[str, str]], skipped: Path, *, problems: Sequence[Problem] = ()
) -> None:
    """Add images that could not be read, as (id, reason), to the list of unusable samples."""
    from srjt.data import write_problems
    from srjt.data.checks import image_problem

    if unreadable:
        with writing(skipped):
            found = [image_problem(sample, reason) for sample, reason in unreadable]
            write_problems([*problems, *found], skipped)


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
        row = [printable(name), f"{count:,}", f"{count / len(manifest):.1%}", bar]
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
    from srjt.data.problems import KINDS, examples

    for kind, severity, count, first in examples(problems):
        colour = "red" if severity == "error" else "yellow"
        say(f"{severity}: {count:,} {kind}: {as_typed(KINDS[kind][1])}", fg=colour)
        for problem in first:
            detail = f": {problem.detail}" if problem.detail else ""
            typer.echo(printable(f"    {problem.where}{detail}"))
        if count > len(first):
            typer.echo(f"    … and {count - len(first):,} more")
