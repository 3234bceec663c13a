"""``srjt data``: inspect, check, split, corrupt, make and download data."""

from __future__ import annotations

import io
import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import srjt
from srjt.cli import SUMMARIES, App, check_outputs, options, print_line, print_table, say
from srjt.cli.options import Fields, argument, option
from srjt.errors import Message, SrjtError, count_of
from srjt.progress import progress_bar
from srjt.reports.flags import as_typed

if TYPE_CHECKING:
    from PIL.Image import Image

    from srjt.data.inspection import Inspection


def inspect(
    out: Path = option(
        Path(), "Folder for inspection.html, problems.csv and pictures.", metavar="DIR"
    ),
    folds: int = option(5, "Number of folds. Grades with fewer patients get a warning."),
    decode: bool = option(True, "Read all images, to find damaged ones and to show examples."),
    *,
    data: Annotated[options.Source, Fields(options.Source, without=("skipped",))],
) -> None:
    """Show what the data contain, and list everything that is wrong with them.

    Columns that cannot be recognised by their names are guessed from their values.
    The options for reading the source are written beside it (labels.srjt.yaml), and
    all other commands use them: edit that file, or override it with an option.
    inspection.html shows grades, examples, problems, duplicates, patients and
    sizes.

    The exit status is 0 if all samples can be used, even if there are warnings; 1
    if some cannot be used; and 2 if the source cannot be read.

    Errors are images that are missing, empty or unreadable, grades that are missing
    or invalid, and rows that contradict each other or have too few cells.

    Warnings are duplicate rows, identical and nearly identical images, identical
    images with different grades, unknown patients, patients on two sides of a split
    column, grades with too few patients, and, for LIMUC and Kaggle DR, counts that
    differ from the published ones.
    """
    from srjt.data.inspection import inspect_source

    with progress_bar("Reading images", decode) as progress:
        inspection = inspect_source(
            data.source, data.reading_options, folds=folds, decode=decode, progress=progress
        )
    show_inspection(inspection)
    ready = inspection.graded and (data.skipping or not inspection.unusable)
    known = inspection.graded and keep_options(inspection, data.on_bad_image)
    command = _next_command(inspection, data, ready=ready, known=known)
    write_inspection(inspection, out, next_command=command)
    if not command:
        raise SrjtError(Message.joined(inspection.unresolved), code="ambiguous")
    if inspection.unresolved:
        say("If this is the order of the grades, from mild to severe, run the next command.")
    elif options.machine_options(
        len(inspection.manifest), features=inspection.manifest.are_features
    ):
        say(
            "There is no GPU, so the next command uses --preset cpu: it trains on the features of a"
            " pretrained network, which takes minutes."
        )
    print_line(f"Next: {command}")
    if not ready:
        raise typer.Exit(1)


def show_inspection(inspection: Inspection) -> None:
    """Print what was found."""
    manifest = inspection.manifest
    for line in (*(f"• {note}" for note in inspection.notes), *inspection.readers):
        say(line)
    if inspection.graded:
        print_grades(manifest)
    for line in _describe(manifest):
        say(line)
    if inspection.as_published:
        say("All counts are those that were published.")
    print_problems(inspection.problems)
    if not inspection.problems:
        not_read = "" if inspection.decoded else " (the images were not read)"
        say(f"No problems were found{not_read}.")


def write_inspection(inspection: Inspection, out: Path, *, next_command: str = "") -> None:
    """Write the page, the pictures, the list of problems and the table without what cannot be
    used."""
    from srjt.data.sources.table import write_table
    from srjt.data.thumbnails import contact_sheet, pair_sheet
    from srjt.reports.pages.inspection import inspection_page

    manifest = inspection.manifest
    if inspection.problems:
        file = out / "problems.csv"
        replaced = _replaced(file)
        typed = [replace(one, detail=as_typed(one.detail)) for one in inspection.problems]
        srjt.data.write_problems(typed, file)
        say(f"All problems are listed in {file}{replaced}.")
    if inspection.decoded and not manifest.are_features:
        if len(inspection.pairs):
            pairs = pair_sheet(manifest, inspection.pairs)
            _write_picture(pairs, out / "duplicates.png", "Identical or nearly identical images")
        if inspection.graded:
            sheet = contact_sheet(manifest)
            _write_picture(sheet, out / "contact_sheet.png", "Examples of each grade")
    if (
        inspection.unusable
        and inspection.graded
        and not manifest.are_features
        and len(inspection.usable)
    ):
        file = out / f"{inspection.source.stem}_usable.csv"
        replaced = _replaced(file)
        write_table(inspection.usable, file)
        rows = count_of(len(inspection.usable), "row")
        say(f"{file} is the table without unusable samples ({rows}){replaced}.")
    page = out / "inspection.html"
    current = {"problems.csv": inspection.problems, "duplicates.png": inspection.pairs}
    earlier = [name for name, shown in current.items() if not len(shown) and (out / name).exists()]
    if earlier and page.exists():
        say(f"{' and '.join(earlier)} in this folder: from an earlier inspection.")
    inspection_page(inspection, next_command=next_command).save(page)
    say(f"The page is in {page}.")


def keep_options(inspection: Inspection, on_bad_image: str | None) -> bool:
    """Write how the source is read beside it, show it, and return whether other commands know it
    now.

    A folder that nobody may write to is no error.
    """
    from srjt.data.reading_file import reading_file, write_reading_file

    kept = inspection.kept(on_bad_image)
    file = reading_file(inspection.source)
    try:
        changed = bool(kept) and write_reading_file(inspection.source, kept)
    except SrjtError as problem:
        say(Message("The options of reading cannot be saved. ", problem), fg="yellow", err=True)
        return False
    if changed:
        words = " ".join(map(shlex.quote, options.as_words(kept)))
        say(f"{file} has the options of reading, which all other commands use: {words}")
    return True


def _next_command(inspection: Inspection, data: options.Source, *, ready: bool, known: bool) -> str:
    """What to do next: inspect it again with what is missing, or train; "" if only a person can
    say.

    known: whether other commands know how the source is read.
    """
    from srjt.files import unused_name

    if inspection.unresolved and not inspection.proposed:
        return ""
    if inspection.unresolved:
        reading = options.as_words({**data.reading_options, **inspection.proposed})
        return shlex.join(["srjt", "data", "inspect", str(data.source), *reading])
    words = ["srjt", "train", str(data.source), *_options_of(inspection, data, known=known)]
    if not ready:
        words += ["--on-bad-image", "skip"]
    words += ["--fold", "0", "--out", unused_name("run")]
    words += options.machine_options(
        len(inspection.manifest), features=inspection.manifest.are_features
    )
    return shlex.join(words)


def _options_of(inspection: Inspection, data: options.Source, *, known: bool) -> list[str]:
    """How the source is read, as words of a command; none if the file beside it says it."""
    if known:
        return []
    return options.as_words(inspection.kept(data.on_bad_image))


def _replaced(path: Path) -> str:
    if path.is_file():
        return " (the previous file was replaced)"
    return ""


def _write_picture(picture: Image, path: Path, what: str) -> None:
    """Write a PNG file, and say where it is."""
    from srjt.files import write_output

    replaced = _replaced(path)
    png = io.BytesIO()
    picture.save(png, format="PNG")
    write_output(path, png.getvalue())
    say(f"{what}: {path}{replaced}")


def _describe(manifest: srjt.data.Manifest) -> Iterator[str]:
    """Images per patient, the split, the sizes of images; of features, whether they are the
    expected numbers."""
    from srjt.data.checks import SAMPLED, image_sizes

    if manifest.patients is not None:
        counts = sorted(Counter(manifest.patients).values())
        spread = f"{counts[0]} to {counts[-1]}, median {counts[len(counts) // 2]}"
        if counts[0] == counts[-1]:
            spread = str(counts[0])
        what = "Rows" if manifest.are_features else "Images"
        yield f"{what} per patient: {spread}"
    if "split" in manifest.table:
        sides = Counter(side or "none" for side in manifest.table["split"])
        yield "Published split: " + ", ".join(f"{side} {count:,}" for side, count in sides.items())
    if sizes := Counter(image_sizes(manifest)):
        shown = ", ".join(f"{w}×{h} ({count:,})" for (w, h), count in sizes.most_common(4))
        if len(sizes) > 4:
            shown += f" and {count_of(len(sizes) - 4, 'other size')}"
        if len(manifest) > SAMPLED:
            shown += f"; from a sample of {sizes.total():,} images"
        yield f"Image sizes (width×height): {shown}"
    if manifest.arrays is not None and manifest.are_features:
        x = manifest.arrays.astype(float)
        yield (
            f"Features: {count_of(x.shape[1], 'column')} from {x.min():.4g} to {x.max():.4g}, mean"
            f" {x.mean():.4g}, {(x == 0).mean():.0%} zeros"
        )


def print_grades(manifest: srjt.data.Manifest) -> None:
    """Images and patients per grade, with a bar."""
    import pandas as pd

    counts = manifest.class_counts.tolist()
    patients = manifest.patients
    frame = pd.DataFrame(
        {
            "grade": [*manifest.grades, "all"],
            "rows" if manifest.are_features else "images": [*counts, len(manifest)],
            "share": [count / len(manifest) for count in (*counts, len(manifest))],
            "": [*(_bar(count, max(counts)) for count in counts), ""],
        }
    )
    if patients is not None:
        owners = pd.Series(patients).groupby(manifest.labels).nunique().reindex(range(len(counts)))
        frame["patients"] = [*owners.fillna(0).astype(int), len(set(patients))]
    print_table(frame, formats={"share": ".1%"}, rule_before=[len(counts)])


def _bar(count: int, most: int) -> str:
    bar = "█" * round(24 * count / most)
    if count and not bar:
        return "▏"
    return bar


def print_problems(problems: Sequence[srjt.data.Problem]) -> None:
    """Every kind with its number, what it means and the first few examples."""
    from srjt.data.problems import KINDS, examples

    for kind, severity, count, first in examples(problems):
        say(
            Message(f"{severity}: {count:,} {kind}: ", KINDS[kind][1]),
            fg="red" if severity == "error" else "yellow",
        )
        for problem in first:
            print_line("    " + ": ".join(filter(None, (problem.where, as_typed(problem.detail)))))
        if count > len(first):
            print_line(f"    … and {count - len(first):,} more")


def split(
    folds: int = option(
        5, "Number of folds. Five folds give 60 % training, 20 % validation and 20 % test."
    ),
    seed: int = option(0, "Random seed. The same seed gives the same folds on every machine."),
    by: str = option(
        "random",
        "Split patients at random, as the paper does, or stratified by their highest grade.",
        metavar="random|stratified",
    ),
    hold_out: str | None = option(
        None,
        "Make one fold for each value of this column, such as a site, and test on it.",
        metavar="COLUMN",
    ),
    out: Path = option(Path("splits.csv"), "CSV file to write, with columns id, fold and split."),
    group_near_duplicates: options.NearDuplicates = False,
    force: options.Force = False,
    *,
    data: Annotated[options.Source, Fields(options.Source)],
) -> None:
    """Split the patients into folds, each with a training, a validation and a test side.

    No patient is on two sides of a fold. In fold k, part k is the test side, part
    k+1 the validation side, and the rest the training side. The images are read
    once, to keep identical ones on the same side. Use srjt data inspect to find
    damaged images.
    """
    import pandas as pd

    def shown(rows: Any) -> str:
        part = manifest.select(rows)
        if part.patients is None:
            return f"{len(part):,}"
        return f"{len(part):,} ({len(set(part.patients)):,})"

    check_outputs(out, force=force)  # other folds under this name: results would not be comparable
    manifest = options.grouped(data.usable(data.read()), near=group_near_duplicates)
    splits = srjt.data.folds(manifest, folds=folds, seed=seed, by=by, hold_out=hold_out)
    srjt.data.write_splits(out, manifest, splits)
    rows = []
    for fold, split in enumerate(splits):
        row = {"fold": f"{fold} {split.held_out}".strip()}
        for name in ("train", "validation", "test"):
            row[name] = shown(split.sides()[name])
        counts = manifest.select(split.test).class_counts
        row["test per grade"] = " / ".join(f"{count:,}" for count in counts)
        rows.append(row)
    title = "" if manifest.patients is None else "Images, and patients in brackets"
    print_table(pd.DataFrame(rows), title=title)
    print_line(f"{count_of(len(splits), 'fold')} of {count_of(len(manifest), 'sample')}: {out}")


def corrupt(
    noise: str = option(
        "quasi",
        "Kind of noise: quasi (errors towards all other grades), truncated (neighbours only) or"
        " uniform.",
        metavar="KIND",
    ),
    rate: float | None = option(None, "Target share of wrong labels."),
    rho: float | None = option(None, "Parameter ρ of the paper, instead of --rate."),
    seed: int = option(
        0, "Random seed. The same seed and ids give the same labels on every machine."
    ),
    out: Path | None = option(
        None,
        "CSV file to write (.npz for features). [default: named after the source, in this folder]",
    ),
    force: options.Force = False,
    include_test: bool = option(
        False, "Also corrupt samples that are marked as test in the split column."
    ),
    *,
    data: Annotated[options.Source, Fields(options.Source)],
) -> None:
    """Write a copy of the labels in which some are changed at random.

    The column grade contains the noisy labels, and true_grade the original ones. A
    noisy label depends on the seed and on the id of the sample, not on other rows.
    Samples that are marked as test in the split column are not changed, as in the
    paper.
    """
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.table import write_table
    from srjt.files import write_output

    check_outputs(out, force=force)
    clean = data.usable(data.read())
    noisy, report, used_rho = srjt.data.corrupt(
        clean, noise=noise, rate=rate, rho=rho, seed=seed, include_test=include_test
    )
    if out is None:
        suffix = ".npz" if clean.are_features else ".csv"
        amount = f"rho{rho:g}" if rate is None else f"{rate:g}"
        out = Path(f"{data.source.stem}_{noise}_{amount}_seed{seed}{suffix}")
        check_outputs(out, force=force)
    if clean.are_features and out.suffix == ".npz":
        write_output(out, pack_features(noisy))
    else:  # for features, the labels alone: to be given as --labels
        write_table(noisy, out)

    say(report.describe(clean.grades))
    corrupted = sum(report.class_counts)
    say(
        f"{noise} noise with ρ = {used_rho:.4g}, seed {seed}, on {count_of(corrupted, 'label')}:"
        f" {out}"
    )
    if corrupted < len(clean):
        say(f"{count_of(len(clean) - corrupted, 'test label')} stayed as given.")


def synthetic(
    folder: Path = argument(
        ..., "New or empty folder for the images and labels.csv.", metavar="DIR"
    ),
    images: int = option(1200, "Number of images."),
    patients: int = option(120, "Number of patients."),
    size: int = option(64, "Side of the images in pixels, 32 to 256."),
    grades: int = option(4, "Number of grades, 2 to 10."),
    seed: int = option(0, "Random seed. The same seed gives the same files."),
) -> None:
    """Write a synthetic data set of images whose true severity is known.

    The folder contains PNG images that look like endoscopy, and labels.csv (image,
    grade, patient, severity). Images near the boundary of two grades are ambiguous,
    patients differ in appearance and severity, and severe grades are rare.
    """
    from srjt.data.synthetic import check_empty, generate, write

    check_empty(folder)  # before drawing, not after
    drawn = itertools.count(1)
    written = itertools.count(1)
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
    print_line(
        f"{images:,} images of {count_of(patients, 'patient')} in {folder}; per grade: {counts}."
    )
    print_line(f"Next: srjt data inspect {shlex.quote(str(labels))}")


def limuc(
    directory: Path = argument(..., "Folder to download the data to.", metavar="DIR"),
    url: str | None = option(None, "A mirror of the archive.", hidden=True),
) -> None:
    """Download LIMUC, 11,276 endoscopic images of 564 patients with Mayo scores, from Zenodo.

    This downloads record 5827695. Run the same command again to resume an interrupted
    download. The SHA-256 of the archive is kept in a file, and compared if the
    archive is downloaded again.
    """
    from srjt import download as downloads
    from srjt.data.sources.folders import LIMUC_ARCHIVE, LIMUC_URL, find_patients

    archive = directory / LIMUC_ARCHIVE
    if not archive.exists() and not find_patients(directory):
        with progress_bar("Downloading", True) as progress:
            downloads.download(
                url or LIMUC_URL,
                archive,
                progress=lambda done, total: progress(done, total or done),
            )
    if archive.exists():
        say(f"SHA-256 of the archive: {downloads.record_checksum(archive)}")
        with progress_bar("Unpacking", True) as progress:
            downloads.extract(archive, directory, progress=progress)
        archive.unlink()  # its contents are beside it now
    say(f"LIMUC is in {directory}.")
    print_line(f"Next: srjt data inspect {shlex.quote(str(directory))}")


data_app = App(inspect, split, corrupt, synthetic, limuc, help=SUMMARIES["data"])
