"""``srjt report``: a study or a single run as one page to read, send and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a study or of a single run, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file. [dim]default: report.html in the folder[/]")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure there too, as SVG and PNG.")
    ] = None,
) -> None:
    """Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce.

    It needs no network and opens from disk. Unfinished runs and failures are named at its top.
    """
    from srjt.errors import SrjtError
    from srjt.report.canvas import save
    from srjt.report.html import Page, drawings, write_page

    if (folder / "study.json").exists():
        from srjt.report.study_page import study_page
        from srjt.study.results import gather

        page: Page = study_page(gather(folder))
    elif (folder / "run.json").exists():
        from srjt.report.run_page import run_page

        page = run_page(folder)
    else:
        raise SrjtError(
            f"{folder} is the folder of neither a study nor a run: there is no study.json and no run.json in it."
        )
    path = out or folder / "report.html"
    write_page(page, path)
    typer.echo(f"The report is in {path}.")
    if figures is not None:
        files = [file for drawing in drawings(page) for file in save(drawing, figures)]
        typer.echo(f"{len(files)} figure files are in {figures}.")
