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

RUNS = "Every run"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]

app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Compare methods over noises and folds, as the paper does.\n\n"
    "Example: [bold]srjt study labels.csv --noise quasi:0.2 --out DIR[/]. All options: srjt study run --help.",
)


@app.command()
@options.reads_a_source(without=("split_column",))
@options.takes_settings(only=("epochs", "network"), panel=RUNS)
def run(
    *,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="As for srjt train, or 'synthetic': the built-in synthetic data set."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the study; finished runs are not repeated.")
    ] = Path("study"),
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="all, or names separated by spaces; with options: codis:select=soft. Repeatable. "
            "[dim]default: all[/]",
        ),
    ] = None,
    import_: options.Import = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NOISE",
            help="Noise to inject: quasi:0.2 (a rate), quasi:rho=0.1, truncated:0.4 or none. Repeatable. "
            "[dim]default: none[/]",
        ),
    ] = None,
    noise_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE|auto",
            help="ε, the share of wrong labels of data that are noisy already (--noise none); auto estimates it.",
        ),
    ] = None,
    transition: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file of P, the matrix Pr(label | true grade) of such data. [dim]default: quasi, for ε[/]",
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Number of folds. [dim]default: 5[/]", show_default=False)
    ] = None,
    fold: Annotated[list[int] | None, typer.Option(help="Run only this fold. Repeatable.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Seed of the noise and the networks. Repeatable. [dim]default: 0[/]"),
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Folds from a file of srjt data split.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="limuc|dr|demo", help="Use the settings of the paper, or of a demo.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of the study; options override it.")
    ] = None,
    settings: dict[str, Any],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of the runs, e.g. crop=56. Repeatable.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of runs at the same time. [dim]default: 1 per GPU, or 1 per CPU core[/]",
            rich_help_panel=options.COMPUTING,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda:1. [dim]default: all GPUs, or the CPU[/]", rich_help_panel=options.COMPUTING
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            metavar="local|ray",
            help="Run on this machine, or on a Ray cluster.",
            rich_help_panel=options.COMPUTING,
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of the Ray cluster, or auto. [dim]default: $RAY_ADDRESS, else this machine[/]",
            rich_help_panel=options.COMPUTING,
        ),
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            help="Ray: share of a GPU for each run; 0.5 runs two on one.", rich_help_panel=options.COMPUTING
        ),
    ] = None,
    cpus_per_run: Annotated[
        float | None,
        typer.Option(
            help="Ray: CPU cores for each run. [dim]default: 1[/]", rich_help_panel=options.COMPUTING
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and stop.")] = False,
    how: dict[str, Any],
) -> None:
    """Run methods × noises × folds × seeds.

    Give the same command again to resume. Add a method, and only its runs are new.
    """
    from srjt.cli.settings import read_matrix

    reading = {k: str(v) if isinstance(v, Path) else v for k, v in how.items() if v is not None}
    study = _layered_study(
        preset,
        config,
        {
            "source": source,
            "methods": _names(" ".join(methods)) if methods else None,
            "noises": noise,
            "noise_rate": noise_rate,
            "transition": None if transition is None else read_matrix(transition),
            "folds": folds,
            "only_folds": fold,
            "seeds": seed,
            "splits": None if splits is None else str(splits),
            "reading": reading or None,
        },
        train={**settings, **({"imports": import_} if import_ else {})},
        assignments=set_ or [],
    )
    on_ray = {"address": address, "gpus_per_run": gpus_per_run, "cpus_per_run": cpus_per_run}
    execute = _chosen_executor(executor, local={"jobs": jobs, "device": device}, on_ray=on_ray)
    _run(study, out, execute, dry_run=dry_run)


@app.command()
def status(folder: Folder, import_: options.Import = None) -> None:
    """Show what is done, running, failed and left, and how long it will take."""
    from srjt.studies.results import collect_results
    from srjt.studies.status import status_lines

    for line in status_lines(collect_results(folder)):
        typer.echo(line)


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV or Parquet file to write.")] = Path(
        "results.csv"
    ),
    scores: Annotated[
        bool,
        typer.Option("--scores", help="One row per run and metric, averaged over the last ten epochs."),
    ] = False,
    import_: options.Import = None,
) -> None:
    """Write all runs as one tidy table: key, method, variant, noise, fold, seed, epoch, split, …, value."""
    from srjt.cli.output import writing
    from srjt.errors import missing_extra
    from srjt.studies.results import collect_results

    results = collect_results(folder)
    table = results.scores if scores else results.metrics
    with writing(out):
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


def _layered_study(
    preset: str | None,
    file: Path | None,
    given: dict[str, Any],
    *,
    train: dict[str, Any],
    assignments: list[str],
) -> StudyConfig:
    """The preset, then the file, then the options; settings of the runs are merged, the rest is replaced."""
    from srjt.cli.settings import merged
    from srjt.methods.plugins import import_modules
    from srjt.studies.config import StudyConfig, load_preset
    from srjt.training.config import TrainConfig, load_config, parse_overrides

    settings: dict[str, Any] = {}
    for layer in (
        load_preset(preset) if preset else {},
        load_config(file) if file else {},
        {name: value for name, value in given.items() if value is not None},
        {"train": {**train, **parse_overrides(assignments)}},
    ):
        if settings.get("source", layer.get("source")) != layer.get("source", settings.get("source")):
            settings.pop("reading", None)  # it was for another source
        settings = merged(settings, layer)
    if isinstance(settings["train"], dict):
        imports = settings["train"].get("imports", ())
        import_modules(TrainConfig.from_dict({"imports": imports}).imports)
    return StudyConfig.from_dict(settings)


def _chosen_executor(executor: str, *, local: dict[str, Any], on_ray: dict[str, Any]) -> Execute:
    """A function that executes the runs; an option of the other executor is an error, because it has no effect."""
    if executor not in (known := {"local": local, "ray": on_ray}):
        raise suggest("executor", executor, known)
    other = next(name for name in known if name != executor)
    if unused := [name for name, value in known[other].items() if value is not None]:
        raise SrjtError(f"--{unused[0].replace('_', '-')} is for --executor {other}, not for {executor}.")

    def execute(folder: Path, cells: Sequence[PlannedRun], watcher: _Watcher) -> dict[str, str]:
        if executor == "ray":
            from srjt.studies.executors.ray_driver import run_on_ray

            given = {name: value for name, value in on_ray.items() if value is not None}
            return run_on_ray(folder, cells, watcher=watcher, say=watcher.say, **given)
        from srjt.studies.executors.local import Slots, run_locally

        return run_locally(folder, cells, slots=Slots.here(**local), watcher=watcher)

    return execute


def _run(study: StudyConfig, out: Path, execute: Execute, *, dry_run: bool) -> None:
    from srjt.studies.folder import error_file, lock_study, write_plan
    from srjt.studies.open_data import open_data

    data = open_data(study)
    if data.manifest.patients is None:
        typer.secho(
            "Warning: there are no patient ids, so the same patient may be on two sides of a split.",
            fg=typer.colors.YELLOW,
        )
    if study.noise_rate == "auto":
        typer.echo(
            "Methods that need the noise rate use an estimate from the training labels, made once for each noise, "
            "fold and seed."
        )
    elif estimating := [spec for spec in study.method_specs() if spec.own_rate == "auto"]:
        named = ", ".join(dict.fromkeys(spec.name for spec in estimating))
        typer.echo(
            f"The noise rate is estimated from the training labels for {named}, once for each noise, fold and seed."
        )
    for spec in data.noises:
        if spec.kind == "none" and study.transition is None and isinstance(study.noise_rate, float):
            typer.echo(
                f"No noise is injected. Methods that need a matrix use the quasi matrix with "
                f"ε = {study.noise_rate:g} for the observed class mix."
            )
    if dry_run:
        cells = list(data.cells())
        states = _print_plan(out, data, cells)
        for cell, state in zip(cells, states, strict=True):
            typer.echo(f"  {state:8}{cell.key}")
        return
    with lock_study(out):
        cells = write_plan(out, data, command=shlex.join(["srjt", *sys.argv[1:]]))
        states = _print_plan(out, data, cells)
        with _Watcher(out, cells, done=states.count("done")) as watcher:
            outcome = execute(out, cells, watcher)
    failed = [key for key, state in outcome.items() if state != "done"]
    for key in failed:
        typer.secho(f"failed: {key}: see {error_file(out, key)}", fg=typer.colors.RED)
    typer.echo(f"Next: srjt report {out}")
    if failed:
        raise SrjtError(
            f"{len(failed)} of {len(outcome)} runs failed; the others are done. Fix the cause and give the same "
            "command again."
        )


def _print_plan(out: Path, data: StudyData, cells: Sequence[PlannedRun]) -> list[str]:
    """Print how much there is to do; return the status of each run."""
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
        self._updated = 0.0
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
        if not self.live or time.monotonic() - self._updated < 1.0:
            return
        self._updated = time.monotonic()
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
    """From the last line of the run's metrics: cheap, and right for a resumed run too."""
    path = folder / "runs" / cell.key / "metrics.csv"
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 200))
            return int(file.read().splitlines()[-1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return 0
