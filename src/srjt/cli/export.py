"""``srjt explain`` and ``srjt export``: a run for people to look into, and for other programs to use."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.options import Fields, argument, html_file, option
from srjt.cli.output import check_outputs, decoding_bar, say
from srjt.cli.samples import Source
from srjt.errors import SrjtError, count_of
from srjt.inference.options import Answering

if TYPE_CHECKING:
    from srjt.data.images.feed import Samples
    from srjt.training.trained import Trained

# ``srjt explain``: where the networks look, on a page.


READ = (
    "images", "image_column", "grade_column", "several_readings", "reader_column", "reference_column", "kind",
    "on_bad_image", "skipped",
)  # fmt: skip


def explain(
    run: options.Run,
    sources: list[Path] = argument(..., "Image files, folders or a CSV file.", metavar="IMAGES"),
    out: Path = option(Path("explanation.html"), "HTML file to write.", metavar="FILE", callback=html_file),
    training: Path | None = option(
        None,
        "The data that the run was trained on, read with the same options: adds the most similar training images.",
        metavar="SOURCE",
    ),
    neighbours: int = option(4, "Similar training images per image, with --training.", min=1, max=20),
    limit: int = option(50, "Explain at most so many images.", min=1, max=500),
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    *,
    data: Annotated[Source, Fields(Source, only=READ)],
) -> None:
    """Show where the networks look: what raises and what lowers the expected grade of each image.

    The page shows both networks side by side and, with --training, the most similar
    training images with their labels.
    """
    from srjt.data.manifest import drop_unusable
    from srjt.data.sources.folders import read_images
    from srjt.data.sources.table import is_table
    from srjt.inference.explain import explain
    from srjt.progress import progress_bar
    from srjt.reports.page import write_page
    from srjt.reports.pages.answers import explain_page
    from srjt.reports.sections import run_name
    from srjt.training.trained import load_run

    check_outputs(out, force=force)
    trained = load_run(run, device=device)
    # a source that is no table has no use for a folder and a column of images: they are for the other
    tables = {name: data.how[name] for name in ("images", "image_column") if name in data.how}
    for_training = training is not None and not any(path.is_file() and is_table(path) for path in sources)
    reading = read_images(sources, **({} if for_training else tables), grades=trained.grades)
    manifest = data.usable(reading)
    total = len(manifest)
    samples = None
    if training is not None:
        own = data if is_table(training) else replace(data, images=None, image_column=None)
        learnt = replace(own, source=training).read(grades=list(trained.grades))
        samples = drop_unusable(learnt.manifest, learnt.problems, on_bad_image=data.on_bad_image)
    with progress_bar("Explaining", True) as advance:
        found = explain(
            trained, manifest.select(range(min(limit, total))), training=samples, neighbours=neighbours,
            on_bad_image=data.on_bad_image, progress=advance,
        )  # fmt: skip
    data.list_unreadable(found.skipped, reading.problems)
    write_page(explain_page(found, title=run_name(trained)), out)
    more = f" of {total:,} (--limit {limit})" if total > limit else ""
    say(f"{count_of(len(found.images), 'image')}{more} explained in {out}.")


# ``srjt export``: a finished run as one file, or as a folder, for deployment.


def export(
    run: options.Run,
    out: Path | None = option(None, "File to write. [default: model.onnx, without --folder]", metavar="FILE"),
    folder: Path | None = option(
        None,
        "Write a folder to send instead: ONNX model, model card, configuration, and a script that needs only "
        "onnxruntime, NumPy and Pillow.",
        metavar="DIR",
    ),
    force: options.Force = False,
    format: str | None = option(
        None, "Format of the file. [default: by its suffix]", metavar="onnx|torch.export"
    ),
    check: list[Path] | None = option(
        None,
        "Images, folders or a CSV file to check the result with. [default: a few synthetic images]",
        metavar="IMAGES",
    ),
    *,
    grading: Annotated[dict[str, Any], Fields(Answering, only=("optimise", "decoding", "recalibrate"))],
    import_: options.Import = None,
) -> None:
    """Write a run as one ONNX file: cropping, normalisation, all networks, probabilities.

    The file takes uint8 images (N, H, W, 3), RGB, resized to the run's image size,
    or features (N, F), and gives probabilities, grade and severity. It is written
    only if its answers are the run's. With --folder it comes with its model card
    and a script that uses it.
    """
    from srjt.inference.export import export, resolve_format
    from srjt.reports.model_card import MODEL, SCRIPT, check_export_folder, export_folder
    from srjt.training.trained import load_run

    if folder is not None and out is not None:
        raise SrjtError("Give --folder or --out, not both: the model of a folder is its model.onnx.")
    Answering.of(grading)  # an error before the run is opened
    out = out or (folder or Path()) / MODEL
    chosen = resolve_format(out, format)
    if folder is None:
        check_outputs(out, force=force)
    elif chosen != "onnx":
        raise SrjtError(
            f"--folder writes ONNX, because its script needs no torch: leave out --format {chosen}."
        )
    trained = load_run(run, device="cpu")
    if folder is not None:
        check_export_folder(folder, overwrite=force)
    samples = None if check is None else _samples(trained, check)
    if folder is None:
        written = export(trained, out, format=chosen, samples=samples, **grading)
    else:
        written = export_folder(trained, folder, overwrite=force, samples=samples, **grading)
    say(f"{out}, {out.stat().st_size / 1e6:.1f} MB: takes {written.input}.")
    say(f"A grade is {written.metadata['grade_rule']}.")
    if recalibration := written.metadata.get("recalibration"):
        say(f"Its probabilities are recalibrated on the validation side: {recalibration}.")
    say(
        f"Checked in {'onnxruntime' if chosen == 'onnx' else 'torch'} on {count_of(written.checked, 'sample')}: "
        f"probabilities differ from the run's by at most {written.difference:.1e}."
    )
    if folder is not None:
        new = "FEATURES.npz" if len(trained.in_shape) == 1 else "IMAGES"
        say(f"{folder} also has the model card and a script:")
        typer.echo(f"  python {shlex.quote(str(folder / SCRIPT))} {new} > predictions.csv")


def _samples(trained: Trained, sources: list[Path]) -> Samples:
    """Images as prediction reads them, resized; or the rows of a file of features."""
    from srjt.data.images.store import open_store
    from srjt.data.manifest import drop_unusable
    from srjt.data.sources import read
    from srjt.data.sources.folders import read_images

    features, config = len(trained.in_shape) == 1, trained.config
    reading = read(sources[0]) if features else read_images(sources, grades=trained.grades)
    manifest = drop_unusable(reading.manifest, reading.problems)
    with decoding_bar() as decoded:
        return open_store(manifest, size=config.image_size, resize=config.resize, progress=decoded).pixels
