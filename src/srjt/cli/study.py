"""``srjt study``, ``srjt report`` and ``srjt demo``: the paper's comparison as one command, pages of results,
and the whole idea in a minute and a half.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srjt.cli import App, RunByDefault, options
from srjt.cli.output import say
from srjt.errors import SrjtError, count_of

if TYPE_CHECKING:
    from srjt.studies.config import StudyConfig
    from srjt.studies.plan import PlannedRun, StudyPlan
    from srjt.studies.study import Executor

# ``srjt study``: the paper's comparison as one command; ``srjt study status`` and ``srjt study export``.

RUNS = "Every run"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]


@options.reads_a_source(without=("split_column",))
@options.takes_settings(
    shown=("epochs", "network", "image_size", "crop", "batch_size", "learning_rate", "precision"),
    without=("method", "soft_labels"),  # --methods names them, with their options
    panel=RUNS,
)
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
            "[default: all]",
        ),
    ] = None,
    import_: options.Import = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NOISE",
            help="Noise to inject: quasi:0.2 (a rate), quasi:rho=0.1, truncated:0.4 or none. Repeatable. "
            "[default: none]",
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
            help="CSV file of P, the matrix Pr(label | true grade) of such data. [default: quasi, for ε]",
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Number of folds. [default: 5]", show_default=False)
    ] = None,
    fold: Annotated[list[int] | None, typer.Option(help="Run only this fold. Repeatable.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Seed of the noise and the networks. Repeatable. [default: 0]"),
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Folds from a file of srjt data split.")
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="A fold for each value of this column, such as a site: its test side."
        ),
    ] = None,
    group_near_duplicates: options.GroupNearDuplicates = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of the study; options override it.")
    ] = None,
    settings: dict[str, Any],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting by its name, e.g. method_options.weight=0.5. Repeatable.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of runs at the same time. [default: 1 per GPU, or 1 per CPU core]",
            rich_help_panel=options.COMPUTING,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda:1, or several: cuda:0,cuda:1. [default: all GPUs, or the CPU]",
            rich_help_panel=options.COMPUTING,
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
            help="Address of the Ray cluster, or auto. [default: $RAY_ADDRESS, else this machine]",
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
        typer.Option(help="Ray: CPU cores for each run. [default: 1]", rich_help_panel=options.COMPUTING),
    ] = None,
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and stop.")] = False,
    time_: Annotated[
        bool,
        typer.Option(
            "--time", help="With --dry-run: train a few steps of each method, and print the time of all runs."
        ),
    ] = False,
    how: dict[str, Any],
) -> None:
    """Run methods × noises × folds × seeds.

    Give the same command again to resume. Add a method, and only its runs are new.
    """
    from srjt.cli.samples import read_matrix
    from srjt.data.grades import parse_grade_names
    from srjt.settings import parse_overrides
    from srjt.studies.study import choose_executor, resolve_config

    reading = {k: str(v) if isinstance(v, Path) else v for k, v in how.items()}
    preset = settings.pop("preset", None)
    train = {**settings, **({"imports": import_} if import_ else {})}
    study = resolve_config(
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
            "hold_out": hold_out,
            "group_near_duplicates": group_near_duplicates or None,
            "reading": reading or None,
            "grade_names": parse_grade_names(grade_names),
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
    if time_ and not dry_run:
        raise SrjtError("--time is an option of --dry-run: add --dry-run.")
    _run(study, out, execute, dry_run=dry_run, timed=time_, device=device, quiet=quiet)


def status(folder: Folder, import_: options.Import = None) -> None:
    """Count the finished, running, failed and remaining runs, and estimate the remaining time."""
    from srjt.studies.results import collect_results, status_lines

    for line in status_lines(collect_results(folder)):
        say(line)


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV or Parquet file to write.")] = Path(
        "results.csv"
    ),
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="One row per run and metric: mean over the last ten epochs, or of the kept one."
        ),
    ] = False,
    import_: options.Import = None,
) -> None:
    """Write all runs as one tidy table: key, method, variant, noise, fold, seed, epoch, split, …, value."""
    from srjt.cli.output import writing
    from srjt.errors import missing_extra
    from srjt.files import write_output
    from srjt.studies.results import collect_results, problem_lines

    results = collect_results(folder)
    table = results.scores if scores else results.metrics
    if names := results.facts.get("held_out"):
        table = table.assign(held_out=table["fold"].map(dict(enumerate(names))))
    if out.suffix == ".parquet":
        try:
            content = table.to_parquet(index=False)
        except ImportError:
            raise missing_extra("pyarrow", "parquet", "Writing Parquet files") from None
    else:
        content = table.to_csv(index=False).encode()
    with writing(out):
        write_output(out, content)
    done = int((results.runs["status"] == "done").sum())
    say(f"{count_of(len(table), 'row')} of {count_of(done, 'finished run')} (of {len(results.runs)}): {out}")
    for line in problem_lines(results):
        say(line, fg=typer.colors.YELLOW, err=True)


study_app = App(
    cls=RunByDefault,
    no_args_is_help=True,
    add_completion=False,
    help="Compare methods over noises and folds, as the paper does.\n\n"
    "Example: srjt study labels.csv --noise quasi:0.2 --out DIR.",
)
study_app.add(run, status, export)


def _names(text: str) -> list[str]:
    """Methods separated by spaces, or by commas where none has options (those use commas themselves)."""
    return [name for part in text.split() for name in ([part] if ":" in part else part.split(",")) if name]


def _run(
    config: StudyConfig,
    out: Path,
    execute: Executor,
    *,
    dry_run: bool,
    timed: bool,
    device: str | None,
    quiet: bool,
) -> None:
    from srjt.cli.output import decoding_bar
    from srjt.cli.train import print_study_times
    from srjt.studies.folder import error_file, run_status
    from srjt.studies.plan import BarWatcher, open_data
    from srjt.studies.study import run_study

    with nullcontext() if quiet else decoding_bar() as progress:
        data = open_data(config, progress=progress, quiet=quiet)
    if not quiet:
        _print_notes(config, data)
    if dry_run:
        planned_runs = list(data.planned_runs())
        states = [run_status(out, planned.key) for planned in planned_runs]
        say(_counts(data, runs=len(states), done=states.count("done")))
        for planned, state in zip(planned_runs, states, strict=True):
            typer.echo(f"  {state:8}{planned.key}")
        if timed:
            left = [run for run, state in zip(planned_runs, states, strict=True) if state != "done"]
            print_study_times(data, left, device=None if device is None else device.split(",")[0])
        return
    command = shlex.join(["srjt", *sys.argv[1:]])
    with nullcontext(BarWatcher()) if quiet else _Watcher(out, data) as watcher:
        outcome = run_study(data, out, command=command, execute=execute, watcher=watcher)
    failed = [key for key, state in outcome.items() if state != "done"]
    for key in failed:
        say(f"failed: {key}: see {error_file(out, key)}", fg=typer.colors.RED)
    if not quiet:
        typer.echo(f"Next: srjt report {shlex.quote(str(out))}")
    if failed:
        raise SrjtError(
            f"{len(failed)} of {len(outcome)} runs failed; the others are done. Fix the cause and run the same "
            "command again."
        )


def _print_notes(config: StudyConfig, data: StudyPlan) -> None:
    """What the user should know before the runs begin."""
    from srjt.data.duplicates import describe_duplicates
    from srjt.methods.registry import lookup
    from srjt.studies.config import rate_source

    if data.manifest.patients is None:
        say(
            "Warning: no patient ids; images of one patient may be in training and test data.",
            fg=typer.colors.YELLOW,
        )
    if sentence := describe_duplicates(data.manifest, near=config.group_near_duplicates):
        say(sentence)
    if config.noise_rate == "auto":
        say(
            "Methods that need the noise rate use an estimate from the training labels, made once for each noise, fold "
            "and seed."
        )
    elif estimating := [spec.name for spec in config.method_specs() if spec.own_rate == "auto"]:
        names = ", ".join(dict.fromkeys(estimating))
        say(
            f"The noise rate is estimated from the training labels for {names}, once for each noise, fold and seed."
        )
    if not any(spec.kind == "none" for spec in data.noises) or not isinstance(config.noise_rate, float):
        return
    needs = {
        need
        for spec in config.method_specs()
        if rate_source(spec.name, spec.variant, study_rate=config.noise_rate) == "given"
        for need in lookup(spec.name).method.needs
    }
    if not needs:
        say(f"No method of this study uses the rate ε = {config.noise_rate:g}.")
    elif "transition" in needs and config.transition is None:
        say(
            f"Nothing is injected. Methods that need a matrix get the quasi matrix with rate ε = {config.noise_rate:g} "
            "on the observed class mix."
        )


def _counts(data: StudyPlan, *, runs: int, done: int) -> str:
    samples = "rows of features" if data.manifest.are_features else "images"
    folds = len(data.fold_numbers)
    return (
        f"{runs} run{'s' * (runs != 1)}: {done} done, {runs - done} to do. {len(data.manifest):,} {samples}, "
        f"{folds} fold{'s' * (folds != 1)}."
    )


class _Watcher:
    """A live display of all runs on a terminal; elsewhere one line per finished run."""

    def __init__(self, folder: Path, data: StudyPlan) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from srjt.console import Console

        self.folder, self.data = folder, data
        self.console = Console(markup=False)
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
        say(_counts(self.data, runs=self.total, done=done))
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


# ``srjt report``: a study, a run, an audit or several readers as one page to read, send and print.


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of a study, of a single run (finished or not), of an audit or of readers.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="HTML file to write. [default: report.html in the folder]",
            callback=options.html_file,
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure there, as SVG and PNG.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write a study's tables there, as Markdown, CSV and LaTeX."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Metrics of the tables. [default: accuracy,mae,macro_f1]"),
    ] = None,
    maps: Annotated[
        bool,
        typer.Option("--maps", help="Show where the networks of an audit look, for its doubtful labels."),
    ] = False,
    checklist: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write a checklist for a journal, filled in where files of a run know the answer: tripod-ai, claim "
            "or stard-ai.",
        ),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="For the checklist: an audit, readers, or a JSON file of evaluate. Repeatable. "
            "[default: those beside the run]",
        ),
    ] = None,
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    import_: options.Import = None,
) -> None:
    """Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce it.

    It needs no network and opens from disk. It names unfinished and failed runs
    at the top.
    """
    from srjt.cli.output import refuse_overwrite
    from srjt.data.grades import parse_grade_names
    from srjt.reports.report import report as write_report
    from srjt.reports.statistics import PAPER_METRICS

    refuse_overwrite(out, force=force)
    chosen = PAPER_METRICS if metrics is None else tuple(name.strip() for name in metrics.split(","))
    names = parse_grade_names(grade_names)
    page, *others = write_report(
        folder, out=out, figures=figures, tables=tables, metrics=chosen, maps=maps, grade_names=names,
        checklist=checklist, also=also or (),
    )  # fmt: skip
    if checklist is not None:
        say(f"The checklist is in {page}, for a word processor, and in {others[0]}.")
        return
    say(f"The report is in {page}.")
    drawn = [file for file in others if file.suffix in (".svg", ".png")]
    if figures is not None:
        say(f"{figures} has {count_of(len(drawn), 'figure file')}.")
    if tables is not None:
        say(f"{tables} has {count_of(len(others) - len(drawn), 'table file')}.")


# ``srjt demo``: the whole idea in a minute and a half, on synthetic images.


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the images, the trainings and the pages.")
    ] = Path("srjt-demo"),
    images: Annotated[int, typer.Option(min=100, help="Number of images.")] = 1000,
    epochs: Annotated[int, typer.Option(min=2, max=10_000, help="Epochs per training.")] = 30,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open a page in a browser. [default: in a terminal]"),
    ] = None,
) -> None:
    """Show on synthetic images what wrong labels do, and what srjt does about them: about a minute and a half.

    The same command goes on after an interruption. Delete the folder to start over.
    """
    from srjt.reports.demo import run_demo

    # In a clone set up by make the command is not on the PATH.
    command = "srjt" if shutil.which("srjt") else shlex.quote(sys.argv[0])
    pages = run_demo(out, images=images, epochs=epochs, tell=lambda text: say(f"{text}\n"))
    say("The pages:")
    for page in pages:
        typer.echo(f"  {page}")
    say("With your own labels.csv (image, grade, patient):")
    small = " --preset cpu" if options.machine_options(images) else ""
    for words in (
        "data inspect labels.csv",
        f"train labels.csv --fold 0 --out run{small}",
        f"audit labels.csv --out audit{small}",
    ):
        typer.echo(f"  {command} {words}")
    if open_page or (open_page is None and _is_interactive()):
        webbrowser.open(pages[0].absolute().as_uri())


def _is_interactive() -> bool:
    """Whether a person sits at a screen: a terminal, a display, and no continuous integration."""
    display = (
        not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return sys.stdout.isatty() and bool(display) and not os.environ.get("CI")
