"""``srjt data inspect``: what a source holds, what is wrong with it, and examples of each grade."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import messages, options, output, samples
from srjt.cli.machine_options import machine_options
from srjt.cli.messages import say
from srjt.errors import count_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from srjt.data import Manifest
    from srjt.data.checks import Examination


@options.reads_a_source()
def inspect(
    source: options.SourceArgument,
    sheet: Annotated[Path, typer.Option(metavar="FILE", help="PNG file of examples per grade.")] = Path(
        "contact_sheet.png"
    ),
    pairs: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="PNG file of identical and nearly identical images, if there are any."
        ),
    ] = Path("duplicates.png"),
    problems_file: Annotated[
        Path, typer.Option("--problems", metavar="FILE", help="CSV file of all problems, if there are any.")
    ] = Path("problems.csv"),
    folds: Annotated[int, typer.Option(help="Warn about grades with fewer patients than this.")] = 5,
    decode: Annotated[bool, typer.Option(help="Read every image, and draw the examples.")] = True,
    *,
    how: dict[str, Any],
) -> None:
    """Show what a source holds, and everything that is wrong with it.

    The exit status is 0 if every sample can be used, even with warnings; 1 if
    some cannot; 2, as for every command, if the source cannot be read at all.

    Errors: images missing, empty or unreadable; grades missing or invalid;
    rows that contradict each other or have too few cells.

    Warnings: duplicate rows, identical and nearly identical images, identical
    images with different grades, patients unknown, too few patients in a grade.
    """
    from srjt.console import Console
    from srjt.data import read, write_problems
    from srjt.data.problems import errors_in

    sentences, how = _readers(source, how)
    reading = read(source, **how)
    manifest = reading.manifest
    for note in reading.notes:
        say(f"• {note}")
    for sentence in sentences:
        say(sentence)
    Console(markup=False).print(samples.grade_table(manifest))
    for line in (*_patients(manifest), *_splits(manifest), *_sizes(manifest), *_features(manifest)):
        say(line)

    examination = _examine(manifest, folds=folds, decode=decode)
    problems = [*reading.problems, *examination.problems]
    if problems:
        samples.print_problems(problems)
        replaced = " (the previous file was replaced)" if problems_file.is_file() else ""
        with output.writing(problems_file):
            write_problems(problems, problems_file)
        say(f"The full list of problems: {problems_file}{replaced}")
    else:
        say("No problems found." if decode else "No problems found (images not read).")
    if decode and not manifest.are_features:
        from srjt.data.contact_sheet import contact_sheet, pair_sheet

        if len(examination.pairs):
            _write_picture(
                pair_sheet(manifest, examination.pairs), pairs, "Images that are (nearly) the same"
            )
        _write_picture(contact_sheet(manifest), sheet, "Examples of each grade")
    if errors_in(problems):
        raise typer.Exit(1)
    read_with = [str(source), *options.as_words(how)]
    if small := machine_options(features=manifest.are_features):
        embed = shlex.join(["srjt", "features", *read_with])
        say(f"There is no GPU: train a small network, or compute the features of a large one first: {embed}")
    typer.echo(f"Next: {shlex.join(['srjt', 'train', *read_with, '--fold', '0', '--out', 'run', *small])}")


def _readers(source: Path, how: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Sentences about a table with several readers, and how to read it: a column for each of them makes a consensus."""
    from srjt.data import read_readings
    from srjt.data.sources.reading_columns import has_grade_column
    from srjt.data.sources.reading_notes import describe_readers
    from srjt.data.sources.table import is_table
    from srjt.errors import SrjtError

    names = ("image_column", "grade_column", "reader_column", "patient_column", "reference_column", "grades")
    if how["kind"] not in (None, "table") or not is_table(source):
        return [], how
    try:
        found = read_readings(source, **{name: how[name] for name in names})
    except SrjtError:  # no table of readings; what is wrong with it is reported when it is read
        return [], how
    if not (said := describe_readers(found.readings, found.columns)):
        return [], how
    sentences = [said, f"To compare them: srjt readers {shlex.quote(str(source))}"]
    if how["several_readings"] is None and found.columns.wide and not has_grade_column(found.frame):
        how = {**how, "several_readings": "consensus"}
        sentences.append(
            "The grades below are their consensus; other commands need --several-readings consensus."
        )
    elif how["several_readings"] is None:
        sentences.append("To combine the grades of each image: --several-readings consensus")
    return sentences, how


def _write_picture(picture: Image, path: Path, what: str) -> None:
    """Write a PNG file, and say where it is."""
    import io

    from srjt.files import write_output

    replaced = " (the previous file was replaced)" if path.is_file() else ""
    with output.writing(path):
        png = io.BytesIO()
        picture.save(png, format="PNG")
        write_output(path, png.getvalue())
    say(f"{what}: {path}{replaced}")


def _examine(manifest: Manifest, *, folds: int, decode: bool) -> Examination:
    from srjt.data.checks import examine

    with messages.transient_bar() as bar:
        task = bar.add_task("Reading images", total=len(manifest), visible=decode)
        return examine(
            manifest, folds=folds, images=decode, progress=lambda done, _: bar.update(task, completed=done)
        )


def _patients(manifest: Manifest) -> list[str]:
    if manifest.patients is None:
        return []
    counts = sorted(Counter(manifest.patients).values())
    middle = counts[len(counts) // 2]
    what = "Rows" if manifest.are_features else "Images"
    if counts[0] == counts[-1]:
        return [f"{what} per patient: {middle}"]
    return [f"{what} per patient: {counts[0]} to {counts[-1]}, median {middle}"]


def _splits(manifest: Manifest) -> list[str]:
    from srjt.data.splits import unused_split_column

    if "split" not in manifest.table:
        column = unused_split_column(manifest)
        return [] if column is None else [f"There is a column {column}: use --split-column {column}."]
    counts = Counter(side or "none" for side in manifest.table["split"])
    return ["Published split: " + ", ".join(f"{side} {count:,}" for side, count in counts.items())]


def _features(manifest: Manifest) -> list[str]:
    """Their range and spread, and columns without information: to see whether they are the expected numbers."""
    import numpy as np

    if manifest.arrays is None or not manifest.are_features:
        return []
    x = manifest.arrays.astype(np.float64)
    low, middle, high = np.quantile(x.std(axis=0), [0.0, 0.5, 1.0])
    lines = [
        f"Features: {count_of(x.shape[1], 'column')} from {x.min():.4g} to {x.max():.4g}, mean {x.mean():.4g}, "
        f"{np.mean(x == 0):.0%} zeros",
        f"Standard deviation per column: {low:.4g} to {high:.4g}, median {middle:.4g}",
    ]
    if constant := int(np.sum(np.ptp(x, axis=0) == 0)):
        lines.append(f"{count_of(constant, 'constant column')}: without information, and harmless.")
    return lines


def _sizes(manifest: Manifest) -> list[str]:
    from srjt.data.checks import SAMPLED, image_sizes

    sizes = Counter(image_sizes(manifest))
    if not sizes:
        return []
    common = ", ".join(f"{w}×{h} ({count:,})" for (w, h), count in sizes.most_common(4))
    others = f" and {count_of(len(sizes) - 4, 'other size')}" if len(sizes) > 4 else ""
    sampled = f"; from a sample of {sizes.total():,} images" if len(manifest) > SAMPLED else ""
    return [f"Image sizes (width×height): {common}{others}{sampled}"]
