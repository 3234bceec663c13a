"""``srjt.study``: compare methods over noises, folds and seeds, and return the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from srjt.data.groups import DuplicateImagesWarning, describe_duplicates
from srjt.errors import SrjtError, suggest, warn
from srjt.methods.plugins import import_modules
from srjt.progress import show_bar
from srjt.studies.config import StudyConfig, load_preset
from srjt.studies.folder import lock_study, run_status, write_plan
from srjt.studies.grid import PlannedRun, StudyData
from srjt.studies.open_data import open_data
from srjt.studies.results import StudyResults, collect_results
from srjt.studies.watcher import BarWatcher, StudyWatcher
from srjt.training.config import TrainConfig, load_config
from srjt.training.engine.fork_server import check_not_starting

__all__ = ["Executor", "choose_executor", "resolve_config", "run_study", "study"]

Executor = Callable[[Path, Sequence[PlannedRun], StudyWatcher], dict[str, str]]  # returns key → status


def study(
    source: str | Path | None = None,
    *,
    out: str | Path,
    methods: str | Sequence[str] | None = None,
    noise: str | Sequence[str] | None = None,
    noise_rate: float | str | None = None,
    transition: Sequence[Sequence[float]] | None = None,
    folds: int | None = None,
    only_folds: int | Sequence[int] | None = None,
    seeds: int | Sequence[int] | None = None,
    splits: str | Path | None = None,
    group_near_duplicates: bool = False,
    reading: Mapping[str, Any] | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    jobs: int | None = None,
    device: str | None = None,
    executor: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float | None = None,
    cache: str | Path | None = None,
    grade_names: Mapping[str, str] | None = None,
    progress: bool = True,
    watcher: StudyWatcher | None = None,
    **settings: Any,
) -> StudyResults:
    """Compare methods over noises, folds and seeds.

    Each combination is trained once, in one of a few worker processes. Call it again after an interruption: finished
    runs are not repeated, unfinished ones are resumed. With one more method, only that method is trained. All methods
    use the same splits and, per noise, fold and seed, the same labels.

    In a script, call it under ``if __name__ == "__main__":``, because the worker processes import the script.

    Parameters
    ----------
    source : path, optional
        A file or folder that ``srjt.data.read`` accepts, or ``"synthetic"`` for the synthetic dataset. Every process
        reads it again, so a ``Manifest`` in memory is not accepted. Optional if ``preset`` or ``config`` has one.
    out : path
        Folder of the study.
    methods : str or sequence of str, optional
        Names, variants such as ``"codis:select=soft"``, or ``"all"`` for the paper's fourteen and your own.
        Default: ``"all"``.
    noise : str or sequence of str, optional
        Noise injected into training and validation labels: ``"quasi:0.2"`` (a rate), ``"quasi:rho=0.1"``,
        ``"truncated:0.4"`` or ``"none"``. Default: ``"none"``.
    noise_rate : float or "auto", optional
        Noise rate of labels that are noisy already (``noise="none"``). ``"auto"``: estimated from the training
        labels, also if noise is injected.
    transition : (C, C) nested sequence, optional
        Transition matrix of labels that are noisy already. Default: the quasi matrix with rate ``noise_rate``.
    folds : int, optional
        Number of folds. Default: 5.
    only_folds : int or sequence of int, optional
        Train these folds only, numbered from 0.
    seeds : int or sequence of int, optional
        Seeds of the injected noise and of the networks. Default: 0.
    splits : path, optional
        Use the folds of a file that ``srjt data split`` has written.
    group_near_duplicates : bool
        Keep nearly identical images on one side of a split, as identical ones always are.
    reading : mapping, optional
        Options of ``srjt.data.read``, or of ``srjt.data.synthetic.generate``.
    preset : {"limuc", "dr", "demo"}, optional
        Start from the paper's settings. ``config`` and arguments override them.
    config : path, optional
        A YAML file of settings. Arguments override it.
    jobs : int, optional
        Runs at a time: per GPU (default 1), or on the CPU (default one per core).
    device : str, optional
        ``"cpu"``, ``"cuda:1"``, or several GPUs as in ``"cuda:0,cuda:1"``. Default: all GPUs, or the CPU if there is
        none.
    executor : {"local", "ray"}
        Train on this machine, or on a Ray cluster.
    address, gpus_per_run, cpus_per_run : optional
        For ``executor="ray"``: address of the cluster, share of a GPU and CPU cores for each run.
    cache : path, optional
        Folder for decoded images. Default: ``$SRJT_CACHE``, or the user's cache folder.
    grade_names : mapping of str to str, optional
        Grade → its name, for the report.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook.
    watcher : StudyWatcher, optional
        Receives the progress instead.
    **settings
        Any field of ``TrainConfig`` that all runs share: ``epochs``, ``network``, ``learning_rate``, …

    Returns
    -------
    StudyResults
        Tables of the runs, their metrics and their scores. A failed run does not stop the others: it causes a
        warning, and its error is in ``results.runs``.

    Examples
    --------
    >>> import srjt
    >>> results = srjt.study(
    ...     "synthetic", methods=["standard", "co-teaching+ours"], noise="quasi:0.4", folds=3, only_folds=0,
    ...     network="tiny", image_size=64, crop=56, epochs=10, out="study",
    ... )  # doctest: +SKIP
    >>> test = results.scores.query("split == 'test' and metric == 'mae'")  # doctest: +SKIP
    >>> test.groupby(["noise", "method"])["value"].agg(["mean", "std"])  # doctest: +SKIP
    """
    check_not_starting("srjt.study")
    if source is not None and not isinstance(source, (str, Path)):
        raise SrjtError(
            "srjt.study takes a path or 'synthetic': each of its processes reads the data itself."
        )
    arguments = {
        "source": None if source is None else str(source),
        "methods": methods,
        "noises": noise,
        "noise_rate": noise_rate,
        "transition": transition,
        "folds": folds,
        "only_folds": only_folds,
        "seeds": seeds,
        "splits": None if splits is None else str(splits),
        "group_near_duplicates": group_near_duplicates or None,
        "reading": reading and {k: str(v) if isinstance(v, Path) else v for k, v in reading.items()},
        "grade_names": None if grade_names is None else dict(grade_names),
    }
    resolved = resolve_config(
        arguments, train=settings, preset=preset, file=None if config is None else Path(config)
    )
    execute = choose_executor(
        executor,
        jobs=jobs,
        device=device,
        address=address,
        gpus_per_run=gpus_per_run,
        cpus_per_run=cpus_per_run,
        cache=None if cache is None else Path(cache),
    )
    given = {"preset": preset, "config": config, **arguments, **settings, "out": str(out)}
    given["noise"] = given.pop("noises")
    call = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    folder = Path(out)
    shown = progress and watcher is None
    data = open_data(
        resolved,
        cache=None if cache is None else Path(cache),
        quiet=not shown,
    )
    if sentence := describe_duplicates(data.manifest, near=resolved.group_near_duplicates):
        warn(sentence, DuplicateImagesWarning)
    bar = show_bar("study", shown=shown)
    try:
        outcome = run_study(
            data,
            folder,
            command=f"srjt.study({call})",
            execute=execute,
            watcher=watcher or BarWatcher(bar),
        )
    finally:
        bar.close()
    if failed := [key for key, status in outcome.items() if status != "done"]:
        warn(
            f"{len(failed)} of {len(outcome)} runs failed: the column error of results.runs has the reasons."
        )
    return collect_results(folder)


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
    layers = [
        load_preset(preset) if preset else {},
        load_config(file) if file else {},
        {name: value for name, value in arguments.items() if value is not None},
        {"train": dict(train)},
    ]
    merged: dict[str, Any] = {}
    for layer in layers:
        if merged.get("source", layer.get("source")) != layer.get("source", merged.get("source")):
            merged.pop("reading", None)  # the options of reading another source
        for name, value in layer.items():
            if name in ("train", "reading"):
                below, value = (
                    merged.get(name, {}),
                    {} if value is None else value,
                )  # None: nothing after the colon
                # what is no mapping is reported by StudyConfig
                both = isinstance(below, Mapping) and isinstance(value, Mapping)
                value = {**below, **value} if both else value if isinstance(below, Mapping) else below
            merged[name] = value
    if isinstance(
        merged["train"], Mapping
    ):  # methods of your own must be registered before they are looked up
        import_modules(TrainConfig.from_dict({"imports": merged["train"].get("imports", ())}).imports)
    return StudyConfig.from_dict(merged)


def choose_executor(
    name: str,
    *,
    jobs: int | None = None,
    device: str | None = None,
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float | None = None,
    cache: Path | None = None,
) -> Executor:
    """A function that trains the runs; an option of the other executor is an error."""
    options: dict[str, dict[str, Any]] = {
        "local": {"jobs": jobs, "device": device},
        "ray": {"address": address, "gpus_per_run": gpus_per_run, "cpus_per_run": cpus_per_run},
    }
    if name not in options:
        raise suggest("executor", name, options)
    other = next(known for known in options if known != name)
    for option, value in options[other].items():
        if value is not None:
            raise SrjtError(f"{option} is an option of the executor {other!r}, not of {name!r}.")

    def execute(folder: Path, planned_runs: Sequence[PlannedRun], watcher: StudyWatcher) -> dict[str, str]:
        if name == "ray":
            from srjt.studies.executors.ray_driver import run_on_ray

            return run_on_ray(folder, planned_runs, watcher=watcher, cache=cache, **options["ray"])
        from srjt.studies.executors.local import Slots, run_locally

        slots = Slots.detect(**options["local"])
        return run_locally(folder, planned_runs, slots=slots, watcher=watcher, cache=cache)

    return execute


def run_study(
    data: StudyData, folder: Path, *, command: str, execute: Executor, watcher: StudyWatcher
) -> dict[str, str]:
    """Write the plan and train what is not done yet; return key → status."""
    with lock_study(folder):
        planned_runs = write_plan(folder, data, command=command)
        done = sum(run_status(folder, planned.key) == "done" for planned in planned_runs)
        watcher.begin(planned_runs, done=done)
        return execute(folder, planned_runs, watcher)
