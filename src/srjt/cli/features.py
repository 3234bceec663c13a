"""``srjt features``: compute features of images with a frozen network, once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import SrjtError, count_of


@options.reads_a_source(without=("labels", "feature_columns"))
def features(
    source: options.SourceArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")] = Path("features.npz"),
    force: options.Force = False,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="resnet18, densenet121, timm:NAME, …")
    ] = "resnet18",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Local file of weights instead of the published ones.")
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained/--no-pretrained", help="Use the published weights, or random ones.")
    ] = True,
    flip: Annotated[
        bool, typer.Option("--flip", help="Average with the features of the mirror image.")
    ] = False,
    image_size: Annotated[int, typer.Option(help="Side of the resized images, in pixels.")] = 256,
    crop: Annotated[int, typer.Option(help="Side of the centre crop from them.")] = 224,
    resize: Annotated[
        str, typer.Option(metavar="squash|crop", help="Resize to a square, or the short side and then crop.")
    ] = "squash",
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 64,
    ungraded: Annotated[
        bool,
        typer.Option("--ungraded", help="Images without grades, for srjt predict: a folder, or a table."),
    ] = False,
    device: options.Device = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Compute features of images with a frozen network, once.

    The file also holds grades, patients, split and every other column of the
    source. srjt train, study, audit, evaluate and predict accept it in place of
    images. A command that was stopped continues when it is repeated.
    """
    from srjt.cli.output import refuse_overwrite, writing
    from srjt.cli.samples import list_unreadable, usable
    from srjt.data import read
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.unlabelled import read_images
    from srjt.files import write_atomically
    from srjt.inference.embed import embed

    if out.suffix != ".npz":
        raise SrjtError(f"Features are written as an .npz file; --out {out} has another suffix.")
    refuse_overwrite(out, force=force)
    with _hint_at_train():
        if ungraded:
            used = {name: how.pop(name) for name in ("images", "image_column", "patient_column")}
            unused = [word for word in options.as_words(how) if word.startswith("--")]
            if unused:
                say(f"Without effect beside --ungraded: {', '.join(dict.fromkeys(unused))}.", err=True)
            reading = read_images([source], **used)
        else:
            reading = read(source, **how)
        manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
        with writing(out):
            pass  # a folder that cannot be made is an error now, not after an hour
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
    with writing(out):
        write_atomically(out, pack_features(made, graded=not ungraded))
    list_unreadable(unreadable, skipped, problems=reading.problems)
    if unreadable:
        say(f"{count_of(len(unreadable), 'image')} could not be read. Listed in {skipped}.", err=True)
    assert made.arrays is not None
    say(f"{count_of(len(made), 'image')}, {made.arrays.shape[1]:,} features each by {backbone}: {out}.")
    file = shlex.quote(str(out))
    typer.echo(
        f"Next: srjt predict RUN {file}"
        if ungraded
        else f"Next: srjt train {file} --noise-rate auto --fold 0 --out run"
    )


@contextmanager
def _hint_at_train() -> Iterator[None]:
    """A table that has features already needs no network: name the command that has the option for them."""
    try:
        yield
    except SrjtError as problem:
        text = re.sub(
            r"(?:read|name) them with `feature_columns(?:=('[^']*'))?`",
            lambda found: f"srjt train reads them with --feature-columns {found[1] or 'PATTERN'}",
            str(problem),
        )
        if text == str(problem):
            raise
        raise SrjtError(text) from None


@contextmanager
def _bars() -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int], None]]]:
    """Transient bars over images that are decoded and embedded, as functions of (done, total)."""
    from srjt.cli.messages import transient_bar

    with transient_bar() as bar:
        tasks = [bar.add_task(what, total=None, visible=False) for what in ("Decoding", "Embedding")]

        def decoded(done: int, total: int) -> None:
            bar.update(tasks[0], completed=done, total=total, visible=True)

        started = False

        def embedded(done: int, total: int) -> None:
            nonlocal started
            if started:
                bar.update(tasks[1], completed=done, total=total)
                return
            started = True
            bar.reset(tasks[1], completed=done, total=total, visible=True)  # finished images have no speed
            if 0 < done < total:
                say(f"Resumed: {done:,} of {total:,} images are done.", err=True)

        yield decoded, embedded
