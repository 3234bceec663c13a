"""``srjt report``: a study or a single run as one page to read, send and print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a study, of a single run (finished or not) or of an audit.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file. [dim]default: report.html in the folder[/]")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure there too, as SVG and PNG.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Write a study's tables there too, as Markdown, CSV and LaTeX.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of the tables: accuracy,mae,macro_f1 (the paper's), qwk, …"),
    ] = None,
) -> None:
    """Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce.

    It needs no network and opens from disk. Unfinished runs and failures are named at its top.
    """
    from srjt.errors import SrjtError
    from srjt.reports.figures.canvas import save
    from srjt.reports.pages.html import Page, drawings, write_page

    chosen = _metrics(metrics)
    results = None
    if (folder / "study.json").exists():
        from srjt.reports.pages.study_page import study_page
        from srjt.studies.results import collect_results

        results = collect_results(folder)
        page: Page = study_page(results, metrics=chosen)
    elif (folder / "run.json").exists():
        from srjt.reports.pages.run_page import run_page

        page = run_page(folder)
    elif (folder / "audit.json").exists():
        from srjt.reports.pages.audit_page import audit_page

        page = audit_page(folder)
    else:
        raise SrjtError(
            f"{folder} is the folder of neither a study, a run nor an audit: there is no study.json, run.json or "
            "audit.json in it."
        )
    path = out or folder / "report.html"
    write_page(page, path)
    typer.echo(f"The report is in {path}.")
    if figures is not None:
        files = [file for drawing in drawings(page) for file in save(drawing, figures)]
        typer.echo(f"{len(files)} figure files are in {figures}.")
    if tables is not None:
        if results is None:
            raise SrjtError(f"Tables compare methods: {folder} is a single run or an audit, not a study.")
        typer.echo(f"{_write_tables(results, chosen, tables)} table files are in {tables}.")


def _metrics(text: str | None) -> tuple[str, ...]:
    from srjt.errors import suggest
    from srjt.ordinal.metrics import METRICS
    from srjt.reports.tables.study_tables import PAPER_METRICS

    if text is None:
        return tuple(PAPER_METRICS)
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in METRICS:
            raise suggest("metric", name, METRICS)
    return names


def _write_tables(results: StudyResults, metrics: tuple[str, ...], folder: Path) -> int:
    from srjt.cli.options import writing
    from srjt.reports.pages.study_page import ratio_of_sides
    from srjt.reports.tables.study_tables import study_tables

    made = study_tables(results, metrics=metrics, test_train_ratio=ratio_of_sides(results.folder))
    for number, table in enumerate(made, start=1):
        name = re.sub(r"[^a-z0-9]+", "-", table.title.split(": ", 1)[-1].lower()).strip("-")
        texts = {".md": table.markdown(), ".csv": table.csv(), ".tex": table.latex()}
        for suffix, text in texts.items():
            path = folder / f"{number}-{name}{suffix}"
            with writing(path):
                path.write_text(text, encoding="utf-8")
    return 3 * len(made)
