"""What a node of a Ray cluster executes: train one run of a study, and send its files where no folder is shared."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srjt._version import __version__
from srjt.errors import Interrupted, SrjtError
from srjt.files import is_locked, lock_folder, write_atomically

# The files that the driver of a study and the nodes of a Ray cluster send to each other where they share no
# folder.

# summary.json is last: a run with it is done
RUN_FILES = ("run.json", "metrics.csv", "history.csv", "weights.safetensors", "summary.json")
# If the run used a noise estimate; if it was trained on images; if it has a validation or test side.
OPTIONAL_FILES = ("noise.json", "image_hashes.npy", "held_out.csv")


def read_run_files(run: Path) -> dict[str, bytes]:
    """The files of a finished run, by name."""
    optional = [name for name in OPTIONAL_FILES if (run / name).exists()]
    return {name: (run / name).read_bytes() for name in (*optional, *RUN_FILES)}


def write_run_files(run: Path, files: Mapping[str, bytes]) -> None:
    """Write a finished run, ``summary.json`` last, which marks it as done. A finished run is not overwritten."""
    from srjt.training.folder import is_finished

    run.mkdir(parents=True, exist_ok=True)
    with lock_folder(run):
        if not is_finished(run):
            for name in (*OPTIONAL_FILES, *RUN_FILES):
                if name in files:
                    write_atomically(run / name, files[name], follow_links=False)


def read_estimates(folder: Path) -> dict[str, bytes]:
    """The noise estimates in a folder, by name."""
    estimates = {}
    with contextlib.suppress(FileNotFoundError):  # the last run on a node removes the folder
        for file in folder.glob("*/noise.json"):
            estimates[file.parent.name] = file.read_bytes()
    return estimates


def write_estimates(folder: Path, estimates: Mapping[str, bytes]) -> None:
    """Write those that the folder does not have."""
    for name, content in estimates.items():
        file = folder / name / "noise.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content, follow_links=False)


# Train one run of a study on a node of a Ray cluster.
#
# If the node sees the study's folder, the run works there. Otherwise it works in a scratch folder of the
# same layout, and its files are sent back; the noise estimates of the study are sent to the node, and new
# ones back.

LOCK_TIMEOUT = 120.0  # seconds to wait for a process that Ray has given up and that still has the lock


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Everything that a node needs to train one planned run."""

    folder: str  # of the study, on the driver
    token: str  # a file in it: a node that finds the file sees the same folder
    may_share: bool  # False: use scratch folders even if the node sees the folder
    study: dict[str, Any]
    entry: dict[str, Any]  # of the planned run in study.json
    cwd: str  # of the driver, so that relative paths mean the same on the nodes
    cache: str | None = None
    gpu: bool = False
    threads: int | None = None
    estimates: Mapping[str, bytes] | None = None  # of the noise, by name: those that exist
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What a node reports about a run: once when it begins (``status`` running), once at the end."""

    status: str  # running, done, failed or left
    shared: bool  # whether it works in the study's own folder
    host: str
    error: str = ""
    broken: bool = False  # whether its process, or its GPU, may no longer work
    files: dict[str, bytes] | None = None  # of a finished run in a scratch folder
    estimates: Mapping[str, bytes] | None = None  # that the study did not have


@contextlib.contextmanager
def write_token(folder: Path) -> Iterator[str]:
    """A file with a random name in the study's folder while the study runs; that of a killed study is a draft."""
    from srjt.studies.folder import explain_write_errors

    with explain_write_errors(folder):
        handle, path = tempfile.mkstemp(prefix=".srjt-token-", suffix=".tmp", dir=folder)
    os.close(handle)
    try:
        yield Path(path).name
    finally:
        Path(path).unlink(missing_ok=True)


def execute(task: TaskSpec, splits: bytes | None) -> Iterator[TaskReport]:
    """Train the run: report first where it works, then how it ended. An exception is reported, not retried.

    splits: contents of the study's ``splits.csv`` if its folds came from a file.
    """
    from srjt.studies.folder import run_folder
    from srjt.training.workers import fresh_process_state, release_memory

    key = task.entry["key"]
    shared = task.may_share and (Path(task.folder) / task.token).exists()
    # the same path in every attempt, so that a new process on this node finds the checkpoints
    scratch = _scratch_folder(task.token) / key
    folder = Path(task.folder) if shared else scratch
    # beside the scratch folders, so that runs of one node that begin together share an estimate
    estimates = scratch.parent / "estimates"
    begun = TaskReport(status="running", shared=shared, host=platform.node())
    try:
        yield begun
        try:
            with fresh_process_state():  # this process gets other runs
                _train(task, splits, folder, estimates=None if shared else estimates)
            files = None if shared else read_run_files(run_folder(folder, key))
            ended = replace(begun, status="done", files=files)
        except (Interrupted, KeyboardInterrupt) as stopped:
            if isinstance(stopped, Interrupted) and stopped.status == 128 + signal.SIGTERM:
                os._exit(
                    stopped.status
                )  # the node is being drained: the driver restarts the run on another one
            ended = replace(begun, status="left")  # the driver has interrupted it
        except Exception as problem:
            ended = replace(
                begun,
                status="failed",
                error=_write_error(folder, key, problem),
                broken=not isinstance(problem, SrjtError),
            )
        if not shared:
            known = task.estimates or {}
            found = read_estimates(estimates)
            ended = replace(ended, estimates={name: found[name] for name in found if name not in known})
        release_memory()
    finally:
        if not shared:
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(OSError):  # another run begins
                if {path.name for path in scratch.parent.iterdir()} <= {"estimates"}:
                    shutil.rmtree(estimates, ignore_errors=True)  # this was the last run on this node
                    scratch.parent.rmdir()
    yield ended  # at last: the driver may end this process then


def _scratch_folder(token: str) -> Path:
    return Path(tempfile.gettempdir()) / token.removeprefix(".").removesuffix(".tmp")


def remove_scratch_folder(token: str) -> None:
    """Remove what processes that died have left on this node."""
    shutil.rmtree(_scratch_folder(token), ignore_errors=True)


def _write_error(folder: Path, key: str, problem: Exception) -> str:
    """Write why the run failed; return the text."""
    from srjt.studies.folder import read_error, write_error_report

    write_error_report(folder, key, problem)
    return read_error(folder, key) or repr(problem)


def _train(task: TaskSpec, splits: bytes | None, folder: Path, *, estimates: Path | None) -> None:
    import torch

    from srjt.methods.registry import import_modules
    from srjt.studies.config import StudyConfig
    from srjt.studies.folder import run_folder, run_planned
    from srjt.studies.plan import open_kept_data

    folder.mkdir(
        parents=True, exist_ok=True
    )  # at once: it keeps the estimates of this node from being removed
    if task.version != __version__:
        raise SrjtError(
            f"{platform.node()} has srjt {__version__}, but the study was started with {task.version}: install the "
            "same version on all nodes."
        )
    if task.gpu and not torch.cuda.is_available():  # training on the CPU would block the GPU for days
        raise SrjtError(
            f"Ray gave this run a GPU of {platform.node()}, but torch {torch.__version__} finds none there: install a "
            "CUDA build of torch on the node, or pass --gpus-per-run 0."
        )
    if task.threads is not None:
        torch.set_num_threads(task.threads)
    with contextlib.suppress(OSError):
        os.chdir(task.cwd)
    study = dict(task.study)
    import_modules(study["train"].get("imports", ()))
    if splits is not None:
        file = folder / "splits.csv"
        if not file.exists():  # a shared folder has it
            write_atomically(file, splits)
        study["splits"] = str(file)
    cache = None if task.cache is None else Path(task.cache)
    data = open_kept_data(StudyConfig.from_dict(study), cache=cache)
    planned = data.find(task.entry)
    if planned.key != task.entry["key"]:
        raise SrjtError(
            f"The data on {platform.node()} differ from those that the study was planned with: copy the data there "
            "again or, if they have changed, run the same command again."
        )
    _wait_for_unlock(run_folder(folder, planned.key))
    known = task.estimates or {}
    if estimates is not None and (name := data.estimate_name(planned)) in known:
        write_estimates(estimates, {name: known[name]})
    run_planned(
        folder,
        data,
        planned,
        device="cuda" if task.gpu else "cpu",
        cache=cache,
        estimates=estimates,
    )


def _wait_for_unlock(run: Path) -> None:
    """A process may outlive the connection to its node by seconds; two must not write to one folder."""
    until = time.monotonic() + LOCK_TIMEOUT
    while is_locked(run) and time.monotonic() < until:
        time.sleep(0.2)
