"""``srjt export``: a finished run as one file, or as a folder, for deployment."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import SrjtError, count_of

if TYPE_CHECKING:
    from srjt.data.images.feed import Samples
    from srjt.training.trained import Trained


def export(
    run: options.Run,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write. [dim]default: model.onnx, without --folder[/]",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write a folder to send instead: ONNX model, model card, configuration, and a script that needs only "
            "onnxruntime, NumPy and Pillow.",
            show_default=False,
        ),
    ] = None,
    force: options.Force = False,
    format: Annotated[
        str | None,
        typer.Option(metavar="onnx|torch.export", help="Format of the file. [dim]default: by its suffix[/]"),
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="IMAGES",
            help="Images, folders or a CSV file to check the result with. [dim]default: a few synthetic images[/]",
        ),
    ] = None,
    optimise: options.Optimise = None,
    decode: options.Decode = None,
    recalibrate: options.Recalibrate = True,
    import_: options.Import = None,
) -> None:
    """Write a run as one ONNX file: cropping, normalisation, all networks, probabilities.

    The file takes uint8 images (N, H, W, 3), RGB, resized to the run's image size,
    or features (N, F), and gives probabilities, grade and severity. It is written
    only if its answers are the run's. With --folder it comes with its model card
    and a script that uses it.
    """
    from srjt.cli.output import refuse_overwrite
    from srjt.inference.export import export as export_run
    from srjt.inference.export import resolve_format
    from srjt.inference.predict import check_choices
    from srjt.reports.export_folder import MODEL, SCRIPT, check_export_folder, export_folder
    from srjt.training.record.run_folder import read_facts
    from srjt.training.trained import load_run

    if folder is not None and out is not None:
        raise SrjtError("Give --folder or --out, not both: the model of a folder is its model.onnx.")
    check_choices("ensemble", decode, optimise)
    out = out or (Path("model.onnx") if folder is None else folder / MODEL)
    chosen = resolve_format(out, format)
    if folder is None:
        refuse_overwrite(out, force=force)
    elif chosen != "onnx":
        raise SrjtError(
            f"--folder writes ONNX, because its script needs no torch: leave out --format {chosen}."
        )
    if read_facts(run).own_network:
        raise SrjtError(
            f"{run} was trained with a network of your own, which only Python can build: "
            f'srjt.export(srjt.load_run("{run}", network=…), "{out}").'
        )
    trained = load_run(run, device="cpu")
    if folder is not None:
        check_export_folder(folder, overwrite=force)
    samples = None if check is None else _samples(trained, check)
    how: dict[str, Any] = {
        "optimise": optimise,
        "decoding": decode,
        "recalibrate": recalibrate,
        "samples": samples,
    }
    if folder is None:
        written = export_run(trained, out, format=chosen, **how)
    else:
        written = export_folder(trained, folder, overwrite=force, **how)
    new = "FEATURES.npz" if len(trained.in_shape) == 1 else "IMAGES"
    runner = "onnxruntime" if chosen == "onnx" else "torch"
    say(f"{out}, {out.stat().st_size / 1e6:.1f} MB: takes {written.input}.")
    say(f"A grade is {written.metadata['grade_rule']}.")
    if recalibration := written.metadata.get("recalibration"):
        say(f"Its probabilities are recalibrated on the validation side: {recalibration}.")
    say(
        f"Checked in {runner} on {count_of(written.checked, 'sample')}: probabilities differ from the run's by at most "
        f"{written.difference:.1e}."
    )
    if folder is not None:
        say(f"{folder} also has the model card and a script:")
        typer.echo(f"  python {shlex.quote(str(folder / SCRIPT))} {new} > predictions.csv")


def _samples(trained: Trained, sources: list[Path]) -> Samples:
    """Images as prediction reads them, resized; or the rows of a file of features."""
    from srjt.cli.messages import decoding_bar
    from srjt.data import drop_unusable, read
    from srjt.data.images.store import open_store
    from srjt.data.sources.unlabelled import read_images

    features = len(trained.in_shape) == 1
    reading = read(sources[0]) if features else read_images(sources, grades=trained.grades)
    with decoding_bar() as decoded:
        store = open_store(
            drop_unusable(reading.manifest, reading.problems),
            size=trained.config.image_size,
            resize=trained.config.resize,
            progress=decoded,
        )
    return store.pixels
