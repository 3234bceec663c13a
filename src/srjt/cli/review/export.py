"""``srjt review export``: write the corrected table, the verified grades or the readings of a worklist."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli import options
from srjt.cli.machine_options import machine_options
from srjt.cli.messages import say
from srjt.cli.review.folder import Folder, open_folder
from srjt.errors import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from srjt.auditing.folder import AuditFolder
    from srjt.review.decisions import LogEntry


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("labels_clean.csv"),
    force: options.Force = False,
    conflicts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV file to write: the samples that reviewers graded differently."
        ),
    ] = None,
    verified: Annotated[
        bool,
        typer.Option(
            "--verified",
            help="Write the audited table with a column verified_grade (from --sample) instead; no label changes.",
        ),
    ] = False,
    readings: Annotated[
        bool,
        typer.Option(
            "--readings",
            help="Write the readings of a worklist instead, after those that srjt readers has read: a table for it.",
        ),
    ] = False,
) -> None:
    """Write the corrected table, with who decided what and when. The original table is not changed.

    If several reviewers graded a sample, the last decision counts; how well they agree is printed.
    """
    from srjt.auditing.folder import read_audit
    from srjt.errors import SrjtError
    from srjt.review.decisions import Decisions, log_exists, replay
    from srjt.review.export import corrected_table, write_table

    path = folder / "decisions.sqlite"
    if readings:
        if verified or conflicts is not None:
            raise SrjtError("--readings writes a table of its own: leave out --verified and --conflicts.")
        _export_readings(folder, out, force)
        return
    audit = read_audit(folder)
    if not log_exists(path):
        raise SrjtError(f"There are no decisions in {folder} yet: start with srjt review {folder}.")
    if verified:
        _export_verified(audit, out, force)
        return
    decisions = Decisions(path)
    log = decisions.log()
    decisions.close()
    corrected = corrected_table(audit, replay(log))
    write_table(corrected.table, out, original=audit.table, overwrite=force)
    for note in corrected.notes:
        say(note, err=True)
    say(
        f"{out}: {count_of(len(corrected.table), 'row')}, {corrected.reviewed:,} reviewed, {corrected.changed:,} "
        f"changed, {corrected.skipped:,} skipped."
    )
    _print_agreement(audit, log, conflicts, force)
    _print_next(audit, out, corrected.table)


def _print_next(audit: AuditFolder, out: Path, table: pd.DataFrame) -> None:
    from srjt.review.export import training_command

    words = [
        training_command(audit, out, columns=map(str, table.columns)),
        *machine_options(features=audit.features),
    ]
    typer.echo(f"Next: {' '.join(words)}")


def _export_verified(audit: AuditFolder, out: Path, force: bool) -> None:
    from srjt.errors import SrjtError
    from srjt.review.export import verified_table, write_table
    from srjt.review.sample import read_verified_grades

    grades = read_verified_grades(audit.folder)
    if not grades:
        raise SrjtError(f"Nothing is verified in {audit.folder} yet: start with srjt review --sample 100.")
    table, notes = verified_table(audit, grades)
    write_table(table, out, original=audit.table, overwrite=force)
    for note in notes:
        say(note, err=True)
    say(f"{out}: {count_of(len(table), 'row')}, {int((table['verified_grade'] != '').sum()):,} verified.")
    _print_next(audit, out, table)


def _export_readings(folder: Path, out: Path, force: bool) -> None:
    from srjt.errors import SrjtError
    from srjt.review.decisions import Decisions, log_exists
    from srjt.review.export import write_table
    from srjt.review.worklist import new_readings

    source, path, answers = open_folder(folder), folder / "decisions.sqlite", []
    if log_exists(path):
        decisions = Decisions(path)
        answers = decisions.readings()
        decisions.close()
    if not answers:
        raise SrjtError(
            f"Nothing of a worklist is read in {folder} yet: start with srjt review --worklist FILE."
        )
    table, notes = new_readings(source, answers)
    write_table(table, out, original=None, overwrite=force)
    for note in notes:
        say(note, err=True)
    graded = sum(answer.grade is not None for answer in answers)
    say(f"{out}: {count_of(len(table), 'reading')}, {graded:,} of them new.")
    typer.echo(f"Next: srjt readers {shlex.quote(str(out))}")


def _print_agreement(audit: AuditFolder, log: Sequence[LogEntry], path: Path | None, force: bool) -> None:
    from srjt.review.export import (
        agreements,
        disagreement_table,
        disagreements,
        unknown_grades,
        write_table,
    )

    for pair in agreements(audit, log):
        one, other = pair.reviewers
        say(
            f"{one} and {other} both graded {pair.both:,}: they agree on {100 * pair.share:.1f} %, "
            f"quadratically weighted κ {pair.kappa:.2f}."
        )
    if unknown := unknown_grades(audit, log):
        first = unknown[0]
        say(
            f"Decisions for grades that this audit does not have: {len(unknown):,}, such as {first.to_grade!r} by "
            f"{first.reviewer} for {first.id}. They stay in the log, but do not count here.",
            err=True,
        )
    differing = disagreements(audit, log)
    if differing:
        say(f"Graded differently, the last decision counts ({len(differing):,}):")
    for entries in differing[:10]:
        say(f"  {entries[0].id}: " + ", then ".join(f"{e.reviewer} {e.to_grade}" for e in entries))
    if len(differing) > 10:
        say(f"  … and {len(differing) - 10:,} more" + ("" if path else "; --conflicts FILE lists them all"))
    if path is not None:
        write_table(disagreement_table(differing), path, original=audit.table, overwrite=force)
        say(f"{path}: {count_of(len(differing), 'sample')} graded differently.")
