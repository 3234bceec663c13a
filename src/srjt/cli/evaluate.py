"""``srjt evaluate``: a run, judged by labels that it has not seen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from srjt.console import Console
    from srjt.data import Manifest
    from srjt.inference.range_evaluation import RangeEvaluation
    from srjt.ordinal.intervals import Interval
    from srjt.readers import NetworkComparison
    from srjt.training.trained import Trained


@options.reads_a_source(without=("grades",))
def evaluate(
    run: options.Run,
    source: options.SourceArgument,
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
    side: Annotated[
        str | None,
        typer.Option(
            metavar="train|validation|test",
            help="Judge this side only. [dim]default: test, with --fold or --splits[/]",
            show_default=False,
            rich_help_panel=options.EVALUATION,
        ),
    ] = None,
    fold: options.Fold = None,
    folds: options.Folds = 5,
    split_seed: options.SplitSeed = 0,
    splits: options.Splits = None,
    group_near_duplicates: options.GroupNearDuplicates = False,
    refer_from: options.ReferFrom = None,
    threshold: options.Threshold = None,
    sensitivity: options.Sensitivity = None,
    abstain: options.Abstain = None,
    per: options.Per = None,
    pool: options.Pool = "highest",
    grade_names: options.GradeNames = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write everything to a JSON file too.")
    ] = None,
    html: options.Html = None,
    force: options.Force = False,
    device: options.Device = None,
    import_: options.Import = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
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
    from rich.table import Table

    from srjt.cli.decisions import (
        named_run,
        parse_threshold,
        print_abstention,
        print_decision,
    )
    from srjt.cli.matrix_table import matrix_table
    from srjt.cli.messages import decoding_bar
    from srjt.cli.output import check_html, refuse_overwrite, typed_command, writing
    from srjt.cli.samples import calibration_samples, grouped, usable
    from srjt.cli.splits import check_fold, chosen_split
    from srjt.console import Console
    from srjt.data import read
    from srjt.data.grade_names import display_grade
    from srjt.errors import SrjtError, suggest
    from srjt.files import write_json
    from srjt.inference.evaluate import evaluate
    from srjt.inference.kind_of_samples import refuse_other_options
    from srjt.inference.predict import check_choices
    from srjt.reports.evaluation_words import (
        label_name,
        no_patients,
        trained_on_words,
        what_was_judged,
    )
    from srjt.training.record.baselines import NAIVE, baseline_on, compare_with_naive
    from srjt.training.trained import load_run

    check_choices(network, decode, optimise)
    if splits is None:
        check_fold(fold, folds)
    refuse_overwrite(out, force=force)
    check_html(html, out, force=force)
    trained = named_run(load_run(run, device=device), grade_names)
    trained.views(views)  # an error if the run has no such views
    refuse_other_options(trained, how, about={"features": ["feature_columns", "labels"]})
    calibration = calibration_samples(
        calibrate_on, calibrate_set, how=how, grades=trained.grades, on_bad_image=on_bad_image
    )
    reading = read(source, grades=list(trained.grades), **how)
    manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if side is not None or fold is not None or splits is not None:
        split = chosen_split(
            fold=fold, folds=folds, seed=split_seed, file=splits,
            official=None if fold is not None or splits is not None else True,
            skipping=on_bad_image == "skip",
        )  # fmt: skip
        assert split is not None
        if fold is not None and splits is None:
            manifest = grouped(manifest, near=group_near_duplicates)
        sides = split(manifest).sides()
        if (side := side or "test") not in sides:
            raise suggest("side", side, sides)
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
        found = evaluate(
            trained, manifest, network=network, optimise=optimise, decoding=decode, views=views,  # type: ignore[arg-type]
            coverage=coverage, coverage_by=coverage_by, calibrate_on=calibration, label_noise=label_noise,  # type: ignore[arg-type]
            refer_from=refer_from, threshold=parse_threshold(threshold), sensitivity=sensitivity, abstain=abstain,
            per=per, pool=pool, recalibrate=recalibrate,  # type: ignore[arg-type]
            readings=reading.readings, on_bad_image=on_bad_image, progress=decoded,  # type: ignore[arg-type]
        )  # fmt: skip

    if out is not None:  # before anything is printed: the reader (head, less) may go away
        with writing(out):
            write_json(out, found.to_dict(), follow_links=True)
    if html is not None:
        from srjt.reports.pages.evaluation_page import evaluation_page
        from srjt.reports.pages.html import write_page

        write_page(
            evaluation_page(
                trained, found, data=manifest, sources=[source], command=typed_command("evaluate")
            ),
            html,
        )

    console = Console(markup=False)
    what = "rows of features" if manifest.are_features else "images"
    say(what_was_judged(found, features=manifest.are_features))
    say(f"A predicted grade is {found.grade_rule}.")
    if not found.by_patient:
        say(no_patients(what), fg="yellow")
    if side != "train" and (known := trained_on_words(trained, manifest)):  # of these evaluate has warned
        say(known, fg="yellow")
    for overlap in found.overlaps:
        say(str(overlap), fg="yellow")
    # the naive grades are those of images
    naive = None if found.per else baseline_on(run, [sum(row) for row in found.confusion])
    trivial_scores = {} if naive is None else naive._asdict()
    compared = ["naive"] if naive else []
    metrics = Table("metric", "value", "95 % interval", *compared, caption=NAIVE if naive else None)
    for name, (value, low, high) in found.intervals.items():
        trivial = f"{trivial_scores[name]:.3f}" if name in trivial_scores else ""
        ends = f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–"
        shown_value = f"{value:.3f}" if math.isfinite(value) else "–"
        metrics.add_row(name, shown_value, ends, *([trivial] if naive else []))
    metrics.add_section()
    metrics.add_row("calibration error", f"{found.calibration_error:.3f}", "")
    metrics.add_row("ranked probability", f"{found.ranked_probability_score:.3f}", "")
    console.print(metrics)
    if found.recalibration:
        say(f"Probabilities are recalibrated: {found.recalibration}.")
    shown = [display_grade(grade, trained.grade_names) for grade in trained.grades]
    recalls = [
        f"{row[grade] / sum(row):.3f}" if sum(row) else "–" for grade, row in enumerate(found.confusion)
    ]
    counts = [[f"{count:,}" for count in row] for row in found.confusion]
    confusion = matrix_table(
        f"{label_name(found)} ╲ predicted",
        [[*row, recall] for row, recall in zip(counts, recalls, strict=True)],
        grades=trained.grades,
        names=shown,
        last="recall",
        width=console.width,
    )
    console.print(confusion)
    if found.decision is not None:
        print_decision(console, found.decision, trained.grade_names)
    if found.abstention is not None and found.abstention.wanted is not None:
        print_abstention(console, found.abstention)
    if found.ranges is not None:
        console.print(_ranges(found.ranges, shown, by_patient=found.by_patient))
        say(found.ranges.promise)
    if naive is not None:
        trivial = getattr(naive, found.purpose)
        if worse := compare_with_naive(
            "these samples", score=found.score, naive=trivial, purpose=found.purpose
        ):
            say(worse, fg="yellow")
    if found.readers is not None:
        _print_readers(found.readers, console)
    elif found.not_compared:
        say(found.not_compared, fg="yellow")
    if out is not None:
        say(f"Written to {out}.")
    if html is not None:
        say(f"The page is in {html}.")


def _ranges(found: RangeEvaluation, grades: Sequence[str], *, by_patient: bool) -> Table:
    """How often ranges contain the grade, and how wide they are."""
    from rich.table import Table

    from srjt.errors import printable

    def row(name: str, interval: Interval, samples: int | None = None) -> tuple[str, str, str, str]:
        if samples == 0:
            return name, "–", "", "0"
        ends = f"{interval.low:.3f} – {interval.high:.3f}" if math.isfinite(interval.low) else "–"
        return name, f"{interval.value:.3f}", ends, "" if samples is None else f"{samples:,}"

    caption = "all patients count equally, however many images they have" if by_patient else None
    table = Table("ranges of grades", "value", "95 % interval", "samples", caption=caption)
    table.add_row("promised coverage", f"{found.promised:g}", "", "")
    table.add_row(*row("coverage", found.coverage))
    for name, (samples, interval) in zip(grades, found.grades, strict=True):
        table.add_row(*row(f"… of grade {printable(name)}", interval, samples))
    table.add_row(*row("grades in a range", found.width))
    return table


def _print_readers(found: NetworkComparison, console: Console) -> None:
    """The network as one more reader."""
    from rich.table import Table

    from srjt.errors import printable

    table = Table("reader", title="The network as one more reader (quadratic κ)", title_justify="left")
    for name in ("images", "with network", "with others", "to rest", "network to rest"):
        table.add_column(name, justify="right")
    for row in found.by_reader.to_dict("records"):
        kappas = ("network_kappa", "others_kappa", "reader_to_consensus", "network_to_consensus")
        table.add_row(printable(row["reader"]), f"{row['items']:,}", *(f"{row[name]:.2f}" for name in kappas))
    console.print(table)
    say(
        "to rest: κ with the consensus of all other readers, of this reader and of the network, on the same images.",
        dim=True,
    )
    say(found.sentence)


def _held_out_options(trained: Trained, folder: Path, manifest: Manifest) -> str:
    """The options with which ``srjt train`` has split the data; else the split column, or the sides of the run."""
    import shlex

    command = (trained.facts and trained.facts.provenance.get("command")) or ""
    words = shlex.split(str(command).replace("=", " "))
    named = ("--fold", "--folds", "--split-seed", "--splits")
    given = [f"{name} {shlex.quote(words[k + 1])}" for k, name in enumerate(words[:-1]) if name in named]
    if given:
        return " ".join(given + [word for word in words if word == "--group-near-duplicates"])
    return "--side test" if "split" in manifest.table else f"--splits {shlex.quote(str(folder))}"
