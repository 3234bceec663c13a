"""What is done with finished runs: ``srjt predict``, ``evaluate``, ``compare``, ``explain`` and
``export``; and ``srjt plan``, how many samples it takes to know what one is worth.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import srjt
from srjt.cli import check_outputs, finish, options, print_line, say, typed_command
from srjt.cli.options import Fields, argument, option
from srjt.errors import Option, SrjtError, count_of, unknown_name
from srjt.files import as_csv, as_json, exists_already, is_stream, write_output
from srjt.inference.options import (
    EVALUATION,
    Answering,
    Evaluating,
    Grading,
    as_columns,
    with_installed_aspects,
)
from srjt.inference.planning import Planning
from srjt.text import few

if TYPE_CHECKING:
    from srjt.inference.predict import Kind, Predictions
    from srjt.training.trained import Trained

Options = TypeVar("Options", bound=Answering)
ABOUT_FEATURES: dict[Kind, list[str]] = {"features": ["feature_columns", "labels"]}
# options about columns that a source and --calibrate-on have in common; the other options are about
# the source
SHARED = (
    "image_column",
    "grade_column",
    "map_grades",
    "patient_column",
    "verified_grade_column",
    "feature_columns",
    "several_readings",
    "reader_column",
    "reference_column",
)


def check_files(out: Path | None, html: Path | None, *, force: bool) -> None:
    """An error before anything is computed: a page belongs to --html, and no file is overwritten by
    accident."""
    if out is not None and out.suffix.lower() in (".html", ".svg", ".png"):
        raise SrjtError(
            f"--out writes the numbers. To write a page, use --html {out.with_suffix('.html')}.",
            code="wrong_file",
            option="out",
        )
    check_outputs(out, html, force=force)


def opened(
    folder: Path,
    answering: Options,
    reading_options: Mapping[str, Any],
    *,
    about: Mapping[Kind, Sequence[str]],
    device: str | None,
    grade_names: options.GradeNames,
) -> tuple[Trained, Options]:
    """The run, and how it answers: everything that can be checked before samples are read.

    about: options of reading that are about images, or about features, only.
    """
    from srjt.data.sources import read_source
    from srjt.inference.predict import refuse_other_options

    run = srjt.load_run(folder, device=device)
    run = replace(run, grades=run.grades.named(grade_names))
    run.views(answering.views)  # an error if the run has no such views
    refuse_other_options(run, reading_options, about=about)
    if answering.calibrate_on is None:
        return run, answering
    if re.fullmatch(r"0?\.\d+", str(answering.calibrate_on)):  # a share of the source
        return run, replace(answering, calibrate_on=float(str(answering.calibrate_on)))
    shared = options.named_options(reading_options, SHARED)
    reading = read_source(answering.calibrate_on, grades=list(run.grades), **shared)
    samples = srjt.data.drop_unusable(reading, on_bad_image=answering.on_bad_image)
    return run, replace(answering, calibrate_on=samples)


# ``srjt predict``: grades for new images.

READ_UNGRADED = ("images", "image_column", "patient_column", "feature_columns")
UNGRADED = (
    *READ_UNGRADED,
    "on_bad_image",
    "skipped",
)  # others are taken and not used: there are no grades


def predict(
    run: options.Run,
    sources: list[Path] = argument(
        ..., "Image files, folders or a CSV file, or one file of features.", metavar="IMAGES"
    ),
    out: Path = option(
        Path("predictions.csv"), "CSV file to write, or a folder for DICOM reports."
    ),
    format_: Literal["csv", "dicom-sr"] = option(
        "csv",
        "Write a table, or one DICOM structured report per study.",
        "--format",
        metavar="csv|dicom-sr",
    ),
    html: options.Html = None,
    without_ids: options.WithoutIds = False,
    force: options.Force = False,
    *,
    answering: Annotated[Answering, Fields(with_installed_aspects(Answering))],
    keep: list[str] | None = option(
        None, "Copy this column of the table to the predictions. Repeatable.", metavar="COLUMN"
    ),
    grade_names: options.GradeNames = None,
    device: options.Device = None,
    import_: options.Import = None,
    data: Annotated[options.Source, Fields(options.Source, without=("source",), shown=UNGRADED)],
) -> None:
    """Predict the grades of new images, with probabilities and the disagreement of the two
    networks.

    For each image the table has the grade, the probability of each grade, the
    expected grade, the entropy, and the disagreement of the two networks.
    """
    from srjt.data.manifest import neutralise_formula, warn_about_formulas
    from srjt.inference.predict import usable_samples
    from srjt.reports.pages.answers import predictions_page

    if format_ == "dicom-sr":
        _check_dicom_reports(out, answering, force=force)
        check_files(None, html, force=force)
    else:
        check_files(out, html, force=force)
    data = data.of_tables(sources)
    reading_options = options.named_options(data.reading_options, READ_UNGRADED)
    answering = replace(answering, on_bad_image=data.bad_images)
    trained, answering = opened(
        run,
        answering,
        reading_options,
        about={"features": ["feature_columns"], "images": ["images", "image_column"]},
        device=device,
        grade_names=grade_names,
    )
    columns = (*answering.columns, *as_columns(keep))
    manifest, problems = usable_samples(
        trained,
        sources,
        columns=columns,
        on_bad_image=data.bad_images,
        listed_in=data.skipped,
        progress=True,
        **reading_options,
    )
    predicted = srjt.predict(trained, manifest, keep=as_columns(keep), **vars(answering))
    table = predicted.copy()
    ours = [name for name in ("grade", "grade_name", "grade_low", "grade_high") if name in table]
    if not trained.grades.names and "grade_name" in ours:
        ours.remove("grade_name")  # a column of the source
    warn_about_formulas(table.drop(columns=ours), out)  # cells that come from the source
    table[ours] = table[ours].map(neutralise_formula)
    if format_ == "dicom-sr":
        _write_dicom_reports(trained, predicted, manifest, out, coverage=answering.coverage)
    else:
        write_output(
            out, table.to_csv(index=False, float_format="%.6g").encode("utf-8", "surrogateescape")
        )
    page = predictions_page(
        predicted,
        data=manifest,
        sources=sources if html else (),
        command=typed_command("predict"),
        skipped=[(problem.where, problem.detail) for problem in problems],
        pictures=html is not None,
    )
    hide = _names(manifest) if without_ids else None
    finish(page, out=out, html=html, err=is_stream(out), hide=hide)
    data.list_unreadable(predicted.attrs["skipped"], problems, tell=True)


def _check_dicom_reports(out: Path, answering: Answering, *, force: bool) -> None:
    """Raise an error if there cannot be a report of each study in this folder, before anything is
    computed."""
    if answering.per:
        raise SrjtError(
            "--format dicom-sr cannot be combined with --per.", code="conflict", option="per"
        )
    if out.suffix or (out.exists() and not out.is_dir()):
        raise SrjtError(
            f"DICOM reports are written to a folder, and {out} is not one. Use --out reports.",
            code="wrong_file",
            option="out",
        )
    if out.is_dir() and any(out.glob("*.dcm")) and not force:
        raise exists_already(out)


def _write_dicom_reports(
    run: Trained,
    predicted: Predictions,
    manifest: srjt.data.Manifest,
    out: Path,
    *,
    coverage: float | None,
) -> None:
    """Write a report of each study."""
    from srjt.integrations.dicom_sr import write_reports

    path_of = dict(zip(manifest.table["image"], manifest.paths, strict=True))
    promise = ""
    if coverage is not None:
        promise = f"The range should contain the true grade of {coverage:.0%} of the images."
    written = write_reports(
        predicted,
        [path_of[name] for name in predicted["image"]],
        out,
        grades=list(run.grades),
        model=Path(run.folder or "run").absolute().name,
        version=srjt.__version__,
        promise=promise,
    )
    say(f"{count_of(len(written), 'report')} written to {out}.")


def evaluate(
    run: options.Run,
    *,
    evaluating: Annotated[Evaluating, Fields(with_installed_aspects(Evaluating))],
    side: str | None = option(
        None,
        "Evaluate this side only. [default: test, if --fold or --splits is given]",
        metavar="train|validation|test",
        panel=EVALUATION,
    ),
    sides: options.Sides,
    group_near_duplicates: options.NearDuplicates = False,
    grade_names: options.GradeNames = None,
    out: Path | None = option(
        None, "Also write everything to a JSON file, or the scores of groups to a CSV file."
    ),
    html: options.Html = None,
    without_ids: options.WithoutIds = False,
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    data: Annotated[options.Source, Fields(options.Source, without=("grades",))],
) -> None:
    """Evaluate a run: metrics with 95 % intervals, confusion matrix and calibration.

    With --refer-from, the decision to refer is evaluated too: sensitivity,
    specificity, predictive values and areas under the curves. With --per patient,
    there is one answer per patient. Intervals are computed by resampling patients.

    Predictions are compared with the true grades if the data have them, otherwise
    with the given grades. With --several-readings consensus, they are compared with
    the consensus and with each reader.

    By default all samples of the source are used. To use the test side of a fold,
    give --fold, --splits and --group-near-duplicates as you gave them to srjt
    train. To use the split column of the data, give --side test alone.
    """
    from srjt.reports.pages.evaluation import evaluation_page

    check_files(out, html, force=force)
    groups = out is not None and out.suffix == ".csv"
    if groups and not evaluating.by:
        raise SrjtError(
            "A CSV file of scores needs --by, the groups. Without groups, --out needs a JSON file.",
            code="missing_option",
            option="by",
        )
    evaluating = replace(evaluating, on_bad_image=data.bad_images)
    trained, evaluating = opened(
        run,
        evaluating,
        data.reading_options,
        about=ABOUT_FEATURES,
        device=device,
        grade_names=grade_names,
    )
    reading = data.read(grades=list(trained.grades))
    manifest = data.usable(reading)
    if side is not None or sides.chosen:
        if sides.chosen and sides.splits is None:
            manifest = options.grouped(manifest, near=group_near_duplicates)
        if not sides.chosen:
            sides = replace(sides, official_split=True)
        rows = sides.split(manifest, skipping=data.skipping).sides()
        if (side := side or "test") not in rows:
            raise unknown_name("side", side, rows)
        manifest = manifest.select(rows[side])
        if not len(manifest):
            raise SrjtError(f"The {side} side has no samples.", code="too_few", option="side")
    if side != "train":
        instead = ""
        if trained.facts.data.shared_patients:  # --splits would refuse such sides
            instead = "train again with --fold 0, which keeps each patient on one side, or "
        elif "test" in trained.held_out and set(trained.training_ids) <= set(manifest.ids):
            instead = f"add --splits {shlex.quote(str(run))} to use its test side, or "
        _refuse_trained(trained, manifest, instead=instead)
    judged = srjt.evaluate(trained, manifest, readings=reading.report.readings, **vars(evaluating))
    if out is not None:  # before anything is printed: the reader (head, less) may go away
        content = as_json(judged.to_dict())
        if groups and judged.subgroups is not None:
            content = as_csv(judged.subgroups.table())
        write_output(out, content)
    page = evaluation_page(
        judged,
        run=trained if html else None,
        data=manifest,
        sources=[data.source],
        command=typed_command("evaluate"),
    )
    finish(page, out=out, html=html, hide=_names(manifest) if without_ids else None)


def _names(manifest: srjt.data.Manifest) -> set[str]:
    """What names samples and patients."""
    return {
        *manifest.ids,
        *(manifest.patients or ()),
        *(Path(name).name for name in manifest.table["image"]),
    }


def _refuse_trained(run: Trained, manifest: srjt.data.Manifest, *, instead: str) -> None:
    """Raise an error if the run was trained on some of the samples. instead: an option that would
    help."""
    seen = run.trained_on(manifest)
    if len(seen):
        what = options.samples_noun(manifest)
        which = few(manifest.ids[row] for row in seen)
        raise SrjtError(
            f"The run was trained on {len(seen):,} of the {len(manifest):,} {what} ({which}), or on"
            f" copies of them, and scores on them say nothing about new {what}: {instead}give"
            f" {what} that the run has not seen.",
            code="seen_in_training",
        )


# ``srjt compare``: runs on the same images, with intervals of their differences.

COMPARED = {"source", "skipped", "grades"}


def compare(
    runs: list[Path] = argument(
        ..., "Folders of finished runs. Each is compared with the first.", metavar="RUN"
    ),
    test: Path | None = option(
        None,
        "Labelled images to compare on. [default: the runs' common test side]",
        metavar="SOURCE",
    ),
    out: Path | None = option(None, "Also write everything to a JSON file."),
    html: options.Html = None,
    force: options.Force = False,
    *,
    grading: Annotated[dict[str, Any], Fields(Grading)],
    device: options.Device = None,
    import_: options.Import = None,
    data: Annotated[options.Source, Fields(options.Source, without=COMPARED)],
) -> None:
    """Compare runs on the same images, with 95 % intervals of their differences.

    The runs must have the same test side. If they do not, give other labelled
    images with --test. Each run is compared with the first. Intervals are
    computed by resampling patients.
    """
    from srjt.inference.predict import refuse_other_options

    check_files(out, html, force=force)
    if test is None and data.reading_options:
        raise SrjtError(
            Option(next(iter(data.reading_options))),
            " needs --test, the images that it is about.",
            code="missing_option",
        )
    trained = [srjt.load_run(run, device=device) for run in runs]
    samples = None
    if test is not None:
        data = replace(data, source=test).with_reading_file()
        refuse_other_options(trained[0], data.reading_options, about=ABOUT_FEATURES)
        reading = data.read(grades=list(trained[0].grades))
        samples = srjt.data.drop_unusable(reading, on_bad_image=data.bad_images)
        for run in trained:
            _refuse_trained(
                run, samples, instead="leave out --test to use the runs' common test side, or "
            )
    comparison = srjt.compare(*trained, test=samples, **grading)
    if out is not None:
        write_output(out, as_json(comparison.to_dict()))
    finish(srjt.report(comparison), out=out, html=html)


def plan(
    pilot: Path | None = argument(
        None,
        "A finished run, whose test side is used as the pilot, or a folder of srjt readers."
        " [default: assumed values]",
        metavar="RUN",
    ),
    *,
    planning: Annotated[dict[str, Any], Fields(Planning)],
    out: Path | None = option(None, "Also write everything to a JSON file."),
    html: options.Html = None,
    force: options.Force = False,
) -> None:
    """Compute how many patients, readings and verified labels a study needs for an interval of the
    wanted width.

    Give a pilot run, or the values that you assume, as in: srjt plan --metric
    sensitivity --value 0.9 --half-width 0.05 --prevalence 0.2 --images-per-patient
    2 --correlation 0.3.
    """
    check_files(out, html, force=force)
    if pilot is not None and (pilot / "readers.json").is_file():
        planned = _plan_of_readers(pilot, **planning)
    elif pilot is not None and pilot.is_dir() and not any(pilot.glob("*.json")):
        raise SrjtError(
            f"{pilot} is neither the folder of a run nor that of srjt readers.", code="wrong_file"
        )
    else:
        planned = srjt.plan(pilot, **planning)
    if out is not None:
        write_output(out, as_json(planned.to_dict()))
    finish(srjt.report(planned), out=out, html=html)


def _plan_of_readers(folder: Path, *, half_width: float = 0.05, **others: Any) -> Any:
    """The plan of a study of readers, from the folder of its first readings."""
    from srjt.auditing.blind_readings import continued_study
    from srjt.data.sources.readings import combine
    from srjt.readers.agreement import agreement
    from srjt.readers.reader_plan import plan_readings

    if others:
        name = next(iter(others)).replace("_", "-")
        raise SrjtError(
            f"--{name} has no effect on the plan of a study of readers, which has --half-width"
            " alone.",
            code="option_without_effect",
            option=next(iter(others)),
        )
    loaded = continued_study(folder, given={}).loaded
    readings = loaded.readings
    return plan_readings(
        readings,
        agreement(readings),
        combine(readings),
        half_width=half_width,
        noun=loaded.columns.noun,
    )


# ``srjt explain``: where the networks look, on a page.


READ = (
    "images",
    "image_column",
    "grade_column",
    "several_readings",
    "reader_column",
    "reference_column",
    "kind",
    "on_bad_image",
    "skipped",
)


def explain(
    run: options.Run,
    sources: list[Path] = argument(..., "Image files, folders or a CSV file.", metavar="IMAGES"),
    out: Path = option(Path("explanation.html"), "HTML file to write.", callback=options.html_file),
    training: Path | None = option(
        None,
        "The data that the run was trained on, read with the same options, to show the most"
        " similar training images.",
        metavar="SOURCE",
    ),
    limit: int = option(50, "Explain at most this many images.", min=1, max=500),
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    *,
    data: Annotated[
        options.Source, Fields(options.Source, without=("source", "grades"), shown=READ)
    ],
) -> None:
    """Show which parts of each image raise or lower its expected grade.

    The page shows the maps of both networks side by side. With --training, it also
    shows the most similar training images and their labels.
    """
    from srjt.data.sources.folders import read_images
    from srjt.data.sources.table import is_table
    from srjt.reports.page import write_page
    from srjt.reports.pages.answers import explain_page
    from srjt.reports.sections import run_name

    check_outputs(out, force=force)
    trained = srjt.load_run(run, device=device)
    # images that are no table have no use for a folder and a column of images: they are for
    # --training
    typed = data
    data = data.of_tables(sources)
    tables = [path for path in sources if path.is_file() and is_table(path)]
    of_images: dict[str, Any] = {}
    if training is None or tables:
        of_images = options.named_options(data.reading_options, ("images", "image_column"))
    reading = read_images(sources, **of_images, grades=trained.grades)
    manifest = data.usable(reading)
    total = len(manifest)
    samples = None
    if training is not None:
        learning = replace(typed, source=training).with_reading_file()
        learnt = learning.read(grades=list(trained.grades))
        samples = srjt.data.drop_unusable(learnt, on_bad_image=learning.bad_images)
    explanation = srjt.explain(
        trained,
        manifest.select(range(min(limit, total))),
        training=samples,
        on_bad_image=data.bad_images,
    )
    data.list_unreadable(explanation.skipped, reading.report.problems, tell=False)
    write_page(explain_page(explanation, title=run_name(trained)), out)
    images = count_of(len(explanation.images), "image")
    if total > limit:
        images += f" of {total:,} (--limit {limit})"
    say(f"{images} explained in {out}.")


def export(
    run: options.Run,
    out: Path | None = option(
        None, "File to write: .onnx, or .pt2 for torch. [default: model.onnx, without --folder]"
    ),
    folder: Path | None = option(
        None,
        "Write a folder instead, to give to others: the ONNX model, its model card, its"
        " configuration, and a script that needs only onnxruntime, NumPy and Pillow.",
        metavar="DIR",
    ),
    force: options.Force = False,
    *,
    grading: Annotated[
        dict[str, Any], Fields(Answering, only=("target_metric", "decoding", "recalibrate"))
    ],
    import_: options.Import = None,
) -> None:
    """Export a run to one ONNX file, with its cropping, normalisation and all networks.

    The input of the model is a batch of uint8 RGB images (N, H, W, 3), resized to
    the image size of the run, or of features (N, F). Its outputs are probabilities,
    grade and severity. The file is written only if it predicts the same as the run.
    """
    from srjt.reports.aspects.grading import grade_in_words
    from srjt.reports.model_card import MODEL, SCRIPT

    if folder is not None and out is not None:
        raise SrjtError(
            "--folder and --out cannot be combined: a folder has its model as model.onnx.",
            code="conflict",
            option="folder",
        )
    out = out or (folder or Path()) / MODEL
    if folder is None:
        check_outputs(out, force=force)
    trained = srjt.load_run(run, device="cpu")
    if folder is None:
        written = srjt.export(trained, out, **grading)
    else:
        written = srjt.export(trained, folder, format="folder", overwrite=force, **grading)
    say(f"{out} ({out.stat().st_size / 1e6:.1f} MB) takes {written.input}.")
    say(f"A grade is {grade_in_words(written.rule)}.")
    runtime = "onnxruntime" if written.format == "onnx" else "torch"
    say(
        f"The model was checked in {runtime} on {count_of(written.checked, 'sample')}: its"
        f" probabilities differ from the run's by at most {written.difference:.1e}."
    )
    if folder is not None:
        new = "FEATURES.npz" if len(trained.in_shape) == 1 else "IMAGES"
        say(f"{folder} also contains the model card and a script, which is run like this:")
        print_line(f"  python {shlex.quote(str(folder / SCRIPT))} {new} > predictions.csv")
