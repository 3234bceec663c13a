"""``srjt predict``, ``srjt evaluate``, ``srjt compare`` and ``srjt plan``: the answers of runs, what they are worth,
and how many samples it takes to know that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from srjt.cli import options
from srjt.cli.options import argument, option
from srjt.cli.output import check_outputs, decoding_bar, finish, say, typed_command, writing
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import write_json, write_output
from srjt.inference.options import EVALUATION, Answering, Evaluating, Grading, Planning
from srjt.settings import from_names

if TYPE_CHECKING:
    from srjt.data.manifest import Manifest, Problem
    from srjt.inference.predict import Kind
    from srjt.training.trained import Trained

# How commands show decisions, and the options about them that they share.

Options = TypeVar("Options", bound=Answering)


def named_run(run: Trained, names: str | None) -> Trained:
    """The run with the grade names that were given, or with its own."""
    from srjt.data.grades import parse_grade_names

    return replace(run, grades=run.grades.named(parse_grade_names(names)))


def opened(
    folder: Path, asked: Options, how: Mapping[str, Any], *, about: Mapping[Kind, Sequence[str]],
    device: str | None, grade_names: str | None, calibrate_set: Sequence[str] | None,
) -> tuple[Trained, Options]:  # fmt: skip
    """The run, and how it answers: everything that can be checked before samples are read.

    about: options of reading that are about images, or about features, only.
    """
    from srjt.cli.samples import calibration_samples
    from srjt.inference.predict import refuse_other_options
    from srjt.training.trained import load_run

    run = named_run(load_run(folder, device=device), grade_names)
    run.views(asked.views)  # an error if the run has no such views
    refuse_other_options(run, how, about=about)
    if (share := _share(asked.calibrate_on)) is not None:
        return run, replace(asked, calibrate_on=share)
    samples = calibration_samples(
        asked.calibrate_on, calibrate_set, how=how, grades=run.grades, on_bad_image=asked.on_bad_image
    )
    return run, replace(asked, calibrate_on=samples)


def _share(text: object) -> float | None:
    """A number between 0 and 1 that is not the name of a file; None for anything else."""
    try:
        share = float(str(text))
    except ValueError:
        return None
    return share if 0 < share < 1 and not Path(str(text)).exists() else None


# ``srjt predict``: grades for new images.


@options.reads_a_source(only=("images", "image_column", "patient_column", "feature_columns"))
@options.takes(Answering, as_="answering")
def predict(
    run: options.Run,
    sources: list[Path] = argument(
        ..., "Image files, folders or a CSV file; or one file of features.", metavar="IMAGES"
    ),
    out: Path = option(Path("predictions.csv"), "CSV file to write.", metavar="FILE"),
    html: options.Html = None,
    force: options.Force = False,
    *,
    answering: dict[str, Any],
    calibrate_set: options.CalibrateSet = None,
    keep: list[str] | None = option(
        None, "Keep this column of the table in the predictions. Repeatable.", metavar="COLUMN"
    ),
    grade_names: options.GradeNames = None,
    device: options.Device = None,
    import_: options.Import = None,
    skipped: options.Skipped = Path("skipped.csv"),
    how: dict[str, Any],
) -> None:
    """Predict grades: probability per grade, expected grade, entropy, disagreement of the two networks."""
    from srjt.cli.samples import list_unreadable, usable
    from srjt.data.manifest import neutralise_formula, warn_about_formulas
    from srjt.data.sources.features import read_ungraded_features
    from srjt.data.sources.folders import read_images
    from srjt.files import is_stream
    from srjt.inference.options import as_columns
    from srjt.inference.predict import predict as predict_run
    from srjt.inference.predict import refuse_other_kind

    check_outputs(out, html, force=force)
    trained, asked = opened(
        run, Answering.of(answering), how,
        about={"features": ["feature_columns"], "images": ["images", "image_column"]},
        device=device, grade_names=grade_names, calibrate_set=calibrate_set,
    )  # fmt: skip
    columns = (*asked.columns, *as_columns(keep))
    problems: tuple[Problem, ...] = ()
    if not how.keys() & {"feature_columns", "image_column"}:  # else the columns are what is said
        refuse_other_kind(trained, sources)
    if len(trained.in_shape) == 1:
        if len(sources) > 1:
            raise SrjtError(f"{run} was trained on features: give one file of features at a time.")
        manifest = read_ungraded_features(
            sources[0], wanted=trained.feature_names, columns=columns, grades=trained.grades, **how
        )
    else:
        reading = read_images(sources, columns=columns, grades=trained.grades, progress=True, **how)
        manifest = usable(reading, on_bad_image=asked.on_bad_image, skipped=skipped)
        problems = reading.problems
    with decoding_bar() as decoded:
        table = predict_run(trained, manifest, keep=as_columns(keep), progress=decoded, **vars(asked))
    predicted = table.copy()
    ours = [name for name in ("grade", "grade_name", "grade_low", "grade_high") if name in table]
    if not trained.grades.names and "grade_name" in ours:
        ours.remove("grade_name")  # a column of the source
    warn_about_formulas(table.drop(columns=ours), out)  # cells that come from the source
    for column in ours:
        table[column] = table[column].map(neutralise_formula)
    with writing(out):
        content = table.to_csv(index=False, float_format="%.6g").encode("utf-8", "surrogateescape")
        streamed = is_stream(out)
        write_output(out, content)
    from srjt.reports.pages.answers import predictions_page

    page = predictions_page(
        trained, predicted, data=manifest, sources=sources, command=typed_command("predict"),
        skipped=[(problem.where, problem.detail) for problem in problems], brief=html is None,
    )  # fmt: skip
    finish(page, out=out, html=html, err=streamed)
    if left_out := table.attrs["skipped"]:
        list_unreadable(left_out, skipped, problems=problems)
        named = ", ".join(sample for sample, _ in left_out[:3]) + (", …" if len(left_out) > 3 else "")
        say(f"{count_of(len(left_out), 'image')} could not be read: {named}. Listed in {skipped}.", err=True)


# ``srjt evaluate``: a run, judged by labels that it has not seen.


@options.reads_a_source(without=("grades",))
@options.takes(Evaluating, as_="answering")
def evaluate(
    run: options.Run,
    source: options.SourceArgument,
    *,
    answering: dict[str, Any],
    calibrate_set: options.CalibrateSet = None,
    side: str | None = option(
        None,
        "Judge this side only. [default: test, with --fold or --splits]",
        metavar="train|validation|test",
        panel=EVALUATION,
    ),
    fold: options.Fold = None,
    folds: options.Folds = 5,
    split_seed: options.SplitSeed = 0,
    splits: options.Splits = None,
    hold_out: options.HoldOut = None,
    group_near_duplicates: options.GroupNearDuplicates = False,
    grade_names: options.GradeNames = None,
    out: Path | None = option(
        None, "Write everything to a JSON file too, or the groups to a CSV file.", metavar="FILE"
    ),
    html: options.Html = None,
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    skipped: options.Skipped = Path("skipped.csv"),
    how: dict[str, Any],
) -> None:
    """Evaluate a run: metrics with 95 % intervals, confusion matrix, calibration.

    With --refer-from: sensitivity, specificity, predictive values and areas of
    the decision to refer. With --per patient: one answer per patient.

    The run is judged by the true grades if the data have them, else by the grades
    as given, or by the consensus with --several-readings consensus: the network is
    then compared with each reader too. Intervals resample patients. All samples of
    the source are used. Give --fold, --splits and --group-near-duplicates as you
    gave them to srjt train to use the test side of that fold, or --side test alone
    to use the split column.
    """
    from srjt.cli.samples import check_fold, chosen_split, grouped, usable
    from srjt.data.sources import read
    from srjt.inference.evaluate import evaluate
    from srjt.reports.pages.evaluation import evaluation_page

    if splits is None and hold_out is None:
        check_fold(fold, folds)
    check_outputs(out, html, force=force)
    if out is not None and out.suffix == ".csv" and "by" not in answering:
        raise SrjtError(
            "A CSV file holds the scores of groups: give `by`, or a JSON file for everything else."
        )
    trained, asked = opened(
        run, from_names(Evaluating, answering, kind="option"), how,
        about={"features": ["feature_columns", "labels"]},
        device=device, grade_names=grade_names, calibrate_set=calibrate_set,
    )  # fmt: skip
    reading = read(source, grades=list(trained.grades), **how)
    manifest = usable(reading, on_bad_image=asked.on_bad_image, skipped=skipped)
    chosen = fold is not None or splits is not None or hold_out is not None
    if side is not None or chosen:
        split = chosen_split(
            fold=fold, folds=folds, seed=split_seed, file=splits,
            official=None if chosen else True,
            skipping=asked.on_bad_image == "skip", hold_out=hold_out,
        )  # fmt: skip
        assert split is not None
        if chosen and splits is None:
            manifest = grouped(manifest, near=group_near_duplicates)
        sides = split(manifest).sides()
        if (side := side or "test") not in sides:
            raise unknown_name("side", side, sides)
        manifest = manifest.select(sides[side])
        if not len(manifest):
            raise SrjtError(f"The {side} side has no samples.")
    if side != "train" and (seen := len(trained.trained_on(manifest))):
        what = "rows of features" if manifest.are_features else "images"
        raise SrjtError(
            f"{seen:,} of {len(manifest):,} {what} were trained on, and a score on them says nothing about new ones: "
            f"add {_held_out_options(trained, run, manifest)}, or give {what} that the run has not seen."
        )
    with decoding_bar() as decoded:
        found = evaluate(trained, manifest, readings=reading.readings, progress=decoded, **vars(asked))

    if out is not None:  # before anything is printed: the reader (head, less) may go away
        with writing(out):
            if out.suffix == ".csv":
                write_output(out, found.subgroups.table().to_csv(index=False).encode())  # type: ignore[union-attr]
            else:
                write_json(out, found.to_dict(), follow_links=True)
    page = evaluation_page(
        found, run=trained, data=manifest, sources=[source], command=typed_command("evaluate"),
        brief=html is None,
    )  # fmt: skip
    finish(page, out=out, html=html)


def _held_out_options(trained: Trained, folder: Path, manifest: Manifest) -> str:
    """The options with which ``srjt train`` has split the data; else the split column, or the sides of the run."""
    import shlex

    command = (trained.facts and trained.facts.provenance.get("command")) or ""
    words = [
        part
        for word in shlex.split(str(command))
        for part in (word.split("=", 1) if word.startswith("--") else [word])
    ]
    named = ("--fold", "--folds", "--split-seed", "--splits", "--hold-out")
    given = [f"{name} {shlex.quote(words[k + 1])}" for k, name in enumerate(words[:-1]) if name in named]
    if given:
        return " ".join(given + [word for word in words if word == "--group-near-duplicates"])
    return "--side test" if "split" in manifest.table else f"--splits {shlex.quote(str(folder))}"


# ``srjt compare``: runs on the same images, with intervals of their differences.


@options.reads_a_source(without=("grades",))
@options.takes(Grading, as_="grading")
def compare(
    runs: list[Path] = argument(
        ...,
        "Folders of finished runs; each is compared with the first.",
        metavar="RUN",
    ),
    test: Path | None = option(
        None, "Labelled images to compare on. [default: the runs' common test side]", metavar="SOURCE"
    ),
    out: Path | None = option(
        None, "Write a page (.html), the figure (.svg, .png) or all numbers (.json).", metavar="FILE"
    ),
    force: options.Force = False,
    *,
    grading: dict[str, Any],
    device: options.Device = None,
    import_: options.Import = None,
    how: dict[str, Any],
) -> None:
    """Compare runs on the same images: differences with 95 % intervals by patient.

    The runs must have been tested on the same images, or be given others with
    --test. Each run is compared with the first.
    """
    from srjt.data.manifest import drop_unusable
    from srjt.data.sources import read
    from srjt.inference.compare import compare as compare_runs
    from srjt.inference.predict import refuse_other_options
    from srjt.reports.report import check_suffix, write_comparison
    from srjt.training.trained import load_run

    if out is not None:
        check_suffix(out)
    check_outputs(out, force=force)
    if test is None and how:
        raise SrjtError(f"`{next(iter(how))}` is about the images of --test, which is not given.")
    trained = [load_run(run, device=device) for run in runs]
    samples = None
    if test is not None:
        refuse_other_options(trained[0], how, about={"features": ["feature_columns", "labels"]})
        reading = read(test, grades=list(trained[0].grades), **how)
        samples = drop_unusable(reading.manifest, reading.problems, on_bad_image="error")
    found = compare_runs(*trained, test=samples, **grading)
    if out is not None:
        with writing(out):
            write_comparison(found, out)
    finish(found.report(), out=out)


# ``srjt plan``: how many patients, readings and verified labels are needed.


@options.takes(Planning, as_="planning")
def plan(
    pilot: Path | None = argument(
        None,
        "A finished run, whose test side is the pilot. [default: assumed values]",
        metavar="RUN",
    ),
    *,
    planning: dict[str, Any],
    out: Path | None = option(None, "Write everything to a JSON file too.", metavar="FILE"),
    html: options.Html = None,
    force: options.Force = False,
) -> None:
    """Plan a study: how many patients, readings and verified labels a wanted interval takes.

    From a pilot run, or from what you assume: --metric sensitivity --value 0.9
    --half-width 0.05 --prevalence 0.2 --images-per-patient 2 --correlation 0.3.
    """
    from srjt.inference.sample_size import plan as plan_samples

    check_outputs(out, html, force=force)
    found = plan_samples(pilot, **planning)
    if out is not None:
        with writing(out):
            write_json(out, found.to_dict(), follow_links=True)
    finish(found.report(), out=out, html=html)
