"""``srjt audit`` and ``srjt readers``: which labels are probably wrong, and how well several readers agree."""

from __future__ import annotations

import shlex
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.options import Fields, argument, option
from srjt.cli.output import OptionsReporter, check_outputs, say, show
from srjt.cli.samples import NearDuplicates, Source, as_words, check_settings, grouped, layered_settings
from srjt.data.options import READING, ReadOptions
from srjt.errors import SrjtError, count_of
from srjt.files import as_csv, write_atomically, write_output
from srjt.inference.options import COMPUTING

if TYPE_CHECKING:
    from srjt.auditing.audit import Audit
    from srjt.data.sources.assemble import LoadedData

# ``srjt audit``: estimate how many labels are wrong, and rank them by how likely each one is wrong.

SHOWN = (
    "method", "noise_rate", "network", "pretrained", "weights", "image_size", "crop", "epochs", "batch_size",
    "learning_rate", "seed", "precision",
)  # fmt: skip
DEFAULT = {"method": "sord", "noise_rate": "auto, for a method that needs it", "epochs": "30"}


def audit(
    out: Path = option(..., "Folder of the audit; finished trainings are not repeated.", metavar="DIR"),
    folds: int = option(5, "Number of trainings; each predicts the patients that it was not trained on."),
    *,
    settings: Annotated[
        dict[str, Any], options.settings_of_a_run(shown=SHOWN, panel="Training", defaults=DEFAULT)
    ],
    group_near_duplicates: NearDuplicates = False,
    jobs: str = option(
        "auto",
        "Trainings at the same time. auto: one per GPU or CPU core, if memory allows and they are long.",
        metavar="N|auto",
        panel=COMPUTING,
    ),
    device: options.Device = None,
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    data: Annotated[Source, Fields(Source, without=("split_column",))],
) -> None:
    """Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.

    Trains on all folds of patients but one and predicts that one, for each fold.
    Writes audit.csv (every label, the most doubtful first), summary.json (rates
    by grade, patient and reader), audit.html (the report) and the files that
    srjt review reads. All samples are audited, on whatever side of a split they
    are, and no label is changed. Run the same command again to resume after an
    interruption, or to use the grades that srjt review --sample has verified.
    """
    from srjt.auditing.audit import DEFAULTS, audit, with_noise_rate
    from srjt.auditing.review_log import read_verified_grades, with_verified_grades
    from srjt.reports.page import write_page
    from srjt.reports.pages.audit import audit_page
    from srjt.training.reporters import reporter_for

    config = with_noise_rate(layered_settings(settings, defaults=DEFAULTS))
    check_settings(config)
    if not jobs.isdigit() and jobs != "auto":
        raise SrjtError(f"--jobs takes a whole number or auto; got {jobs!r}.")
    consensus, reader_column = data.several_readings == "consensus", None
    if not consensus:  # whose labels they are, then
        data, reader_column = replace(data, reader_column=None), data.reader_column
    reading = data.read(progress=not quiet)
    if not consensus and reader_column is None and "reader" in reading.manifest.table:
        reader_column = "reader"
    manifest = with_verified_grades(data.usable(reading), read_verified_grades(out))
    if group_near_duplicates:  # identical images are grouped when the image store is opened
        manifest = grouped(manifest, near=True)
    # no row of a table is a consensus: the export writes a table of its own
    table, label_column = (None, "grade") if consensus else _table(reading, data)
    root = manifest.root.absolute() if reading.kind == "table" else None
    with reporter_for(quiet=quiet) as reporter:
        done = audit(
            manifest,
            out=out,
            folds=folds,
            reader=reader_column,
            readings=reading.readings,
            config=config,
            device=device,
            reporter=OptionsReporter(reporter),
            jobs="auto" if jobs == "auto" else int(jobs),
            on_bad_image=data.on_bad_image,
            source=str(data.source),
            table=table,
            label_column=label_column,
            read_options=as_words({**data.how, "images": root, "labels": None}),
            grade_names=grade_names,
        )
        page = audit_page(out)
        write_page(page, out / "audit.html", write=write_atomically)
    data.list_unreadable(done.fitted.skipped, reading.problems)
    if not quiet:
        show(page)
        typer.echo(f"Report: {out / 'audit.html'}")
        _print_next(done, out)


def _print_next(done: Audit, out: Path) -> None:
    from srjt.auditing.folder import read_audit

    review, more = f"srjt review {shlex.quote(str(out))}", done.summary["verify_more"]
    if any(read_audit(out).images):
        typer.echo(f"Next: {review}")
        if more:
            typer.echo(f"To verify a random sample: {review} --sample {done.estimate.verified + more}")
        return
    say(f"Next: correct the wrong ones of the first rows of {out / 'audit.csv'} in your table.")
    if more:
        say(
            f"To know the rate: give the true grades of {more} rows drawn at random in a column verified_grade, and "
            "run the same command again."
        )


def _table(reading: LoadedData, data: Source) -> tuple[Path | None, str]:
    """The file that holds the labels, if there is one, and its column of grades."""
    from srjt.data.sources.folders import find_labels
    from srjt.data.sources.table import TABLE_SUFFIXES, choose_columns, load_table

    source, roles = data.labels or data.source, data.roles
    if reading.kind == "dr" and (labels := find_labels(source)) is not None:
        return labels, "level"
    file = source / "labels.csv" if source.is_dir() else source
    if reading.kind not in ("table", "features") or file.suffix.lower() not in TABLE_SUFFIXES:
        return None, roles["grade"] or "grade"
    chosen, _ = choose_columns(load_table(file), roles, required=("grade",))
    return file, chosen["grade"]


# ``srjt readers``: how well several readers agree, what the true grades probably are, and what to read next.

TABLES = (
    "image_column", "grade_column", "reader_column", "patient_column", "reference_column", "grades", "images",
)  # fmt: skip


def readers(
    table: Path = argument(
        ..., "A CSV, TSV, Excel or Parquet file: a row per reading, or a column per reader.", metavar="TABLE"
    ),
    out: Path | None = option(None, "Folder for the page, the consensus and every reading.", metavar="DIR"),
    next_: int | None = option(
        None, "List the N readings that would gain most: which image, by whom.", "--next", metavar="N", min=1
    ),
    per_reader: int | None = option(
        None, "With --next: at most N readings by one reader. [default: no limit]", metavar="N", min=1
    ),
    worklist: Path | None = option(
        None, "CSV file for that list. [default: worklist.csv in --out]", metavar="FILE"
    ),
    probabilities: Path | None = option(
        None,
        "Predictions of a network (srjt predict) that was not trained on these images: one more witness.",
        metavar="FILE",
    ),
    shared_errors: float = option(
        0.5,
        "How often something in an image misleads all its readers, relative to one reader's own errors. A reference "
        "of 20 images or more tells it instead.",
        metavar="X", min=0.0, max=1.0,
    ),
    date_column: str | None = option(
        None, "Column of the reading's date. [default: found by its name]", metavar="NAME", panel=READING
    ),
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    *,
    how: Annotated[dict[str, Any], Fields(ReadOptions, only=TABLES)],
) -> None:  # fmt: skip
    """Compare several readers, and combine their grades into one.

    The table has a row per reading (image, reader, grade) or a column per reader
    (grade_anna, grade_bo); readings may be missing. The consensus knows what each
    reader confuses, and how certain it is. With --out the folder holds the page
    (report.html), the consensus as a table for srjt train, and every reading with
    the probability that it is right.
    """
    from srjt.data.grades import Grades
    from srjt.data.sources import readers_folder as tables
    from srjt.data.sources.readings import NO_READER, combine, read_readings
    from srjt.readers.agreement import agreement
    from srjt.readers.consensus import next_readings
    from srjt.reports.page import write_page
    from srjt.reports.pages.readers import reader_facts, readers_page

    for flag, value in (("--worklist", worklist), ("--per-reader", per_reader)):
        if next_ is None and value is not None:
            raise SrjtError(f"{flag} belongs to --next: say how many readings, for example --next 50.")
    check_outputs(worklist, force=force)
    images = how.pop("images", None)
    loaded = read_readings(table, date_column=date_column, **how)
    readings = loaded.readings
    names = Grades(readings.grades, grade_names).names
    witness = None if probabilities is None else tables.read_probabilities(probabilities, readings)
    agreed = combine(readings, probabilities=witness, shared_errors=shared_errors)
    wanted = None
    if next_ is not None:
        best = next_readings(agreed, readings, count=next_, per_reader=per_reader)
        if not len(best) and readings.readers != [NO_READER]:
            best = next_readings(agreed, readings, count=next_, per_reader=per_reader, new_reader=True)
        wanted = tables.worklist_table(best, noun=loaded.columns.noun)
    listed = None if wanted is None or wanted.empty else wanted
    file = worklist or (None if out is None else out / "worklist.csv")
    facts = reader_facts(
        loaded,
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
        located = tables.located_images(loaded, images or table.parent)
        contents = {
            "consensus.csv": tables.consensus_table(loaded, agreed, images=located),
            "readings.csv": tables.readings_table(loaded, agreed),
            **({} if listed is None or worklist is not None else {"worklist.csv": listed}),
        }
        tables.write_readers_folder(out, facts=facts, tables=contents, overwrite=force)
    if listed is not None and worklist is not None:
        write_output(worklist, as_csv(listed))
    page = readers_page(facts, out)
    if out is not None:
        write_page(page, out / "report.html", write=write_atomically)
    show(page)
    if out is None:
        typer.echo("--out DIR writes the page, the consensus and every reading.")
    else:
        typer.echo(f"Page: {out / 'report.html'}; the consensus: {out / 'consensus.csv'}")
    if listed is not None and file is None:
        typer.echo("--worklist FILE, or --out DIR, writes the list.")
    elif listed is not None:
        typer.echo(f"Worklist: {file} ({count_of(len(listed), 'reading')})")
        if out is not None:
            typer.echo(f"Next: {facts['review_command']}")
