"""``srjt evaluate``: a run against labels it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from srjt.cli import options


@options.reads_a_source(without=("grades",))
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    source: options.SourceArgument,
    network: Annotated[
        str, typer.Option(metavar="ensemble|1|2", help="The networks averaged, or one of them.")
    ] = "ensemble",
    decode: Annotated[
        str,
        typer.Option(
            metavar="argmax|median|expected", help="Most likely; least absolute error; rounded mean."
        ),
    ] = "argmax",
    views: options.Views = 1,
    side: Annotated[
        str | None,
        typer.Option(metavar="train|validation|test", help="Judge this side only. With --fold: test."),
    ] = None,
    fold: Annotated[int | None, typer.Option(help="Of the fold that srjt train was given.")] = None,
    folds: Annotated[int, typer.Option(help="Likewise.")] = 5,
    split_seed: Annotated[int, typer.Option(help="Likewise.")] = 0,
    splits: Annotated[Path | None, typer.Option(help="Folds from a file of srjt data split.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write everything to a JSON file as well.")] = None,
    force: options.Force = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; else a GPU if there is one.")] = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """All metrics with 95 % intervals (by resampling patients), confusion matrix, calibration.

    Judged by the true grades where the data have them, else by the grades as given.
    All samples of the source are judged; --fold or --splits as given to srjt train
    judges that fold's test side, --side test alone the split column's.
    """
    from rich.console import Console
    from rich.table import Table

    from srjt.cli.train import chosen_split
    from srjt.data import read
    from srjt.errors import SrjtError, suggest
    from srjt.files import write_json
    from srjt.inference.evaluate import evaluate
    from srjt.inference.predict import check_choices
    from srjt.training.trained import load_run

    check_choices(network, decode)
    options.refuse_overwrite(out, force=force)
    trained = load_run(run, device=device)
    trained.views(views)  # an error if there are none
    reading = read(source, grades=list(trained.grades), **how)
    manifest = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if side is not None or fold is not None or splits is not None:
        split = chosen_split(
            fold=fold, folds=folds, seed=split_seed, file=splits,
            official=None if fold is not None or splits is not None else True,
            skipping=on_bad_image == "skip",
        )  # fmt: skip
        assert split is not None
        sides = split(manifest).sides()
        if (side := side or "test") not in sides:
            raise suggest("side", side, sides)
        manifest = manifest.select(sides[side])
        if not len(manifest):
            raise SrjtError(f"There is nobody on the {side} side.")
    with options.decoding_bar() as decoded:
        found = evaluate(
            trained, manifest, network=network, decoding=decode, views=views, on_bad_image=on_bad_image,  # type: ignore[arg-type]
            progress=decoded,
        )  # fmt: skip

    if out is not None:  # before anything is printed: the reader (head, less) may go away
        with options.writing(out):
            write_json(out, found.to_dict())

    console = Console()
    what = "rows of features" if manifest.are_features else "images"
    seen = f", {found.views} views of each" if found.views > 1 else ""
    console.print(f"{found.samples:,} {what}{seen}, judged by their {found.judged_by}.")
    if not found.by_patient:
        console.print(
            f"No patient ids: the intervals resample {what} and are probably too narrow.", style="yellow"
        )
    if learnt := _learnt_from(run, manifest.ids):
        console.print(
            f"{learnt:,} of them have the ids of samples that this run was trained on: if they are the same samples, "
            "the numbers below look too good.",
            style="yellow",
        )
    metrics = Table("metric", "value", "95 % interval")
    for name, (value, low, high) in found.intervals.items():
        metrics.add_row(name, f"{value:.3f}", f"{low:.3f} – {high:.3f}")
    metrics.add_section()
    metrics.add_row("calibration error", f"{found.calibration_error:.3f}", "")
    metrics.add_row("ranked probability", f"{found.ranked_probability_score:.3f}", "")
    console.print(metrics)
    confusion = Table("true ╲ predicted", *trained.grades, "recall")
    for name, row in zip(trained.grades, found.confusion, strict=True):
        recall = f"{row[trained.grades.index(name)] / sum(row):.3f}" if sum(row) else "–"
        confusion.add_row(name, *(f"{count:,}" for count in row), recall)
    console.print(confusion)
    if out is not None:
        console.print(f"Written to {out}.", highlight=False)


def _learnt_from(run: Path, ids: list[str]) -> int:
    """How many of these samples the run was trained on, as far as their ids tell."""
    import pandas as pd

    try:
        learnt = set(pd.read_csv(run / "history.csv", usecols=["id"], dtype=str)["id"])
    except (OSError, ValueError):  # a run may have been sent without it
        return 0
    return sum(sample in learnt for sample in ids)
