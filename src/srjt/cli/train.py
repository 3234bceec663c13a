"""``srjt train``: a classifier from your own images and labels."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.messages import OptionsReporter, say
from srjt.errors import SrjtError, count_of, suggest
from srjt.training.config import METHOD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from srjt.ordinal.baselines import NaiveBaseline
    from srjt.reports.judged_sides import JudgedSide
    from srjt.training.record.reporters import Reporter
    from srjt.training.trained import Trained

SHOWN = ("accuracy", "mae", "macro_f1", "qwk")


@options.reads_a_source()
@options.takes_settings()
def train(
    *,
    source: options.SourceArgument,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the run; an unfinished run is resumed.")
    ],
    settings: dict[str, Any],
    per_class: Annotated[
        bool | None,
        typer.Option(
            "--per-class/--no-per-class",
            help="Methods that select: keep the same share within each grade.",
            rich_help_panel=METHOD,
            show_default=False,
        ),
    ] = None,
    ramp_epochs: Annotated[
        int | None,
        typer.Option(
            help="Methods that select: T′, epochs over which the kept share of a batch falls from 1 to 1 − ε. "
            "[dim]default: 5[/]",
            rich_help_panel=METHOD,
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Methods that select: τ, softmax temperature of the loss that ranks samples; below 1 it is sharper. "
            "[dim]default: 0.1 for +ours, else 1[/]",
            rich_help_panel=METHOD,
            show_default=False,
        ),
    ] = None,
    import_: options.Import = None,
    fold: options.Fold = None,
    folds: options.Folds = 5,
    split_seed: options.SplitSeed = 0,
    splits: options.Splits = None,
    official_split: Annotated[
        bool | None,
        typer.Option(
            "--official-split/--no-official-split",
            help="Use the split column of the data. [dim]default: if there is one[/]",
            rich_help_panel=options.EVALUATION,
            show_default=False,
        ),
    ] = None,
    group_near_duplicates: options.GroupNearDuplicates = False,
    device: options.Device = None,
    config: options.Config = None,
    set_: options.Set = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run: an error if there is none in the folder.")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="html|tensorboard|mlflow|wandb",
            help="Show the training in live.html, a page that reloads itself, or send every number to a tracker. "
            "Files go into the run's folder. Repeatable.",
            show_default=False,
        ),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", hidden=True)] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be trained, for how long and with how much memory."),
    ] = False,
    show_test: Annotated[
        bool,
        typer.Option(
            "--show-test",
            help="Show test scores during the training too, not only at its end.",
            rich_help_panel=options.EVALUATION,
        ),
    ] = False,
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    how: dict[str, Any],
) -> None:
    """Train a classifier on images with ordinal labels that are partly wrong.

    The default method, srjt, estimates the label noise first, unless --noise-rate
    or --transition is given. Network, image size, epochs, batch size and learning
    rate for images are the paper's; a predicted grade is the median (--optimise).
    With --fold, --splits or --official-split the validation and test
    sides are evaluated every epoch; without, all samples are used for training.
    Run the same command again to resume after an interruption.

    A joint method trains two networks that select clean samples for each other
    (co-teaching, jocor, codis). NAME+ours is the paper's method on top of it:
    NAME is called its host.
    """
    from srjt.cli.output import typed_command
    from srjt.cli.samples import grouped, list_unreadable, usable
    from srjt.cli.settings import check_settings, layered_settings
    from srjt.cli.splits import chosen_split
    from srjt.data import read
    from srjt.data.grade_names import parse_grade_names
    from srjt.inference.held_out_scores import rule_in_words
    from srjt.reports.judged_sides import judge_sides
    from srjt.reports.model_card import write_model_card
    from srjt.training.record.reporters import reporter_for
    from srjt.training.record.run_folder import refuse_other_files
    from srjt.training.record.trackers import TRACKERS, track
    from srjt.training.train import train as train_run

    run_config = layered_settings(
        config,
        set_,
        given={**settings, "imports": import_},
        method_options={"per_class": per_class, "ramp_epochs": ramp_epochs, "temperature": temperature},
    )
    check_settings(run_config.with_recipe(), fold=fold, folds=None if splits else folds)
    refuse_other_files(out)
    reading = read(source, **how, progress=not quiet)
    manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    if group_near_duplicates:  # identical images are grouped when the image store is opened
        manifest = grouped(manifest, near=True)
    split = chosen_split(
        fold=fold,
        folds=folds,
        seed=split_seed,
        file=splits,
        official=official_split,
        skipping=on_bad_image == "skip",
    )
    if dry_run:
        from srjt.cli.dry_run import print_dry_run
        from srjt.training.own_split import resolve_split

        parts = resolve_split(split, manifest, skipped=False)
        print_dry_run(manifest, parts, run_config, device=device)
        return
    own_sides = set(manifest.table.get("split", ())) if official_split is not False else set()
    if not quiet and fold is None and splits is None and not own_sides & {"validation", "test"}:
        what = "rows of features" if manifest.are_features else "images"
        say(
            f"All {len(manifest):,} {what} are used for training: how well the run grades new ones will not be "
            "known. Use --fold 0 to hold some out."
        )
    trackers = dict.fromkeys([*(log or []), *(["tensorboard"] if tensorboard else [])])
    if unknown := next((name for name in trackers if name not in ("html", *TRACKERS)), None):
        raise suggest("tracker", unknown, ("html", *TRACKERS))
    leads = os.environ.get("RANK", "0") == "0"  # of several processes one prints
    quiet = quiet or not leads
    if resume and not (out / "run.json").exists():
        raise SrjtError(f"There is no run in {out} to resume: leave out --resume to start one.")
    with contextlib.ExitStack() as opened:
        reporter: Reporter = opened.enter_context(reporter_for(quiet=quiet, show_test=show_test))
        for tracker in trackers if leads else ():
            if tracker == "html":
                from srjt.reports.live_reporter import FILE, LiveReporter

                reporter.note(f"The training is shown in {out / FILE}.")
                reporter = opened.enter_context(LiveReporter(reporter, out, show_test=show_test))
            else:
                reporter = track(reporter, tracker, out)
        run = train_run(
            manifest,
            out=out,
            split=split or "all",
            device=device,
            reporter=OptionsReporter(reporter),
            config=run_config,
            grade_names=None if grade_names is None else parse_grade_names(grade_names),
            command=typed_command("train"),
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
        )
    list_unreadable(run.skipped, skipped, problems=reading.problems)
    sides = judge_sides(run) if leads and run.held_out else {}
    if leads and (out / "summary.json").exists():
        write_model_card(out, sides=sides)
    if not quiet:
        _print_results(run, out, sides, pooled=run_config.convention == "published-code")
        rule = next((judged.grade_rule for judged in sides.values()), None) or rule_in_words(run)
        say(f"A predicted grade is {rule} (--optimise {run.config.optimise}).")
        say(f"The run is in {out}.")
        typer.echo(f"Next: {_next_command(out, how, features=manifest.are_features)}")


def _next_command(out: Path, how: dict[str, Any], *, features: bool) -> str:
    """How to predict, with the options by which this command has read its data."""
    names = ("feature_columns",) if features else ("images", "image_column")
    given = [(name, how[name]) for name in names if how.get(name) is not None]
    new = "FEATURES" if features else "TABLE" if given else "IMAGES"
    words = [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["srjt", "predict", str(out), new, *words, "--out", "predictions.csv"])


def _print_results(run: Trained, out: Path, sides: Mapping[str, JudgedSide], *, pooled: bool) -> None:
    """What the paper's tables show, and what the answers of srjt predict are worth; both beside naive baselines."""
    from srjt.console import Console
    from srjt.reports.run_summary import SIDES
    from srjt.training.record.baselines import NAIVE, run_baselines
    from srjt.training.record.metrics_log import LAST, kept_epoch, last_epochs

    metrics = run.metrics
    averages = last_epochs(metrics, pooled=pooled)
    if not len(averages):
        return
    kept = kept_epoch(metrics)
    averaged = f"mean over the last {count_of(int(min(LAST, metrics['epoch'].max())), 'epoch')}"
    if kept is not None:
        averaged = f"epoch {kept}, the best on the validation side"
    several = run.method.networks > 1
    if several:
        averaged += "; networks pooled" if pooled else "; mean over the networks"
    own = f"{'Each' if several else 'The'} network's own grades, as in the paper"
    baselines = run_baselines(out)
    table = _metrics_table(f"{own}: {averaged}", caption=None if sides else NAIVE)
    scores = {str(side): rows for side, rows in averages.groupby("split")}
    for side in (name for name in SIDES if name in scores):
        values = dict(zip(scores[side]["metric"], scores[side]["value"], strict=True))
        _add_scores(table, side, values, baselines.get(side))
    Console(markup=False).print(table)
    judged_sides = [sides[name] for name in SIDES if name in sides]
    if judged_sides:
        table = _metrics_table(f"The answers of srjt predict: {judged_sides[0].grade_rule}", caption=NAIVE)
        for judged in judged_sides:
            values = {name: interval.value for name, interval in judged.intervals.items()}
            _add_scores(table, judged.name, values, judged.naive)
        Console(markup=False).print(table)
    for judged in judged_sides:
        if judged.naive_warning:
            say(judged.naive_warning, fg=typer.colors.YELLOW)


def _add_scores(table: Table, side: str, values: Mapping[str, float], naive: NaiveBaseline | None) -> None:
    table.add_row(side, *(f"{values[name]:.3f}" for name in SHOWN))
    if naive is not None:
        table.add_row("  naive", *(f"{getattr(naive, name):.3f}" for name in SHOWN), style="dim")


def _metrics_table(title: str, *, caption: str | None) -> Table:
    from rich.table import Table

    table = Table(title=title, caption=caption)
    table.add_column("")
    for name in SHOWN:
        table.add_column(name, justify="right")
    return table
