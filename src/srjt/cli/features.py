"""``srjt features``: images through a frozen backbone, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from srjt.cli import options
from srjt.errors import SrjtError


@options.reads_a_source(without=("labels", "feature_columns"))
def features(
    source: options.SourceArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write them.")] = Path("features.npz"),
    force: options.Force = False,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="resnet18, densenet121, timm:NAME, …")
    ] = "resnet18",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Local weights instead of the published ones.")
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained/--no-pretrained", help="The published weights, or random ones.")
    ] = True,
    flip: Annotated[
        bool, typer.Option("--flip", help="Average with the features of the mirror image.")
    ] = False,
    image_size: Annotated[int, typer.Option(help="Stored size.")] = 256,
    crop: Annotated[int, typer.Option(help="Centre crop from it.")] = 224,
    resize: Annotated[
        str, typer.Option(metavar="squash|crop", help="To a square, or short side then crop.")
    ] = "squash",
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 64,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; else a GPU if there is one.")] = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Turn images into features by a network that stays as it is.

    The file holds them with grades, patients, split and whatever else the source had.
    srjt train, study, audit, evaluate and predict take it in place of images.
    """
    from srjt.data import Problem, read, write_problems
    from srjt.data.sources.features import pack_features
    from srjt.files import write_atomically
    from srjt.inference.embed import embed

    if out.suffix != ".npz":
        raise SrjtError(f"Features are written as an .npz file; --out {out} ends in something else.")
    options.refuse_overwrite(out, force=force)
    reading = read(source, **how)
    manifest = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    with options.writing(out):
        pass  # a folder that cannot be made is better known now than after an hour
    with _bars() as (decoded, embedded):
        made, unreadable = embed(
            manifest,
            backbone=backbone,
            pretrained=pretrained,
            weights=weights,
            image_size=image_size,
            crop=crop,
            resize=resize,  # type: ignore[arg-type]
            flip=flip,
            batch_size=batch_size,
            device=device,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            decoded=decoded,
            embedded=embedded,
        )
    with options.writing(out):
        write_atomically(out, pack_features(made))
    if unreadable:
        with options.writing(skipped):
            problems = [Problem("unreadable-image", who, why) for who, why in unreadable]
            write_problems([*reading.problems, *problems], skipped)
        typer.secho(f"{len(unreadable):,} images could not be read. Listed in {skipped}.", err=True)
    assert made.arrays is not None
    typer.echo(
        f"{len(made):,} images, {made.arrays.shape[1]:,} features each by {backbone}: {out}. "
        f"Next: srjt train {out} --noise-rate auto --fold 0 --out run"
    )


@contextmanager
def _bars() -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int], None]]]:
    """Passing bars over images being decoded and embedded, as functions of (done, total)."""
    with options.transient_bar() as bar:
        tasks = [bar.add_task(what, total=None, visible=False) for what in ("Decoding", "Embedding")]

        def decoded(done: int, total: int) -> None:
            bar.update(tasks[0], completed=done, total=total, visible=True)

        def embedded(done: int, total: int) -> None:
            bar.update(tasks[1], completed=done, total=total, visible=True)

        yield decoded, embedded
