"""``srjt review``: serve the review page, of doubtful labels, a random sample or a worklist."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.cli.review.folder import Folder, open_folder
from srjt.errors import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from srjt.auditing.folder import AuditFolder
    from srjt.data.readers_folder import ReadersFolder
    from srjt.review.server import Server


def run(
    folder: Folder,
    reviewer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Your name in the log. [dim]default: the login name[/]", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of labels to review, the most doubtful first. [dim]default: as many as are expected to "
            "be wrong[/]",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Verify N labels drawn at random, without seeing them: srjt audit then knows the noise rate.",
            show_default=False,
        ),
    ] = None,
    worklist: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the images that a worklist of srjt readers has for you, without seeing other grades.",
            show_default=False,
        ),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="Hide the decisions of other reviewers, for an independent reading."),
    ] = False,
    grade_names: options.GradeNames = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port to listen on. [dim]default: a free one[/]", show_default=False
        ),
    ] = 0,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let other machines reach the page (with --host).")
    ] = False,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Serve the review page until Ctrl-C. The page shows a decision as done when it is on disk.

    The address contains a secret token; only people who have it can see the images and decide. Run the same
    command again to resume.
    """
    from srjt.auditing.folder import read_audit
    from srjt.errors import SrjtError
    from srjt.review.app import ReviewSession
    from srjt.review.blind import BlindSession
    from srjt.review.decisions import Decisions
    from srjt.review.progress import review_progress
    from srjt.review.sample import draw_sample
    from srjt.review.server import open_browser, serve

    name = _login() if reviewer is None else reviewer.strip()
    if not name or not name.isprintable():
        raise SrjtError(
            "The reviewer's name is empty or contains characters that cannot be printed: use --reviewer NAME."
        )
    if worklist is not None:
        if sample is not None or limit is not None or alone:
            raise SrjtError("--worklist says what to read: leave out --sample, --limit and --alone.")
        source = open_folder(folder)
        names = _names(grade_names, source)
        _read_worklist(
            source, worklist, name, names=names, host=host, port=port, allow_remote=allow_remote, open_=open_
        )
        return
    audit = read_audit(folder)
    audit = replace(audit, grade_names=_names(grade_names, audit))
    if sample is not None and (limit is not None or alone):
        raise SrjtError("--sample shows a random sample without its labels: leave out --limit and --alone.")
    if sample is not None and not any(audit.images):
        raise SrjtError(
            "This audit has no images to show: verify the grades elsewhere, and add them as a column verified_grade."
        )
    queue = audit.expected_wrong if limit is None else min(limit, len(audit))
    decisions = Decisions(folder / "decisions.sqlite", only_reviewer=name if alone else None)
    first_revision = decisions.current.revision
    server = _listen(host, port, allow_remote=allow_remote)

    def announce() -> None:
        verb = "Review" if sample is None else f"Verify {min(sample, len(audit)):,} random labels"
        typer.echo(f"{verb} as {name}: {server.address(server.access.token)}  (Ctrl-C stops)")
        if open_:
            open_browser(server)

    try:
        if sample is not None:
            blind = BlindSession(
                audit=audit, decisions=decisions, reviewer=name, lines=draw_sample(audit, sample),
                grade_names=audit.grade_names,
            )  # fmt: skip
            serve(blind, server, started=announce)
            _print_verified(audit, decisions.verified())
            return
        session = ReviewSession(audit=audit, decisions=decisions, reviewer=name, queue=queue)
        serve(session, server, started=announce)
        decisions.refresh()
        own = decisions.current.by_reviewer(name)
        made = sum(entry.revision > first_revision for entry in own)
        progress = review_progress(audit, decisions.current, queue=queue)
        say(f"\n{progress}; {made:,} decided in this session.")
        typer.echo(f"Next: srjt review export {shlex.quote(str(folder))} --out labels_clean.csv")
    finally:
        decisions.close()


def _listen(host: str, port: int, *, allow_remote: bool) -> Server:
    from srjt.review.server import listen

    server = listen(host=host, port=port, allow_remote=allow_remote)
    if server.access.any_address:
        say(
            f"Other machines can reach this page on port {server.port}. Anyone with the address below can see all "
            "images and decide, and so can anyone who can read the network traffic: the connection is not "
            "encrypted. An SSH tunnel to 127.0.0.1 is safer.",
            fg=typer.colors.YELLOW,
            err=True,
        )
    return server


def _names(given: str | None, source: AuditFolder | ReadersFolder) -> Mapping[str, str]:
    """The grade names that were given, or those of the audit."""
    from srjt.auditing.folder import AuditFolder
    from srjt.data.grade_names import check_grade_names, parse_grade_names

    if given is not None:
        return check_grade_names(parse_grade_names(given), source.grades)
    return source.grade_names if isinstance(source, AuditFolder) else {}


def _read_worklist(
    source: AuditFolder | ReadersFolder,
    worklist: Path,
    name: str,
    *,
    names: Mapping[str, str],
    host: str,
    port: int,
    allow_remote: bool,
    open_: bool,
) -> None:
    """Serve the images of a worklist that are this reviewer's, blind."""
    from srjt.review.blind import BlindSession
    from srjt.review.decisions import Decisions
    from srjt.review.server import open_browser, serve
    from srjt.review.worklist import worklist_lines

    folder = source.folder
    lines = worklist_lines(worklist, source, reviewer=name)
    decisions = Decisions(folder / "decisions.sqlite")
    server = _listen(host, port, allow_remote=allow_remote)

    def announce() -> None:
        say(
            f"Read {count_of(len(lines), 'image')} as {name}: {server.address(server.access.token)}  (Ctrl-C stops)"
        )
        if open_:
            open_browser(server)

    session = BlindSession(
        audit=source, decisions=decisions, reviewer=name, lines=lines, purpose="read", grade_names=names
    )
    try:
        serve(session, server, started=announce)
        done = sum(answer is not None for answer in session.answers())
        say(f"\n{done:,} of {count_of(len(lines), 'image')} {'is' if len(lines) == 1 else 'are'} read.")
        typer.echo(f"Next: srjt review export {shlex.quote(str(folder))} --readings --out more_readings.csv")
    finally:
        decisions.close()


def _print_verified(audit: AuditFolder, verified: dict[str, str | None]) -> None:
    from srjt.auditing.scores import verified_alone, verified_summary

    known = [
        (audit.grades[audit.labels[audit.line_of[sample]]], grade)
        for sample, grade in verified.items()
        if grade in audit.grades and sample in audit.line_of
    ]
    if not known:
        say("\nNothing is verified yet.")
        return
    wrong = sum(label != grade for label, grade in known)
    say(f"\n{verified_alone(verified_summary(labels=len(known), wrong=wrong))}")
    say(
        "Next: run the same srjt audit command again: it combines the verified grades with the networks' "
        "probabilities, and repeats no training."
    )


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without accounts
        return "reviewer"
