"""``srjt demo``: the whole idea in a minute and a half, on synthetic images."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli.messages import say

if TYPE_CHECKING:
    from srjt.reports.tables.table import Table

SEEDS = 6


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the page.")] = Path(
        "srjt-demo"
    ),
    seeds: Annotated[
        int, typer.Option(min=1, help="How often everything is repeated, for the intervals.")
    ] = SEEDS,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")] = 0,
    epochs: Annotated[int, typer.Option(min=2, max=10_000, help="Epochs per training.")] = 18,
    images: Annotated[int, typer.Option(min=200, help="Number of images to learn from, per seed.")] = 700,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Seeds at the same time. [dim]default: one per core[/]"),
    ] = None,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the page in a browser. [dim]default: in a terminal[/]"),
    ] = None,
) -> None:
    """Train four methods on labels that err as readers do, and show who learns the mistakes, on a page.

    Finished seeds are kept: the same command resumes an interrupted demo. Delete
    the folder to start over.
    """
    from srjt.console import Console
    from srjt.cores import cores
    from srjt.reports.demo.experiment import DemoSettings
    from srjt.reports.demo.findings import audit_sentences, label_sentences, ranking_sentences
    from srjt.reports.demo.workers import run_seeds
    from srjt.reports.figures.canvas import save_figure
    from srjt.reports.pages.demo_page import demo_page, demo_ranking, demo_table, told
    from srjt.reports.pages.html import page_figures, write_page

    console = Console(markup=False, highlight=False)
    settings = DemoSettings(images=images, epochs=epochs)
    say(
        f"{seeds} seed{'s' if seeds > 1 else ''}, each with {images:,} images of other patients, read by a simulated "
        f"reader. {told()}"
    )
    chosen = list(range(seed, seed + seeds))
    out.mkdir(parents=True, exist_ok=True)  # an impossible folder is said here, and not by every worker
    with _progress(chosen) as show:
        facts = run_seeds(out, settings, chosen, jobs=jobs or cores(), show=show)

    # In a clone set up by make the command is not on the PATH.
    command = "srjt" if shutil.which("srjt") else shlex.quote(sys.argv[0])
    page = demo_page(facts, settings, folder=out, command=command)
    for figure in page_figures(page):
        save_figure(figure, out / "figures")
    file = out / "demo.html"
    write_page(page, file)

    say(f"\n{label_sentences(facts[0].labels)[0]}\n")
    _print_table(console, demo_table(facts))
    first = facts[0].audit
    assert first is not None
    for sentence in (*ranking_sentences(demo_ranking(facts)), audit_sentences(first)[0]):
        say(sentence)
    # A path or a command to be copied gets its own line.
    say("\nThe whole story, with pictures:")
    typer.echo(f"  {file}")
    say("Next, on your own data:")
    typer.echo(f"  {command} data inspect labels.csv")  # which prints a training that the machine can do
    if open_page or (open_page is None and _is_interactive()):
        webbrowser.open(file.absolute().as_uri())


def _is_interactive() -> bool:
    """Whether a person sits at a screen: a terminal, a display, and no continuous integration."""
    display = (
        not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return sys.stdout.isatty() and bool(display) and not os.environ.get("CI")


@contextmanager
def _progress(seeds: Sequence[int]) -> Iterator[Callable[[int, str, float], None]]:
    """A bar over all seeds in a terminal; elsewhere a line when a seed is finished."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from srjt.console import Console

    console = Console()
    shares = dict.fromkeys(seeds, 0.0)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{'training':26}", total=float(len(seeds)))

        def show(seed: int, what: str, share: float) -> None:
            if share >= 1.0 > shares[seed] and not console.is_terminal:
                typer.echo(f"seed {seed} is done")
            shares[seed] = max(share, shares[seed])
            what = f"seed {seed}, {what}" if what else "training"
            bar.update(task, completed=sum(shares.values()), description=f"{what:26}")

        yield show


def _print_table(console: object, table: Table) -> None:
    """The table of the page, in 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as TerminalTable

    from srjt.console import Console

    assert isinstance(console, Console)
    shown = TerminalTable(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=table.title, title_justify="left"
    )
    for column in table.columns:
        heading = {"repeated": "repeated ↓"}.get(column.name, column.heading)
        shown.add_column(heading, justify="left" if column.kind == "text" else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(cell.text for cell in row.cells))
    console.print(shown)
    say(
        f"{table.caption} Repeated: the share of the wrong training labels that the networks say again.",
        dim=True,
    )
