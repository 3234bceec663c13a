"""``srjt study``: the paper's comparison as one command; ``srjt study status`` and ``srjt study export``."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.groups import RunByDefault
from srjt.errors import SrjtError, suggest

if TYPE_CHECKING:
    from srjt.studies.config import StudyConfig
    from srjt.studies.grid import PlannedRun, StudyData

    Execute = Callable[[Path, Sequence[PlannedRun], "_Watcher"], dict[str, str]]


app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Compare methods over noises and folds, as the paper does: "
    "[bold]srjt study labels.csv --noise quasi:0.2 --out DIR[/]; its options: srjt study run --help.",
)


@app.command()
@options.reads_a_source(without=("split_column",))
def run(
    source: Annotated[
        str | None, typer.Argument(help="As for srjt train, or 'synthetic': the embedded synthetic dataset.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the study; what is done there is not repeated.")
    ] = Path("study"),
    methods: Annotated[
        list[str] | None,
        typer.Option(help="all, or names separated by spaces; a variant: codis:select=soft. Repeatable."),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(help="quasi:0.2 (a rate), quasi:rho=0.1, truncated:0.4, none. Repeatable."),
    ] = None,
    noise_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE|auto",
            help="ε of data that are noisy already (--noise none); auto: estimated from the labels.",
        ),
    ] = None,
    transition: Annotated[
        Path | None, typer.Option(help="CSV of the matrix for them; else quasi, solved.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Number of folds. [dim]default: 5[/]", show_default=False)
    ] = None,
    fold: Annotated[list[int] | None, typer.Option(help="Run only this fold. Repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seeds of noise and networks. Repeatable.")] = None,
    splits: Annotated[Path | None, typer.Option(help="Folds from a file of srjt data split.")] = None,
    preset: Annotated[str | None, typer.Option(help="limuc, dr or demo: the paper's settings.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of the study; options win over it.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Of every run. [dim]default: 150[/]", show_default=False)
    ] = None,
    network: Annotated[str | None, typer.Option(help="As for srjt train.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the runs, e.g. crop=56."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs at a time: per GPU (1), or on the CPU (one per core)."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda:1; else all GPUs, or the CPU.")] = None,
    executor: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, or auto; else $RAY_ADDRESS, else this machine.")
    ] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(help="Share of a GPU for each run on Ray: 0.5 puts two on one.")
    ] = None,
    cpus_per_run: Annotated[float | None, typer.Option(help="CPU cores for each run on Ray (1).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    *,
    how: dict[str, Any],
) -> None:
    """Run methods × noises × folds. Give the same command again to go on; add a method, and only it runs."""
    reading = {k: str(v) if isinstance(v, Path) else v for k, v in how.items() if v is not None}
    asked = _asked(
        preset,
        config,
        {
            "source": source,
            "methods": _names(" ".join(methods)) if methods else None,
            "noises": noise,
            "noise_rate": _rate(noise_rate),
            "transition": None if transition is None else _matrix(transition),
            "folds": folds,
            "only_folds": fold,
            "seeds": seed,
            "splits": None if splits is None else str(splits),
            "reading": reading or None,
        },
        epochs=epochs,
        network=network,
        assignments=set_ or [],
    )
    on_ray = {"address": address, "gpus_per_run": gpus_per_run, "cpus_per_run": cpus_per_run}
    execute = _chosen(executor, here={"jobs": jobs, "device": device}, on_ray=on_ray)
    _run(asked, out, execute, dry_run=dry_run)


@app.command()
def status(folder: Annotated[Path, typer.Argument(help="Folder of a study.")]) -> None:
    """What is done, running, failed and left, and how long it will take."""
    from srjt.studies.results import collect_results
    from srjt.studies.status import status_lines

    for line in status_lines(collect_results(folder)):
        typer.echo(line)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Folder of a study.")],
    out: Annotated[Path, typer.Option(help="CSV or Parquet file.")] = Path("results.csv"),
    scores: Annotated[
        bool, typer.Option("--scores", help="One row per run and metric (last-ten averages).")
    ] = False,
) -> None:
    """Gather all runs into one tidy table: who (key, method, variant, noise, fold, seed), epoch, split, …, value."""
    from srjt.errors import missing_extra
    from srjt.studies.results import collect_results

    results = collect_results(folder)
    table = results.scores if scores else results.metrics
    with options.writing(out):
        if out.suffix == ".parquet":
            try:
                table.to_parquet(out, index=False)
            except ImportError:
                raise missing_extra("pyarrow", "parquet", "Writing Parquet files") from None
        else:
            table.to_csv(out, index=False)
    done = int((results.runs["status"] == "done").sum())
    typer.echo(f"{len(table):,} rows of {done} finished runs (of {len(results.runs)}): {out}")


def _names(text: str) -> list[str]:
    """Methods separated by spaces, or by commas where none has options (those use commas themselves)."""
    return [name for part in text.split() for name in ([part] if ":" in part else part.split(",")) if name]


def _asked(
    preset: str | None,
    file: Path | None,
    given: dict[str, Any],
    *,
    epochs: int | None,
    network: str | None,
    assignments: list[str],
) -> StudyConfig:
    """A preset, then the file, then the options; settings of the runs are merged, the rest replaced."""
    from srjt.studies.config import StudyConfig, load_preset
    from srjt.training.config import load_config, parse_overrides

    layers = [load_preset(preset) if preset else {}, load_config(file) if file else {}]
    layers.append({name: value for name, value in given.items() if value is not None})
    settings = {k: v for k, v in (("epochs", epochs), ("network", network)) if v is not None}
    layers.append({"train": {**settings, **parse_overrides(assignments)}})
    merged: dict[str, Any] = {}
    for layer in layers:
        if merged.get("source", layer.get("source")) != layer.get("source", merged.get("source")):
            merged.pop("reading", None)  # how the other source was to be read
        for name, value in layer.items():
            if name in ("train", "reading") and isinstance(value, dict):
                value = {**merged.get(name, {}), **value}
            merged[name] = value
    return StudyConfig.from_dict(merged)


def _chosen(executor: str, *, here: dict[str, Any], on_ray: dict[str, Any]) -> Execute:
    """How the runs are carried out; an option of the other executor is an error rather than without effect."""
    if executor not in (known := {"local": here, "ray": on_ray}):
        raise suggest("executor", executor, known)
    other = next(name for name in known if name != executor)
    if strange := [name for name, value in known[other].items() if value is not None]:
        raise SrjtError(f"--{strange[0].replace('_', '-')} is for --executor {other}, not for {executor}.")

    def execute(folder: Path, cells: Sequence[PlannedRun], watcher: _Watcher) -> dict[str, str]:
        if executor == "ray":
            from srjt.studies.executors.ray_driver import run_on_ray

            given = {name: value for name, value in on_ray.items() if value is not None}
            return run_on_ray(folder, cells, watcher=watcher, say=watcher.say, **given)
        from srjt.studies.executors.local import Slots, run_locally

        return run_locally(folder, cells, slots=Slots.here(**here), watcher=watcher)

    return execute


def _run(asked: StudyConfig, out: Path, execute: Execute, *, dry_run: bool) -> None:
    from srjt.studies.folder import error_file, lock_study, write_plan
    from srjt.studies.open_data import open_data

    data = open_data(asked)
    if data.manifest.patients is None:
        typer.secho(
            "Warning: no patient ids; leakage between the sides cannot be excluded.", fg=typer.colors.YELLOW
        )
    if asked.noise_rate == "auto":
        typer.echo(
            "Methods that need to know the noise are told an estimate from the training labels, made once for each "
            "noise, fold and seed."
        )
    elif alone := [spec for spec in asked.method_specs() if spec.own_rate == "auto"]:
        named = ", ".join(dict.fromkeys(spec.name for spec in alone))
        typer.echo(
            f"The noise rate is estimated from the training labels for {named}, once for each noise, fold and seed."
        )
    for spec in data.noises:
        if spec.kind == "none" and asked.transition is None and isinstance(asked.noise_rate, float):
            typer.echo(
                f"Nothing is injected. Methods that need a matrix get the quasi one solved for "
                f"ε = {asked.noise_rate:g} on the observed class mix."
            )
    if dry_run:
        cells = list(data.cells())
        states = _say_plan(out, data, cells)
        for cell, state in zip(cells, states, strict=True):
            typer.echo(f"  {state:8}{cell.key}")
        return
    with lock_study(out):
        cells = write_plan(out, data, command=shlex.join(["srjt", *sys.argv[1:]]))
        states = _say_plan(out, data, cells)
        with _Watcher(out, cells, done=states.count("done")) as watcher:
            outcome = execute(out, cells, watcher)
    failed = [key for key, state in outcome.items() if state != "done"]
    for key in failed:
        typer.secho(f"failed: {key}: see {error_file(out, key)}", fg=typer.colors.RED)
    typer.echo(f"Next: srjt report {out}")
    if failed:
        raise SrjtError(
            f"{len(failed)} of {len(outcome)} runs failed; the others are done. Mend the cause and give the same "
            "command again."
        )


def _say_plan(out: Path, data: StudyData, cells: Sequence[PlannedRun]) -> list[str]:
    """How much there is to do; the cells' states."""
    from srjt.studies.folder import run_status

    states = [run_status(out, cell.key) for cell in cells]
    typer.echo(
        f"{len(cells)} runs: {states.count('done')} done, {len(cells) - states.count('done')} to do. "
        f"{len(data.manifest):,} {'rows of features' if data.manifest.are_features else 'images'}, "
        f"{len(data.fold_numbers)} folds."
    )
    return states


class _Watcher:
    """One live display of all runs on a terminal, a line per finished run elsewhere."""

    def __init__(self, folder: Path, cells: Sequence[PlannedRun], *, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.folder = folder
        self.console = Console()
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self.console, disable=not self.live,
        )  # fmt: skip
        self.whole = self.progress.add_task("runs", total=len(cells), completed=done)
        self.tasks: dict[str, Any] = {}
        self._looked = 0.0
        self.count = done
        self.total = len(cells)

    def __enter__(self) -> _Watcher:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def started(self, cell: PlannedRun) -> None:
        title = f"{cell.method.name} {cell.noise.label} fold {cell.fold}"
        self.tasks[cell.key] = self.progress.add_task(f"  {title[:42]:42}", total=cell.config.epochs)

    def looked(self, running: Sequence[PlannedRun]) -> None:
        if not self.live or time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        for cell in running:
            self.progress.update(self.tasks[cell.key], completed=_epochs_done(self.folder, cell))

    def ended(self, cell: PlannedRun, status: str) -> None:
        self.progress.remove_task(self.tasks.pop(cell.key))
        self.count += status == "done"
        self.progress.update(self.whole, completed=self.count)
        if status == "failed" or not self.live:
            self.console.print(
                f"[{self.count}/{self.total}] {status}: {cell.key}", highlight=False, markup=False
            )


def _epochs_done(folder: Path, cell: PlannedRun) -> int:
    """Read off the last line of the run's metrics: cheap, and true for a resumed run."""
    path = folder / "runs" / cell.key / "metrics.csv"
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 200))
            return int(file.read().splitlines()[-1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return 0


def _rate(text: str | None) -> float | str | None:
    from srjt.cli.train import rate_or_auto

    return rate_or_auto(text)


def _matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    from srjt.cli.train import read_matrix

    return read_matrix(path)
