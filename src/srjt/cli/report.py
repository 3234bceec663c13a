"""``srjt report``: a study, a run, an audit or several readers as one page to read, send and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import count_of


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of a study, of a single run (finished or not), of an audit or of readers.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="HTML file to write. [dim]default: report.html in the folder[/]",
            callback=options.html_file,
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure there, as SVG and PNG.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write a study's tables there, as Markdown, CSV and LaTeX."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Metrics of the tables. [dim]default: accuracy,mae,macro_f1[/]"),
    ] = None,
    maps: Annotated[
        bool,
        typer.Option("--maps", help="Show where the networks of an audit look, for its doubtful labels."),
    ] = False,
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    import_: options.Import = None,
) -> None:
    """Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce it.

    It needs no network and opens from disk. It names unfinished and failed runs
    at the top.
    """
    from srjt.cli.output import refuse_overwrite
    from srjt.data.grade_names import parse_grade_names
    from srjt.reports.report import report as write_report
    from srjt.reports.tables.statistics import PAPER_METRICS

    refuse_overwrite(out, force=force)
    chosen = PAPER_METRICS if metrics is None else tuple(name.strip() for name in metrics.split(","))
    names = None if grade_names is None else parse_grade_names(grade_names)
    page, *others = write_report(
        folder, out=out, figures=figures, tables=tables, metrics=chosen, maps=maps, grade_names=names
    )
    say(f"The report is in {page}.")
    drawn = [file for file in others if file.suffix in (".svg", ".png")]
    if figures is not None:
        say(f"{figures} has {count_of(len(drawn), 'figure file')}.")
    if tables is not None:
        say(f"{tables} has {count_of(len(others) - len(drawn), 'table file')}.")
