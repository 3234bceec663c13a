"""``srjt explain``: where the networks look, on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import count_of

if TYPE_CHECKING:
    from srjt.data import Manifest


@options.reads_a_source(
    only=(
        "images", "image_column", "grade_column", "several_readings", "reader_column", "reference_column", "kind",
    )
)  # fmt: skip
def explain(
    run: options.Run,
    sources: Annotated[
        list[Path], typer.Argument(metavar="IMAGES", help="Image files, folders or a CSV file.")
    ],
    out: options.HtmlOut = Path("explanation.html"),
    training: Annotated[
        Path | None,
        typer.Option(
            metavar="SOURCE",
            help="The data that the run was trained on, read with the same options: adds the most similar training "
            "images.",
        ),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=1, max=20, help="Similar training images per image, with --training.")
    ] = 4,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Explain at most so many images.")] = 50,
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Show where the networks look: what raises and what lowers the expected grade of each image.

    The page shows both networks side by side and, with --training, the most similar
    training images with their labels.
    """
    import numpy as np

    from srjt.cli.messages import progress_bar
    from srjt.cli.output import refuse_overwrite
    from srjt.cli.samples import list_unreadable, usable
    from srjt.data.sources.table import is_table
    from srjt.data.sources.unlabelled import read_images
    from srjt.inference.explain import explain as explain_run
    from srjt.reports.pages.explain_page import explain_page
    from srjt.reports.pages.html import write_page
    from srjt.training.trained import load_run

    refuse_overwrite(out, force=force)
    trained = load_run(run, device=device)
    of_tables = {name: how[name] for name in ("images", "image_column")}
    if training is not None and all(path.is_dir() or not is_table(path) for path in sources):
        of_tables = {}  # they are for the training data
    reading = read_images(sources, **of_tables, grades=trained.grades)
    manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    total = len(manifest)
    manifest = manifest.select(np.arange(min(limit, total)))
    known = (
        None
        if training is None
        else _training_samples(training, how, grades=trained.grades, on_bad_image=on_bad_image)
    )
    with progress_bar("Explaining") as advance:
        found = explain_run(
            trained, manifest, training=known, neighbours=neighbours,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            progress=advance,
        )  # fmt: skip
    list_unreadable(found.skipped, skipped, problems=reading.problems)
    write_page(explain_page(found, title=run.resolve().name), out)
    shown = len(found.images)
    more = f" of {total:,} (--limit {limit})" if total > limit else ""
    say(f"{count_of(shown, 'image')}{more} explained in {out}.")
    if found.random_correlation is not None and found.random_correlation > ALIKE:
        say(
            "The maps resemble those of networks with random weights (rank correlation "
            f"{found.random_correlation:.2f}): they show the images more than what was learnt.",
            fg="yellow", err=True,
        )  # fmt: skip


def _training_samples(
    source: Path, how: dict[str, Any], *, grades: tuple[str, ...], on_bad_image: str
) -> Manifest:
    """The training data, read as the images are; a source that is no table has no use for their folder and column."""
    from srjt.data import drop_unusable, read
    from srjt.data.sources.table import is_table

    only_tables = {} if is_table(source) else {"images": None, "image_column": None}
    reading = read(source, **{**how, **only_tables, "grades": list(grades)})
    return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)


ALIKE = 0.7  # a rank correlation beyond which half of the variation is shared
