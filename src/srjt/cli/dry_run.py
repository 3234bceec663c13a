"""``--dry-run`` of ``srjt train`` and ``srjt study``: what would be trained, on what, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from srjt.cli.messages import say
from srjt.errors import count_of, printable

if TYPE_CHECKING:
    from srjt.data import Manifest, Split
    from srjt.studies.grid import PlannedRun, StudyData
    from srjt.training.config import TrainConfig

__all__ = ["print_dry_run", "print_study_times"]


def print_dry_run(manifest: Manifest, split: Split, config: TrainConfig, *, device: str | None) -> None:
    """Print the plan. Nothing is decoded, downloaded or written."""
    from rich.table import Table

    from srjt import methods
    from srjt.console import Console
    from srjt.training.cost import training_cost
    from srjt.training.engine.devices import choose_device, device_name
    from srjt.training.resolve_noise import needs_estimate

    console = Console(highlight=False, markup=False)
    chosen = choose_device(device)
    config = config.for_data(features=manifest.are_features)
    known = methods.lookup(config.method, registered_by=config.imports)
    networks = known.networks
    what = "rows of features" if manifest.are_features else "images"
    table = Table(
        "side", what, *(["patients"] if manifest.patients else []), *map(printable, manifest.grades)
    )
    for name, rows in split.sides().items():
        if len(rows):
            side = manifest.select(rows)
            owners = [f"{len(set(side.patients)):,}"] if side.patients else []
            table.add_row(name, f"{len(rows):,}", *owners, *(f"{count:,}" for count in side.class_counts))
    console.print(table)
    say(
        f"{config.method}: {networks} × {config.network}, {count_of(config.epochs, 'epoch')} in batches "
        f"of {config.batch_size:,}."
    )
    cost = training_cost(manifest, config, training=len(split.train), device=chosen)
    say(f"About {duration(cost.seconds)} for {cost.steps:,} steps on {device_name(chosen)}.")
    parts = [f"{size(cost.network_bytes)} for the networks and the optimiser"]
    if cost.activation_bytes is not None:
        parts.append(f"{size(cost.activation_bytes)} for a step")
    parts.append(f"{size(cost.image_bytes)} for the {what}")
    say(f"Memory: {', '.join(parts)}.")
    if needs_estimate(config) and manifest.posterior is None:
        say("The noise rate is estimated first, by shorter trainings that are not included in the time.")
    say("Nothing was trained: leave out --dry-run to start.", dim=True)


def print_study_times(data: StudyData, planned_runs: Sequence[PlannedRun], *, device: str | None) -> None:
    """Measure a few steps of each method; print the time of one run and of all, on one device and on eight."""
    from rich.progress import Progress
    from rich.table import Column, Table

    from srjt.console import Console
    from srjt.studies.run_times import measure_times, time_on
    from srjt.training.engine.devices import choose_device, device_name

    if not planned_runs:
        return
    console = Console(highlight=False, markup=False)
    chosen = choose_device(device)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("timing the methods")
        times = measure_times(
            data,
            planned_runs,
            device=chosen,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    method = Column(
        "method", overflow="fold"
    )  # a variant's name has no spaces, and nothing of it may be left out
    table = Table(method, "networks", "runs", "one run", "evaluation", "all runs")
    for row in times:
        table.add_row(
            row.name, str(row.networks), f"{row.runs:,}", duration(row.seconds),
            f"{row.evaluation / row.seconds:.0%}", duration(row.runs * row.seconds),
        )  # fmt: skip
    console.print(table)
    # in the order in which the runs are started
    started = sorted(times, key=lambda row: row.networks, reverse=True)
    seconds = [row.seconds for row in started for _ in range(row.runs)]
    say(
        f"{len(seconds):,} run{'s' * (len(seconds) != 1)} on {device_name(chosen)}: about {duration(sum(seconds))} one "
        f"after the other, {duration(time_on(8, seconds))} on eight such devices."
    )
    measured = (
        "Measured by a few steps of each method, on a GPU without compiling them."
        if chosen.type == "cuda"
        else "Measured by a few steps of a method with one network, and of one with two."
    )
    say(f"{measured} Start-up, decoding and noise estimates are not included.", dim=True)


def duration(seconds: float) -> str:
    """For example "40 seconds", "12 minutes", "3.5 hours", "15 days"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} second{'' if round(seconds) <= 1 else 's'}"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:,.0f} days"


def size(count: int) -> str:
    """Bytes with a unit."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 2**10:.0f} KiB"
