"""``srjt audit``: estimate how many labels are wrong, and rank them by how likely each one is wrong."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options

if TYPE_CHECKING:
    from srjt.auditing.audit import Audit
    from srjt.data import Reading

TRAINING, COMPUTING = "Training", "How it is computed"
ROLES = ("image_column", "grade_column", "patient_column", "true_grade_column")
SHOWN = {"grade": 20, "reader": 10, "patient": 5}  # of each, on the screen


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


@options.reads_a_source(without=("split_column",))
def audit(
    source: options.SourceArgument,
    out: Annotated[
        Path, typer.Option(help="Folder of the audit; finished trainings in it are not repeated.")
    ],
    folds: Annotated[
        int, typer.Option(help="Number of trainings; each predicts the patients that it was not trained on.")
    ] = 5,
    reader_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column that names the reader of each label. [dim]default: reader, if it exists[/]",
            show_default=False,
        ),
    ] = None,
    method: Annotated[str | None, _option("See srjt methods. [dim]default: sord[/]", TRAINING)] = None,
    noise_rate: Annotated[
        str | None,
        _option("For a method that needs it. [dim]default: auto[/]", TRAINING, metavar="RATE|auto"),
    ] = None,
    network: Annotated[
        str | None, _option("As for srjt train. [dim]default: resnet18; mlp for features[/]", TRAINING)
    ] = None,
    pretrained: Annotated[
        bool | None,
        _option(
            "Start from ImageNet weights. [dim]default: yes[/]", TRAINING, "--pretrained/--no-pretrained"
        ),
    ] = None,
    weights: Annotated[Path | None, _option("Local weights file instead.", TRAINING)] = None,
    image_size: Annotated[int | None, _option("Stored size. [dim]default: 256[/]", TRAINING)] = None,
    crop: Annotated[int | None, _option("Random crop from it. [dim]default: 224[/]", TRAINING)] = None,
    epochs: Annotated[int | None, _option("Of each training. [dim]default: 30[/]", TRAINING)] = None,
    batch_size: Annotated[int | None, _option("[dim]default: 64[/]", TRAINING)] = None,
    learning_rate: Annotated[
        float | None, _option("Of Adam. [dim]default: 1e-4; mlp 3e-4, linear 1e-3[/]", TRAINING)
    ] = None,
    seed: Annotated[int | None, _option("Of folds and networks. [dim]default: 0[/]", TRAINING)] = None,
    device: Annotated[
        str | None, _option("cpu, cuda, cuda:1. [dim]default: a GPU if there is one[/]", COMPUTING)
    ] = None,
    precision: Annotated[
        str | None, _option("fp32, tf32, bf16. [dim]default: bf16 on a GPU[/]", COMPUTING)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings, as for srjt train; options win over it.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. weight_decay=0."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but problems.")] = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.

    Trains on all folds of patients but one and predicts that one, for each fold.
    Writes audit.csv (every label, the most doubtful first), summary.json (rates by
    grade, patient and reader), audit.html (the report) and the files that srjt review
    reads. All samples are audited, on whatever side of a split they are, and no label
    is changed. Run the same command again to resume after an interruption.
    """
    from srjt.auditing.audit import DEFAULTS, with_noise_rate
    from srjt.auditing.audit import audit as run_audit
    from srjt.cli.train import check_early, layered, rate_or_auto, warnings_as_sentences
    from srjt.data import Problem, read, write_problems
    from srjt.reports.report import report as write_report
    from srjt.training.record.reporters import reporter_for

    settings = with_noise_rate(
        layered(
            config,
            set_ or [],
            defaults=DEFAULTS,
            given={
                "method": method,
                "noise_rate": rate_or_auto(noise_rate),
                "network": network,
                "pretrained": pretrained,
                "weights": None if weights is None else str(weights),
                "image_size": image_size,
                "crop": crop,
                "epochs": epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "seed": seed,
                "precision": precision,
            },
        )
    )
    check_early(settings)
    reading = read(source, **how)
    if reader_column is None and "reader" in reading.manifest.table:
        reader_column = "reader"
    manifest = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    columns = {name.removesuffix("_column"): said for name, said in how.items() if name in ROLES}
    table, label_column = _table(reading, how["labels"] or source, columns)
    root = manifest.root.absolute() if reading.kind == "table" else None
    read_options = _as_options({**how, "images": root, "labels": None})
    with warnings_as_sentences(), reporter_for(quiet=quiet) as reporter:
        done = run_audit(
            manifest,
            out=out,
            folds=folds,
            reader=reader_column,
            config=settings,
            device=device,
            reporter=reporter,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            source=str(source),
            table=table,
            label_column=label_column,
            read_options=read_options,
        )
        write_report(out, out=out / "audit.html")
    if done.fitted.skipped:
        with options.writing(skipped):
            unreadable = [Problem("unreadable-image", who, why) for who, why in done.fitted.skipped]
            write_problems([*reading.problems, *unreadable], skipped)
    if not quiet:
        _print_summary(done, out)


def _as_options(how: dict[str, Any]) -> list[str]:
    """The options that were given, as words of a command line."""
    given = {name: ",".join(v) if isinstance(v, list) else str(v) for name, v in how.items() if v is not None}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]


def _table(reading: Reading, source: Path, columns: dict[str, str | None]) -> tuple[Path | None, str]:
    """The file that holds the labels, if there is one, and its column of grades."""
    from srjt.data.sources.columns import choose_columns
    from srjt.data.sources.dr import find_labels
    from srjt.data.sources.table import TABLE_SUFFIXES, load

    if reading.kind == "dr" and (labels := find_labels(source)) is not None:
        return labels, "level"
    file = source / "labels.csv" if source.is_dir() else source
    if reading.kind not in ("table", "features") or file.suffix.lower() not in TABLE_SUFFIXES:
        return None, columns["grade"] or "grade"
    found = list(load(file).frame.columns)
    chosen, _ = choose_columns(found, columns, source=file.name, required=("grade",))
    return file, chosen["grade"]


def _print_summary(done: Audit, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console, estimate, summary = Console(), done.estimate, done.summary
    names = done.fitted.manifest.grades

    def echo(text: str, style: str = "") -> None:
        console.print(text, highlight=False, markup=False, style=style)

    low, high = estimate.rate_interval
    if estimate.identifiable:
        echo(
            f"About {estimate.rate:.0%} of {len(done.scores):,} labels are wrong (95 % interval: {low:.0%} to "
            f"{high:.0%}).",
            "bold",
        )
        if estimate.caution:
            echo(f"Caution: {estimate.caution}")
    else:
        echo(
            f"The data do not determine how many of {len(done.scores):,} labels are wrong: "
            f"{estimate.reason.rstrip('.')} (a guess: {estimate.rate:.0%}).",
            "yellow",
        )
    echo(f"Labels for which another grade is more probable: {summary['another_likelier']:,}.")
    matrix = Table(
        "true ╲ label",
        *names,
        title=f"Estimated transition matrix ({estimate.form} form)",
        title_justify="left",
    )
    for name, row in zip(names, estimate.transition, strict=True):
        matrix.add_row(name, *(f"{p:.2f}" for p in row))
    console.print(matrix)
    for column in ("grade", "reader", "patient"):
        if rates := summary[f"{column}s"]:
            shown = [
                f"{row[column].strip() or '(not given)'}: {row['rate']:.0%} of {row['samples']:,}"
                for row in rates[: SHOWN[column]]
            ]
            more = f"; and {len(rates) - len(shown):,} more" if len(rates) > len(shown) else ""
            echo(f"Expected errors by {column}: {'; '.join(shown)}{more}")
    if "average_precision" in summary.get("known", {}):
        known = summary["known"]
        echo(
            f"Known wrong labels: {known['wrong']:,}; of the {known['wrong']:,} most doubtful labels, "
            f"{known['precision_at_wrong']:.0%} are wrong (average precision {known['average_precision']:.2f})."
        )
    typer.echo(f"Report: {out / 'audit.html'}")
    typer.echo(f"Next: srjt review {shlex.quote(str(out))}")
