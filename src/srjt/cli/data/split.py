"""``srjt data split``: patient-disjoint folds, written to a file that can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options, output, samples
from srjt.errors import count_of

if TYPE_CHECKING:
    from rich.table import Table

    from srjt.data import Manifest, Split


@options.reads_a_source(without=("split_column",))
def split(
    source: options.SourceArgument,
    folds: Annotated[int, typer.Option(help="Number of folds; five give 60/20/20 per cent.")] = 5,
    seed: Annotated[int, typer.Option(help="The same seed gives the same folds on every machine.")] = 0,
    by: Annotated[
        str,
        typer.Option(
            metavar="random|stratified",
            help="Split patients at random (the paper), or stratify by their highest grade.",
        ),
    ] = "random",
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV file to write, with id, fold, split.")
    ] = Path("splits.csv"),
    group_near_duplicates: options.GroupNearDuplicates = False,
    force: options.Force = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Split the patients into folds of train, validation and test; no patient is on two sides.

    In fold k, part k is for testing, part k+1 for validation, the rest for
    training. Images are read once to keep identical ones on one side; their hashes
    stay in the cache. srjt data inspect finds bad images.
    """
    from srjt.console import Console
    from srjt.data import folds as make_folds
    from srjt.data import read, write_splits

    output.refuse_overwrite(
        out, force=force
    )  # other folds under the same name would make results incomparable
    reading = read(source, **how)
    manifest = samples.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    manifest = samples.grouped(manifest, near=group_near_duplicates)
    splits = make_folds(manifest, folds=folds, seed=seed, by=by)
    with output.writing(out):
        write_splits(out, manifest, splits)
    Console(markup=False).print(_table(manifest, splits))
    typer.echo(f"{count_of(len(splits), 'fold')} of {count_of(len(manifest), 'sample')}: {out}")


def _table(manifest: Manifest, splits: list[Split]) -> Table:
    from rich.table import Table

    table = Table(caption=None if manifest.patients is None else "Images, and patients in brackets.")
    table.add_column("fold", justify="right")
    for side in ("train", "validation", "test"):
        table.add_column(side, justify="right", no_wrap=True)
    table.add_column("test per grade", overflow="fold")
    for fold, split in enumerate(splits):
        sides = []
        for rows in split.sides().values():
            part = manifest.select(rows)
            owners = "" if part.patients is None else f" ({len(set(part.patients)):,})"
            sides.append(f"{len(part):,}{owners}")
        tested = manifest.select(split.test).class_counts
        table.add_row(str(fold), *sides, " / ".join(f"{count:,}" for count in tested))
    return table
