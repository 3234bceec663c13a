"""``srjt demo``: the whole idea in a minute and a half, on synthetic images."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

METHODS = ("standard", "co-teaching", "co-teaching+ours")
NOISE_RATE = 0.4


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the figure.")] = Path(
        "srjt-demo"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs per method.")] = 30,
    images: Annotated[int, typer.Option(min=200, help="Number of images to draw.")] = 1500,
    seed: Annotated[int, typer.Option(help="Seed of the data, the noise and the networks.")] = 0,
) -> None:
    """Draw images of rising severity, corrupt 40 % of the labels, train three methods, compare them.

    A second call opens the finished runs; delete the folder to start over.
    """
    from rich.console import Console
    from rich.table import Table

    from srjt import noise
    from srjt.data import folds
    from srjt.data.corrupt import corrupt_sides
    from srjt.data.synthetic import generate
    from srjt.reports.figures.curves import plot_curves
    from srjt.training.record.baselines import NAIVE, run_baselines
    from srjt.training.record.metrics_log import LAST, last_epochs
    from srjt.training.record.reporters import reporter_for
    from srjt.training.train import train

    console = Console(markup=False)
    with console.status("Drawing images…"):
        clean = generate(images=images, patients=max(images // 10, 20), size=64, seed=seed)
    split = folds(clean, folds=5, seed=seed)[0]
    rho = noise.rho_for_rate("quasi", rate=NOISE_RATE, class_counts=clean.class_counts)
    matrix = noise.transition_matrix("quasi", num_classes=clean.num_classes, rho=rho)
    data, injected = corrupt_sides(clean, split, matrix, seed=seed)
    console.print(
        f"{len(clean):,} images of {len(set(clean.patients or ())):,} patients, grades {', '.join(clean.grades)}; "
        f"{len(split.train):,} for training, of which {injected.realised_rate:.0%} have a wrong label; "
        f"{len(split.test):,} with true labels for testing.",
        highlight=False,
    )
    runs = {}
    for method in METHODS:
        with reporter_for() as reporter:
            runs[method] = train(
                data,
                out=out / method,
                split=split,
                method=method,
                noise_rate=NOISE_RATE,
                network="tiny",
                image_size=64,
                crop=60,
                epochs=epochs,
                learning_rate=2e-3,
                seed=seed,
                device="cpu",
                reporter=reporter,
            )

    table = Table(title=f"Test side, mean over the last {min(LAST, epochs)} epochs and the networks")
    for column in ("method", "accuracy ↑", "MAE ↓", "macro-F1 ↑", "label precision ↑"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for method, run in runs.items():
        scores = last_epochs(run.metrics).set_index(["split", "metric"])["value"]
        recent = run.metrics[run.metrics["epoch"] > epochs - LAST]
        precision = recent.loc[recent["metric"] == "label_precision", "value"].mean()
        numbers = [scores["test", name] for name in ("accuracy", "mae", "macro_f1")]
        table.add_row(method, *(f"{value:.3f}" for value in (*numbers, precision)))
    naive = run_baselines(out / METHODS[0])["test"]  # the same side for all methods
    table.add_row("naive", f"{naive.accuracy:.3f}", f"{naive.mae:.3f}", style="dim")
    table.caption = NAIVE
    console.print(table)
    chance = (0.25 / len(split.test)) ** 0.5 * 2
    console.print(
        f"One fold, one seed, {len(split.test)} test images: differences below about {chance:.2f} may be chance.",
        style="dim",
        highlight=False,
    )
    figure = out / "curves.png"
    plot_curves({name: run.metrics for name, run in runs.items()}, figure, noise_rate=injected.realised_rate)
    console.print(f"Curves: {figure}   Runs: {out}", highlight=False)
    # In a clone set up by make the command is not on the PATH. A command to be copied gets its own line.
    command = "srjt" if shutil.which("srjt") else shlex.quote(sys.argv[0])
    console.print("Next, on your own data:", highlight=False)
    typer.echo(f"  {command} train labels.csv --method srjt --fold 0 --out runs/mine")
