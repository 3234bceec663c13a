"""``srjt data corrupt``: put known noise on clean labels, and say how much it came to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.errors import SrjtError

if TYPE_CHECKING:
    from rich.table import Table

    from srjt.noise.matrices import NoiseReport


@options.reads_a_source(without=("true_grade_column",))
def corrupt(
    source: options.SourceArgument,
    noise: Annotated[
        str, typer.Option(metavar="quasi|truncated", help="All other grades, or the neighbours only.")
    ] = "quasi",
    rate: Annotated[float | None, typer.Option(help="Share of wrong labels to aim at.")] = None,
    rho: Annotated[float | None, typer.Option(help="The paper's ρ, instead of --rate.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed and ids, same labels, on every machine.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file (or .npz for features); else named after the source, in this folder."),
    ] = None,
    force: options.Force = False,
    include_test: Annotated[
        bool, typer.Option("--include-test", help="Also where the split column says test.")
    ] = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Write a copy of the labels with noise: the column grade has it, true_grade the truth.

    A label depends on the seed and its sample's id, not on the other rows.
    Samples that the split column marks as test stay clean (the paper's way).
    """
    import numpy as np
    from rich.console import Console

    from srjt import noise as noises
    from srjt.data import read
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.table import write_table
    from srjt.files import write_atomically

    if (rate is None) == (rho is None):
        raise SrjtError("Say how much noise: either --rate or --rho.")
    if out is not None and out.exists() and out.resolve() == source.resolve():
        raise SrjtError(f"{out} is the source itself: the clean labels must stay; choose another --out.")
    options.refuse_overwrite(out, force=force)
    reading = read(source, **how)
    if out is None:
        suffix = ".npz" if reading.manifest.are_features else ".csv"
        amount = f"rho{rho:g}" if rate is None else f"{rate:g}"
        out = Path(f"{source.stem}_{noise}_{amount}_seed{seed}{suffix}")
        options.refuse_overwrite(out, force=force)
    clean = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if clean.true_labels is not None:
        raise SrjtError(
            f"{source} has a column of true grades already, so its labels are noisy: give the clean table, or "
            "--grade-column with that column's name to begin anew from the truth."
        )
    spared = np.zeros(len(clean), dtype=bool)
    if "split" in clean.table and not include_test:
        spared = (clean.table["split"] == "test").to_numpy(dtype=bool)
    hit = clean.select(~spared)
    if not len(hit):
        raise SrjtError(
            "All samples are for test, and test labels stay clean; --include-test says otherwise."
        )
    if rho is None and rate is not None:
        rho = noises.rho_for_rate(noise, rate=rate, class_counts=hit.class_counts)
    matrix = noises.transition_matrix(noise, num_classes=clean.num_classes, rho=float(rho or 0.0))
    noisy = clean.labels
    noisy[~spared] = noises.corrupt(hit.labels, matrix, seed=seed, ids=hit.ids)
    with options.writing(out):
        if clean.are_features and out.suffix == ".npz":
            write_atomically(out, pack_features(clean.with_noisy_labels(noisy)))
        else:  # of features the labels alone, for --labels
            write_table(clean.with_noisy_labels(noisy), out)

    report = noises.report(hit.labels, noisy[~spared], matrix)
    Console().print(_table(report, clean.grades))
    if report.ill_conditioned:
        typer.echo(
            f"The noise matrix is nearly singular (condition number {report.condition_number:.0f}): methods "
            "that invert it (garg) are unreliable here."
        )
    typer.echo(f"{noise} noise with ρ = {rho:.4g}, seed {seed}, on {len(hit):,} labels: {out}")
    if spared.any():
        typer.echo(f"The {int(spared.sum()):,} labels for test stay clean.")


def _table(report: NoiseReport, grades: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(caption="Share of wrong labels.")
    table.add_column("true grade")
    for column in ("samples", "nominal", "realised"):
        table.add_column(column, justify="right")
    per_grade = zip(
        grades, report.class_counts, report.per_class_nominal, report.per_class_realised, strict=True
    )
    for name, count, nominal, realised in per_grade:
        table.add_row(name, f"{count:,}", f"{nominal:.4f}", f"{realised:.4f}" if count else "–")
    table.add_section()
    total = f"{sum(report.class_counts):,}"
    table.add_row("all", total, f"{report.nominal_rate:.4f}", f"{report.realised_rate:.4f}")
    return table
