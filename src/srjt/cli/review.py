"""``srjt review``: settle suspicious labels on a page; ``srjt review export``: the corrected table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli import options
from srjt.cli.groups import RunByDefault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srjt.review.audit_folder import AuditFolder
    from srjt.review.decisions import LogEntry

app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Settle suspicious labels on a local page: [bold]srjt review audit/[/], then "
    "[bold]srjt review export audit/[/]; options: srjt review run --help.",
)

Folder = Annotated[Path, typer.Argument(metavar="AUDIT", help="Folder that srjt audit has written.")]


@app.command()
def run(
    folder: Folder,
    reviewer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who decides. [dim]default: the login name[/]", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many of the most doubtful labels to look at. [dim]default: as many as are expected to be "
            "wrong[/]",
            show_default=False,
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="A second reading: hide what other reviewers decided.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.", show_default=False)
    ] = 0,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let other machines reach the page (with --host).")
    ] = False,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Serve the page until Ctrl-C. Every decision is on disk before the page shows it as done.

    The address carries a secret; only who has it can see the images and decide. Give the same command again to
    go on where you stopped.
    """
    from srjt.errors import SrjtError
    from srjt.review.audit_folder import read_audit
    from srjt.review.decisions import Decisions
    from srjt.review.progress import measure
    from srjt.review.server import Desk
    from srjt.review.serving import listen, open_browser, serve

    name = _login() if reviewer is None else reviewer.strip()
    if not name or not name.isprintable():
        raise SrjtError("The reviewer needs a name that can be read: --reviewer NAME.")
    audit = read_audit(folder)
    queue = audit.expected_wrong if limit is None else min(limit, len(audit))
    decisions = Decisions(folder / "decisions.sqlite", only=name if alone else None)
    start = decisions.present.revision
    at = listen(host=host, port=port, remote=allow_remote)
    if at.door.any_address:
        typer.secho(
            f"Other machines can reach this page on port {at.port}. Whoever has the address below can see all "
            "images and decide, and so can whoever reads along: the connection is not encrypted. "
            "An SSH tunnel to 127.0.0.1 is the safer way.",
            fg=typer.colors.YELLOW,
            err=True,
        )

    def announce() -> None:
        typer.echo(f"Review as {name}: {at.address(at.door.token)}  (Ctrl-C ends it)")
        if open_:
            open_browser(at)

    try:
        serve(
            desk := Desk(audit=audit, decisions=decisions, reviewer=name, queue=queue), at, started=announce
        )
        decisions.catch_up()
        made = sum(entry.revision > start for entry in decisions.present.by(name))
        typer.echo(
            f"\n{measure(audit, desk.decisions.present, queue=queue)}; {made:,} decided in this session."
        )
        typer.echo(f"The corrected table: srjt review export {folder} --out labels_clean.csv")
    finally:
        decisions.close()


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("labels_clean.csv"),
    force: options.Force = False,
    conflicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of the samples that reviewers graded differently."),
    ] = None,
) -> None:
    """Write the corrected table: what was decided, by whom and when. The original is never touched.

    Where several reviewers graded a sample, the last decision wins; how well they agree is reported.
    """
    from srjt.errors import SrjtError
    from srjt.review import export as corrections
    from srjt.review.audit_folder import read_audit
    from srjt.review.decisions import Decisions, begun, replay

    audit = read_audit(folder)
    path = folder / "decisions.sqlite"
    if not begun(path):
        raise SrjtError(f"Nothing has been decided in {folder} yet: begin with srjt review {folder}.")
    decisions = Decisions(path)
    log = decisions.log()
    decisions.close()
    made = corrections.corrected(audit, replay(log))
    corrections.write(made.table, out, original=audit.table, replace=force)
    for note in made.notes:
        typer.echo(note, err=True)
    typer.echo(
        f"{out}: {len(made.table):,} rows, {made.reviewed:,} reviewed, {made.changed:,} changed, "
        f"{made.skipped:,} skipped."
    )
    _tell_agreement(audit, log, conflicts, force)
    typer.echo(f"Next: {corrections.training_command(audit, out)}")


def _tell_agreement(audit: AuditFolder, log: Sequence[LogEntry], path: Path | None, force: bool) -> None:
    from srjt.review import export as corrections

    for pair in corrections.agreements(audit, log):
        one, other = pair.reviewers
        typer.echo(
            f"{one} and {other} both graded {pair.both:,}: they agree on {100 * pair.share:.1f} %, "
            f"quadratically weighted κ {pair.kappa:.2f}."
        )
    differing = corrections.disagreements(audit, log)
    if differing:
        typer.echo(f"Graded differently, the last decision counts ({len(differing):,}):")
    for said in differing[:10]:
        typer.echo(f"  {said[0].id}: " + ", then ".join(f"{e.reviewer} {e.to_grade}" for e in said))
    if len(differing) > 10:
        typer.echo(
            f"  … and {len(differing) - 10:,} more" + ("" if path else "; --conflicts FILE lists them all")
        )
    if path is not None:
        corrections.write(corrections.listed(differing), path, original=audit.table, replace=force)
        typer.echo(f"{path}: {len(differing):,} samples graded differently.")


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without accounts
        return "reviewer"
