"""``srjt plan``: how many patients, readings and verified labels are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.output import say, show
from srjt.inference.options import Planning


@options.takes(Planning, as_="planning")
def plan(
    pilot: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="A finished run, whose test side is the pilot. [default: assumed values]"
        ),
    ] = None,
    *,
    planning: dict[str, Any],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write everything to a JSON file too.")
    ] = None,
    html: options.Html = None,
    force: options.Force = False,
) -> None:
    """Plan a study: how many patients, readings and verified labels a wanted interval takes.

    From a pilot run, or from what you assume: --metric sensitivity --value 0.9
    --half-width 0.05 --prevalence 0.2 --images-per-patient 2 --correlation 0.3.
    """
    from srjt.cli.output import check_html, refuse_overwrite, writing
    from srjt.files import write_json
    from srjt.inference.sample_size import plan as plan_samples

    refuse_overwrite(out, force=force)
    check_html(html, out, force=force)
    found = plan_samples(pilot, **planning)
    page = found.report()
    if out is not None:
        with writing(out):
            write_json(out, found.to_dict(), follow_links=True)
    if html is not None:
        page.save(html)
    show(page)
    for file, words in ((out, "Written to"), (html, "The page is in")):
        if file is not None:
            say(f"{words} {file}.")
