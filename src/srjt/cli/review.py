"""``srjt review``: the page in the browser on which doubtful labels are reviewed, and what is
exported from it and imported into it.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from srjt.cli import (
    SUMMARIES,
    App,
    RunByDefault,
    check_outputs,
    options,
    print_line,
    say,
    typed_command,
)
from srjt.cli.options import argument, option
from srjt.errors import SrjtError, count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from srjt.auditing.folder import AuditFolder
    from srjt.auditing.review_app import BlindSession, ReviewSession
    from srjt.auditing.review_log import Decisions
    from srjt.auditing.verification import Look, Plan

LOG = "decisions.sqlite"
A_FOLDER = "Folder that srjt audit wrote or, with --worklist, that srjt readers wrote."
Folder = Annotated[Path, typer.Argument(metavar="AUDIT", help=A_FOLDER)]


def open_folder(folder: Path, *, readers: bool) -> Any:
    """The folder of an audit, or also of srjt readers."""
    from srjt.auditing.folder import read_audit
    from srjt.data.sources.readers_folder import read_readers_folder

    if readers and (folder / "readers.json").exists():
        return read_readers_folder(folder)
    return read_audit(folder)


def run(
    folder: Folder,
    reviewer: str | None = option(
        None, "Your name in the log of decisions. [default: the login name]", metavar="NAME"
    ),
    limit: int | None = option(
        None,
        "Number of labels to review, the most doubtful first. [default: as many as are expected to"
        " be wrong]",
        metavar="N",
        min=1,
    ),
    sample: int | None = option(
        None,
        "Verify a random sample of N labels, without seeing them, so that srjt audit can estimate"
        " the noise rate. Doubtful labels are drawn more often.",
        metavar="N",
        min=1,
    ),
    within: str | None = option(
        None,
        "Verify labels until the interval of the noise rate has at most this half-width, such as"
        " 0.05 or 5%.",
        metavar="SHARE",
    ),
    at_random: bool = option(
        False,
        "With --sample or --within: draw all labels with the same probability. Calibration with"
        " verified grades needs this.",
    ),
    worklist: Path | None = option(
        None,
        "Read the images that a worklist of srjt readers assigns to you, without seeing the grades"
        " of others. [default: worklist.csv in a folder of srjt readers]",
    ),
    alone: bool = option(
        False, "Hide the decisions of other reviewers, to review independently of them."
    ),
    grade_names: options.GradeNames = None,
    host: str = option("127.0.0.1", "Address to listen on."),
    port: int = option(
        0, "Port to listen on. [default: a free one]", min=0, max=65535, show_default=False
    ),
    allow_remote: bool = option(False, "With --host: allow other machines to open the page."),
    open_: bool = option(True, "Open the page in the browser.", "--open/--no-open"),
) -> None:
    """Serve the review page until Ctrl-C is pressed. A decision that the page shows as done is
    saved.

    The address contains a secret token. Only people who have it can see the images
    and decide. Run the same command again to resume.
    """
    from srjt.auditing.blind_readings import hidden_answers, worklist_lines
    from srjt.auditing.review_log import Decisions

    name = _reviewer_name(reviewer)
    of_readers = (folder / "readers.json").exists() and not (folder / "audit.json").exists()
    if worklist is None and of_readers and (folder / "worklist.csv").exists():
        worklist = folder / "worklist.csv"
    half_width = _share_of(within)
    verifying = sample is not None or within is not None
    _check_kinds(
        sample,
        half_width,
        restricted=limit is not None or alone,
        at_random=at_random,
        worklist=worklist,
    )
    source = open_folder(folder, readers=worklist is not None)
    source = replace(source, grades=source.grades.named(grade_names))
    if verifying and not any(source.images):
        raise SrjtError(
            "This audit has no images to show. Verify the labels with another tool, and add the"
            " grades to the table as a column verified_grade.",
            code="unsupported",
            option="sample",
        )
    lines = []
    if worklist is not None:
        lines = worklist_lines(worklist, source, reviewer=name)
    where: dict[str, Any] = {"host": host, "port": port, "allow_remote": allow_remote}
    with closing(Decisions(folder / LOG, only_reviewer=name if alone else None)) as decisions:
        log: dict[str, Any] = {"audit": source, "decisions": decisions, "reviewer": name}
        if worklist is not None:
            hidden = hidden_answers(worklist, source, reviewer=name)
            _read_worklist(log, lines, hidden, folder=folder, where=where, open_=open_)
        elif verifying:
            _verify(log, sample, within=half_width, at_random=at_random, where=where, open_=open_)
        else:
            _review(log, limit, folder=folder, where=where, open_=open_)


def _check_kinds(
    sample: int | None,
    within: float | None,
    *,
    restricted: bool,
    at_random: bool,
    worklist: Path | None,
) -> None:
    """Refuse options of two kinds of review. restricted: by --limit or --alone."""
    verifying = sample is not None or within is not None
    if worklist is not None and (verifying or restricted):
        raise SrjtError(
            "--worklist cannot be combined with --sample, --within, --limit or --alone.",
            code="conflict",
            option="worklist",
        )
    if sample is not None and within is not None:
        raise SrjtError(
            "--within and --sample cannot be combined: give one of them.",
            code="conflict",
            option="within",
        )
    if at_random and not verifying:
        raise SrjtError(
            "--at-random needs --sample or --within, which say how many labels to verify.",
            code="missing_option",
            option="at_random",
        )
    if verifying and restricted:
        raise SrjtError(
            "--sample and --within cannot be combined with --limit or --alone: they choose the"
            " labels at random and hide them.",
            code="conflict",
            option="sample",
        )


def _read_worklist(
    log: dict[str, Any],
    lines: list[int],
    hidden: frozenset[tuple[str, str]],
    *,
    folder: Path,
    where: dict[str, Any],
    open_: bool,
) -> None:
    """Serve the images of a worklist, and tell how many were read."""
    from srjt.auditing.review_app import CANNOT_TELL, BlindSession, listen
    from srjt.data.sources.readers_folder import ReadersFolder

    session = BlindSession(**log, lines=lines, purpose="read", hidden=hidden)
    images = count_of(len(lines), "image")
    _serve(session, f"Read {images} as {log['reviewer']}", listen(**where), open_=open_)
    done = sum(answer is not None for answer in session.answers())
    unclear = sum(answer == CANNOT_TELL for answer in session.answers())
    graded = f"Read: {done - unclear:,} of {images} graded"
    say(f"\n{graded}, {unclear:,} cannot tell." if unclear else f"\n{graded}.")
    quoted = shlex.quote(str(folder))
    if done and isinstance(log["audit"], ReadersFolder):
        print_line(f"Next: srjt readers {quoted}")
    elif done:
        print_line(f"Next: srjt review export {quoted} --readings --out more_readings.csv")


def _review(
    log: dict[str, Any],
    limit: int | None,
    *,
    folder: Path,
    where: dict[str, Any],
    open_: bool,
) -> None:
    """Serve the most doubtful labels, and tell how many were decided."""
    from srjt.auditing.review_app import ReviewSession, listen
    from srjt.auditing.review_log import review_progress

    source = log["audit"]
    decisions = log["decisions"]
    name = log["reviewer"]
    queue = source.expected_wrong if limit is None else min(limit, len(source))
    if limit is None and source.facts.judged:
        about = "As many are expected to be wrong"
        if not source.determined:
            about = "How many are wrong is not known"
        say(
            f"The page begins with the {queue:,} most doubtful labels. {about}; --limit N begins"
            " with another number."
        )
    first_revision = decisions.current.revision
    _serve(ReviewSession(**log, queue=queue), f"Review as {name}", listen(**where), open_=open_)
    decisions.refresh()
    by_me = decisions.current.by_reviewer(name)
    made = sum(entry.revision > first_revision for entry in by_me)
    progress = review_progress(
        source, decisions.current, queue=queue, verified=decisions.verified()
    )
    say(f"\n{progress}; {made:,} decided in this session.")
    print_line(f"Next: srjt review export {shlex.quote(str(folder))} --out labels_clean.csv")


def _reviewer_name(given: str | None) -> str:
    name = "reviewer"
    if given is not None:
        name = given.strip()
    else:
        with suppress(OSError, KeyError):  # a container without accounts
            name = getpass.getuser()
    if not name or not name.isprintable():
        raise SrjtError(
            "The reviewer's name is empty or contains characters that cannot be printed. Give"
            " another name with --reviewer.",
            code="wrong_values",
            option="reviewer",
        )
    return name


def _verify(
    log: dict[str, Any],
    sample: int | None,
    *,
    within: float | None,
    at_random: bool,
    where: dict[str, Any],
    open_: bool,
) -> None:
    """Verify a sample of labels; of no fixed size if the interval of the noise rate decides."""
    from srjt.auditing.review_app import BlindSession, listen
    from srjt.auditing.verification import choose_plan

    source = log["audit"]
    decisions = log["decisions"]
    begun = bool(decisions.answers("verify"))
    plan = choose_plan(source, at_random=at_random, begun=begun)
    if within is None:
        assert sample is not None
        drawn: Drawn | None = _draw_labels(source, plan, sample)
    else:
        drawn = _draw_until_short(source, decisions, plan, within)
    if drawn is not None:
        session = BlindSession(**log, lines=drawn.lines, larger=drawn.larger)
        if drawn.needed:
            say(drawn.needed)
        title = _title(session, at_random=plan is None, until_short=within is not None)
        _serve(session, title, listen(**where), open_=open_)
    _tell_verified(source, decisions, plan, within, served=drawn is not None)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The labels to verify. needed: how many the rate needs; larger: the lines of a larger sample,
    if more are needed when all have an answer."""

    lines: list[int]
    needed: str
    larger: Callable[[], list[int]] | None = None


def _draw_labels(source: AuditFolder, plan: Plan | None, size: int) -> Drawn:
    """So many labels."""
    from srjt.auditing.verification import labels_needed_for_rate, labels_to_draw, sample_lines

    there = labels_to_draw(source, plan)
    if size > there:
        say(f"--sample is {size:,}, and only {count_of(there, 'label')} can be drawn: all of them.")
    return Drawn(lines=sample_lines(source, size, plan), needed=labels_needed_for_rate(source))


def _draw_until_short(
    source: AuditFolder, decisions: Decisions, plan: Plan | None, within: float
) -> Drawn | None:
    """The labels up to the next look at the interval; None if there is no further one."""
    from srjt.auditing.verification import labels_needed_for_looks, next_look, sample_lines

    def up_to_next_look() -> list[int]:
        look = next_look(source, decisions.answers("verify"), plan, within=within)
        return sample_lines(source, look.next_size, plan) if look.next_size else []

    look = next_look(source, decisions.answers("verify"), plan, within=within)
    if look.next_size is None:
        return None
    if look.share is not None:
        say(_looked(look, within))
    return Drawn(
        lines=up_to_next_look(),
        needed=labels_needed_for_looks(source, plan, look, within=within),
        larger=up_to_next_look,
    )


def _title(session: BlindSession, *, at_random: bool, until_short: bool) -> str:
    """What is done on the page."""
    labels = count_of(len(session.lines), "label")
    if not until_short and None not in session.answers():
        say(
            f"You have answered all {labels} already. To verify more, give --sample a larger"
            " number. On the page you can change your answers."
        )
        return f"Answers of {session.reviewer}"
    drawn = "at random" if at_random else "by doubt"
    more = ", then more if needed" if until_short else ""
    return f"Verify {labels}, drawn {drawn}{more}, as {session.reviewer}"


def _tell_verified(
    source: AuditFolder,
    decisions: Decisions,
    plan: Plan | None,
    within: float | None,
    *,
    served: bool,
) -> None:
    """What the verified labels say, and what comes next. served: after a page was shown."""
    from srjt.auditing.verification import next_look, verified_so_far

    answers = decisions.answers("verify")
    verified = verified_so_far(source, answers, plan)
    unfinished = not verified
    if verified and within is not None:
        look = next_look(source, answers, plan, within=within)
        unfinished = look.next_size is not None
        verified = f"The interval is computed at {look.next_size} labels."
        if look.share is not None:
            verified = _looked(look, within)
    apart = "\n" if served else ""
    say(f"{apart}{verified or 'No label is verified yet.'}")
    differs = ""
    if plan is None:
        differs = AT_RANDOM
    elif within is not None:
        differs = AFTER_LOOKS
    again = typed_command("review") or ""
    if verified or again:
        _tell_next(source, again=again if unfinished else "", differs=differs)


# Why the audit prints another rate or interval than the review
AT_RANDOM = (
    "The audit also uses what its networks say of all labels, so its rate may differ a little. "
)
AFTER_LOOKS = "The audit uses all verified labels and is one look, so its interval may be shorter. "


def _tell_next(source: Any, *, again: str, differs: str) -> None:
    """The command that goes on with the verification, or the audit that uses it. differs: why it
    prints other numbers, "" if it prints the same."""
    if again:
        print_line(f"Next: {again}")
        return
    export = f"srjt review export {shlex.quote(str(source.folder))} --verified"
    say(f"To train with the verified grades: {export} --out labels_verified.csv")
    say(f"{differs}The audit does not repeat the trainings.")
    command = source.facts.command
    if command is None:
        say("Next: run srjt audit again, as before.")
        return
    directory = source.facts.directory
    if directory is not None and Path(directory) != Path.cwd():
        command = f"cd {shlex.quote(directory)} && {command}"
    print_line(f"Next: {command}")


def _share_of(text: str | None) -> float | None:
    """A share as people write it: 0.05, 5% or 5 %."""
    if text is None:
        return None
    number = text.strip().removesuffix("%")
    with suppress(ValueError):
        return float(number) / (100.0 if "%" in text else 1.0)
    raise SrjtError(
        f"--within takes a share, such as 0.05 or 5%; got {text!r}.",
        code="wrong_type",
        option="within",
    )


def _looked(look: Look, within: float) -> str:
    """What an interval that is valid at every look says."""
    assert look.share is not None
    low, high = look.share.interval
    known = (
        f"After {look.size:,} labels: {look.share.rate:.0%} of all labels are wrong (95 % interval:"
        f" {low:.0%} to {high:.0%}, valid however often you look), within"
        f" ±{(high - low) / 2.0:.1%}."
    )
    if look.reached:
        return f"{known} You asked for ±{100.0 * within:g}%, so no more labels are needed."
    if look.next_size is None:
        return f"{known} All planned looks are used. Verify more labels with --sample."
    return f"{known} The interval is computed again at {look.next_size:,} labels."


def _serve(session: BlindSession | ReviewSession, what: str, server: Any, *, open_: bool) -> None:
    """Serve the page until Ctrl-C."""
    from srjt.auditing.review_app import open_browser, serve

    if server.any_address:
        say(
            f"Other machines can reach this page on port {server.port}. Anyone with the address"
            " below can see all images and decide, and so can anyone who can read the network"
            " traffic: the connection is not encrypted. An SSH tunnel to 127.0.0.1 is safer.",
            fg=typer.colors.YELLOW,
            err=True,
        )

    def announce() -> None:
        print_line(f"{what}: {server.address(server.token)}  (Ctrl-C stops)")
        if open_:
            open_browser(server)

    serve(session, server, started=announce)


def export(
    folder: Folder,
    out: Path = option(Path("labels_clean.csv"), "CSV file to write."),
    force: options.Force = False,
    conflicts: Path | None = option(
        None, "CSV file to write the samples to that reviewers graded differently."
    ),
    verified: bool = option(
        False,
        "Write the audited table with a column verified_grade instead, which has the grades of"
        " --sample. No label is changed.",
    ),
    readings: bool = option(
        False,
        "Write a table of readings instead, for srjt readers: the earlier readings and those of"
        " the worklist.",
    ),
    to: Literal["label-studio"] | None = option(
        None,
        "Write the doubtful labels as JSON tasks for another labelling tool instead.",
        metavar="label-studio",
    ),
    limit: int | None = option(
        None,
        "With --to: number of labels, the most doubtful first. [default: as many as are expected to"
        " be wrong]",
        metavar="N",
        min=1,
    ),
    blind: bool = option(False, "With --to: do not show the label and the likelier grade."),
) -> None:
    """Write the corrected table, with the reviewer and the time of each decision.

    The grades that srjt review --sample has verified are corrected, too. The original
    table is not changed. If several reviewers decided about a sample, the last
    decision counts. The command prints how well they agree.
    """
    from srjt.auditing import corrected_table, review_log

    _check_exports(out, conflicts, to=to, readings=readings, verified=verified)
    if to is None and (limit is not None or blind):
        raise SrjtError(
            "--limit and --blind need --to, which writes tasks for another tool.",
            code="missing_option",
            option="limit",
        )
    if to is not None:
        _export_tasks(folder, out, limit=limit, blind=blind, force=force)
        return
    check_outputs(conflicts, force=force)  # before the table is written
    source = open_folder(folder, readers=readings)
    if readings:
        table, notes, counted = _new_readings(folder, source)
    elif not review_log.log_exists(folder / LOG):
        raise SrjtError(
            f"{folder} has no decisions yet. Start with: srjt review {folder}", code="not_finished"
        )
    elif verified:
        table, notes, counted = _verified_grades(folder, source)
    else:
        with closing(review_log.Decisions(folder / LOG)) as decisions:
            log = decisions.log()
            verified_here = decisions.verified()
        table, notes, reviewed = corrected_table.corrected_table(
            source, review_log.CurrentDecisions(log), verified_here
        )
        counted = f"{count_of(len(table), 'row')}, {reviewed}"
    corrected_table.write_table(
        table, out, original=None if readings else source.table, overwrite=force
    )
    for note in notes:
        say(note, err=True)
    say(f"{out}: {counted}.")
    if readings:
        another = shlex.quote(f"{folder}2")
        print_line(f"Next: srjt readers {shlex.quote(str(out))} --out {another}")
        return
    if not verified:
        decided = corrected_table.reviewers_decisions(source, log)
        for sentence in corrected_table.agreements(source, decided):
            say(sentence)
        _tell_disagreements(corrected_table.disagreements(decided), source, conflicts, force=force)
    command = corrected_table.training_command(source, out, columns=map(str, table.columns))
    words = [command, *options.machine_options(len(table), features=source.facts.features)]
    print_line(f"Next: {' '.join(words)}")


def _check_exports(
    out: Path, conflicts: Path | None, *, to: str | None, readings: bool, verified: bool
) -> None:
    """Refuse options of two kinds of files."""
    if to is not None and (readings or verified or conflicts is not None):
        raise SrjtError(
            "--to cannot be combined with --readings, --verified or --conflicts.",
            code="conflict",
            option="to",
        )
    if readings and (verified or conflicts is not None):
        raise SrjtError(
            "--readings cannot be combined with --verified or --conflicts.",
            code="conflict",
            option="readings",
        )
    if conflicts is not None and conflicts.absolute() == out.absolute():
        raise SrjtError(
            f"--conflicts and --out name the same file, {out}. Give two names.",
            code="conflict",
            option="conflicts",
        )


def _verified_grades(folder: Path, source: Any) -> tuple[pd.DataFrame, Sequence[str], str]:
    """The audited table with a column of verified grades, notes, and what was counted."""
    from srjt.auditing.blind_readings import read_verified_grades
    from srjt.auditing.corrected_table import verified_table
    from srjt.auditing.verification import read_probabilities

    grades = read_verified_grades(folder)
    if not grades:
        raise SrjtError(
            f"{folder} has no verified labels yet. Start with: srjt review {folder} --sample 100",
            code="not_finished",
        )
    table, notes = verified_table(source, grades, read_probabilities(folder))
    count = int((table["verified_grade"] != "").sum())
    return table, notes, f"{count_of(len(table), 'row')}, {count:,} verified"


def _new_readings(folder: Path, source: Any) -> tuple[pd.DataFrame, Sequence[str], str]:
    """The table of readings with those of the worklist, notes, and what was counted."""
    from srjt.auditing import blind_readings

    answers = blind_readings.read_answers(folder, "read")
    if not answers:
        raise SrjtError(
            f"{folder} has no new readings yet. Start with: srjt review {folder} --worklist FILE",
            code="not_finished",
        )
    table, notes = blind_readings.new_readings(source, answers)
    graded = sum(answer.grade is not None for answer in answers)
    return table, notes, f"{count_of(len(table), 'reading')}, {graded:,} of them new"


def _tell_disagreements(
    differing: pd.DataFrame, source: Any, conflicts: Path | None, *, force: bool
) -> None:
    """Say how many samples were graded differently, and write them if a file is named."""
    from srjt.auditing.corrected_table import write_table

    if conflicts is not None:
        write_table(differing, conflicts, original=source.table, overwrite=force)
    count = differing["id"].nunique()
    if count or conflicts is not None:
        say(
            f"Reviewers differ about {count_of(count, 'sample')}. The last decision counts;"
            f" {conflicts or '--conflicts FILE'} lists them."
        )


def _export_tasks(folder: Path, out: Path, *, limit: int | None, blind: bool, force: bool) -> None:
    """Write the tasks and, beside them, the interface that shows them."""
    from srjt.auditing.exchange import doubtful_labels
    from srjt.files import as_json, write_output
    from srjt.integrations import label_studio

    if out.suffix.lower() != ".json":
        raise SrjtError(
            f"Tasks are written as JSON, and {out} has another suffix. Use --out tasks.json.",
            code="wrong_file",
            option="out",
        )
    interface = out.with_suffix(".xml")
    check_outputs(out, interface, force=force)
    source = open_folder(folder, readers=False)
    table, images = doubtful_labels(source, limit=limit)
    # Label Studio shows files of a local storage that is below its document root, and not that root
    # itself
    table["image"] = [f"{images.name}/{name}" for name in table["image"]]
    made = label_studio.tasks(table, grades=list(source.grades), blind=blind)
    write_output(out, as_json(made))
    write_output(interface, label_studio.labelling_config(list(source.grades)).encode())
    say(
        f"{out} has {count_of(len(made), 'task')}, the most doubtful first, and {interface} the"
        " labelling interface."
    )
    say(
        "Start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and"
        f" LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={images.parent}. Create a project, paste the"
        f" interface into it, add {images} as its local storage without synchronising it, and"
        " import the tasks."
    )
    print_line(f"Next: srjt review import {shlex.quote(str(folder))} EXPORT.json")


def import_(
    folder: Folder,
    source: Path = argument(
        ..., "Table of grades, or JSON export of Label Studio.", metavar="FILE"
    ),
    image_column: str | None = option(
        None, "Column of images or ids. [default: found by its name]", metavar="NAME"
    ),
    grade_column: str | None = option(
        None, "Column of grades. [default: found by its name]", metavar="NAME"
    ),
    reader_column: str | None = option(
        None, "Column of readers. [default: found by its name]", metavar="NAME"
    ),
) -> None:
    """Import grades from another tool as decisions of a review.

    Each grade is a decision of its reader. Importing a file twice adds nothing.
    """
    from srjt.auditing.exchange import import_decisions
    from srjt.auditing.review_log import Decisions
    from srjt.data.sources.readings import read_readings

    audited = open_folder(folder, readers=False)
    columns = {
        "image_column": image_column,
        "grade_column": grade_column,
        "reader_column": reader_column,
    }
    table = read_readings(source, grades=list(audited.grades), **columns)
    for note in table.notes:
        say(note, err=True)
    for problem in table.problems[:PROBLEMS]:
        say(f"{problem.kind}: {problem.where}: {problem.detail}", err=True)
    with closing(Decisions(folder / LOG)) as decisions:
        say(f"{import_decisions(audited, decisions, table)}.")
    print_line(f"Next: srjt review export {shlex.quote(str(folder))} --out labels_clean.csv")


import_.__name__ = "import"
PROBLEMS = 10
EXAMPLE = "Example: srjt review audit/, then srjt review export audit/."
review_app = App(run, export, import_, cls=RunByDefault, help=f"{SUMMARIES['review']}\n\n{EXAMPLE}")
