"""``srjt readers``: how well several readers agree, what the true grades probably are, and what to read next."""

from __future__ import annotations

import shlex
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options

if TYPE_CHECKING:
    import pandas as pd

    from srjt.console import Console

TABLES = (
    "image_column",
    "grade_column",
    "reader_column",
    "patient_column",
    "reference_column",
    "grades",
    "images",
)
READERS, PAIRS, FEW = 20, 10, 3  # on the screen


@options.reads_a_source(only=TABLES)
def readers(
    *,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="A CSV, TSV, Excel or Parquet file: a row per reading, or a column per reader.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the page, the consensus and every reading.", show_default=False
        ),
    ] = None,
    next_: Annotated[
        int | None,
        typer.Option(
            "--next",
            min=1,
            metavar="N",
            help="List the N readings that would gain most: which image, by whom.",
            show_default=False,
        ),
    ] = None,
    per_reader: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --next: at most N readings by one reader. [dim]default: no limit[/]",
            show_default=False,
        ),
    ] = None,
    worklist: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file for that list. [dim]default: worklist.csv in --out[/]",
            show_default=False,
        ),
    ] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Predictions of a network (srjt predict) that was not trained on these images: one more witness.",
            show_default=False,
        ),
    ] = None,
    date_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of the reading's date. [dim]default: found by its name[/]",
            show_default=False,
            rich_help_panel="How the source is read",
        ),
    ] = None,
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    how: dict[str, Any],
) -> None:
    """Compare several readers, and combine their grades into one.

    The table has a row per reading (image, reader, grade) or a column per reader
    (grade_anna, grade_bo); readings may be missing. The consensus knows what each
    reader confuses, and how certain it is. With --out the folder holds the page
    (report.html), the consensus as a table for srjt train, and every reading with
    the probability that it is right.
    """
    from srjt.cli.output import refuse_overwrite, writing
    from srjt.console import Console
    from srjt.data import read_readings
    from srjt.data.grade_names import check_grade_names, parse_grade_names
    from srjt.data.readers_folder import (
        consensus_table,
        located_images,
        readings_table,
        worklist_table,
        write_readers_folder,
    )
    from srjt.data.sources.probabilities import read_probabilities
    from srjt.data.sources.reading_notes import NO_READER
    from srjt.data.sources.several_readers import combine
    from srjt.errors import SrjtError, count_of, printable
    from srjt.files import write_output
    from srjt.readers import agreement, next_readings
    from srjt.reports.pages.html import write_page
    from srjt.reports.pages.readers_page import readers_page
    from srjt.reports.reader_facts import reader_facts
    from srjt.reports.reader_findings import next_sentence, nothing_learnt

    if next_ is None and (worklist is not None or per_reader is not None):
        option = "--worklist" if worklist is not None else "--per-reader"
        raise SrjtError(f"{option} belongs to --next: say how many readings, for example --next 50.")
    refuse_overwrite(worklist, force=force)
    images = how.pop("images")
    found = read_readings(table, date_column=date_column, **how)
    readings = found.readings
    names = {} if grade_names is None else check_grade_names(parse_grade_names(grade_names), readings.grades)
    witness = None if probabilities is None else read_probabilities(probabilities, readings)
    agreed = combine(readings, probabilities=witness)
    wanted: pd.DataFrame | None = None
    if next_ is not None:
        best = next_readings(agreed, readings, count=next_, per_reader=per_reader)
        if not len(best) and readings.readers != [NO_READER]:
            best = next_readings(agreed, readings, count=next_, per_reader=per_reader, new_reader=True)
        wanted = worklist_table(best, noun=found.columns.noun)
    file = worklist or (None if out is None else out / "worklist.csv")
    facts = reader_facts(
        found,
        agreement(readings),
        agreed,
        source=table.name,
        probabilities=None if probabilities is None else probabilities.name,
        probabilities_sha256=sha256(probabilities.read_bytes()).hexdigest() if probabilities else None,
        grade_names=names,
        worklist=wanted,
        review_command=shlex.join(
            ["srjt", "review", str(out or "readers"), "--worklist", str(file), "--reviewer", "NAME"]
        ),
    )
    if out is not None:
        located = located_images(found, images or table.parent)
        tables = {
            "consensus.csv": consensus_table(found, agreed, images=located),
            "readings.csv": readings_table(found, agreed),
        }
        if wanted is not None and len(wanted) and worklist is None:
            tables["worklist.csv"] = wanted
        write_readers_folder(out, facts=facts, tables=tables, overwrite=force)
        write_page(readers_page(facts), out / "report.html", follow_links=False)
    if wanted is not None and len(wanted) and worklist is not None:
        with writing(worklist):
            write_output(worklist, wanted.to_csv(index=False).encode("utf-8", "surrogateescape"))
    console = Console(markup=False, highlight=False)
    _print(facts, console)
    if out is not None:
        typer.echo(f"Page: {out / 'report.html'}; the consensus: {out / 'consensus.csv'}")
    elif facts["consensus"]["uncertain"] and not nothing_learnt(facts):
        more = "; --next N lists what to read once more" if wanted is None else ""
        typer.echo(f"--out DIR writes all certainties{more}.")
    if wanted is None:
        return
    console.print(printable(next_sentence(facts)))
    for row in wanted.head(READERS if file is None else FEW).to_dict("records"):
        typer.echo(printable(f"  {row[found.columns.noun]}, by {row['reader']} (gain {row['gain']:.3f})"))
    if len(wanted) and file is None:
        typer.echo("--worklist FILE, or --out DIR, writes the list.")
    elif len(wanted):
        typer.echo(f"Worklist: {file} ({count_of(len(wanted), 'reading')})")
        if out is not None:
            typer.echo(f"Next: {facts['review_command']}")


def _print(facts: dict[str, Any], console: Console) -> None:
    """Agreement, readers and consensus, in 80 columns."""
    from rich.table import Table

    from srjt.errors import printable
    from srjt.reports.pages.reader_cells import range_text
    from srjt.reports.reader_findings import nothing_learnt

    def say(text: str, style: str = "") -> None:
        console.print(printable(text), style=style)

    say(facts["lead"], "bold")
    for note in facts["notes"]:
        say(f"• {note}", "dim")
    for sentence in facts["findings"]:
        say(sentence, "yellow")
    if (found := facts["agreement"]) is not None:
        if (alpha := found["krippendorff"]) is not None:
            between = range_text(alpha["interval"], "{:.2f}")
            say(f"Krippendorff's α (ordinal): {alpha['value']:.2f} (95 % interval: {between})")
        few = facts["pairs"][:PAIRS]
        more = f" ({len(few)} of {len(facts['pairs']):,})" if len(few) < len(facts["pairs"]) else ""
        pairs = Table("reader", "and", title=f"Pairs{more}", title_justify="left")
        for name in ("both", "κ²", "95 %", "κ", "same", "±1"):
            pairs.add_column(name, justify="right", no_wrap=True)
        for pair in few:
            pairs.add_row(
                *(_short(name) for name in pair["readers"]),
                f"{pair['both']:,}",
                _number(pair["quadratic"], "{:.2f}"),
                range_text(pair["interval"], "{:.2f}"),
                _number(pair["linear"], "{:.2f}"),
                _number(pair["exact"], "{:.0%}"),
                _number(pair["within_one"], "{:.0%}"),
            )
        console.print(pairs)
        say("κ²: quadratically weighted; κ: linearly weighted; ±1: at most one grade apart.", "dim")
    if not nothing_learnt(facts):
        _print_readers(facts, console)
    for sentence in facts["consensus"]["sentences"]:
        say(sentence)


def _print_readers(facts: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    from srjt.errors import printable
    from srjt.reports.pages.reader_cells import range_text

    few = facts["readers"][:READERS]
    more = f" ({len(few)} of {len(facts['readers']):,})" if len(few) < len(facts["readers"]) else ""
    table = Table("reader", title=f"Readers{more}", title_justify="left")
    for name in ("readings", "right", "95 %", "higher", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for reader in few:
        table.add_row(
            _short(reader["name"]),
            f"{reader['readings']:,}",
            _number(reader["right"], "{:.0%}"),
            range_text(reader["right_interval"], "{:.0%}"),
            _number(reader["bias"], "{:+.2f}"),
            range_text(reader["bias_interval"], "{:+.2f}"),
        )
    console.print(table)
    beside = (
        "the others on the same images" if facts["bias_beside"] == "others" else "the truth, by the model"
    )
    text = f"right: expected share of right readings; higher: by how many grades than {beside}."
    console.print(printable(text), style="dim")


def _short(name: str) -> str:
    from srjt.errors import printable

    clean = printable(name)
    return clean if len(clean) <= 20 else f"{clean[:19]}…"


def _number(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)
