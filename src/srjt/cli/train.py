"""``srjt train``: a classifier from one's own images and labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.errors import SrjtError

if TYPE_CHECKING:
    from srjt.data import Manifest, Split
    from srjt.training.config import TrainConfig
    from srjt.training.record.reporters import Reporter

METHOD, NETWORK, IMAGES, OPTIMISER, SPLIT, COMPUTING = (
    "Method", "Network", "Images", "Optimisation", "Evaluation", "How it is computed",
)  # fmt: skip


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


@options.reads_a_source()
def train(
    source: options.SourceArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is gone on with.")],
    method: Annotated[
        str | None,
        _option("See srjt methods; srjt needs no --noise-rate. [dim]default: co-teaching+ours[/]", METHOD),
    ] = None,
    noise_rate: Annotated[
        str | None,
        _option("ε, the share of wrong labels: 0.2; or auto: estimated first.", METHOD, metavar="RATE|auto"),
    ] = None,
    transition: Annotated[
        Path | None, _option("CSV file of the C×C matrix Pr(label | true), for methods that need it.", METHOD)
    ] = None,
    soft_labels: Annotated[
        str | None,
        _option("paper, or estimated with --noise-rate auto. [dim]default: paper[/]", METHOD),
    ] = None,
    convention: Annotated[
        str | None, _option("paper or published-code. [dim]default: paper[/]", METHOD)
    ] = None,
    per_class: Annotated[
        bool | None, _option("Keep the same share within each grade.", METHOD, "--per-class/--no-per-class")
    ] = None,
    ramp_epochs: Annotated[
        int | None, _option("T', epochs until only 1−ε is kept. [dim]default: 5; srjt more[/]", METHOD)
    ] = None,
    temperature: Annotated[
        float | None, _option("τ of the selection. [dim]default: 0.1 for +ours[/]", METHOD)
    ] = None,
    network: Annotated[
        str | None, _option("resnet18, tiny, …, timm:NAME. [dim]default: resnet18[/]", NETWORK)
    ] = None,
    pretrained: Annotated[
        bool | None,
        _option("Start from ImageNet weights. [dim]default: yes[/]", NETWORK, "--pretrained/--no-pretrained"),
    ] = None,
    weights: Annotated[Path | None, _option("Local weights file instead.", NETWORK)] = None,
    image_size: Annotated[int | None, _option("Stored size. [dim]default: 256[/]", IMAGES)] = None,
    crop: Annotated[int | None, _option("Random crop from it. [dim]default: 224[/]", IMAGES)] = None,
    epochs: Annotated[int | None, _option("[dim]default: 150[/]", OPTIMISER)] = None,
    batch_size: Annotated[int | None, _option("[dim]default: 64[/]", OPTIMISER)] = None,
    learning_rate: Annotated[
        float | None, _option("Of Adam. [dim]default: 1e-4; mlp 3e-4, linear 1e-3[/]", OPTIMISER)
    ] = None,
    seed: Annotated[int | None, _option("[dim]default: 0[/]", OPTIMISER)] = None,
    fold: Annotated[int | None, _option("Train on fold k of --folds, evaluate on the rest.", SPLIT)] = None,
    folds: Annotated[int, _option("Number of folds. [dim]default: 5[/]", SPLIT)] = 5,
    split_seed: Annotated[int, _option("Seed of the folds. [dim]default: 0[/]", SPLIT)] = 0,
    splits: Annotated[Path | None, _option("Folds from a file of srjt data split.", SPLIT)] = None,
    official_split: Annotated[
        bool | None,
        _option(
            "Use the split column of the data. [dim]default: if there is one[/]",
            SPLIT,
            "--official-split/--no-official-split",
        ),
    ] = None,
    device: Annotated[
        str | None, _option("cpu, cuda, cuda:1. [dim]default: a GPU if there is one[/]", COMPUTING)
    ] = None,
    precision: Annotated[
        str | None, _option("fp32, tf32, bf16. [dim]default: bf16 on a GPU[/]", COMPUTING)
    ] = None,
    step: Annotated[
        str | None, _option("eager, graph, compiled. [dim]default: the fastest[/]", COMPUTING)
    ] = None,
    deterministic: Annotated[
        bool | None,
        _option("Same bits on a GPU too (slower).", COMPUTING, "--deterministic/--no-deterministic"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options win over it.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. weight_decay=0."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist: an error if there is no run to go on with.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard events into the run's folder as well.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but problems.")] = False,
    on_bad_image: options.OnBadImage = "error",
    skipped: options.Skipped = Path("skipped.csv"),
    *,
    how: dict[str, Any],
) -> None:
    """Train a classifier on images with ordinal labels that are partly wrong.

    Defaults are the paper's. With --fold, --splits or --official-split the
    other sides are evaluated every epoch; without, all samples are trained on.
    Run the same command again to go on after an interruption.
    """
    from srjt.data import read
    from srjt.training.record.reporters import reporter_for
    from srjt.training.train import train as train_run

    settings = layered(
        config,
        set_ or [],
        given={
            "method": method,
            "noise_rate": rate_or_auto(noise_rate),
            "soft_labels": soft_labels,
            "transition": None if transition is None else read_matrix(transition),
            "convention": convention,
            "network": network,
            "pretrained": pretrained,
            "weights": None if weights is None else str(weights),
            "image_size": image_size,
            "crop": crop,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "seed": seed,
            "precision": precision,
            "step": step,
            "deterministic": deterministic,
        },
        method_options={"per_class": per_class, "ramp_epochs": ramp_epochs, "temperature": temperature},
    ).with_recipe()
    check_early(settings, fold=fold, folds=None if splits else folds)
    reading = read(source, **how)
    manifest = options.usable(reading, on_bad_image=on_bad_image, skipped=skipped)
    split = chosen_split(
        fold=fold,
        folds=folds,
        seed=split_seed,
        file=splits,
        official=official_split,
        skipping=on_bad_image == "skip",
    )
    quiet = quiet or os.environ.get("RANK", "0") != "0"  # of several processes one speaks
    if resume and not (out / "run.json").exists():
        raise SrjtError(f"There is no run in {out} to go on with: leave --resume out to begin one.")
    with warnings_as_sentences(), reporter_for(quiet=quiet) as reporter:
        watching: Reporter = reporter
        if tensorboard and os.environ.get("RANK", "0") == "0":
            from srjt.training.record.tensorboard import TensorBoardReporter

            watching = TensorBoardReporter(reporter, out / "tensorboard")
        run = train_run(
            manifest,
            out=out,
            split=split,
            device=device,
            reporter=watching,
            config=settings,
            on_bad_image=on_bad_image,  # type: ignore[arg-type]
        )
    if run.skipped:
        from srjt.data import Problem, write_problems

        with options.writing(skipped):
            unreadable = [Problem("unreadable-image", who, why) for who, why in run.skipped]
            write_problems([*reading.problems, *unreadable], skipped)
    if not quiet:
        new = "FEATURES" if manifest.are_features else "IMAGES"
        _closing(run.metrics, out, new=new, pooled=settings.convention == "published-code")


def layered(
    file: Path | None,
    assignments: list[str],
    *,
    given: dict[str, Any],
    method_options: dict[str, Any] | None = None,
    defaults: dict[str, Any] | None = None,
) -> TrainConfig:
    """The defaults, then the file, then the options, then ``--set``."""
    from srjt.training.config import TrainConfig, load_config, parse_overrides

    layers = [defaults or {}, load_config(file) if file else {}]
    layers.append({k: v for k, v in given.items() if v is not None})
    if chosen := {k: v for k, v in (method_options or {}).items() if v is not None}:
        layers.append({"method_options": chosen})
    layers.append(parse_overrides(assignments))
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = merged.get(name)
            merged[name] = (
                {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
            )
    return TrainConfig.from_dict(merged)


def check_early(settings: TrainConfig, *, fold: int | None = None, folds: int | None = None) -> None:
    """What is known to be wrong before an hour is spent on reading images, in the words of this command."""
    from srjt import networks
    from srjt.errors import suggest
    from srjt.methods import lookup
    from srjt.training.resolve_noise import needs_estimate

    needs = lookup(settings.method).method.needs
    if "noise_rate" in needs and settings.noise_rate is None:
        raise SrjtError(
            f"{settings.method} needs the share of wrong labels: --noise-rate 0.2 if a fifth of them is wrong, "
            "--noise-rate auto to have it estimated, or --method srjt, which needs none."
        )
    if "transition" in needs and settings.transition is None and settings.noise_rate != "auto":
        raise SrjtError(
            f"{settings.method} needs the matrix of label errors: --transition FILE, with a row of numbers "
            "separated by commas for each true grade, or --noise-rate auto to have it estimated."
        )
    needs_estimate(settings)  # an error if the soft labels cannot follow it
    name = settings.network
    if name is not None and name not in networks.names() and not name.startswith("timm:"):
        raise suggest("network", name, (*networks.names(), "timm:NAME"))
    if fold is not None and folds is not None and not 0 <= fold < folds:
        raise _no_such_fold(fold, folds)


def _no_such_fold(fold: int, folds: int) -> SrjtError:
    return SrjtError(f"There is no fold {fold}: folds are numbered 0 … {folds - 1}.")


def chosen_split(
    *, fold: int | None, folds: int, seed: int, file: Path | None, official: bool | None, skipping: bool
) -> Callable[[Manifest], Split] | None:
    """How to split what is left after bad images were skipped; None trains on everything."""
    from srjt.data import folds as make_folds
    from srjt.data import official_split, read_splits

    if official and (fold is not None or file is not None):
        raise SrjtError(
            "--official-split uses the data's own split: it cannot be combined with --fold or --splits."
        )
    if official:
        return official_split
    if fold is None and file is None:
        return None if official is False else _own_split
    wanted = fold or 0

    def choose(manifest: Manifest) -> Split:
        if file:
            found = read_splits(file, manifest, allow_missing=skipping)
        else:
            found = make_folds(manifest, folds=folds, seed=seed)
        if not 0 <= wanted < len(found):
            raise _no_such_fold(wanted, len(found))
        return found[wanted]

    return choose


def _own_split(manifest: Manifest) -> Split:
    """The data's own split if they have one: test samples must not be trained on because nobody said so."""
    import numpy as np

    from srjt.data import Split, official_split

    if "split" in manifest.table:
        return official_split(manifest)
    nobody = np.empty(0, dtype=np.int64)
    return Split(train=np.arange(len(manifest)), validation=nobody, test=nobody)


def rate_or_auto(text: str | None) -> float | str | None:
    """``--noise-rate 0.2`` or ``--noise-rate auto``."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise SrjtError(f"--noise-rate takes a number such as 0.2, or auto; got {text!r}.") from None


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show a warning when it comes up (a training may take hours), as a sentence and not as a line of code."""
    told: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            typer.secho(f"Warning: {message}", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    import numpy as np

    from srjt.noise.matrices import check_matrix

    try:
        matrix = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as problem:
        raise SrjtError(
            f"{path} cannot be read as a matrix of numbers separated by commas: {str(problem).rstrip('.')}."
        ) from None
    return tuple(tuple(float(p) for p in row) for row in check_matrix(matrix))


def _closing(metrics: Any, out: Path, *, new: str, pooled: bool) -> None:
    """The averages a paper would print, and what to do next."""
    from rich.console import Console
    from rich.table import Table

    from srjt.training.record.metrics_log import LAST, last_epochs

    averages = last_epochs(metrics, pooled=pooled)
    if len(averages):
        table = Table(title=f"Mean over the last {min(LAST, metrics['epoch'].max())} epochs and the networks")
        table.add_column("")
        shown = ("accuracy", "mae", "macro_f1", "qwk")
        for name in shown:
            table.add_column(name, justify="right")
        for side, rows in averages.groupby("split", sort=False):
            values = dict(zip(rows["metric"], rows["value"], strict=True))
            table.add_row(str(side), *(f"{values[name]:.3f}" for name in shown))
        Console().print(table)
    typer.echo(f"The run is in {out}. Next: srjt predict {out} {new} --out predictions.csv")
