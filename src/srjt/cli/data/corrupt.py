"""``srjt data corrupt``: add known noise to clean labels, and report the realised rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options, output, samples
from srjt.cli.messages import say
from srjt.errors import SrjtError, count_of, printable

if TYPE_CHECKING:
    from rich.table import Table

    from srjt.noise.matrices import NoiseReport


@options.reads_a_source(without=("true_grade_column",))
def corrupt(
    source: options.SourceArgument,
    noise: Annotated[
        str,
        typer.Option(
            metavar="quasi|truncated", help="Errors towards all other grades, or towards the neighbours only."
        ),
    ] = "quasi",
    rate: Annotated[float | None, typer.Option(help="Target share of wrong labels.")] = None,
    rho: Annotated[float | None, typer.Option(help="The paper's ρ, instead of --rate.")] = None,
    seed: Annotated[
        int, typer.Option(help="The same seed and ids give the same labels on every machine.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file to write (.npz for features). [dim]default: named after the source, in this folder[/]",
        ),
    ] = None,
    force: options.Force = False,
    include_test: Annotated[
        bool, typer.Option("--include-test", help="Corrupt the samples marked test in the split column too.")
    ] = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Write a copy of the labels with noise.

    The column grade holds the noisy labels, true_grade the clean ones.

    A noisy label depends on the seed and the sample's id, not on the other rows.
    Samples marked test in the split column stay clean, as in the paper.
    """
    import numpy as np

    from srjt import noise as noises
    from srjt.console import Console
    from srjt.data import read
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.table import write_table
    from srjt.files import write_atomically

    if (rate is None) == (rho is None):
        raise SrjtError("Give the amount of noise: either --rate or --rho.")
    if out is not None and out.exists() and out.resolve() == source.resolve():
        raise SrjtError(
            f"{out} is the source itself, whose clean labels must not be lost: choose another --out."
        )
    output.refuse_overwrite(out, force=force)
    reading = read(source, **how)
    if out is None:
        suffix = ".npz" if reading.manifest.are_features else ".csv"
        amount = f"rho{rho:g}" if rate is None else f"{rate:g}"
        out = Path(f"{source.stem}_{noise}_{amount}_seed{seed}{suffix}")
        output.refuse_overwrite(out, force=force)
    clean = samples.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if clean.true_labels is not None:
        raise SrjtError(
            f"{source} has a column of true grades already, so its labels are noisy: give the clean table, or "
            "--grade-column with the name of that column to start from the true grades."
        )
    kept_clean = np.zeros(len(clean), dtype=bool)
    if "split" in clean.table and not include_test:
        kept_clean = (clean.table["split"] == "test").to_numpy(dtype=bool)
    corrupted = clean.select(~kept_clean)
    if not len(corrupted):
        raise SrjtError(
            "All samples are marked test, and test labels stay clean: --include-test corrupts them too."
        )
    if rho is None and rate is not None:
        rho = noises.rho_for_rate(noise, rate=rate, class_counts=corrupted.class_counts)
    matrix = noises.transition_matrix(noise, num_classes=clean.num_classes, rho=float(rho or 0.0))
    noisy = clean.labels
    noisy[~kept_clean] = noises.corrupt(corrupted.labels, matrix, seed=seed, ids=corrupted.ids)
    with output.writing(out):
        if clean.are_features and out.suffix == ".npz":
            write_atomically(out, pack_features(clean.with_noisy_labels(noisy)))
        else:  # for features, the labels alone: to be given as --labels
            write_table(clean.with_noisy_labels(noisy), out)

    report = noises.report(corrupted.labels, noisy[~kept_clean], matrix)
    Console(markup=False).print(_table(report, clean.grades))
    if report.ill_conditioned:
        say(
            f"The noise matrix is nearly singular (condition number {report.condition_number:.0f}): methods "
            "that invert it (garg) are unreliable here."
        )
    say(f"{noise} noise with ρ = {rho:.4g}, seed {seed}, on {count_of(len(corrupted), 'label')}: {out}")
    if kept_clean.any():
        clean_labels = int(kept_clean.sum())
        say(f"The {count_of(clean_labels, 'test label')} {'stays' if clean_labels == 1 else 'stay'} clean.")


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
        table.add_row(printable(name), f"{count:,}", f"{nominal:.4f}", f"{realised:.4f}" if count else "–")
    table.add_section()
    total = f"{sum(report.class_counts):,}"
    table.add_row("all", total, f"{report.nominal_rate:.4f}", f"{report.realised_rate:.4f}")
    return table
