"""``srjt predict``: grades for new images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say
from srjt.errors import SrjtError, count_of

if TYPE_CHECKING:
    from srjt.data import Problem


@options.reads_a_source(only=("images", "image_column", "patient_column", "feature_columns"))
def predict(
    run: options.Run,
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES", help="Image files, folders or a CSV file; or one file of features."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV file to write.")] = Path("predictions.csv"),
    html: options.Html = None,
    force: options.Force = False,
    network: options.Network = "ensemble",
    optimise: options.Optimise = None,
    decode: options.Decode = None,
    views: options.Views = 1,
    coverage: options.Coverage = None,
    coverage_by: options.CoverageBy = None,
    calibrate_on: options.CalibrateOn = None,
    calibrate_set: options.CalibrateSet = None,
    label_noise: options.LabelNoise = "unknown",
    recalibrate: options.Recalibrate = True,
    refer_from: options.ReferFrom = None,
    threshold: options.Threshold = None,
    sensitivity: options.Sensitivity = None,
    abstain: options.Abstain = None,
    per: options.Per = None,
    pool: options.Pool = "highest",
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Keep this column of the table in the predictions. Repeatable."),
    ] = None,
    grade_names: options.GradeNames = None,
    device: options.Device = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="fp32|bf16",
            help="bf16 is several times as fast on a CPU with instructions for it; the differences are printed. "
            "[dim]default: that of the run[/]",
            show_default=False,
            rich_help_panel=options.COMPUTING,
        ),
    ] = None,
    import_: options.Import = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Predict grades: probability per grade, expected grade, entropy, disagreement of the two networks."""
    from srjt.cli.decisions import named_run, parse_threshold
    from srjt.cli.messages import decoding_bar
    from srjt.cli.output import check_html, refuse_overwrite, typed_command, writing
    from srjt.cli.samples import calibration_samples, list_unreadable, usable
    from srjt.data.formulas import neutralise_formula, warn_about_formulas
    from srjt.data.grade_names import display_grade
    from srjt.data.sources.features import read_ungraded_features
    from srjt.data.sources.unlabelled import read_images
    from srjt.files import is_stream, write_output
    from srjt.inference.answers import as_columns
    from srjt.inference.held_out_scores import naive_warning
    from srjt.inference.kind_of_samples import refuse_other_kind, refuse_other_options
    from srjt.inference.predict import check_choices
    from srjt.inference.predict import predict as predict_run
    from srjt.training.trained import load_run

    check_choices(network, decode, optimise)
    refuse_overwrite(out, force=force)
    check_html(html, out, force=force)
    trained = named_run(load_run(run, device=device), grade_names)
    trained.views(views)  # an error if the run has no such views
    refuse_other_options(
        trained, how, about={"features": ["feature_columns"], "images": ["images", "image_column"]}
    )
    calibration = calibration_samples(
        calibrate_on, calibrate_set, how=how, grades=trained.grades, on_bad_image=on_bad_image
    )
    by = () if coverage_by in (None, "grade") else (coverage_by,)
    columns = (*as_columns(per), *as_columns(keep), *by)
    problems: tuple[Problem, ...] = ()
    if how["feature_columns"] is None and how["image_column"] is None:  # else the columns are what is said
        refuse_other_kind(trained, sources)
    if len(trained.in_shape) == 1:
        if len(sources) > 1:
            raise SrjtError(f"{run} was trained on features: give one file of features at a time.")
        manifest = read_ungraded_features(
            sources[0],
            feature_columns=how["feature_columns"],
            wanted=trained.feature_names,
            patient_column=how["patient_column"],
            columns=columns,
            grades=trained.grades,
        )
    else:
        reading = read_images(
            sources,
            images=how["images"],
            image_column=how["image_column"],
            patient_column=how["patient_column"],
            columns=columns,
            grades=trained.grades,
            progress=True,
        )
        manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
        problems = reading.problems
    with decoding_bar() as decoded:
        table = predict_run(
            trained,
            manifest,
            network=network,  # type: ignore[arg-type]
            optimise=optimise,  # type: ignore[arg-type]
            decoding=decode,  # type: ignore[arg-type]
            views=views,
            coverage=coverage,
            coverage_by=coverage_by,
            calibrate_on=calibration,
            label_noise=label_noise,  # type: ignore[arg-type]
            recalibrate=recalibrate,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            refer_from=refer_from,
            threshold=parse_threshold(threshold),
            sensitivity=sensitivity,
            abstain=abstain,
            per=per,
            pool=pool,  # type: ignore[arg-type]
            keep=as_columns(keep),
            precision=precision,  # type: ignore[arg-type]
            progress=decoded,
        )
    predicted = table.copy()
    ours = [name for name in ("grade", "grade_name", "grade_low", "grade_high") if name in table]
    if not trained.grade_names and "grade_name" in ours:
        ours.remove("grade_name")  # a column of the source
    warn_about_formulas(table.drop(columns=ours), out)  # cells that come from the source
    for column in ours:
        table[column] = table[column].map(neutralise_formula)
    with writing(out):
        content = table.to_csv(index=False, float_format="%.6g").encode("utf-8", "surrogateescape")
        streamed = is_stream(out)
        write_output(out, content)
    if html is not None:  # after the predictions, which are then not lost if the page cannot be written
        from srjt.reports.pages.html import write_page
        from srjt.reports.pages.predictions_page import predictions_page

        page = predictions_page(
            trained, predicted, data=manifest, sources=sources, command=typed_command("predict"),
            skipped=[(problem.where, problem.detail) for problem in problems],
        )  # fmt: skip
        write_page(page, html)
    counts = table["grade"].value_counts()
    shares = ", ".join(
        f"{counts.get(neutralise_formula(grade), 0):,} of grade {display_grade(grade, trained.grade_names)}"
        for grade in trained.grades
    )
    noun = ("row of features", "rows of features") if manifest.are_features else ("image", "images")
    what = count_of(int(table["images"].sum()) if per else len(table), *noun)
    if per:
        what += f", one answer per {' and '.join(as_columns(per))} ({len(table):,})"
    if table.attrs["views"] > 1:
        what += f", {table.attrs['views']} views of each"
    say(f"{what}: {shares}. Written to {out}.", err=streamed)
    say(f"A grade is {table.attrs['grade_rule']}.", err=streamed)
    if worse := naive_warning(trained):
        say(worse, err=streamed, fg=typer.colors.YELLOW)
    if html is not None:
        say(f"The page is in {html}.", err=streamed)
    how_answered = table.attrs["how"]
    for column, meaning in (("refer", "to refer"), ("unsure", "unsure, for a person to decide")):
        if column in how_answered:  # else it is a column of the source that is kept
            rule = f"{column.capitalize()} {how_answered[column].rstrip('.')}."
            say(f"{(table[column] == 'yes').sum():,} {meaning}. {rule}", err=streamed)
    if recalibration := table.attrs["recalibration"]:
        say(f"Probabilities are recalibrated: {recalibration}.", err=streamed)
    if cost := table.attrs["precision"]:
        say(f"{cost}.", err=streamed)
    if ranges := table.attrs["ranges"]:
        say(ranges, err=streamed)
    if left_out := table.attrs["skipped"]:
        list_unreadable(left_out, skipped, problems=problems)
        named = ", ".join(sample for sample, _ in left_out[:3]) + (", …" if len(left_out) > 3 else "")
        say(f"{count_of(len(left_out), 'image')} could not be read: {named}. Listed in {skipped}.", err=True)
