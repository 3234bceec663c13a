"""``srjt data``: inspect, check, split, corrupt, make and download data."""

from __future__ import annotations

import itertools
import os
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from srjt.cli import App, options, output, samples
from srjt.cli.options import argument, machine_options, option
from srjt.cli.output import say
from srjt.errors import SrjtError, count_of
from srjt.progress import progress_bar

if TYPE_CHECKING:
    from PIL.Image import Image

    from srjt.data.manifest import Manifest
    from srjt.data.sources.assemble import LoadedData
    from srjt.data.splits import Split
    from srjt.noise.matrices import NoiseReport

# ``srjt data inspect``: what a source holds, what is wrong with it, and examples of each grade.


@options.reads_a_source()
def inspect(
    source: options.SourceArgument,
    sheet: Path = option(Path("contact_sheet.png"), "PNG file of examples per grade.", metavar="FILE"),
    pairs: Path = option(
        Path("duplicates.png"),
        "PNG file of identical and nearly identical images, if there are any.",
        metavar="FILE",
    ),
    problems_file: Path = option(
        Path("problems.csv"), "CSV file of all problems, if there are any.", "--problems", metavar="FILE"
    ),
    folds: int = option(5, "Warn about grades with fewer patients than this."),
    decode: bool = option(True, "Read every image, and draw the examples."),
    *,
    how: dict[str, Any],
) -> None:
    """Show what a source holds, and everything that is wrong with it.

    The exit status is 0 if every sample can be used, even with warnings; 1 if
    some cannot; 2, as for every command, if the source cannot be read at all.

    Errors: images missing, empty or unreadable; grades missing or invalid;
    rows that contradict each other or have too few cells.

    Warnings: duplicate rows, identical and nearly identical images, identical
    images with different grades, patients unknown, too few patients in a grade.
    """
    from srjt.data.checks import contact_sheet, examine, pair_sheet
    from srjt.data.manifest import errors_in, write_problems
    from srjt.data.sources import read

    sentences, how = _readers(source, how)
    reading = read(source, **how)
    manifest = reading.manifest
    for note in reading.notes:
        say(f"• {note}")
    for sentence in sentences:
        say(sentence)
    samples.print_grades(manifest)
    for line in (*_patients(manifest), *_splits(manifest), *_sizes(manifest), *_features(manifest)):
        say(line)

    with progress_bar("Reading images", decode) as progress:
        found, alike = examine(manifest, folds=folds, images=decode, progress=progress)
    problems = [*reading.problems, *found]
    if problems:
        samples.print_problems(problems)
        replaced = " (the previous file was replaced)" if problems_file.is_file() else ""
        with output.writing(problems_file):
            write_problems(problems, problems_file)
        say(f"The full list of problems: {problems_file}{replaced}")
    else:
        say("No problems found." if decode else "No problems found (images not read).")
    if decode and not manifest.are_features:
        if len(alike):
            _write_picture(pair_sheet(manifest, alike), pairs, "Images that are (nearly) the same")
        _write_picture(contact_sheet(manifest), sheet, "Examples of each grade")
    if errors_in(problems):
        raise typer.Exit(1)
    read_with = [str(source), *options.as_words(how)]
    if small := machine_options(len(manifest), features=manifest.are_features):
        embed = shlex.join(["srjt", "features", *read_with])
        say(f"There is no GPU: train a small network, or compute the features of a large one first: {embed}")
    typer.echo(f"Next: {shlex.join(['srjt', 'train', *read_with, '--fold', '0', '--out', 'run', *small])}")


def _readers(source: Path, how: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Sentences about a table with several readers, and how to read it: a column for each of them makes a consensus."""
    from srjt.data.sources.readings import describe_readers, has_grade_column, read_readings
    from srjt.data.sources.table import is_table
    from srjt.errors import SrjtError

    names = ("image_column", "grade_column", "reader_column", "patient_column", "reference_column", "grades")
    if how.get("kind") not in (None, "table") or not is_table(source):
        return [], how
    try:
        found = read_readings(source, **{name: how[name] for name in names if name in how})
    except SrjtError:  # no table of readings; what is wrong with it is reported when it is read
        return [], how
    if not (said := describe_readers(found.readings, found.columns)):
        return [], how
    sentences = [said, f"To compare them: srjt readers {shlex.quote(str(source))}"]
    if "several_readings" not in how and found.columns.wide and not has_grade_column(found.frame):
        how = {**how, "several_readings": "consensus"}
        sentences.append(
            "The grades below are their consensus; other commands need --several-readings consensus."
        )
    elif "several_readings" not in how:
        sentences.append("To combine the grades of each image: --several-readings consensus")
    return sentences, how


def _write_picture(picture: Image, path: Path, what: str) -> None:
    """Write a PNG file, and say where it is."""
    import io

    from srjt.files import write_output

    replaced = " (the previous file was replaced)" if path.is_file() else ""
    with output.writing(path):
        png = io.BytesIO()
        picture.save(png, format="PNG")
        write_output(path, png.getvalue())
    say(f"{what}: {path}{replaced}")


def _patients(manifest: Manifest) -> list[str]:
    if manifest.patients is None:
        return []
    counts = sorted(Counter(manifest.patients).values())
    middle = counts[len(counts) // 2]
    what = "Rows" if manifest.are_features else "Images"
    if counts[0] == counts[-1]:
        return [f"{what} per patient: {middle}"]
    return [f"{what} per patient: {counts[0]} to {counts[-1]}, median {middle}"]


def _splits(manifest: Manifest) -> list[str]:
    from srjt.data.splits import unused_split_column

    if "split" not in manifest.table:
        column = unused_split_column(manifest)
        return [] if column is None else [f"There is a column {column}: use --split-column {column}."]
    counts = Counter(side or "none" for side in manifest.table["split"])
    return ["Published split: " + ", ".join(f"{side} {count:,}" for side, count in counts.items())]


def _features(manifest: Manifest) -> list[str]:
    """Their range and spread, and columns without information: to see whether they are the expected numbers."""
    import numpy as np

    if manifest.arrays is None or not manifest.are_features:
        return []
    x = manifest.arrays.astype(np.float64)
    low, middle, high = np.quantile(x.std(axis=0), [0.0, 0.5, 1.0])
    lines = [
        f"Features: {count_of(x.shape[1], 'column')} from {x.min():.4g} to {x.max():.4g}, mean {x.mean():.4g}, "
        f"{np.mean(x == 0):.0%} zeros",
        f"Standard deviation per column: {low:.4g} to {high:.4g}, median {middle:.4g}",
    ]
    if constant := int(np.sum(np.ptp(x, axis=0) == 0)):
        lines.append(f"{count_of(constant, 'constant column')}: without information, and harmless.")
    return lines


def _sizes(manifest: Manifest) -> list[str]:
    from srjt.data.checks import SAMPLED, image_sizes

    sizes = Counter(image_sizes(manifest))
    if not sizes:
        return []
    common = ", ".join(f"{w}×{h} ({count:,})" for (w, h), count in sizes.most_common(4))
    others = f" and {count_of(len(sizes) - 4, 'other size')}" if len(sizes) > 4 else ""
    sampled = f"; from a sample of {sizes.total():,} images" if len(manifest) > SAMPLED else ""
    return [f"Image sizes (width×height): {common}{others}{sampled}"]


# ``srjt data split``: patient-disjoint folds, written to a file that can be shared.


@options.reads_a_source(without=("split_column",))
def split(
    source: options.SourceArgument,
    folds: int = option(5, "Number of folds; five give 60/20/20 per cent."),
    seed: int = option(0, "The same seed gives the same folds on every machine."),
    by: str = option(
        "random",
        "Split patients at random (the paper), or stratify by their highest grade.",
        metavar="random|stratified",
    ),
    hold_out: str | None = option(
        None, "A fold for each value of this column, such as a site: its test side.", metavar="COLUMN"
    ),
    out: Path = option(Path("splits.csv"), "CSV file to write, with id, fold, split.", metavar="FILE"),
    group_near_duplicates: options.GroupNearDuplicates = False,
    force: options.Force = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Split the patients into folds of train, validation and test; no patient is on two sides.

    In fold k, part k is for testing, part k+1 for validation, the rest for
    training. Images are read once to keep identical ones on one side; their hashes
    stay in the cache. srjt data inspect finds bad images.
    """
    from srjt.data.sources import read
    from srjt.data.splits import folds as make_folds
    from srjt.data.splits import write_splits

    output.check_outputs(out, force=force)  # other folds under this name: results would not be comparable
    reading = read(source, **how)
    manifest = samples.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    manifest = samples.grouped(manifest, near=group_near_duplicates)
    splits = make_folds(manifest, folds=folds, seed=seed, by=by, hold_out=hold_out)
    with output.writing(out):
        write_splits(out, manifest, splits)
    _print_folds(manifest, splits)
    typer.echo(f"{count_of(len(splits), 'fold')} of {count_of(len(manifest), 'sample')}: {out}")


def _print_folds(manifest: Manifest, splits: list[Split]) -> None:
    import pandas as pd

    def shown(rows: Any) -> str:
        part = manifest.select(rows)
        return f"{len(part):,}" + ("" if part.patients is None else f" ({len(set(part.patients)):,})")

    rows = [{name: shown(side) for name, side in split.sides().items()} for split in splits]
    frame = pd.DataFrame(rows, columns=["train", "validation", "test"])
    frame["test per grade"] = [
        " / ".join(f"{count:,}" for count in manifest.select(split.test).class_counts) for split in splits
    ]
    title = "" if manifest.patients is None else "Images, and patients in brackets"
    frame.insert(0, "fold", [f"{fold} {split.held_out}".strip() for fold, split in enumerate(splits)])
    output.print_table(frame, title=title)


# ``srjt data corrupt``: add known noise to clean labels, and report the realised rate.


@options.reads_a_source(without=("true_grade_column",))
def corrupt(
    source: options.SourceArgument,
    noise: str = option(
        "quasi",
        "quasi (errors towards all other grades), truncated (neighbours only), uniform.",
        metavar="KIND",
    ),
    rate: float | None = option(None, "Target share of wrong labels."),
    rho: float | None = option(None, "The paper's ρ, instead of --rate."),
    seed: int = option(0, "The same seed and ids give the same labels on every machine."),
    out: Path | None = option(
        None,
        "CSV file to write (.npz for features). [default: named after the source, in this folder]",
        metavar="FILE",
    ),
    force: options.Force = False,
    include_test: bool = option(
        False, "Corrupt the samples marked test in the split column too.", "--include-test"
    ),
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Write a copy of the labels with noise.

    The column grade holds the noisy labels, true_grade the clean ones.

    A noisy label depends on the seed and the sample's id, not on the other rows.
    Samples marked test in the split column stay clean, as in the paper.
    """
    import numpy as np

    from srjt import noise as noises
    from srjt.data.sources import read
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.table import write_table
    from srjt.files import write_atomically

    if (rate is None) == (rho is None):
        raise SrjtError("Give the amount of noise: either --rate or --rho.")
    if out is not None and out.exists() and out.resolve() == source.resolve():
        raise SrjtError(
            f"{out} is the source itself, whose clean labels must not be lost: choose another --out."
        )
    output.check_outputs(out, force=force)
    reading = read(source, **how)
    if out is None:
        suffix = ".npz" if reading.manifest.are_features else ".csv"
        amount = f"rho{rho:g}" if rate is None else f"{rate:g}"
        out = Path(f"{source.stem}_{noise}_{amount}_seed{seed}{suffix}")
        output.check_outputs(out, force=force)
    clean = samples.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if clean.true_labels is not None:
        raise SrjtError(
            f"{source} has a column of true grades already, so its labels are noisy: give the clean table, or "
            "--grade-column with the name of that column to start from the true grades."
        )
    kept_clean = np.zeros(len(clean), dtype=bool)
    if "split" in clean.table and not include_test:
        kept_clean = (clean.table["split"] == "test").to_numpy(dtype=bool)
    corrupted = clean.select(~kept_clean)
    if not len(corrupted):
        raise SrjtError(
            "All samples are marked test, and test labels stay clean: --include-test corrupts them too."
        )
    if rho is None and rate is not None:
        rho = noises.rho_for_rate(noise, rate=rate, class_counts=corrupted.class_counts)
    matrix = noises.transition_matrix(noise, num_classes=clean.num_classes, rho=float(rho or 0.0))
    noisy = clean.labels
    noisy[~kept_clean] = noises.corrupt(corrupted.labels, matrix, seed=seed, ids=corrupted.ids)
    with output.writing(out):
        if clean.are_features and out.suffix == ".npz":
            write_atomically(out, pack_features(clean.with_noisy_labels(noisy)))
        else:  # for features, the labels alone: to be given as --labels
            write_table(clean.with_noisy_labels(noisy), out)

    report = noises.report(corrupted.labels, noisy[~kept_clean], matrix)
    _print_noise(report, clean.grades)
    if report.ill_conditioned:
        say(
            f"The noise matrix is nearly singular (condition number {report.condition_number:.0f}): methods "
            "that invert it (garg) are unreliable here."
        )
    say(f"{noise} noise with ρ = {rho:.4g}, seed {seed}, on {count_of(len(corrupted), 'label')}: {out}")
    if kept_clean.any():
        clean_labels = int(kept_clean.sum())
        say(f"The {count_of(clean_labels, 'test label')} {'stays' if clean_labels == 1 else 'stay'} clean.")


def _print_noise(report: NoiseReport, grades: tuple[str, ...]) -> None:
    import pandas as pd

    realised = [rate if count else float("nan")
                for rate, count in zip(report.per_class_realised, report.class_counts, strict=True)]  # fmt: skip
    frame = pd.DataFrame(
        {
            "true grade": [*grades, "all"],
            "samples": [*report.class_counts, sum(report.class_counts)],
            "nominal": [*report.per_class_nominal, report.nominal_rate],
            "realised": [*realised, report.realised_rate],
        }
    )
    formats = {"nominal": ".4f", "realised": ".4f"}
    output.print_table(frame, title="Share of wrong labels", formats=formats, rule_before=[len(grades)])


# ``srjt data synthetic``: write the synthetic data set to a folder.


def synthetic(
    folder: Path = typer.Argument(
        ..., metavar="DIR", help="New or empty folder for the images and labels.csv."
    ),
    images: int = typer.Option(1200, help="Number of images."),
    patients: int = typer.Option(120, help="Number of patients."),
    size: int = typer.Option(64, help="Side of the images in pixels, 32 to 256."),
    grades: int = typer.Option(4, help="Number of grades, 2 to 10."),
    seed: int = typer.Option(0, help="The same seed gives the same bytes."),
) -> None:
    """Write the synthetic data set: images of known true severity.

    Endoscopy-like PNG files and labels.csv (image, grade, patient, severity).
    Neighbouring grades are ambiguous near their boundary, patients
    differ in appearance and severity, and severe grades are rare.
    """
    from srjt.data.synthetic import check_empty, generate, write

    check_empty(folder)  # before drawing, not after
    drawn, written = itertools.count(1), itertools.count(1)
    with progress_bar("Drawing", True) as draw:
        manifest = generate(
            images=images,
            patients=patients,
            size=size,
            grades=grades,
            seed=seed,
            progress=lambda: draw(next(drawn), images),
        )
    with progress_bar("Writing", True) as advance:
        labels = write(manifest, folder, progress=lambda: advance(next(written), images))
    counts = ", ".join(str(n) for n in manifest.class_counts)
    typer.echo(
        f"{count_of(images, 'image')} of {count_of(patients, 'patient')} in {folder}; per grade: {counts}."
    )
    typer.echo(f"Next: srjt data inspect {shlex.quote(str(labels))}")


# ``srjt data limuc``: download LIMUC and check that it is complete.


def limuc(
    directory: Path = argument(..., "Folder of LIMUC.", metavar="DIR"),
    download: bool = option(
        False, "Download it from Zenodo (record 5827695) if it is not complete.", "--download"
    ),
    url: str | None = option(None, "A mirror of the archive.", hidden=True),
) -> None:
    """Check LIMUC (11,276 endoscopic images of 564 patients, Mayo 0 to 3); download it with --download.

    Repeat the command to resume an interrupted download.
    Exit status 1 if the counts differ from the published ones.
    """
    from srjt.data.sources import folders as source
    from srjt.data.sources import read
    from srjt.errors import SrjtError

    if download and not (source.find_patients(directory) and _is_complete(directory)):
        _download(url or source.LIMUC_URL, directory, source.LIMUC_ARCHIVE)
    if not directory.is_dir():
        raise SrjtError(f"{directory} does not exist; --download downloads the data into it.")
    reading = read(directory, kind="limuc")
    _check(reading, source.limuc_differences(reading.manifest), directory)


def _check(
    reading: LoadedData, differences: list[str], directory: Path, *, counted: str = "published"
) -> None:
    """Print what a published data set holds; exit status 1 if it is not as published."""
    from srjt.data.manifest import errors_in

    samples.print_grades(reading.manifest)
    samples.print_problems(list(reading.problems))
    if differences or errors_in(reading.problems):
        typer.secho("Not as published:", fg=typer.colors.RED)
        typer.echo("\n".join(f"  {difference}" for difference in differences))
        raise typer.Exit(1)
    typer.echo(f"All counts are as {counted}.")
    typer.echo(f"Next: srjt data inspect {shlex.quote(str(directory))}")


def _is_complete(directory: Path) -> bool:
    from srjt.data.sources import read
    from srjt.data.sources.folders import limuc_differences

    return not limuc_differences(read(directory, kind="limuc").manifest)


def _download(url: str, directory: Path, archive_name: str) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from srjt.console import Console
    from srjt.files import download, extract

    archive = directory / archive_name
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not archive.exists():
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("Downloading", total=None)
            download(url, archive, progress=lambda done, all_: bar.update(task, completed=done, total=all_))
    with Progress(console=console) as bar:
        task = bar.add_task("Unpacking", total=None)
        extract(archive, directory, progress=lambda done, all_: bar.update(task, completed=done, total=all_))
    archive.unlink()  # its contents are beside it now


# ``srjt data dr``: check that Kaggle's diabetic retinopathy data are complete.


def dr(
    directory: Path = argument(..., "Folder with trainLabels.csv and the images.", metavar="DIR"),
    images: Path | None = option(
        None, "Folder of the images. [default: train/, images/ or DIR itself]", metavar="DIR"
    ),
) -> None:
    """Check Kaggle's Diabetic Retinopathy Detection data (35,126 labels of 17,563 patients, grades 0 to 4).

    They must be downloaded by hand, after accepting the competition's rules.
    Exit status 1 if the counts are neither Kaggle's nor the paper's (35,108),
    or if images are missing.
    """
    from srjt.data.sources import folders as source
    from srjt.data.sources import read

    reading = read(directory, images=images, kind="dr")
    manifest = reading.manifest
    differences = source.dr_differences(manifest)
    absent = [path for path in manifest.paths if not os.path.isfile(path)]
    if absent:
        differences.append(
            f"not in {manifest.root}: {len(absent):,} of {count_of(len(manifest), 'image')}, such as {absent[0].name}"
        )
    paper = manifest.class_counts.tolist() == list(source.DR_PAPER_COUNTS)
    _check(
        reading,
        differences,
        directory,
        counted=f"{'in the paper' if paper else 'published by Kaggle'}; no image is missing",
    )


data_app = App(
    help="Inspect, check, split and corrupt data; make or download a data set.",
    no_args_is_help=True,
    add_completion=False,
)
data_app.add(inspect, split, corrupt, synthetic, limuc, dr)
