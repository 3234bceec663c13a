"""``srjt audit``: estimate how many labels are wrong, and rank them by how likely each one is wrong."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import OptionsReporter, say
from srjt.errors import SrjtError, count_of, printable

if TYPE_CHECKING:
    from srjt.auditing.audit import Audit
    from srjt.data import Reading
    from srjt.training.parallel_folds import Jobs

ROLES = ("image_column", "grade_column", "patient_column", "true_grade_column", "verified_grade_column")
SHOWN = {"grade": 20, "reader": 10, "patient": 5}  # rows of each on the screen


@options.reads_a_source(without=("split_column", "reader_column"))
@options.takes_settings(
    only=(
        "method", "noise_rate", "network", "pretrained", "weights", "image_size", "crop", "epochs", "batch_size",
        "learning_rate", "seed", "precision",
    ),
    panel="Training",
    shown={"method": "sord", "noise_rate": "auto, for a method that needs it", "epochs": "30"},
)  # fmt: skip
def audit(
    *,
    source: options.SourceArgument,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the audit; finished trainings are not repeated.")
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
    settings: dict[str, Any],
    import_: options.Import = None,
    group_near_duplicates: options.GroupNearDuplicates = False,
    jobs: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Trainings at the same time. auto: one per GPU or CPU core, if memory allows and they are long.",
            rich_help_panel=options.COMPUTING,
        ),
    ] = "auto",
    device: options.Device = None,
    config: options.Config = None,
    set_: options.Set = None,
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    how: dict[str, Any],
) -> None:
    """Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.

    Trains on all folds of patients but one and predicts that one, for each fold.
    Writes audit.csv (every label, the most doubtful first), summary.json (rates
    by grade, patient and reader), audit.html (the report) and the files that
    srjt review reads. All samples are audited, on whatever side of a split they
    are, and no label is changed. Run the same command again to resume after an
    interruption, or to use the grades that srjt review --sample has verified.
    """
    from srjt.auditing.audit import DEFAULTS, with_noise_rate
    from srjt.auditing.audit import audit as run_audit
    from srjt.cli.samples import grouped, list_unreadable, usable
    from srjt.cli.settings import check_settings, layered_settings
    from srjt.data import read
    from srjt.data.grade_names import parse_grade_names
    from srjt.reports.report import report as write_report
    from srjt.review.sample import read_verified_grades, with_verified_grades
    from srjt.training.record.reporters import reporter_for

    run_config = with_noise_rate(
        layered_settings(config, set_, defaults=DEFAULTS, given={**settings, "imports": import_})
    )
    check_settings(run_config)
    if how["several_readings"] == "consensus":
        how, reader_column = {**how, "reader_column": reader_column}, None
    reading = read(source, **how, progress=not quiet)
    if reader_column is None and "reader" in reading.manifest.table:
        reader_column = "reader"
    manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    manifest = with_verified_grades(manifest, read_verified_grades(out))
    if group_near_duplicates:  # identical images are grouped when the image store is opened
        manifest = grouped(manifest, near=True)
    columns = {name.removesuffix("_column"): column for name, column in how.items() if name in ROLES}
    table, label_column = _table(
        reading,
        how["labels"] or source,
        columns,
        several_readings=how["several_readings"] == "consensus",
    )
    root = manifest.root.absolute() if reading.kind == "table" else None
    read_options = options.as_words({**how, "images": root, "labels": None})
    with reporter_for(quiet=quiet) as reporter:
        done = run_audit(
            manifest,
            out=out,
            folds=folds,
            reader=reader_column,
            readings=reading.readings,
            config=run_config,
            device=device,
            reporter=OptionsReporter(reporter),
            jobs=_jobs(jobs),
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            source=str(source),
            table=table,
            label_column=label_column,
            read_options=read_options,
            grade_names=None if grade_names is None else parse_grade_names(grade_names),
        )
        write_report(out, out=out / "audit.html")
    list_unreadable(done.fitted.skipped, skipped, problems=reading.problems)
    if not quiet:
        _print_summary(done, out, folds=folds, epochs=run_config.epochs)


def _jobs(text: str) -> Jobs:
    if text == "auto":
        return "auto"
    if not text.isdigit():
        raise SrjtError(f"--jobs takes a whole number or auto; got {text!r}.")
    return int(text)


def _table(
    reading: Reading, source: Path, columns: dict[str, str | None], *, several_readings: bool
) -> tuple[Path | None, str]:
    """The file that holds the labels, if there is one, and its column of grades."""
    from srjt.data.sources.columns import choose_columns
    from srjt.data.sources.dr import find_labels
    from srjt.data.sources.text_table import TABLE_SUFFIXES, load

    if several_readings:  # no row of the table is the consensus: the export writes a table of its own
        return None, "grade"
    if reading.kind == "dr" and (labels := find_labels(source)) is not None:
        return labels, "level"
    file = source / "labels.csv" if source.is_dir() else source
    if reading.kind not in ("table", "features") or file.suffix.lower() not in TABLE_SUFFIXES:
        return None, columns["grade"] or "grade"
    found = list(load(file).frame.columns)
    chosen, _ = choose_columns(found, columns, source=file.name, required=("grade",))
    return file, chosen["grade"]


def _print_summary(done: Audit, out: Path, *, folds: int, epochs: int) -> None:
    from rich.table import Table

    from srjt.auditing.caveat import (
        MAY_HELP,
        judges_labels,
        networks_sentence,
        suggestions_sentence,
        undetermined,
    )
    from srjt.auditing.folder import read_audit
    from srjt.auditing.headline import estimate_start, estimated_from, label_noun, readers_sentence
    from srjt.auditing.scores import verification_plan, verified_alone
    from srjt.console import Console

    console, estimate, summary = Console(markup=False), done.estimate, done.summary
    names, has_images = done.fitted.manifest.grades, any(read_audit(out).images)

    judged = judges_labels(summary)
    if summary["caveat"]:
        say(summary["caveat"], fg="yellow", bold=True)
    say(networks_sentence(summary))
    low, high = estimate.rate_interval
    if several := readers_sentence(summary):
        say(several, bold=True)
    labels = f"{len(done.scores):,} {label_noun(summary)}s"
    if estimate.identifiable:
        sentence = (
            f"About {estimate.rate:.0%} of {labels} are wrong (95 % interval: {low:.0%} to {high:.0%})."
        )
        say(estimate_start(summary, sentence), bold=not several)
        if verified := summary.get("verified"):
            say(verified_alone(verified))
        if estimate.assumption:
            say(estimate.assumption)
    else:
        say(estimate_start(summary, undetermined(summary, labels)), fg="yellow")
        say(estimate.assumption if judged else MAY_HELP)
    say(estimated_from(samples=len(done.scores), folds=folds, epochs=epochs, readers=bool(several)))
    if plan := verification_plan(summary):
        say(plan)
        size = estimate.verified + summary["verify_more"]
        if has_images:
            typer.echo(f"To verify them: srjt review {shlex.quote(str(out))} --sample {size}")
        else:
            say("Give their true grades in a column verified_grade, and run the same command again.")
    if judged:
        which = f"{label_noun(summary).capitalize()}s"
        say(f"{which} for which another grade is more probable: {summary['another_likelier']:,}.")
        if suggestions := suggestions_sentence(summary, label_noun(summary)):
            say(suggestions)
    if "twins" in summary:
        twins = summary["twins"]
        say(
            f"Identical images with different labels: {count_of(twins['images'], 'image')}, "
            f"{count_of(twins['labels'], 'label')}. They head the list; at most one label of each image is right."
        )
    if judged or estimate.identifiable:
        title = f"Estimated transition matrix (mean over the forms of noise; likeliest: {estimate.form})"
        matrix = Table("true ╲ label", *map(printable, names), title=title, title_justify="left")
        for name, row in zip(names, estimate.transition, strict=True):
            matrix.add_row(printable(name), *(f"{p:.2f}" for p in row))
        console.print(matrix)
    for column in ("grade", "reader", "patient"):
        if judged and (rates := summary[f"{column}s"]):
            shown = [
                f"{row[column].strip() or '(not given)'}: {row['rate']:.0%} of {row['samples']:,}"
                for row in rates[: SHOWN[column]]
            ]
            more = f"; and {len(rates) - len(shown):,} more" if len(rates) > len(shown) else ""
            what = " (of their readings)" if column == "reader" and done.readings is not None else ""
            say(f"Expected errors by {column}{what}: {'; '.join(shown)}{more}")
    if done.readings is not None:
        doubtful = int((done.readings["suggested"] != done.readings["grade"]).sum())
        say(
            f"Readings for which another grade is more probable: {doubtful:,} of {len(done.readings):,} "
            f"({out / 'readings.csv'})."
        )
    if "average_precision" in summary.get("known", {}):
        known = summary["known"]
        say(
            f"Known wrong labels: {known['wrong']:,}; of the {known['wrong']:,} most doubtful labels, "
            f"{known['precision_at_wrong']:.0%} are wrong (average precision {known['average_precision']:.0%})."
        )
    typer.echo(f"Report: {out / 'audit.html'}")
    if has_images:
        typer.echo(f"Next: srjt review {shlex.quote(str(out))}")
    else:
        say(
            f"Next: look up the first rows of {out / 'audit.csv'}, the most doubtful labels, and correct the wrong "
            "ones in your table. srjt review shows images, and these features name none."
        )
