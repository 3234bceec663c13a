"""``srjt data dr``: check that Kaggle's diabetic retinopathy data are complete."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from srjt.cli import samples
from srjt.errors import count_of


def dr(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with trainLabels.csv and the images.")
    ],
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the images. [dim]default: train/, images/ or DIR itself[/]"
        ),
    ] = None,
) -> None:
    """Check Kaggle's Diabetic Retinopathy Detection data (35,126 labels of 17,563 patients, grades 0 to 4).

    They must be downloaded by hand, after accepting the competition's rules.
    Exit status 1 if the counts are neither Kaggle's nor the paper's (35,108),
    or if images are missing.
    """
    from srjt.console import Console
    from srjt.data import read
    from srjt.data.problems import errors_in
    from srjt.data.sources import dr as source

    reading = read(directory, images=images, kind="dr")
    manifest = reading.manifest
    Console(markup=False).print(samples.grade_table(manifest))
    samples.print_problems(list(reading.problems))
    differences = source.differences(manifest)
    absent = [path for path in manifest.paths if not os.path.isfile(path)]
    if absent:
        differences.append(
            f"not in {manifest.root}: {len(absent):,} of {count_of(len(manifest), 'image')}, such as {absent[0].name}"
        )
    if differences or errors_in(reading.problems):
        typer.secho("Not as published:", fg=typer.colors.RED)
        typer.echo("\n".join(f"  {difference}" for difference in differences))
        raise typer.Exit(1)
    paper = manifest.class_counts.tolist() == list(source.PAPER_COUNTS)
    typer.echo(
        f"All counts are as {'in the paper' if paper else 'published by Kaggle'}; no image is missing."
    )
    typer.echo(f"Next: srjt data inspect {directory}")
