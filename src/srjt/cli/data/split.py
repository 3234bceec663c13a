"""``srjt data split``: patient-disjoint folds, written to a file that can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from srjt.data import Manifest, Split


@options.reads_a_source(without=("split_column",))
def split(
    source: options.SourceArgument,
    folds: Annotated[int, typer.Option(help="Five give 60/20/20 per cent.")] = 5,
    seed: Annotated[int, typer.Option(help="Same seed, same folds, on every machine.")] = 0,
    by: Annotated[
        str,
        typer.Option(
            metavar="stratified|random",
            help="By the patients' highest grade, or by patient only (the paper).",
        ),
    ] = "stratified",
    out: Annotated[Path, typer.Option(help="CSV file with id, fold, split.")] = Path("splits.csv"),
    force: options.Force = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Deal the patients into folds with train, validation and test; no patient is ever on two sides.

    In fold k, part k is for test, part k+1 for validation, the rest for training.
    Only labels are read; srjt data inspect finds the bad images.
    """
    from rich.console import Console

    from srjt.data import folds as make_folds
    from srjt.data import read, write_splits

    options.refuse_overwrite(
        out, force=force
    )  # other folds under the same name would make results incomparable
    reading = read(source, **how)
    manifest = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    with options.print_warnings():
        splits = make_folds(manifest, folds=folds, seed=seed, by=by)
    with options.writing(out):
        write_splits(out, manifest, splits)
    Console().print(_table(manifest, splits))
    typer.echo(f"{len(splits)} folds of {len(manifest):,} samples: {out}")


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
