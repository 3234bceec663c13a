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
from srjt.cli.options import argument, option
from srjt.cli.output import check_outputs, say
from srjt.errors import SrjtError, count_of
from srjt.inference.options import COMPUTING, Execution

if TYPE_CHECKING:
    from srjt.studies.config import StudyConfig
    from srjt.studies.plan import PlannedRun, StudyPlan

# ``srjt study``: the paper's comparison as one command; ``srjt study status`` and ``srjt study export``.

RUNS = "Every run"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]


@options.reads_a_source(without=("split_column",))
@options.takes_settings(
    shown=("epochs", "network", "image_size", "crop", "batch_size", "learning_rate", "precision"),
    without=("method", "soft_labels"),  # --methods names them, with their options
    panel=RUNS,
)
@options.takes(Execution, as_="computing", panel=COMPUTING)
def run(
    *,
    source: str | None = argument(
        None, "As for srjt train, or 'synthetic': the built-in synthetic data set.", metavar="SOURCE"
    ),
    out: Path = option(Path("study"), "Folder of the study; finished runs are not repeated.", metavar="DIR"),
    methods: list[str] | None = option(
        None,
        "all, or names separated by spaces; with options: codis:select=soft. Repeatable. [default: all]",
        metavar="NAMES",
    ),
    import_: options.Import = None,
    noise: list[str] | None = option(
        None,
        "Noise to inject: quasi:0.2 (a rate), quasi:rho=0.1, truncated:0.4 or none. Repeatable. "
        "[default: none]",
        metavar="NOISE",
    ),
    learning_curve: bool = option(
        False,
        "Also train on a quarter and half of the training patients; and with better labels: half of the injected "
        "noise, or the true or verified grades.",
        "--learning-curve",
    ),
    noise_rate: str | None = option(
        None,
        "ε, the share of wrong labels of data that are noisy already (--noise none); auto estimates it.",
        metavar="RATE|auto",
    ),
    transition: Path | None = option(
        None,
        "CSV file of P, the matrix Pr(label | true grade) of such data. [default: quasi, for ε]",
        metavar="FILE",
    ),
    folds: int | None = option(None, "Number of folds. [default: 5]"),
    fold: list[int] | None = option(None, "Run only this fold. Repeatable."),
    seed: list[int] | None = option(None, "Seed of the noise and the networks. Repeatable. [default: 0]"),
    splits: Path | None = option(None, "Folds from a file of srjt data split.", metavar="FILE"),
    hold_out: str | None = option(
        None, "A fold for each value of this column, such as a site: its test side.", metavar="COLUMN"
    ),
    group_near_duplicates: options.GroupNearDuplicates = False,
    config: Path | None = option(None, "YAML file of the study; options override it.", metavar="FILE"),
    settings: dict[str, Any],
    set_: list[str] | None = option(
        None,
        options.A_SETTING,
        "--set",
        metavar="NAME=VALUE",
        panel=RUNS,
    ),
    computing: dict[str, Any],
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    dry_run: bool = option(False, "List the runs, and stop.", "--dry-run"),
    time_: bool = option(
        False, "With --dry-run: train a few steps of each method, and print the time of all runs.", "--time"
    ),
    how: dict[str, Any],
) -> None:
    """Run methods × noises × folds × seeds.

    Give the same command again to resume. Add a method, and only its runs are new.
    """
    from srjt.cli.output import decoding_bar
    from srjt.cli.samples import read_matrix
    from srjt.cli.train import print_study_times
    from srjt.data.grades import parse_grade_names
    from srjt.settings import parse_overrides
    from srjt.studies.folder import error_file, run_status
    from srjt.studies.plan import BarWatcher, longest_first, open_data
    from srjt.studies.study import choose_executor, resolve_config, run_study

    reading = {k: str(v) if isinstance(v, Path) else v for k, v in how.items()}
    preset = settings.pop("preset", None)
    train = {**settings, **({"imports": import_} if import_ else {})}
    study = resolve_config(
        {
            "source": source,
            "methods": _names(" ".join(methods)) if methods else None,
            "noises": noise,
            "learning_curve": learning_curve or None,
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
    execute = choose_executor(**computing)
    if time_ and not dry_run:
        raise SrjtError("--time is an option of --dry-run: add --dry-run.")
    with nullcontext() if quiet else decoding_bar() as progress:
        data = open_data(study, progress=progress, quiet=quiet)
    if not quiet:
        _print_notes(study, data)
    if dry_run:
        planned_runs = list(data.planned_runs())
        states = [run_status(out, planned.key) for planned in planned_runs]
        if time_:
            left = [run for run, state in zip(planned_runs, states, strict=True) if state != "done"]
            device = str(computing.get("device", "")).split(",")[0]
            print_study_times(data, longest_first(left), device=device or None)
        say(_counts(data, runs=len(states), done=states.count("done")))
        for planned, state in zip(planned_runs, states, strict=True):
            typer.echo(f"  {state:8}{planned.key}")
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


def status(folder: Folder, import_: options.Import = None) -> None:
    """Count the finished, running, failed and remaining runs, and estimate the remaining time."""
    from srjt.studies.results import collect_results, status_lines

    for line in status_lines(collect_results(folder)):
        say(line)


def export(
    folder: Folder,
    out: Path = option(Path("results.csv"), "CSV or Parquet file to write.", metavar="FILE"),
    scores: bool = option(
        False, "One row per run and metric: mean over the last ten epochs, or of the kept one.", "--scores"
    ),
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


def _print_notes(config: StudyConfig, data: StudyPlan) -> None:
    """What the user should know before the runs begin."""
    from srjt.data.duplicates import describe_duplicates

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


def _counts(data: StudyPlan, *, runs: int, done: int) -> str:
    samples = "rows of features" if data.manifest.are_features else "images"
    folds = count_of(len(data.fold_numbers), "fold")
    return f"{count_of(runs, 'run')}: {done} done, {runs - done} to do. {len(data.manifest):,} {samples}, {folds}."


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
        self.console.sentence(text)

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
    folder: Path = argument(
        ..., "Folder of a study, of a single run (finished or not), of an audit or of readers.", metavar="DIR"
    ),
    out: Path | None = option(
        None,
        "HTML file to write. [default: report.html in the folder]",
        metavar="FILE",
        callback=options.html_file,
    ),
    figures: Path | None = option(None, "Also write every figure there, as SVG and PNG.", metavar="DIR"),
    tables: Path | None = option(
        None, "Also write a study's tables there, as Markdown, CSV and LaTeX.", metavar="DIR"
    ),
    metrics: str | None = option(
        None, "Metrics of the tables. [default: accuracy,mae,macro_f1]", metavar="LIST"
    ),
    maps: bool = option(
        False, "Show where the networks of an audit look, for its doubtful labels.", "--maps"
    ),
    checklist: str | None = option(
        None,
        "Write a checklist for a journal, filled in where files of a run know the answer: tripod-ai, claim or "
        "stard-ai.",
        metavar="NAME",
    ),
    also: list[Path] | None = option(
        None,
        "For the checklist: an audit, readers, or a JSON file of evaluate. Repeatable. [default: those beside the run]",
        metavar="PATH",
    ),
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    import_: options.Import = None,
) -> None:
    """Write one self-contained HTML file: tables, figures, the noise, every run, how to reproduce it.

    It needs no network and opens from disk. It names unfinished and failed runs
    at the top.
    """
    from srjt.data.grades import parse_grade_names
    from srjt.reports.report import report as write_report
    from srjt.reports.study_tables import PAPER_METRICS

    check_outputs(out, force=force)
    chosen = PAPER_METRICS if metrics is None else tuple(name.strip() for name in metrics.split(","))
    names = parse_grade_names(grade_names)
    page, *others = write_report(
        folder, out=out, figures=figures, tables=tables, metrics=chosen, maps=maps, grade_names=names,
        checklist=checklist, also=also or (),
    )  # fmt: skip
    if checklist is not None:
        say(f"The checklist is in {page}, for a word processor, and in {others[0]}.")
        if not also:
            say("An audit, readers or evaluations that it does not name: give them with --also.")
        return
    say(f"The report is in {page}.")
    drawn = [file for file in others if file.suffix in (".svg", ".png")]
    if figures is not None:
        say(f"{figures} has {count_of(len(drawn), 'figure file')}.")
    if tables is not None:
        say(f"{tables} has {count_of(len(others) - len(drawn), 'table file')}.")


# ``srjt demo``: the whole idea in a minute and a half, on synthetic images.


def demo(
    out: Path = option(
        Path("srjt-demo"), "Folder of the images, the trainings and the pages.", metavar="DIR"
    ),
    images: int = option(1000, "Number of images.", min=100),
    epochs: int = option(30, "Epochs per training.", min=2, max=10_000),
    open_page: bool | None = option(
        None, "Open a page in a browser. [default: in a terminal]", "--open/--no-open"
    ),
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
