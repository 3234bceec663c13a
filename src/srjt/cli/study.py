"""``srjt study``: the paper's comparison as one command; ``srjt study status`` and ``srjt study export``."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import options
from srjt.cli.groups import RunByDefault
from srjt.errors import SrjtError

if TYPE_CHECKING:
    from srjt.studies.config import StudyConfig
    from srjt.studies.grid import PlannedRun, StudyData
    from srjt.studies.study import Executor


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
    """Train methods × noises × folds. Run the same command again to resume; add a method, and only it is trained."""
    from srjt.studies.study import choose_executor, resolve_config
    from srjt.training.config import parse_overrides

    reading = {k: str(v) if isinstance(v, Path) else v for k, v in how.items() if v is not None}
    train = {name: value for name, value in (("epochs", epochs), ("network", network)) if value is not None}
    study = resolve_config(
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
        train={**train, **parse_overrides(set_ or [])},
        preset=preset,
        file=config,
    )
    execute = choose_executor(
        executor,
        jobs=jobs,
        device=device,
        address=address,
        gpus_per_run=gpus_per_run,
        cpus_per_run=cpus_per_run,
    )
    _run(study, out, execute, dry_run=dry_run)


@app.command()
def status(folder: Annotated[Path, typer.Argument(help="Folder of a study.")]) -> None:
    """Count the finished, running, failed and remaining runs, and estimate the remaining time."""
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
    """Write the metrics of all runs to one table: key, method, variant, noise, fold, seed, epoch, split, …, value."""
    from srjt.errors import missing_extra
    from srjt.files import write_atomically
    from srjt.studies.results import collect_results

    results = collect_results(folder)
    table = results.scores if scores else results.metrics
    if out.suffix == ".parquet":
        try:
            content = table.to_parquet(index=False)
        except ImportError:
            raise missing_extra("pyarrow", "parquet", "Writing Parquet files") from None
    else:
        content = table.to_csv(index=False).encode()
    with options.writing(out):
        if options.is_stream(out):
            out.write_bytes(content)
        else:
            write_atomically(out, content)
    done = int((results.runs["status"] == "done").sum())
    typer.echo(f"{len(table):,} rows of {done} finished runs (of {len(results.runs)}): {out}")


def _names(text: str) -> list[str]:
    """Methods separated by spaces, or by commas where none has options (those use commas themselves)."""
    return [name for part in text.split() for name in ([part] if ":" in part else part.split(",")) if name]


def _run(config: StudyConfig, out: Path, execute: Executor, *, dry_run: bool) -> None:
    from srjt.studies.folder import error_file, run_status
    from srjt.studies.open_data import open_data
    from srjt.studies.study import run_study

    data = open_data(config)
    _print_notes(config, data)
    if dry_run:
        planned_runs = list(data.planned_runs())
        states = [run_status(out, planned.key) for planned in planned_runs]
        typer.echo(_counts(data, runs=len(states), done=states.count("done")))
        for planned, state in zip(planned_runs, states, strict=True):
            typer.echo(f"  {state:8}{planned.key}")
        return
    command = shlex.join(["srjt", *sys.argv[1:]])
    with _Watcher(out, data) as watcher:
        outcome = run_study(data, out, command=command, execute=execute, watcher=watcher)
    failed = [key for key, state in outcome.items() if state != "done"]
    for key in failed:
        typer.secho(f"failed: {key}: see {error_file(out, key)}", fg=typer.colors.RED)
    typer.echo(f"Next: srjt report {out}")
    if failed:
        raise SrjtError(
            f"{len(failed)} of {len(outcome)} runs failed; the others are done. Fix the cause and run the same "
            "command again."
        )


def _print_notes(config: StudyConfig, data: StudyData) -> None:
    """What the user should know before the runs begin."""
    if data.manifest.patients is None:
        typer.secho(
            "Warning: no patient ids; images of one patient may be in training and test data.",
            fg=typer.colors.YELLOW,
        )
    if config.noise_rate == "auto":
        typer.echo(
            "Methods that need the noise rate use an estimate from the training labels, made once for each noise, fold "
            "and seed."
        )
    elif estimating := [spec.name for spec in config.method_specs() if spec.own_rate == "auto"]:
        names = ", ".join(dict.fromkeys(estimating))
        typer.echo(
            f"The noise rate is estimated from the training labels for {names}, once for each noise, fold and seed."
        )
    known_rate = isinstance(config.noise_rate, float) and config.transition is None
    if known_rate and any(spec.kind == "none" for spec in data.noises):
        typer.echo(
            f"Nothing is injected. Methods that need a matrix get the quasi matrix with rate ε = {config.noise_rate:g} "
            "on the observed class mix."
        )


def _counts(data: StudyData, *, runs: int, done: int) -> str:
    samples = "rows of features" if data.manifest.are_features else "images"
    return (
        f"{runs} runs: {done} done, {runs - done} to do. {len(data.manifest):,} {samples}, "
        f"{len(data.fold_numbers)} folds."
    )


class _Watcher:
    """A live display of all runs on a terminal; elsewhere one line per finished run."""

    def __init__(self, folder: Path, data: StudyData) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.folder, self.data = folder, data
        self.console = Console()
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self.console, disable=not self.live,
        )  # fmt: skip
        self.tasks: dict[str, Any] = {}
        self.refreshed = 0.0

    def __enter__(self) -> _Watcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        self.total, self.done = len(planned_runs), done
        typer.echo(_counts(self.data, runs=self.total, done=done))
        self.all_runs = self.progress.add_task("runs", total=self.total, completed=done)
        self.progress.start()

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def started(self, planned: PlannedRun) -> None:
        title = f"{planned.method.name} {planned.noise.label} fold {planned.fold}"
        self.tasks[planned.key] = self.progress.add_task(f"  {title[:42]:42}", total=planned.config.epochs)

    def updated(self, running: Sequence[PlannedRun]) -> None:
        if not self.live or time.monotonic() - self.refreshed < 1.0:
            return
        self.refreshed = time.monotonic()
        for planned in running:
            self.progress.update(self.tasks[planned.key], completed=_epochs_done(self.folder, planned))

    def ended(self, planned: PlannedRun, status: str) -> None:
        self.progress.remove_task(self.tasks.pop(planned.key))
        self.done += status == "done"
        self.progress.update(self.all_runs, completed=self.done)
        if status == "failed" or not self.live:
            self.console.print(
                f"[{self.done}/{self.total}] {status}: {planned.key}", highlight=False, markup=False
            )


def _epochs_done(folder: Path, planned: PlannedRun) -> int:
    """The epoch in the last line of the run's metrics: fast to read, and right for a resumed run."""
    path = folder / "runs" / planned.key / "metrics.csv"
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
