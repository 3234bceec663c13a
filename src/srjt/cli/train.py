"""``srjt train`` and ``srjt features``: a classifier from your own images and labels, or features for one; and
what ``--dry-run`` says.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from srjt.cli import options
from srjt.cli.options import option
from srjt.cli.output import OptionsReporter, check_outputs, say, show, writing
from srjt.errors import SrjtError, count_of, duration, unknown_name
from srjt.inference.options import EVALUATION
from srjt.training.config import METHOD

if TYPE_CHECKING:
    from srjt.data.manifest import Manifest
    from srjt.data.splits import Split
    from srjt.progress import Reporter
    from srjt.studies.plan import PlannedRun, StudyPlan
    from srjt.training.config import TrainConfig

# ``--dry-run`` of ``srjt train`` and ``srjt study``: what would be trained, on what, for how long.


def print_dry_run(manifest: Manifest, split: Split, config: TrainConfig, *, device: str | None) -> None:
    """Print the plan. Nothing is decoded, downloaded or written."""
    import pandas as pd

    from srjt import methods
    from srjt.cli.output import print_table
    from srjt.training.devices import choose_device, device_name
    from srjt.training.single_run import training_cost
    from srjt.training.train import needs_estimate

    chosen = choose_device(device)
    config = config.for_data(features=manifest.are_features)
    networks = methods.lookup(config.method, registered_by=config.imports).networks
    what = "rows of features" if manifest.are_features else "images"
    sides = {name: manifest.select(rows) for name, rows in split.sides().items() if len(rows)}
    frame = pd.DataFrame({"side": list(sides), what: [len(side) for side in sides.values()]})
    if manifest.patients:
        frame["patients"] = [len(set(side.patients or ())) for side in sides.values()]
    counts = pd.DataFrame([side.class_counts for side in sides.values()], columns=list(manifest.grades))
    print_table(pd.concat([frame, counts], axis=1))
    say(
        f"{config.method}: {networks} × {config.network}, {count_of(config.epochs, 'epoch')} in batches "
        f"of {config.batch_size:,}."
    )
    cost = training_cost(manifest, config, training=len(split.train), device=chosen)
    say(f"About {duration(cost.seconds)} for {cost.steps:,} steps on {device_name(chosen)}.")
    if needs_estimate(config) and manifest.posterior is None:
        say("The noise rate is estimated first, by shorter trainings that are not included in the time.")
    say("Nothing was trained: leave out --dry-run to start.", dim=True)


def print_study_times(data: StudyPlan, planned_runs: Sequence[PlannedRun], *, device: str | None) -> None:
    """Measure a few steps; print the time of all runs, on one device and on eight."""
    from srjt.studies.plan import run_seconds, time_on
    from srjt.training.devices import choose_device, device_name

    chosen = choose_device(device)
    seconds = run_seconds(data, planned_runs, device=chosen)
    say(
        f"{count_of(len(seconds), 'training')}: about {duration(sum(seconds))} on {device_name(chosen)}, "
        f"{duration(time_on(8, seconds))} on eight such devices. Start-up, decoding and noise estimates are not "
        "included."
    )


# ``srjt train``: a classifier from your own images and labels.


@options.reads_a_source()
@options.takes_settings()
def train(
    *,
    source: options.SourceArgument,
    out: Path = option(..., "Folder of the run; an unfinished run is resumed.", metavar="DIR"),
    settings: dict[str, Any],
    per_class: bool | None = option(
        None,
        "Methods that select: keep the same share within each grade.",
        "--per-class/--no-per-class",
        panel=METHOD,
    ),
    ramp_epochs: int | None = option(
        None,
        "Methods that select: T′, epochs over which the kept share of a batch falls from 1 to 1 − ε. "
        "[default: 5]",
        panel=METHOD,
    ),
    temperature: float | None = option(
        None,
        "Methods that select: τ, softmax temperature of the loss that ranks samples; below 1 it is sharper. "
        "[default: 0.1 for +ours, else 1]",
        panel=METHOD,
    ),
    import_: options.Import = None,
    fold: options.Fold = None,
    folds: options.Folds = 5,
    split_seed: options.SplitSeed = 0,
    splits: options.Splits = None,
    hold_out: options.HoldOut = None,
    official_split: bool | None = option(
        None,
        "Use the split column of the data. [default: if there is one]",
        "--official-split/--no-official-split",
        panel=EVALUATION,
    ),
    group_near_duplicates: options.GroupNearDuplicates = False,
    device: options.Device = None,
    config: options.Config = None,
    set_: options.Set = None,
    resume: bool = option(False, "Resume a run: an error if there is none in the folder.", "--resume"),
    log: list[str] | None = option(
        None,
        "Show the training in live.html, a page that reloads itself, or send every number to a tracker. "
        "Files go into the run's folder. Repeatable.",
        metavar="html|tensorboard|mlflow|wandb",
    ),
    tensorboard: bool = option(False, "", "--tensorboard", hidden=True),
    dry_run: bool = option(
        False, "Say what would be trained, for how long and with how much memory.", "--dry-run"
    ),
    show_test: bool = option(
        False,
        "Show test scores during the training too, not only at its end.",
        "--show-test",
        panel=EVALUATION,
    ),
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
    from srjt.cli.samples import (
        check_settings,
        chosen_split,
        grouped,
        layered_settings,
        list_unreadable,
        usable,
    )
    from srjt.data.grades import parse_grade_names
    from srjt.data.sources import read
    from srjt.inference.evaluate import evaluate_sides
    from srjt.reports.model_card import write_model_card
    from srjt.reports.pages.run import trained_page
    from srjt.training.folder import refuse_other_files
    from srjt.training.reporters import TRACKERS, reporter_for, track
    from srjt.training.train import train as train_run

    run_config = layered_settings(
        config,
        set_,
        given={**settings, "imports": import_},
        method_options={"per_class": per_class, "ramp_epochs": ramp_epochs, "temperature": temperature},
    )
    check_settings(run_config.with_recipe(), fold=fold, folds=None if splits or hold_out else folds)
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
        hold_out=hold_out,
    )
    if dry_run:
        from srjt.training.single_run import resolve_split

        parts = resolve_split(split, manifest, skipped=False)
        print_dry_run(manifest, parts, run_config, device=device)
        return
    own_sides = set(manifest.table.get("split", ())) if official_split is not False else set()
    if (
        not quiet
        and (fold, splits, hold_out) == (None, None, None)
        and not own_sides & {"validation", "test"}
    ):
        what = "rows of features" if manifest.are_features else "images"
        say(
            f"All {len(manifest):,} {what} are used for training: how well the run grades new ones will not be "
            "known. Use --fold 0 to hold some out."
        )
    if not (quiet or manifest.are_features or (out / "run.json").exists()):
        training = len(manifest) if fold is None else len(manifest) * (folds - 2) // folds
        offer_preset(manifest, run_config, training=training, device=device)
    trackers = dict.fromkeys([*(log or []), *(["tensorboard"] if tensorboard else [])])
    if unknown := next((name for name in trackers if name not in ("html", *TRACKERS)), None):
        raise unknown_name("tracker", unknown, ("html", *TRACKERS))
    leads = os.environ.get("RANK", "0") == "0"  # of several processes one prints
    quiet = quiet or not leads
    if resume and not (out / "run.json").exists():
        raise SrjtError(f"There is no run in {out} to resume: leave out --resume to start one.")
    with contextlib.ExitStack() as opened:
        reporter: Reporter = opened.enter_context(reporter_for(quiet=quiet, show_test=show_test))
        for tracker in trackers if leads else ():
            if tracker == "html":
                from srjt.reports.report import FILE, LiveReporter

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
            grade_names=parse_grade_names(grade_names),
            command=typed_command("train"),
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
        )
    list_unreadable(run.skipped, skipped, problems=reading.problems)
    sides = evaluate_sides(run) if leads and run.held_out else {}
    if leads and (out / "summary.json").exists():
        write_model_card(out, sides=sides)
    if not quiet:
        show(trained_page(run, sides, brief=True))
        say(f"The run is in {out}.")
        typer.echo(f"Next: {_next_command(out, how, features=manifest.are_features)}")


def offer_preset(manifest: Manifest, config: TrainConfig, *, training: int, device: str | None) -> None:
    """On a CPU, where the paper's network takes days: how long, and what would take minutes."""
    from srjt.training.devices import choose_device
    from srjt.training.single_run import training_cost

    if (config.network or "").startswith("tiny") or choose_device(device).type != "cpu":
        return
    device_cpu = choose_device("cpu")
    seconds = training_cost(manifest, config, training=training, device=device_cpu, cpu_batch=2).seconds
    if seconds > 3600:
        say(
            f"There is no GPU: this training takes about {duration(seconds)}. --preset cpu trains a small network in "
            "minutes; srjt features computes the features of a large one once, and a training on them takes seconds.",
            fg=typer.colors.YELLOW,
        )


def _next_command(out: Path, how: dict[str, Any], *, features: bool) -> str:
    """How to predict, with the options by which this command has read its data."""
    names = ("feature_columns",) if features else ("images", "image_column")
    given = [(name, how[name]) for name in names if how.get(name) is not None]
    new = "FEATURES" if features else "TABLE" if given else "IMAGES"
    words = [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["srjt", "predict", str(out), new, *words, "--out", "predictions.csv"])


# ``srjt features``: compute features of images with a frozen network, once.


@options.reads_a_source(without=("labels", "feature_columns"))
def features(
    source: options.SourceArgument,
    out: Path = option(Path("features.npz"), "File to write.", metavar="FILE"),
    force: options.Force = False,
    backbone: str = option("resnet18", "resnet18, densenet121, timm:NAME, …", metavar="NAME"),
    weights: Path | None = option(
        None, "Local file of weights instead of the published ones.", metavar="FILE"
    ),
    pretrained: bool = option(
        True, "Use the published weights, or random ones.", "--pretrained/--no-pretrained"
    ),
    flip: bool = option(False, "Average with the features of the mirror image.", "--flip"),
    image_size: int = option(256, "Side of the resized images, in pixels."),
    crop: int = option(224, "Side of the centre crop from them."),
    resize: str = option(
        "squash", "Resize to a square, or the short side and then crop.", metavar="squash|crop"
    ),
    batch_size: int = option(64, "Images per step."),
    ungraded: bool = option(
        False, "Images without grades, for srjt predict: a folder, or a table.", "--ungraded"
    ),
    device: options.Device = None,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Compute features of images with a frozen network, once.

    The file also holds grades, patients, split and every other column of the
    source. srjt train, study, audit, evaluate and predict accept it in place of
    images. A command that was stopped continues when it is repeated.
    """
    from srjt.cli.samples import list_unreadable, usable
    from srjt.data.sources import read
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.folders import read_images
    from srjt.files import write_atomically
    from srjt.inference.embed import embed
    from srjt.progress import progress_bar

    if out.suffix != ".npz":
        raise SrjtError(f"Features are written as an .npz file; --out {out} has another suffix.")
    check_outputs(out, force=force)
    if ungraded:
        used = {name: how.pop(name, None) for name in ("images", "image_column", "patient_column")}
        unused = [word for word in options.as_words(how) if word.startswith("--")]
        if unused:
            say(f"Without effect beside --ungraded: {', '.join(dict.fromkeys(unused))}.", err=True)
        reading = read_images([source], **used)
    else:
        reading = read(source, **how)
    manifest = usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    with writing(out):
        pass  # a folder that cannot be made is an error now, not after an hour
    with progress_bar("Decoding", True) as decoded, progress_bar("Embedding", True) as embedded:
        made, unreadable = embed(
            manifest,
            backbone=backbone,
            pretrained=pretrained,
            weights=weights,
            image_size=image_size,
            crop=crop,
            resize=resize,  # type: ignore[arg-type]
            flip=flip,
            batch_size=batch_size,
            device=device,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
            decoded=decoded,
            embedded=embedded,
        )
    with writing(out):
        write_atomically(out, pack_features(made, graded=not ungraded))
    list_unreadable(unreadable, skipped, problems=reading.problems)
    if unreadable:
        say(f"{count_of(len(unreadable), 'image')} could not be read. Listed in {skipped}.", err=True)
    assert made.arrays is not None
    say(f"{count_of(len(made), 'image')}, {made.arrays.shape[1]:,} features each by {backbone}: {out}.")
    file = shlex.quote(str(out))
    typer.echo(
        f"Next: srjt predict RUN {file}"
        if ungraded
        else f"Next: srjt train {file} --noise-rate auto --fold 0 --out run"
    )
