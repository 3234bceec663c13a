"""``srjt predict``: grades for new images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from srjt.cli import options
from srjt.errors import SrjtError


@options.reads_a_source(only=("images", "image_column", "feature_columns"))
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    sources: Annotated[
        list[Path], typer.Argument(metavar="IMAGES", help="Image files, folders, or a CSV; or features.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    force: options.Force = False,
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
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; else a GPU if there is one.")] = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: Annotated[Path, typer.Option(help="CSV list of the unreadable images.")] = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Predict grades: probability per grade, expected grade, entropy, disagreement of the two networks."""
    from srjt.data.sources.features import read_ungraded_features
    from srjt.data.sources.unlabelled import read_images
    from srjt.files import write_atomically
    from srjt.inference.predict import check_choices
    from srjt.inference.predict import predict as predict_run
    from srjt.training.trained import load_run

    check_choices(network, decode)
    options.refuse_overwrite(out, force=force)
    trained = load_run(run, device=device)
    trained.views(views)  # an error if there are none
    if len(trained.in_shape) == 1:
        if len(sources) > 1:
            raise SrjtError(f"{run} was trained on features: give one file of features at a time.")
        manifest = read_ungraded_features(
            sources[0], feature_columns=how["feature_columns"], grades=trained.grades
        )
    elif any(source.suffix == ".npz" for source in sources):
        raise SrjtError(
            f"{run} reads images, but {sources[0]} is a file of arrays: give image files, folders or a CSV."
        )
    else:
        manifest = read_images(
            sources, images=how["images"], image_column=how["image_column"], grades=trained.grades
        )
    with options.decoding_bar() as decoded:
        table = predict_run(
            trained,
            manifest,
            network=network,  # type: ignore[arg-type]
            decoding=decode,  # type: ignore[arg-type]
            views=views,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            progress=decoded,
        )
    with options.writing(out):
        content = table.to_csv(index=False, float_format="%.6g").encode("utf-8", "surrogateescape")
        streamed = options.is_stream(out)
        if streamed:
            with out.open("ab") as stream:
                stream.write(content)
        else:
            write_atomically(out, content)
    counts = table["grade"].value_counts()
    shares = ", ".join(f"{counts.get(name, 0):,} × {name}" for name in trained.grades)
    what = f"{len(table):,} rows of features" if manifest.are_features else _images(len(table))
    if table.attrs["views"] > 1:
        what += f", {table.attrs['views']} views of each"
    typer.echo(f"{what}: {shares}. Written to {out}.", err=streamed)
    if left_out := table.attrs["skipped"]:
        from srjt.data import Problem, write_problems

        with options.writing(skipped):
            write_problems([Problem("unreadable-image", who, why) for who, why in left_out], skipped)
        named = ", ".join(who for who, _ in left_out[:3]) + (", …" if len(left_out) > 3 else "")
        typer.secho(f"{_images(len(left_out))} could not be read: {named}. Listed in {skipped}.", err=True)


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
