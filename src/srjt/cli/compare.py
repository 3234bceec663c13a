"""``srjt compare``: runs on the same images, with intervals of their differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import SrjtError, printable

if TYPE_CHECKING:
    from srjt.console import Console
    from srjt.inference.compare import Comparison


@options.reads_a_source(without=("grades",))
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of finished runs; each is compared with the first."),
    ],
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="SOURCE",
            help="Labelled images to compare on. [dim]default: the runs' common test side[/]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page (.html), the figure (.svg, .png) or all numbers (.json)."
        ),
    ] = None,
    force: options.Force = False,
    network: options.Network = "ensemble",
    optimise: options.Optimise = None,
    decode: options.Decode = None,
    device: options.Device = None,
    import_: options.Import = None,
    *,
    how: dict[str, Any],
) -> None:
    """Compare runs on the same images: differences with 95 % intervals by patient.

    The runs must have been tested on the same images, or be given others with
    --test. Each run is compared with the first.
    """
    from srjt.cli.output import refuse_overwrite, writing
    from srjt.console import Console
    from srjt.data import drop_unusable, read
    from srjt.inference.compare import compare as compare_runs
    from srjt.inference.kind_of_samples import refuse_other_options
    from srjt.reports.comparison import check_suffix, write_comparison
    from srjt.training.trained import load_run

    if out is not None:
        check_suffix(out)
    refuse_overwrite(out, force=force)
    if test is None and (given := [name for name, value in how.items() if value is not None]):
        raise SrjtError(f"--{given[0].replace('_', '-')} is about the images of --test, which is not given.")
    opened = [load_run(run, device=device) for run in runs]
    samples = None
    if test is not None:
        refuse_other_options(opened[0], how, about={"features": ["feature_columns", "labels"]})
        reading = read(test, grades=list(opened[0].grades), **how)
        samples = drop_unusable(reading.manifest, reading.problems, on_bad_image="error")
    found = compare_runs(
        *opened,
        test=samples,
        network=network,  # type: ignore[arg-type]
        optimise=optimise,  # type: ignore[arg-type]
        decoding=decode,  # type: ignore[arg-type]
    )
    if out is not None:
        with writing(out):
            write_comparison(found, out)
    _print(Console(markup=False, highlight=False), found)
    if out is not None:
        say(f"Written to {out}.")


def _print(console: Console, found: Comparison) -> None:
    from rich.table import Table

    from srjt.reports.pages.comparison_page import comparison_notes, describe_samples, p_value_note
    from srjt.reports.tables.statistics import decimals

    say(describe_samples(found))
    several = len(found.runs) > 2
    for run in found.runs[1:]:
        table = Table(title=f"{run} − {found.runs[0]}", title_justify="left")
        table.add_column("metric", no_wrap=True)
        for name in (found.runs[0], run):  # a long name is broken into lines
            table.add_column(printable(name), justify="right", overflow="fold", min_width=6)
        for column in ("difference", "95 % interval", "p, Holm" if several else "p"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in (row for row in found.differences if row.run == run):
            value, low, high = row.difference
            table.add_row(
                row.metric,
                f"{row.first:.3f}",
                f"{row.value:.3f}",
                decimals(value, signed=True),
                f"{decimals(low, signed=True)} to {decimals(high, signed=True)}",
                f"{row.adjusted:.3f}",
            )
        console.print(table)
    say(p_value_note(found))
    for note in comparison_notes(found):
        say(note)
