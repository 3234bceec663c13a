"""``srjt audit``: estimate how many labels are wrong, and rank them by how likely each one is
wrong.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import srjt
from srjt.cli import (
    OptionsReporter,
    options,
    print_line,
    say,
    show,
    typed_command,
)
from srjt.cli.options import Fields, option
from srjt.errors import SrjtError
from srjt.files import write_atomically
from srjt.inference.options import COMPUTING

if TYPE_CHECKING:
    from srjt.auditing.audit import LabelFile

SHOWN = (
    "method",
    "noise_rate",
    "network",
    "backbone",
    "pretrained",
    "weights",
    "image_size",
    "crop",
    "resize",
    "epochs",
    "batch_size",
    "learning_rate",
    "seed",
    "precision",
)
DEFAULT = {"method": "sord", "noise_rate": "auto, for a method that needs it", "epochs": "30"}


def audit(
    out: Path = option(
        ..., "Folder of the audit. Trainings that are finished are not repeated.", metavar="DIR"
    ),
    folds: int = option(
        5, "Number of folds. Each is predicted by a network that was trained on the others."
    ),
    *,
    settings: Annotated[
        dict[str, Any], options.settings_of_a_run(shown=SHOWN, panel="Training", defaults=DEFAULT)
    ],
    group_near_duplicates: options.NearDuplicates = False,
    jobs: str = option(
        "auto",
        "Number of trainings at the same time. auto: one per GPU or CPU core, if there is enough"
        " memory and the trainings are long.",
        metavar="N|auto",
        panel=COMPUTING,
    ),
    device: options.Device = None,
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    data: Annotated[options.Source, Fields(options.Source)],
) -> None:
    """Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.

    The patients are divided into folds, and each fold is predicted by networks that
    were trained on the others. The folder contains audit.csv (all labels, the most
    doubtful first), summary.json (rates by grade, patient and reader), audit.html
    (the report) and the files that srjt review reads. All samples are audited, also
    those of a test side, and no label is changed. Run the same command again to
    resume after an interruption, or to use the grades that srjt review --sample has
    verified.
    """
    from srjt.auditing.audit import DEFAULTS, audit, with_noise_rate
    from srjt.auditing.verification import with_verified_sample
    from srjt.reports.page import write_page
    from srjt.reports.pages.audit import audit_page, labels_to_verify_first
    from srjt.training.noise_rate import check_settings
    from srjt.training.reporters import reporter_for

    config = with_noise_rate(options.layered_settings(settings, defaults=DEFAULTS))
    check_settings(config)
    if not jobs.isdigit() and jobs != "auto":
        raise SrjtError(
            f"--jobs must be a whole number or auto; got {jobs!r}.",
            code="wrong_type",
            option="jobs",
        )
    consensus = data.several_readings == "consensus"
    reader_column = None
    if not consensus:  # the column says whose labels they are
        reader_column = data.reader_column
        data = replace(data, reader_column=None)
    reading = data.read(progress=not quiet)
    if not consensus and reader_column is None and "reader" in reading.table:
        reader_column = "reader"
    manifest = with_verified_sample(data.usable(reading), out)
    if group_near_duplicates:  # identical images are grouped when the image store is opened
        manifest = options.grouped(manifest, near=True)
    with reporter_for(quiet=quiet) as reporter:
        done = audit(
            manifest,
            out=out,
            folds=folds,
            reader=reader_column,
            readings=reading.report.readings,
            config=config,
            device=device,
            reporter=OptionsReporter(reporter),
            jobs="auto" if jobs == "auto" else int(jobs),
            on_bad_image=data.bad_images,
            labels=label_file(reading, data, command=typed_command("audit")),
            grade_names=grade_names,
        )
        page = audit_page(out)
        write_page(page, out / "audit.html", write=write_atomically)
    data.list_unreadable(done.fitted.skipped, reading.report.problems, tell=False)
    if quiet:
        return
    show(page)
    print_line(f"Report: {out / 'audit.html'}")
    if any(done.scores["image"]):
        command = f"srjt review {shlex.quote(str(out))}"
        if size := labels_to_verify_first(done.summary):
            command += f" --sample {size}"
        print_line(f"Next: {command}")
    else:
        rows = out / "audit.csv"
        say(f"Next: check the labels in the first rows of {rows}, and correct your table.")


def label_file(
    reading: srjt.data.Manifest, data: options.Source, *, command: str | None
) -> LabelFile:
    """What an audit should know of the file of labels, for ``srjt review``. command: that is
    running."""
    from srjt.auditing.audit import LabelFile

    table: Path | None = None
    column = "grade"
    # no row of a table is a consensus: the export writes a table of its own
    if data.several_readings != "consensus":
        table, column = _table(reading, data)
    root = None
    if reading.report.kind == "table":
        root = reading.root.absolute()
    words = options.as_words({**data.reading_options, "images": root, "labels": None})
    return LabelFile(
        source=str(data.source),
        table=table,
        column=column,
        read_options=tuple(words),
        command=command,
    )


def _table(reading: srjt.data.Manifest, data: options.Source) -> tuple[Path | None, str]:
    """The file that holds the labels, if there is one, and its column of grades."""
    from srjt.data.sources.folders import find_labels
    from srjt.data.sources.table import TABLE_SUFFIXES, choose_columns, load_table

    source = data.labels or data.source
    roles = data.roles
    if reading.report.kind == "dr" and (labels := find_labels(source)) is not None:
        return labels, "level"
    file = source / "labels.csv" if source.is_dir() else source
    if (
        reading.report.kind not in ("table", "features")
        or file.suffix.lower() not in TABLE_SUFFIXES
    ):
        return None, roles["grade"] or "grade"
    chosen, _ = choose_columns(load_table(file), roles, required=("grade",))
    return file, chosen["grade"]
