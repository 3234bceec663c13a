"""``srjt review``: review doubtful labels in the browser, and export the corrected table."""

from __future__ import annotations

import getpass
import shlex
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import App, RunByDefault, options
from srjt.cli.options import machine_options, option
from srjt.cli.output import say
from srjt.errors import SrjtError, count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from srjt.auditing.folder import AuditFolder
    from srjt.auditing.review_app import BlindSession, ReviewSession
    from srjt.auditing.review_log import Answer, LogEntry

LOG = "decisions.sqlite"
SHOWN = 10  # samples that reviewers graded differently
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="AUDIT", help="Folder written by srjt audit; with --worklist also by srjt readers."
    ),
]


def open_folder(folder: Path) -> Any:
    """The folder of srjt readers, or of an audit."""
    from srjt.auditing.folder import read_audit
    from srjt.data.sources.readers_folder import read_readers_folder

    return read_readers_folder(folder) if (folder / "readers.json").exists() else read_audit(folder)


# ``srjt review``: serve the review page, of doubtful labels, a random sample or a worklist.


def run(
    folder: Folder,
    reviewer: str | None = option(None, "Your name in the log. [default: the login name]", metavar="NAME"),
    limit: int | None = option(
        None,
        "Number of labels to review, the most doubtful first. [default: as many as are expected to be wrong]",
        metavar="N", min=1,
    ),
    sample: int | None = option(
        None,
        "Verify N labels drawn at random, without seeing them: srjt audit then knows the noise rate.",
        metavar="N", min=1,
    ),
    worklist: Path | None = option(
        None,
        "Read the images that a worklist of srjt readers has for you, without seeing other grades.",
        metavar="FILE",
    ),
    alone: bool = option(
        False, "Hide the decisions of other reviewers, for an independent reading.", "--alone"
    ),
    grade_names: options.GradeNames = None,
    host: str = option("127.0.0.1", "Address to listen on."),
    port: int = option(0, "Port to listen on. [default: a free one]", min=0, max=65535, show_default=False),
    allow_remote: bool = option(False, "Let other machines reach the page (with --host).", "--allow-remote"),
    open_: bool = option(True, "Open the page in the browser.", "--open/--no-open"),
) -> None:  # fmt: skip
    """Serve the review page until Ctrl-C. The page shows a decision as done when it is on disk.

    The address contains a secret token; only people who have it can see the images and decide. Run the same
    command again to resume.
    """
    from srjt.auditing.folder import read_audit
    from srjt.auditing.review_app import BlindSession, ReviewSession, listen
    from srjt.auditing.review_log import Decisions, draw_sample, review_progress, worklist_lines

    name = _login() if reviewer is None else reviewer.strip()
    if not name or not name.isprintable():
        raise SrjtError(
            "The reviewer's name is empty or contains characters that cannot be printed: use --reviewer NAME."
        )
    if worklist is not None and (sample is not None or limit is not None or alone):
        raise SrjtError("--worklist says what to read: leave out --sample, --limit and --alone.")
    if sample is not None and (limit is not None or alone):
        raise SrjtError("--sample shows a random sample without its labels: leave out --limit and --alone.")
    source = read_audit(folder) if worklist is None else open_folder(folder)
    source = replace(source, grades=source.grades.named(grade_names))
    if sample is not None and not any(source.images):
        raise SrjtError(
            "This audit has no images to show: verify the grades elsewhere, and add them as a column verified_grade."
        )
    lines = [] if worklist is None else worklist_lines(worklist, source, reviewer=name)
    where: dict[str, Any] = {"host": host, "port": port, "allow_remote": allow_remote}
    quoted = shlex.quote(str(folder))
    with closing(Decisions(folder / LOG, only_reviewer=name if alone else None)) as decisions:
        log: dict[str, Any] = {"audit": source, "decisions": decisions, "reviewer": name}
        if worklist is not None:
            reading = BlindSession(**log, lines=lines, purpose="read")
            _serve(reading, f"Read {count_of(len(lines), 'image')} as {name}", listen(**where), open_=open_)
            done = sum(answer is not None for answer in reading.answers())
            say(f"\nRead: {done:,} of {count_of(len(lines), 'image')}.")
            typer.echo(f"Next: srjt review export {quoted} --readings --out more_readings.csv")
        elif sample is not None:
            blind = BlindSession(**log, lines=draw_sample(source, sample))
            what = f"Verify {min(sample, len(source)):,} random labels as {name}"
            _serve(blind, what, listen(**where), open_=open_)
            _print_verified(source, decisions.answers("verify"))
        else:
            queue = source.expected_wrong if limit is None else min(limit, len(source))
            first_revision = decisions.current.revision
            session = ReviewSession(**log, queue=queue)
            _serve(session, f"Review as {name}", listen(**where), open_=open_)
            decisions.refresh()
            made = sum(entry.revision > first_revision for entry in decisions.current.by_reviewer(name))
            progress = review_progress(source, decisions.current, queue=queue)
            say(f"\n{progress}; {made:,} decided in this session.")
            typer.echo(f"Next: srjt review export {quoted} --out labels_clean.csv")


def _serve(session: BlindSession | ReviewSession, what: str, server: Any, *, open_: bool) -> None:
    """Serve the page until Ctrl-C."""
    from srjt.auditing.review_app import open_browser, serve

    if server.any_address:
        say(
            f"Other machines can reach this page on port {server.port}. Anyone with the address below can see all "
            "images and decide, and so can anyone who can read the network traffic: the connection is not "
            "encrypted. An SSH tunnel to 127.0.0.1 is safer.",
            fg=typer.colors.YELLOW,
            err=True,
        )

    def announce() -> None:
        typer.echo(f"{what}: {server.address(server.token)}  (Ctrl-C stops)")
        if open_:
            open_browser(server)

    serve(session, server, started=announce)


def _print_verified(audit: AuditFolder, answers: list[Answer]) -> None:
    from srjt.auditing.scores import verified_alone, verified_summary

    pairs = [
        (audit.grades[audit.labels[audit.line_of[sample]]], grade)
        for sample, grade in {answer.id: answer.grade for answer in answers}.items()
        if grade in audit.grades and sample in audit.line_of
    ]
    if not pairs:
        say("\nNothing is verified yet.")
        return
    wrong = sum(label != grade for label, grade in pairs)
    say(f"\n{verified_alone(verified_summary(labels=len(pairs), wrong=wrong))}")
    say(
        "Next: run the same srjt audit command again: it combines the verified grades with the networks' "
        "probabilities, and repeats no training."
    )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without accounts
        return "reviewer"


# ``srjt review export``: write the corrected table, the verified grades or the readings of a worklist.


def export(
    folder: Folder,
    out: Path = option(Path("labels_clean.csv"), "CSV file to write."),
    force: options.Force = False,
    conflicts: Path | None = option(
        None, "CSV file to write: the samples that reviewers graded differently.", metavar="FILE"
    ),
    verified: bool = option(
        False,
        "Write the audited table with a column verified_grade (from --sample) instead; no label changes.",
        "--verified",
    ),
    readings: bool = option(
        False,
        "Write the readings of a worklist instead, after those that srjt readers has read: a table for it.",
        "--readings",
    ),
) -> None:
    """Write the corrected table, with who decided what and when. The original table is not changed.

    If several reviewers graded a sample, the last decision counts; how well they agree is printed.
    """
    from srjt.auditing import review_export, review_log
    from srjt.auditing.folder import read_audit

    def write(table: pd.DataFrame, notes: Sequence[str], counted: str) -> None:
        review_export.write_table(table, out, original=None if readings else source.table, overwrite=force)
        for note in notes:
            say(note, err=True)
        say(f"{out}: {counted}.")

    if readings and (verified or conflicts is not None):
        raise SrjtError("--readings writes a table of its own: leave out --verified and --conflicts.")
    source = open_folder(folder) if readings else read_audit(folder)
    if readings:
        answers = review_log.read_answers(folder, "read")
        if not answers:
            raise SrjtError(
                f"Nothing of a worklist is read in {folder} yet: start with srjt review --worklist FILE."
            )
        table, notes = review_log.new_readings(source, answers)
        graded = sum(answer.grade is not None for answer in answers)
        write(table, notes, f"{count_of(len(table), 'reading')}, {graded:,} of them new")
        typer.echo(f"Next: srjt readers {shlex.quote(str(out))}")
        return
    if not review_log.log_exists(folder / LOG):
        raise SrjtError(f"There are no decisions in {folder} yet: start with srjt review {folder}.")
    if verified:
        grades = review_log.read_verified_grades(folder)
        if not grades:
            raise SrjtError(f"Nothing is verified in {folder} yet: start with srjt review --sample 100.")
        table, notes = review_export.verified_table(source, grades)
        count = int((table["verified_grade"] != "").sum())
        write(table, notes, f"{count_of(len(table), 'row')}, {count:,} verified")
    else:
        with closing(review_log.Decisions(folder / LOG)) as decisions:
            log = decisions.log()
        table, notes, reviewed = review_export.corrected_table(source, review_log.CurrentDecisions(log))
        write(table, notes, f"{count_of(len(table), 'row')}, {reviewed}")
        _print_agreement(source, log, conflicts, force)
    command = review_export.training_command(source, out, columns=map(str, table.columns))
    words = [command, *machine_options(len(table), features=source.facts["features"])]
    typer.echo(f"Next: {' '.join(words)}")


def _print_agreement(audit: AuditFolder, log: Sequence[LogEntry], path: Path | None, force: bool) -> None:
    from srjt.auditing.review_export import agreements, disagreements, reviewers_decisions, write_table
    from srjt.data.manifest import neutralise_formula

    decisions = reviewers_decisions(audit, log)
    for sentence in agreements(audit, decisions):
        say(sentence)
    unknown = decisions[~decisions["grade"].isin(audit.grades)]
    if len(unknown):
        first = unknown.iloc[0]
        say(
            f"Decisions for grades that this audit does not have: {len(unknown):,}, such as {first['grade']!r} by "
            f"{first['reviewer']} for {first['id']}. They stay in the log, but do not count here.",
            err=True,
        )
    differing = disagreements(decisions)
    samples = [(sample, rows["reviewer"] + " " + rows["grade"]) for sample, rows in differing.groupby("id")]
    if samples:
        say(f"Graded differently, the last decision counts ({len(samples):,}):")
    for sample, grades in samples[:SHOWN]:
        say(f"  {sample}: " + ", then ".join(grades))
    if len(samples) > SHOWN:
        say(f"  … and {len(samples) - SHOWN:,} more; --conflicts FILE lists them all")
    if path is not None:
        write_table(differing.map(neutralise_formula), path, original=audit.table, overwrite=force)
        say(f"{path}: {count_of(len(samples), 'sample')} graded differently.")


review_app = App(
    cls=RunByDefault,
    help="Review doubtful labels in the browser, and export the corrected table.\n\n"
    "Example: srjt review audit/, then srjt review export audit/.",
)
review_app.add(run, export)
