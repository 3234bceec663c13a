"""``srjt train`` and ``srjt features``: a classifier from your own images and labels, or features
for one; and what ``--dry-run`` says.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import srjt
from srjt.cli import (
    OptionsReporter,
    check_outputs,
    options,
    print_line,
    print_table,
    say,
    show,
    typed_command,
)
from srjt.cli.options import Fields, option
from srjt.errors import SrjtError, count_of, duration, unknown_name
from srjt.networks import registry
from srjt.progress import Reporter, progress_bar
from srjt.training.config import AUTO, CHOOSE_HEAD, HEAD, ODDS, TrainConfig

# ``srjt train``: a classifier from your own images and labels.

# What is long without a GPU: about twenty minutes, in which two networks of the paper see so many
# images (images × epochs) on two cores
LONG = 20 * 60  # seconds
LONG_ON_A_CPU = 3_000  # images × epochs
PRESET_CPU = (
    "--preset cpu takes minutes: it trains a small head on the features of a pretrained network."
)


def train(
    out: Path = option(
        ..., "Folder of the run. If it has an unfinished run, that is resumed.", metavar="DIR"
    ),
    *,
    settings: Annotated[dict[str, Any], options.settings_of_a_run()],
    sides: Annotated[options.Splitting, Fields(options.Splitting)],
    group_near_duplicates: options.NearDuplicates = False,
    device: options.Device = None,
    log: list[str] | None = option(
        None,
        "Show the training in live.html, a page that reloads itself, or send all metrics to a"
        " tracker. Files are written to the run's folder. Repeatable.",
        metavar="html|tensorboard|mlflow|wandb",
    ),
    dry_run: bool = option(
        False, "Print what would be trained and how long it would take, without training."
    ),
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    data: Annotated[options.Source, Fields(options.Source)],
) -> None:
    """Train a classifier on images with ordinal labels that are partly wrong.

    The default method, srjt, estimates the label noise first, unless --noise-rate
    or --transition is given. The network, the image size and the other defaults are
    listed below. A predicted grade is the median of the probabilities (--target-metric).
    With --fold, --splits or --official-split, the validation and test sides are
    evaluated after every epoch; without them, all samples are used for training.
    Run the same command again to resume after an interruption.

    On a machine without a GPU, use --preset cpu: it computes features of all images
    with a frozen network that was pretrained on ImageNet, and trains a small head
    on them. If the machine has no connection, download the weights elsewhere with
    srjt weights fetch.

    A joint method (co-teaching, jocor, codis) trains two networks that select clean
    samples for each other. NAME+ours adds the paper's method to the joint method
    NAME, which is called its host.
    """
    from srjt.inference.evaluate import evaluate_sides
    from srjt.reports.model_card import write_model_card
    from srjt.reports.pages.run import trained_page
    from srjt.training.folder import refuse_other_files
    from srjt.training.noise_rate import check_settings
    from srjt.training.sides import no_validation_side
    from srjt.training.train import train_from_config
    from srjt.training.trained import Setup

    config = options.layered_settings(settings)
    check_settings(config.with_recipe())
    refuse_other_files(out)
    reading = data.read(progress=not quiet)
    manifest = data.usable(reading)
    if group_near_duplicates:  # identical images are grouped when the image store is opened
        manifest = options.grouped(manifest, near=True)
    split = partial(sides.split, skipping=data.skipping, training=True)
    if dry_run:
        manifest = data.existing(manifest)
        print_dry_run(manifest, split(manifest), config, device=device)
        return
    own_sides = set()
    if sides.official_split is not False:
        own_sides = set(manifest.table.get("split", ()))
    # before images are decoded
    if config.keep == "best" and not sides.chosen and "validation" not in own_sides:
        raise no_validation_side()
    if not quiet and not sides.chosen and not own_sides & {"validation", "test"}:
        say(
            f"All {len(manifest):,} {options.samples_noun(manifest)} are used for training: how"
            " well the run grades new ones will not be known. Use --fold 0 to hold some out."
        )
    if not (quiet or manifest.are_features or (out / "run.json").exists()):
        offer_preset(config, images=len(manifest), device=device)
    leads = os.environ.get("RANK", "0") == "0"  # of several processes one prints
    quiet = quiet or not leads
    with contextlib.ExitStack() as opened:
        reporter = _reporter(opened, log or (), out, quiet=quiet, leads=leads)
        run = train_from_config(
            manifest,
            config,
            setup=Setup(
                split=split,
                device=device,
                on_bad_image=data.bad_images,
                reporter=OptionsReporter(reporter),
            ),
            out=out,
            grade_names=grade_names,
            command=typed_command("train"),
        )
    data.list_unreadable(run.skipped, reading.report.problems, tell=False)
    evaluations = {}
    if leads and run.held_out:
        evaluations = evaluate_sides(run)
    if leads and (out / "summary.json").exists():
        write_model_card(out, sides=evaluations)
    if not quiet:
        show(trained_page(run, evaluations, brief=True))
        _tell_next(out, data.reading_options, features=manifest.are_features)


def _tell_next(out: Path, reading_options: dict[str, Any], *, features: bool) -> None:
    say(f"The run is in {out}.")
    print_line(f"Next: srjt report {shlex.quote(str(out))}")
    command = _predict_command(out, reading_options, features=features)
    print_line(f"To predict new samples: {command}")


def _reporter(
    opened: contextlib.ExitStack, log: Any, out: Path, *, quiet: bool, leads: bool
) -> Reporter:
    """The reporter of the terminal, and those of ``--log`` around it."""
    from srjt.reports.report import FILE, LiveReporter
    from srjt.training.reporters import TRACKERS, reporter_for, track

    if unknown := set(log) - {"html", *TRACKERS}:
        raise unknown_name("tracker", min(unknown), ("html", *TRACKERS))
    reporter: Reporter = opened.enter_context(reporter_for(quiet=quiet))
    for tracker in dict.fromkeys(log) if leads else ():
        if tracker == "html":
            reporter.note(f"The training is shown in {out / FILE}.")
            reporter = opened.enter_context(LiveReporter(reporter, out))
        else:
            reporter = track(reporter, tracker, out)
    return reporter


def print_dry_run(
    manifest: srjt.data.Manifest, split: srjt.data.Split, config: TrainConfig, *, device: str | None
) -> None:
    """Print the plan. Nothing is decoded, downloaded or written."""
    import pandas as pd

    from srjt import methods
    from srjt.training.devices import choose_device, device_name
    from srjt.training.noise_rate import needs_estimate, warm_up_seconds
    from srjt.training.single_run import training_seconds

    chosen = choose_device(device)
    on_images = not manifest.are_features and config.backbone is None
    lengths = (config.epochs, config.batch_size)
    by_size = on_images and None in lengths and config.has_length_by_size
    config = config.for_data(features=manifest.are_features, samples=len(manifest))
    networks = methods.lookup(config.method, registered_by=config.imports).networks
    seconds = training_seconds(manifest, split, config=config, device=chosen)
    batches = f"{count_of(config.known_epochs, 'epoch')} in batches of {config.known_batch_size:,}"
    learnt = f"{networks} × {config.network}, {batches}"
    first = ""
    if config.backbone is not None:
        name = "a pretrained network" if config.backbone == AUTO else config.backbone
        first = f"features of {name}, {config.crop} × {config.crop} pixels, and "
    if config.network == ODDS:
        learnt = "odds, fitted in one step"
    if config.network == CHOOSE_HEAD:
        head = config.with_head(HEAD)
        batches = f"{count_of(head.known_epochs, 'epoch')} in batches of {head.known_batch_size:,}"
        learnt = (
            f"odds, fitted in one step, or {networks} × {HEAD}, {batches}, whichever predicts"
            " held-out labels better"
        )
    more = ""
    # else most of the time is that of the features, which are computed once
    if config.network == CHOOSE_HEAD and config.backbone is None:
        more = " with mlp; choosing the head takes about as long again"
    estimate = warm_up_seconds(manifest, split, config=config, device=chosen)
    if estimate:
        more = f", and {duration(estimate)} before that, to estimate the noise rate"
    say(
        f"{config.method}: {first}{learnt}. About {duration(seconds)} on"
        f" {device_name(chosen)}{more}."
    )
    if on_images and chosen.type == "cpu" and seconds + estimate > LONG:
        say(f"There is no GPU. {PRESET_CPU}", fg=typer.colors.YELLOW)
    if by_size:
        say(
            f"The number of epochs and the batch size are chosen for {len(manifest):,} images:"
            " smaller data sets need more epochs and smaller batches (--epochs, --batch-size)."
        )
    sides = {name: manifest.select(rows) for name, rows in split.sides().items() if len(rows)}
    frame = pd.DataFrame({"side": list(sides)})
    frame[options.samples_noun(manifest)] = [len(side) for side in sides.values()]
    if manifest.patients:
        frame["patients"] = [len(set(side.patients or ())) for side in sides.values()]
    counts = pd.DataFrame(
        [side.class_counts for side in sides.values()], columns=list(manifest.grades)
    )
    print_table(pd.concat([frame, counts], axis=1))
    if not estimate and needs_estimate(config) and manifest.posterior is None:
        say("The noise rate is estimated first, by shorter trainings. Their time is not included.")
    say("Nothing was trained: leave out --dry-run to start.", dim=True)


def offer_preset(config: TrainConfig, *, images: int, device: str | None) -> None:
    """On a CPU, where the paper's network takes hours or days: what would take minutes."""
    from srjt.training.devices import choose_device

    if config.backbone is not None:
        return
    chosen = config.for_data(features=False, samples=images)
    row = registry.known(chosen.network)
    small = (row is not None and row.small) or images * chosen.known_epochs < LONG_ON_A_CPU
    if not small and choose_device(device).type == "cpu":
        say(
            f"There is no GPU, so this training takes long (--dry-run says how long). {PRESET_CPU}",
            fg=typer.colors.YELLOW,
        )


def _predict_command(out: Path, reading_options: dict[str, Any], *, features: bool) -> str:
    """How to predict, with the options by which this command has read its data; capitals are to be
    replaced."""
    names = ("feature_columns",) if features else ("images", "image_column")
    words = options.as_words(options.named_options(reading_options, names))
    new = "TABLE" if words else "IMAGES"
    if features:
        new = "FEATURES"
    return shlex.join(["srjt", "predict", str(out), new, *words, "--out", "predictions.csv"])


# ``srjt features``: compute features of images with a frozen network, once.

EMBEDDING = ("weights", "pretrained", "image_size", "resize", "batch_size")


def features(
    out: Path = option(Path("features.npz"), "File to write."),
    force: options.Force = False,
    backbone: str = option(
        "resnet18", "Network, such as resnet18, efficientnet-lite0 or timm:NAME.", metavar="NAME"
    ),
    flip: bool = option(
        False, "Average the features of each image with those of its mirror image."
    ),
    ungraded: bool = option(
        False, "The source is a folder or table of images without grades, for srjt predict."
    ),
    crop: int = option(224, "Side of the centre crop in pixels.", panel="Network and images"),
    device: options.Device = None,
    *,
    settings: Annotated[
        dict[str, Any], Fields(TrainConfig, only=EMBEDDING, panel="Network and images")
    ],
    data: Annotated[options.Source, Fields(options.Source, without=("labels", "feature_columns"))],
) -> None:
    """Compute features of images with a frozen network, to train on them later.

    The file also contains the grades, the patients, the split and all other columns
    of the source. srjt train, study, audit, evaluate and predict accept it in place
    of images. Run the same command again to resume after an interruption.
    """
    from srjt.data.sources.features import pack_features
    from srjt.data.sources.folders import read_images
    from srjt.files import write_output
    from srjt.inference.embed import embed

    if out.suffix != ".npz":
        raise SrjtError(
            f"Features are written as an .npz file, and {out} has another suffix. Use --out"
            " features.npz.",
            code="wrong_file",
            option="out",
        )
    check_outputs(out, force=force)
    if ungraded:
        used = options.named_options(
            data.reading_options, ("images", "image_column", "patient_column")
        )
        if unused := options.as_words(
            {name: "" for name in data.reading_options if name not in used}
        )[::2]:
            say(f"These options have no effect with --ungraded: {', '.join(unused)}.", err=True)
        reading = read_images([data.source], **used)
    else:
        reading = data.read()
    manifest = data.usable(reading)
    with progress_bar("Decoding", True) as decoded, progress_bar("Embedding", True) as embedded:
        made, unreadable = embed(
            manifest,
            backbone=backbone,
            flip=flip,
            crop=crop,
            device=device,
            on_bad_image=data.bad_images,
            decoded=decoded,
            embedded=embedded,
            **settings,
        )
    write_output(out, pack_features(made, graded=not ungraded))
    data.list_unreadable(unreadable, reading.report.problems, tell=True)
    assert made.arrays is not None
    say(
        f"{out} has {made.arrays.shape[1]:,} features by {backbone} of each of"
        f" {count_of(len(made), 'image')}."
    )
    file = shlex.quote(str(out))
    if ungraded:
        print_line(
            f"To predict with a run that was trained on such features: srjt predict RUN {file}"
        )
    else:
        print_line(f"Next: srjt train {file} --noise-rate auto --fold 0 --out run")
