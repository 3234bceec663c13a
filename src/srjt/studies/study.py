"""``srjt.study``: compare methods over noises, folds and seeds, several runs at a time in worker
processes on this machine, or on a Ray cluster, and return the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from srjt.data.duplicates import warn_of_duplicates
from srjt.data.options import without_none
from srjt.errors import Interrupted, SrjtError, warn
from srjt.files import is_locked
from srjt.methods import import_modules
from srjt.process import cores
from srjt.progress import show_bar
from srjt.settings import load_config
from srjt.studies import folder as study_folder
from srjt.studies.config import Execution, StudyConfig
from srjt.studies.keywords import StudySettings
from srjt.studies.plan import PlannedRun, StudyPlan, StudyWatcher, Work, longest_first, open_data
from srjt.studies.results import StudyResults, collect_results
from srjt.training.config import TrainConfig, load_preset
from srjt.training.devices import choose_device
from srjt.training.frozen import resolve_backbone
from srjt.training.trained import Setup, fetch_weights
from srjt.training.workers import Ended, StopRequest, WorkerPool, check_not_starting

if TYPE_CHECKING:  # Python 3.10 has no Unpack
    from typing_extensions import Unpack

# The runs that are left, for an executor: worker processes on this machine, or Ray.


Executor = Callable[[Work], None]


def train_runs(
    folder: Path, planned_runs: Sequence[PlannedRun], execute: Executor, *, watcher: StudyWatcher
) -> dict[str, str]:
    """Train what is not done yet; return key → status. A failing run does not stop the others.

    When the study is asked to stop, runs in progress save their state, and ``Interrupted`` is
    raised.
    """
    outcome = {run.key: study_folder.run_status(folder, run.key) for run in planned_runs}
    watcher.begin(planned_runs, done=list(outcome.values()).count("done"))
    # also those that a process of a killed study still works on: they wait for it
    waiting = longest_first([planned for planned in planned_runs if outcome[planned.key] != "done"])
    if not waiting:
        return outcome
    with study_folder.writing(folder):
        # a new attempt starts without the old error; its checkpoints are kept
        for planned in waiting:
            study_folder.forget_error(folder, planned.key)
    with StopRequest() as stop:
        execute(Work(folder=folder, waiting=waiting, outcome=outcome, watcher=watcher, stop=stop))
    if stop.number is not None:
        done = list(outcome.values()).count("done")
        raise Interrupted(
            stop.number, f"The study stopped with {done} of {len(outcome)} runs done."
        )
    return outcome


# Run a study on this machine: several runs at a time, in worker processes that execute one run
# after another.


def choose_devices(
    *, jobs: int | None = None, device: str | None = None
) -> tuple[tuple[str, ...], int | None]:
    """The device of each worker process, and the threads of each: ``jobs`` (default 1) per GPU;
    without a GPU one run per core, one thread each.

    device: one, or several GPUs as in ``cuda:0,cuda:2``. Default: all GPUs, or the CPU if there is
    none.
    """
    if device is None and torch.cuda.is_available():
        gpus = list(map("cuda:{}".format, range(torch.cuda.device_count())))
    else:
        names = [name.strip() for name in (device or "cpu").split(",")]
        # an error if there is no such device
        gpus = [name for name in names if choose_device(name).type == "cuda"]
        if gpus and len(gpus) < len(names):
            raise SrjtError(
                f"A study uses GPUs or the CPU, not both; got {device!r}.",
                code="conflict",
                option="device",
            )
    if gpus:
        return tuple(gpus) * (jobs or 1), None
    jobs = jobs or cores()
    return ("cpu",) * jobs, max(1, cores() // jobs)


def run_locally(
    work: Work, *, devices: Sequence[str], threads: int | None, cache: Path | None = None
) -> None:
    """Run what is not done yet. A worker process keeps torch, the opened data and the images on its
    GPU from one run to the next."""
    _fetch_weights(work.waiting)
    folder = work.folder
    stop = work.stop
    waiting = list(work.waiting)
    by_key = {planned.key: planned for planned in waiting}
    networks = sorted({str(run.config.backbone or run.config.network) for run in waiting})
    with WorkerPool(devices=devices, threads=threads, networks=networks) as pool:
        while pool.running or (waiting and stop.number is None):
            while pool.has_idle and stop.number is None:
                planned = _first_free(folder, waiting)
                if planned is None:
                    break
                waiting.remove(planned)
                pool.submit(planned.key, study_folder.run_by_key, folder, planned.key, cache)
                work.begin(planned)
            work.watcher.updated([by_key[key] for key in pool.running])
            if stop.number is not None:
                stop.begin_saving()
                pool.terminate()
            for ended in pool.wait():
                status = _final_status(folder, ended, stopping=stop.number is not None)
                work.end(by_key[ended.name], status)


def _first_free(folder: Path, waiting: Sequence[PlannedRun]) -> PlannedRun | None:
    """The first run that nobody writes: one whose study was killed may still be saving its
    state."""
    for planned in waiting:
        if not is_locked(study_folder.run_folder(folder, planned.key)):
            return planned
    return None


def _weights_of(config: TrainConfig) -> tuple[Any, ...]:
    return (config.backbone, config.network, config.weights, config.pretrained)


def _fetch_weights(waiting: Sequence[PlannedRun]) -> None:
    """Fetch pretrained weights before every run reads its images; an error if no run can have its
    weights."""
    problems = []
    wanted = {_weights_of(p.config): p for p in waiting}
    for planned in wanted.values():
        try:
            fetch_weights(planned.config, Setup())
        except SrjtError as problem:  # of this network's runs alone, which will report it
            problems.append(problem)
    if len(problems) == len(wanted):
        raise problems[0]


def _final_status(folder: Path, ended: Ended, *, stopping: bool) -> str:
    """The status of a run whose process has ended; a process that died without an error report gets
    one."""
    status = study_folder.run_status(folder, ended.name)
    if status in ("done", "failed") or stopping:
        return status
    if ended.death:  # else it has raised an exception, and its report could not be written
        problem = ended.error or (
            f"The process of this run was ended {ended.death}. Its checkpoints are kept: run the"
            " same command again to resume."
        )
        study_folder.write_error_report(
            folder, ended.name, SrjtError(problem, code="training_failed")
        )
    return "failed"


# ``srjt.study``: compare methods over noises, folds and seeds, and return the results.

GRID = StudyConfig.__dataclass_fields__.keys() - {"source", "preset", "train"}
COMPUTE = Execution.__dataclass_fields__.keys()


def study(
    source: str | Path | None = None,
    *,
    out: str | Path,
    preset: str | None = None,
    config: str | Path | None = None,
    progress: bool = True,
    watcher: StudyWatcher | None = None,
    **settings: Unpack[StudySettings],
) -> StudyResults:
    """Compare methods over noises, folds and seeds.

    Each combination is trained once, in one of a few worker processes. Call it again after an
    interruption: finished runs are not repeated, unfinished ones are resumed. With one more method,
    only that method is trained. All methods use the same splits and, per noise, fold and seed, the
    same labels.

    In a script, call it under ``if __name__ == "__main__":``, because the worker processes import
    the script.

    Parameters
    ----------
    source : path, optional
        A file or folder that ``srjt.data.read`` accepts, or ``"synthetic"`` for the synthetic
        dataset. Every process reads it again, so a ``Manifest`` in memory is not accepted. Optional
        if ``preset`` or ``config`` has one.
    out : path
        Folder of the study.
    preset : {"cpu", "paper", "limuc", "dr", "demo"}, optional
        Start from these settings. ``config`` and arguments override them.
    config : path, optional
        A YAML file of settings. Arguments override it.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook.
    watcher : StudyWatcher, optional
        Receives the progress instead.
    **settings
        Fields of ``StudyConfig`` (``methods``, ``noises``, also as ``noise``, ``folds``, …), of
        ``Execution`` (``jobs``, ``device``, ``executor``, ``cache``, …), and of ``TrainConfig``,
        which all runs share (``epochs``, ``network``, …).

    Returns
    -------
    StudyResults
        Tables of the runs, their metrics and their scores. A failed run does not stop the others:
        it causes a warning, and its error is in ``results.runs``.

    Examples
    --------
    >>> import srjt
    >>> results = srjt.study(
    ...     "synthetic", methods=["standard", "co-teaching+ours"], noise="quasi:0.4", folds=3,
    ...     only_folds=0, network="tiny", image_size=64, crop=56, epochs=10, out="study",
    ... )  # doctest: +SKIP
    >>> test = results.scores.query("split == 'test' and metric == 'mae'")  # doctest: +SKIP
    >>> test.groupby(["noise", "method"])["value"].agg(["mean", "std"])  # doctest: +SKIP
    """
    check_not_starting("srjt.study")
    if source is not None and not isinstance(source, (str, Path)):
        raise SrjtError(
            "srjt.study takes a path or 'synthetic': each process reads the data itself.",
            code="wrong_type",
            option="data",
        )
    given = {"preset": preset, "config": config, "source": source, **settings, "out": str(out)}
    call = ", ".join(f"{name}={value!r}" for name, value in without_none(given).items())
    shared: dict[str, Any] = {**settings}
    if "noise" in shared:
        shared["noises"] = shared.pop("noise")
    grid = {name: shared.pop(name) for name in GRID & shared.keys()} | {"source": source}
    where = Execution(**{name: shared.pop(name) for name in COMPUTE & shared.keys()})
    file = None if config is None else Path(config)
    resolved = resolve_config(grid, train=shared, preset=preset, file=file)
    execute = choose_executor(where)
    folder = Path(out)
    shown = progress and watcher is None
    data = open_data(resolved, cache=where.cache, quiet=not shown)
    warn_of_duplicates(data.manifest, near=resolved.group_near_duplicates)
    bar = show_bar("study", shown=shown)
    with closing(bar):
        outcome = run_study(
            data,
            folder,
            command=f"srjt.study({call})",
            execute=execute,
            watcher=watcher or StudyWatcher(bar),
        )
    if failed := [key for key, status in outcome.items() if status != "done"]:
        warn(f"{len(failed)} of {len(outcome)} runs failed: see the column error of results.runs.")
    return collect_results(folder)


def _plain(value: Any) -> Any:
    """As a file of settings holds it."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Path):
        return str(value)
    return value


def resolve_config(
    arguments: Mapping[str, Any],
    *,
    train: Mapping[str, Any],
    preset: str | None = None,
    file: Path | None = None,
) -> StudyConfig:
    """The configuration from a preset, then a file, then arguments that are not None.

    Settings of the runs (``train``) and of reading are merged; others are replaced.
    """
    layers: list[Mapping[str, Any]] = []
    if preset:
        layers.append(load_preset(preset))
    if file:
        layers.append(load_config(file))
    layers += [_plain(without_none(arguments)), {"train": dict(train)}]
    merged: dict[str, Any] = {}
    for layer in layers:
        if merged.get("source", layer.get("source")) != layer.get("source", merged.get("source")):
            merged.pop("reading", None)  # the options of reading another source
        for name, value in layer.items():
            if name in ("train", "reading"):
                value = _merged(merged.get(name, {}), value)
            merged[name] = value
    if isinstance(merged["train"], Mapping):
        # methods of your own are registered before they are looked up
        imports = {"imports": merged["train"].get("imports", ())}
        import_modules(TrainConfig.from_dict(imports).imports)
    return StudyConfig.from_dict(merged)


def _merged(below: Any, above: Any) -> Any:
    """Settings over other settings; what is no mapping stays, and is reported by StudyConfig."""
    if above is None:  # nothing after the colon
        above = {}
    if not isinstance(below, Mapping):
        return below
    if not isinstance(above, Mapping):
        return above
    return {**below, **above}


def choose_executor(where: Execution) -> Executor:
    """A function that trains the runs."""
    if where.executor == "ray":
        from srjt.studies.ray import run_on_ray

        return partial(run_on_ray, cache=where.cache, **where.options)
    devices, threads = choose_devices(**where.options)
    return partial(run_locally, devices=devices, threads=threads, cache=where.cache)


def with_backbone(data: StudyPlan) -> StudyPlan:
    """The plan with the name of a backbone in place of "auto", which is the same for all runs; its
    weights are downloaded if need be. Before, the runs have other keys."""
    given = TrainConfig().replace(**data.config.train)
    resolved = resolve_backbone(given, features=data.manifest.are_features)
    train = dict(data.config.train)
    for name, value in vars(resolved).items():
        if getattr(given, name) != value:
            train[name] = value
    if train == data.config.train:
        return data
    return replace(data, config=replace(data.config, train=train))


def run_study(
    data: StudyPlan, folder: Path, *, command: str, execute: Executor, watcher: StudyWatcher
) -> dict[str, str]:
    """Write the plan and train what is not done yet; return key → status."""
    data = with_backbone(data)
    with study_folder.lock_study(folder):
        return train_runs(
            folder, study_folder.write_plan(folder, data, command=command), execute, watcher=watcher
        )
