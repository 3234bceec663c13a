"""``srjt study``, ``srjt report`` and ``srjt demo``: the paper's comparison as one command, pages
of results, and the whole idea in a minute and a half.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import webbrowser
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import srjt
from srjt.cli import (
    SUMMARIES,
    App,
    RunByDefault,
    check_outputs,
    is_terminal,
    options,
    print_line,
    print_table,
    say,
)
from srjt.cli.options import Fields, argument, option
from srjt.errors import SrjtError, count_of, duration, missing_extra
from srjt.inference.options import COMPUTING
from srjt.progress import Bar, Lines, TerminalBar, progress_bar
from srjt.settings import parse_overrides
from srjt.studies.config import RESERVED, Execution, StudyConfig

if TYPE_CHECKING:
    from srjt.studies.plan import PlannedRun, StudyPlan

# ``srjt study``: the paper's comparison as one command; ``srjt study status`` and ``srjt study
# export``.

RUNS = "Every run"
SHOWN = ("epochs", "network", "image_size", "crop", "batch_size", "learning_rate", "precision")
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]


def run(
    source: str | None = argument(
        None,
        "The data, as for srjt train, or 'synthetic' for the built-in synthetic data set.",
        metavar="SOURCE",
    ),
    out: Path = option(
        Path("study"), "Folder of the study. Finished runs are not repeated.", metavar="DIR"
    ),
    config: Path | None = option(None, "YAML file of the study; other options override it."),
    *,
    grid: Annotated[dict[str, Any], Fields(StudyConfig)],
    settings: Annotated[
        dict[str, Any], options.settings_of_a_run(shown=SHOWN, without=RESERVED, panel=RUNS)
    ],
    computing: Annotated[Execution, Fields(Execution, panel=COMPUTING)],
    grade_names: options.GradeNames = None,
    quiet: options.Quiet = False,
    dry_run: bool = option(False, "Print the number of runs of each method, without training."),
    time_: bool = option(
        False, "Train each method for a few steps, and print how long all runs would take."
    ),
    data: Annotated[options.Source, Fields(options.Source, without=("source", "skipped"))],
) -> None:
    """Train every method on every noise, fold and seed.

    Run the same command again to resume. If you add a method, only its runs are
    trained.
    """
    import pandas as pd

    from srjt.studies.folder import error_file, run_status
    from srjt.studies.plan import StudyWatcher, open_data
    from srjt.studies.study import choose_executor, resolve_config, run_study, with_backbone

    preset = settings.pop("preset", None)
    assignments = settings.pop("set_", ())
    if "methods" in grid:
        grid["methods"] = _method_names(grid["methods"])
    if source not in (None, "synthetic"):
        data = replace(data, source=Path(source)).with_reading_file()
    grid |= {"source": source, "grade_names": grade_names, "reading": data.reading_options or None}
    grid |= {"on_bad_image": data.on_bad_image}
    train = {**settings, **parse_overrides(assignments)}
    study = resolve_config(grid, train=train, preset=preset, file=config)
    execute = choose_executor(computing)
    with progress_bar("Decoding", not quiet) as progress:
        plan = open_data(study, progress=progress, quiet=quiet)
    if out.exists() or not (dry_run or time_):  # a dry run of a new study downloads nothing
        plan = with_backbone(plan)
    planned_runs = list(plan.planned_runs())
    left = [planned for planned in planned_runs if run_status(out, planned.key) != "done"]
    if not quiet:
        _print_plan(study, plan, runs=len(planned_runs), left=len(left))
    if time_:
        print_study_times(plan, left, device=(computing.device or "").split(",")[0] or None)
    elif dry_run and study.preset is not None:
        from srjt.training.config import preset_time

        say(
            f"The preset {study.preset} without other settings: {preset_time(study.preset)}. Add"
            " --time to estimate the time on this machine."
        )
    if dry_run or time_:
        methods = [planned.method for planned in planned_runs]
        counts = Counter(f"{method.name}:{method.variant}".rstrip(":") for method in methods)
        print_table(pd.DataFrame(counts.items(), columns=["method", "runs"]))
        return
    bar = Bar() if quiet else Lines()
    if not quiet and is_terminal(err=False):
        bar = TerminalBar("study", lasting=True, stderr=False)
    command = shlex.join(["srjt", *sys.argv[1:]])
    with closing(bar):
        outcome = run_study(plan, out, command=command, execute=execute, watcher=StudyWatcher(bar))
    failed = [key for key, state in outcome.items() if state != "done"]
    for key in failed:
        say(f"The run {key} failed: see {error_file(out, key)}.", fg=typer.colors.RED)
    if not quiet:
        _print_results(out)
        print_line(f"Next: srjt report {shlex.quote(str(out))}")
    if failed:
        raise SrjtError(
            f"{len(failed)} of {len(outcome)} runs failed, and the others are finished. Fix the"
            " cause, and run the same command again.",
            code="training_failed",
        )


def _method_names(typed: Sequence[str]) -> list[str]:
    """Methods are separated by spaces, or by commas, which options of a method use themselves."""
    names: list[str] = []
    for text in " ".join(typed).split():
        if ":" in text:
            names.append(text)
        else:
            names += filter(None, text.split(","))
    return names


def _print_results(folder: Path) -> None:
    """The verdict, what more images and better labels gain, and the scores of every method."""
    from srjt.console import Console
    from srjt.reports.pages.study import (  # matplotlib takes a while
        learning_curve_section,
        study_verdict,
    )
    from srjt.reports.study_tables import PAPER_METRICS, StudyTables
    from srjt.studies.results import collect_results

    results = collect_results(folder)
    say(study_verdict(results))
    console = Console(markup=False, highlight=False)
    for section in learning_curve_section(results, metric="mae"):
        for text in section.text:
            say(text)
        for table in section.tables:
            console.print(table.rich())
    for table in StudyTables(results, PAPER_METRICS).comparison():
        wide = console.options.update(width=1000)  # measured without the limits of the terminal
        fits = console.measure(table.rich(), options=wide).maximum <= console.width
        for part in [table] if fits else table.by_group():
            console.print(part.rich())


def _print_plan(config: StudyConfig, data: StudyPlan, *, runs: int, left: int) -> None:
    """How many runs, and what the user should know before they begin."""
    from srjt.data.duplicates import describe_duplicates

    samples = options.samples_noun(data.manifest)
    folds = count_of(len(data.fold_numbers), "fold")
    counted = f"{count_of(runs, 'run')}: {runs - left} done, {left} to do."
    say(f"{counted} {len(data.manifest):,} {samples}, {folds}.")
    if data.manifest.patients is None:
        say(
            "Warning: there are no patient ids, so images of one patient may be in both the"
            " training and the test data.",
            fg="yellow",
        )
    if sentence := describe_duplicates(data.manifest, near=config.group_near_duplicates):
        say(sentence)


def print_study_times(
    data: StudyPlan, planned_runs: Sequence[PlannedRun], *, device: str | None
) -> None:
    """Measure a few steps; print the time of all runs."""
    from srjt.studies.plan import run_seconds
    from srjt.training.devices import choose_device, device_name

    chosen = choose_device(device)
    seconds = sum(run_seconds(data, planned_runs, device=chosen))
    say(
        f"{count_of(len(planned_runs), 'training')}: about {duration(seconds)} on"
        f" {device_name(chosen)}. This does not include start-up, compiling and decoding, nor a"
        " noise estimate where the head is still to be chosen or features are computed."
    )


def status(folder: Folder, import_: options.Import = None) -> None:
    """Count the finished, running, failed and remaining runs, and estimate the remaining time."""
    from srjt.studies.results import collect_results, status_lines

    for line in status_lines(collect_results(folder)):
        say(line)


def export(
    folder: Folder,
    out: Path = option(Path("results.csv"), "CSV or Parquet file to write."),
    scores: bool = option(
        False,
        "Write one row per run and metric: the mean over the last ten epochs, or the value of the"
        " epoch that is kept.",
    ),
    force: options.Force = False,
    import_: options.Import = None,
) -> None:
    """Write the metrics of all runs as one tidy table, with one row per value."""
    from srjt.files import write_output
    from srjt.studies.results import collect_results, problem_lines

    check_outputs(out, force=force)
    results = collect_results(folder)
    table = results.scores if scores else results.metrics
    if names := results.facts.get("held_out"):
        table = table.assign(held_out=table["fold"].map(dict(enumerate(names))))
    try:
        parquet = out.suffix == ".parquet"
        content = table.to_parquet(index=False) if parquet else table.to_csv(index=False).encode()
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "Writing Parquet files") from None
    write_output(out, content)
    done = int((results.runs["status"] == "done").sum())
    say(
        f"{out} has {count_of(len(table), 'row')} from {done} of"
        f" {count_of(len(results.runs), 'run')}."
    )
    for line in problem_lines(results):
        say(line, fg=typer.colors.YELLOW, err=True)


EXAMPLE = "Example: srjt study labels.csv --noise quasi:0.2 --out DIR."
study_app = App(run, status, export, cls=RunByDefault, help=f"{SUMMARIES['study']}\n\n{EXAMPLE}")


def report(
    folder: Path = argument(
        ..., "Folder of a study, of a single run (finished or not) or of an audit.", metavar="DIR"
    ),
    out: Path | None = option(
        None, "HTML file to write. [default: report.html in the folder]", callback=options.html_file
    ),
    figures: Path | None = option(
        None, "Also write all figures to this folder, as SVG and PNG.", metavar="DIR"
    ),
    tables: Path | None = option(
        None,
        "Also write the tables of a study to this folder, as Markdown, CSV and LaTeX.",
        metavar="DIR",
    ),
    metrics: str = option("accuracy,mae,macro_f1", "Metrics of the tables.", metavar="LIST"),
    checklist: str | None = option(
        None,
        "Write the reporting checklist tripod-ai, claim or stard-ai instead, filled in as far as"
        " the files of the run have the answers.",
        metavar="NAME",
    ),
    also: list[Path] | None = option(
        None,
        "With --checklist: also use this folder of an audit or of readers, or this JSON file of"
        " srjt evaluate. Repeatable.",
        metavar="PATH",
    ),
    without_ids: options.WithoutIds = False,
    force: options.Force = False,
    import_: options.Import = None,
) -> None:
    """Write the results of a study, a run or an audit as one self-contained HTML file.

    The page has tables, figures, the noise, all runs, and how to reproduce them. It
    opens from disk without a connection. Unfinished and failed runs are listed at
    the top.
    """
    check_outputs(out, force=force)
    page, *others = srjt.write_report(
        folder,
        out=out,
        figures=figures,
        tables=tables,
        metrics=[name.strip() for name in metrics.split(",")],
        checklist=checklist,
        also=also or (),
        without_ids=without_ids,
    )
    if checklist is not None:
        files = str(page)
        if others:
            files += f", which word processors open, and in {others[0]}"
        say(f"The checklist is in {files}.")
        if not also:
            say("To use an audit, readers or an evaluation too, name them with --also.")
        return
    say(f"The report is in {page}.")
    for into in filter(None, dict.fromkeys((figures, tables))):
        say(f"{into} has {count_of(sum(file.parent == into for file in others), 'new file')}.")


def demo(
    out: Path = option(
        Path("srjt-demo"), "Folder of the images, the trainings and the pages.", metavar="DIR"
    ),
    images: int = option(1000, "Number of images.", min=100),
    epochs: int = option(30, "Epochs per training.", min=2, max=10_000),
    open_: bool = option(False, "Open the first page in a browser."),
) -> None:
    """Show on synthetic images what wrong labels do and how srjt helps. It takes about a
    minute and a half.

    Run the same command again to resume after an interruption. Delete the folder to
    start over.
    """
    from srjt.reports.demo import run_demo

    pages = run_demo(out, images=images, epochs=epochs, tell=lambda text: say(f"{text}\n"))
    say("The pages:")
    for page in pages:
        print_line(f"  {page}")
    say("To analyse your own table, labels.csv with the columns image, grade and patient:")
    print_line(f"  {_program()} analyse labels.csv")
    if open_:
        webbrowser.open(pages[0].absolute().as_uri())


def _program() -> str:
    """How srjt is called here: in a clone set up by make it is not on the PATH."""
    if shutil.which("srjt"):
        return "srjt"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m srjt"
    return shlex.quote(sys.argv[0])
