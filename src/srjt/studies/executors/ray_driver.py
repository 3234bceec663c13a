"""Run a study on a Ray cluster, or with Ray on this machine alone.

Ray chooses the nodes and assigns the GPUs. A run whose node or process dies is restarted. A run that raises an
exception has failed: it is not repeated, and the others continue.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from srjt.errors import Interrupted, SrjtError, missing_extra
from srjt.studies.cpu_settings import choose_cpu_settings, cpu_setting
from srjt.studies.executors.ray_files import read_estimates
from srjt.studies.executors.ray_task import TaskSpec, write_token
from srjt.studies.executors.ray_workers import RayWorker, RayWorkers
from srjt.studies.folder import (
    error_file,
    estimates_folder,
    explain_write_errors,
    read_study,
    run_status,
)
from srjt.studies.grid import PlannedRun
from srjt.studies.run_times import longest_first
from srjt.studies.watcher import StudyWatcher
from srjt.training.engine.stop_signal import StopRequest

__all__ = ["run_on_ray"]

RETRIES = 5  # of a run whose node or process died; preemptible nodes die often


def run_on_ray(
    folder: Path,
    planned_runs: Sequence[PlannedRun],
    *,
    watcher: StudyWatcher,
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float | None = None,
    cache: Path | None = None,
    shared: bool = True,
    retries: int = RETRIES,
) -> dict[str, str]:
    """Run what is not done yet; return key → status, as ``run_locally`` does.

    address: of an existing cluster (``auto``: the one of this machine). Default: ``$RAY_ADDRESS``, else Ray is
    started here and stopped at the end.
    gpus_per_run: 0.5 puts two runs on a GPU. Default: 1 if the cluster has GPUs, else 0.
    cpus_per_run: CPU cores reserved for each run. Default: 1.
    shared: a run works in the study's folder if its node sees it; False: results are always sent back.
    """
    cpus = 1.0 if cpus_per_run is None else cpus_per_run
    outcome = {planned.key: run_status(folder, planned.key) for planned in planned_runs}
    # also those that a process of a killed study still works on: their tasks wait for it
    waiting = longest_first([planned for planned in planned_runs if outcome[planned.key] != "done"])
    if not waiting:
        return outcome
    with explain_write_errors(folder):
        for planned in waiting:  # a new attempt starts without the old error; its checkpoints are kept
            error_file(folder, planned.key).unlink(missing_ok=True)
    folder = folder.absolute()
    study = read_study(folder)["study"]
    with _connect(address) as (ray, own), write_token(folder) as token:
        gpus = _resolve_gpus(ray, gpus_per_run, cpus=cpus, own=own, watcher=watcher)
        splits = ray.put((folder / "splits.csv").read_bytes()) if study.get("splits") else None
        actor = ray.remote(num_gpus=gpus, num_cpus=cpus, scheduling_strategy="SPREAD")(RayWorker)
        if gpus == 0:  # here, not on the nodes, which could choose differently
            with explain_write_errors(folder):
                choose_cpu_settings(folder, waiting, threads=max(1, int(cpus)))

        def arguments(planned: PlannedRun) -> tuple[TaskSpec, Any]:
            task = TaskSpec(
                folder=str(folder),
                token=token,
                may_share=shared,
                study=study,
                entry=planned.facts(),
                cwd=str(Path.cwd()),
                cache=None if cache is None else str(cache),
                gpu=gpus > 0,
                threads=None if gpus > 0 else max(1, int(cpus)),
                cpu=None if gpus > 0 else cpu_setting(folder, planned.config),
                estimates=read_estimates(estimates_folder(folder)),
            )
            return task, splits

        workers = RayWorkers(
            ray,
            create=actor.remote,
            arguments=arguments,
            planned_runs=waiting,
            token=token,
            folder=folder,
            outcome=outcome,
            watcher=watcher,
            retries=retries,
        )
        with StopRequest() as stop, workers:
            while workers.unfinished and stop.number is None:
                workers.poll()
            if stop.number is not None:
                workers.stop()
                done = sum(status == "done" for status in outcome.values())
                raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


@contextlib.contextmanager
def _connect(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Ray, connected, and whether Ray was started here for this study alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # the future default of Ray; without it Ray prints a warning
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise missing_extra("ray", "ray", "Running a study on Ray") from None
    if ray.is_initialized():
        yield ray, False
        return
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    if where.startswith("ray://"):
        raise SrjtError(
            f"{where} is the address of a Ray client server, which cannot stream results: run this command on a node "
            "of the cluster with --address auto, or submit it with ray job submit."
        )
    _check_reachable(where)
    own = where == "local"
    options = {"_node_ip_address": "127.0.0.1", "include_dashboard": False} if own else {}
    try:
        with (
            StopRequest() as stop
        ):  # an exception in the middle of it can crash Python, and leave processes behind
            ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"The Ray cluster at {where!r} cannot be used: {str(problem).splitlines()[0]}"
        ) from None
    try:
        if stop.number is not None:
            raise Interrupted(stop.number, "The study stopped while Ray started.")
        with _suppress_node_logs(ray):
            yield ray, own
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _suppress_node_logs(ray: Any) -> Iterator[None]:
    """Ray prints pages of a dead node's log and has no switch for it; the watcher gets one sentence instead."""
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)
    module.print_to_stdstream = lambda *message, **options: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


def _check_reachable(address: str) -> None:
    """An error at once if nothing listens at the address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as problem:
            raise SrjtError(
                f"No Ray cluster answers at {address} ({problem.strerror or problem}): start one with ray start "
                "--head, or omit --address to use this machine alone."
            ) from None


def _resolve_gpus(
    ray: Any, requested: float | None, *, cpus: float, own: bool, watcher: StudyWatcher
) -> float:
    """The share of a GPU for each run; an error, or a note, if no node has the resources of a run."""
    if requested is not None and not 0.0 <= requested <= 1.0:
        raise SrjtError(
            f"gpus_per_run must be between 0 and 1, because a run uses one GPU; got {requested:g}."
        )
    if cpus <= 0:
        raise SrjtError(f"cpus_per_run must be positive; got {cpus:g}.")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = requested if requested is not None else float(any(node.get("GPU", 0) for node in nodes))
    if not any(node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= cpus for node in nodes):
        resources = f"{cpus:g} CPU{'s' * (cpus != 1)} and {gpus:g} GPU{'s' * (gpus != 1)} for a run"
        if own:
            raise SrjtError(
                f"This machine does not have {resources}: request less, or give a cluster with --address."
            )
        watcher.note(f"No node of the cluster has {resources} now: the runs wait until one does.")
    return gpus
