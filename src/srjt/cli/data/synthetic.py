"""``srjt data synthetic``: write the synthetic data set to a folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from srjt.cli import messages
from srjt.errors import count_of


def synthetic(
    folder: Path = typer.Argument(
        ..., metavar="DIR", help="New or empty folder for the images and labels.csv."
    ),
    images: int = typer.Option(1200, help="Number of images."),
    patients: int = typer.Option(120, help="Number of patients."),
    size: int = typer.Option(64, help="Side of the images in pixels, 32 to 256."),
    grades: int = typer.Option(4, help="Number of grades, 2 to 10."),
    seed: int = typer.Option(0, help="The same seed gives the same bytes."),
) -> None:
    """Write the synthetic data set: images of known true severity.

    Endoscopy-like PNG files and labels.csv (image, grade, patient, severity).
    Neighbouring grades are ambiguous near their boundary, patients
    differ in appearance and severity, and severe grades are rare.
    """
    from srjt.data.synthetic import check_empty, generate, write

    check_empty(folder)  # before drawing, not after
    with messages.transient_bar() as bar:
        drawn = bar.add_task("Drawing", total=images)
        manifest = generate(
            images=images,
            patients=patients,
            size=size,
            grades=grades,
            seed=seed,
            progress=lambda: bar.advance(drawn),
        )
        written = bar.add_task("Writing", total=images)
        labels = write(manifest, folder, progress=lambda: bar.advance(written))
    counts = ", ".join(str(n) for n in manifest.class_counts)
    typer.echo(
        f"{count_of(images, 'image')} of {count_of(patients, 'patient')} in {folder}; per grade: {counts}."
    )
    typer.echo(f"Next: srjt data inspect {shlex.quote(str(labels))}")
