"""``srjt data limuc``: download LIMUC and check that it is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srjt.cli import samples


def limuc(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of LIMUC.")],
    download: Annotated[
        bool,
        typer.Option("--download", help="Download it from Zenodo (record 5827695) if it is not complete."),
    ] = False,
    url: Annotated[str | None, typer.Option(hidden=True, help="A mirror of the archive.")] = None,
) -> None:
    """Check LIMUC (11,276 endoscopic images of 564 patients, Mayo 0 to 3); download it with --download.

    Repeat the command to resume an interrupted download.
    Exit status 1 if the counts differ from the published ones.
    """
    from srjt.console import Console
    from srjt.data import read
    from srjt.data.sources import limuc as source
    from srjt.errors import SrjtError

    if download and not (source.find_patients(directory) and _is_complete(directory)):
        _download(url or source.URL, directory, source.ARCHIVE)
    if not directory.is_dir():
        raise SrjtError(f"{directory} does not exist; --download downloads the data into it.")
    reading = read(directory, kind="limuc")
    Console(markup=False).print(samples.grade_table(reading.manifest))
    samples.print_problems(list(reading.problems))
    differences = source.differences(reading.manifest)
    if differences:
        typer.secho("Not as published:", fg=typer.colors.RED)
        typer.echo("\n".join(f"  {difference}" for difference in differences))
        raise typer.Exit(1)
    typer.echo("All counts are as published.")
    typer.echo(f"Next: srjt data inspect {directory}")


def _is_complete(directory: Path) -> bool:
    from srjt.data import read
    from srjt.data.sources.limuc import differences

    return not differences(read(directory, kind="limuc").manifest)


def _download(url: str, directory: Path, archive_name: str) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from srjt.console import Console
    from srjt.download import download, extract

    archive = directory / archive_name
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not archive.exists():
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("Downloading", total=None)
            download(url, archive, progress=lambda done, all_: bar.update(task, completed=done, total=all_))
    with Progress(console=console) as bar:
        task = bar.add_task("Unpacking", total=None)
        extract(archive, directory, progress=lambda done, all_: bar.update(task, completed=done, total=all_))
    archive.unlink()  # its contents are beside it now
